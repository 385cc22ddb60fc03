//! Every flood either closes the connection or costs almost nothing.

use super::*;
use crate::fault::Breach;
use crate::limits;

/// Feeds the same bytes repeatedly, in turns of 16 KiB, until the connection closes or reading stops. With `reads`, all output is
/// sent. Returns how often the bytes were fed.
fn flood(side: &mut Side, bytes: &[u8], times: usize, reads: bool) -> usize {
    let turn = (16_384 / bytes.len()).max(1);
    let many = bytes.repeat(turn);
    for n in 0..times / turn {
        side.engine.begin_turn(true);
        side.feed(&many);
        side.events.clear();
        if reads {
            side.frames();
        }
        if side.closed.is_some() || side.engine.must_drain() {
            return n * turn;
        }
        let memory = side.engine.heap() + side.engine.pending();
        assert!(memory < 200_000, "{memory} bytes of memory");
    }
    times
}

fn breach(side: &Side) -> Option<Breach> {
    side.closed.and_then(|closed| closed.breach)
}

#[test]
fn frames_without_effect_end_the_connection() {
    let padding = frame(kind::DATA, flag::PADDED, 1, &[&[50][..], &[0; 50]].concat());
    for (name, bytes) in [
        ("empty DATA", data(1, 0, false)),
        ("padding", padding),
        ("PRIORITY", frame(kind::PRIORITY, 0, 9, &[0, 0, 0, 0, 1])),
        ("PRIORITY_UPDATE", frame(kind::PRIORITY_UPDATE, 0, 0, &[&number(1)[..], b"u=1"].concat())),
        ("unknown frames", frame(0x77, 0, 0, &[])),
        ("SETTINGS", frame(kind::SETTINGS, 0, 0, &setting(1, 100))),
        ("SETTINGS acknowledgements", frame(kind::SETTINGS, flag::ACK, 0, &[])),
        ("PING", frame(kind::PING, 0, 0, &[0; 8])),
        ("PING acknowledgements", frame(kind::PING, flag::ACK, 0, &[0; 8])),
        ("GOAWAY", frame(kind::GOAWAY, 0, 0, &[0; 8])),
        ("WINDOW_UPDATE of a stream", frame(kind::WINDOW_UPDATE, 0, 1, &number(1))),
        ("WINDOW_UPDATE", frame(kind::WINDOW_UPDATE, 0, 0, &number(1))),
    ] {
        let mut side = Side::server();
        side.feed(&post(1, &[]));
        let times = flood(&mut side, &bytes, 1_000_000, true);
        assert_eq!(breach(&side), Some(Breach::Flood), "{name}");
        assert!(times < 2 * limits::WASTE as usize, "{name}: {times} times");
    }
}

#[test]
fn a_few_frames_without_effect_per_turn_are_tolerated() {
    let mut side = Side::server();
    for _ in 0..20_000 {
        side.engine.begin_turn(true);
        side.feed(&frame(kind::PING, 0, 0, &[0; 8]).repeat(10));
        side.frames();
    }
    assert_eq!(side.closed, None);
}

#[test]
fn reading_stops_while_responses_are_not_read() {
    for bytes in [frame(kind::PING, 0, 0, &[0; 8]), frame(kind::SETTINGS, 0, 0, &[])] {
        let mut side = Side::server();
        flood(&mut side, &bytes, 1_000_000, false);
        assert!(side.engine.must_drain() && side.closed.is_none());
        assert!(side.engine.pending() < limits::ANSWERS_SOFT + 100);
        assert_eq!(side.engine.receive(&bytes), Ok((0, None)));
        side.frames();
        assert_eq!(side.engine.receive(&bytes).expect("open").0, bytes.len());
    }
}

#[test]
fn rapid_resets_hold_their_slots_until_released() {
    let mut side = Side::server();
    let mut told = 0;
    for n in 0..10_000 {
        side.feed(&get(2 * n + 1)).feed(&frame(kind::RST_STREAM, 0, 2 * n + 1, &number(8)));
        told += side.events().iter().filter(|event| matches!(event, Event::Head { .. })).count();
        side.frames();
    }
    assert_eq!((told, side.engine.streams()), (100, 100), "no more work than streams that may be open");
    assert!(side.engine.glitches() >= 10_000 && side.engine.heap() < 20_000);
}

#[test]
fn streams_reset_by_us_hold_their_slots() {
    for bad in [frame(kind::WINDOW_UPDATE, 0, 1, &number(0)), data(1, 9, true)] {
        let mut side = Side::server();
        let mut told = 0;
        for n in 0..1000u32 {
            let id = 2 * n + 1;
            let mut bad = bad.clone();
            bad[5..9].copy_from_slice(&number(id));
            side.feed(&get(id)).feed(&bad);
            told += side.events().iter().filter(|event| matches!(event, Event::Head { .. })).count();
            side.frames();
        }
        assert_eq!((told, side.engine.streams(), side.closed), (100, 100, None));
    }
}

#[test]
fn header_blocks_are_limited() {
    let mut side = Side::server();
    let start = frame(kind::HEADERS, 1, 1, &request_block("GET", &[]));
    side.feed(&start);
    flood(&mut side, &frame(kind::CONTINUATION, 0, 1, &[]), 10_000, true);
    assert_eq!(breach(&side), Some(Breach::Continuations));
    assert_eq!(side.engine.glitches(), 1);
    let mut side = Side::server();
    side.feed(&start);
    flood(&mut side, &frame(kind::CONTINUATION, 0, 1, &[0x82; 16_384]), 100, true);
    assert_eq!(breach(&side), Some(Breach::BlockTooLarge));
    assert!(side.engine.heap() < 100_000);
}

#[test]
fn hpack_bombs_reset_their_stream() {
    let mut side = Side::server();
    // One large field in the table, then thousands of references to it.
    let mut bomb = vec![0x40, 1, b'x', 127, 0xa1, 0x1e];
    bomb.extend_from_slice(&[b'v'; 4000]);
    bomb.extend_from_slice(&[0xbe; 12_000]);
    let bomb = [request_block("GET", &[]), bomb].concat();
    side.feed(&frame(kind::HEADERS, 5, 1, &bomb));
    assert!(matches!(side.events()[..], [Event::Refused { id: 1, .. }]), "{:?}", side.closed);
    let head = side.engine.head_mut().written_len();
    assert!(head < 40_000, "{head} bytes of head");
    side.feed(&get(3));
    assert!(matches!(side.events()[..], [Event::Head { .. }]), "the connection goes on");
}

#[test]
fn frequent_table_size_changes_are_cheap() {
    let mut side = Side::server();
    let sizes = [setting(1, 0), setting(1, 1 << 31), setting(1, 4096)].concat().repeat(900);
    for n in 0..20 {
        side.feed(&frame(kind::SETTINGS, 0, 0, &sizes));
        let key = side.feed(&get(2 * n + 1)).opened();
        side.respond(key, true);
        side.engine.release(key);
        side.frames();
    }
    assert_eq!(side.closed, None);
    assert!(side.engine.heap() < 50_000);
}

#[test]
fn closed_windows_hold_at_most_the_output_limit() {
    let mut side = Side::server();
    side.feed(&frame(kind::SETTINGS, 0, 0, &setting(4, 0)));
    let body = vec![0; 100_000];
    for n in 0..100 {
        let key = side.feed(&get(2 * n + 1)).opened();
        side.respond(key, false);
        assert_eq!(side.engine.send_data(key, &body, true), 0);
    }
    assert!(side.engine.pending() < limits::OUTPUT);
    assert_eq!(side.engine.next_writable(), None, "nobody is asked");
}

#[test]
fn tiny_data_frames_take_no_memory() {
    let mut side = Side::server();
    let key = side.feed(&post(1, &[])).opened();
    for _ in 0..100_000 {
        side.feed(&data(1, 1, false));
        side.engine.consume(key, 1);
        side.events.clear();
    }
    assert_eq!(side.closed, None);
    assert!(side.engine.pending() < 1000 && side.engine.heap() < 10_000);
}
