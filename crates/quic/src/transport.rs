//! The parts of QUIC that do not depend on packets: streams with flow control, their frames, transport parameters and errors. QMux
//! consists of these over a byte stream. Callers: `qmux`, and the users of both transports.

use bytes::Bytes;

pub use crate::error::{FRAME_ENCODING_ERROR, PROTOCOL_VIOLATION, TRANSPORT_PARAMETER_ERROR, TransportError};
pub use crate::frame::{APPLICATION_CLOSE, CONNECTION_CLOSE, HANDSHAKE_DONE, PADDING, write_close};
pub use crate::parameters::TransportParameters;
pub use crate::stream_frame::StreamFrame;
pub use crate::streams::{StreamFault, StreamSet};
use crate::types::{QuicEvent, Stopped, StreamDirection, StreamRead};
use crate::varint;

/// A connection with streams: QUIC, or QMux.
pub trait StreamConnection {
    /// The streams and their flow control, for the methods below.
    fn streams(&mut self) -> &mut StreamSet;

    /// Returns the next event.
    fn poll(&mut self) -> Option<QuicEvent>;

    /// Whether the peer has left several probes in a row without an answer, and is probably gone. It may still answer later.
    fn is_unresponsive(&self) -> bool {
        false
    }

    /// Returns the next stream that the peer has opened.
    fn accept_stream(&mut self, direction: StreamDirection) -> Option<u64> {
        self.streams().accept(direction)
    }

    /// Returns how many more streams the peer permits to open.
    fn openable(&self, direction: StreamDirection) -> u64;

    /// Frees memory that an idle connection does not need, and allocates it again on use.
    fn shrink(&mut self) {
        self.streams().shrink();
    }

    /// Opens a stream, if the peer permits another one.
    fn open(&mut self, direction: StreamDirection) -> Option<u64> {
        self.streams().open(direction)
    }

    /// Reads at most `max` bytes.
    fn read(&mut self, stream: u64, max: usize) -> StreamRead {
        self.streams().read(stream, max)
    }

    /// Writes as much of `data` as fits; returns 0 if nothing fits, and [`QuicEvent::Writable`] follows.
    ///
    /// # Errors
    /// The peer wants no more data.
    fn write(&mut self, stream: u64, data: &[u8]) -> Result<usize, Stopped> {
        self.streams().write(stream, data)
    }

    /// Like [`write`](Self::write), without copying the data.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_bytes(&mut self, stream: u64, data: Bytes) -> Result<usize, Stopped> {
        self.streams().write_bytes(stream, data)
    }

    /// Ends the data of a stream; [`QuicEvent::Finished`] follows. Returns `false` if the stream was over.
    fn finish(&mut self, stream: u64) -> bool {
        self.streams().finish(stream)
    }

    /// Aborts sending on a stream.
    fn reset(&mut self, stream: u64, code: u64) {
        self.streams().reset(stream, code.min(varint::MAX));
    }

    /// Asks the peer to send no more on a stream, and drops data that was not read.
    fn stop(&mut self, stream: u64, code: u64) {
        self.streams().stop(stream, code.min(varint::MAX));
    }

    /// Sets the priority of a stream: data of higher ones is sent first.
    fn set_priority(&mut self, stream: u64, priority: i32) {
        self.streams().set_priority(stream, priority);
    }
}
