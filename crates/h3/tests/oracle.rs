//! The engine against another HTTP/3 engine: bodies are echoed in both directions, on many concurrent streams, over a transport that
//! fragments and delays them, with and without dynamic tables.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use common::{CLIENT, SERVER, Wire, tell};
use fields::Scheme;
use h3::{Config, Connection, H3Event, RequestKey, Role, StreamChunk, Streams};
use http::Head;
use shiguredo_http3 as other;
use shiguredo_http3::qpack::Header;

const STREAMS: usize = 30;

fn body(number: usize) -> Vec<u8> {
    let length = [0, 1, 100, 20_000, 70_000, 200_000][number % 6];
    (0..length).map(|at| (at * 7 + number * 31 + (at >> 8)) as u8).collect()
}

fn header(name: &str, value: &str) -> Header {
    Header::new(name, value).expect("a valid field")
}

/// The other engine, as a client or a server.
enum Engine {
    Client(other::ClientConnection),
    Server(other::ServerConnection),
}

macro_rules! both {
    ($engine:expr, $inner:ident => $call:expr) => {
        match $engine {
            Engine::Client($inner) => $call,
            Engine::Server($inner) => $call,
        }
    };
}

struct Theirs {
    engine: Engine,
    side: usize,
    /// Bytes that the wire did not take yet.
    waiting: BTreeMap<u64, (Vec<u8>, bool)>,
    ended: Vec<(u64, usize)>,
}

impl Theirs {
    fn new(side: usize, capacity: u32, wire: &mut Wire) -> Theirs {
        let settings = other::Settings::new()
            .qpack_max_table_capacity(capacity.into())
            .qpack_blocked_streams(16u8.into());
        let mut engine = match side {
            CLIENT => Engine::Client(other::ClientConnection::new(settings)),
            _ => Engine::Server(other::ServerConnection::new(settings)),
        };
        let [a, b, c] = [(); 3].map(|()| wire.open(side, true));
        let data = both!(&mut engine, inner => inner.init_h3_streams(a, b, c)).expect("its own streams");
        let waiting = [(a, data.control_data), (b, data.encoder_data), (c, data.decoder_data)];
        let waiting = waiting.map(|(id, bytes)| (id, (bytes, false))).into();
        Theirs { engine, side, waiting, ended: Vec::new() }
    }

    /// Passes everything that arrived to the engine, and its output to the wire. Returns its events.
    fn turn(&mut self, wire: &mut Wire) -> Vec<other::Event> {
        wire.reports[self.side].clear();
        let keys: Vec<(u64, usize)> = wire.pipes.keys().copied().collect();
        for (id, writer) in keys {
            if writer == self.side
                || self.ended.contains(&(id, writer))
                || wire.pipes[&(id, writer)].stop.is_some()
            {
                continue;
            }
            loop {
                let (bytes, fin) = match wire.side(self.side).read(id, 5000) {
                    StreamChunk::Bytes(bytes) => (bytes, false),
                    StreamChunk::Finished => (Bytes::new(), true),
                    StreamChunk::Blocked => break,
                    StreamChunk::Reset(code) => panic!("stream {id} was reset with {code:x}"),
                };
                both!(&mut self.engine, inner => inner.feed_stream(id, &bytes, fin)).expect("we are right");
                if fin {
                    self.ended.push((id, writer));
                    break;
                }
            }
        }
        self.write(wire);
        both!(&mut self.engine, inner => inner.drain_events()).expect("we are right")
    }

    fn write(&mut self, wire: &mut Wire) {
        let writable: Vec<u64> = both!(&self.engine, inner => inner.writable_streams().collect());
        for id in writable {
            let place = self.waiting.entry(id).or_default();
            while let Some((bytes, fin)) = both!(&mut self.engine, inner => inner.take_stream_data(id)) {
                place.0.extend_from_slice(&bytes);
                place.1 |= fin;
                if fin {
                    break;
                }
            }
        }
        for (id, (bytes, fin)) in &mut self.waiting {
            while !bytes.is_empty() {
                match wire.side(self.side).write(*id, bytes).expect("not stopped") {
                    0 => break,
                    count => drop(bytes.drain(..count)),
                }
            }
            if bytes.is_empty() && std::mem::take(fin) {
                wire.side(self.side).finish(*id);
            }
        }
    }
}

/// An outgoing body of ours.
#[derive(Default)]
struct Outgoing {
    waiting: VecDeque<Bytes>,
    ended: bool,
}

impl Outgoing {
    fn push(&mut self, engine: &mut Connection, wire: &mut Wire, side: usize, key: RequestKey) {
        while !self.waiting.is_empty() {
            if engine.is_blocked(key) {
                return;
            }
            if let Some(data) = self.waiting.pop_front() {
                engine.send_bytes(&mut wire.side(side), key, data, false);
            }
        }
        if std::mem::take(&mut self.ended) {
            engine.send_data(&mut wire.side(side), key, b"", true);
        }
    }
}

/// Delivers pieces of everything that is under way.
fn deliver(wire: &mut Wire, rng: &mut fastrand::Rng) {
    let keys: Vec<(u64, usize)> = wire.pipes.keys().copied().collect();
    for (id, writer) in keys {
        let most = if rng.bool() { rng.usize(1..3000) } else { usize::MAX };
        if rng.u8(..3) > 0 {
            wire.deliver(id, writer, most);
        }
    }
}

fn config(capacity: u32) -> Arc<Config> {
    Arc::new(Config {
        table_capacity: capacity,
        blocked_streams: 16,
        encoder_capacity: capacity,
        ..Config::default()
    })
}

#[test]
fn another_client_is_served() {
    for capacity in [0, 4096] {
        let mut rng = fastrand::Rng::with_seed(capacity.into());
        let mut wire = Wire::new(40_000, STREAMS);
        let mut theirs = Theirs::new(CLIENT, capacity, &mut wire);
        let mut engine = Connection::new(Role::Server, &config(capacity));
        engine.start(&mut wire.side(SERVER));
        let Engine::Client(client) = &mut theirs.engine else { panic!("it is a client") };
        for number in 0..STREAMS {
            let headers = [
                header(":method", "POST"),
                header(":scheme", "https"),
                header(":authority", "example.com"),
                header(":path", "/echo"),
                header("user-agent", "another engine"),
            ];
            let id = client.send_request(&headers, false).expect("a request");
            assert_eq!(id, wire.open(CLIENT, false));
            client.send_body(id, &body(number), true).expect("a body");
        }
        let mut flows: BTreeMap<u64, Outgoing> = BTreeMap::new();
        let mut received: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut whole = 0;
        while whole < STREAMS {
            for event in theirs.turn(&mut wire) {
                match event {
                    other::Event::Header { name, value, .. } if name == b":status" => {
                        assert_eq!(value, b"200")
                    }
                    other::Event::Data { stream_id, data } => {
                        received.entry(stream_id).or_default().extend(data)
                    }
                    other::Event::StreamEnd { stream_id } => {
                        let got = received.remove(&stream_id).unwrap_or_default();
                        assert!(got == body(stream_id as usize / 4), "the body of {stream_id}");
                        whole += 1;
                    }
                    _ => {}
                }
            }
            deliver(&mut wire, &mut rng);
            serve(&mut engine, &mut wire, &mut flows);
        }
        assert_eq!(engine.glitches(), 0);
    }
}

/// Echoes everything that arrived.
fn serve(engine: &mut Connection, wire: &mut Wire, flows: &mut BTreeMap<u64, Outgoing>) {
    for report in std::mem::take(&mut wire.reports[SERVER]) {
        tell(engine, report);
    }
    while let Some(event) = engine.next(&mut wire.side(SERVER)).expect("they are right") {
        engine.check_invariants();
        let (key, bytes, end) = match event {
            H3Event::Head { key, end, .. } => {
                assert_eq!(engine.head_mut().target(), b"https://example.com/echo");
                let mut head = Head::new();
                head.start_response(200, None);
                head.append(b"x-served-by", b"this engine");
                engine.send_head(&mut wire.side(SERVER), key, &head, false);
                flows.insert(key.id(), Outgoing::default());
                (key, Bytes::new(), end)
            }
            H3Event::Data { key, bytes, end } => (key, bytes, end),
            H3Event::End { key } => (key, Bytes::new(), true),
            H3Event::Settings => continue,
            other => panic!("{other:?}"),
        };
        engine.consume(key, bytes.len());
        let flow = flows.get_mut(&key.id()).expect("it has begun");
        flow.waiting.extend(Some(bytes).filter(|bytes| !bytes.is_empty()));
        flow.ended |= end;
        flow.push(engine, wire, SERVER, key);
    }
    while let Some(key) = engine.next_writable() {
        flows.get_mut(&key.id()).expect("it waits").push(engine, wire, SERVER, key);
    }
    for key in engine.keys().filter(|key| engine.is_sent(*key)).collect::<Vec<_>>() {
        engine.release(&mut wire.side(SERVER), key, None);
    }
}

#[test]
fn another_server_responds() {
    for capacity in [0, 4096] {
        let mut rng = fastrand::Rng::with_seed(capacity.into());
        let mut wire = Wire::new(40_000, STREAMS);
        let mut theirs = Theirs::new(SERVER, capacity, &mut wire);
        let mut engine = Connection::new(Role::Client, &config(capacity));
        engine.start(&mut wire.side(CLIENT));
        let mut flows: BTreeMap<u64, (Outgoing, Vec<u8>)> = BTreeMap::new();
        let (mut whole, mut asked) = (0, 0);
        while whole < STREAMS {
            // The first requests are sent before the peer's settings are known.
            if asked < STREAMS && (asked < 5 || rng.bool()) {
                ask(&mut engine, &mut wire, &mut flows, asked);
                asked += 1;
            }
            deliver(&mut wire, &mut rng);
            for event in theirs.turn(&mut wire) {
                let Engine::Server(server) = &mut theirs.engine else { panic!("it is a server") };
                match event {
                    other::Event::HeadersEnd { stream_id } => {
                        let headers = [header(":status", "200"), header("server", "another engine")];
                        server.send_response(stream_id, &headers, false).expect("a response");
                    }
                    other::Event::Data { stream_id, data } => {
                        server.send_body(stream_id, &data, false).expect("a body")
                    }
                    other::Event::StreamEnd { stream_id } => {
                        server.send_body(stream_id, b"", true).expect("an end")
                    }
                    _ => {}
                }
            }
            deliver(&mut wire, &mut rng);
            whole += collect(&mut engine, &mut wire, &mut flows);
        }
        assert_eq!((engine.streams(), engine.glitches()), (0, 0));
    }
}

fn ask(
    engine: &mut Connection,
    wire: &mut Wire,
    flows: &mut BTreeMap<u64, (Outgoing, Vec<u8>)>,
    number: usize,
) {
    let mut request = Head::new();
    request.start_request(b"POST", b"/echo");
    request.append(b"host", b"example.com");
    request.append(b"x-same", b"the same in each request");
    let key = engine.open_request(&mut wire.side(CLIENT), &request, Scheme::Https, false).expect("a stream");
    assert_eq!(key.id(), 4 * number as u64);
    let waiting = body(number).chunks(30_000).map(Bytes::copy_from_slice).collect();
    let mut flow = Outgoing { waiting, ended: true };
    flow.push(engine, wire, CLIENT, key);
    flows.insert(key.id(), (flow, Vec::new()));
}

/// Reads responses; returns how many are complete.
fn collect(
    engine: &mut Connection,
    wire: &mut Wire,
    flows: &mut BTreeMap<u64, (Outgoing, Vec<u8>)>,
) -> usize {
    let mut whole = 0;
    for report in std::mem::take(&mut wire.reports[CLIENT]) {
        tell(engine, report);
    }
    while let Some(event) = engine.next(&mut wire.side(CLIENT)).expect("they are right") {
        engine.check_invariants();
        let (key, bytes, end) = match event {
            H3Event::Head { key, end, .. } => {
                assert_eq!(engine.head_mut().status(), 200);
                (key, Bytes::new(), end)
            }
            H3Event::Data { key, bytes, end } => (key, bytes, end),
            H3Event::End { key } => (key, Bytes::new(), true),
            H3Event::Settings => continue,
            other => panic!("{other:?}"),
        };
        engine.consume(key, bytes.len());
        let got = &mut flows.get_mut(&key.id()).expect("it has begun").1;
        got.extend_from_slice(&bytes);
        if end {
            assert!(*got == body(key.id() as usize / 4), "the body of {}", key.id());
            engine.release(&mut wire.side(CLIENT), key, None);
            whole += 1;
        }
    }
    while let Some(key) = engine.next_writable() {
        flows.get_mut(&key.id()).expect("it waits").0.push(engine, wire, CLIENT, key);
    }
    whole
}
