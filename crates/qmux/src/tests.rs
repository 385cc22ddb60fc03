//! Two connections that exchange bytes, and peers that send arbitrary records. Sections are those of the draft.

use std::time::{Duration, Instant};

use quic::transport::{
    FRAME_ENCODING_ERROR, PROTOCOL_VIOLATION, StreamConnection as _, TRANSPORT_PARAMETER_ERROR,
};
use quic::varint::{self, Reader};
use quic::{LostReason, QuicEvent, Settings, Stopped, StreamDirection, StreamRead};

use crate::QmuxConnection;
use crate::parameters::QX_TRANSPORT_PARAMETERS;
use crate::ping::{QX_PING, QX_PING_ANSWER};
use crate::record::RECORD_MAX;

const FLOW_CONTROL_ERROR: u64 = 3;
const STREAM_LIMIT_ERROR: u64 = 4;
const STREAM_STATE_ERROR: u64 = 5;
const FINAL_SIZE_ERROR: u64 = 6;

fn settings() -> Settings {
    Settings { stream_window: 40_000, connection_window: 100_000, send_window: 64_000, ..Settings::default() }
}

/// A client and a server.
struct Pair {
    now: Instant,
    client: QmuxConnection,
    server: QmuxConnection,
}

/// Passes what `from` has to send to `to`, in pieces of `piece` bytes; returns it.
fn pass(now: Instant, from: &mut QmuxConnection, to: &mut QmuxConnection, piece: usize) -> Vec<u8> {
    let mut passed = Vec::new();
    loop {
        let output = from.output();
        let count = output.len().min(piece);
        if count == 0 {
            return passed;
        }
        passed.extend_from_slice(&output[..count]);
        to.receive(now, &passed[passed.len() - count..]);
        from.sent(now, count);
    }
}

impl Pair {
    /// A pair before the exchange of parameters.
    fn begun(settings: &Settings) -> Self {
        let now = Instant::now();
        let of_client = Settings { max_streams: 0, ..settings.clone() };
        let client = QmuxConnection::new(false, &of_client, now);
        Self { now, client, server: QmuxConnection::new(true, settings, now) }
    }

    fn new(settings: &Settings) -> Self {
        let mut pair = Self::begun(settings);
        pair.exchange(usize::MAX);
        assert_eq!(pair.client.poll(), Some(QuicEvent::Connected));
        assert_eq!(pair.server.poll(), Some(QuicEvent::Connected));
        pair
    }

    /// Exchanges bytes until neither side has more.
    fn exchange(&mut self, piece: usize) {
        loop {
            let there = pass(self.now, &mut self.client, &mut self.server, piece);
            let back = pass(self.now, &mut self.server, &mut self.client, piece);
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    }
}

/// Returns all events.
fn events(connection: &mut QmuxConnection) -> Vec<QuicEvent> {
    std::iter::from_fn(|| connection.poll()).collect()
}

/// Reads all of a stream that has arrived, and whether that is its end.
fn read(connection: &mut QmuxConnection, id: u64) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match connection.read(id, usize::MAX) {
            StreamRead::Bytes(bytes) => all.extend_from_slice(&bytes),
            StreamRead::Blocked => return (all, false),
            StreamRead::Finished => return (all, true),
            StreamRead::Reset(code) => panic!("reset with {code}"),
        }
    }
}

/// Returns a record with these frames.
fn record(frames: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::record::write(&mut out, frames);
    out
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write_all(&mut out, numbers);
    out
}

/// Transport parameters of a client that permits everything.
fn parameters() -> Vec<u8> {
    let values = [(1, 30_000), (4, 1 << 20), (5, 1 << 20), (6, 1 << 20), (7, 1 << 20), (9, 10)];
    let mut content = Vec::new();
    for (name, value) in values {
        varint::write_all(&mut content, &[name, varint::length(value) as u64, value]);
    }
    [numbers(&[QX_TRANSPORT_PARAMETERS, content.len() as u64]), content].concat()
}

/// A STREAM frame with a length, at the beginning of a stream.
fn stream(id: u64, data: &[u8]) -> Vec<u8> {
    [&numbers(&[0x0a, id, data.len() as u64]), data].concat()
}

/// A server that has received a client's parameters.
fn server() -> QmuxConnection {
    let mut server = QmuxConnection::new(true, &settings(), Instant::now());
    server.receive(Instant::now(), &record(&parameters()));
    assert_eq!(server.poll(), Some(QuicEvent::Connected));
    server
}

/// Returns the code of the CONNECTION_CLOSE frame that a connection sends last; `None` if it is open.
fn closed_with(connection: &mut QmuxConnection) -> Option<u64> {
    if !connection.is_closed() {
        return None;
    }
    let output = connection.output().to_vec();
    let mut reader = Reader::new(&output);
    let mut last = &[][..];
    while !reader.is_empty() {
        last = reader.prefixed().expect("a whole record");
    }
    let mut frame = Reader::new(last);
    assert_eq!(frame.number(), Some(0x1c), "{last:x?}");
    frame.number()
}

#[test]
fn streams_pass_both_ways_however_the_bytes_are_split() {
    let body: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    for piece in [1, 2, 9, 1000, 16_384, usize::MAX] {
        let body = if piece < 100 { &body[..20_000] } else { &body[..] };
        let mut pair = Pair::begun(&settings());
        pair.exchange(piece);
        let ids: Vec<u64> =
            (0..3).map(|_| pair.client.open(StreamDirection::Both).expect("it is permitted")).collect();
        assert_eq!(ids, [0, 4, 8]);
        let (mut written, mut received) = ([0; 3], [(); 3].map(|()| (Vec::new(), false)));
        let mut accepted = Vec::new();
        while received.iter().any(|(_, ended)| !ended) {
            for (at, id) in ids.iter().enumerate() {
                written[at] += pair.client.write(*id, &body[written[at]..]).unwrap_or(0);
                if written[at] == body.len() {
                    pair.client.finish(*id);
                }
            }
            pair.exchange(piece);
            accepted.extend(std::iter::from_fn(|| pair.server.accept_stream(StreamDirection::Both)));
            for (id, (all, ended)) in accepted.iter().zip(&mut received) {
                let (more, is_end) = read(&mut pair.server, *id);
                all.extend(more);
                *ended |= is_end;
            }
            assert!(!pair.server.is_closed() && !pair.client.is_closed());
        }
        for (at, (all, _)) in received.iter().enumerate() {
            let differs = all.iter().zip(body).position(|(one, other)| one != other);
            assert_eq!((all.len(), differs), (body.len(), None), "stream {at} in pieces of {piece}");
        }
        assert_eq!(accepted, ids);
        let finished = events(&mut pair.client);
        assert!(ids.iter().all(|id| finished.contains(&QuicEvent::Finished(*id))));
        assert_eq!(pair.server.write(0, b"answer"), Ok(6));
        pair.exchange(piece);
        assert_eq!(read(&mut pair.client, 0), (b"answer".to_vec(), false));
    }
}

/// Section 4.2: the parameters are the first frame, and nothing that depends on the peer's is sent before they arrive.
#[test]
fn nothing_is_sent_before_the_parameters_of_the_peer() {
    let mut pair = Pair::begun(&settings());
    pair.client.ping();
    assert_eq!(pair.client.open(StreamDirection::Both), None);
    let first = pair.client.output().to_vec();
    let record = Reader::new(&first).prefixed().expect("a record");
    assert_eq!(Reader::new(record).number(), Some(QX_TRANSPORT_PARAMETERS));
    assert_eq!(first.len(), record.len() + 1, "the ping waits");
    pair.exchange(usize::MAX);
    assert!(pair.client.open(StreamDirection::Both).is_some());
    assert_eq!(pair.server.control_frames(), 1, "the ping has arrived");
}

#[test]
fn the_limits_of_streams_and_data_hold() {
    let mut pair = Pair::new(&Settings { max_streams: 2, ..settings() });
    let first = pair.client.open(StreamDirection::Both).expect("the first");
    assert!(pair.client.open(StreamDirection::Both).is_some());
    assert_eq!(pair.client.open(StreamDirection::Both), None);
    assert_eq!(pair.server.open(StreamDirection::Both), None, "servers open none");

    assert_eq!(pair.client.write(first, &[1; 50_000]), Ok(40_000), "the window of the stream");
    assert_eq!(pair.client.write(first, &[1; 50_000]), Ok(0));
    pair.exchange(usize::MAX);
    events(&mut pair.client);
    pair.exchange(usize::MAX);
    assert!(!events(&mut pair.client).contains(&QuicEvent::Writable(first)), "nothing was read");
    assert_eq!(pair.server.accept_stream(StreamDirection::Both), Some(first));
    assert_eq!(read(&mut pair.server, first).0.len(), 40_000);
    pair.exchange(usize::MAX);
    assert!(events(&mut pair.client).contains(&QuicEvent::Writable(first)));
    assert_eq!(pair.client.write(first, &[1; 50_000]), Ok(40_000));

    pair.exchange(usize::MAX);
    pair.client.finish(first);
    pair.server.finish(first);
    pair.exchange(usize::MAX);
    assert_eq!(read(&mut pair.server, first), (vec![1; 40_000], true));
    assert_eq!(read(&mut pair.client, first), (Vec::new(), true));
    pair.exchange(usize::MAX);
    assert!(pair.client.open(StreamDirection::Both).is_some(), "the number of streams is replenished");
}

#[test]
fn aborted_streams_are_reported_to_the_other_side() {
    let mut pair = Pair::new(&settings());
    let id = pair.client.open(StreamDirection::Both).expect("a stream");
    assert_eq!(pair.client.write(id, b"beginning"), Ok(9));
    pair.exchange(usize::MAX);
    assert_eq!(pair.server.accept_stream(StreamDirection::Both), Some(id));
    pair.client.reset(id, 7);
    pair.server.reset(id, 9);
    pair.exchange(usize::MAX);
    assert_eq!(pair.server.read(id, 100), StreamRead::Reset(7));
    assert_eq!(pair.client.read(id, 100), StreamRead::Reset(9));

    let id = pair.client.open(StreamDirection::Both).expect("a stream");
    assert_eq!(pair.client.write(id, b"beginning"), Ok(9));
    pair.exchange(usize::MAX);
    events(&mut pair.client);
    assert_eq!(pair.server.accept_stream(StreamDirection::Both), Some(id));
    pair.server.stop(id, 11);
    pair.exchange(usize::MAX);
    assert_eq!(events(&mut pair.client), [QuicEvent::Stopped(id, 11)]);
    assert_eq!(pair.client.write(id, b"more"), Err(Stopped(11)));
}

#[test]
fn records_are_as_large_as_the_default_permits() {
    let mut pair = Pair::new(&Settings { stream_window: 1 << 20, connection_window: 1 << 20, ..settings() });
    let id = pair.client.open(StreamDirection::Both).expect("a stream");
    assert_eq!(pair.client.write(id, &[5; 60_000]), Ok(60_000));
    let passed = pass(pair.now, &mut pair.client, &mut pair.server, usize::MAX);
    let mut reader = Reader::new(&passed);
    let sizes: Vec<usize> =
        std::iter::from_fn(|| (!reader.is_empty()).then(|| reader.prefixed().expect("whole").len()))
            .collect();
    assert_eq!(sizes[..3], [RECORD_MAX; 3]);
    assert!(sizes[3] < RECORD_MAX && sizes.len() == 4, "{sizes:?}");
}

#[test]
fn streams_of_a_higher_priority_are_sent_first() {
    let mut pair = Pair::new(&settings());
    let low = pair.client.open(StreamDirection::Both).expect("a stream");
    let high = pair.client.open(StreamDirection::Both).expect("a stream");
    assert_eq!(pair.client.write(low, b"low"), Ok(3));
    assert_eq!(pair.client.write(high, b"high"), Ok(4));
    pair.client.set_priority(high, 1);
    let passed = pass(pair.now, &mut pair.client, &mut pair.server, usize::MAX);
    let at = |text: &[u8]| passed.windows(text.len()).position(|window| window == text).expect("it was sent");
    assert!(at(b"high") < at(b"low"));
}

/// Each record ends the connection with the error that the section demands.
#[test]
fn violations_close_the_connection_with_the_right_error() {
    let long = [&numbers(&[0x1d, 0, 20_000]), &[0; 17_000][..]].concat();
    let cases: &[(&str, Vec<u8>, u64)] = &[
        ("3.2: a frame is cut off", vec![0x04, 1], FRAME_ENCODING_ERROR),
        ("3.2: data is cut off", vec![0x0a, 0, 5, 1], FRAME_ENCODING_ERROR),
        ("3.2: a type is cut off", vec![0x80], FRAME_ENCODING_ERROR),
        ("3.2: no frames", vec![], PROTOCOL_VIOLATION),
        ("4: PING", vec![0x01], FRAME_ENCODING_ERROR),
        ("4: ACK", vec![0x02, 0, 0, 0, 0], FRAME_ENCODING_ERROR),
        ("4: ACK with ECN", vec![0x03, 0, 0, 0, 0, 0, 0, 0], FRAME_ENCODING_ERROR),
        ("4: CRYPTO", vec![0x06, 0, 1, 9], FRAME_ENCODING_ERROR),
        ("4: NEW_TOKEN", vec![0x07, 1, 9], FRAME_ENCODING_ERROR),
        ("4: NEW_CONNECTION_ID", [&[0x18, 1, 0, 4][..], &[7; 20]].concat(), FRAME_ENCODING_ERROR),
        ("4: RETIRE_CONNECTION_ID", vec![0x19, 0], FRAME_ENCODING_ERROR),
        ("4: PATH_CHALLENGE", vec![0x1a, 1, 2, 3, 4, 5, 6, 7, 8], FRAME_ENCODING_ERROR),
        ("4: PATH_RESPONSE", vec![0x1b, 1, 2, 3, 4, 5, 6, 7, 8], FRAME_ENCODING_ERROR),
        ("4: HANDSHAKE_DONE", vec![0x1e], FRAME_ENCODING_ERROR),
        ("4: an unknown frame", numbers(&[0x420]), FRAME_ENCODING_ERROR),
        ("4: a datagram that was not negotiated", vec![0x31, 1, 9], FRAME_ENCODING_ERROR),
        ("4.1: data with a gap", vec![0x0e, 0, 5, 1, 9], PROTOCOL_VIOLATION),
        ("4.1: data again", [stream(0, b"ab"), vec![0x0e, 0, 1, 1, 9]].concat(), PROTOCOL_VIOLATION),
        ("4.2: parameters again", parameters(), TRANSPORT_PARAMETER_ERROR),
        ("4.3: an answer without a ping", numbers(&[QX_PING_ANSWER, 1]), PROTOCOL_VIOLATION),
        (
            "4.3: pings out of order",
            [numbers(&[QX_PING, 2]), numbers(&[QX_PING, 1])].concat(),
            PROTOCOL_VIOLATION,
        ),
        ("RFC 9000, 12.4: a type in a longer form", vec![0x40, 0x00], PROTOCOL_VIOLATION),
        ("RFC 9000, 4.6: too many streams", stream(400, b"a"), STREAM_LIMIT_ERROR),
        ("RFC 9000, 19.8: a stream of ours", stream(1, b"a"), STREAM_STATE_ERROR),
        (
            "RFC 9000, 4.5: data after the end",
            [vec![0x0b, 0, 1, 9], vec![0x0e, 0, 1, 1, 9]].concat(),
            FINAL_SIZE_ERROR,
        ),
        ("a reason that is cut off", long[..RECORD_MAX].to_vec(), FRAME_ENCODING_ERROR),
    ];
    for (name, frames, expected) in cases {
        for piece in [1, usize::MAX] {
            let mut server = server();
            for part in record(frames).chunks(piece.min(20_000)) {
                server.receive(Instant::now(), part);
            }
            assert_eq!(closed_with(&mut server), Some(*expected), "{name}");
            let lost = events(&mut server).into_iter().find_map(|event| match event {
                QuicEvent::Lost(LostReason::Violation(code, _)) => Some(code),
                _ => None,
            });
            assert_eq!(lost, Some(*expected), "{name}");
        }
    }
}

#[test]
fn data_beyond_the_windows_is_refused() {
    let mut server = server();
    let mut sent = 0;
    while !server.is_closed() {
        let frame = [&numbers(&[0x0e, 0, sent, 10_000]), &[1; 10_000][..]].concat();
        server.receive(Instant::now(), &record(&frame));
        sent += 10_000;
    }
    assert_eq!((sent, closed_with(&mut server)), (50_000, Some(FLOW_CONTROL_ERROR)));
}

/// Section 5.2: the size of records.
#[test]
fn records_above_the_maximum_are_refused_before_they_arrive() {
    let mut largest = server();
    largest.receive(Instant::now(), &record(&[0; RECORD_MAX]));
    assert!(!largest.is_closed());
    let mut larger = server();
    larger.receive(Instant::now(), &numbers(&[RECORD_MAX as u64 + 1]));
    assert_eq!(closed_with(&mut larger), Some(FRAME_ENCODING_ERROR));
    let mut huge = server();
    huge.receive(Instant::now(), &numbers(&[varint::MAX]));
    assert_eq!(closed_with(&mut huge), Some(FRAME_ENCODING_ERROR));
}

#[test]
fn a_partial_record_is_all_that_is_kept() {
    let mut server = server();
    server.receive(Instant::now(), &numbers(&[16_000]));
    assert!(server.is_within_record());
    for _ in 0..15_999 {
        server.receive(Instant::now(), &[0]);
    }
    assert!(server.is_within_record() && server.partial.capacity() <= RECORD_MAX + 8);
    server.receive(Instant::now(), &[0]);
    assert!(!server.is_within_record());
    assert_eq!(server.partial.capacity(), 0);
}

/// Section 4.2: other protocols are recognised by their first bytes, before a whole record has arrived.
#[test]
fn a_peer_that_speaks_another_protocol_is_refused_at_once() {
    let http2 = b"PRI * HTTP/2.0\r\n";
    let tls = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
    for first in [&b"GET / HTTP/1.1\r\n"[..], http2, &tls, &record(&[0x00])] {
        for piece in [1, usize::MAX] {
            let mut server = QmuxConnection::new(true, &settings(), Instant::now());
            for part in first.chunks(piece.min(100)) {
                server.receive(Instant::now(), part);
            }
            assert_eq!(closed_with(&mut server), Some(TRANSPORT_PARAMETER_ERROR), "{first:x?}");
            let output = server.output().to_vec();
            let own = Reader::new(&output).prefixed().expect("a record");
            assert_eq!(Reader::new(own).number(), Some(QX_TRANSPORT_PARAMETERS), "they come first");
        }
    }
    let mut server = QmuxConnection::new(true, &settings(), Instant::now());
    server.receive(Instant::now(), &record(&parameters())[..6]);
    assert!(!server.is_closed(), "the beginning is right");
}

#[test]
fn padding_and_blocked_frames_have_no_effect_on_streams() {
    let mut server = server();
    let frames = [
        &[0; 9][..],
        &numbers(&[0x14, 5]),
        &numbers(&[0x16, 3]),
        &numbers(&[0x17, 3]),
        &stream(0, b"a"),
        &[0; 3],
    ]
    .concat();
    server.receive(Instant::now(), &record(&frames));
    server.receive(Instant::now(), &record(&numbers(&[0x15, 0, 1])));
    assert!(!server.is_closed());
    assert_eq!(server.accept_stream(StreamDirection::Both), Some(0));
    assert_eq!(read(&mut server, 0), (b"a".to_vec(), false));
}

/// A peer that reads gives credit in any case, and HAProxy 3.5 logs such frames as internal errors.
#[test]
fn a_side_without_credit_waits_in_silence() {
    let mut pair = Pair::new(&settings());
    let id = pair.client.open(StreamDirection::Both).expect("a stream");
    assert_eq!(pair.client.write(id, &[1; 50_000]), Ok(40_000));
    assert_eq!(pair.client.write(id, &[1]), Ok(0));
    assert_eq!(pair.client.write(id, &[1]), Ok(0));
    let passed = pass(pair.now, &mut pair.client, &mut pair.server, usize::MAX);
    let blocked = numbers(&[0x15, id, 40_000]);
    assert!(passed.windows(blocked.len()).all(|window| window != blocked));
    assert!(pair.client.output().is_empty());
}

/// Section 4.3: only the last ping of several is answered.
#[test]
fn pings_are_answered() {
    let mut pair = Pair::new(&settings());
    pair.client.ping();
    pass(pair.now, &mut pair.client, &mut pair.server, usize::MAX);
    let answer = pass(pair.now, &mut pair.server, &mut pair.client, usize::MAX);
    assert_eq!(answer[2..], numbers(&[QX_PING_ANSWER, 1]));
    assert!(!pair.client.is_closed());

    let mut server = server();
    server.output();
    let all = server.output().len();
    server.sent(Instant::now(), all);
    for sequence in 1..=5_000 {
        server.receive(Instant::now(), &record(&numbers(&[QX_PING, sequence])));
    }
    assert_eq!(server.output()[2..], numbers(&[QX_PING_ANSWER, 5_000]));
    assert_eq!(server.control_frames(), 5_000);
}

/// Section 7: the smaller limit of both sides counts, and records in both directions restart it.
#[test]
fn an_idle_connection_ends_without_a_frame() {
    let limited = Settings { max_idle: Some(Duration::from_secs(10)), ..settings() };
    let mut pair = Pair::new(&limited);
    assert_eq!(pair.client.idle_limit_of_peer(), Some(Duration::from_secs(10)));
    pair.now += Duration::from_secs(9);
    pair.client.handle_timeout(pair.now, false);
    pair.client.ping();
    pair.exchange(usize::MAX);
    pair.now += Duration::from_secs(9);
    for side in [&mut pair.client, &mut pair.server] {
        side.handle_timeout(pair.now, false);
        assert!(!side.is_closed());
    }
    pair.now += Duration::from_secs(1);
    pair.server.handle_timeout(pair.now, true);
    assert!(!pair.server.is_closed(), "a request is served");
    pair.client.handle_timeout(pair.now, false);
    assert_eq!(events(&mut pair.client).last(), Some(&QuicEvent::Lost(LostReason::TimedOut)));
    assert!(pair.client.output().is_empty() && pair.client.timeout().is_none());
}

#[test]
fn an_idle_limit_that_no_network_could_meet_is_ignored() {
    let mut content = Vec::new();
    varint::write_all(&mut content, &[1, 1, 30]);
    let frame = [numbers(&[QX_TRANSPORT_PARAMETERS, content.len() as u64]), content].concat();
    let start = Instant::now();
    let mut client = QmuxConnection::new(false, &Settings { max_idle: None, ..settings() }, start);
    client.receive(start, &record(&frame));
    assert!(client.has_parameters() && client.timeout().is_none());
}

#[test]
fn a_close_is_the_last_frame_and_ends_both_sides() {
    let mut pair = Pair::new(&settings());
    let id = pair.client.open(StreamDirection::Both).expect("a stream");
    assert_eq!(pair.client.write(id, &[1; 30_000]), Ok(30_000));
    let begun = pair.client.output()[..10].to_vec();
    pair.client.sent(pair.now, 10);
    pair.client.close(0x100);
    assert_eq!(pair.client.write(id, b"more"), Err(Stopped(0)));
    pair.server.receive(pair.now, &begun);
    pass(pair.now, &mut pair.client, &mut pair.server, usize::MAX);
    assert!(pair.client.is_closed() && pair.client.output().is_empty());
    let seen = events(&mut pair.server);
    assert_eq!(seen.last(), Some(&QuicEvent::Lost(LostReason::Application(0x100))));
    assert_eq!(pair.server.accept_stream(StreamDirection::Both), Some(id));
    assert_eq!(read(&mut pair.server, id).0.len(), 30_000, "data that arrived may be read");
    assert!(pair.server.output().is_empty(), "no answer is due");
    pair.server.receive(pair.now, &record(&[0x01]));
    assert_eq!(events(&mut pair.server), [], "what follows is dropped");
}
