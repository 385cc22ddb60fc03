//! The HELLO and DISCONNECT frames (SPOE, 3.2.4, 3.2.5, 3.2.8 and 3.2.9).

use crate::LEAST_FRAME;
use crate::data::{Data, read_text, write_text, write_u32};
use crate::frame::{Frame, kind};
use crate::status::Status;

/// The only version supported.
const VERSION: &[u8] = b"2.0";
const PIPELINING: &[u8] = b"pipelining";

/// The HELLO that this side sends.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The largest frame, in bytes without the length field.
    pub frame_size: u32,
    /// Whether a connection may have several queries at a time.
    pub pipelining: bool,
    /// The engine id; empty in a health check.
    pub engine: &'a str,
    /// Whether this is a health check, which ends after the handshake.
    pub is_check: bool,
}

impl Offer<'_> {
    /// Appends the frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut items = Vec::with_capacity(128);
        write_text(&mut items, b"supported-versions");
        Data::Str(VERSION).write(&mut items);
        write_text(&mut items, b"max-frame-size");
        write_u32(&mut items, self.frame_size);
        write_text(&mut items, b"capabilities");
        Data::Str(if self.pipelining { PIPELINING } else { b"" }).write(&mut items);
        if self.is_check {
            write_text(&mut items, b"healthcheck");
            Data::Bool(true).write(&mut items);
        }
        if !self.engine.is_empty() {
            write_text(&mut items, b"engine-id");
            Data::Str(self.engine.as_bytes()).write(&mut items);
        }
        Frame::of_connection(kind::HAPROXY_HELLO, &items).write(out);
    }
}

/// The agent's HELLO, with the agreed options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentHello {
    /// The largest frame, in bytes without the length field.
    pub frame_size: u32,
    /// Whether a connection may have several queries at a time.
    pub pipelining: bool,
}

impl AgentHello {
    /// Parses the payload of an agent that was offered frames of up to `most` bytes.
    ///
    /// # Errors
    /// The status that describes the violation.
    pub fn read(mut payload: &[u8], most: u32) -> Result<Self, Status> {
        let (mut version, mut frame_size, mut pipelining) = (false, None, None);
        while !payload.is_empty() {
            let name = read_text(&mut payload).ok_or(Status::INVALID)?;
            match (name, Data::read(&mut payload).ok_or(Status::INVALID)?) {
                (b"version", Data::Str(text)) => {
                    version = true;
                    if text.trim_ascii() != VERSION {
                        return Err(Status::BAD_VERSION);
                    }
                }
                (b"max-frame-size", Data::Int(size)) => {
                    let size = u32::try_from(size).ok().filter(|size| (LEAST_FRAME..=most).contains(size));
                    frame_size = Some(size.ok_or(Status::BAD_FRAME_SIZE)?);
                }
                (b"capabilities", Data::Str(list)) => {
                    let mut all = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                    pipelining = Some(all.any(|one| one == PIPELINING));
                }
                (b"version" | b"max-frame-size" | b"capabilities", _) => return Err(Status::INVALID),
                _ => {}
            }
        }
        match (version, frame_size, pipelining) {
            (false, ..) => Err(Status::NO_VERSION),
            (_, None, _) => Err(Status::NO_FRAME_SIZE),
            (_, _, None) => Err(Status::NO_CAPABILITIES),
            (true, Some(frame_size), Some(pipelining)) => Ok(Self { frame_size, pipelining }),
        }
    }
}

/// The DISCONNECT of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goodbye<'a> {
    /// The status code.
    pub status: Status,
    /// The message.
    pub message: Option<&'a [u8]>,
}

impl<'a> Goodbye<'a> {
    /// Parses the payload.
    ///
    /// # Errors
    /// The payload is invalid.
    pub fn read(mut payload: &'a [u8]) -> Result<Self, Status> {
        let mut goodbye = Self { status: Status::UNKNOWN, message: None };
        while !payload.is_empty() {
            let name = read_text(&mut payload).ok_or(Status::INVALID)?;
            match (name, Data::read(&mut payload).ok_or(Status::INVALID)?) {
                (b"status-code", Data::Int(code)) => {
                    goodbye.status = u32::try_from(code).map_or(Status::UNKNOWN, Status);
                }
                (b"message", Data::Str(text) | Data::Bin(text)) => goodbye.message = Some(text),
                _ => {}
            }
        }
        Ok(goodbye)
    }

    /// Appends the DISCONNECT frame of this side.
    pub(crate) fn write(status: Status, out: &mut Vec<u8>) {
        let mut items = Vec::with_capacity(64);
        write_text(&mut items, b"status-code");
        write_u32(&mut items, status.0);
        write_text(&mut items, b"message");
        Data::Str(status.reason().as_bytes()).write(&mut items);
        Frame::of_connection(kind::HAPROXY_DISCONNECT, &items).write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] =
        b"\x07version\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining";

    #[test]
    fn hello_is_parsed_and_missing_items_have_their_own_status() {
        assert_eq!(AgentHello::read(GOOD, 16380), Ok(AgentHello { frame_size: 16380, pipelining: true }));
        assert_eq!(AgentHello::read(GOOD, 16379), Err(Status::BAD_FRAME_SIZE));
        let cases: [(&[u8], Status); 8] = [
            (b"", Status::NO_VERSION),
            (b"\x07version\x08\x032.0", Status::NO_FRAME_SIZE),
            (b"\x07version\x08\x032.0\x0emax-frame-size\x03\xf0\x01", Status::NO_CAPABILITIES),
            (b"\x07version\x08\x033.0", Status::BAD_VERSION),
            (b"\x07version\x03\x02", Status::INVALID),
            (b"\x0emax-frame-size\x03\xef", Status::BAD_FRAME_SIZE),
            (b"\x0emax-frame-size\x08\x01x", Status::INVALID),
            (b"\x07vers", Status::INVALID),
        ];
        for (payload, status) in cases {
            assert_eq!(AgentHello::read(payload, 16380), Err(status), "{}", payload.escape_ascii());
        }
    }

    #[test]
    fn capabilities_may_have_blanks_and_unknown_names() {
        for (list, pipelining) in [("", false), ("async, pipelining ", true), ("xpipelining", false)] {
            let mut payload =
                b"\x07version\x08\x042.0 \x0emax-frame-size\x03\xf0\x10\x0ccapabilities".to_vec();
            Data::Str(list.as_bytes()).write(&mut payload);
            let hello = AgentHello::read(&payload, 4000).expect("it is one");
            assert_eq!(hello, AgentHello { frame_size: 496, pipelining }, "{list}");
        }
    }

    #[test]
    fn disconnect_round_trips() {
        let mut out = Vec::new();
        Goodbye::write(Status::TOO_BIG, &mut out);
        let frame = Frame::read(&out[4..]).expect("it is a frame");
        assert_eq!((frame.kind, frame.stream, frame.frame), (kind::HAPROXY_DISCONNECT, 0, 0));
        let goodbye = Goodbye::read(frame.payload).expect("it is one");
        assert_eq!(goodbye, Goodbye { status: Status::TOO_BIG, message: Some(b"frame is too big") });
    }
}
