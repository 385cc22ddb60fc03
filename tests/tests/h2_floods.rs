//! Floods of HTTP/2: each is bounded in memory, whether it ends its connection or not, and others
//! are served meanwhile.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use weir_tests::client::Client;
use weir_tests::multiplexed::{
    DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame,
};
use weir_tests::{Origin, Weir, free_port};

const PRIORITY: u8 = 2;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;

/// Codes (RFC 9113, 7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Bytes of a flood, and what the program's memory may grow by meanwhile.
const FLOOD: usize = 2 << 20;
const MEMORY: usize = 4 << 20;

/// How a flood ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client is told to go, with this code.
    Told(u32),
    /// It is taken whole, or the client told to calm down: that depends on how much comes at once.
    Bounded,
}

/// What is sent: once, and then again and again, with the number of the time.
struct Flood {
    name: &'static str,
    first: Vec<u8>,
    next: fn(u32) -> Vec<u8>,
    end: End,
}

fn get() -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")])
}

fn post() -> Vec<u8> {
    block(&[(":method", "POST"), (":scheme", "http"), (":path", "/slow"), (":authority", "a.test")])
}

/// The client's stream of this number, counted from 0.
fn id(number: u32) -> u32 {
    number % (1 << 30) * 2 + 1
}

fn open(number: u32, more: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, id(number), &[&get()[..], more].concat())
}

fn reset(number: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, id(number), &8u32.to_be_bytes())
}

fn floods() -> Vec<Flood> {
    let flood = |name, first: Vec<u8>, next: fn(u32) -> Vec<u8>, end| Flood { name, first, next, end };
    let upload = || frame(HEADERS, END_HEADERS, 1, &post());
    vec![
        flood("rapid reset", vec![], |n| [open(n, b""), reset(n)].concat(), End::Bounded),
        flood(
            "streams that we are made to reset",
            vec![],
            |n| {
                [frame(HEADERS, END_HEADERS, id(n), &post()), frame(WINDOW_UPDATE, 0, id(n), &[0; 4])]
                    .concat()
            },
            End::Bounded,
        ),
        flood(
            "a head without end",
            frame(HEADERS, 0, 1, &get()),
            |n| frame(CONTINUATION, 0, 1, &block(&[("x", &"y".repeat(1 + n as usize % 100))])),
            End::Bounded,
        ),
        flood(
            "empty pieces of a head",
            frame(HEADERS, 0, 1, &get()),
            |_| frame(CONTINUATION, 0, 1, b""),
            End::Bounded,
        ),
        flood(
            "a value of kilobytes by an index of a byte",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &{
                let value = "v".repeat(3900);
                let mut indexed = block(&[("x", &value)]);
                indexed[0] = 0x40;
                [get(), indexed].concat()
            }),
            |n| open(n + 1, &[0xbe; 8000]),
            End::Bounded,
        ),
        flood(
            "a table that changes its size all the time",
            vec![],
            |n| {
                let sizes = [0x20, 0x3f, 0xe1, 0x1f].repeat(200);
                frame(HEADERS, END_HEADERS | END_STREAM, id(n), &[&sizes[..], &get()[..]].concat())
            },
            End::Bounded,
        ),
        flood(
            "a table larger than allowed",
            vec![],
            |n| frame(HEADERS, END_HEADERS | END_STREAM, id(n), &[0x3f, 0xff, 0xff, 0x7f]),
            End::Told(COMPRESSION_ERROR),
        ),
        flood("crumbs of cookies", vec![], |n| open(n, &block(&vec![("cookie", "a=b"); 1000])), End::Bounded),
        flood("settings", vec![], |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]), End::Bounded),
        flood("pings", vec![], |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes()), End::Bounded),
        flood("empty data", upload(), |_| frame(DATA, 0, 1, b""), End::Bounded),
        flood(
            "padding alone",
            upload(),
            |_| frame(DATA, PADDED, 1, &[&[200][..], &[0; 200]].concat()),
            End::Bounded,
        ),
        flood("data byte by byte", upload(), |_| frame(DATA, 0, 1, b"x"), End::Bounded),
        flood(
            "a window that is opened byte by byte",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &get()),
            |_| frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()),
            End::Bounded,
        ),
        flood("priorities", vec![], |n| frame(PRIORITY, 0, id(n), &[0, 0, 0, 0, 16]), End::Bounded),
        flood("names of nothing", vec![], |n| open(n, b"\x00\x00\x01x"), End::Bounded),
        flood("unknown frames", vec![], |n| frame(0xee, 0, id(n), b"x"), End::Bounded),
        flood("even streams", vec![], |n| frame(HEADERS, 5, 2 + 2 * n, &get()), End::Told(PROTOCOL_ERROR)),
        flood(
            "streams that go back",
            open(9, b""),
            |n| frame(HEADERS, 5, id(3 - n.min(3)), &get()),
            End::Told(PROTOCOL_ERROR),
        ),
    ]
}

/// Bytes of memory that are the program's own.
fn memory(weir: &Weir) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", weir.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon")).expect("the kernel tells");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<usize>().ok()).expect("a number") * 1024
}

/// The code of the GOAWAY among what comes until the connection ends.
fn told(mut stream: TcpStream) -> End {
    let (mut bytes, mut end) = (Vec::new(), End::Bounded);
    let mut piece = [0; 65536];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + 9) {
            let whole = 9 + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let kind = header[3];
            let Some(payload) = bytes.get(at + 9..at + whole) else { break };
            if kind == GOAWAY {
                end = match u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]) {
                    NO_ERROR | ENHANCE_YOUR_CALM => End::Bounded,
                    code => End::Told(code),
                };
            }
            at += whole;
        }
        bytes.drain(..at);
    }
    end
}

/// Sends a flood, and gives how it ended; `others` is called as it ends.
fn send(port: u16, flood: &Flood, others: impl FnOnce()) -> End {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port takes connections");
    stream.set_nodelay(true).expect("a TCP socket");
    let reading = stream.try_clone().expect("a descriptor");
    let reader = thread::spawn(move || told(reading));
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, b""), &flood.first].concat();
    let (mut piece, mut sent, mut number) = (opening, 0, 0);
    // An error says that the connection was ended.
    while sent < FLOOD && stream.write_all(&piece).is_ok() {
        sent += piece.len();
        piece.clear();
        while piece.len() < 16 * 1024 {
            piece.extend((flood.next)(number));
            number += 1;
        }
    }
    others();
    let _ = stream.shutdown(std::net::Shutdown::Write);
    reader.join().expect("the reader ends with the connection")
}

#[test]
fn floods_are_bounded_and_others_are_served() {
    let origin = Origin::text("hello");
    let [h1, h2] = [0; 2].map(|_| free_port());
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{h1}\n bind 127.0.0.1:{h2} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[h1, h2]);
    let mut ends = Vec::new();
    for flood in floods() {
        let before = memory(&weir);
        let end = send(h2, &flood, || {
            let answer = Client::connect(h1).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
            assert_eq!(answer.expect("others are served").status, 200, "{}", flood.name);
            let grown = memory(&weir).saturating_sub(before);
            assert!(grown <= MEMORY, "{}: {grown} bytes", flood.name);
        });
        ends.push((flood.name, end, flood.end));
    }
    let others: Vec<_> = ends.iter().filter(|(_, end, wanted)| end != wanted).collect();
    assert!(others.is_empty(), "{others:#?}\n{}", weir.messages());
}

#[test]
fn responses_that_nobody_takes_are_held_in_little_memory() {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 4 << 20, "x".repeat(4 << 20));
    let origin = Origin::start(move |_, _| answer.clone().into_bytes());
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let before = memory(&weir);
    let mut client = Frames::connect(port);
    // SETTINGS_INITIAL_WINDOW_SIZE.
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for number in 0..100 {
        client.get(id(number), "/");
    }
    for _ in 0..100 {
        client.next_head();
    }
    let grown = memory(&weir).saturating_sub(before);
    // A buffer of 16 KiB for each, and one for the client.
    assert!(grown <= 100 * (16 << 10) + MEMORY, "{grown} bytes");
}
