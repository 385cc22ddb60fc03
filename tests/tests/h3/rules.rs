//! Requirements of the RFCs for servers that a client can observe, by section.

use weir_tests::Origin;
use weir_tests::quic::frame::{headers, http3, ints, request, section, stream};
use weir_tests::quic::{Close, Parameters, RawQuic, Space};

use super::{Scene, start};

/// The outcome for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The connection is closed by the transport.
    Transport(u64),
    /// The connection is closed by HTTP/3.
    Http3(u64),
    /// Stream 0 is reset, and the connection serves stream 4.
    Reset(u64),
    /// Stream 0 gets a response with status 200, or stream 4 if nothing was sent on stream 0.
    Served,
}

use Outcome::{Http3, Reset, Served, Transport};

/// Transport error codes (RFC 9000, 20.1).
const FLOW_CONTROL: u64 = 3;
const STREAM_LIMIT: u64 = 4;
const STREAM_STATE: u64 = 5;
const FINAL_SIZE: u64 = 6;
const FRAME_ENCODING: u64 = 7;
const PARAMETER: u64 = 8;
const PROTOCOL_VIOLATION: u64 = 10;

/// HTTP/3 error codes (RFC 9114, 8.1; RFC 9204, 6).
const STREAM_CREATION: u64 = 0x103;
const CLOSED_CRITICAL: u64 = 0x104;
const UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const ID: u64 = 0x108;
const SETTINGS: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const INCOMPLETE: u64 = 0x10d;
const MESSAGE: u64 = 0x10e;
const DECOMPRESSION: u64 = 0x200;
const ENCODER: u64 = 0x201;
const DECODER: u64 = 0x202;

/// The client's streams.
const CONTROL: u64 = 2;
const UNI: u64 = 6;

fn scene(origin: &Origin) -> Scene {
    start("", " default_backend b", &format!("backend b\n server s 127.0.0.1:{}", origin.port()))
}

fn origin() -> Origin {
    Origin::start(|_, body| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Length: {}\r\n\r\nok", body.len()).into_bytes()
    })
}

/// Checks what a client sees after it has misbehaved.
fn observe(raw: &mut RawQuic, expected: Outcome) -> Option<Outcome> {
    let of_close = |close| match close {
        Close::Transport(code) => Transport(code),
        Close::Http3(code) => Http3(code),
    };
    let serves = |raw: &mut RawQuic, stream| {
        raw.write(stream, &request("GET"), true);
        raw.await_success(stream)
    };
    match expected {
        Transport(_) | Http3(_) => raw.await_close().map(of_close),
        Reset(_) => {
            let code = raw.await_reset(0);
            if let Some(close) = raw.closed {
                return Some(of_close(close));
            }
            code.filter(|_| serves(raw, 4)).map(Reset)
        }
        Served => {
            let served = raw.await_success(0);
            raw.closed.map(of_close).or(served.then_some(Served))
        }
    }
}

type Step = Box<dyn Fn(&mut RawQuic)>;

/// A rule: its section, the client's actions, and the outcome.
struct Rule(&'static str, Step, Outcome);

fn check(port: u16, opens: bool, rules: Vec<Rule>) {
    let mut wrong = Vec::new();
    for Rule(name, act, expected) in rules {
        let mut raw = RawQuic::connect(port);
        if opens {
            raw.write(CONTROL, &[0, 4, 0], false);
        }
        act(&mut raw);
        let seen = observe(&mut raw, expected);
        if seen != Some(expected) {
            wrong.push(format!("{name}: {seen:?} instead of {expected:?}"));
        }
        raw.send(&ints(&[0x1c, 0, 0, 0]));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn frame(bytes: Vec<u8>) -> Step {
    Box::new(move |raw| raw.send(&bytes))
}

fn on_stream(id: u64, bytes: impl Into<Vec<u8>>, fin: bool) -> Step {
    let bytes = bytes.into();
    Box::new(move |raw| raw.write(id, &bytes, fin))
}

/// A stream with the frames of a request, sent at once.
fn exchange(frames: &[Vec<u8>]) -> Step {
    on_stream(0, frames.concat(), true)
}

#[test]
fn transport_frames() {
    let origin = origin();
    let scene = scene(&origin);
    let new_id = |number: u64, retire: u64, length: usize| {
        let mut bytes = ints(&[0x18, number, retire]);
        bytes.push(length as u8);
        bytes.resize(bytes.len() + length + 16, 7);
        bytes
    };
    let rules = vec![
        Rule("9000/12.4 unknown frame", frame(ints(&[0x21])), Transport(FRAME_ENCODING)),
        Rule("9000/12.4 no frame", frame(Vec::new()), Transport(PROTOCOL_VIOLATION)),
        Rule("9000/12.4 cut frame", frame(vec![0x04, 0]), Transport(FRAME_ENCODING)),
        Rule(
            "9000/17.3.1 reserved bits",
            Box::new(|raw| {
                let packet = raw.packet(Space::OneRtt, &[1], 1, 0x18);
                raw.send_datagram(&packet);
            }),
            Transport(PROTOCOL_VIOLATION),
        ),
        Rule("9000/19.7 NEW_TOKEN", frame(vec![0x07, 1, 1]), Transport(PROTOCOL_VIOLATION)),
        Rule("9000/19.20 HANDSHAKE_DONE", frame(vec![0x1e]), Transport(PROTOCOL_VIOLATION)),
        Rule("9000/19.8 server's stream", frame(stream(3, 0, b"a", false)), Transport(STREAM_STATE)),
        Rule("9000/19.8 server's bidi", frame(stream(1, 0, b"a", false)), Transport(STREAM_STATE)),
        Rule("9000/19.4 RESET_STREAM", frame(ints(&[4, 3, 0, 0])), Transport(STREAM_STATE)),
        Rule("9000/19.5 STOP_SENDING", frame(ints(&[5, CONTROL, 0])), Transport(STREAM_STATE)),
        Rule("9000/19.5 not created", frame(ints(&[5, 1, 0])), Transport(STREAM_STATE)),
        Rule("9000/19.10 MAX_STREAM_DATA", frame(ints(&[0x11, CONTROL, 9])), Transport(STREAM_STATE)),
        Rule("9000/19.11 MAX_STREAMS", frame(ints(&[0x12, (1 << 60) + 1])), Transport(FRAME_ENCODING)),
        Rule("9000/19.14 STREAMS_BLOCKED", frame(ints(&[0x16, (1 << 60) + 1])), Transport(FRAME_ENCODING)),
        Rule("9000/4.1 window", frame(stream(0, 1 << 40, b"a", false)), Transport(FLOW_CONTROL)),
        Rule("9000/4.6 streams", frame(stream(4000, 0, b"a", false)), Transport(STREAM_LIMIT)),
        Rule("9000/4.6 uni", frame(stream(402, 0, b"a", false)), Transport(STREAM_LIMIT)),
        Rule(
            "9000/4.5 final size",
            frame([stream(0, 0, b"abc", true), stream(0, 0, b"abcd", false)].concat()),
            Transport(FINAL_SIZE),
        ),
        Rule(
            "9000/4.5 reset below",
            frame([stream(0, 0, b"abc", false), ints(&[4, 0, 0, 2])].concat()),
            Transport(FINAL_SIZE),
        ),
        Rule("9000/13.1 unsent", frame(ints(&[2, 1000, 0, 0, 0])), Transport(PROTOCOL_VIOLATION)),
        Rule("9000/19.3 below zero", frame(ints(&[2, 1, 0, 0, 5])), Transport(FRAME_ENCODING)),
        Rule("9000/19.15 empty ID", frame(new_id(1, 0, 0)), Transport(FRAME_ENCODING)),
        Rule("9000/19.15 long ID", frame(new_id(1, 0, 21)), Transport(FRAME_ENCODING)),
        Rule("9000/19.15 retired", frame(new_id(1, 2, 8)), Transport(FRAME_ENCODING)),
        Rule("9000/19.16 not issued", frame(ints(&[0x19, 99])), Transport(PROTOCOL_VIOLATION)),
        Rule(
            "9000/8.2.2 PATH_CHALLENGE",
            Box::new(|raw| {
                raw.send(b"\x1aabcdefgh");
                let answer = raw.await_frame(|frame| match frame {
                    weir_tests::quic::Frame::PathResponse(data) => Some(*data),
                    _ => None,
                });
                assert_eq!(answer, Some(*b"abcdefgh"));
                raw.write(0, &request("GET"), true);
            }),
            Served,
        ),
        Rule(
            "9000/13.3 repeated and overlapping data",
            Box::new(|raw| {
                let bytes = request("GET");
                raw.send(&stream(0, 5, &bytes[5..], true));
                raw.send(&stream(0, 2, &bytes[2..9], false));
                raw.send(&stream(0, 2, &bytes[2..9], false));
                raw.send(&stream(0, 0, &bytes, true));
            }),
            Served,
        ),
    ];
    check(scene.port, true, rules);
}

#[test]
fn transport_parameters() {
    let origin = origin();
    let scene = scene(&origin);
    let with =
        |number, value: &[u8]| Parameters { more: vec![(number, value.to_vec())], ..Parameters::default() };
    let cases = [
        ("9000/7.4 twice", with(9, &[1]), PARAMETER),
        ("9000/18.2 original ID", with(0, &[1; 8]), PARAMETER),
        ("9000/18.2 reset token", with(2, &[1; 16]), PARAMETER),
        ("9000/18.2 preferred address", with(13, &[1; 49]), PARAMETER),
        ("9000/18.2 Retry ID", with(16, &[1; 8]), PARAMETER),
        ("9000/18.2 payload size", with(3, &ints(&[1199])), PARAMETER),
        ("9000/18.2 exponent", with(10, &ints(&[21])), PARAMETER),
        ("9000/18.2 delay", with(11, &ints(&[1 << 14])), PARAMETER),
        ("9000/18.2 ID limit", with(14, &ints(&[1])), PARAMETER),
        ("9000/18.2 streams", with(8, &ints(&[(1 << 60) + 1])), PARAMETER),
        ("9000/7.3 ID", Parameters { own_id: Some(vec![1; 8]), ..Parameters::default() }, PARAMETER),
        ("9001/8.1 ALPN", Parameters { protocol: "h9", ..Parameters::default() }, 0x100 + 120),
    ];
    let mut wrong = Vec::new();
    for (name, parameters, code) in cases {
        let mut raw = RawQuic::prepare(([127, 0, 0, 1], scene.port).into(), &parameters);
        raw.handshake();
        let closed = raw.await_close();
        if closed != Some(Close::Transport(code)) {
            wrong.push(format!("{name}: {closed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut raw = RawQuic::connect_with(scene.port, &with(27 + 31 * 1000, b"anything"));
    raw.write(CONTROL, &[0, 4, 0], false);
    raw.write(0, &request("GET"), true);
    assert!(raw.await_success(0), "9000/18.1: reserved parameters are ignored");
}

#[test]
fn frames_and_streams() {
    let origin = origin();
    let scene = scene(&origin);
    let get = || request("GET");
    let end = || http3(0, b"");
    let mut rules = vec![
        Rule("9114/7.2.4 second SETTINGS", on_stream(CONTROL, [4, 0], false), Http3(UNEXPECTED)),
        Rule("9114/7.2.1 DATA", on_stream(CONTROL, [0, 0], false), Http3(UNEXPECTED)),
        Rule("9114/7.2.2 HEADERS", on_stream(CONTROL, get(), false), Http3(UNEXPECTED)),
        Rule("9114/7.2.5 PUSH_PROMISE", on_stream(CONTROL, [5, 1, 0], false), Http3(UNEXPECTED)),
        Rule("9114/6.2.1 end", on_stream(CONTROL, [], true), Http3(CLOSED_CRITICAL)),
        Rule(
            "9114/6.2.1 reset",
            Box::new(|raw| {
                // The type of the stream is known after this.
                raw.write(0, &request("GET"), true);
                assert!(raw.await_success(0));
                raw.send(&ints(&[4, CONTROL, 0, 3]));
            }),
            Http3(CLOSED_CRITICAL),
        ),
        Rule("9114/6.2.1 twice", on_stream(UNI, [0, 4, 0], false), Http3(STREAM_CREATION)),
        Rule("9114/6.2.2 push", on_stream(UNI, [1, 0], false), Http3(STREAM_CREATION)),
        Rule("9114/7.2.7 lower", on_stream(CONTROL, [13, 1, 9, 13, 1, 8], false), Http3(ID)),
        Rule("9114/7.2.7 size", on_stream(CONTROL, [13, 2, 9, 9], false), Http3(FRAME_ERROR)),
        Rule("9114/7.2.3 push", on_stream(CONTROL, [3, 1, 9], false), Http3(ID)),
        Rule("9114/5.2 higher", on_stream(CONTROL, [7, 1, 0, 7, 1, 1], false), Http3(ID)),
        Rule("9114/4.1 PUSH_PROMISE", exchange(&[get(), vec![5, 1, 0]]), Http3(UNEXPECTED)),
        Rule("9114/4.1 DATA first", exchange(&[end(), get()]), Http3(UNEXPECTED)),
        Rule(
            "9114/4.1 after trailers",
            exchange(&[request("POST"), headers(&[("a", "b")]), headers(&[("a", "b")])]),
            Http3(UNEXPECTED),
        ),
        Rule(
            "9114/4.1 DATA after trailers",
            exchange(&[request("POST"), headers(&[("a", "b")]), http3(0, b"a")]),
            Http3(UNEXPECTED),
        ),
        Rule("9114/7.1 cut", on_stream(0, [&get()[..], &[0, 5, 1]].concat(), true), Http3(FRAME_ERROR)),
        Rule("9114/7.1 cut header", on_stream(0, [&get()[..], &[0]].concat(), true), Http3(FRAME_ERROR)),
        Rule("9114/7.1 cut head", on_stream(0, &get()[..5], true), Http3(FRAME_ERROR)),
        Rule("9114/4.1 no request", on_stream(0, [], true), Reset(INCOMPLETE)),
        Rule("9114/4.1 unknown only", exchange(&[http3(0x21, b"abc")]), Reset(INCOMPLETE)),
        Rule("9114/9 frames", exchange(&[http3(0x21, b"abc"), get(), http3(0x40, b"")]), Served),
        Rule(
            "9114/9 streams",
            Box::new(move |raw| {
                raw.write(UNI, &ints(&[0x21, 5, 5]), false);
                raw.write(0, &request("GET"), true);
            }),
            Served,
        ),
        Rule(
            "9114/9 control frames",
            Box::new(move |raw| {
                raw.write(CONTROL, &http3(0x21 + 0x1f * 7, b"abc"), false);
                raw.write(0, &request("GET"), true);
            }),
            Served,
        ),
        Rule(
            "9114/6.2.3 empty stream",
            Box::new(move |raw| {
                raw.write(UNI, &[], true);
                raw.write(0, &request("GET"), true);
            }),
            Served,
        ),
    ];
    for kind in [2, 6, 8, 9] {
        rules.push(Rule(
            "9114/7.2.8 control",
            on_stream(CONTROL, http3(kind, b""), false),
            Http3(UNEXPECTED),
        ));
        rules.push(Rule("9114/7.2.8 request", exchange(&[get(), http3(kind, b"")]), Http3(UNEXPECTED)));
    }
    for kind in [3, 4, 7, 13] {
        let frames = [get(), http3(kind, &[0])];
        rules.push(Rule("9114/7.2 control frame of a request", exchange(&frames), Http3(UNEXPECTED)));
    }
    check(scene.port, true, rules);
}

#[test]
fn settings() {
    let origin = origin();
    let scene = scene(&origin);
    let control = |bytes: Vec<u8>| on_stream(CONTROL, [vec![0], bytes].concat(), false);
    let mut rules = vec![
        Rule("9114/6.2.1 missing", control(vec![13, 1, 0]), Http3(MISSING_SETTINGS)),
        Rule("9114/6.2.1 unknown first", control(http3(0x21, b"")), Http3(MISSING_SETTINGS)),
        Rule("9114/7.2.4 twice", control(http3(4, &ints(&[6, 9, 6, 9]))), Http3(SETTINGS)),
        Rule("9114/7.2.4 cut", control(http3(4, &[6])), Http3(FRAME_ERROR)),
        Rule(
            "9114/7.2.4.1 reserved",
            Box::new(|raw| {
                raw.write(CONTROL, &[&[0][..], &http3(4, &ints(&[0x21, 7, 0x40, 0]))].concat(), false);
                raw.write(0, &request("GET"), true);
            }),
            Served,
        ),
        Rule(
            "9114/7.2.4.2 requests need not wait",
            Box::new(|raw| {
                raw.write(0, &request("GET"), true);
            }),
            Served,
        ),
    ];
    for number in 2..=5 {
        rules.push(Rule("9114/7.2.4.1", control(http3(4, &ints(&[number, 0]))), Http3(SETTINGS)));
    }
    check(scene.port, false, rules);
    // The server's own control stream.
    let mut raw = RawQuic::connect(scene.port);
    let first = raw.await_frame(|frame| match frame {
        weir_tests::quic::Frame::Stream { id: 3, offset: 0, data, .. } => Some(data.clone()),
        _ => None,
    });
    let first = first.expect("a control stream");
    assert!(first.starts_with(&[0, 4]), "SETTINGS first: {first:?}");
}

#[test]
fn header_compression() {
    let origin = origin();
    let scene = scene(&origin);
    let head = |bytes: &[u8]| on_stream(0, http3(1, bytes), true);
    let rules = vec![
        Rule("9204/3.1 static index", head(&[0, 0, 0xff, 0x24]), Http3(DECOMPRESSION)),
        Rule("9204/2.2.3 dynamic", head(&[0, 0, 0x80]), Http3(DECOMPRESSION)),
        Rule("9204/4.5.1.1 insert count", head(&[5, 0, 0xd1]), Http3(DECOMPRESSION)),
        Rule("9204/4.5 cut", head(&[0, 0, 0x27]), Http3(DECOMPRESSION)),
        Rule("9204/4.5 no prefix", head(&[0]), Http3(DECOMPRESSION)),
        Rule(
            "9204/4.1.1 integer",
            head(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            Http3(DECOMPRESSION),
        ),
        Rule("9204/4.1.2 Huffman padding", head(&[0, 0, 0x50, 0x81, 0x00]), Http3(DECOMPRESSION)),
        Rule("9204/4.3.1 capacity", on_stream(UNI, [2, 0x3f, 0xff, 0xff, 0x03], false), Http3(ENCODER)),
        Rule("9204/3.2.2 insert", on_stream(UNI, [2, 0xc0, 1, b'a'], false), Http3(ENCODER)),
        Rule("9204/4.3.4 duplicate", on_stream(UNI, [2, 0x00], false), Http3(ENCODER)),
        Rule("9204/4.4.3 increment of 0", on_stream(UNI, [3, 0x00], false), Http3(DECODER)),
        Rule("9204/4.4.1 section", on_stream(UNI, [3, 0x80], false), Http3(DECODER)),
        Rule("9204/4.2 encoder ends", on_stream(UNI, [2], true), Http3(CLOSED_CRITICAL)),
        Rule("9204/4.2 decoder ends", on_stream(UNI, [3], true), Http3(CLOSED_CRITICAL)),
        Rule(
            "9204/4.2 encoder twice",
            Box::new(|raw| {
                raw.write(UNI, &[2], false);
                raw.write(UNI + 4, &[2], false);
            }),
            Http3(STREAM_CREATION),
        ),
        Rule(
            "9204/4.2 decoder twice",
            Box::new(|raw| {
                raw.write(UNI, &[3], false);
                raw.write(UNI + 4, &[3], false);
            }),
            Http3(STREAM_CREATION),
        ),
    ];
    check(scene.port, true, rules);
}

/// A request with these fields behind or instead of the usual ones.
fn with(pseudo: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[pseudo, more].concat())
}

const PSEUDO: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];

#[test]
fn malformed_requests() {
    let origin = origin();
    let scene = scene(&origin);
    let mut heads: Vec<(String, Vec<u8>)> = Vec::new();
    let fields = [
        ("Upper", "a"),
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("a b", "c"),
        ("a:b", "c"),
        ("", "a"),
        ("a", "b\r\nc: d"),
        ("a", "b\0"),
        ("a", "b\nc"),
        ("a", "\r"),
        ("a\r\nb", "c"),
        ("content-length", "1x"),
        ("content-length", "-1"),
        ("content-length", "+0"),
        ("content-length", ""),
        ("content-length", "99999999999999999999999"),
        (":unknown", "a"),
        (":status", "200"),
        (":method", "GET"),
        (":path", "/"),
        ("\u{e9}", "a"),
        ("a\u{7f}", "b"),
    ];
    for field in fields {
        heads.push((format!("{field:?}"), with(&PSEUDO, &[field])));
    }
    let changed = [
        (2, "user@localhost"),
        (2, "a b"),
        (2, "a\r\nb"),
        (3, ""),
        (3, "a"),
        (3, "/a b"),
        (3, "/\r\nX: y"),
        (3, "/a\0"),
        (3, "*"),
    ];
    for (at, value) in changed {
        let mut pseudo = PSEUDO;
        pseudo[at].1 = value;
        heads.push((format!("{:?}", pseudo[at]), with(&pseudo, &[])));
    }
    heads.push(("another host".into(), with(&PSEUDO, &[("host", "example.org")])));
    heads.push(("empty host".into(), with(&[PSEUDO[0], PSEUDO[1], PSEUDO[3]], &[("host", "")])));
    for missing in [0, 1, 2, 3] {
        let mut pseudo = PSEUDO.to_vec();
        let (name, _) = pseudo.remove(missing);
        heads.push((format!("without {name}"), with(&pseudo, &[])));
    }
    heads.push(("pseudo field behind".into(), with(&PSEUDO[..3], &[("a", "b"), PSEUDO[3]])));
    heads.push(("two lengths".into(), with(&PSEUDO, &[("content-length", "0"), ("content-length", "1")])));
    heads.push(("CONNECT with a path".into(), with(&[(":method", "CONNECT"), PSEUDO[2], PSEUDO[3]], &[])));
    let mut wrong = Vec::new();
    let mut check = |name: &str, head: &[u8], is_right: &dyn Fn(&mut RawQuic) -> bool| {
        let mut raw = RawQuic::connect(scene.port);
        raw.write(CONTROL, &[0, 4, 0], false);
        raw.write(0, head, true);
        if !is_right(&mut raw) || raw.closed.is_some() {
            wrong.push(format!("{name}: {:?}", raw.closed));
        }
        raw.send(&ints(&[0x1c, 0, 0, 0]));
    };
    for (name, head) in &heads {
        check(name, head, &|raw| observe(raw, Reset(MESSAGE)) == Some(Reset(MESSAGE)));
    }
    // These are answered by the program itself.
    for (at, value) in [(0, "PO ST"), (0, ""), (0, "GET\r\n"), (0, "G/T"), (1, ""), (1, "ht tp")] {
        let mut pseudo = PSEUDO;
        pseudo[at].1 = value;
        check(&format!("{:?}", pseudo[at]), &with(&pseudo, &[]), &|raw| !raw.await_success(0));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(origin.requests(), heads.len(), "only the second request of each connection is passed on");
}

#[test]
fn bodies_that_differ_from_their_length() {
    let origin = origin();
    let scene = scene(&origin);
    let post = |length: &str| with(&PSEUDO, &[("content-length", length)]);
    let body = |bytes: &[u8]| http3(0, bytes);
    let rules = vec![
        Rule("9114/4.1.2 longer", exchange(&[post("3"), body(b"abcd")]), Reset(MESSAGE)),
        Rule("9114/4.1.2 longer in pieces", exchange(&[post("3"), body(b"ab"), body(b"cd")]), Reset(MESSAGE)),
        Rule("9114/4.1.2 shorter", exchange(&[post("3"), body(b"ab")]), Reset(MESSAGE)),
        Rule("9114/4.1.2 missing", exchange(&[post("3")]), Reset(MESSAGE)),
        Rule(
            "9114/4.1.2 trailers",
            exchange(&[post("3"), body(b"ab"), headers(&[("a", "b")])]),
            Reset(MESSAGE),
        ),
        Rule("9114/4.1.2 equal", exchange(&[post("3"), body(b"ab"), body(b""), body(b"c")]), Served),
        Rule("9114/4.3 trailers", exchange(&[request("POST"), headers(&[(":path", "/")])]), Reset(MESSAGE)),
        Rule(
            "9114/4.2 trailers",
            exchange(&[request("POST"), body(b"a"), headers(&[("transfer-encoding", "chunked")])]),
            Reset(MESSAGE),
        ),
        Rule(
            "9114/4.1 trailers",
            exchange(&[request("POST"), body(b"a"), http3(1, &section(&[("a", "b")]))]),
            Served,
        ),
    ];
    check(scene.port, true, rules);
}

#[test]
fn servers_receive_one_host_if_it_equals_the_authority() {
    let origin = Origin::start(|head, _| {
        let hosts: Vec<_> =
            head.lines().filter(|line| line.to_ascii_lowercase().starts_with("host:")).collect();
        let status = if hosts.len() == 1 && hosts[0].ends_with("localhost") { "200 OK" } else { "500 Wrong" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let scene = scene(&origin);
    let head = with(&PSEUDO, &[("host", "LOCALHOST:443")]);
    check(scene.port, true, vec![Rule("9114/4.3.1", on_stream(0, head, true), Served)]);
}
