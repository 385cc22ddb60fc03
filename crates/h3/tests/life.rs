//! Lives of streams and connections: backpressure, resets, priorities, GOAWAY, limits and floods.

mod common;

use common::script::{Script, data, frame, headers, indexed, number, request, response};
use common::{CLIENT, SERVER};
use fields::Scheme;
use h3::frame::{FrameHeader, kind, uni};
use h3::{Code, Config, FaultReason, H3Event, OpenError, ResetBy, Role, Violation};
use http::Head;

fn get() -> Vec<u8> {
    request("GET", &[])
}

fn bytes_of(events: &[H3Event]) -> usize {
    let length = |event: &H3Event| if let H3Event::Data { bytes, .. } = event { bytes.len() } else { 0 };
    events.iter().map(length).sum()
}

#[test]
fn a_body_is_read_only_within_its_window() {
    let mut script = Script::new(Role::Server, Config { window: 1000, ..Config::default() });
    script.ask(&[request("POST", &[]), data(5000)].concat());
    script.run();
    let (mut events, mut rounds) = (script.take_events(), 0);
    let H3Event::Head { key, end: false, .. } = events[0] else { panic!("{events:?}") };
    while !matches!(events.last(), Some(H3Event::Data { end: true, .. } | H3Event::End { .. })) {
        assert_eq!((bytes_of(&events), script.engine.held(key)), (1000, 1000));
        script.run();
        assert_eq!(script.take_events(), [], "nothing more before it is consumed");
        // Other requests are served in the meantime.
        let other = script.ask(&get());
        script.run();
        assert_eq!(script.head().id(), other);
        script.engine.consume(key, 1000);
        script.run();
        events = script.take_events();
        rounds += 1;
    }
    assert_eq!(rounds, 4);
}

#[test]
fn payload_is_passed_on_without_a_copy() {
    let mut script = Script::server();
    let id = script.open(&request("POST", &[]));
    script.put(id, &data(10_000));
    script.run();
    let events = script.take_events();
    let pieces: Vec<_> = events
        .iter()
        .filter_map(|event| if let H3Event::Data { bytes, .. } = event { Some(bytes.clone()) } else { None })
        .collect();
    assert_eq!((pieces.len(), pieces[0].len()), (1, 10_000), "as the transport had it");
}

#[test]
fn a_request_with_a_late_end_has_an_end_event() {
    let mut script = Script::server();
    let id = script.open(&get());
    script.run();
    assert!(matches!(script.take_events()[..], [H3Event::Head { end: false, .. }]));
    script.finish(id);
    script.run();
    assert!(matches!(script.take_events()[..], [H3Event::End { .. }]));
}

#[test]
fn an_early_response_stops_the_request() {
    let mut script = Script::server();
    let id = script.open(&[request("POST", &[("content-length", "9")]), data(4)].concat());
    script.run();
    let key = script.head();
    script.respond(key, 200, true);
    script.release(key, None);
    assert_eq!((script.sent_stop(id), script.sent_reset(id)), (Some(Code::NoError), None));
    assert!(script.sent(id).1 && script.engine.streams() == 0);
    // The client answers with a reset, which does not count as a glitch.
    script.reset(id, Code::NoError.number());
    script.run();
    assert_eq!((script.take_events(), script.closed, script.engine.glitches()), (vec![], None, 0));
}

#[test]
fn a_request_that_ended_is_not_stopped() {
    let mut script = Script::server();
    let id = script.open(&get());
    script.run();
    let key = script.head();
    script.respond(key, 200, true);
    script.finish(id);
    script.wire.deliver(id, CLIENT, 0);
    // The engine has not been called since.
    script.release(key, None);
    assert_eq!((script.sent_stop(id), script.engine.streams()), (None, 0));
}

#[test]
fn release_ends_open_parts_with_the_given_code() {
    for (code, expected) in [(None, Code::RequestCancelled), (Some(Code::InternalError), Code::InternalError)]
    {
        let mut script = Script::server();
        let id = script.open(&get());
        script.run();
        let key = script.head();
        script.respond(key, 200, false);
        script.release(key, code);
        assert_eq!((script.sent_stop(id), script.sent_reset(id)), (Some(expected), Some(expected)));
        assert_eq!(script.engine.keys().count(), 0);
        // A key that was released has no effect.
        script.respond(key, 200, true);
        assert_eq!(script.send(key, b"abc", true), 3);
    }
}

#[test]
fn a_released_response_is_written_to_its_end() {
    let mut script = Script::server();
    let id = script.ask(&get());
    script.run();
    let key = script.head();
    script.wire.window = 3;
    script.respond(key, 200, true);
    script.release(key, None);
    assert!(!script.sent(id).1 && script.engine.pending() > 0);
    assert_eq!(script.engine.streams(), 0, "the caller is done with it");
    // The client reads.
    for _ in 0..10 {
        script.run();
        while let h3::StreamChunk::Bytes(_) = h3::Streams::read(&mut script.wire.side(CLIENT), id, 100) {}
    }
    assert_eq!((script.sent(id).1, script.engine.pending()), (true, 0));
    assert_eq!(script.frames(id).len(), 1);
}

#[test]
fn resets_of_the_client_end_the_request() {
    for stops in [false, true] {
        for ends in [false, true] {
            let mut script = Script::server();
            let id = script.open(&get());
            if ends && stops {
                script.finish(id);
            }
            script.run();
            let key = script.head();
            if stops {
                script.stop(id, 0x10c)
            } else {
                script.reset(id, 0x10c)
            }
            script.run();
            let code = Code::RequestCancelled;
            assert_eq!(script.take_events(), [H3Event::Reset { key, code, by: ResetBy::Peer }]);
            assert_eq!((script.sent_reset(id), script.engine.glitches()), (Some(code), 1));
            script.release(key, None);
            assert_eq!(
                script.engine.take_counts().of(code),
                if ends && stops { 2 } else { 3 - u32::from(!stops) }
            );
        }
    }
}

#[test]
fn a_reset_before_the_head_is_silent() {
    let mut script = Script::server();
    let id = script.open(&get()[..5]);
    script.run();
    assert!(script.engine.is_within_head());
    script.reset(id, 0x10c);
    script.run();
    assert_eq!((script.take_events(), script.engine.is_within_head()), (vec![], false));
    assert_eq!((script.engine.keys().count(), script.engine.glitches()), (0, 1));
}

#[test]
fn a_client_whose_upload_is_stopped_still_gets_the_response() {
    let mut script = Script::client();
    let key = script.send_request(b"POST", false);
    script.send(key, &[7; 100], false);
    script.run();
    script.put(0, &response("413", &[]));
    script.stop(0, Code::NoError.number());
    script.finish(0);
    script.run();
    assert!(matches!(script.take_events()[..], [H3Event::Head { end: true, .. }]));
    assert_eq!(script.sent_reset(0), Some(Code::NoError));
    assert_eq!(script.send(key, &[7; 100_000], true), 100_000, "discarded");
    assert!(script.engine.is_sent(key));
    script.release(key, None);
    assert_eq!((script.engine.streams(), script.closed), (0, None));
}

#[test]
fn a_response_to_a_client_that_just_left_is_reset() {
    let mut script = Script::server();
    let id = script.ask(&get());
    script.run();
    let key = script.head();
    script.stop(id, 0x10c);
    script.wire.deliver(id, SERVER, 0);
    // The engine has not processed the report.
    script.respond(key, 200, true);
    script.release(key, None);
    assert_eq!((script.sent_reset(id), script.sent(id).1), (Some(Code::RequestCancelled), false));
    script.run();
    assert_eq!((script.take_events(), script.closed), (vec![], None));
}

#[test]
fn a_stopped_upload_that_waits_is_woken() {
    let mut script = Script::client();
    script.wire.window = 1000;
    let key = script.send_request(b"POST", false);
    assert!(script.send(key, &[7; 5000], false) < 1000);
    script.run();
    assert_eq!(script.engine.next_writable(), None);
    script.stop(0, Code::NoError.number());
    script.run();
    assert_eq!(script.engine.next_writable(), Some(key));
}

#[test]
fn a_rejected_request_may_be_repeated() {
    let mut script = Script::client();
    let key = script.send_request(b"POST", false);
    script.run();
    script.stop(0, 0x10b);
    script.reset(0, 0x10b);
    script.run();
    let events = script.take_events();
    let [H3Event::Reset { key: reset, code, by }] = events[..] else { panic!("{events:?}") };
    assert!(reset == key && by.is_unprocessed(code));
}

#[test]
fn frames_that_were_begun_are_completed() {
    let mut script = Script::client();
    script.wire.window = 100;
    let key = script.send_request(b"POST", false);
    let (body, mut sent) = (vec![b'y'; 3000], 0);
    while sent < body.len() {
        // Smaller pieces than were offered first: they belong to the frame that was begun.
        let piece = (body.len() - sent).min(if sent == 0 { 2000 } else { 37 });
        sent += script.send(key, &body[sent..sent + piece], false);
        script.run();
        while let h3::StreamChunk::Bytes(_) = h3::Streams::read(&mut script.wire.side(SERVER), 0, 1000) {}
        script.run();
        while script.engine.next_writable().is_some() {}
    }
    let frames = script.frames(0);
    assert_eq!(frames[1].1.len(), 2000);
    assert_eq!(frames[1..].iter().map(|frame| frame.1.len()).sum::<usize>(), 3000);
    assert!(
        frames[1..].iter().all(|(kind, payload)| *kind == kind::DATA && payload.iter().all(|b| *b == b'y'))
    );
}

#[test]
fn priorities_reach_the_transport() {
    let mut script = Script::server();
    script.ask(&request("GET", &[("priority", "u=0, i")]));
    script.ask(&request("GET", &[("priority", "u=7")]));
    script.ask(&get());
    script.run();
    let priority = |script: &Script, id| script.wire.pipes[&(id, SERVER)].priority;
    assert_eq!([0, 4, 8].map(|id| priority(&script, id)), [3, -4, 0]);
    assert!(priority(&script, script.own_control()) > 3);
    // An update of an open request, and one that overtakes its request and its `priority` field.
    let update = |id, value: &str| frame(kind::PRIORITY_UPDATE, &[number(id), value.into()].concat());
    script.put(script.control(), &[update(8, "u=1"), update(12, "u=2")].concat());
    script.run();
    script.ask(&request("GET", &[("priority", "u=6")]));
    script.run();
    assert_eq!([8, 12].map(|id| priority(&script, id)), [2, 1]);
}

#[test]
fn a_server_that_shuts_down_serves_what_it_has_and_rejects_the_rest() {
    let mut script = Script::server();
    script.open(&get());
    script.run();
    let key = script.head();
    // Another request has arrived but was not looked at.
    script.engine.opened(4);
    script.shutdown();
    assert_eq!(script.frames(script.own_control())[1], (kind::GOAWAY, number(8)));
    assert!(script.engine.is_ending() && !script.engine.is_finished());
    script.ask(&get());
    let late = script.ask(&get());
    script.run();
    assert_eq!(script.head().id(), 4);
    let rejected = Some(Code::RequestRejected);
    assert_eq!((script.sent_reset(late), script.sent_stop(late)), (rejected, rejected));
    let keys: Vec<_> = script.engine.keys().collect();
    assert_eq!((keys.len(), keys[0]), (2, key));
    for key in keys {
        script.respond(key, 200, true);
        script.release(key, None);
    }
    assert!(script.engine.is_finished() && script.engine.is_ours_to_close());
}

#[test]
fn requests_on_their_way_are_served_after_the_announcement_of_a_shutdown() {
    let mut script = Script::server();
    script.open(&get());
    script.run();
    script.announce_shutdown();
    script.announce_shutdown();
    assert_eq!(script.frames(script.own_control())[1..], [(kind::GOAWAY, number((1 << 62) - 4))]);
    assert!(script.engine.is_ending() && !script.engine.is_finished());
    let key = script.head();
    script.respond(key, 200, true);
    script.release(key, None);
    assert!(!script.engine.is_finished(), "more may arrive");
    script.ask(&get());
    script.run();
    let key = script.head();
    assert_eq!(key.id(), 4);
    script.shutdown();
    assert_eq!(script.frames(script.own_control())[2..], [(kind::GOAWAY, number(8))]);
    let late = script.ask(&get());
    script.run();
    assert_eq!(script.sent_reset(late), Some(Code::RequestRejected));
    script.respond(key, 200, true);
    script.release(key, None);
    assert!(script.engine.is_finished() && script.engine.is_ours_to_close());
}

#[test]
fn a_client_learns_which_requests_were_not_processed() {
    let mut script = Script::client();
    let keys: Vec<_> = (0..3).map(|_| script.send_request(b"GET", true)).collect();
    script.run();
    script.put(script.control(), &frame(kind::GOAWAY, &number(4)));
    script.run();
    let events = script.take_events();
    let reset = |key| H3Event::Reset { key, code: Code::RequestRejected, by: ResetBy::Goaway };
    assert_eq!(events, [H3Event::Goaway { id: 4 }, reset(keys[2]), reset(keys[1])]);
    let mut head = Head::new();
    head.start_request(b"GET", b"/");
    let opened = script.engine.open_request(&mut script.wire.side(CLIENT), &head, Scheme::Https, true);
    assert_eq!((opened, script.engine.free()), (Err(OpenError::Ending), 0));
    script.put(0, &response("200", &[]));
    script.finish(0);
    script.run();
    assert_eq!(script.head(), keys[0], "requests below the limit continue");
    for key in keys {
        script.release(key, None);
    }
    assert!(script.engine.is_finished() && !script.engine.is_ours_to_close());
}

#[test]
fn clients_respect_the_limit_of_the_transport() {
    let mut script = Script::client();
    script.wire.max_requests = 1;
    let key = script.send_request(b"GET", true);
    let mut head = Head::new();
    head.start_request(b"GET", b"/");
    let open = |script: &mut Script| {
        script.engine.open_request(&mut script.wire.side(CLIENT), &head, Scheme::Https, true)
    };
    assert_eq!((open(&mut script), script.engine.free()), (Err(OpenError::Full), 0));
    script.run();
    script.put(0, &response("204", &[]));
    script.finish(0);
    script.run();
    script.release(key, None);
    assert!(script.engine.free() > 0 && open(&mut script).is_ok());
}

#[test]
fn requests_beyond_the_limit_are_rejected() {
    let mut script = Script::new(Role::Server, Config { max_concurrent_streams: 2, ..Config::default() });
    for _ in 0..3 {
        script.open(&get());
    }
    script.run();
    let events = script.take_events();
    let reason = FaultReason::Violation(Violation::TooManyStreams);
    assert!(events.contains(&H3Event::Refused { id: 8, code: Code::RequestRejected, reason }), "{events:?}");
    assert_eq!((script.sent_reset(8), script.engine.streams()), (Some(Code::RequestRejected), 2));
}

#[test]
fn after_the_total_number_of_requests_the_connection_ends() {
    let config = Config { max_total_streams: 3, max_concurrent_streams: 10, ..Config::default() };
    let mut script = Script::new(Role::Server, config);
    for _ in 0..3 {
        script.ask(&get());
        script.run();
        let key = script.head();
        script.respond(key, 200, true);
        script.release(key, None);
    }
    assert_eq!(script.frames(script.own_control())[1], (kind::GOAWAY, number(12)));
    assert!(script.engine.is_finished());
}

#[test]
fn glitches_end_the_connection_at_the_threshold() {
    for is_busy in [true, false] {
        let mut script = Script::new(Role::Server, Config { glitches_threshold: 8, ..Config::default() });
        script.engine.begin_turn(is_busy);
        for count in 1..=10 {
            let id = script.open(&get());
            script.run();
            script.reset(id, 0x10c);
            script.run();
            for key in script.engine.keys().collect::<Vec<_>>() {
                script.release(key, None);
            }
            let is_announced = script.frames(script.own_control()).len() > 1;
            assert_eq!(is_announced, count >= 6, "{count}");
        }
        // From the sixth on, requests are rejected without more glitches.
        assert_eq!((script.closed, script.engine.glitches()), (None, 6));
        for _ in 0..30 {
            script.uni(0x21, b"");
        }
        script.run();
        assert_eq!(script.closed, is_busy.then_some(Violation::Glitches));
    }
}

#[test]
fn floods_without_effect_end_the_connection() {
    let grease = frame(0x21, b"");
    let long = frame(0x21, &vec![0; 100_000]);
    for (name, prefix, piece) in [
        ("unknown frames", vec![], grease.clone()),
        ("empty DATA", get(), data(0)),
        ("long unknown frames", vec![], long.clone()),
    ] {
        let mut script = Script::server();
        let id = script.open(&prefix);
        let mut sent = 0;
        while script.closed.is_none() && sent < 100_000_000 {
            let bytes = piece.repeat(200_000 / piece.len());
            sent += bytes.len();
            script.put(id, &bytes);
            script.run();
        }
        assert_eq!(script.closed, Some(Violation::Flood), "{name}");
    }
    for (name, piece) in [
        ("unknown frames", grease),
        ("long unknown frames", long),
        ("MAX_PUSH_ID", frame(kind::MAX_PUSH_ID, &number(5))),
        ("GOAWAY", frame(kind::GOAWAY, &number(5))),
        ("PRIORITY_UPDATE", frame(kind::PRIORITY_UPDATE, &number(4))),
    ] {
        let mut script = Script::server();
        let mut sent = 0;
        while script.closed.is_none() && sent < 100_000_000 {
            let bytes = piece.repeat(200_000 / piece.len());
            sent += bytes.len();
            script.put(script.control(), &bytes);
            script.run();
        }
        assert_eq!(script.closed, Some(Violation::Flood), "{name}");
    }
    let mut script = Script::server();
    for _ in 0..20_000 {
        let id = script.wire.open(CLIENT, true);
        script.put(id, b"\x21");
        script.wire.deliver(id, CLIENT, 1);
    }
    script.run();
    assert_eq!(script.closed, Some(Violation::Flood), "unknown streams");
}

#[test]
fn unfinished_heads_have_bounded_memory() {
    let mut script = Script::server();
    let mut header = Vec::new();
    FrameHeader { kind: kind::HEADERS, length: 30_000 }.put(&mut header);
    let piece = [header, vec![0; 29_000]].concat();
    for _ in 0..100 {
        script.open(&piece);
    }
    script.step = 1000;
    script.run();
    assert!(script.engine.heap() < 2_200_000, "{}", script.engine.heap());
    let refused = script.take_events().len();
    assert!(refused > 50 && script.closed.is_none(), "{refused}");
}

#[test]
fn a_client_that_reads_no_responses_is_not_read() {
    let mut script = Script::server();
    script.wire.window = 1000;
    let mut served = 0;
    for _ in 0..100 {
        script.ask(&get());
        script.run();
        for event in script.take_events() {
            let H3Event::Head { key, .. } = event else { continue };
            served += 1;
            let mut head = Head::new();
            head.start_response(200, None);
            head.append(b"x-long", &[b'x'; 10_000]);
            script.engine.send_head(&mut script.wire.side(SERVER), key, &head, true);
            script.release(key, None);
        }
    }
    assert!(served < 15, "{served} heads wait");
    assert!(script.engine.pending() < 100_000 && !script.engine.takes_heads());
}

#[test]
fn streams_wait_for_the_dynamic_table() {
    let config = Config { table_capacity: 220, blocked_streams: 1, ..Config::default() };
    let blocked = |script: &mut Script| {
        // `:authority` and `:path` from the table; method and scheme from the static one.
        script.open(&frame(kind::HEADERS, &[0x03, 0x81, 0xd1, 0xd7, 0x10, 0x11]))
    };
    let inserts = |script: &mut Script| {
        let bytes = [indexed(0x20, 0x1f, 220), b"\xc0\x01a\xc1\x02/p".to_vec()].concat();
        script.uni(uni::QPACK_ENCODER, &bytes)
    };
    for step in [usize::MAX, 1] {
        let mut script = Script::new(Role::Server, config.clone());
        script.step = step;
        let id = blocked(&mut script);
        script.run();
        assert_eq!(script.take_events(), []);
        assert!(script.engine.is_within_head());
        inserts(&mut script);
        script.run();
        assert_eq!(script.head().id(), id);
        assert_eq!(script.engine.head_mut().target(), b"https://a/p");
        // Both insertions and the section are acknowledged.
        let decoder = script.own_control() + 4;
        let expected = if step == 1 { vec![3, 1, 1, 0x80] } else { vec![3, 2, 0x80] };
        assert_eq!(script.sent(decoder).0, expected);
    }
    let mut script = Script::new(Role::Server, config.clone());
    blocked(&mut script);
    blocked(&mut script);
    script.run();
    assert_eq!(script.closed, Some(Violation::BlockedStreams));
    // A stream that is given up before its section is decoded is cancelled.
    let mut script = Script::new(Role::Server, config);
    let id = script.open(&get()[..5]);
    script.run();
    script.reset(id, 0x10c);
    script.run();
    assert_eq!(script.sent(script.own_control() + 4).0, [3, 0x40 | id as u8]);
}

#[test]
fn our_dynamic_table_is_used_only_with_both_permissions() {
    for (peer, ours, expected) in [(4096, 0, false), (0, 4096, false), (4096, 4096, true)] {
        let mut script = Script::silent(Role::Server, Config { encoder_capacity: ours, ..Config::default() });
        script.uni(uni::CONTROL, &common::script::settings(&[(1, peer)]));
        for _ in 0..3 {
            script.ask(&get());
            script.run();
            let key = script.head();
            let mut head = Head::new();
            head.start_response(200, None);
            head.append(b"x-same", b"the same value");
            script.engine.send_head(&mut script.wire.side(SERVER), key, &head, true);
            script.release(key, None);
        }
        let encoder = script.own_control() + 4;
        assert_eq!(script.wire.pipes.contains_key(&(encoder, SERVER)), expected);
        if expected {
            let fields = script.sent(encoder).0;
            assert_eq!(fields[0], 2, "the type of the stream");
            assert!(fields.len() < 40, "one insertion");
        }
    }
}

#[test]
fn received_frames_are_counted() {
    let mut script = Script::server();
    script.ask(&[request("POST", &[]), data(3), data(4), headers(&[("x", "y")])].concat());
    let control = [
        frame(kind::MAX_PUSH_ID, &number(1)),
        frame(kind::GOAWAY, &number(0)),
        frame(kind::CANCEL_PUSH, b"\0"),
    ];
    script.put(script.control(), &control.concat());
    script.run();
    let counts = script.engine.take_counts();
    assert_eq!((counts.headers, counts.data, counts.settings), (2, 2, 1));
    assert_eq!((counts.max_push_id, counts.goaway, counts.cancel_push), (1, 1, 1));
    assert_eq!(counts.of(Code::IdError), 1);
    assert_eq!(script.engine.take_counts(), h3::Counts::default());
    script.engine.closed_with(0x102);
    assert_eq!(script.engine.take_counts().of(Code::InternalError), 1);
}
