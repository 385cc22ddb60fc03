//! The engine against handwritten bytes.

mod floods;
mod life;
mod output;
mod reversed;
mod spec;
mod windows;

use std::io::IoSlice;
use std::sync::Arc;

use http::Head;

use super::{Connection, Role};
use crate::fault::Closed;
use crate::frame::{FrameHeader, HEADER, PREFACE, flag, kind};
use crate::limits::Config;
use crate::{Code, Event, StreamKey};

pub(super) type Engine = Connection<Vec<u8>>;

/// Serializes a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { length: payload.len(), kind, flags, stream };
    [&header.bytes(), payload].concat()
}

/// A header block of literals that use no table.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

pub(super) fn request_block(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    block(&[&fields[..], more].concat())
}

/// HEADERS of a request without a body.
pub(super) fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &request_block("GET", &[]))
}

/// HEADERS of a request with a body to follow.
pub(super) fn post(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, &request_block("POST", more))
}

/// HEADERS of a response.
pub(super) fn answer(stream: u32, status: &str, end: bool, more: &[(&str, &str)]) -> Vec<u8> {
    let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
    frame(kind::HEADERS, flags, stream, &block(&[&[(":status", status)], more].concat()))
}

pub(super) fn data(stream: u32, length: usize, end: bool) -> Vec<u8> {
    frame(kind::DATA, u8::from(end), stream, &vec![b'x'; length])
}

pub(super) fn number(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// A setting.
pub(super) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// One side of a connection; the test is the peer.
pub(super) struct Side {
    pub(super) engine: Engine,
    pub(super) events: Vec<Event>,
    pub(super) closed: Option<Closed>,
}

impl Side {
    /// A side after both prefaces, with empty output.
    pub(super) fn new(role: Role, config: Config) -> Side {
        let mut side =
            Side { engine: Connection::new(role, &Arc::new(config)), events: Vec::new(), closed: None };
        if role == Role::Server {
            side.feed(PREFACE);
        }
        side.feed(&frame(kind::SETTINGS, 0, 0, &[]));
        side.feed(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
        assert_eq!((side.events(), side.closed), (vec![Event::Settings], None));
        side.frames();
        side
    }

    pub(super) fn server() -> Side {
        Side::new(Role::Server, Config::default())
    }

    pub(super) fn client() -> Side {
        Side::new(Role::Client, Config::default())
    }

    /// Feeds all bytes, in as many turns as needed.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> &mut Side {
        loop {
            match self.engine.receive(bytes) {
                Ok((taken, event)) => {
                    bytes = &bytes[taken..];
                    self.engine.check_invariants();
                    if event.is_none() {
                        break;
                    }
                    self.events.extend(event);
                }
                Err(closed) => {
                    self.closed = Some(closed);
                    break;
                }
            }
        }
        self
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes all output.
    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.engine.pending() > 0 {
            let mut slices = [IoSlice::new(&[]); 64];
            let filled = self.engine.output(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
            self.engine.sent(bytes.len());
            all.extend(bytes);
        }
        all
    }

    /// Takes all output as frames.
    pub(super) fn frames(&mut self) -> Vec<(FrameHeader, Vec<u8>)> {
        let all = self.bytes();
        let mut rest = all.strip_prefix(&PREFACE[..]).unwrap_or(&all);
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::read(rest) {
            frames.push((header, rest[HEADER..HEADER + header.length].to_vec()));
            rest = &rest[HEADER + header.length..];
        }
        assert!(rest.is_empty());
        frames
    }

    /// The stream resets sent since the last call.
    pub(super) fn resets(&mut self) -> Vec<(u32, Code)> {
        let of = |(header, payload): &(FrameHeader, Vec<u8>)| {
            (header.kind == kind::RST_STREAM)
                .then(|| (header.stream, Code::from_number(crate::frame::number(payload))))
        };
        self.frames().iter().filter_map(of).collect()
    }

    /// The key of the stream opened by the last events.
    pub(super) fn opened(&mut self) -> StreamKey {
        let events = self.events();
        let key = events.iter().rev().find_map(|event| match event {
            Event::Head { key, .. } => Some(*key),
            _ => None,
        });
        key.unwrap_or_else(|| panic!("no head in {events:?}, {:?}", self.closed))
    }

    /// Sends a request, as a client.
    pub(super) fn request(&mut self, method: &[u8], end: bool) -> StreamKey {
        let mut head = Head::new();
        head.start_request(method, b"/");
        head.append(b"host", b"a");
        let key = self.engine.open(&head, fields::Scheme::Http, end).expect("a stream can be opened");
        self.engine.check_invariants();
        key
    }

    /// Sends a response, as a server.
    pub(super) fn respond(&mut self, key: StreamKey, end: bool) {
        let mut head = Head::new();
        head.start_response(200, None);
        self.engine.send_head(key, &head, end);
        self.engine.check_invariants();
    }
}
