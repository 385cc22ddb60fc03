//! HTTP/3 over QMux: the records of a socket.

use std::io;
use std::task::{Context, Poll};

use qmux::QmuxConnection;
use quic::{LostReason, QuicEvent, Settings};
use runtime::{Buffer, buffer};

use super::{H3Engine, now};
use crate::stream::{EngineConnection, EngineStream, IncomingHalf, Received, SocketOutput};

/// HTTP/3 over QMux.
pub(crate) type QmuxEngine = H3Engine<QmuxConnection>;
/// The streams of one QMux connection.
pub(crate) type QmuxStreams = EngineConnection<QmuxEngine>;
/// The incoming half of a stream over QMux.
pub(crate) type QmuxIncoming = IncomingHalf<QmuxEngine>;
/// A request over QMux. Dropping it resets the stream unless it is over.
pub(crate) type QmuxStream = EngineStream<QmuxEngine>;

/// The maximum number of bytes that wait for the socket. The limit is low because the socket has its own buffers, and data of a
/// higher priority cannot overtake data that is already in a record.
const SEND_WINDOW: u64 = 128 * 1024;

/// Derives the QMux settings of a listener or server from its QUIC settings.
pub(crate) fn qmux_settings(quic: Settings) -> Settings {
    Settings { send_window: SEND_WINDOW, ..quic }
}

impl QmuxEngine {
    /// Passes the events of the connection to HTTP/3. Returns why the connection is lost, if it is.
    pub(crate) fn note_events(&mut self) -> Option<LostReason> {
        let mut lost = None;
        while let Some(event) = self.transport.connection.poll() {
            self.note(&event);
            if let QuicEvent::Lost(reason) = event {
                lost = Some(reason);
            }
        }
        lost
    }

    /// The peer has closed its side of the socket, so that it takes nothing any more.
    pub(crate) fn note_end(&mut self) {
        self.is_lost = true;
    }

    /// Ends an idle connection, if it is time; requests keep it open.
    pub(crate) fn handle_timeout(&mut self) {
        let is_busy = self.h3.streams() > 0;
        self.transport.connection.handle_timeout(now(), is_busy);
    }
}

impl SocketOutput for QmuxEngine {
    fn send(&mut self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool> {
        let mut wrote = false;
        loop {
            let connection = &mut self.transport.connection;
            let output = connection.output();
            if output.is_empty() {
                break;
            }
            match socket.poll_write(context, output) {
                Poll::Pending => {
                    self.note_events();
                    return Ok(wrote);
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    connection.sent(now(), n);
                    wrote = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        // Data in a record counts as acknowledged.
        self.note_events();
        match socket.poll_flush(context) {
            Poll::Ready(flushed) => flushed.map(|()| wrote),
            Poll::Pending => Ok(wrote),
        }
    }
}

/// Reads a socket for a QMux connection, which stores partial records itself. The socket is read even while no request takes
/// data, because the streams' windows limit how much the peer may send.
#[derive(Default)]
pub(crate) struct QmuxReader {
    /// Bytes that were received before.
    first: Option<Buffer>,
    /// Whether the last read filled its buffer. In that case, the next read uses a large one.
    is_bulk: bool,
}

impl QmuxReader {
    /// Creates a reader with bytes that were received before.
    pub(crate) fn new(first: Option<Buffer>) -> Self {
        Self { first, is_bulk: false }
    }

    /// Reads once. The events are in the engine ([`QmuxEngine::note_events`]).
    ///
    /// # Errors
    /// The errors of the socket.
    pub(crate) fn receive(
        &mut self,
        engine: &mut QmuxEngine,
        socket: &mut net::Stream,
        context: &mut Context<'_>,
    ) -> io::Result<Received> {
        let connection = &mut engine.transport.connection;
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            connection.receive(now(), first.filled());
            return Ok(Received::Bytes);
        }
        if socket.poll_read_ready(context).is_pending() {
            return Ok(Received::Nothing);
        }
        let mut input = if self.is_bulk { Buffer::for_frames() } else { Buffer::small() };
        let room = input.room_len();
        match socket.poll_read(context, input.room()) {
            Poll::Pending => {
                self.is_bulk = false;
                Ok(Received::Nothing)
            }
            Poll::Ready(Ok(0)) => Ok(Received::End),
            Poll::Ready(Ok(n)) => {
                self.is_bulk = n == room || n >= buffer::small_size();
                input.fill(n);
                connection.receive(now(), input.filled());
                Ok(Received::Bytes)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }
}
