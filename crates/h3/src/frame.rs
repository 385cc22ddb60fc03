//! Frame headers (RFC 9114 section 7.1), and the numbers of frame and stream types.
//!
//! `connection` interprets frames; this module does not read payloads.

use crate::varint;

/// The longest frame header, in bytes.
pub const HEADER_MAX: usize = 2 * varint::LONGEST;

/// Frame type numbers.
pub mod kind {
    #![allow(missing_docs, reason = "the names of the RFCs")]

    pub const DATA: u64 = 0;
    pub const HEADERS: u64 = 1;
    pub const CANCEL_PUSH: u64 = 3;
    pub const SETTINGS: u64 = 4;
    pub const PUSH_PROMISE: u64 = 5;
    pub const GOAWAY: u64 = 7;
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// For a request (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// For a push.
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

    /// Whether the type belongs to an HTTP/2 frame without a counterpart, which HTTP/3 forbids (RFC 9114 section 7.2.8).
    #[must_use]
    pub fn is_reserved(kind: u64) -> bool {
        matches!(kind, 2 | 6 | 8 | 9)
    }
}

/// The types of unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).
pub mod uni {
    #![allow(missing_docs, reason = "the names of the RFCs")]

    pub const CONTROL: u64 = 0;
    pub const PUSH: u64 = 1;
    pub const QPACK_ENCODER: u64 = 2;
    pub const QPACK_DECODER: u64 = 3;
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Its type.
    pub kind: u64,
    /// The payload's length in bytes.
    pub length: u64,
}

impl FrameHeader {
    /// Takes the header at the start of `input`; `None` if it is incomplete, in which case `input` is unchanged.
    #[inline]
    pub fn take(input: &mut &[u8]) -> Option<FrameHeader> {
        let mut rest = *input;
        let header = FrameHeader { kind: varint::take(&mut rest)?, length: varint::take(&mut rest)? };
        *input = rest;
        Some(header)
    }

    /// Appends the header.
    pub fn put(self, out: &mut Vec<u8>) {
        varint::put(self.kind, out);
        varint::put(self.length, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_wait_for_their_last_byte() {
        for (kind, length) in [(0, 0), (1, 64), (0xf_0700, 1 << 40), (varint::MAX, varint::MAX)] {
            let (header, mut out) = (FrameHeader { kind, length }, Vec::new());
            header.put(&mut out);
            assert!(out.len() <= HEADER_MAX);
            for cut in 0..out.len() {
                let mut part = &out[..cut];
                assert_eq!((FrameHeader::take(&mut part), part.len()), (None, cut));
            }
            let mut whole = &out[..];
            assert_eq!((FrameHeader::take(&mut whole), whole.len()), (Some(header), 0));
        }
    }
}
