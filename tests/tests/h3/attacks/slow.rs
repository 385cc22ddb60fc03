//! Clients that are slow or idle.

use std::time::{Duration, Instant};

use weir_tests::eventually;
use weir_tests::quic::frame::{headers, http3, ints, request};
use weir_tests::quic::{Parameters, RawQuic};

use super::{attacked, connect, connect_with};

#[test]
fn clients_that_do_not_read_use_little_memory() {
    let mut attacked = attacked("", " timeout client 3s");
    let head = |path: &str| {
        let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
        headers(&fields)
    };
    // No credit: a buffer for each request, and the connection.
    attacked.bounded("no window", 100 * 40 + (3 << 10), 20_000, |attacked| {
        let mut raw = connect_with(attacked.port(), &Parameters { window: 0, ..Parameters::default() });
        for number in 0..100 {
            raw.write(4 * number, &head("/large"), true);
        }
        raw.drain(Duration::from_millis(500));
        100
    });
    // Credit, but no acknowledgement.
    attacked.bounded("no acknowledgement", 10 * 200 + (3 << 10), 20_000, |attacked| {
        let mut all: Vec<_> = (0..10).map(|_| connect(attacked.port())).collect();
        for raw in &mut all {
            raw.drain(Duration::from_millis(10));
            raw.acknowledges = false;
            for number in 0..10 {
                raw.write(4 * number, &head("/large"), true);
            }
        }
        all.iter_mut().for_each(|raw| raw.drain(Duration::from_millis(20)));
        100
    });
    let current = || attacked.scene.weir.stat("f,FRONTEND", "scur");
    assert!(eventually(|| current().parse().is_ok_and(|n: u32| n <= 1)), "they time out: {}", current());
}

#[test]
fn a_client_that_sends_pings_but_reads_nothing_times_out() {
    let attacked = attacked("", " timeout client 1s");
    let mut raw = connect_with(attacked.port(), &Parameters { window: 100, ..Parameters::default() });
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/large")];
    raw.write(0, &headers(&fields), true);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) && raw.closed.is_none() {
        raw.send(&[1]);
        raw.receive(Duration::from_millis(50));
        if attacked.scene.weir.stat("b,s", "scur") == "0" && since.elapsed() > Duration::from_millis(500) {
            return;
        }
    }
    assert!(raw.closed.is_some(), "the request ends although the connection is alive");
}

#[test]
fn a_client_that_stops_reading_ends_the_response_by_the_client_timeout() {
    let attacked = attacked("", " timeout client 1s");
    let mut raw = connect_with(attacked.port(), &Parameters { window: 50_000, ..Parameters::default() });
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/large")];
    raw.write(0, &headers(&fields), true);
    let stat = |name: &str| attacked.scene.weir.stat("b,s", name);
    let is_over = eventually(|| {
        raw.drain(Duration::from_millis(10));
        stat("cli_abrt") != "0" || stat("srv_abrt") != "0"
    });
    assert!(is_over, "the response still blocks");
    assert_eq!((stat("cli_abrt"), stat("srv_abrt")), ("1".to_owned(), "0".to_owned()));
}

#[test]
fn slow_heads_time_out() {
    let attacked = attacked("", " timeout http-request 1s\n timeout http-keep-alive 10s");
    let head = request("GET");
    let until_closed = |name: &str, raw: &mut RawQuic, mut send: Box<dyn FnMut(&mut RawQuic)>| {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(10) && raw.closed.is_none() {
            send(raw);
            raw.receive(Duration::from_millis(100));
            // Responses must not fill the buffer, or the end of the connection is lost.
            while raw.receive(Duration::from_millis(1)) {}
        }
        let time = since.elapsed();
        assert!(
            raw.closed.is_some() && time < Duration::from_secs(5),
            "{name}: {:?} after {time:?}",
            raw.closed
        );
    };
    let mut raw = connect(attacked.port());
    raw.write(0, &head[..6], false);
    until_closed("PINGs", &mut raw, Box::new(|raw| raw.send(&[1])));
    let mut raw = connect(attacked.port());
    let bytes = [&ints(&[1, 10_000])[..], &[0, 0], &[0; 9000]].concat();
    let mut at = 0;
    until_closed(
        "byte by byte",
        &mut raw,
        Box::new(move |raw| {
            raw.write(0, &bytes[at..=at], false);
            at += 1;
        }),
    );
    // The frame is of an unknown type, in front of the request.
    let mut raw = connect(attacked.port());
    until_closed("unknown frames", &mut raw, Box::new(|raw| raw.write(0, &http3(0x21, b""), false)));
    // Other requests are served on the same connection.
    let mut raw = connect(attacked.port());
    raw.write(0, &head[..6], false);
    let mut id = 4;
    until_closed(
        "next to other requests",
        &mut raw,
        Box::new(move |raw| {
            if id / 4 < raw.max_streams {
                raw.write(id, &request("GET"), true);
                id += 4;
            }
        }),
    );
}

#[test]
fn idle_connections_use_little_memory() {
    let mut attacked = attacked("", "");
    let count = 200;
    attacked.bounded("idle connections", count * 40, 10_000, |attacked| {
        let mut all: Vec<_> = (0..count).map(|_| connect(attacked.port())).collect();
        for raw in &mut all {
            raw.write(0, &request("GET"), true);
            assert!(raw.await_success(0));
            raw.drain(Duration::from_millis(2));
        }
        let before = attacked.scene.weir.cpu();
        attacked.other.idle(Duration::from_secs(1));
        println!(
            "{count} idle connections: {} ms of CPU time in a second",
            attacked.scene.weir.cpu() - before
        );
        count * 10
    });
    assert_eq!(attacked.scene.weir.stat("f,FRONTEND", "scur"), (count + 1).to_string());
}
