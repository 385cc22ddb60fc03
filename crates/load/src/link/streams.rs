//! The streams of a transport connection, as `h3` uses them.

use quic::transport::StreamConnection;
use quic::{StreamDirection, StreamRead};

/// A connection with streams, which counts the bytes read.
pub(super) struct LinkStreams<C> {
    pub(super) connection: C,
    /// Bytes read since they were counted.
    pub(super) received: u64,
}

impl<C> LinkStreams<C> {
    pub(super) fn new(connection: C) -> Self {
        Self { connection, received: 0 }
    }
}

impl<C: StreamConnection> h3::Streams for LinkStreams<C> {
    fn open_uni(&mut self) -> Option<u64> {
        self.connection.open(StreamDirection::One)
    }

    fn open_bi(&mut self) -> Option<u64> {
        self.connection.open(StreamDirection::Both)
    }

    fn read(&mut self, id: u64, max: usize) -> h3::StreamChunk {
        match self.connection.read(id, max) {
            StreamRead::Bytes(bytes) => {
                self.received += bytes.len() as u64;
                h3::StreamChunk::Bytes(bytes)
            }
            StreamRead::Blocked => h3::StreamChunk::Blocked,
            StreamRead::Finished => h3::StreamChunk::Finished,
            StreamRead::Reset(code) => h3::StreamChunk::Reset(code),
        }
    }

    fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, h3::Stopped> {
        self.connection.write(id, data).map_err(|quic::Stopped(code)| h3::Stopped(code))
    }

    fn write_bytes(&mut self, id: u64, data: bytes::Bytes) -> Result<usize, h3::Stopped> {
        self.connection.write_bytes(id, data).map_err(|quic::Stopped(code)| h3::Stopped(code))
    }

    fn finish(&mut self, id: u64) {
        self.connection.finish(id);
    }

    fn reset(&mut self, id: u64, code: u64) {
        self.connection.reset(id, code);
    }

    fn stop(&mut self, id: u64, code: u64) {
        self.connection.stop(id, code);
    }

    fn set_priority(&mut self, id: u64, priority: i32) {
        self.connection.set_priority(id, priority);
    }
}
