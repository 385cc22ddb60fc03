//! Clients that break the rules: each connection ends with the right error, and others are served.

use weir_tests::eventually;
use weir_tests::qmux::{PARAMETERS, PING, RawQmux, numbers, parameters, record, stream, usual};

use super::{origin, scene};

const STREAM_LIMIT_ERROR: u64 = 0x4;
const FRAME_ENCODING_ERROR: u64 = 0x7;
const TRANSPORT_PARAMETER_ERROR: u64 = 0x8;
const PROTOCOL_VIOLATION: u64 = 0xa;

/// The types of CONNECTION_CLOSE frames, by transport and application.
const BY_TRANSPORT: u64 = 0x1c;
const BY_APPLICATION: u64 = 0x1d;

#[test]
fn malformed_records_close_the_connection_with_the_right_error() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let large = numbers(&[16_383]);
    let cases: [(&str, Vec<u8>, (u64, u64)); 11] = [
        ("a frame that is cut off", record(&[0x0a, 0, 9]), (BY_TRANSPORT, FRAME_ENCODING_ERROR)),
        ("no frames", record(&[]), (BY_TRANSPORT, PROTOCOL_VIOLATION)),
        ("a large record", large, (BY_TRANSPORT, FRAME_ENCODING_ERROR)),
        ("PING of QUIC", record(&[0x01]), (BY_TRANSPORT, FRAME_ENCODING_ERROR)),
        ("an unknown frame", record(&numbers(&[0x1234])), (BY_TRANSPORT, FRAME_ENCODING_ERROR)),
        ("parameters again", record(&parameters(&usual(9))), (BY_TRANSPORT, TRANSPORT_PARAMETER_ERROR)),
        ("data with a gap", record(&stream(0, 5, b"a", false)), (BY_TRANSPORT, PROTOCOL_VIOLATION)),
        ("too many streams", record(&stream(400, 0, b"a", false)), (BY_TRANSPORT, STREAM_LIMIT_ERROR)),
        ("pings out of order", record(&numbers(&[PING, 5, PING, 4])), (BY_TRANSPORT, PROTOCOL_VIOLATION)),
        // H3_FRAME_UNEXPECTED: DATA before HEADERS.
        ("HTTP/3 out of order", record(&stream(0, 0, &[0, 1, 9], true)), (BY_APPLICATION, 0x105)),
        // H3_MISSING_SETTINGS.
        ("HTTP/3 without settings", record(&stream(6, 0, &[0, 7, 1, 0], false)), (BY_APPLICATION, 0x103)),
    ];
    for (name, bytes, expected) in cases {
        let mut raw = scene.connect();
        raw.send(&bytes);
        raw.receive_end();
        assert_eq!(raw.closed, Some(expected), "{name}");
    }
    assert_eq!(scene.connect().get("/get/3").expect("a response").0, 200);
}

#[test]
fn the_first_frame_must_be_that_of_transport_parameters() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    let forbidden = parameters(&[(3, 1200)]);
    let small_records = parameters(&[(0x0571_c594_29cd_0845, 100)]);
    let cut_off = numbers(&[PARAMETERS, 9]);
    for (bytes, code) in [
        (record(&stream(2, 0, &[0, 4, 0], false)), TRANSPORT_PARAMETER_ERROR),
        (record(&[0]), TRANSPORT_PARAMETER_ERROR),
        (record(&forbidden), TRANSPORT_PARAMETER_ERROR),
        (record(&small_records), TRANSPORT_PARAMETER_ERROR),
        (record(&cut_off), FRAME_ENCODING_ERROR),
        // HTTP/1 is recognised before as many bytes arrive as a record would have.
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), TRANSPORT_PARAMETER_ERROR),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), TRANSPORT_PARAMETER_ERROR),
    ] {
        let mut raw = RawQmux::bare(scene.port);
        raw.send(&bytes);
        raw.receive_end();
        assert_eq!(raw.closed, Some((BY_TRANSPORT, code)), "{bytes:x?}");
    }
}

#[test]
fn a_close_by_the_client_ends_its_requests() {
    let origin = weir_tests::Origin::raw(|socket| {
        let _ = std::io::copy(&mut &socket, &mut std::io::sink());
    });
    let scene = scene(&origin, "", "");
    for close in [numbers(&[0x1d, 0x100, 0]), numbers(&[0x1c, 0, 0, 0])] {
        let mut raw = scene.connect();
        raw.request("GET", "/", None);
        assert!(eventually(|| scene.weir.stat("b,s", "scur") == "1"));
        raw.send_record(&close);
        raw.receive_end();
        assert_eq!(raw.closed, None, "it is not answered");
        assert!(eventually(|| scene.weir.stat("b,s", "scur") == "0"));
    }
}

#[test]
fn frames_without_use_are_glitches() {
    let origin = origin();
    let scene = scene(&origin, " tune.quic.fe.sec.glitches-threshold 100", "");
    for frame in [numbers(&[0]), numbers(&[0x05, 0, 1]), stream(0, 0, &[], false)] {
        let mut raw = scene.connect();
        raw.send_record(&stream(0, 0, &[], false));
        for _ in 0..2000 {
            raw.send(&record(&frame).repeat(50));
        }
        raw.receive_end();
        assert!(raw.closed.is_some(), "{frame:x?}");
    }
    assert_eq!(scene.connect().get("/get/3").expect("a response").0, 200);
}

/// Memory per connection is bounded: by the windows, and by one record.
#[test]
fn partial_records_of_many_connections_take_little_memory() {
    let origin = origin();
    let scene = scene(&origin, "", "");
    assert_eq!(scene.connect().get("/get/3").expect("a response").0, 200);
    let before = scene.weir.memory();
    let many: Vec<RawQmux> = (0..200)
        .map(|_| {
            let mut raw = scene.connect();
            raw.send(&[&numbers(&[16_000])[..], &[0; 15_000]].concat());
            raw
        })
        .collect();
    assert!(eventually(|| scene.weir.stat("f,FRONTEND", "scur") == "200"));
    let grown = scene.weir.memory().saturating_sub(before);
    println!("{grown} KiB for {} connections", many.len());
    assert!(grown < 200 * 40, "{grown} KiB");
}
