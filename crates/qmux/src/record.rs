//! Records (section 3.2 of the draft): a size and that many bytes of frames.

use quic::transport::TransportError;
use quic::varint::{self, Reader};

/// The largest record without its size. It is the default of `max_record_size`, which this side does not raise. Larger records of
/// this side would have no advantage: with its size, such a record fills a TLS record.
pub(crate) const RECORD_MAX: usize = 16_382;

/// The length of the size field in the records of this side.
pub(crate) const SIZE_LENGTH: usize = 2;

/// The position of the first record in received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordSpan {
    /// The start of its frames.
    pub(crate) start: usize,
    /// Its end.
    pub(crate) end: usize,
}

/// Returns where the first record of `bytes` is; `None` if its size is not complete.
///
/// # Errors
/// The record is empty or too large.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<RecordSpan>, TransportError> {
    let mut reader = Reader::new(bytes);
    let Some(size) = reader.number() else { return Ok(None) };
    let start = bytes.len() - reader.left();
    match usize::try_from(size) {
        // A record has at least one frame, as a packet of QUIC (RFC 9000, 12.4).
        Ok(0) => Err(TransportError::violation("a record without frames")),
        Ok(size @ 1..=RECORD_MAX) => Ok(Some(RecordSpan { start, end: start + size })),
        _ => Err(TransportError::encoding("a record is larger than permitted")),
    }
}

/// Sets the size of the record that begins at `start`, with room for [`SIZE_LENGTH`] bytes, and ends with `out`.
pub(crate) fn close(out: &mut [u8], start: usize) {
    let size = out.len() - start - SIZE_LENGTH;
    debug_assert!(size <= RECORD_MAX, "{size}");
    // Cannot truncate: a record is smaller than 16 KiB. The longer form is permitted for small sizes too (RFC 9000, 16).
    let size = (size as u16 | 0x4000).to_be_bytes();
    out[start..start + SIZE_LENGTH].copy_from_slice(&size);
}

/// Appends a record with `frames`.
pub(crate) fn write(out: &mut Vec<u8>, frames: &[u8]) {
    varint::write(out, frames.len() as u64);
    out.extend_from_slice(frames);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_as_written() {
        for size in [1, 63, 64, RECORD_MAX] {
            let mut out = Vec::new();
            write(&mut out, &vec![7; size]);
            let end = out.len();
            assert_eq!(first(&out), Ok(Some(RecordSpan { start: end - size, end })));
            out = vec![0; SIZE_LENGTH];
            out.resize(SIZE_LENGTH + size, 7);
            close(&mut out, 0);
            assert_eq!(first(&out), Ok(Some(RecordSpan { start: SIZE_LENGTH, end: SIZE_LENGTH + size })));
            assert_eq!(first(&out[..1]), Ok(None));
        }
    }
}
