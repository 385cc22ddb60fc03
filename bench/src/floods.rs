//! HTTP/2 floods as bytes: sent by a client to keep a server busy or to fill its memory.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use crate::frames::{
    COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS,
    NO_ERROR, PADDED, PING, PREFACE, PRIORITY, PROTOCOL_ERROR, RST_STREAM, SETTINGS, WINDOW_UPDATE, block,
    frame,
};

/// How a flood ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server sends GOAWAY with this code.
    Told(u32),
    /// The flood is processed completely, or ended with ENHANCE_YOUR_CALM, depending on how much arrives at once.
    Bounded,
}

/// A flood: bytes that are sent once, and bytes that are sent repeatedly and depend on the iteration.
pub struct Flood {
    /// The name of the flood.
    pub name: &'static str,
    first: Vec<u8>,
    next: fn(u32) -> Vec<u8>,
    /// How Weir ends it.
    pub end: End,
}

fn get() -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")])
}

fn post() -> Vec<u8> {
    block(&[(":method", "POST"), (":scheme", "http"), (":path", "/slow"), (":authority", "a.test")])
}

/// Returns the client's stream id with this number, counted from 0.
#[must_use]
pub fn id(number: u32) -> u32 {
    number % (1 << 30) * 2 + 1
}

fn open(number: u32, more: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, id(number), &[&get()[..], more].concat())
}

fn reset(number: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, id(number), &8u32.to_be_bytes())
}

/// Returns all floods.
#[must_use]
pub fn floods() -> Vec<Flood> {
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

/// Returns the GOAWAY code received before the connection ends.
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

impl Flood {
    /// Sends `bytes` of the flood, or until the connection is ended. Returns how it ended and how many bytes were sent; `others` is
    /// called before the connection is closed.
    ///
    /// # Errors
    /// The address refuses connections.
    pub fn send(&self, to: SocketAddr, bytes: usize, others: impl FnOnce()) -> io::Result<(End, usize)> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let reading = stream.try_clone()?;
        let reader = thread::spawn(move || told(reading));
        let opening = [PREFACE, &frame(SETTINGS, 0, 0, b""), &self.first].concat();
        let (mut piece, mut sent, mut number) = (opening, 0, 0);
        // An error means that the connection was ended.
        while sent < bytes && stream.write_all(&piece).is_ok() {
            sent += piece.len();
            piece.clear();
            while piece.len() < 16 * 1024 {
                piece.extend((self.next)(number));
                number += 1;
            }
        }
        others();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let end = reader.join().map_err(|_| io::Error::other("the reader of the connection panicked"))?;
        Ok((end, sent))
    }
}
