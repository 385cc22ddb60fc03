//! Warm HTTP/2 streams make no heap allocation, towards clients, towards servers, and both.
//!
//! As in `warm_path`, with ten requests at a time: client and origin use only stack buffers while allocations are counted, and this
//! file contains a single test.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const AT_ONCE: usize = 10;
const WARM_UP: usize = 100;
const COUNTED: usize = 300;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `GET http://example.test/`, without dynamic table entries.
const GET: &[u8] = b"\x82\x86\x84\x01\x0cexample.test";
/// 200, with a length.
const OK: &[u8] = b"\x88\x0f\x0d\x03100";

/// Appends a frame to the content of `out`.
fn put(out: &mut [u8], at: &mut usize, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
    for part in header.into_iter().chain([payload]) {
        out[*at..*at + part.len()].copy_from_slice(part);
        *at += part.len();
    }
}

/// A connection read frame by frame.
struct Frames {
    stream: TcpStream,
    buffer: [u8; 32 * 1024],
    filled: usize,
}

impl Frames {
    fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: [0; 32 * 1024], filled: 0 }
    }

    /// Calls `each` with the type, flags and stream of each frame that the next read completes. Returns false at the end.
    fn read(&mut self, mut each: impl FnMut(u8, u8, u32)) -> bool {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) | Err(_) => return false,
            Ok(count) => self.filled += count,
        }
        let mut at = 0;
        while let Some(&[a, b, c, kind, flags, d, e, f, g]) = self.buffer[at..self.filled].first_chunk() {
            let end = at + 9 + u32::from_be_bytes([0, a, b, c]) as usize;
            if end > self.filled {
                break;
            }
            each(kind, flags, u32::from_be_bytes([d, e, f, g]));
            at = end;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        true
    }
}

/// The first frames of both ends: settings, and a practically unlimited connection window.
fn opening(out: &mut [u8], at: &mut usize) {
    put(out, at, SETTINGS, 0, 0, b"");
    put(out, at, WINDOW_UPDATE, 0, 0, &0x7000_0000u32.to_be_bytes());
}

/// Sends the same response to every request.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut out, mut length) = ([0; 32 * 1024], 0);
                opening(&mut out, &mut length);
                let mut preface = [0; PREFACE.len()];
                stream.read_exact(&mut preface).expect("the preface");
                let mut frames = Frames::new(stream);
                loop {
                    frames.stream.write_all(&out[..length]).expect("the connection is open");
                    length = 0;
                    let alive = frames.read(|kind, flags, id| {
                        if kind == HEADERS && flags & END_STREAM != 0 {
                            put(&mut out, &mut length, HEADERS, END_HEADERS, id, OK);
                            put(&mut out, &mut length, DATA, END_STREAM, id, &[b'x'; 100]);
                        }
                    });
                    if !alive {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A client, with the number of its next stream.
struct Client(Frames, u32);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let mut client = Self(Frames::new(common::connect(address)), 1);
        let (mut out, mut length) = ([0; 256], PREFACE.len());
        out[..length].copy_from_slice(PREFACE);
        opening(&mut out, &mut length);
        client.0.stream.write_all(&out[..length]).expect("the connection is open");
        client
    }

    /// Makes `at_once` concurrent requests, `times` times.
    fn exchange(&mut self, times: usize, at_once: usize) {
        for _ in 0..times {
            let (mut out, mut length) = ([0; 4096], 0);
            for _ in 0..at_once {
                put(&mut out, &mut length, HEADERS, END_HEADERS | END_STREAM, self.1, GET);
                self.1 += 2;
            }
            self.0.stream.write_all(&out[..length]).expect("the connection is open");
            let (mut ended, mut bodies) = (0, 0);
            while ended < at_once {
                let alive = self.0.read(|kind, flags, _| {
                    bodies += usize::from(kind == DATA);
                    ended += usize::from(kind <= HEADERS && flags & END_STREAM != 0);
                });
                assert!(alive, "the connection ended");
            }
            assert_eq!(bodies, at_once, "each response has its body");
        }
    }
}

/// Counts the allocations of `exchange` after a warm-up.
fn counted(name: &str, mut exchange: impl FnMut(usize)) {
    exchange(WARM_UP);
    let region = Region::new(ALLOCATOR);
    exchange(COUNTED);
    let stats = region.change();
    assert_eq!((stats.allocations, stats.reallocations), (0, 0), "{name}: {stats:?}");
}

#[test]
fn warm_streams_allocate_nothing() {
    let h1 = common::origin(Arc::new(AtomicUsize::new(0)));
    let h2 = origin();
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n http-reuse always\n\
         frontend f\n bind 127.0.0.1:1 proto h2\n default_backend h1\n\
         frontend g\n bind 127.0.0.1:2 proto h2\n default_backend h2\n\
         frontend h\n bind 127.0.0.1:3\n default_backend h2\n\
         backend h1\n server s {h1}\n\
         backend h2\n server s {h2} proto h2\n"
    );
    let addresses = common::serve(common::plan(&text));
    let [f, g, h] = addresses[..] else { panic!("three frontends") };
    let mut client = Client::connect(f);
    // The number of responses sent together varies, so the warm-up uses more than the test will need.
    client.exchange(WARM_UP, 2 * AT_ONCE);
    counted("HTTP/2 to HTTP/1", |times| client.exchange(times, AT_ONCE));
    // Kept until here, because an idle connection would free its memory.
    drop(client);
    let mut client = Client::connect(g);
    client.exchange(WARM_UP, 2 * AT_ONCE);
    counted("HTTP/2 to HTTP/2", |times| client.exchange(times, AT_ONCE));
    drop(client);
    let mut client = common::connect(h);
    counted("HTTP/1 to HTTP/2", |times| common::exchange(&mut client, times));
}
