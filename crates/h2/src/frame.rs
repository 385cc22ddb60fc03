//! The nine-byte frame header (RFC 9113 section 4.1), and the numbers of frame types and flags.
//!
//! `connection` interprets frames; this module does not read payloads.

/// The maximum window.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

/// The length of a frame header.
pub const HEADER: usize = 9;
/// The minimum of SETTINGS_MAX_FRAME_SIZE, and its default.
pub const MAX_SIZE_DEFAULT: u32 = 16_384;
/// The maximum of SETTINGS_MAX_FRAME_SIZE.
pub const MAX_SIZE_LIMIT: u32 = (1 << 24) - 1;
/// The client's connection preface (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame type numbers.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218 section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The payload's length in bytes.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The stream ID without the reserved bit, which is ignored.
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Parses the header at the start of `input`, if it is complete.
    #[inline]
    pub(crate) fn read(input: &[u8]) -> Option<FrameHeader> {
        let [a, b, c, kind, flags, id @ ..] = *input.first_chunk::<HEADER>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
        Some(FrameHeader { length, kind, flags, stream })
    }

    #[inline]
    pub(crate) fn bytes(self) -> [u8; HEADER] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The number in the first four bytes, which must be present.
#[inline]
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let header = FrameHeader { length: 0x01_0203, kind: 9, flags: 4, stream: 0x7fff_fff1 };
        assert_eq!(FrameHeader::read(&header.bytes()), Some(header));
        let mut reserved = header.bytes();
        reserved[5] |= 0x80;
        assert_eq!(FrameHeader::read(&reserved), Some(header), "the reserved bit is ignored");
        assert_eq!(FrameHeader::read(&reserved[..8]), None);
    }
}
