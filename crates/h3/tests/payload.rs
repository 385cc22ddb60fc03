//! Payload that is not copied, over a transport with little room.

mod common;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use common::script::request;
use h3::{Config, Connection, H3Event, Role, Stopped, StreamChunk, Streams};
use http::Head;

/// The request stream.
const STREAM: u64 = 0;

/// A transport that takes a limited number of bytes.
struct NarrowTransport {
    request: Option<Bytes>,
    room: usize,
    /// Everything that was written to the request stream.
    written: Vec<u8>,
    /// The addresses of the bytes written without a copy.
    shared: Vec<Range<*const u8>>,
    is_finished: bool,
}

impl NarrowTransport {
    fn take(&mut self, id: u64, data: &[u8]) -> usize {
        if id != STREAM {
            return data.len();
        }
        let count = data.len().min(self.room);
        self.room -= count;
        self.written.extend_from_slice(&data[..count]);
        count
    }
}

impl Streams for NarrowTransport {
    fn open_uni(&mut self) -> Option<u64> {
        Some(3)
    }

    fn open_bi(&mut self) -> Option<u64> {
        None
    }

    fn read(&mut self, _: u64, _: usize) -> StreamChunk {
        self.request.take().map_or(StreamChunk::Finished, StreamChunk::Bytes)
    }

    fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, Stopped> {
        Ok(self.take(id, data))
    }

    fn write_bytes(&mut self, id: u64, data: Bytes) -> Result<usize, Stopped> {
        let count = self.take(id, &data);
        if count > 0 {
            self.shared.push(data[..count].as_ptr_range());
        }
        Ok(count)
    }

    fn finish(&mut self, _: u64) {
        self.is_finished = true;
    }

    fn reset(&mut self, _: u64, _: u64) {}
    fn stop(&mut self, _: u64, _: u64) {}
    fn set_priority(&mut self, _: u64, _: i32) {}
}

#[test]
fn queued_payload_is_not_copied_and_precedes_trailers() {
    let mut transport = NarrowTransport {
        request: Some(request("GET", &[]).into()),
        room: usize::MAX,
        written: Vec::new(),
        shared: Vec::new(),
        is_finished: false,
    };
    let mut engine = Connection::new(Role::Server, &Arc::new(Config::default()));
    engine.start(&mut transport);
    engine.opened(STREAM);
    let Ok(Some(H3Event::Head { key, .. })) = engine.next(&mut transport) else { panic!("no request") };
    let mut head = Head::new();
    head.start_response(200, None);
    engine.send_head(&mut transport, key, &head, false);

    let body = Bytes::from((0..50_000).map(|at| at as u8).collect::<Vec<u8>>());
    transport.written.clear();
    transport.room = 1000;
    engine.send_bytes(&mut transport, key, body.clone(), false);
    assert!(engine.is_blocked(key));
    assert!(engine.pending() > 48_000);
    assert!(engine.takes_heads(), "payload does not delay other messages");
    while engine.pending() > 0 {
        assert_eq!(engine.next_writable(), None);
        transport.room = 7000;
        engine.writable(STREAM);
        assert_eq!(engine.next(&mut transport), Ok(None));
    }
    assert_eq!(engine.next_writable(), Some(key));
    let whole = body.as_ptr_range();
    assert!(transport.shared.iter().all(|piece| whole.start <= piece.start && piece.end <= whole.end));
    // A DATA frame with a length of four bytes.
    assert_eq!(transport.written.len(), 5 + body.len());
    assert_eq!(transport.written[5..], body);

    transport.written.clear();
    transport.room = 100;
    engine.send_bytes(&mut transport, key, body.slice(..2000), false);
    let mut trailers = Head::new();
    trailers.append(b"x-checksum", b"1");
    engine.send_trailers(&mut transport, key, &trailers);
    assert!(!transport.is_finished);
    transport.room = usize::MAX;
    engine.writable(STREAM);
    assert_eq!(engine.next(&mut transport), Ok(None));
    assert_eq!(transport.written[3..2003], body[..2000]);
    let [kind, length, section @ ..] = &transport.written[2003..] else { panic!("no trailers") };
    assert_eq!((*kind, usize::from(*length)), (1, section.len()));
    assert!(transport.is_finished);
}
