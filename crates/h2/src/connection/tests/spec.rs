//! Stream errors and connection errors: RFC 9113 sections 3 to 8, case by case.

use super::*;
use crate::fault::Breach;

/// The expected outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// GOAWAY with this code.
    Goaway(Code),
    /// RST_STREAM with this code on that stream; the connection continues.
    Reset(u32, Code),
    /// No error; the connection continues.
    Fine,
}

use Then::{Fine, Goaway, Reset};

/// Feeds the bytes to a fresh side at once and in pieces, and compares the outcome.
fn check(role: Role, name: &str, bytes: &[u8], then: Then) {
    for step in [bytes.len().max(1), 1, 7] {
        let mut side = Side::new(role, Config::default());
        if role == Role::Client {
            side.request(b"GET", true);
            side.frames();
        }
        // Like a caller, keeps unconsumed bytes and passes them again before the next ones.
        let mut buffer: Vec<u8> = Vec::new();
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            feed_some(&mut side, &mut buffer);
        }
        let frames = side.frames();
        let reset = frames.iter().find(|(header, _)| header.kind == kind::RST_STREAM);
        let goaway = frames.iter().find(|(header, _)| header.kind == kind::GOAWAY);
        let got = match (goaway, reset, side.closed) {
            (Some((_, payload)), _, Some(closed)) => {
                let code = Code::from_number(crate::frame::number(&payload[4..]));
                assert_eq!(code, closed.code, "{name}");
                Goaway(code)
            }
            (None, Some((header, payload)), None) => {
                Reset(header.stream, Code::from_number(crate::frame::number(payload)))
            }
            (None, None, None) => Fine,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(got, then, "{name}, in steps of {step}: {:?} {:?}", side.closed, side.events);
        if !matches!(then, Goaway(_)) {
            side.feed(&frame(kind::PING, 0, 0, b"12345678"));
            let pong = side.frames();
            assert!(pong.iter().any(|(header, _)| header.kind == kind::PING), "{name}: no answer to PING");
        }
    }
}

fn feed_some(side: &mut Side, buffer: &mut Vec<u8>) {
    while side.closed.is_none() {
        match side.engine.receive(buffer) {
            Ok((taken, event)) => {
                buffer.drain(..taken);
                side.engine.check_invariants();
                let Some(event) = event else { return };
                side.events.push(event);
            }
            Err(closed) => side.closed = Some(closed),
        }
    }
}

const PROTOCOL: Then = Goaway(Code::ProtocolError);
const SIZE: Then = Goaway(Code::FrameSizeError);
const FLOW: Then = Goaway(Code::FlowControlError);
const CLOSED: Then = Goaway(Code::StreamClosed);

fn padded(kind: u8, flags: u8, pad: u8, rest: &[u8]) -> Vec<u8> {
    frame(kind, flags | flag::PADDED, 1, &[&[pad], rest].concat())
}

#[test]
fn frames_follow_section_4() {
    let r = request_block("GET", &[]);
    let half = |kind, flags, stream, payload: &[u8]| {
        [frame(kind::HEADERS, 1, 1, &r[..10]), frame(kind, flags, stream, payload)].concat()
    };
    for (name, bytes, then) in [
        ("an unknown frame", frame(0x16, 0xff, 0, b"abc"), Fine),
        ("an unknown empty frame of a stream", frame(0xff, 0, 77, b""), Fine),
        ("undefined flags of PING", frame(kind::PING, 0xfe, 0, &[0; 8]), Fine),
        ("the reserved bit", frame(kind::PING, 0, 0x8000_0000, &[0; 8]), Fine),
        ("DATA of 2^14 bytes", [post(1, &[]), data(1, 16_384, true)].concat(), Fine),
        ("DATA above the frame size", [post(1, &[]), data(1, 16_385, true)].concat(), SIZE),
        ("HEADERS above the frame size", frame(kind::HEADERS, 5, 1, &vec![0; 16_385]), SIZE),
        ("a block that is none", frame(kind::HEADERS, 5, 1, &[0xff; 20]), Goaway(Code::CompressionError)),
        ("PRIORITY inside a block", half(kind::PRIORITY, 0, 1, &[0; 5]), PROTOCOL),
        ("HEADERS of another stream inside a block", half(kind::HEADERS, 5, 3, &r), PROTOCOL),
        ("an unknown frame inside a block", half(0x16, 0, 0, b"abc"), PROTOCOL),
        ("CONTINUATION of another stream", half(kind::CONTINUATION, 4, 3, &r[10..]), PROTOCOL),
        ("CONTINUATION of stream 0", half(kind::CONTINUATION, 4, 0, &r[10..]), PROTOCOL),
        ("CONTINUATION", half(kind::CONTINUATION, 4, 1, &r[10..]), Fine),
    ] {
        check(Role::Server, name, &bytes, then);
    }
}

#[test]
fn stream_states_follow_section_5_1() {
    let reset = frame(kind::RST_STREAM, 0, 1, &number(8));
    let block = request_block("GET", &[]);
    let continuation = frame(kind::CONTINUATION, 4, 1, &block);
    for (name, bytes, then) in [
        ("idle: DATA", data(1, 4, true), PROTOCOL),
        ("idle: RST_STREAM", reset.clone(), PROTOCOL),
        ("idle: WINDOW_UPDATE", frame(kind::WINDOW_UPDATE, 0, 1, &number(1)), PROTOCOL),
        ("idle: CONTINUATION", continuation.clone(), PROTOCOL),
        ("idle: PRIORITY", frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]), Fine),
        ("idle below others: DATA", [get(5), data(3, 1, true)].concat(), PROTOCOL),
        ("even: DATA", [get(5), data(2, 1, true)].concat(), PROTOCOL),
        ("half-closed: DATA", [get(1), data(1, 4, true)].concat(), Reset(1, Code::StreamClosed)),
        ("half-closed: HEADERS", [get(1), get(1)].concat(), Reset(1, Code::StreamClosed)),
        ("half-closed: CONTINUATION", [get(1), continuation.clone()].concat(), PROTOCOL),
        ("half-closed: WINDOW_UPDATE", [get(1), frame(8, 0, 1, &number(9))].concat(), Fine),
        ("half-closed: RST_STREAM", [get(1), reset.clone()].concat(), Fine),
        (
            "reset: DATA",
            [post(1, &[]), reset.clone(), data(1, 4, true)].concat(),
            Reset(1, Code::StreamClosed),
        ),
        ("reset: HEADERS", [post(1, &[]), reset.clone(), get(1)].concat(), Reset(1, Code::StreamClosed)),
        ("reset: CONTINUATION", [post(1, &[]), reset.clone(), continuation].concat(), PROTOCOL),
        ("reset: RST_STREAM", [post(1, &[]), reset.clone(), reset.clone()].concat(), Fine),
        ("an even number", get(2), PROTOCOL),
        ("a lower number", [get(5), get(3)].concat(), PROTOCOL),
        (
            "a stream that depends on itself",
            frame(1, 0x25, 1, &[&[0, 0, 0, 1, 5], &block[..]].concat()),
            Reset(1, Code::ProtocolError),
        ),
        ("PRIORITY that depends on itself", frame(2, 0, 1, &[0, 0, 0, 1, 5]), PROTOCOL),
        (
            "PRIORITY that depends on itself, open",
            [post(1, &[]), frame(2, 0, 1, &[0, 0, 0, 1, 5])].concat(),
            Reset(1, Code::ProtocolError),
        ),
    ] {
        check(Role::Server, name, &bytes, then);
    }
}

#[test]
fn late_messages_depend_on_how_the_stream_ended() {
    for (name, bytes, then) in [
        ("DATA", data(1, 4, true), Reset(1, Code::StreamClosed)),
        ("HEADERS", get(1), CLOSED),
        ("CONTINUATION", frame(kind::CONTINUATION, 4, 1, b""), PROTOCOL),
        ("RST_STREAM", frame(kind::RST_STREAM, 0, 1, &number(5)), Fine),
        ("WINDOW_UPDATE", frame(kind::WINDOW_UPDATE, 0, 1, &number(5)), Fine),
        ("PRIORITY", frame(kind::PRIORITY, 0, 1, &[0; 5]), Fine),
    ] {
        for release in [true, false] {
            let mut side = Side::server();
            let key = side.feed(&get(1)).opened();
            side.respond(key, true);
            if release {
                side.engine.release(key);
            }
            side.frames();
            side.feed(&bytes);
            let goaway = side.closed.map(|closed| Goaway(closed.code));
            let reset = side.resets().first().map(|reset| Reset(reset.0, reset.1));
            assert_eq!(goaway.or(reset).unwrap_or(Fine), then, "{name}, released: {release}");
            assert_eq!(side.events(), [], "{name}: nothing to tell of");
        }
    }
}

#[test]
fn frames_on_streams_we_reset_are_ignored() {
    for release in [true, false] {
        let mut side = Side::server();
        let key = side.feed(&post(1, &[])).opened();
        side.engine.reset(key, Code::Cancel);
        if release {
            side.engine.release(key);
        }
        assert_eq!(side.resets(), [(1, Code::Cancel)]);
        let trailers = frame(kind::HEADERS, 5, 1, &block(&[("x", "y")]));
        for bytes in [data(1, 100, false), trailers, frame(3, 0, 1, &number(0)), frame(8, 0, 1, &number(1))] {
            side.feed(&bytes);
        }
        assert_eq!((side.events(), side.resets(), side.closed), (vec![], vec![], None));
    }
}

#[test]
fn data_follows_section_6_1() {
    for (name, bytes, then) in [
        ("stream 0", data(0, 4, true), PROTOCOL),
        ("padding", [post(1, &[]), padded(0, 1, 3, b"abc\0\0\0")].concat(), Fine),
        ("padding only", [post(1, &[]), padded(0, 1, 3, b"\0\0\0")].concat(), Fine),
        ("padding as long as the payload", [post(1, &[]), padded(0, 1, 4, b"abc")].concat(), PROTOCOL),
        ("no pad length", [post(1, &[]), frame(0, 9, 1, b"")].concat(), SIZE),
        (
            "shorter than content-length",
            [post(1, &[("content-length", "5")]), data(1, 4, true)].concat(),
            Reset(1, Code::ProtocolError),
        ),
        (
            "longer than content-length",
            [post(1, &[("content-length", "1")]), data(1, 4, true)].concat(),
            Reset(1, Code::ProtocolError),
        ),
        (
            "longer in two",
            [post(1, &[("content-length", "5")]), data(1, 4, false), data(1, 4, true)].concat(),
            Reset(1, Code::ProtocolError),
        ),
        (
            "as content-length",
            [post(1, &[("content-length", "5")]), data(1, 4, false), data(1, 1, true)].concat(),
            Fine,
        ),
        (
            "content-length, no body",
            frame(1, 5, 1, &request_block("GET", &[("content-length", "1")])),
            Reset(1, Code::ProtocolError),
        ),
        (
            "trailers before content-length",
            [post(1, &[("content-length", "5")]), frame(1, 5, 1, &block(&[("x", "y")]))].concat(),
            Reset(1, Code::ProtocolError),
        ),
    ] {
        check(Role::Server, name, &bytes, then);
    }
}

#[test]
fn headers_follow_section_6_2() {
    let r = request_block("GET", &[]);
    let trailer = block(&[("x", "y")]);
    for (name, bytes, then) in [
        ("stream 0", frame(1, 5, 0, &r), PROTOCOL),
        ("padding", padded(1, 5, 2, &[&r[..], &[0, 0]].concat()), Fine),
        ("padding beyond the payload", padded(1, 5, 200, &r), PROTOCOL),
        ("priority", frame(1, 0x25, 1, &[&[0, 0, 0, 3, 5], &r[..]].concat()), Fine),
        ("too short for a priority", frame(1, 0x25, 1, &[0, 0, 0]), SIZE),
        ("trailers", [post(1, &[]), data(1, 1, false), frame(1, 5, 1, &trailer)].concat(), Fine),
        (
            "trailers that do not end",
            [post(1, &[]), frame(1, 4, 1, &trailer)].concat(),
            Reset(1, Code::ProtocolError),
        ),
        (
            "pseudo-fields in trailers",
            [post(1, &[]), frame(1, 5, 1, &r)].concat(),
            Reset(1, Code::ProtocolError),
        ),
        ("upper case", frame(1, 5, 1, &request_block("GET", &[("X-A", "b")])), Reset(1, Code::ProtocolError)),
        ("no pseudo-fields", frame(1, 5, 1, &trailer), Reset(1, Code::ProtocolError)),
        (
            "connection",
            frame(1, 5, 1, &request_block("GET", &[("connection", "close")])),
            Reset(1, Code::ProtocolError),
        ),
        ("PUSH_PROMISE", [post(1, &[]), frame(5, 4, 1, &[&number(2)[..], &r].concat())].concat(), PROTOCOL),
    ] {
        check(Role::Server, name, &bytes, then);
    }
}

#[test]
fn control_frames_follow_sections_6_3_to_6_9() {
    let settings = |id, value| frame(kind::SETTINGS, 0, 0, &setting(id, value));
    let window = |stream, value| frame(kind::WINDOW_UPDATE, 0, stream, &number(value));
    for (name, bytes, then) in [
        ("PRIORITY of stream 0", frame(2, 0, 0, &[0; 5]), PROTOCOL),
        (
            "PRIORITY of 4 bytes",
            [post(1, &[]), frame(2, 0, 1, &[0; 4])].concat(),
            Reset(1, Code::FrameSizeError),
        ),
        ("PRIORITY of 4 bytes, idle", frame(2, 0, 1, &[0; 4]), SIZE),
        ("RST_STREAM of stream 0", frame(3, 0, 0, &number(8)), PROTOCOL),
        ("RST_STREAM of 3 bytes", [post(1, &[]), frame(3, 0, 1, &[0; 3])].concat(), SIZE),
        ("RST_STREAM of an unknown code", [post(1, &[]), frame(3, 0, 1, &number(0xff))].concat(), Fine),
        ("SETTINGS ACK with a payload", frame(4, 1, 0, &[0; 6]), SIZE),
        ("SETTINGS of a stream", frame(4, 0, 1, &[]), PROTOCOL),
        ("SETTINGS of 3 bytes", frame(4, 0, 0, &[0; 3]), SIZE),
        ("ENABLE_PUSH 2", settings(2, 2), PROTOCOL),
        ("ENABLE_PUSH 1 of a client", settings(2, 1), Fine),
        ("INITIAL_WINDOW_SIZE 2^31", settings(4, 1 << 31), FLOW),
        ("MAX_FRAME_SIZE 16383", settings(5, 16_383), PROTOCOL),
        ("MAX_FRAME_SIZE 2^24", settings(5, 1 << 24), PROTOCOL),
        ("ENABLE_CONNECT_PROTOCOL 2", settings(8, 2), PROTOCOL),
        ("ENABLE_CONNECT_PROTOCOL taken back", [settings(8, 1), settings(8, 0)].concat(), PROTOCOL),
        ("NO_RFC7540_PRIORITIES 2", settings(9, 2), PROTOCOL),
        ("an unknown setting", settings(0xff, 1), Fine),
        ("PING of a stream", frame(6, 0, 1, &[0; 8]), PROTOCOL),
        ("PING of 6 bytes", frame(6, 0, 0, &[0; 6]), SIZE),
        ("PING ACK that nobody waits for", frame(6, 1, 0, &[0; 8]), Fine),
        ("GOAWAY of a stream", frame(7, 0, 1, &[0; 8]), PROTOCOL),
        ("GOAWAY of 7 bytes", frame(7, 0, 0, &[0; 7]), SIZE),
        ("GOAWAY of an unknown code, with text", frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff, 1, 2, 3]), Fine),
        ("WINDOW_UPDATE by 0", window(0, 0), PROTOCOL),
        ("WINDOW_UPDATE by 0, stream", [post(1, &[]), window(1, 0)].concat(), Reset(1, Code::ProtocolError)),
        ("WINDOW_UPDATE of 3 bytes", frame(8, 0, 0, &[0; 3]), SIZE),
        ("WINDOW_UPDATE beyond", [window(0, 0x7fff_ffff), window(0, 0x7fff_ffff)].concat(), FLOW),
        (
            "WINDOW_UPDATE beyond, stream",
            [post(1, &[]), window(1, 0x7fff_ffff)].concat(),
            Reset(1, Code::FlowControlError),
        ),
        (
            "SETTINGS that overflow a stream",
            [post(1, &[]), window(1, 0x7fff_0000), settings(4, 0x7fff_ffff)].concat(),
            FLOW,
        ),
        ("PRIORITY_UPDATE of a stream", frame(16, 0, 1, &[&number(1)[..], b"u=1"].concat()), PROTOCOL),
        ("PRIORITY_UPDATE for stream 0", frame(16, 0, 0, &number(0)), PROTOCOL),
        ("PRIORITY_UPDATE too short", frame(16, 0, 0, &[0; 3]), SIZE),
        ("PRIORITY_UPDATE", frame(16, 0, 0, &[&number(7)[..], b"u=1, i"].concat()), Fine),
        ("PRIORITY_UPDATE that is long", frame(16, 0, 0, &[1; 400]), Fine),
    ] {
        check(Role::Server, name, &bytes, then);
    }
}

#[test]
fn responses_are_validated_like_requests() {
    let reset = frame(kind::RST_STREAM, 0, 1, &number(8));
    for (name, bytes, then) in [
        ("a response", answer(1, "200", true, &[]), Fine),
        ("DATA before it", data(1, 1, true), Reset(1, Code::ProtocolError)),
        ("an interim one that ends", answer(1, "103", true, &[]), Reset(1, Code::ProtocolError)),
        (
            "two interim ones",
            [answer(1, "103", false, &[]), answer(1, "103", false, &[]), answer(1, "204", true, &[])]
                .concat(),
            Fine,
        ),
        (
            "204 with a body",
            [answer(1, "204", false, &[]), data(1, 1, true)].concat(),
            Reset(1, Code::ProtocolError),
        ),
        ("304 with a length and no body", answer(1, "304", true, &[("content-length", "9")]), Fine),
        (
            "200 with a length and no body",
            answer(1, "200", true, &[("content-length", "9")]),
            Reset(1, Code::ProtocolError),
        ),
        ("a stream that is not ours", answer(2, "200", true, &[]), PROTOCOL),
        ("a stream to come", answer(3, "200", true, &[]), PROTOCOL),
        ("DATA of a stream to come", data(3, 1, true), PROTOCOL),
        ("PUSH_PROMISE", frame(5, 4, 1, &number(2)), PROTOCOL),
        ("ENABLE_PUSH 1 of a server", frame(4, 0, 0, &setting(2, 1)), PROTOCOL),
        ("PRIORITY_UPDATE of a server", frame(16, 0, 0, &number(1)), PROTOCOL),
        ("more after the end", [answer(1, "200", true, &[]), answer(1, "200", true, &[])].concat(), CLOSED),
        (
            "more after a reset",
            [reset.clone(), answer(1, "200", true, &[])].concat(),
            Reset(1, Code::StreamClosed),
        ),
        ("DATA after a reset", [reset, data(1, 3, true)].concat(), Reset(1, Code::StreamClosed)),
    ] {
        check(Role::Client, name, &bytes, then);
    }
}

#[test]
fn responses_to_head_have_no_body_despite_a_length() {
    let mut side = Side::client();
    let key = side.request(b"HEAD", true);
    side.feed(&answer(1, "200", true, &[("content-length", "100")]));
    assert_eq!(side.events(), [Event::Head { key, end: true, protocol: false }]);
    let key = side.request(b"HEAD", true);
    side.feed(&answer(3, "200", false, &[("content-length", "100")])).feed(&data(3, 0, true));
    assert_eq!(side.events(), [Event::Head { key, end: false, protocol: false }, Event::End { key }]);
    side.request(b"HEAD", true);
    side.feed(&answer(5, "200", false, &[("content-length", "3")])).feed(&data(5, 3, true));
    side.frames();
    assert!(matches!(side.events()[..], [_, Event::Reset { code: Code::ProtocolError, .. }]));
}

#[test]
fn connections_start_as_in_section_3_4() {
    let config = Arc::new(Config::default());
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    for (name, bytes, breach) in [
        ("HTTP/1", &b"GET / HTTP/1.1\r\n\r\n"[..], Some(Breach::Preface)),
        ("a wrong end", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", Some(Breach::Preface)),
        ("PING first", &[&PREFACE[..], &frame(6, 0, 0, &[0; 8])].concat(), Some(Breach::NoSettings)),
        (
            "an acknowledgement first",
            &[&PREFACE[..], &frame(4, 1, 0, &[])].concat(),
            Some(Breach::NoSettings),
        ),
        ("as it should", &[&PREFACE[..], &settings].concat(), None),
    ] {
        let mut side = Side { engine: Connection::new(Role::Server, &config), events: vec![], closed: None };
        side.feed(bytes);
        assert_eq!(side.closed.and_then(|closed| closed.breach), breach, "{name}");
        let first = side.frames()[0].0;
        assert_eq!((first.kind, first.flags, first.stream), (kind::SETTINGS, 0, 0), "{name}");
    }
    let client = Engine::new(Role::Client, &config);
    let mut slices = [IoSlice::new(&[])];
    client.output(&mut slices);
    assert!(slices[0].starts_with(PREFACE));
    assert_eq!(slices[0][PREFACE.len() + 3], kind::SETTINGS);
}
