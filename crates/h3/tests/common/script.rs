//! An engine with a scripted peer: handwritten bytes on handwritten streams.

use std::sync::Arc;

use fields::{Scheme, integer, string};
use h3::frame::{FrameHeader, kind, uni};
use h3::{Code, Config, Connection, H3Event, RequestKey, Role, Streams, Violation, varint};
use http::Head;

use super::{CLIENT, SERVER, Wire, tell};

/// Serializes a frame.
pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHeader { kind, length: payload.len() as u64 }.put(&mut out);
    out.extend_from_slice(payload);
    out
}

/// A field section of literals that use no table.
pub(crate) fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        string::put(name.as_bytes(), 0x07, 0x20, &mut out);
        string::put(value.as_bytes(), 0x7f, 0, &mut out);
    }
    out
}

pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, &section(fields))
}

/// HEADERS of a request with this method, and more fields.
pub(crate) fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "https"), (":path", "/"), (":authority", "a")];
    headers(&[&fields[..], more].concat())
}

/// HEADERS of a response with this status, and more fields.
pub(crate) fn response(status: &str, more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&[(":status", status)], more].concat())
}

pub(crate) fn data(length: usize) -> Vec<u8> {
    frame(kind::DATA, &vec![b'x'; length])
}

pub(crate) fn number(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(value, &mut out);
    out
}

/// A SETTINGS frame.
pub(crate) fn settings(pairs: &[(u64, u64)]) -> Vec<u8> {
    frame(
        kind::SETTINGS,
        &pairs.iter().flat_map(|(id, value)| [number(*id), number(*value)].concat()).collect::<Vec<u8>>(),
    )
}

/// An instruction or a line with an index or a length.
pub(crate) fn indexed(first: u8, mask: u8, value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    integer::put(value, mask, first, &mut out);
    out
}

pub(crate) struct Script {
    pub(crate) engine: Connection,
    pub(crate) wire: Wire,
    me: usize,
    pub(crate) events: Vec<H3Event>,
    pub(crate) closed: Option<Violation>,
    /// How many bytes of a stream arrive at once.
    pub(crate) step: usize,
}

impl Script {
    /// An engine before anything arrived.
    pub(crate) fn silent(role: Role, config: Config) -> Script {
        let me = if role == Role::Client { CLIENT } else { SERVER };
        let mut wire = Wire::new(1 << 20, 100);
        wire.keeps_log = true;
        let mut engine = Connection::new(role, &Arc::new(config));
        engine.start(&mut wire.side(me));
        Script { engine, wire, me, events: Vec::new(), closed: None, step: usize::MAX }
    }

    /// An engine that has received SETTINGS on the control stream.
    pub(crate) fn new(role: Role, config: Config) -> Script {
        let mut script = Script::silent(role, config);
        script.uni(uni::CONTROL, &settings(&[]));
        script.run();
        assert_eq!((script.take_events(), script.closed), (vec![H3Event::Settings], None));
        script
    }

    pub(crate) fn server() -> Script {
        Script::new(Role::Server, Config::default())
    }

    pub(crate) fn client() -> Script {
        Script::new(Role::Client, Config::default())
    }

    fn peer(&self) -> usize {
        1 - self.me
    }

    /// The peer opens a unidirectional stream of this type.
    pub(crate) fn uni(&mut self, kind: u64, bytes: &[u8]) -> u64 {
        let id = self.wire.open(self.peer(), true);
        self.put(id, &number(kind));
        self.put(id, bytes);
        id
    }

    /// The peer's control stream, which is its first one.
    pub(crate) fn control(&self) -> u64 {
        2 + self.peer() as u64
    }

    /// The peer opens a bidirectional stream.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> u64 {
        let id = self.wire.open(self.peer(), false);
        self.put(id, bytes);
        id
    }

    /// The peer sends a complete request.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> u64 {
        let id = self.open(bytes);
        self.finish(id);
        id
    }

    pub(crate) fn put(&mut self, id: u64, bytes: &[u8]) {
        let peer = self.peer();
        if !bytes.is_empty() {
            assert_eq!(self.wire.side(peer).write(id, bytes), Ok(bytes.len()));
        }
    }

    pub(crate) fn finish(&mut self, id: u64) {
        let peer = self.peer();
        self.wire.side(peer).finish(id);
    }

    pub(crate) fn reset(&mut self, id: u64, code: u64) {
        let peer = self.peer();
        self.wire.side(peer).reset(id, code);
    }

    pub(crate) fn stop(&mut self, id: u64, code: u64) {
        let peer = self.peer();
        self.wire.side(peer).stop(id, code);
    }

    /// Delivers everything that the peer sent, in pieces, and what the engine sent.
    pub(crate) fn run(&mut self) -> &mut Script {
        loop {
            let before = self.wire.progress;
            let keys: Vec<(u64, usize)> = self.wire.pipes.keys().copied().collect();
            for (id, writer) in keys {
                self.wire.deliver(id, writer, self.step);
                self.turn();
            }
            if self.wire.progress == before {
                return self;
            }
        }
    }

    fn turn(&mut self) {
        for report in std::mem::take(&mut self.wire.reports[self.me]) {
            tell(&mut self.engine, report);
        }
        while self.closed.is_none() {
            let next = self.engine.next(&mut self.wire.side(self.me));
            self.engine.check_invariants();
            match next {
                Ok(Some(event)) => self.events.push(event),
                Ok(None) => break,
                Err(violation) => self.closed = Some(violation),
            }
        }
    }

    pub(crate) fn take_events(&mut self) -> Vec<H3Event> {
        std::mem::take(&mut self.events)
    }

    /// The key of the stream that the last head came on.
    pub(crate) fn head(&mut self) -> RequestKey {
        let events = self.take_events();
        let key = events.iter().rev().find_map(|event| match event {
            H3Event::Head { key, .. } => Some(*key),
            _ => None,
        });
        key.unwrap_or_else(|| panic!("no head in {events:?}, {:?}", self.closed))
    }

    /// Sends a request, as a client.
    pub(crate) fn send_request(&mut self, method: &[u8], ends: bool) -> RequestKey {
        let mut head = Head::new();
        head.start_request(method, if method == b"CONNECT" { b"a:443" } else { b"/" });
        head.append(b"host", b"a");
        let opened = self.engine.open_request(&mut self.wire.side(self.me), &head, Scheme::Https, ends);
        opened.expect("a stream can be opened")
    }

    /// Sends a response, as a server.
    pub(crate) fn respond(&mut self, key: RequestKey, status: u16, ends: bool) {
        let mut head = Head::new();
        head.start_response(status, None);
        self.engine.send_head(&mut self.wire.side(self.me), key, &head, ends);
    }

    pub(crate) fn release(&mut self, key: RequestKey, code: Option<Code>) {
        self.engine.release(&mut self.wire.side(self.me), key, code);
    }

    pub(crate) fn send(&mut self, key: RequestKey, bytes: &[u8], ends: bool) -> usize {
        self.engine.send_data(&mut self.wire.side(self.me), key, bytes, ends)
    }

    pub(crate) fn announce_shutdown(&mut self) {
        self.engine.announce_shutdown(&mut self.wire.side(self.me));
    }

    pub(crate) fn shutdown(&mut self) {
        self.engine.shutdown(&mut self.wire.side(self.me));
    }

    /// The code with which the engine reset its half of a stream.
    pub(crate) fn sent_reset(&self, id: u64) -> Option<Code> {
        self.wire.pipes.get(&(id, self.me))?.reset.map(Code::from_number)
    }

    /// The code with which it asked the peer to stop.
    pub(crate) fn sent_stop(&self, id: u64) -> Option<Code> {
        self.wire.pipes.get(&(id, self.peer()))?.stop.map(Code::from_number)
    }

    /// Everything that it wrote to a stream, and whether it finished it.
    pub(crate) fn sent(&self, id: u64) -> (Vec<u8>, bool) {
        let pipe = &self.wire.pipes[&(id, self.me)];
        (pipe.log.clone(), pipe.is_finished)
    }

    /// The frames that it wrote to a stream.
    pub(crate) fn frames(&self, id: u64) -> Vec<(u64, Vec<u8>)> {
        let (log, mut frames) = (self.sent(id).0, Vec::new());
        let mut rest = if id & 2 == 0 { &log[..] } else { &log[1..] };
        while let Some(header) = FrameHeader::take(&mut rest) {
            let (payload, left) = rest.split_at(header.length as usize);
            frames.push((header.kind, payload.to_vec()));
            rest = left;
        }
        assert!(rest.is_empty());
        frames
    }

    /// Our control stream, which is the first one.
    pub(crate) fn own_control(&self) -> u64 {
        2 + self.me as u64
    }
}
