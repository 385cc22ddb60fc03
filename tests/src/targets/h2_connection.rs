//! A whole connection of HTTP/2 against whatever its peer sends.

use std::io::IoSlice;
use std::sync::Arc;

use h2::message::Scheme;
use h2::{Code, Config, Connection, Event, Key, Role};
use http::Head;

/// What came of the bytes, however they were cut.
#[derive(Debug, PartialEq, Eq, Default)]
struct Told {
    events: Vec<Event>,
    closed: Option<h2::Closed>,
}

/// The first byte chooses the side and its limits, the second how the rest, which is what the peer
/// sends after its preface, is cut. What is told does not depend on the cuts, what is kept and what
/// waits to be sent is bounded, and the engine's invariants hold throughout.
pub fn h2_connection(bytes: &[u8]) {
    let [choice, cut, rest @ ..] = bytes else { return };
    let whole = run(*choice, rest.len().max(1), rest);
    assert_eq!(whole, run(*choice, usize::from(*cut).max(1), rest));
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
    let mut engine = Connection::<Vec<u8>>::new(role, &Arc::new(config));
    let mut told = Told::default();
    if role == Role::Client {
        request(&mut engine);
    }
    let mut buffer = if role == Role::Server { h2::frame::PREFACE.to_vec() } else { Vec::new() };
    engine.begin_turn(true);
    for piece in bytes.chunks(cut) {
        buffer.extend_from_slice(piece);
        let taken = take(&mut engine, &buffer, &mut told);
        buffer.drain(..taken);
        assert!(told.closed.is_some() || buffer.len() < 300, "{} bytes are left", buffer.len());
        if told.closed.is_some() {
            break;
        }
    }
    send(&mut engine);
    told
}

/// Gives the engine all of the input, and acts on what it tells.
fn take(engine: &mut Connection<Vec<u8>>, input: &[u8], told: &mut Told) -> usize {
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
        // Builds for speed have none of it.
        #[cfg(debug_assertions)]
        engine.check_invariants();
        assert!(engine.heap() < 200_000, "{} bytes of memory", engine.heap());
        match event {
            Some(event) => act(engine, event, told),
            None if engine.must_drain() => {}
            None => return at,
        }
    }
}

fn act(engine: &mut Connection<Vec<u8>>, event: Event, told: &mut Told) {
    match &event {
        Event::Head { key, .. } => {
            assert!(engine.head_mut().written_len() < 20_000);
            respond(engine, *key);
        }
        Event::Reset { key, .. } => engine.release(*key),
        _ => {}
    }
    // A body that comes in pieces is one.
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

fn respond(engine: &mut Connection<Vec<u8>>, key: Key) {
    let mut head = Head::new();
    head.start_response(200, None);
    match key.id() % 16 {
        1 => engine.reset(key, Code::InternalError),
        3 => engine.release(key),
        5 => engine.send_head(key, &head, true),
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

fn request(engine: &mut Connection<Vec<u8>>) {
    for method in [&b"GET"[..], b"HEAD", b"POST"] {
        let mut head = Head::new();
        head.start_request(method, b"/");
        if let Ok(key) = engine.open(&head, Scheme::Http, method != b"POST") {
            engine.send_data(key, &[0; 100], false);
        }
    }
}

/// Everything that waits is sent; there is never much of it.
fn send(engine: &mut Connection<Vec<u8>>) {
    assert!(engine.pending() < 200_000, "{} bytes wait", engine.pending());
    while engine.pending() > 0 {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = engine.output(&mut slices);
        let sent = slices[..filled].iter().map(|slice| slice.len()).sum();
        engine.sent(sent);
    }
}
