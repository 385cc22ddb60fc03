//! Frames: what everything is sent in (SPOE, 3.2).

use base::varint;

use crate::data::read_number;

/// The kinds of frames.
pub mod kind {
    /// Our part of the handshake.
    pub const HAPROXY_HELLO: u8 = 1;
    /// We are about to close.
    pub const HAPROXY_DISCONNECT: u8 = 2;
    /// Messages for the agent.
    pub const NOTIFY: u8 = 3;
    /// The agent's part of the handshake.
    pub const AGENT_HELLO: u8 = 101;
    /// The agent is about to close.
    pub const AGENT_DISCONNECT: u8 = 102;
    /// The agent's answer to messages.
    pub const ACK: u8 = 103;
}

/// The flag of a payload that goes on in no other frame; all have it.
pub(crate) const FIN: u32 = 1;

/// What the length itself takes.
pub(crate) const LENGTH: usize = 4;

/// A frame behind its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its [kind].
    pub kind: u8,
    /// Its flags.
    pub flags: u32,
    /// The number of the stream.
    pub stream: u64,
    /// The number of the frame in the stream.
    pub frame: u64,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame, its length already taken away; `None` where it is none.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (flags, mut rest) = rest.split_first_chunk()?;
        let stream = read_number(&mut rest)?;
        let frame = read_number(&mut rest)?;
        Some(Self { kind: *kind, flags: u32::from_be_bytes(*flags), stream, frame, payload: rest })
    }

    /// Appends the frame behind its length.
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

    /// A frame that is of no stream.
    pub(crate) fn of_connection(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, flags: FIN, stream: 0, frame: 0, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_and_half_of_its_head_does_not() {
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
