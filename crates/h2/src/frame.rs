//! The nine bytes before every frame (RFC 9113 section 4.1), and the numbers of kinds and flags.
//!
//! What a frame means is in `connection`; nothing here looks at a payload.

/// No window is larger.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Bytes of a frame's header.
pub const HEADER: usize = 9;
/// The smallest value that SETTINGS_MAX_FRAME_SIZE can have, and its default.
pub const MAX_SIZE_DEFAULT: u32 = 16_384;
/// The largest value that SETTINGS_MAX_FRAME_SIZE can have.
pub const MAX_SIZE_LIMIT: u32 = (1 << 24) - 1;
/// What a client sends before its first frame (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Numbers of frame kinds.
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

/// Bits of a frame's flags.
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
    /// Bytes of the payload.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Without its reserved bit, whose value is ignored.
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// The header at the start of `input`, once all of it is there.
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

/// The number in the first four bytes, which the caller knows to be there.
#[inline]
pub(crate) fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_as_it_was_written() {
        let header = FrameHeader { length: 0x01_0203, kind: 9, flags: 4, stream: 0x7fff_fff1 };
        assert_eq!(FrameHeader::read(&header.bytes()), Some(header));
        let mut reserved = header.bytes();
        reserved[5] |= 0x80;
        assert_eq!(FrameHeader::read(&reserved), Some(header), "the reserved bit is ignored");
        assert_eq!(FrameHeader::read(&reserved[..8]), None);
    }
}
