//! Frames, the transport units of SPOP (SPOE, 3.2).

use base::varint;

use crate::data::read_number;

/// Frame types.
pub mod kind {
    /// The HELLO that this side sends.
    pub const HAPROXY_HELLO: u8 = 1;
    /// The DISCONNECT that this side sends.
    pub const HAPROXY_DISCONNECT: u8 = 2;
    /// Messages for the agent.
    pub const NOTIFY: u8 = 3;
    /// The agent's HELLO.
    pub const AGENT_HELLO: u8 = 101;
    /// The agent's DISCONNECT.
    pub const AGENT_DISCONNECT: u8 = 102;
    /// The agent's answer to messages.
    pub const ACK: u8 = 103;
}

/// The flag of a payload's last frame. All frames have it, because payloads are not fragmented.
pub(crate) const FIN: u32 = 1;

/// Size of the length field.
pub(crate) const LENGTH: usize = 4;

/// A frame without its length field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The [type](kind) of the frame.
    pub kind: u8,
    /// The flags of the frame.
    pub flags: u32,
    /// The stream id.
    pub stream: u64,
    /// The frame id within the stream.
    pub frame: u64,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses a frame without its length field; `None` if it is invalid.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (flags, mut rest) = rest.split_first_chunk()?;
        let stream = read_number(&mut rest)?;
        let frame = read_number(&mut rest)?;
        Some(Self { kind: *kind, flags: u32::from_be_bytes(*flags), stream, frame, payload: rest })
    }

    /// Appends the frame with its length field.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        out.push(self.kind);
        out.extend_from_slice(&self.flags.to_be_bytes());
        varint::write(out, self.stream);
        varint::write(out, self.frame);
        out.extend_from_slice(self.payload);
        let length = (out.len() - start - LENGTH) as u32;
        out[start..start + LENGTH].copy_from_slice(&length.to_be_bytes());
    }

    /// Returns a frame that belongs to no stream.
    pub(crate) fn of_connection(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, flags: FIN, stream: 0, frame: 0, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_truncated_heads_are_refused() {
        let frame = Frame { kind: kind::ACK, flags: FIN, stream: 3000, frame: 1, payload: b"xy" };
        let mut out = Vec::new();
        frame.write(&mut out);
        assert_eq!(out, b"\0\0\0\x0b\x67\0\0\0\x01\xf8\xac\0\x01xy");
        assert_eq!(Frame::read(&out[4..]), Some(frame));
        for cut in 4..13 {
            assert_eq!(Frame::read(&out[4..cut]), None);
        }
    }
}
