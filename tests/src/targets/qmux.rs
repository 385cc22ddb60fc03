//! Fuzz target for QMux connections.

use std::time::Instant;

use qmux::QmuxConnection;
use quic::transport::StreamConnection as _;
use quic::varint::Reader;
use quic::{QuicEvent, Settings, StreamDirection, StreamRead};

use crate::qmux::{RECORD_MAX, parameters, record, usual};

/// The effect of the bytes on a connection: its events, the data of the peer's streams, and the bytes to send.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<QuicEvent>,
    data: Vec<(u64, Vec<u8>)>,
    output: Vec<u8>,
    is_closed: bool,
}

/// Passes `bytes` to a connection in pieces of `piece` bytes.
fn receive(is_server: bool, now: Instant, bytes: &[u8], piece: usize) -> Outcome {
    let settings = Settings {
        max_streams: if is_server { 5 } else { 0 },
        stream_window: 500,
        connection_window: 900,
        ..Settings::default()
    };
    let mut connection = QmuxConnection::new(is_server, &settings, now);
    for part in bytes.chunks(piece) {
        connection.receive(now, part);
    }
    let mut outcome = Outcome {
        events: Vec::new(),
        data: Vec::new(),
        output: Vec::new(),
        is_closed: connection.is_closed(),
    };
    while let Some(event) = connection.poll() {
        outcome.events.push(event);
    }
    for direction in [StreamDirection::Both, StreamDirection::One] {
        while let Some(id) = connection.accept_stream(direction) {
            let mut data = Vec::new();
            while let StreamRead::Bytes(bytes) = connection.read(id, usize::MAX) {
                data.extend_from_slice(&bytes);
            }
            let _ = connection.write(id, &data);
            connection.finish(id);
            outcome.data.push((id, data));
        }
        if let Some(id) = connection.open(direction) {
            let _ = connection.write(id, &[7; 40_000]);
        }
    }
    loop {
        let output = connection.output();
        if output.is_empty() {
            break;
        }
        outcome.output.extend_from_slice(output);
        let count = output.len();
        connection.sent(now, count);
        assert!(outcome.output.len() < 1 << 20, "a few bytes make much output");
    }
    outcome
}

/// Checks that the bytes of a peer have the same effect however they are cut, and that the answer consists of records. The first byte
/// has flags: bit 0 for the side, bit 1 if valid parameters come first. The second one cuts the bytes.
pub fn qmux_connection(bytes: &[u8]) {
    let Some(([flags, cut], rest)) = bytes.split_first_chunk::<2>() else { return };
    let (is_server, is_begun) = (flags & 1 == 0, flags & 2 != 0);
    let first = if is_begun { record(&parameters(&usual(10_000))) } else { Vec::new() };
    let all = [&first[..], rest].concat();
    let now = Instant::now();
    let whole = receive(is_server, now, &all, usize::MAX);
    assert_eq!(receive(is_server, now, &all, usize::from(*cut).max(1)), whole);
    let mut reader = Reader::new(&whole.output);
    while !reader.is_empty() {
        let frames = reader.prefixed().expect("a whole record");
        assert!((1..=RECORD_MAX).contains(&frames.len()), "a record of {} bytes", frames.len());
    }
    let kept: usize = whole.data.iter().map(|(_, data)| data.len()).sum();
    assert!(kept <= 900, "{kept} bytes are more than the window");
}
