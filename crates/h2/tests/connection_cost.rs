//! The cost of a connection: memory if it is idle, allocations if it is active.

use std::alloc::System;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use fields::Scheme;
use h2::{Config, Connection, Event, Role};
use http::Head;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Engine = Connection<Rc<[u8]>>;

/// Two sides connected through a buffer.
struct Pair {
    client: Engine,
    server: Engine,
    wire: Vec<u8>,
}

/// Passes all output of `from` to `to`, and calls back for each event.
fn pass(from: &mut Engine, to: &mut Engine, wire: &mut Vec<u8>, mut told: impl FnMut(&mut Engine, Event)) {
    while from.pending() > 0 {
        wire.clear();
        let mut slices = [IoSlice::new(&[]); 16];
        let filled = from.output(&mut slices);
        slices[..filled].iter().for_each(|slice| wire.extend_from_slice(slice));
        from.sent(wire.len());
        to.begin_turn(true);
        let mut rest = &wire[..];
        loop {
            let (taken, event) = to.receive(rest).expect("the other side is right");
            rest = &rest[taken..];
            let Some(event) = event else { break };
            told(to, event);
        }
        assert!(rest.is_empty());
    }
}

impl Pair {
    fn new() -> Pair {
        let config = Arc::new(Config::default());
        let (client, server) =
            (Connection::new(Role::Client, &config), Connection::new(Role::Server, &config));
        let mut pair = Pair { client, server, wire: Vec::with_capacity(1 << 17) };
        pair.settle();
        pair
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            pass(&mut self.client, &mut self.server, &mut self.wire, |_, _| {});
            pass(&mut self.server, &mut self.client, &mut self.wire, |_, _| {});
        }
    }

    /// Makes `streams` concurrent requests, each with a body in both directions.
    fn exchange(&mut self, request: &Head, response: &Head, body: &Rc<[u8]>, streams: usize) {
        let mut sent = 0;
        for _ in 0..streams {
            let key = self.client.open(request, Scheme::Https, false).expect("a stream");
            self.client.send_data(key, &body[..100], true);
        }
        pass(&mut self.client, &mut self.server, &mut self.wire, |server, event| match event {
            Event::Data { key, range, end } => {
                server.consume(key, range.len());
                if end {
                    server.send_head(key, response, false);
                    assert!(server.send_owned(key, body.clone(), 0..body.len(), true).is_ok());
                    server.release(key);
                }
            }
            Event::Head { .. } | Event::Settings => {}
            other => panic!("{other:?}"),
        });
        pass(&mut self.server, &mut self.client, &mut self.wire, |client, event| {
            if let Event::Data { key, range, end } = event {
                client.consume(key, range.len());
                if end {
                    client.release(key);
                    sent += 1;
                }
            }
        });
        self.settle();
        assert_eq!((sent, self.client.streams(), self.server.streams()), (streams, 0, 0));
    }
}

fn messages() -> (Head, Head) {
    let (mut request, mut response) = (Head::new(), Head::new());
    request.start_request(b"POST", b"/path?query");
    request.append(b"host", b"example.com");
    request.append(b"user-agent", b"a client");
    request.append(b"content-length", b"100");
    response.start_response(200, None);
    response.append(b"content-type", b"text/plain");
    response.append(b"server", b"a server");
    (request, response)
}

// There is only one test, because the allocator counts for the whole process.
#[test]
fn idle_connections_are_small_and_warm_ones_do_not_allocate() {
    let (request, response) = messages();
    let body: Rc<[u8]> = vec![0; 4000].into();
    let mut pair = Pair::new();
    for _ in 0..20 {
        pair.exchange(&request, &response, &body, 1);
        pair.exchange(&request, &response, &body, 10);
    }

    // The test runner may allocate at the same time, so the lowest count of a few rounds is used.
    let mut fewest = usize::MAX;
    for _ in 0..5 {
        let region = Region::new(ALLOCATOR);
        for _ in 0..50 {
            pair.exchange(&request, &response, &body, 1);
            pair.exchange(&request, &response, &body, 10);
        }
        let change = region.change();
        fewest = fewest.min(change.allocations + change.reallocations);
    }
    assert_eq!(fewest, 0, "allocations in 550 exchanges");

    let engine = size_of::<Engine>();
    let fresh = Pair::new().server;
    let region = Region::new(ALLOCATOR);
    drop(fresh);
    let heap = region.change().bytes_deallocated;
    println!("fresh: {engine} bytes and {heap} on the heap");
    assert!(engine + heap < 1100);

    pair.server.shrink();
    let region = Region::new(ALLOCATOR);
    drop(pair.server);
    let heap = region.change().bytes_deallocated;
    println!("after use: {engine} bytes and {heap} on the heap");
    assert!(engine + heap < 1300, "both header tables, which hold what was used, included");
}
