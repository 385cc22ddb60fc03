//! Fuzz target: a complete HTTP/3 connection with arbitrary input from its peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fields::Scheme;
use h3::{Code, Config, Connection, H3Event, RequestKey, Role, Stopped, StreamChunk, Streams, Violation};
use http::Head;

/// Flag in the first byte: both sides have a dynamic table.
const DYNAMIC: u8 = 1 << 2;
/// Flag: bodies are consumed as they arrive.
const CONSUMES: u8 = 1 << 5;
/// Flag: the transport takes only a few bytes of each stream at a time.
const BLOCKS: u8 = 1 << 6;
/// Flag: the connection is closed gracefully after the first message.
const ENDS: u8 = 1 << 7;

/// The result of the input, independent of how it is split.
#[derive(Debug, PartialEq, Eq, Default)]
struct Told {
    events: Vec<H3Event>,
    closed: Option<Violation>,
}

/// Input of a stream that the engine has not read.
#[derive(Default)]
struct Incoming {
    pieces: VecDeque<Bytes>,
    end: Option<StreamChunk>,
}

/// A transport with the fuzzer's input as its peer.
#[derive(Default)]
struct Transport {
    incoming: BTreeMap<u64, Incoming>,
    finished: BTreeSet<u64>,
    stopped: BTreeSet<u64>,
    /// Streams that refused a write.
    blocked: BTreeSet<u64>,
    /// How much each write may take; then the stream is blocked once.
    most: usize,
    next_uni: u64,
    next_bi: u64,
}

impl Streams for Transport {
    fn open_uni(&mut self) -> Option<u64> {
        self.next_uni += 4;
        Some(self.next_uni)
    }

    fn open_bi(&mut self) -> Option<u64> {
        self.next_bi += 4;
        Some(self.next_bi - 4)
    }

    fn read(&mut self, id: u64, max: usize) -> StreamChunk {
        assert!(!self.stopped.contains(&id), "stream {id} was stopped");
        let Some(incoming) = self.incoming.get_mut(&id) else { return StreamChunk::Blocked };
        let Some(mut piece) = incoming.pieces.pop_front() else {
            return incoming.end.clone().unwrap_or(StreamChunk::Blocked);
        };
        if piece.len() > max {
            incoming.pieces.push_front(piece.split_off(max));
        }
        StreamChunk::Bytes(piece)
    }

    fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, Stopped> {
        assert!(!self.finished.contains(&id), "stream {id} is over");
        if data.len() > self.most && !self.blocked.insert(id) {
            return Ok(0);
        }
        Ok(data.len().min(self.most))
    }

    fn write_bytes(&mut self, id: u64, data: Bytes) -> Result<usize, Stopped> {
        self.write(id, &data)
    }

    fn finish(&mut self, id: u64) {
        assert!(self.finished.insert(id), "stream {id} is finished twice");
    }

    fn reset(&mut self, id: u64, _: u64) {
        self.finished.insert(id);
    }

    fn stop(&mut self, id: u64, _: u64) {
        assert!(self.stopped.insert(id), "stream {id} is stopped twice");
    }

    fn set_priority(&mut self, _: u64, _: i32) {}
}

/// One step of the input.
#[derive(Clone, Copy)]
struct Step<'a> {
    id: u64,
    kind: u8,
    bytes: &'a [u8],
}

/// Splits the input into steps: a byte for the stream and the kind, a byte for the length, and bytes.
fn steps(mut bytes: &[u8], role: Role) -> Vec<Step<'_>> {
    let mut found = Vec::new();
    while let [choice, length, rest @ ..] = bytes {
        let (bytes_of, left) = rest.split_at(rest.len().min(usize::from(*length)));
        // Eight request streams, then eight unidirectional ones.
        let number = u64::from(choice & 7);
        let is_uni = choice & 8 != 0;
        let id = match (is_uni, role) {
            (true, Role::Server) => 4 * number + 2,
            (true, Role::Client) => 4 * number + 3,
            (false, _) => 4 * number,
        };
        found.push(Step { id, kind: choice >> 4 & 7, bytes: bytes_of });
        bytes = left;
    }
    found
}

/// Checks that events do not depend on how the input is split, that memory and pending output are bounded, and that the engine's
/// invariants hold. The first byte selects the side and its limits, the second the piece length; the rest are steps of the peer.
pub fn h3_connection(bytes: &[u8]) {
    let [choice, cut, rest @ ..] = bytes else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let steps = steps(rest, role);
    let whole = run(*choice, role, usize::MAX, &steps);
    let pieces = run(*choice, role, usize::from(*cut).max(1), &steps);
    // When a stream continues depends on when bodies and instructions arrive.
    if choice & (DYNAMIC | CONSUMES | BLOCKS) == 0 {
        assert_eq!(whole, pieces);
    }
}

fn run(choice: u8, role: Role, cut: usize, steps: &[Step<'_>]) -> Told {
    let flag = |bit: u8| usize::from(choice >> bit & 1);
    let mut config = Config {
        max_concurrent_streams: [100, 2][flag(1)],
        table_capacity: [0, 300][flag(2)],
        blocked_streams: [0, 2][flag(2)],
        encoder_capacity: [0, 300][flag(2)],
        glitches_threshold: [0, 5][flag(3)],
        max_total_streams: [0, 3][flag(4)],
        ..Config::default()
    };
    config.rules.max_bytes = 2000;
    let mut engine = Connection::new(role, &Arc::new(config));
    let most = if choice & BLOCKS != 0 { 20 } else { usize::MAX };
    let next_uni = if role == Role::Server { 3 } else { 2 };
    let mut transport = Transport { most, next_uni, ..Transport::default() };
    let mut told = Told::default();
    engine.start(&mut transport);
    if role == Role::Client {
        request(&mut engine, &mut transport);
    }
    engine.begin_turn(true);
    for step in steps {
        for piece in step.bytes.chunks(cut.min(step.bytes.len().max(1))) {
            arrive(&mut engine, &mut transport, step.id, Some(piece), None);
            take(&mut engine, &mut transport, choice, &mut told);
        }
        let end = match step.kind {
            1 => Some(StreamChunk::Finished),
            2 => Some(StreamChunk::Reset(0x10c)),
            3 => {
                engine.stopped(step.id, 0x100);
                None
            }
            _ => None,
        };
        arrive(&mut engine, &mut transport, step.id, None, end);
        take(&mut engine, &mut transport, choice, &mut told);
        if told.closed.is_some() {
            break;
        }
    }
    engine.keys().collect::<Vec<_>>().into_iter().for_each(|key| engine.release(&mut transport, key, None));
    assert_eq!(engine.streams(), 0);
    told
}

/// Lets bytes of a stream arrive, or its end.
fn arrive(
    engine: &mut Connection,
    transport: &mut Transport,
    id: u64,
    bytes: Option<&[u8]>,
    end: Option<StreamChunk>,
) {
    let is_new = !transport.incoming.contains_key(&id);
    let incoming = transport.incoming.entry(id).or_default();
    if incoming.end.is_some() {
        return;
    }
    incoming.pieces.extend(bytes.map(Bytes::copy_from_slice));
    incoming.end = end;
    // A client opened the bidirectional streams itself.
    if is_new && (id & 3 != 0 || id >= transport.next_bi) {
        engine.opened(id);
    }
    engine.readable(id);
}

/// Takes all events and reacts to them.
fn take(engine: &mut Connection, transport: &mut Transport, choice: u8, told: &mut Told) {
    loop {
        for id in std::mem::take(&mut transport.blocked) {
            engine.writable(id);
        }
        let next = engine.next(transport);
        // Only debug builds check anything here.
        #[cfg(debug_assertions)]
        engine.check_invariants();
        assert!(engine.heap() < 300_000 && engine.pending() < 100_000, "{} bytes of memory", engine.heap());
        match next {
            Ok(Some(event)) => act(engine, transport, choice, event, told),
            Ok(None) if transport.blocked.is_empty() => break,
            Ok(None) => {}
            Err(violation) => {
                told.closed = Some(violation);
                break;
            }
        }
    }
}

fn act(engine: &mut Connection, transport: &mut Transport, choice: u8, event: H3Event, told: &mut Told) {
    match &event {
        H3Event::Head { key, .. } => {
            assert!(engine.head_mut().written_len() < 20_000);
            if choice & 1 == 0 {
                respond(engine, transport, *key);
            } else {
                go_on(engine, transport, *key);
            }
            if choice & ENDS != 0 {
                engine.shutdown(transport);
            }
        }
        H3Event::Data { key, bytes, .. } if choice & CONSUMES != 0 => engine.consume(*key, bytes.len()),
        H3Event::Reset { key, .. } => engine.release(transport, *key, None),
        _ => {}
    }
    note(told, event);
}

/// Joins the pieces of a body, and separates the end of a message from its last piece.
fn note(told: &mut Told, event: H3Event) {
    let (event, end) = match event {
        H3Event::Head { key, end, protocol } => {
            (H3Event::Head { key, end: false, protocol }, end.then_some(key))
        }
        H3Event::Data { key, bytes, end } => (H3Event::Data { key, bytes, end: false }, end.then_some(key)),
        other => (other, None),
    };
    match (told.events.last_mut(), event) {
        (Some(H3Event::Data { key, bytes, .. }), H3Event::Data { key: next, bytes: more, .. })
            if *key == next =>
        {
            *bytes = [&bytes[..], &more].concat().into();
        }
        (_, event) => told.events.push(event),
    }
    told.events.extend(end.map(|key| H3Event::End { key }));
}

fn respond(engine: &mut Connection, transport: &mut Transport, key: RequestKey) {
    let mut head = Head::new();
    head.start_response(200, None);
    head.append(b"x-same", b"the same value");
    match key.id() / 4 % 8 {
        1 => engine.reset(transport, key, Code::InternalError),
        2 => engine.release(transport, key, None),
        3 => engine.send_head(transport, key, &head, true),
        4 => {
            engine.send_head(transport, key, &head, false);
            engine.send_trailers(transport, key, &head);
        }
        number => {
            engine.send_head(transport, key, &head, false);
            let body = vec![0; number as usize * 500];
            engine.send_bytes(transport, key, body.into(), true);
        }
    }
}

/// Reacts to the beginning of a response like a client: ends its own message, or gives up.
fn go_on(engine: &mut Connection, transport: &mut Transport, key: RequestKey) {
    match key.id() / 4 % 4 {
        1 => engine.reset(transport, key, Code::RequestCancelled),
        2 => engine.release(transport, key, None),
        // A frame that the transport did not take must not be cut.
        _ if transport.most < usize::MAX => {}
        _ => {
            engine.send_data(transport, key, b"", true);
        }
    }
}

fn request(engine: &mut Connection, transport: &mut Transport) {
    for method in [&b"GET"[..], b"HEAD", b"POST", b"POST"] {
        let mut head = Head::new();
        head.start_request(method, b"/");
        if let Ok(key) = engine.open_request(transport, &head, Scheme::Http, method != b"POST") {
            engine.send_data(transport, key, &[0; 100], false);
        }
    }
}
