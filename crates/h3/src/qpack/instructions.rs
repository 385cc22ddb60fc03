//! Integers in instructions of the decoder stream, which may be stream IDs of 62 bits.

use super::DecodeError;
use crate::varint;

/// Takes an integer of up to 62 bits that starts in `first`, the byte before `rest`; `None` if it is incomplete.
pub(super) fn take_long(first: u8, mask: u8, rest: &mut &[u8]) -> Result<Option<u64>, DecodeError> {
    let mut value = u64::from(first & mask);
    if value < u64::from(mask) {
        return Ok(Some(value));
    }
    let mut shift = 0;
    while let Some((&byte, left)) = rest.split_first() {
        *rest = left;
        // Nine bytes hold 63 bits.
        if shift > 56 {
            return Err(DecodeError::Index);
        }
        value += u64::from(byte & 0x7f) << shift;
        shift += 7;
        if value > varint::MAX {
            return Err(DecodeError::Index);
        }
        if byte & 0x80 == 0 {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_ids_of_any_size_are_read() {
        for value in [0, 62, 63, 64, 1000, u64::from(u32::MAX), varint::MAX] {
            for mask in [0x3f, 0x7f] {
                let mut out = Vec::new();
                fields::integer::put(value as usize, mask, 0x80, &mut out);
                let (first, mut rest) = out.split_first().unwrap();
                assert_eq!(take_long(*first, mask, &mut rest), Ok(Some(value)));
                if out.len() > 1 {
                    assert_eq!(take_long(*first, mask, &mut &out[1..out.len() - 1]), Ok(None));
                }
            }
        }
        let long = [0xff; 11];
        assert_eq!(take_long(0xff, 0x7f, &mut &long[..]), Err(DecodeError::Index));
    }
}
