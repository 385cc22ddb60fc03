//! The output: its limit, gathered payloads, and scheduling.

use fields::Priority;

use super::*;
use crate::limits;

/// A server with that many requests, large windows and an empty output.
fn serving(requests: u32) -> (Side, Vec<StreamKey>) {
    let mut side = Side::server();
    side.feed(&frame(kind::SETTINGS, 0, 0, &setting(4, 1 << 30)));
    side.feed(&frame(kind::WINDOW_UPDATE, 0, 0, &number(1 << 30)));
    let keys = (0..requests).map(|n| side.feed(&get(2 * n + 1)).opened()).collect();
    side.frames();
    (side, keys)
}

/// Lets streams with unlimited data send until `rounds` outputs are sent; returns the bytes per stream ID.
fn share(side: &mut Side, rounds: usize) -> Vec<(u32, usize)> {
    let mut got: Vec<(u32, usize)> = Vec::new();
    let body = vec![0; 1 << 20];
    for _ in 0..rounds {
        while let Some(key) = side.engine.next_writable() {
            assert!(side.engine.send_data(key, &body, false) > 0, "asked in vain");
            side.engine.check_invariants();
        }
        assert!(side.engine.pending() <= limits::OUTPUT + 100);
        for (header, _) in side.frames() {
            match got.iter_mut().find(|entry| entry.0 == header.stream) {
                Some(entry) => entry.1 += header.length,
                None => got.push((header.stream, header.length)),
            }
        }
    }
    got
}

/// Gives all streams more data than the output takes, so that they wait.
fn start(side: &mut Side, keys: &[StreamKey]) {
    let body = vec![0; 1 << 20];
    for key in keys {
        assert!(side.engine.send_data(*key, &body, false) < body.len());
    }
    side.frames();
}

#[test]
fn streams_of_equal_priority_take_turns() {
    let (mut side, keys) = serving(10);
    start(&mut side, &keys);
    let shares = share(&mut side, 250);
    let (least, most) = (shares.iter().map(|s| s.1).min(), shares.iter().map(|s| s.1).max());
    assert_eq!(shares.len(), 10);
    assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 4 * limits::QUANTUM, "{shares:?}");
}

#[test]
fn urgent_streams_go_first_and_priorities_can_change() {
    let (mut side, keys) = serving(3);
    side.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, &[&number(5)[..], b"u=1, i"].concat()));
    side.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, &[&number(1)[..], b"u=6, i"].concat()));
    start(&mut side, &keys);
    assert_eq!(share(&mut side, 5).iter().map(|s| s.0).collect::<Vec<_>>(), [5]);
    side.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, &[&number(5)[..], b"u=7, i"].concat()));
    side.frames();
    assert_eq!(share(&mut side, 5).iter().map(|s| s.0).collect::<Vec<_>>(), [3]);
    side.engine.release(keys[1]);
    side.frames();
    assert_eq!(share(&mut side, 5).iter().map(|s| s.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn sequential_responses_are_sent_to_completion() {
    let (mut side, keys) = serving(3);
    for key in &keys {
        let priority = Priority { urgency: 3, incremental: false };
        side.engine.ready.set(&mut side.engine.streams, key.slot, priority);
    }
    start(&mut side, &keys);
    assert_eq!(share(&mut side, 5).iter().map(|s| s.0).collect::<Vec<_>>(), [1]);
    side.engine.send_data(keys[0], b"", true);
    side.frames();
    assert_eq!(share(&mut side, 5).iter().map(|s| s.0).collect::<Vec<_>>(), [3]);
}

#[test]
fn priorities_may_precede_the_stream_or_be_in_its_head() {
    let mut side = Side::server();
    side.feed(&frame(kind::PRIORITY_UPDATE, 0, 0, &[&number(3)[..], b"u=0"].concat()));
    let request = request_block("GET", &[("priority", "u=5, i")]);
    side.feed(&frame(kind::HEADERS, 5, 1, &request)).feed(&frame(kind::HEADERS, 5, 3, &request));
    assert_eq!(side.engine.streams.at(0).urgency, 5);
    assert_eq!(side.engine.streams.at(1).urgency, 0);
}

#[test]
fn new_streams_queue_behind_waiting_ones() {
    let (mut side, keys) = serving(2);
    start(&mut side, &keys[..1]);
    assert_eq!(side.engine.send_data(keys[1], b"small", true), 0);
    assert_eq!(side.engine.next_writable(), Some(keys[0]));
    side.engine.send_data(keys[0], &[0; 70_000], false);
    assert_eq!(side.engine.next_writable(), Some(keys[1]));
    assert_eq!(side.engine.send_data(keys[1], b"small", true), 5);
}

#[test]
fn a_selected_stream_without_data_stops_waiting() {
    let (mut side, keys) = serving(2);
    start(&mut side, &keys);
    assert!(side.engine.next_writable().is_some() && side.engine.next_writable().is_some());
    assert_eq!((side.engine.next_writable(), side.engine.has_waiting()), (None, false));
    assert_eq!(side.engine.send_data(keys[1], b"x", false), 1);
    side.engine.check_invariants();
}

#[test]
fn large_payloads_are_gathered_and_small_ones_copied() {
    let (mut side, keys) = serving(1);
    let payload: Vec<u8> = (0..40_000u32).map(|n| n as u8).collect();
    let heap = side.engine.output.heap();
    assert!(side.engine.send_owned(keys[0], payload.clone(), 100..39_000, false).is_ok());
    assert!(side.engine.output.heap() - heap < 1000, "it was copied");
    assert!(side.engine.send_owned(keys[0], payload.clone(), 39_000..39_010, true).is_ok());
    let frames = side.frames();
    let body: Vec<u8> = frames.iter().flat_map(|frame| frame.1.clone()).collect();
    assert_eq!(body, payload[100..39_010]);
    assert_eq!(
        frames.iter().map(|frame| (frame.0.length, frame.0.flags)).collect::<Vec<_>>(),
        [(16_384, 0), (16_384, 0), (6132, 0), (10, 1)]
    );
}

#[test]
fn large_payloads_are_accepted_whole_if_there_is_room() {
    let (mut side, keys) = serving(2);
    side.feed(&frame(kind::WINDOW_UPDATE, 0, 0, &number(1 << 20)));
    for key in &keys {
        side.feed(&frame(kind::WINDOW_UPDATE, 0, key.id(), &number(1 << 20)));
    }
    side.engine.send_data(keys[0], &[1; 60_000], false);
    let heap = side.engine.output.heap();
    assert!(side.engine.send_owned(keys[0], vec![2; 60_000], 0..60_000, true).is_ok());
    assert!(side.engine.output.heap() - heap < 1000, "it was copied");
    let Err((_, range)) = side.engine.send_owned(keys[1], vec![3; 60_000], 0..60_000, true) else {
        panic!("beyond the bound")
    };
    assert_eq!((range, side.engine.next_writable()), (0..60_000, None));
    let body: Vec<u8> = side.frames().into_iter().flat_map(|frame| frame.1).collect();
    assert_eq!(body, [[1; 60_000], [2; 60_000]].concat());
    assert_eq!(side.engine.next_writable(), Some(keys[1]));
}

#[test]
fn payloads_beyond_the_window_are_returned() {
    let mut side = Side::server();
    let key = side.feed(&get(1)).opened();
    assert_eq!(side.engine.sendable(key), 65_535);
    let back = side.engine.send_owned(key, vec![7; 100_000], 0..60_000, false);
    assert!(back.is_ok());
    assert_eq!(side.engine.sendable(key), 5535);
    side.frames();
    let Err((data, range)) = side.engine.send_owned(key, vec![8; 100_000], 10..20_010, true) else {
        panic!("beyond the window")
    };
    assert_eq!((data.len(), range), (100_000, 10 + 5535..20_010));
    side.feed(&frame(kind::WINDOW_UPDATE, 0, 0, &number(100_000)));
    assert_eq!(side.engine.next_writable(), None);
    side.feed(&frame(kind::WINDOW_UPDATE, 0, 1, &number(100_000)));
    assert_eq!(side.engine.next_writable(), Some(key));
}

#[test]
fn heads_larger_than_a_frame_arrive() {
    let (mut side, mut client) = (Side::server(), Side::client());
    client.request(b"GET", true);
    side.feed(&get(1));
    let key = side.opened();
    let mut head = Head::new();
    head.start_response(200, None);
    let value = vec![b'v'; 1000];
    (0..14).for_each(|n| assert!(head.append(format!("x-{n}").as_bytes(), &value)));
    side.engine.send_head(key, &head, true);
    side.engine.peer.max_frame_size = 16_384;
    for (header, payload) in side.frames() {
        client.feed(&[&header.bytes()[..], &payload].concat());
    }
    assert!(matches!(client.events()[..], [Event::Head { end: true, .. }]), "{:?}", client.closed);
    assert_eq!(client.engine.head_mut().len(), 14);
}
