//! Attacks: each is bounded in memory and CPU time, and another client is served in the meantime.

mod floods;
mod handshakes;
mod slow;

use std::time::{Duration, Instant};

use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::quic::frame::{headers, http3, ints, request, stream};
use weir_tests::quic::{Close, Parameters, RawQuic};
use weir_tests::{Origin, eventually};

use super::{Scene, start};

const NO_ERROR: Close = Close::Http3(0x100);
const EXCESSIVE_LOAD: Close = Close::Http3(0x107);
const PROTOCOL_VIOLATION: Close = Close::Transport(10);

/// The client's control stream.
const CONTROL: u64 = 2;

/// A body that is larger than all buffers.
const LARGE: usize = 2 << 20;

struct Attacked {
    scene: Scene,
    origin: Origin,
    other: Http3Client,
}

/// Starts the program with a frontend that forwards to a server, except for `/local`.
fn attacked(global: &str, frontend: &str) -> Attacked {
    let body = "x".repeat(LARGE);
    let origin = Origin::start(move |head, _| {
        let body = if head.contains("/large") { &body[..] } else { "ok" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let rules =
        format!("{frontend}\n http-request return status 200 if {{ path /local }}\n default_backend b");
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let scene = start(&format!(" nbthread 1\n{global}"), &rules, &backend);
    let mut other = Http3Client::connect(scene.port);
    // Allocations of the first requests do not count.
    for _ in 0..20 {
        assert_eq!(other.exchange(&Http3Request::get("/")).status, 200);
    }
    other.exchange(&Http3Request::get("/large"));
    Attacked { scene, origin, other }
}

impl Attacked {
    fn port(&self) -> u16 {
        self.scene.port
    }

    /// Sends a request of another client; returns its time in ms.
    fn serve_other(&mut self) -> u128 {
        let since = Instant::now();
        // The connection may have been idle for too long.
        if self.other.try_exchange(&Http3Request::get("/")).is_err() {
            self.other = Http3Client::connect(self.port());
        }
        assert_eq!(self.other.exchange(&Http3Request::get("/")).status, 200, "another client is served");
        since.elapsed().as_millis()
    }

    /// Runs an attack, which serves another client now and then. Its memory is bounded by `memory` KiB, and its CPU time by `cpu` µs
    /// for each datagram that it returns the number of.
    fn bounded(&mut self, name: &str, memory: u64, cpu: u64, attack: impl FnOnce(&mut Self) -> u64) {
        let (before, used) = (self.scene.weir.memory(), self.scene.weir.cpu());
        let count = attack(self);
        let late = self.serve_other();
        let grown = self.scene.weir.memory().saturating_sub(before);
        let used = self.scene.weir.cpu() - used;
        println!(
            "{name}: {count} datagrams, {grown} KiB, {used} ms of CPU time, {late} ms for another client"
        );
        assert!(grown <= memory, "{name}: {grown} KiB");
        assert!(used <= cpu * count / 1000 + 100, "{name}: {used} ms of CPU time for {count} datagrams");
    }
}

/// A connection with its control stream.
fn connect(port: u16) -> RawQuic {
    connect_with(port, &Parameters::default())
}

fn connect_with(port: u16, parameters: &Parameters) -> RawQuic {
    let mut raw = RawQuic::connect_with(port, parameters);
    raw.write(CONTROL, &[0, 4, 0], false);
    raw
}

/// Sends packets with these frames, until the connection is closed. Returns the number of datagrams.
fn flood(raw: &mut RawQuic, packets: u64, mut frames: impl FnMut(u64) -> Vec<u8>) -> u64 {
    for number in 0..packets {
        let payload = frames(number);
        raw.send(&payload);
        raw.pace();
        if raw.closed.is_some() {
            return number + 1;
        }
    }
    packets
}

#[test]
fn stream_data_with_gaps_is_bounded() {
    let mut attacked = attacked("", "");
    // Twice the window, and as much again while it is moved together.
    attacked.bounded("STREAM gaps", 16 << 10, 2000, |attacked| {
        let mut raw = connect(attacked.port());
        let mut offset = 1;
        let mut count = 0;
        while offset < 1_400_000 {
            let mut payload = Vec::new();
            while payload.len() < 1100 {
                payload.extend(stream(0, offset, b"a", false));
                offset += 2;
            }
            raw.send(&payload);
            raw.pace();
            count += 1;
            if count % 500 == 0 {
                attacked.serve_other();
            }
        }
        count
    });
}

/// Opens streams and resets them at once, as many as the server allows.
fn reset_rapidly(raw: &mut RawQuic, count: u64) -> u64 {
    let head = request("GET");
    for number in 0..count {
        let id = number * 4;
        while number >= raw.max_streams {
            if !raw.receive(Duration::from_secs(2)) || raw.closed.is_some() {
                return number;
            }
        }
        raw.send(
            &[
                &stream(id, 0, &head, true)[..],
                &ints(&[5, id, 0x10c]),
                &ints(&[4, id, 0x10c, head.len() as u64]),
            ]
            .concat(),
        );
        raw.pace();
    }
    count
}

#[test]
fn rapid_resets_do_not_delay_others() {
    let mut attacked = attacked("", "");
    let before = attacked.origin.requests();
    attacked.bounded("rapid reset", 4 << 10, 1500, |attacked| {
        let mut raw = connect(attacked.port());
        let count = reset_rapidly(&mut raw, 5000);
        attacked.serve_other();
        assert!(raw.closed.is_some() || count == 5000, "no stall: {count}");
        count
    });
    println!("{} of the requests reached the server", attacked.origin.requests() - before);
}

#[test]
fn rapid_resets_reach_the_glitches_threshold() {
    let mut attacked = attacked(" tune.quic.fe.sec.glitches-threshold 400", "");
    attacked.bounded("rapid reset with a threshold", 4 << 10, 1500, |attacked| {
        let mut raw = connect(attacked.port());
        let count = reset_rapidly(&mut raw, 5000);
        // It is asked to leave before.
        let closed = raw.await_close();
        assert!(closed == Some(EXCESSIVE_LOAD) || closed == Some(NO_ERROR), "{closed:?} after {count}");
        assert!(count < 1000, "{count}");
        count
    });
}

#[test]
fn frames_without_effect_end_the_connection() {
    let mut attacked = attacked("", "");
    let control = |payload: Vec<u8>| {
        move |raw: &mut RawQuic, _: u64| {
            raw.next_of_stream(CONTROL, &payload.repeat(1000 / payload.len()), false)
        }
    };
    let body = |payload: Vec<u8>| {
        move |raw: &mut RawQuic, number: u64| {
            let head = if number == 0 { request("POST") } else { Vec::new() };
            let bytes = [head, payload.repeat(1000 / payload.len())].concat();
            raw.next_of_stream(0, &bytes, false)
        }
    };
    type Next = Box<dyn Fn(&mut RawQuic, u64) -> Vec<u8>>;
    let floods: [(&str, Next); 4] = [
        ("empty DATA", Box::new(body(http3(0, b"")))),
        ("unknown frames", Box::new(body(http3(0x21, b"")))),
        ("unknown control frames", Box::new(control(http3(0x21, b"")))),
        ("MAX_PUSH_ID", Box::new(control(http3(13, &[9])))),
    ];
    for (name, next) in floods {
        attacked.bounded(name, 3 << 10, 3000, |attacked| {
            let mut raw = connect(attacked.port());
            let count = (0..500)
                .take_while(|number| {
                    let frame = next(&mut raw, *number);
                    raw.send(&frame);
                    raw.receive(Duration::from_millis(1));
                    raw.closed.is_none()
                })
                .count();
            assert_eq!(raw.await_close(), Some(EXCESSIVE_LOAD), "{name}");
            count as u64
        });
    }
}

#[test]
fn control_frames_of_the_transport_are_bounded() {
    let mut attacked = attacked("", "");
    let many = |frame: &[u8]| frame.repeat(1100 / frame.len());
    type Next = Box<dyn FnMut(u64) -> Vec<u8>>;
    let mut issued = 0;
    let mut retired = 0;
    let floods: [(&str, bool, Next); 8] = [
        ("PING", false, Box::new(move |_| vec![1])),
        ("many PINGs", true, Box::new(move |_| many(&[1]))),
        ("PATH_CHALLENGE", true, Box::new(move |_| many(b"\x1aabcdefgh"))),
        ("MAX_DATA", false, Box::new(move |_| many(&ints(&[0x10, 1 << 20])))),
        ("DATA_BLOCKED", false, Box::new(move |_| many(&ints(&[0x14, 1 << 20])))),
        (
            "STOP_SENDING and MAX_STREAM_DATA",
            true,
            Box::new(move |_| many(&ints(&[5, 0, 1, 0x11, 0, 1 << 20]))),
        ),
        (
            "NEW_CONNECTION_ID",
            true,
            Box::new(move |_| {
                let mut payload = Vec::new();
                while payload.len() < 1000 {
                    issued += 1;
                    payload.extend(ints(&[0x18, issued, issued]));
                    payload.push(8);
                    payload.extend(issued.to_be_bytes());
                    payload.extend([0; 16].map(|_: u8| fastrand::u8(..)));
                }
                payload
            }),
        ),
        (
            "RETIRE_CONNECTION_ID",
            false,
            Box::new(move |_| {
                retired += 1;
                ints(&[0x19, retired])
            }),
        ),
    ];
    for (name, ends, mut next) in floods {
        attacked.bounded(name, 3 << 10, 2000, |attacked| {
            let mut raw = connect(attacked.port());
            // Unacknowledged data has to be kept.
            raw.acknowledges = false;
            let count = flood(&mut raw, 2000, &mut next);
            println!("{name}: {:?} after {count}", raw.closed);
            let current = || attacked.scene.weir.stat("f,FRONTEND", "scur");
            assert!(!ends || eventually(|| current() == "1"), "{name}: the connection ends");
            raw.send(&ints(&[0x1c, 0, 0, 0]));
            assert!(eventually(|| current() == "1"), "{name}");
            count
        });
    }
}

#[test]
fn retired_ids_occupy_bounded_memory() {
    let mut attacked = attacked("", "");
    attacked.bounded("RETIRE_CONNECTION_ID without limit", 3 << 10, 3000, |attacked| {
        let more = vec![(14, ints(&[8]))];
        let mut raw = connect_with(attacked.port(), &Parameters { more, ..Parameters::default() });
        raw.acknowledges = false;
        // Each makes the server issue one more, which may be retired in turn. It keeps at most as many as the client may have.
        for number in 1..3000 {
            raw.send(&ints(&[0x19, number]));
            raw.receive(Duration::from_millis(1));
        }
        raw.send(&ints(&[0x1c, 0, 0, 0]));
        let current = || attacked.scene.weir.stat("f,FRONTEND", "scur");
        assert!(eventually(|| current() == "1"), "the connection ends");
        3000
    });
}

#[test]
fn many_unknown_streams_end_the_connection() {
    let mut attacked = attacked("", "");
    attacked.bounded("unknown streams", 3 << 10, 1000, |attacked| {
        let mut raw = connect(attacked.port());
        let mut count = 0;
        while raw.closed.is_none() && count < 30_000 {
            // The control stream is the first one.
            while raw.max_uni_streams <= count + 1 && raw.closed.is_none() {
                raw.send(&[1]);
                raw.receive(Duration::from_millis(10));
            }
            raw.send(&stream(6 + 4 * count, 0, &[0x21], true));
            raw.pace();
            count += 1;
        }
        assert_eq!(raw.closed, Some(EXCESSIVE_LOAD), "after {count}");
        count
    });
}

#[test]
fn compressed_heads_are_bounded() {
    let mut attacked = attacked("", "");
    attacked.bounded("QPACK bombs", 5 << 10, 3000, |attacked| {
        // `x-frame-options: sameorigin` in two bytes, and `vary: accept-encoding` in one.
        for unit in [&[0xff, 0x23][..], &[0xfb]] {
            let mut raw = connect(attacked.port());
            for number in 0..30 {
                let section = [&[0, 0][..], &unit.repeat(15_000 / unit.len())].concat();
                raw.write(4 * number, &http3(1, &section), true);
                raw.pace();
            }
            attacked.serve_other();
        }
        // Sections that never end, on all streams.
        let mut raw = connect(attacked.port());
        for number in 0..100 {
            let bytes = [&ints(&[1, 30_000])[..], &[0, 0], &[0xfb; 25_000]].concat();
            raw.write(4 * number, &bytes, false);
            raw.pace();
        }
        println!("unfinished sections: {:?}", raw.closed);
        1000 + 2300
    });
}

#[test]
fn acknowledgements_of_packets_that_were_not_sent_end_the_connection() {
    let attacked = attacked("", "");
    let mut raw = connect(attacked.port());
    raw.acknowledges = false;
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/large")];
    raw.write(0, &headers(&fields), true);
    for _ in 0..10_000 {
        raw.receive(Duration::from_millis(100));
        if raw.closed.is_some() {
            break;
        }
        // Everything up to the last, and a few more.
        let most = raw.largest + 3;
        raw.send(&ints(&[2, most, 0, 0, most]));
    }
    assert_eq!(raw.closed, Some(PROTOCOL_VIOLATION));
}
