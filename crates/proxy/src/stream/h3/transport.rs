//! The transports of HTTP/3: QUIC, and QMux over a socket.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h3::StreamChunk;
use qmux::QmuxConnection;
use quic::transport::StreamConnection;
use quic::{QuicConnection, Stopped, StreamDirection, StreamRead};

/// A connection with streams as the transport of HTTP/3.
pub(crate) trait StreamTransport: StreamConnection {
    /// Sends a ping.
    fn ping(&mut self);

    /// Returns the number of received frames that cost work but move no data.
    fn control_frames(&self) -> u64;

    /// Closes the connection with an error code of HTTP/3.
    fn close(&mut self, now: Instant, code: u64);

    /// Returns the number of datagrams or records received.
    fn received(&self) -> u64;

    /// Returns the round-trip time; zero if it is not known.
    fn round_trip(&self) -> Duration;

    /// Returns how many bytes wait for the socket although the peer has room for them. Closing the connection would discard them.
    fn unsent(&self) -> usize;

    /// Whether the negotiated protocol is HTTP/0.9 over streams (`hq-interop`).
    fn speaks_hq(&self) -> bool;
}

impl StreamTransport for QuicConnection {
    fn ping(&mut self) {
        self.ping();
    }

    fn control_frames(&self) -> u64 {
        self.control_frames()
    }

    fn close(&mut self, now: Instant, code: u64) {
        self.close(now, code, b"");
    }

    fn received(&self) -> u64 {
        self.datagrams_received()
    }

    fn round_trip(&self) -> Duration {
        self.stats().rtt
    }

    fn unsent(&self) -> usize {
        // The connection sends its data again until the peer has acknowledged it.
        0
    }

    fn speaks_hq(&self) -> bool {
        self.details().alpn.as_deref() == Some(b"hq-interop")
    }
}

impl StreamTransport for QmuxConnection {
    fn ping(&mut self) {
        self.ping();
    }

    fn control_frames(&self) -> u64 {
        self.control_frames()
    }

    fn close(&mut self, _: Instant, code: u64) {
        self.close(code);
    }

    fn received(&self) -> u64 {
        self.records_received()
    }

    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    fn unsent(&self) -> usize {
        self.unsent()
    }

    fn speaks_hq(&self) -> bool {
        false
    }
}

/// A connection as the transport of HTTP/3.
pub(crate) struct TransportStreams<T> {
    pub(crate) connection: T,
    /// The number of bytes that the transport has accepted, and of responses that the peer has received.
    pub(super) progress: u64,
    /// The finished streams with bytes that the peer has not acknowledged yet. Closing the connection would discard these bytes.
    pub(super) unacknowledged: Vec<u64>,
}

impl<T> TransportStreams<T> {
    pub(super) fn new(connection: T) -> Self {
        Self { connection, progress: 0, unacknowledged: Vec::new() }
    }

    /// The peer has all data of a stream, or needs none of it.
    pub(super) fn note_acknowledged(&mut self, id: u64) {
        if let Some(at) = self.unacknowledged.iter().position(|one| *one == id) {
            self.unacknowledged.swap_remove(at);
            self.progress += 1;
        }
    }
}

impl<T: StreamTransport> h3::Streams for TransportStreams<T> {
    fn open_uni(&mut self) -> Option<u64> {
        self.connection.open(StreamDirection::One)
    }

    fn open_bi(&mut self) -> Option<u64> {
        self.connection.open(StreamDirection::Both)
    }

    fn read(&mut self, id: u64, max: usize) -> StreamChunk {
        match self.connection.read(id, max) {
            StreamRead::Bytes(bytes) => StreamChunk::Bytes(bytes),
            StreamRead::Blocked => StreamChunk::Blocked,
            StreamRead::Finished => StreamChunk::Finished,
            StreamRead::Reset(code) => StreamChunk::Reset(code),
        }
    }

    fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, h3::Stopped> {
        let written = self.connection.write(id, data).map_err(|Stopped(code)| h3::Stopped(code))?;
        self.progress += written as u64;
        Ok(written)
    }

    fn write_bytes(&mut self, id: u64, data: Bytes) -> Result<usize, h3::Stopped> {
        let written = self.connection.write_bytes(id, data).map_err(|Stopped(code)| h3::Stopped(code))?;
        self.progress += written as u64;
        Ok(written)
    }

    fn finish(&mut self, id: u64) {
        if self.connection.finish(id) {
            self.unacknowledged.push(id);
        }
    }

    fn reset(&mut self, id: u64, code: u64) {
        self.note_acknowledged(id);
        self.connection.reset(id, code);
    }

    fn stop(&mut self, id: u64, code: u64) {
        self.connection.stop(id, code);
    }

    fn set_priority(&mut self, id: u64, priority: i32) {
        self.connection.set_priority(id, priority);
    }
}
