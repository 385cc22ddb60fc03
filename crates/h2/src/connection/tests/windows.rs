//! Flow control in both directions.

use super::*;
use crate::frame::WINDOW_MAX;
use crate::settings::WINDOW_DEFAULT;

/// WINDOW_UPDATE frames in the output: stream and increment.
fn updates(side: &mut Side) -> Vec<(u32, u32)> {
    let of = |(header, payload): &(FrameHeader, Vec<u8>)| {
        (header.kind == kind::WINDOW_UPDATE).then(|| (header.stream, crate::frame::number(payload)))
    };
    side.frames().iter().filter_map(of).collect()
}

/// Lengths of the DATA frames in the output.
fn lengths(side: &mut Side) -> Vec<usize> {
    let frames = side.frames();
    frames.iter().filter(|(header, _)| header.kind == kind::DATA).map(|(header, _)| header.length).collect()
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &number(increment))
}

fn initial(value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &setting(4, value))
}

#[test]
fn an_upload_gets_credit_at_once_and_more_as_it_is_consumed() {
    let mut side = Side::server();
    let key = side.feed(&post(1, &[])).opened();
    assert_eq!(updates(&mut side), [(1, 86 * 16_384)]);
    side.feed(&data(1, 16_384, false));
    assert_eq!(updates(&mut side), [(0, WINDOW_MAX - WINDOW_DEFAULT + 16_384)]);
    let (mut sent, mut granted) = (16_384usize, 87 * 16_384usize);
    for _ in 0..1000 {
        while sent + 16_384 <= granted {
            side.feed(&data(1, 16_384, false));
            sent += 16_384;
        }
        assert_eq!(side.closed, None);
        let held = side.engine.held(key);
        assert!(held <= 87 * 16_384, "{held} bytes held");
        side.engine.consume(key, 16_384);
        side.engine.check_invariants();
        granted += updates(&mut side).iter().filter(|u| u.0 == 1).map(|u| u.1 as usize).sum::<usize>();
    }
    assert!(granted - (sent - side.engine.held(key)) <= 87 * 16_384);
    assert!(sent > 1000 * 16_384);
}

#[test]
fn a_short_upload_needs_no_credit() {
    let mut side = Side::server();
    let key = side.feed(&post(1, &[("content-length", "16384")])).opened();
    side.feed(&data(1, 8192, false));
    side.engine.consume(key, 8192);
    side.feed(&data(1, 8192, true));
    side.engine.consume(key, 8192);
    assert_eq!(updates(&mut side).iter().filter(|update| update.0 != 0).count(), 0);
    assert!(matches!(side.events()[..], [.., Event::Data { end: true, .. }]));
}

#[test]
fn unread_streams_get_no_more_credit() {
    let mut side = Side::server();
    side.feed(&post(1, &[]));
    let (mut sent, mut granted) = (0, 16_384);
    for _ in 0..10_000 {
        granted += updates(&mut side).iter().filter(|u| u.0 == 1).map(|u| u.1 as usize).sum::<usize>();
        if granted == sent {
            break;
        }
        let length = (granted - sent).min(16_384);
        side.feed(&data(1, length, false));
        sent += length;
    }
    assert_eq!(sent, 87 * 16_384);
    side.feed(&data(1, 1, false));
    assert_eq!(side.resets(), [(1, Code::FlowControlError)], "more than the window");
}

#[test]
fn padding_is_charged_and_returned() {
    let mut side = Side::server();
    side.feed(&post(1, &[]));
    for _ in 0..8000 {
        let payload = [&[255][..], &[0; 255], b"x"].concat();
        side.feed(&frame(kind::DATA, flag::PADDED, 1, &payload));
        let key = StreamKey { slot: 0, id: 1 };
        side.engine.consume(key, 1);
        side.frames();
    }
    assert_eq!(side.closed, None);
    assert_eq!(side.engine.streams.at(0).held, 0);
}

#[test]
fn the_default_window_applies_until_settings_are_acknowledged() {
    let mut side =
        Side { engine: Connection::new(Role::Server, &Arc::default()), events: vec![], closed: None };
    side.feed(PREFACE).feed(&initial(65_535)).feed(&post(1, &[])).feed(&post(3, &[]));
    for _ in 0..3 {
        side.feed(&data(1, 16_384, false));
    }
    assert_eq!((side.resets(), side.closed), (vec![], None));
    side.feed(&frame(kind::SETTINGS, flag::ACK, 0, &[]));
    assert!((16_384..65_535 * 16).contains(&side.engine.streams.at(1).credit));
    // A peer that never acknowledges the settings only has the default window until the settings apply.
    let mut side =
        Side { engine: Connection::new(Role::Server, &Arc::default()), events: vec![], closed: None };
    side.feed(PREFACE).feed(&initial(65_535));
    let streams = 100;
    for n in 0..streams {
        side.feed(&post(2 * n + 1, &[]));
    }
    for n in 0..streams {
        for _ in 0..4 {
            side.feed(&data(2 * n + 1, 16_000, false));
        }
    }
    let held: usize = side.engine.keys().map(|key| side.engine.held(key)).sum();
    assert!(held as u64 <= side.engine.pool.most(100) + 65_535, "{held} bytes held");
}

#[test]
fn the_total_of_held_bytes_is_bounded() {
    let mut side = Side::server();
    let mut granted = vec![16_384usize; 100];
    for n in 0..100u32 {
        side.feed(&post(2 * n + 1, &[]));
        for (stream, credit) in updates(&mut side) {
            if stream > 0 {
                granted[stream as usize / 2] += credit as usize;
            }
        }
        // Each stream sends as much as it may at once; nothing is consumed.
        let mut left = granted[n as usize];
        while left > 0 {
            let length = left.min(16_384);
            side.feed(&data(2 * n + 1, length, false));
            left -= length;
        }
    }
    assert_eq!(side.closed, None);
    let held: usize = side.engine.keys().map(|key| side.engine.held(key)).sum();
    assert!(held <= 2 * 100 * 16_384, "{held} bytes held");
    for key in side.engine.keys().collect::<Vec<_>>() {
        side.engine.release(key);
    }
    side.engine.check_invariants();
    assert_eq!((side.engine.pool.extra, side.engine.pool.receivers), (0, 0));
}

#[test]
fn the_connection_window_is_enforced() {
    let mut side = Side::server();
    side.feed(&post(1, &[]));
    side.engine.credit = 100;
    side.feed(&data(1, 101, false));
    assert_eq!(side.closed.map(|closed| closed.code), Some(Code::FlowControlError));
}

#[test]
fn bodies_wait_for_the_stream_window() {
    let mut side = Side::server();
    side.feed(&initial(10));
    let key = side.feed(&get(1)).opened();
    side.respond(key, false);
    assert_eq!(side.engine.send_data(key, &[1; 25], true), 10);
    assert_eq!(lengths(&mut side), [10]);
    assert_eq!((side.engine.next_writable(), side.engine.has_waiting()), (None, false));
    side.feed(&window(1, 5));
    assert_eq!(side.engine.next_writable(), Some(key));
    assert_eq!(side.engine.send_data(key, &[1; 15], true), 5);
    assert_eq!(side.engine.next_writable(), None);
    side.feed(&initial(30));
    assert_eq!(side.engine.next_writable(), Some(key));
    assert_eq!(side.engine.send_data(key, &[1; 10], true), 10);
    let last = side.frames().pop().expect("DATA").0;
    assert_eq!((last.length, last.flags), (10, flag::END_STREAM));
    assert!(side.engine.is_sent(key));
}

#[test]
fn negative_windows_are_tracked() {
    let mut side = Side::server();
    side.feed(&initial(3));
    let key = side.feed(&get(1)).opened();
    assert_eq!(side.engine.send_data(key, &[0; 3], false), 3);
    side.feed(&initial(2));
    assert_eq!(side.engine.streams.at(0).sendable, -1);
    assert_eq!(side.engine.send_data(key, &[0; 3], false), 0);
    side.feed(&window(1, 1));
    assert_eq!(side.engine.next_writable(), None);
    side.feed(&window(1, 1));
    assert_eq!(side.engine.next_writable(), Some(key));
    assert_eq!(side.engine.send_data(key, &[0; 3], false), 1);
    assert_eq!(side.engine.glitches(), 2, "windows made smaller");
}

#[test]
fn the_connection_window_blocks_all_streams() {
    let mut side = Side::server();
    side.feed(&initial(WINDOW_MAX));
    let first = side.feed(&get(1)).opened();
    let second = side.feed(&get(3)).opened();
    let body = vec![0; 100_000];
    let mut sent = side.engine.send_data(first, &body, false);
    side.frames();
    while let Some(key) = side.engine.next_writable() {
        assert_eq!(key, first);
        sent += side.engine.send_data(key, &body[sent..], false);
        side.frames();
    }
    assert_eq!(sent, 65_535);
    assert_eq!(side.engine.send_data(second, &body, false), 0);
    assert_eq!((side.engine.next_writable(), side.engine.has_waiting()), (None, true));
    side.feed(&window(0, 100));
    assert_eq!(side.engine.next_writable(), Some(first));
    assert_eq!(side.engine.send_data(first, &body[sent..], false), 100);
    side.feed(&window(0, 100));
    assert_eq!(side.engine.next_writable(), Some(second), "in turns");
}

#[test]
fn the_end_alone_needs_no_window() {
    let mut side = Side::server();
    side.feed(&initial(0));
    let key = side.feed(&get(1)).opened();
    assert_eq!(side.engine.send_data(key, b"", true), 0);
    assert_eq!(lengths(&mut side), [0]);
    assert!(side.engine.is_sent(key));
    assert_eq!(side.engine.send_data(key, b"more", true), 4, "forgotten on a stream that is over");
    assert_eq!(lengths(&mut side).len(), 0);
}
