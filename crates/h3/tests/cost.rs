//! The cost of a connection: memory when idle, allocations when active.

mod common;

use std::alloc::System;
use std::sync::Arc;

use bytes::Bytes;
use common::script::{data, request, response};
use fields::Scheme;
use h3::{Config, Connection, H3Event, Role, Stopped, StreamChunk, Streams};
use http::Head;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A transport that plays the same message on each stream, in two pieces, and drops written bytes.
struct Tape {
    pieces: [Bytes; 2],
    /// The number of pieces that were read of the newest streams.
    read: [usize; 10],
    next: u64,
    written: usize,
}

impl Tape {
    fn new(message: Vec<u8>) -> Tape {
        let message: &'static [u8] = message.leak();
        let (one, two) = message.split_at(message.len() - 50);
        let pieces = [Bytes::from_static(one), Bytes::from_static(two)];
        Tape { pieces, read: [0; 10], next: 0, written: 0 }
    }
}

impl Streams for Tape {
    fn open_uni(&mut self) -> Option<u64> {
        Some(2)
    }

    fn open_bi(&mut self) -> Option<u64> {
        self.next += 4;
        self.read[(self.next / 4) as usize % 10] = 0;
        Some(self.next)
    }

    fn read(&mut self, id: u64, _: usize) -> StreamChunk {
        let read = &mut self.read[(id / 4) as usize % 10];
        *read += 1;
        self.pieces.get(*read - 1).map_or(StreamChunk::Finished, |piece| StreamChunk::Bytes(piece.clone()))
    }

    fn write(&mut self, _: u64, data: &[u8]) -> Result<usize, Stopped> {
        self.written += data.len();
        Ok(data.len())
    }

    fn write_bytes(&mut self, id: u64, data: Bytes) -> Result<usize, Stopped> {
        self.write(id, &data)
    }

    fn finish(&mut self, _: u64) {}
    fn reset(&mut self, _: u64, _: u64) {}
    fn stop(&mut self, _: u64, _: u64) {}
    fn set_priority(&mut self, _: u64, _: i32) {}
}

fn fields() -> [(&'static str, &'static str); 4] {
    [
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("accept", "text/html,application/xhtml+xml"),
        ("x-own-name", "value"),
        ("cookie", "a=1; b=2"),
    ]
}

/// Serves concurrent requests with a body in both directions.
fn serve(engine: &mut Connection, tape: &mut Tape, head: &Head, body: &Bytes, count: usize) {
    for _ in 0..count {
        let id = tape.open_bi().expect("always");
        engine.opened(id);
    }
    let mut served = 0;
    while let Some(event) = engine.next(tape).expect("the message is valid") {
        if let H3Event::Data { key, bytes, end } = event {
            engine.consume(key, bytes.len());
            if end {
                engine.send_head(tape, key, head, false);
                engine.send_bytes(tape, key, body.clone(), true);
                engine.release(tape, key, None);
                served += 1;
            }
        }
    }
    assert_eq!((served, engine.streams()), (count, 0));
}

/// Makes concurrent requests with a body in both directions.
fn ask(engine: &mut Connection, tape: &mut Tape, head: &Head, body: &Bytes, count: usize) {
    for _ in 0..count {
        let key = engine.open_request(tape, head, Scheme::Https, false).expect("a stream");
        assert_eq!(engine.send_data(tape, key, &body[..100], true), 100);
        engine.readable(key.id());
    }
    let mut answered = 0;
    while let Some(event) = engine.next(tape).expect("the message is valid") {
        if let H3Event::Data { key, bytes, end } = event {
            engine.consume(key, bytes.len());
            if end {
                engine.release(tape, key, None);
                answered += 1;
            }
        }
    }
    assert_eq!((answered, engine.streams()), (count, 0));
}

// A single test: the allocator counts for the whole process.
#[test]
fn idle_connections_are_small_and_warm_ones_do_not_allocate() {
    let (mut head, mut response_head) = (Head::new(), Head::new());
    head.start_request(b"POST", b"/path?query");
    head.append(b"host", b"example.com");
    response_head.start_response(200, None);
    response_head.append(b"server", b"a server");
    response_head.append(b"x-own", b"value");
    let config = Arc::new(Config::default());
    let mut server_tape = Tape::new([request("POST", &fields()), data(4000)].concat());
    let mut client_tape = Tape::new([response("200", &fields()), data(4000)].concat());
    let mut server = Connection::new(Role::Server, &config);
    let mut client = Connection::new(Role::Client, &config);
    server.start(&mut server_tape);
    client.start(&mut client_tape);
    let engine = size_of::<Connection>();
    println!("fresh: {engine} bytes and {} on the heap", server.heap());
    assert!(engine + server.heap() < 1200);

    let body = Bytes::from(vec![7; 4000]);
    let mut fewest = usize::MAX;
    // The test runner may allocate in the meantime: the lowest count of a few rounds is used.
    for _ in 0..6 {
        let region = Region::new(ALLOCATOR);
        for _ in 0..50 {
            for count in [1, 10] {
                serve(&mut server, &mut server_tape, &response_head, &body, count);
                ask(&mut client, &mut client_tape, &head, &body, count);
            }
        }
        let change = region.change();
        fewest = fewest.min(change.allocations + change.reallocations);
    }
    assert_eq!(fewest, 0, "allocations in 550 exchanges");

    for engine in [&mut server, &mut client] {
        engine.shrink();
        println!("after use: {} bytes on the heap", engine.heap());
        assert!(engine.heap() < 100);
    }
}
