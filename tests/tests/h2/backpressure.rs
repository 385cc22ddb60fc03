//! Peers that do not read: each kind of message that Weir creates or forwards for them waits in bounded memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    CANCEL, END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM, SETTINGS, block, frame,
};
use weir_tests::{Origin, Weir, eventually, free_port};

/// How long a write must be blocked to count as held back.
const HELD_BACK: Duration = Duration::from_secs(1);

/// Maximum number of bytes written by a writer that is not held back: more than all socket buffers on the way hold.
const MOST: usize = 96 << 20;

/// By how much the program's memory may grow, in KiB.
const MEMORY: u64 = 8 << 10;

/// Writes the results of `next` until the peer accepts no more; returns the number of accepted bytes, at most [`MOST`].
fn write_until_held_back(mut stream: &TcpStream, mut next: impl FnMut() -> Vec<u8>) -> usize {
    stream.set_write_timeout(Some(HELD_BACK)).expect("a timeout");
    let mut written = 0;
    while written < MOST {
        match stream.write(&next()) {
            Ok(count) if count > 0 => written += count,
            _ => break,
        }
    }
    written
}

fn configuration(port: u16, bind: &str, server: u16, parameters: &str, timeouts: &str) -> String {
    format!(
        "global\n nbthread 1\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n {timeouts}\n\
         frontend f\n bind 127.0.0.1:{port} {bind}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{server} {parameters}\n"
    )
}

/// Sends interim responses until held back, and then a final one.
fn send_interim_responses(stream: TcpStream, is_h2: bool, told: &Sender<usize>) {
    // Each one differs, because repeated ones take only a few bytes when compressed.
    let mut number = 0;
    let mut link = || {
        number += 1;
        format!("</{number}{}>; rel=preload", "x".repeat(1000))
    };
    if is_h2 {
        let mut frames = Frames::take(stream);
        let request = frames.next_of(HEADERS);
        let _ = told.send(write_until_held_back(frames.socket(), || {
            let fields = block(&[(":status", "103"), ("link", &link())]);
            frame(HEADERS, END_HEADERS, request.stream, &fields)
        }));
        frames.socket().set_write_timeout(None).expect("a timeout");
        // The frame interrupted by the timeout stays incomplete; the client stops reading before it.
        let _ = frames.socket().read(&mut [0; 1]);
    } else {
        let mut stream = stream;
        let _ = stream.read(&mut [0; 1024]);
        let _ = told.send(write_until_held_back(&stream, || {
            format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", link()).into_bytes()
        }));
        let _ = stream.read(&mut [0; 1]);
    }
}

fn interim_origin(is_h2: bool) -> (Origin, Receiver<usize>) {
    let (told, hear) = channel();
    (Origin::raw(move |stream| send_interim_responses(stream, is_h2, &told)), hear)
}

#[test]
fn interim_responses_wait_for_a_blocked_client() {
    for (client_h2, server_h2) in [(false, false), (false, true), (true, false), (true, true)] {
        let (origin, hear) = interim_origin(server_h2);
        let port = free_port();
        let bind = if client_h2 { "proto h2" } else { "" };
        let parameters = if server_h2 { "proto h2" } else { "" };
        let weir = Weir::start(&configuration(port, bind, origin.port(), parameters, ""), &[port]);
        let before = weir.memory();
        let case = format!("client h2: {client_h2}, server h2: {server_h2}");
        let (mut h1, mut h2) = (None, None);
        if client_h2 {
            h2.insert(Frames::connect(port)).get(1, "/");
        } else {
            h1.insert(Client::connect(port)).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let written = hear.recv().expect("the server was asked");
        let grown = weir.memory().saturating_sub(before);
        assert!(written < MOST, "{case}: the server was not held back");
        assert!(grown < MEMORY, "{case}: {grown} KiB");
        // The interim responses are not lost.
        if let Some(client) = &mut h2 {
            for _ in 0..100 {
                assert_eq!(client.next_head().0[0], ":status: 103", "{case}");
            }
        }
        if let Some(client) = &mut h1 {
            for _ in 0..100 {
                assert!(client.read_head().starts_with("HTTP/1.1 103 "), "{case}");
            }
        }
    }
}

#[test]
fn blocked_interim_responses_do_not_block_other_requests() {
    let first = AtomicUsize::new(0);
    let (told, hear) = channel();
    let origin = Origin::raw(move |stream| {
        if first.fetch_add(1, Ordering::Relaxed) == 0 {
            return send_interim_responses(stream, true, &told);
        }
        let mut frames = Frames::take(stream);
        while let Some(request) = frames.find(|frame| frame.kind == HEADERS) {
            frames.head(request.stream, END_STREAM, &[(":status", "204")]);
        }
    });
    let port = free_port();
    let weir = Weir::start(&configuration(port, "", origin.port(), "proto h2", ""), &[port]);
    let mut slow = Client::connect(port);
    slow.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(hear.recv().expect("the server was asked") < MOST);
    let answer = Client::connect(port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!(answer.map(|answer| answer.status), Some(204), "{}", weir.messages());
}

#[test]
fn generated_responses_wait_for_a_blocked_client() {
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 2s\n\
         frontend f\n bind 127.0.0.1:{port} proto h2\n http-request redirect location http://b.test/%[uuid]%[path]\n"
    );
    let weir = Weir::start(&text, &[port]);
    let before = weir.memory();
    let mut client = Frames::connect(port);
    // The path is in the table after the first request: each further one refers to it by one byte.
    let path = format!("/{}", "p".repeat(3500));
    let mut indexed = block(&[(":path", &path)]);
    indexed[0] |= 0x40;
    let rest = block(&[(":method", "GET"), (":scheme", "http"), (":authority", "a.test")]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &[&indexed[..], &rest[..]].concat());
    let mut stream = 1;
    let written = write_until_held_back(client.socket(), || {
        // Fewer than the limit of open streams, and not so fast that the next ones are refused.
        std::thread::park_timeout(Duration::from_millis(2));
        let mut requests = Vec::new();
        for _ in 0..40 {
            stream += 2;
            let again = [&[0xbe][..], &rest[..]].concat();
            requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &again));
        }
        requests
    });
    assert!(written < MOST, "the client was not held back");
    let grown = weir.memory().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} KiB");
    // `timeout client` ends it although bytes arrived, because none were read.
    assert!(eventually(|| weir.stat("f,FRONTEND", "scur") == "0"), "{}", weir.messages());
}

#[test]
fn requests_for_a_blocked_server_are_bounded() {
    let origin = Origin::raw(|stream| {
        let _frames = Frames::take(stream);
        // Keeps the connection open for the duration of the test, without reading.
        loop {
            std::thread::park();
        }
    });
    let port = free_port();
    let timeouts = "timeout server 3s\n retries 0";
    let weir = Weir::start(&configuration(port, "proto h2", origin.port(), "proto h2", timeouts), &[port]);
    let before = weir.memory();
    let mut client = Frames::connect(port);
    let cookie = "c".repeat(8000);
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a.test"),
        ("cookie", cookie.as_str()),
    ];
    let head = block(&fields);
    let mut stream = 1;
    // Each request is cancelled after later ones; requests whose heads wait are dropped, too.
    for _ in 0..4000 {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        if stream > 20 {
            client.send(RST_STREAM, 0, stream - 20, &CANCEL.to_be_bytes());
        }
        stream += 2;
    }
    client.send(HEADERS, END_HEADERS | END_STREAM, stream, &head);
    let answered = client.find(|frame| frame.kind == HEADERS && frame.stream == stream);
    let answered = answered.expect("a response");
    assert_eq!(client.fields(&answered)[0], ":status: 504");
    let grown = weir.memory().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} KiB");
}

#[test]
fn cancelled_requests_reach_no_server() {
    const REQUESTS: u32 = 20_000;
    let origin = Origin::text("hello");
    let port = free_port();
    let weir = Weir::start(&configuration(port, "proto h2", origin.port(), "", "http-reuse never"), &[port]);
    let mut client = Frames::connect(port);
    let head = block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")]);
    let reader = client.socket().try_clone().expect("a socket");
    let drained = std::thread::spawn(move || std::io::copy(&mut &reader, &mut std::io::sink()));
    for number in 0..REQUESTS {
        let stream = number * 2 + 1;
        let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
        client.raw(&[open, frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat());
    }
    client.send(SETTINGS, 0, 0, b"");
    client.socket().shutdown(std::net::Shutdown::Write).expect("a socket");
    drained.join().expect("a reader").ok();
    let counted = weir.statistics().number("f,FRONTEND", "req_tot");
    assert!(counted >= u64::from(REQUESTS) / 2, "{counted} requests were counted");
    let reached = origin.connections();
    assert!(reached < REQUESTS as usize / 100, "{reached} of {REQUESTS} reached the server");
}

#[test]
fn flood_of_cancelled_requests_does_not_delay_others() {
    let origin = Origin::text("hello");
    let [h1, h2] = [0; 2].map(|_| free_port());
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{h1}\n bind 127.0.0.1:{h2} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[h1, h2]);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || flood(h2, &stop))
        })
        .collect();
    // During the flood: each request waits for one round of socket reads, not for the end of the flood.
    for _ in 0..20 {
        let answer = Client::connect(h1).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
        assert_eq!(answer.map(|answer| answer.status), Some(200));
    }
    stop.store(true, Ordering::Relaxed);
    let sent: u32 = floods.into_iter().map(|flood| flood.join().expect("a flood")).sum();
    assert!(sent > 1000, "{sent} requests are no flood");
}

/// Opens and resets streams until `stop` is set. Returns how many.
fn flood(port: u16, stop: &std::sync::atomic::AtomicBool) -> u32 {
    let mut client = Frames::connect(port);
    let reader = client.socket().try_clone().expect("a socket");
    std::thread::spawn(move || std::io::copy(&mut &reader, &mut std::io::sink()));
    let head = block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")]);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) && number < 1 << 24 {
        let mut piece = Vec::new();
        for _ in 0..200 {
            piece.extend(frame(HEADERS, END_HEADERS | END_STREAM, number * 2 + 1, &head));
            piece.extend(frame(RST_STREAM, 0, number * 2 + 1, &CANCEL.to_be_bytes()));
            number += 1;
        }
        client.raw(&piece);
    }
    number
}
