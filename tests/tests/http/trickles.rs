//! Peers that keep sending bytes without completing a message: timeouts end them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    ACK, END_HEADERS, END_STREAM, Frames, HEADERS, PING, PREFACE, PRIORITY, SETTINGS, WINDOW_UPDATE, block,
    frame,
};
use weir_tests::{Origin, PATIENCE, Weir, free_port};

/// The timeouts under test; all others are longer than a test may take.
const TIMEOUT: &str = "600ms";

/// The interval between two sends.
const PACE: Duration = Duration::from_millis(50);

/// Sends the output of `next` at an even pace until the other side closes the connection. Returns the bytes received before.
fn trickle(mut stream: &TcpStream, mut next: impl FnMut(usize) -> Vec<u8>) -> Option<Vec<u8>> {
    stream.set_read_timeout(Some(PACE)).expect("a timeout");
    let (since, mut received, mut bytes) = (Instant::now(), Vec::new(), [0; 4096]);
    for number in 0.. {
        if since.elapsed() > PATIENCE / 2 {
            return None;
        }
        let _ = stream.write_all(&next(number));
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&bytes[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    Some(received)
}

fn start(timeouts: &str, bind: &str, server: u16, parameters: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "defaults\n mode http\n timeout client 60s\n timeout connect 60s\n timeout server 60s\n{timeouts}\n\
         frontend f\n bind 127.0.0.1:{port} {bind}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{server} {parameters}\n"
    );
    (Weir::start(&text, &[port]), port)
}

fn get(stream: u32) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")];
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&fields))
}

#[test]
fn frames_without_a_request_do_not_keep_an_h2_connection_open() {
    let origin = Origin::text("hello");
    let timeouts = format!(" timeout http-request {TIMEOUT}\n timeout http-keep-alive {TIMEOUT}");
    let (weir, port) = start(&timeouts, "proto h2", origin.port(), "");
    type Frame = fn(usize) -> Vec<u8>;
    let trickles: [(&str, Frame); 5] = [
        ("pings", |_| frame(PING, 0, 0, &[7; 8])),
        ("answers to pings", |_| frame(PING, ACK, 0, &[7; 8])),
        ("settings", |_| frame(SETTINGS, 0, 0, b"")),
        ("priorities", |_| frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 16])),
        ("windows", |_| frame(WINDOW_UPDATE, 0, 0, &1000u32.to_be_bytes())),
    ];
    for (name, next) in trickles {
        for requests in [0, 1] {
            let mut client = Frames::connect(port);
            if requests > 0 {
                client.raw(&get(1)).next_head();
            }
            let case = format!("{name} after {requests} requests");
            assert!(trickle(client.socket(), next).is_some(), "{case}: {}", weir.messages());
        }
    }
}

#[test]
fn a_dripped_h2_head_is_limited_by_the_request_timeout() {
    let origin = Origin::text("hello");
    let timeouts = format!(" timeout http-request {TIMEOUT}\n timeout http-keep-alive 60s");
    let (weir, port) = start(&timeouts, "proto h2", origin.port(), "");
    let long = block(&[("x-long", &"y".repeat(2000))]);
    let whole = frame(HEADERS, END_STREAM, 3, &long);
    for requests in [0, 1] {
        let mut client = Frames::connect(port);
        if requests > 0 {
            client.raw(&get(1)).next_head();
        }
        let ended = trickle(client.socket(), |number| whole[number % whole.len()..][..1].to_vec());
        assert!(ended.is_some(), "after {requests} requests: {}", weir.messages());
    }
    // This also holds while another stream is open.
    let slow = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.read(&mut [0; 1]);
    });
    let (weir, port) = start(&timeouts, "proto h2", slow.port(), "");
    let mut client = Frames::connect(port);
    client.raw(&get(1));
    let ended = trickle(client.socket(), |number| whole[number % whole.len()..][..1].to_vec());
    assert!(ended.is_some(), "{}", weir.messages());
}

#[test]
fn a_dripped_preface_is_limited_by_the_request_timeout() {
    let origin = Origin::text("hello");
    let (weir, port) = start(&format!(" timeout http-request {TIMEOUT}"), "", origin.port(), "");
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
    let ended = trickle(&client, |number| PREFACE.get(number..=number).unwrap_or_default().to_vec());
    assert!(ended.is_some(), "{}", weir.messages());
}

#[test]
fn chunk_extensions_are_not_progress_of_a_request() {
    // Forwarded to a server, waited for, or discarded after a response.
    let answer = "\n http-request return status 200";
    for (option, rule) in [("", ""), (" option http-buffer-request", ""), ("", answer)] {
        let origin =
            Origin::raw(|mut stream| while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {});
        let timeouts = format!(" timeout client {TIMEOUT}\n{option}");
        let (weir, port) = start(&timeouts, rule, origin.port(), "");
        for drip in [&b"x"[..], b" "] {
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
            let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5;x=y";
            client.write_all(head).expect("it takes requests");
            let ended = trickle(&client, |_| drip.to_vec());
            assert!(ended.is_some(), "{option}{rule} {drip:?}: {}", weir.messages());
        }
    }
}

#[test]
fn chunk_extensions_are_not_progress_of_a_response() {
    for (bind, client_h2) in [("", false), ("proto h2", true)] {
        let origin = Origin::raw(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5;x=y");
            trickle(&stream, |_| b"x".to_vec());
        });
        let (weir, port) = start(&format!(" timeout server {TIMEOUT}"), bind, origin.port(), "");
        if client_h2 {
            let mut client = Frames::connect(port);
            client.raw(&get(1));
            let reset = client.find(|frame| frame.kind == weir_tests::multiplexed::RST_STREAM);
            assert!(reset.is_some(), "{}", weir.messages());
        } else {
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it takes requests");
            assert!(trickle(&client, |_| Vec::new()).is_some(), "{}", weir.messages());
        }
    }
}

#[test]
fn refused_h2_requests_count_in_tracked_entries() {
    let origin = Origin::text("hello");
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 60s\n timeout connect 60s\n timeout server 60s\n\
         frontend f\n bind 127.0.0.1:{port} proto h2\n tcp-request connection track-sc0 src table t\n\
         default_backend b\nbackend b\n server s 127.0.0.1:{}\n\
         backend t\n stick-table type ip size 10 store http_req_cnt,http_err_cnt,http_req_rate(10m)\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let mut client = Frames::connect(port);
    let fields =
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test"), ("Upper", "x")];
    for number in 0..20 {
        client.head(2 * number + 1, END_STREAM, &fields);
    }
    client.raw(&get(99)).next_head();
    let shown = weir.ask("show table t");
    assert!(shown.contains("http_req_cnt=21") && shown.contains("http_err_cnt=20"), "{shown}");
    assert!(shown.contains("http_req_rate(600000)=21"), "{shown}");
}

#[test]
fn interim_responses_restart_the_server_timeout() {
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        for _ in 0..6 {
            std::thread::park_timeout(Duration::from_millis(500));
            let _ = stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n");
        }
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
    });
    let (weir, port) = start(" timeout server 2s", "", origin.port(), "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..6 {
        assert!(client.read_head().starts_with("HTTP/1.1 102 "), "{}", weir.messages());
    }
    assert!(client.read_head().starts_with("HTTP/1.1 204 "), "{}", weir.messages());
}
