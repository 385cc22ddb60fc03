//! Stream errors and connection errors of RFC 9114, 9204, 9218 and 9220, case by case.

mod common;

use common::script::{Script, data, frame, headers, number, request, response, settings};
use h3::frame::{FrameHeader, kind, uni};
use h3::{Code, Config, FaultReason, H3Event, ResetBy, Role, Violation};

/// The expected outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The connection ends with this code.
    Close(Code),
    /// The first request is reset with this code; the connection continues.
    Reset(Code),
    /// No error; the connection continues.
    Fine,
}

use Then::{Close, Fine, Reset};

/// The bytes of the peer.
enum Peer {
    /// On the control stream, after SETTINGS.
    Control(Vec<u8>),
    /// On the first request stream.
    Request(Vec<u8>),
    /// The same, and the stream ends.
    Whole(Vec<u8>),
    /// On another unidirectional stream of this type.
    Uni(u64, Vec<u8>),
}

use Peer::{Control, Request, Uni, Whole};

/// Feeds the bytes to a fresh engine at once and in pieces, and compares the outcome. A client has sent a request.
fn check_as(role: Role, config: &Config, method: &[u8], name: &str, peer: &Peer, then: Then) {
    for step in [usize::MAX, 1, 7] {
        let mut script = Script::new(role, config.clone());
        script.step = step;
        if role == Role::Client {
            script.send_request(method, true);
            script.run();
        }
        match peer {
            Control(bytes) => script.put(script.control(), bytes),
            Uni(kind, bytes) => drop(script.uni(*kind, bytes)),
            Request(bytes) | Whole(bytes) => {
                let id = if role == Role::Client { 0 } else { script.open(b"") };
                script.put(id, bytes);
                if matches!(peer, Whole(_)) {
                    script.finish(id);
                }
            }
        }
        script.run();
        let reset = script.events.iter().find_map(|event| match event {
            H3Event::Reset { code, by: ResetBy::Us(_), .. } | H3Event::Refused { code, .. } => Some(*code),
            _ => None,
        });
        let codes = [script.sent_reset(0), script.sent_stop(0)];
        assert!(codes.into_iter().flatten().all(|code| Some(code) == reset), "{name}: {codes:?}");
        let got = match (script.closed, reset) {
            (Some(violation), _) => Close(violation.code()),
            (None, Some(code)) => Reset(code),
            (None, None) => Fine,
        };
        assert_eq!(got, then, "{name}, in steps of {step}: {:?} {:?}", script.closed, script.events);
        let counts = script.engine.take_counts();
        match then {
            Close(code) => assert_eq!(counts.of(code), 1, "{name}: counted"),
            Reset(code) => assert!(codes == [None; 2] || counts.of(code) > 0, "{name}: counted"),
            Fine => assert_eq!(script.engine.glitches(), 0, "{name}"),
        }
        if !matches!(then, Close(_)) && role == Role::Server {
            script.take_events();
            let id = script.ask(&request("GET", &[]));
            script.run();
            assert_eq!(script.head().id(), id, "{name}: the connection continues");
        }
    }
}

fn check(role: Role, name: &str, peer: &Peer, then: Then) {
    check_as(role, &Config::default(), b"GET", name, peer, then);
}

const UNEXPECTED: Then = Close(Code::FrameUnexpected);
const MALFORMED: Then = Close(Code::FrameError);
const MESSAGE: Then = Reset(Code::MessageError);

fn get() -> Vec<u8> {
    request("GET", &[])
}

fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An unknown frame, as peers send it to exercise extensibility (RFC 9114 section 7.2.8).
fn grease() -> Vec<u8> {
    frame(0x21 + 0x1f * 77, b"anything")
}

#[test]
fn messages_follow_section_4_1() {
    let trailers = headers(&[("x", "y")]);
    for (name, peer, then) in [
        ("a request", Whole(get()), Fine),
        ("a request with a body", Whole(cat(&[&request("POST", &[]), &data(3), &data(0), &data(5)])), Fine),
        ("trailers", Whole(cat(&[&request("POST", &[]), &data(3), &trailers])), Fine),
        ("trailers without a body", Whole(cat(&[&request("POST", &[]), &trailers])), Fine),
        ("unknown frames everywhere", Whole(cat(&[&grease(), &get(), &grease(), &data(1), &grease()])), Fine),
        ("unknown frames after trailers", Whole(cat(&[&get(), &trailers, &grease()])), Fine),
        ("DATA first", Request(data(3)), UNEXPECTED),
        ("DATA after an unknown frame", Request(cat(&[&grease(), &data(3)])), UNEXPECTED),
        ("DATA after trailers", Request(cat(&[&get(), &trailers, &data(1)])), UNEXPECTED),
        ("HEADERS after trailers", Request(cat(&[&get(), &trailers, &trailers])), UNEXPECTED),
        ("no request", Whole(vec![]), Reset(Code::RequestIncomplete)),
        ("an unknown frame alone", Whole(grease()), Reset(Code::RequestIncomplete)),
    ] {
        check(Role::Server, name, &peer, then);
    }
    for (name, peer, then) in [
        ("a response", Whole(response("200", &[])), Fine),
        (
            "interim responses",
            Whole(cat(&[&response("100", &[]), &response("103", &[]), &response("200", &[])])),
            Fine,
        ),
        ("trailers", Whole(cat(&[&response("200", &[]), &data(1), &trailers])), Fine),
        ("DATA after an interim response", Request(cat(&[&response("103", &[]), &data(1)])), UNEXPECTED),
        ("DATA first", Request(data(1)), UNEXPECTED),
        ("DATA after trailers", Request(cat(&[&response("200", &[]), &trailers, &data(1)])), UNEXPECTED),
        ("no response", Whole(vec![]), MESSAGE),
        ("an interim response alone", Whole(response("103", &[])), MESSAGE),
        ("101", Whole(response("101", &[])), MESSAGE),
    ] {
        check(Role::Client, name, &peer, then);
    }
}

#[test]
fn malformed_messages_follow_section_4_1_2() {
    let of = |length: &str| request("POST", &[("content-length", length)]);
    for (name, peer, then) in [
        ("content-length", Whole(cat(&[&of("4"), &data(1), &data(3)])), Fine),
        ("content-length and trailers", Whole(cat(&[&of("4"), &data(4), &headers(&[("x", "y")])])), Fine),
        ("content-length without a body", Whole(of("4")), MESSAGE),
        ("less than content-length", Whole(cat(&[&of("4"), &data(3)])), MESSAGE),
        ("more than content-length", Request(cat(&[&of("4"), &data(5)])), MESSAGE),
        ("more in two", Request(cat(&[&of("4"), &data(3), &data(2)])), MESSAGE),
        ("trailers too early", Request(cat(&[&of("4"), &data(3), &headers(&[("x", "y")])])), MESSAGE),
        (
            "two lengths",
            Request(request("POST", &[("content-length", "1"), ("content-length", "2")])),
            MESSAGE,
        ),
        ("an upper-case name", Request(request("GET", &[("X-Own", "y")])), MESSAGE),
        ("a connection field", Request(request("GET", &[("connection", "close")])), MESSAGE),
        ("transfer-encoding", Request(request("POST", &[("transfer-encoding", "chunked")])), MESSAGE),
        ("te: trailers", Whole(request("GET", &[("te", "trailers")])), Fine),
        ("te: gzip", Request(request("GET", &[("te", "gzip")])), MESSAGE),
        ("a line break", Request(request("GET", &[("x", "a\r\nb: c")])), MESSAGE),
        ("an unknown pseudo-field", Request(request("GET", &[(":x", "y")])), MESSAGE),
        ("a status", Request(request("GET", &[(":status", "200")])), MESSAGE),
        ("a late pseudo-field", Request(headers(&[(":method", "GET"), ("x", "y"), (":path", "/")])), MESSAGE),
        (
            "no method",
            Request(headers(&[(":scheme", "https"), (":path", "/"), (":authority", "a")])),
            MESSAGE,
        ),
        (
            "no path",
            Request(headers(&[(":method", "GET"), (":scheme", "https"), (":authority", "a")])),
            MESSAGE,
        ),
        ("a path twice", Request(request("GET", &[(":path", "/")])), MESSAGE),
        ("a pseudo-field in trailers", Request(cat(&[&get(), &headers(&[(":path", "/")])])), MESSAGE),
        ("a length in trailers", Request(cat(&[&get(), &headers(&[("content-length", "1")])])), MESSAGE),
        ("CONNECT with a path", Request(request("CONNECT", &[])), MESSAGE),
        ("CONNECT", Request(headers(&[(":method", "CONNECT"), (":authority", "a:1")])), Fine),
    ] {
        check(Role::Server, name, &peer, then);
    }
    let of = |length: &str| response("200", &[("content-length", length)]);
    for (name, method, peer, then) in [
        ("content-length", &b"GET"[..], Whole(cat(&[&of("4"), &data(4)])), Fine),
        ("less", b"GET", Whole(cat(&[&of("4"), &data(3)])), MESSAGE),
        ("more", b"GET", Request(cat(&[&of("4"), &data(5)])), MESSAGE),
        ("no body", b"GET", Whole(of("4")), MESSAGE),
        ("HEAD", b"HEAD", Whole(of("4")), Fine),
        ("HEAD with a body", b"HEAD", Request(cat(&[&of("4"), &data(4)])), MESSAGE),
        ("204 with a body", b"GET", Request(cat(&[&response("204", &[]), &data(1)])), MESSAGE),
        ("304 with a length", b"GET", Whole(response("304", &[("content-length", "4")])), Fine),
        ("no status", b"GET", Request(headers(&[("x", "y")])), MESSAGE),
        ("a status of letters", b"GET", Request(response("2xx", &[])), MESSAGE),
        ("a path", b"GET", Request(response("200", &[(":path", "/")])), MESSAGE),
    ] {
        check_as(Role::Client, &Config::default(), method, name, &peer, then);
    }
}

#[test]
fn tunnels_follow_section_4_4() {
    let connect = headers(&[(":method", "CONNECT"), (":authority", "a:1")]);
    let extended = request("CONNECT", &[(":protocol", "websocket")]);
    let trailers = headers(&[("x", "y")]);
    for connect in [&connect, &extended] {
        check(Role::Server, "data", &Whole(cat(&[connect, &data(3), &grease(), &data(4)])), Fine);
        check(Role::Server, "HEADERS", &Request(cat(&[connect, &data(3), &trailers])), UNEXPECTED);
    }
    let mut config = Config::default();
    config.rules.connect_protocol = false;
    check_as(Role::Server, &config, b"", "extended CONNECT without permission", &Request(extended), MESSAGE);
    let tunnel = |then| cat(&[&response("200", &[("content-length", "1")]), then]);
    for (name, peer, then) in [
        ("data", Whole(tunnel(&data(100))), Fine),
        ("trailers", Request(tunnel(&trailers)), UNEXPECTED),
        ("refused", Whole(cat(&[&response("403", &[("content-length", "1")]), &data(1), &trailers])), Fine),
    ] {
        check_as(Role::Client, &Config::default(), b"CONNECT", name, &peer, then);
    }
}

#[test]
fn frames_follow_section_7() {
    let cut = |frame: Vec<u8>| frame[..frame.len() - 1].to_vec();
    let push_promise = frame(kind::PUSH_PROMISE, &cat(&[&number(0), &[0, 0]]));
    for (name, peer, then) in [
        ("a cut HEADERS", Whole(cut(get())), MALFORMED),
        ("a cut frame header", Whole(vec![0x40]), MALFORMED),
        ("a type alone", Whole(vec![0x01]), MALFORMED),
        ("a cut DATA", Whole(cat(&[&get(), &cut(data(5))])), MALFORMED),
        ("a cut unknown frame", Whole(cat(&[&get(), &cut(grease())])), MALFORMED),
        ("SETTINGS", Request(settings(&[])), UNEXPECTED),
        ("GOAWAY", Request(frame(kind::GOAWAY, &number(0))), UNEXPECTED),
        ("CANCEL_PUSH", Request(frame(kind::CANCEL_PUSH, &number(0))), UNEXPECTED),
        ("MAX_PUSH_ID", Request(frame(kind::MAX_PUSH_ID, &number(0))), UNEXPECTED),
        ("PRIORITY_UPDATE", Request(frame(kind::PRIORITY_UPDATE, &number(0))), UNEXPECTED),
        ("PUSH_PROMISE", Request(push_promise.clone()), UNEXPECTED),
        ("reserved 2", Request(frame(2, b"")), UNEXPECTED),
        ("reserved 6", Request(cat(&[&get(), &frame(6, b"12345678")])), UNEXPECTED),
        ("reserved 8", Request(frame(8, b"")), UNEXPECTED),
        ("reserved 9", Request(cat(&[&get(), &frame(9, b"")])), UNEXPECTED),
        ("an unknown type of eight bytes", Whole(cat(&[&frame(1 << 60, b""), &get()])), Fine),
        ("a section that is none", Request(frame(kind::HEADERS, b"")), Close(Code::QpackDecompressionFailed)),
        ("a section beyond the limit", Request(vec![0x01, 0x80, 0x01, 0, 0]), Reset(Code::ExcessiveLoad)),
    ] {
        check(Role::Server, name, &peer, then);
    }
    check(Role::Client, "PUSH_PROMISE", &Request(push_promise), Close(Code::IdError));
}

#[test]
fn the_control_stream_follows_section_7_2() {
    let limit = |id| frame(kind::MAX_PUSH_ID, &number(id));
    let away = |id| frame(kind::GOAWAY, &number(id));
    let id_error = Close(Code::IdError);
    for (name, bytes, then) in [
        ("an unknown frame", grease(), Fine),
        ("a long unknown frame", frame(0x21, &[7; 100_000]), Fine),
        ("a second SETTINGS", settings(&[]), UNEXPECTED),
        ("DATA", data(1), UNEXPECTED),
        ("HEADERS", get(), UNEXPECTED),
        ("PUSH_PROMISE", frame(kind::PUSH_PROMISE, &number(0)), UNEXPECTED),
        ("reserved", frame(2, b""), UNEXPECTED),
        ("MAX_PUSH_ID", cat(&[&limit(1), &limit(1), &limit(7)]), Fine),
        ("MAX_PUSH_ID that falls", cat(&[&limit(7), &limit(6)]), id_error),
        ("MAX_PUSH_ID without a number", frame(kind::MAX_PUSH_ID, b""), MALFORMED),
        ("MAX_PUSH_ID with a rest", frame(kind::MAX_PUSH_ID, b"\0\0"), MALFORMED),
        ("MAX_PUSH_ID that is cut", frame(kind::MAX_PUSH_ID, b"\x40"), MALFORMED),
        ("CANCEL_PUSH", frame(kind::CANCEL_PUSH, &number(0)), id_error),
        ("CANCEL_PUSH within the limit", cat(&[&limit(7), &frame(kind::CANCEL_PUSH, &number(3))]), id_error),
        ("CANCEL_PUSH without a number", frame(kind::CANCEL_PUSH, b""), MALFORMED),
        ("GOAWAY", cat(&[&away(9), &away(9), &away(3)]), Fine),
        ("GOAWAY that rises", cat(&[&away(3), &away(4)]), id_error),
        ("GOAWAY too long", frame(kind::GOAWAY, &[0; 9]), MALFORMED),
        ("GOAWAY with a rest", frame(kind::GOAWAY, &[0; 2]), MALFORMED),
        ("PRIORITY_UPDATE", frame(kind::PRIORITY_UPDATE, b"\x04u=1"), Fine),
        ("PRIORITY_UPDATE without a value", frame(kind::PRIORITY_UPDATE, b"\x04"), Fine),
        ("PRIORITY_UPDATE, long", frame(kind::PRIORITY_UPDATE, &[0; 5000]), Fine),
        ("PRIORITY_UPDATE of another stream", frame(kind::PRIORITY_UPDATE, b"\x03u=1"), id_error),
        ("PRIORITY_UPDATE without a stream", frame(kind::PRIORITY_UPDATE, b""), MALFORMED),
        ("PRIORITY_UPDATE of a push", frame(kind::PRIORITY_UPDATE_PUSH, b"\x00u=1"), id_error),
    ] {
        check(Role::Server, name, &Control(bytes), then);
    }
    for (name, bytes, then) in [
        ("MAX_PUSH_ID", limit(1), UNEXPECTED),
        ("PRIORITY_UPDATE", frame(kind::PRIORITY_UPDATE, b"\0"), UNEXPECTED),
        ("CANCEL_PUSH", frame(kind::CANCEL_PUSH, &number(0)), id_error),
        ("GOAWAY with the ID of another stream", away(3), id_error),
        ("GOAWAY that rises", cat(&[&away(8), &away(12)]), id_error),
        ("GOAWAY that falls", cat(&[&away(12), &away(8)]), Fine),
    ] {
        check(Role::Client, name, &Control(bytes), then);
    }
}

#[test]
fn settings_follow_section_7_2_4() {
    let error = Close(Code::SettingsError);
    for (name, bytes, then) in [
        ("all known", settings(&[(1, 4096), (6, 100), (7, 16), (8, 1), (0x33, 1)]), Fine),
        ("unknown", settings(&[(0x21, 7), (1 << 60, 1 << 61)]), Fine),
        ("unknown twice", settings(&[(0x1000, 7), (0x1000, 8)]), Fine),
        ("reserved 0", settings(&[(0, 0)]), error),
        ("reserved 2", settings(&[(2, 0)]), error),
        ("reserved 3", settings(&[(3, 0)]), error),
        ("reserved 4", settings(&[(4, 0)]), error),
        ("reserved 5", settings(&[(5, 0)]), error),
        ("twice", settings(&[(6, 1), (6, 1)]), error),
        ("extended CONNECT that is 2", settings(&[(8, 2)]), error),
        ("datagrams that are 2", settings(&[(0x33, 2)]), error),
        ("an identifier alone", frame(kind::SETTINGS, b"\x06"), MALFORMED),
        ("a cut value", frame(kind::SETTINGS, b"\x06\x40"), MALFORMED),
        ("too many", frame(kind::SETTINGS, &[0x21; 5000]), Close(Code::ExcessiveLoad)),
        ("another frame first", cat(&[&grease(), &settings(&[])]), Close(Code::MissingSettings)),
        ("GOAWAY first", frame(kind::GOAWAY, &number(0)), Close(Code::MissingSettings)),
    ] {
        for role in [Role::Server, Role::Client] {
            let mut script = Script::silent(role, Config::default());
            script.step = 1;
            script.uni(uni::CONTROL, &bytes);
            script.run();
            let got = script.closed.map_or(Fine, |violation| Close(violation.code()));
            assert_eq!(got, then, "{name}");
        }
    }
}

#[test]
fn unidirectional_streams_follow_section_6_2() {
    let creation = Close(Code::StreamCreationError);
    for (role, name, kind, then) in [
        (Role::Server, "a second control stream", uni::CONTROL, creation),
        (Role::Server, "an unknown type", 0x21, Fine),
        (Role::Server, "a long unknown type", 1 << 60, Fine),
        (Role::Server, "an encoder stream", uni::QPACK_ENCODER, Fine),
        (Role::Server, "a decoder stream", uni::QPACK_DECODER, Fine),
        (Role::Server, "a push", uni::PUSH, creation),
        (Role::Client, "a push", uni::PUSH, Close(Code::IdError)),
    ] {
        check(role, name, &Uni(kind, vec![]), then);
    }
    for kind in [uni::QPACK_ENCODER, uni::QPACK_DECODER] {
        let mut script = Script::server();
        script.uni(kind, b"");
        script.uni(kind, b"");
        script.run();
        assert_eq!(script.closed.map(Violation::code), Some(Code::StreamCreationError));
    }
    let mut script = Script::client();
    script.open(b"");
    let id = script.open(&get());
    script.run();
    assert_eq!((script.closed, id), (Some(Violation::BidiByServer), 5));
}

#[test]
fn unknown_streams_are_stopped_and_untyped_ones_may_end() {
    let mut script = Script::server();
    let id = script.uni(0x21, &[1; 5000]);
    script.run();
    assert_eq!(script.sent_stop(id), Some(Code::StreamCreationError));
    for ends in [true, false] {
        let id = script.wire.open(common::CLIENT, true);
        script.put(id, b"\x40");
        if ends { script.finish(id) } else { script.reset(id, 0x100) }
    }
    script.run();
    assert_eq!((script.closed, script.engine.glitches()), (None, 0));
}

#[test]
fn critical_streams_must_stay_open() {
    for kind in [uni::CONTROL, uni::QPACK_ENCODER, uni::QPACK_DECODER] {
        for ends in [true, false] {
            let mut script = Script::server();
            let id = if kind == uni::CONTROL { script.control() } else { script.uni(kind, b"") };
            script.run();
            if ends {
                script.finish(id)
            } else {
                script.reset(id, 0x100)
            }
            script.run();
            assert_eq!(script.closed, Some(Violation::CriticalClosed));
        }
    }
    let mut script = Script::server();
    script.stop(script.own_control(), 0x100);
    script.run();
    assert_eq!(script.closed, Some(Violation::CriticalClosed));
}

#[test]
fn our_streams_begin_with_their_type_and_settings() {
    let config = Config { max_field_section: 20_000, ..Config::default() };
    for (role, expected) in
        [(Role::Server, vec![6, 0x80, 0, 0x4e, 0x20, 8, 1]), (Role::Client, vec![6, 0x80, 0, 0x4e, 0x20])]
    {
        let script = Script::new(role, config.clone());
        let control = script.own_control();
        assert_eq!(script.sent(control).0[0], 0);
        assert_eq!(script.frames(control), [(kind::SETTINGS, expected)]);
        assert!(!script.wire.pipes.contains_key(&(control + 4, control as usize & 1)), "no QPACK stream");
    }
}

#[test]
fn requests_whose_start_line_is_invalid_are_answered() {
    for ends in [true, false] {
        let mut script = Script::server();
        let id = script.open(&request("G T", &[]));
        if ends {
            script.finish(id);
        }
        script.run();
        let events = script.take_events();
        assert!(
            matches!(
                events[..],
                [H3Event::Refused { id: 0, code: Code::MessageError, reason: FaultReason::Message(_) }]
            ),
            "{events:?}"
        );
        let (frames, is_finished) = (script.frames(id), script.sent(id).1);
        assert!(is_finished && frames.len() == 1 && frames[0].0 == kind::HEADERS);
        // `:status: 400` and `content-length: 0` are in the static table.
        assert_eq!(frames[0].1, [0, 0, 0xff, 4, 0xc4]);
        assert_eq!(script.sent_stop(id), (!ends).then_some(Code::NoError));
        assert_eq!((script.engine.glitches(), script.engine.streams()), (0, 0));
    }
}

#[test]
fn huge_frames_are_not_awaited() {
    let mut header = Vec::new();
    FrameHeader { kind: kind::HEADERS, length: 1 << 40 }.put(&mut header);
    check(Role::Server, "HEADERS", &Request(header), Reset(Code::ExcessiveLoad));
    let mut script = Script::server();
    let id = script.open(&get());
    let mut header = Vec::new();
    FrameHeader { kind: kind::DATA, length: 1 << 61 }.put(&mut header);
    script.put(id, &header);
    script.put(id, b"abc");
    script.run();
    let events = script.take_events();
    assert!(
        matches!(&events[..], [H3Event::Head { .. }, H3Event::Data { bytes, end: false, .. }] if bytes == "abc")
    );
}

/// Section 4.1.1: a client may cancel a request at any time, also before the server has looked at it.
#[test]
fn requests_are_cancelled_as_they_arrive() {
    let mut script = Script::server();
    let ids = [script.ask(&get()), script.ask(&get())];
    script.stop(ids[0], 0x10c);
    // The engine is called once all of it has arrived.
    script.wire.deliver_all();
    script.run();
    assert_eq!(script.head().id(), ids[1]);
    assert_eq!((script.sent_reset(ids[0]), script.closed), (Some(Code::RequestCancelled), None));
    assert_eq!((script.sent_reset(ids[1]), script.engine.streams()), (None, 1));
}
