//! Fuzz target: a complete HTTP/2 connection with arbitrary input from its peer.

use std::io::IoSlice;
use std::sync::Arc;

use fields::Scheme;
use h2::{Code, Config, Connection, Event, Phase, Role, StreamKey};
use http::Head;

/// The result of the input, independent of how it is split.
#[derive(Debug, PartialEq, Eq, Default)]
struct Told {
    events: Vec<Event>,
    closed: Option<h2::Closed>,
}

/// Flag in the first byte: bodies are consumed as they arrive.
const CONSUMES: u8 = 1 << 5;
/// Flag: the connection is one of reverse HTTP.
const REVERSED: u8 = 1 << 6;
/// Flag: the connection is closed gracefully after the first message.
const ENDS: u8 = 1 << 7;

/// Checks that events do not depend on how the input is split, that memory and pending output are bounded, and that the engine's
/// invariants hold. The first byte selects the side and its limits, the second the piece length of the rest, which is the peer's
/// input after its preface.
pub fn h2_connection(bytes: &[u8]) {
    let [choice, cut, rest @ ..] = bytes else { return };
    let whole = run(*choice, rest.len().max(1), rest);
    let pieces = run(*choice, usize::from(*cut).max(1), rest);
    // When windows are reopened depends on when bodies arrive.
    if choice & CONSUMES == 0 {
        assert_eq!(whole, pieces);
    }
}

fn run(choice: u8, cut: usize, bytes: &[u8]) -> Told {
    let flag = |bit: u8| usize::from(choice >> bit & 1);
    let mut config = Config {
        max_concurrent_streams: [100, 2][flag(1)],
        initial_window: [0, 10][flag(2)],
        glitches_threshold: [0, 5][flag(3)],
        max_total_streams: [0, 3][flag(4)],
        ..Config::default()
    };
    config.rules.max_bytes = 2000;
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let is_reversed = choice & REVERSED != 0;
    let begin = if is_reversed { Connection::reversed } else { Connection::new };
    let mut engine: Connection<Vec<u8>> = begin(role, &Arc::new(config));
    let mut told = Told::default();
    if role == Role::Client {
        request(&mut engine);
    }
    // The serving side gets a preface; in reverse HTTP the side that accepted the connection.
    let is_greeted = (role == Role::Server) != is_reversed;
    let mut buffer = if is_greeted { h2::frame::PREFACE.to_vec() } else { Vec::new() };
    engine.begin_turn(true);
    for piece in bytes.chunks(cut) {
        buffer.extend_from_slice(piece);
        let taken = take(&mut engine, choice, &buffer, &mut told);
        buffer.drain(..taken);
        assert!(told.closed.is_some() || buffer.len() < 300, "{} bytes are left", buffer.len());
        if told.closed.is_some() {
            break;
        }
    }
    if choice & ENDS != 0 {
        engine.shutdown(Phase::Final);
    }
    send(&mut engine);
    engine.keys().collect::<Vec<_>>().into_iter().for_each(|key| engine.release(key));
    assert_eq!(engine.streams(), 0);
    send(&mut engine);
    told
}

/// Passes all of the input to the engine and reacts to its events.
fn take(engine: &mut Connection<Vec<u8>>, choice: u8, input: &[u8], told: &mut Told) -> usize {
    let mut at = 0;
    loop {
        if engine.must_drain() {
            send(engine);
        }
        let (taken, event) = match engine.receive(&input[at..]) {
            Ok(got) => got,
            Err(closed) => {
                told.closed = Some(closed);
                return at;
            }
        };
        at += taken;
        // This checks something only in debug builds.
        #[cfg(debug_assertions)]
        engine.check_invariants();
        assert!(engine.heap() < 200_000, "{} bytes of memory", engine.heap());
        match event {
            Some(event) => act(engine, choice, event, told),
            None if engine.must_drain() => {}
            None => return at,
        }
    }
}

fn act(engine: &mut Connection<Vec<u8>>, choice: u8, event: Event, told: &mut Told) {
    match &event {
        Event::Head { key, .. } => {
            assert!(engine.head_mut().written_len() < 20_000);
            if engine.config().max_total_streams > 0 || key.id() % 8 == 1 {
                engine.ping();
            }
            if choice & 1 == 0 {
                respond(engine, *key)
            } else {
                go_on(engine, *key)
            }
            if choice & ENDS != 0 {
                engine.shutdown(Phase::Announce);
            }
        }
        Event::Data { key, range, .. } if choice & CONSUMES != 0 => engine.consume(*key, range.len()),
        // From here on a client of reverse HTTP may send requests.
        Event::Settings if choice & REVERSED != 0 => request(engine),
        Event::Reset { key, .. } => engine.release(*key),
        _ => {}
    }
    // Pieces of a body are joined.
    if let (Some(Event::Data { key, range, end }), Event::Data { key: next, range: more, end: last }) =
        (told.events.last_mut(), &event)
        && key == next
        && !*end
    {
        (range.end, *end) = (range.end + more.len(), *last);
    } else if let Event::Data { key, range, end } = event {
        told.events.push(Event::Data { key, range: 0..range.len(), end });
    } else {
        told.events.push(event);
    }
}

fn respond(engine: &mut Connection<Vec<u8>>, key: StreamKey) {
    let mut head = Head::new();
    head.start_response(200, None);
    match key.id() % 16 {
        1 => engine.reset(key, Code::InternalError),
        3 => engine.release(key),
        5 => engine.send_head(key, &head, true),
        7 => {
            engine.send_head(key, &head, false);
            head.append(b"grpc-status", b"0");
            engine.send_trailers(key, &head);
        }
        id => {
            engine.send_head(key, &head, false);
            let body = vec![0; usize::try_from(id).unwrap_or_default() * 1000];
            let range = 0..body.len();
            let _ = engine.send_owned(key, body, range, true);
        }
    }
    while let Some(key) = engine.next_writable() {
        engine.send_data(key, &[0; 100], false);
    }
}

/// Reacts to the beginning of a response like a client: ends its own message, or abandons the request.
fn go_on(engine: &mut Connection<Vec<u8>>, key: StreamKey) {
    match key.id() % 8 {
        1 => engine.reset(key, Code::Cancel),
        3 => engine.release(key),
        _ => {
            engine.send_data(key, &[0; 100], true);
        }
    }
    while let Some(key) = engine.next_writable() {
        engine.send_data(key, &[0; 100], true);
    }
}

fn request(engine: &mut Connection<Vec<u8>>) {
    for method in [&b"GET"[..], b"HEAD", b"POST"] {
        let mut head = Head::new();
        head.start_request(method, b"/");
        if let Ok(key) = engine.open(&head, Scheme::Http, method != b"POST") {
            engine.send_data(key, &[0; 100], false);
        }
    }
}

/// Sends all output, which is never much.
fn send(engine: &mut Connection<Vec<u8>>) {
    assert!(engine.pending() < 200_000, "{} bytes wait", engine.pending());
    while engine.pending() > 0 {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = engine.output(&mut slices);
        let sent = slices[..filled].iter().map(|slice| slice.len()).sum();
        engine.sent(sent);
    }
}
