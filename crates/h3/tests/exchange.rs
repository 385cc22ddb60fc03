//! Exchanges between a client and a server, step by step.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{CLIENT, SERVER, Wire, tell};
use fields::Scheme;
use h3::{Config, Connection, H3Event, RequestKey, Role};
use http::{BodyLength, Head};

/// Two engines and their connection.
struct Pair {
    wire: Wire,
    ends: [Connection; 2],
}

impl Pair {
    fn new(config: Config) -> Pair {
        let config = Arc::new(config);
        let ends = [Connection::new(Role::Client, &config), Connection::new(Role::Server, &config)];
        let mut pair = Pair { wire: Wire::new(1 << 20, 100), ends };
        for side in [CLIENT, SERVER] {
            pair.ends[side].start(&mut pair.wire.side(side));
        }
        assert_eq!(
            (pair.pass(SERVER), pair.pass(CLIENT)),
            (vec![H3Event::Settings], vec![H3Event::Settings])
        );
        pair
    }

    /// Delivers everything to a side, and returns its events.
    fn pass(&mut self, side: usize) -> Vec<H3Event> {
        self.wire.deliver_all();
        for report in std::mem::take(&mut self.wire.reports[side]) {
            tell(&mut self.ends[side], report);
        }
        let mut events = Vec::new();
        while let Some(event) =
            self.ends[side].next(&mut self.wire.side(side)).expect("the other side is right")
        {
            events.push(event);
            self.ends[side].check_invariants();
        }
        events
    }

    fn request(&mut self, head: &Head, ends: bool) -> RequestKey {
        let opened = self.ends[CLIENT].open_request(&mut self.wire.side(CLIENT), head, Scheme::Https, ends);
        opened.expect("a stream")
    }

    fn respond(&mut self, key: RequestKey, status: u16, ends: bool) {
        let mut head = Head::new();
        head.start_response(status, None);
        head.append(b"server", b"weir");
        self.ends[SERVER].send_head(&mut self.wire.side(SERVER), key, &head, ends);
    }
}

fn head(method: &[u8]) -> Head {
    let mut head = Head::new();
    head.start_request(method, b"/path?query");
    head.append(b"host", b"example.com");
    head.append(b"x-own", b"a value");
    head
}

#[test]
fn a_request_is_answered() {
    let mut pair = Pair::new(Config::default());
    pair.request(&head(b"GET"), true);
    let events = pair.pass(SERVER);
    let [H3Event::Head { key, end: true, protocol: false }] = events[..] else { panic!("{events:?}") };
    let request = pair.ends[SERVER].head_mut();
    assert_eq!(request.target(), b"https://example.com/path?query");
    assert_eq!(request.version(), http::Version::Other(3, 0));
    assert_eq!(request.request_body(), BodyLength::None);
    pair.respond(key, 200, false);
    let body = Bytes::from(vec![7; 5000]);
    pair.ends[SERVER].send_bytes(&mut pair.wire.side(SERVER), key, body.clone(), true);
    pair.ends[SERVER].release(&mut pair.wire.side(SERVER), key, None);
    let events = pair.pass(CLIENT);
    let [H3Event::Head { end: false, .. }, H3Event::Data { bytes, end: true, key }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*bytes, body);
    let key = *key;
    assert_eq!(pair.ends[CLIENT].head_mut().status(), 200);
    pair.ends[CLIENT].release(&mut pair.wire.side(CLIENT), key, None);
    assert_eq!((pair.ends[CLIENT].streams(), pair.ends[SERVER].streams()), (0, 0));
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    let mut pair = Pair::new(Config::default());
    let sent = pair.request(&head(b"POST"), false);
    let mut trailers = Head::new();
    trailers.append(b"x-trailer", b"value");
    let accepted = pair.ends[CLIENT].send_data(&mut pair.wire.side(CLIENT), sent, b"some text", false);
    assert_eq!(accepted, 9);
    pair.ends[CLIENT].send_trailers(&mut pair.wire.side(CLIENT), sent, &trailers);
    let events = pair.pass(SERVER);
    let [
        H3Event::Head { end: false, key, .. },
        H3Event::Data { bytes, end: false, .. },
        H3Event::Trailers { .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(bytes, &b"some text"[..]);
    let key = *key;
    pair.respond(key, 103, false);
    pair.respond(key, 200, false);
    pair.ends[SERVER].send_data(&mut pair.wire.side(SERVER), key, b"more", false);
    pair.ends[SERVER].send_trailers(&mut pair.wire.side(SERVER), key, &trailers);
    let events = pair.pass(CLIENT);
    let [H3Event::Head { .. }, H3Event::Head { .. }, H3Event::Data { .. }, H3Event::Trailers { .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
}
