//! The transport below HTTP/3, as QUIC provides it.

use bytes::Bytes;

/// The streams of a transport connection.
///
/// Stream IDs are those of QUIC (RFC 9000 section 2.1): the lowest bit is set for streams that the server opened, the second one
/// for unidirectional streams. Methods do no I/O that blocks; calls for a stream that no longer exists have no effect.
pub trait Streams {
    /// Opens a unidirectional stream; `None` if the peer permits no more.
    fn open_uni(&mut self) -> Option<u64>;

    /// Opens a bidirectional stream; `None` if the peer permits no more.
    fn open_bi(&mut self) -> Option<u64>;

    /// Reads the next bytes of a stream, at most `max`.
    fn read(&mut self, id: u64, max: usize) -> StreamChunk;

    /// Writes bytes to a stream, and returns how many were accepted. After it returned 0, the transport reports the stream as
    /// writable once it accepts more.
    ///
    /// # Errors
    /// The peer asked to stop sending.
    fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, Stopped>;

    /// Like [`Streams::write`], without copying the bytes.
    ///
    /// # Errors
    /// The peer asked to stop sending.
    fn write_bytes(&mut self, id: u64, data: Bytes) -> Result<usize, Stopped>;

    /// Ends the outgoing half of a stream after the bytes written so far.
    fn finish(&mut self, id: u64);

    /// Ends the outgoing half of a stream at once (RESET_STREAM). No effect after `finish` was called and all bytes acknowledged.
    fn reset(&mut self, id: u64, code: u64);

    /// Ends the incoming half of a stream (STOP_SENDING): nothing more is read from it.
    fn stop(&mut self, id: u64, code: u64);

    /// Sets the priority of a stream's outgoing bytes; the default is 0, and higher values are sent first.
    fn set_priority(&mut self, id: u64, priority: i32);
}

/// The result of [`Streams::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamChunk {
    /// At least one byte.
    Bytes(Bytes),
    /// Nothing has arrived. The transport reports the stream as readable when there is more.
    Blocked,
    /// The end of the stream.
    Finished,
    /// The peer reset the stream with this code.
    Reset(u64),
}

/// The peer asked to stop sending on a stream (STOP_SENDING), with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped(pub u64);
