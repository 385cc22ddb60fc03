//! How streams and connections end: releases, GOAWAY in both directions, limits on counts, statistics.

use super::*;
use crate::connection::control::PING_STOP;
use crate::event::By;
use crate::fault::{Breach, Reason};
use crate::{Counts, OpenError, Phase};

fn goaways(side: &mut Side) -> Vec<(u32, Code)> {
    let of = |(header, payload): &(FrameHeader, Vec<u8>)| {
        let code = || Code::from_number(crate::frame::number(&payload[4..]));
        (header.kind == kind::GOAWAY).then(|| (crate::frame::number(payload), code()))
    };
    side.frames().iter().filter_map(of).collect()
}

#[test]
fn releasing_an_open_stream_resets_it() {
    let mut side = Side::server();
    let key = side.feed(&get(3)).opened();
    side.engine.release(key);
    assert_eq!(side.resets(), [(3, Code::Cancel)]);
    let key = side.feed(&get(5)).opened();
    side.respond(key, true);
    side.engine.release(key);
    assert_eq!((side.resets(), side.engine.streams()), (vec![], 0));
    side.engine.release(key);
    side.engine.reset(key, Code::Cancel);
    side.engine.consume(key, 10);
    assert_eq!((side.resets(), side.engine.glitches()), (vec![], 0), "a stale key does nothing");
}

/// A server that has responded to a request and released it, although part of the request has not arrived.
fn answered(length: &str) -> Side {
    let mut side = Side::server();
    let key = side.feed(&post(1, &[("content-length", length)])).opened();
    side.respond(key, true);
    side.engine.release(key);
    side.frames();
    side.events();
    assert_eq!(side.engine.streams(), 0);
    side
}

#[test]
fn a_short_rest_of_a_request_ends_without_a_reset() {
    let mut side = answered("2000");
    side.feed(&data(1, 1500, false)).feed(&data(1, 500, true));
    assert_eq!((side.resets(), side.events(), side.closed), (vec![], vec![], None));
    // The rest is validated as usual.
    side.feed(&data(1, 1, true));
    assert_eq!(side.resets(), [(1, Code::StreamClosed)]);
    let mut side = answered("2000");
    side.feed(&data(1, 1500, true));
    assert_eq!((side.resets(), side.events()), (vec![(1, Code::ProtocolError)], vec![]));
    let mut side = answered("0");
    let window = frame(kind::WINDOW_UPDATE, 0, 1, &number(0x7fff_ffff));
    side.feed(&window);
    assert_eq!((side.resets(), side.events()), (vec![(1, Code::FlowControlError)], vec![]));
    let mut side = answered("0");
    let trailers = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block(&[(":path", "/")]));
    side.feed(&trailers);
    assert_eq!((side.resets(), side.events()), (vec![(1, Code::ProtocolError)], vec![]));
    let mut side = answered("0");
    side.feed(&frame(kind::RST_STREAM, 0, 1, &number(8))).feed(&get(1));
    assert_eq!((side.resets(), side.events()), (vec![(1, Code::StreamClosed)], vec![]));
}

#[test]
fn an_exhausted_client_is_reset_after_seeing_the_response() {
    let mut side = answered("4000000");
    let pings =
        |side: &mut Side| side.frames().iter().filter(|(header, _)| header.kind == kind::PING).count();
    let mut sent = 0;
    while sent < 4_000_000 && pings(&mut side) == 0 {
        let length = side.engine.window(1).min(10_000);
        side.feed(&data(1, length, false));
        sent += 10_000;
    }
    assert!(sent < 4_000_000, "no more window is granted");
    assert_eq!((side.resets(), side.events(), side.closed), (vec![], vec![], None));
    side.feed(&frame(kind::PING, flag::ACK, 0, &PING_STOP));
    assert_eq!((side.resets(), side.events(), side.closed), (vec![(1, Code::NoError)], vec![], None));
    // The window is exhausted before the response is sent.
    let mut side = Side::server();
    let key = side.feed(&post(1, &[])).opened();
    while side.engine.window(1) > 0 {
        let length = side.engine.window(1).min(16_384);
        side.feed(&data(1, length, false));
    }
    side.respond(key, true);
    side.engine.release(key);
    assert_eq!(pings(&mut side), 1);
    side.feed(&frame(kind::PING, flag::ACK, 0, &PING_STOP));
    assert_eq!(side.resets(), [(1, Code::NoError)]);
}

#[test]
fn unfinished_requests_yield_to_new_ones_and_to_shutdown() {
    let mut side = Side::new(Role::Server, Config { max_concurrent_streams: 2, ..Config::default() });
    for id in [1, 3] {
        let key = side.feed(&post(id, &[])).opened();
        side.respond(key, true);
        side.engine.release(key);
    }
    assert_eq!(side.resets(), []);
    let key = side.feed(&get(5)).opened();
    assert_eq!(side.resets(), [(1, Code::NoError)]);
    side.engine.shutdown(Phase::Final);
    assert_eq!(side.resets(), [(3, Code::NoError)]);
    side.respond(key, true);
    side.engine.release(key);
    assert!(side.engine.is_ours_to_close());
}

#[test]
fn a_peer_reset_is_reported_once() {
    let mut side = Side::server();
    let key = side.feed(&get(1)).opened();
    side.respond(key, false);
    side.engine.send_data(key, &[0; 100_000], false);
    let reset = frame(kind::RST_STREAM, 0, 1, &number(8));
    side.feed(&reset).feed(&reset);
    assert_eq!(side.events(), [Event::Reset { key, code: Code::Cancel, by: By::Peer }]);
    assert_eq!((side.engine.streams(), side.engine.glitches()), (1, 1), "its place stays taken");
    assert!(side.engine.is_sent(key) && !side.engine.has_waiting());
    side.engine.release(key);
    assert_eq!(side.resets(), [], "the peer's reset is not answered");
}

#[test]
fn shutdown_announces_the_last_stream_after_a_ping() {
    let mut side = Side::server();
    let key = side.feed(&get(1)).opened();
    side.engine.shutdown(Phase::Announce);
    side.engine.shutdown(Phase::Announce);
    let frames = side.frames();
    let kinds: Vec<u8> = frames.iter().map(|frame| frame.0.kind).collect();
    assert_eq!(kinds, [kind::GOAWAY, kind::PING]);
    assert_eq!(frames[0].1, [&number(0x7fff_ffff)[..], &number(0)].concat());
    let late = side.feed(&get(3)).opened();
    side.feed(&frame(kind::PING, flag::ACK, 0, &frames[1].1));
    assert_eq!(goaways(&mut side), [(3, Code::NoError)]);
    side.feed(&get(5)).feed(&data(5, 3, true));
    assert_eq!((side.events(), side.resets(), side.closed), (vec![], vec![], None), "too late: ignored");
    for key in [key, late] {
        assert!(!side.engine.is_finished());
        side.respond(key, true);
        side.engine.release(key);
    }
    assert!(side.engine.is_finished() && side.engine.is_ending());
}

#[test]
fn goaway_tells_which_requests_can_be_retried() {
    let mut side = Side::client();
    let keys = [side.request(b"GET", true), side.request(b"GET", true), side.request(b"POST", false)];
    side.engine.send_data(keys[2], &[0; 100_000], false);
    side.feed(&frame(kind::GOAWAY, 0, 0, &[&number(0x7fff_ffff)[..], &number(0)].concat()));
    side.feed(&frame(kind::GOAWAY, 0, 0, &[&number(1)[..], &number(0), b"text"].concat()));
    let reset = |key| Event::Reset { key, code: Code::RefusedStream, by: By::Goaway };
    assert_eq!(
        side.events(),
        [
            Event::Goaway { last: 0x7fff_ffff, code: Code::NoError },
            Event::Goaway { last: 1, code: Code::NoError },
            reset(keys[2]),
            reset(keys[1])
        ]
    );
    assert!(By::Goaway.is_unprocessed(Code::RefusedStream));
    assert!(By::Peer.is_unprocessed(Code::RefusedStream) && !By::Peer.is_unprocessed(Code::Cancel));
    assert_eq!(side.engine.open(&Head::new(), fields::Scheme::Http, true), Err(OpenError::Ending));
    side.feed(&answer(1, "200", true, &[]));
    assert!(matches!(side.events()[..], [Event::Head { .. }]));
    side.frames();
    for key in keys {
        assert!(!side.engine.is_finished());
        side.engine.release(key);
    }
    assert_eq!((side.resets(), side.engine.is_finished()), (vec![], true));
}

#[test]
fn clients_respect_the_peers_stream_limit() {
    let mut side = Side::client();
    side.feed(&frame(kind::SETTINGS, 0, 0, &setting(3, 2)));
    let key = side.request(b"GET", true);
    side.request(b"GET", true);
    let mut head = Head::new();
    head.start_request(b"GET", b"/");
    assert_eq!(side.engine.open(&head, fields::Scheme::Http, true), Err(OpenError::Full));
    side.engine.release(key);
    assert_eq!(side.engine.free(), 1);
    assert_eq!(side.request(b"GET", true).id(), 5);
    side.engine.streams.last = 0x7fff_ffff;
    assert_eq!(side.engine.open(&head, fields::Scheme::Http, true), Err(OpenError::Ending));
}

#[test]
fn more_streams_than_announced_are_refused() {
    let mut side = Side::new(Role::Server, Config { max_concurrent_streams: 2, ..Config::default() });
    side.feed(&get(1)).feed(&get(3)).feed(&get(5));
    let reason = Reason::Breach(Breach::TooManyStreams);
    let refused = Event::Refused { id: 5, code: Code::RefusedStream, reason };
    assert_eq!(side.events()[2..], [refused]);
    assert_eq!(side.resets(), [(5, Code::RefusedStream)]);
}

#[test]
fn after_max_total_streams_the_peer_is_asked_to_leave() {
    let config = Config { max_total_streams: 3, max_concurrent_streams: 2, ..Config::default() };
    let mut side = Side::new(Role::Server, config);
    for id in [1, 3, 5, 7, 9] {
        let key = side.feed(&get(id)).opened();
        side.engine.release(key);
        assert_eq!(goaways(&mut side).len(), usize::from(id == 5), "at {id}");
    }
    side.feed(&get(11));
    assert_eq!(side.closed.and_then(|closed| closed.breach), Some(Breach::TotalStreams));
}

#[test]
fn glitches_ask_to_leave_at_three_quarters_and_close_at_the_threshold() {
    let config = Config { glitches_threshold: 4, ..Config::default() };
    let mut side = Side::new(Role::Server, config.clone());
    let bad = |id| frame(kind::HEADERS, 5, id, &block(&[("x", "y")]));
    side.feed(&bad(1)).feed(&bad(3));
    assert_eq!(goaways(&mut side), []);
    side.feed(&bad(5));
    assert_eq!(goaways(&mut side), [(0x7fff_ffff, Code::NoError)]);
    side.feed(&bad(7));
    assert_eq!(goaways(&mut side), [(7, Code::EnhanceYourCalm)]);
    assert_eq!(side.closed.and_then(|closed| closed.breach), Some(Breach::Glitches));

    let mut side = Side::new(Role::Server, config);
    side.engine.begin_turn(false);
    (0..9).for_each(|n| assert!(side.feed(&bad(2 * n + 1)).closed.is_none()));
    side.engine.begin_turn(true);
    side.feed(b"");
    assert!(side.closed.is_some(), "the CPU became busy");
}

#[test]
fn frames_per_turn_are_limited() {
    let config = Config { max_frames_at_once: 3, ..Config::default() };
    let mut side = Side::new(Role::Server, config);
    side.engine.begin_turn(true);
    let pings = frame(kind::PING, 0, 0, &[0; 8]).repeat(5);
    let (taken, _) = side.engine.receive(&pings).expect("open");
    assert_eq!((taken, side.engine.is_turn_over()), (3 * 17, true));
    side.engine.begin_turn(true);
    assert_eq!(side.engine.receive(&pings[taken..]).expect("open").0, 2 * 17);

    let config = Config { max_resets_at_once: 1, ..Config::default() };
    let mut side = Side::new(Role::Server, config);
    let reset = |id| frame(kind::RST_STREAM, 0, id, &number(8));
    let bytes = [get(1), get(3), reset(1), reset(3)].concat();
    side.engine.begin_turn(true);
    side.feed(&bytes);
    assert_eq!(side.events.len(), 3);
    assert!(side.engine.is_turn_over());
}

#[test]
fn statistics_match_their_names() {
    let mut side = Side::server();
    side.engine.take_counts();
    side.feed(&frame(kind::SETTINGS, 0, 0, &[])).feed(&post(1, &[])).feed(&data(1, 1, false));
    side.feed(&frame(kind::HEADERS, 5, 3, &block(&[("x", "y")])));
    side.feed(&frame(kind::RST_STREAM, 0, 1, &number(8)));
    side.feed(&frame(kind::GOAWAY, 0, 0, &[0; 8])).feed(&frame(kind::PING, 0, 0, &[0; 7]));
    let counts = Counts {
        headers_received: 2,
        data_received: 1,
        settings_received: 1,
        resets_received: 1,
        goaways_received: 1,
        connection_errors: 1,
        stream_errors: 1,
        resets_answered: 1,
        goaways_answered: 1,
        streams: 1,
    };
    assert_eq!(side.engine.take_counts(), counts);
    assert_eq!(side.engine.take_counts(), Counts::default());
}

#[test]
fn a_caller_can_close_and_ping() {
    let mut side = Side::server();
    side.engine.ping();
    side.engine.ping();
    let ping = side.frames();
    assert_eq!(ping.len(), 1);
    side.feed(&frame(kind::PING, flag::ACK, 0, &ping[0].1)).feed(&frame(
        kind::PING,
        flag::ACK,
        0,
        &ping[0].1,
    ));
    assert_eq!(side.events(), [Event::Pong]);
    side.engine.close(Code::InternalError);
    side.engine.close(Code::NoError);
    assert_eq!(goaways(&mut side), [(0, Code::InternalError)]);
    assert_eq!(side.feed(b"").closed.map(|closed| closed.breach), Some(None));
}

#[test]
fn released_streams_discard_the_rest_of_a_frame() {
    let mut side = Side::server();
    let key = side.feed(&post(1, &[])).opened();
    side.feed(&data(1, 100, true)[..19]);
    assert_eq!(side.events(), [Event::Data { key, range: 9..19, end: false }]);
    side.engine.release(key);
    side.feed(&[0; 90]).feed(&frame(kind::PING, 0, 0, &[0; 8]));
    assert_eq!(side.closed, None, "the rest of the frame is passed over");
}
