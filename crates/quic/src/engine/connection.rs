//! A connection and its streams.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{
    ConnectionError, Dir, FinishError, ReadError, ReadableError, StreamEvent, StreamId, TransportErrorCode,
    VarInt, WriteError,
};

use super::congestion::Limited;
pub use super::crypto::ParameterBytes;
use super::{ConnectionInput, EndpointInput, Transmit};
use crate::parameters;
use crate::stats::Stats;

/// A QUIC connection. Stream numbers are those of RFC 9000, 2.1.
pub struct QuicConnection {
    inner: quinn_proto::Connection,
    /// The number of bytes that are kept for the peer at most, and now.
    send_window: [u64; 2],
}

/// The number of bytes that are kept for a peer whatever its congestion window is.
const SEND_WINDOW_MIN: u64 = 64 * 1024;

/// The direction of streams that the peer opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDirection {
    /// Both sides send.
    Both,
    /// Only the peer sends.
    One,
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuicEvent {
    /// The handshake parameters are known ([`QuicConnection::details`]).
    HandshakeData,
    /// The handshake is complete.
    Connected,
    /// The connection is over.
    Lost(LostReason),
    /// The peer has opened streams; [`QuicConnection::accept`] returns them.
    Opened(StreamDirection),
    /// Data or an end has arrived.
    Readable(u64),
    /// A stream that was blocked takes data again, or was stopped.
    Writable(u64),
    /// The peer wants no more data.
    Stopped(u64, u64),
    /// All data of a stream was acknowledged.
    Finished(u64),
    /// More streams may be opened.
    Available(StreamDirection),
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostReason {
    /// The peer closed it, with a code of the application (HTTP/3).
    Application(u64),
    /// The peer closed it, with a transport error (RFC 9000, 20.1).
    Closed(u64),
    /// The peer violated the protocol, with the error that it was sent.
    Violation(u64, String),
    /// The peer has lost the connection's state.
    Reset,
    /// Nothing was received for too long.
    TimedOut,
    /// We closed it.
    Local,
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamRead {
    /// Data, in order.
    Bytes(Bytes),
    /// Nothing yet: [`QuicEvent::Readable`] follows.
    Blocked,
    /// The end of the stream.
    Finished,
    /// The peer aborted the stream, with its code.
    Reset(u64),
}

/// The peer wants no more data, with its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped(pub u64);

fn id(number: u64) -> StreamId {
    StreamId::from(var_int(number))
}

fn var_int(number: u64) -> VarInt {
    VarInt::from_u64(number).unwrap_or(VarInt::MAX)
}

impl QuicConnection {
    pub(super) fn new(inner: quinn_proto::Connection, send_window: u64) -> Self {
        Self { inner, send_window: [send_window; 2] }
    }

    /// Adapts the number of bytes that are kept to the congestion window: as much again as may be in flight. A peer that acknowledges
    /// nothing occupies little memory.
    fn fit_send_window(&mut self) {
        let [most, before] = self.send_window;
        let window = self.inner.congestion_state().window().saturating_mul(2);
        let window = window.max(SEND_WINDOW_MIN).min(most);
        if window != before {
            self.send_window[1] = window;
            self.inner.set_send_window(window);
        }
    }

    /// Processes input of the endpoint.
    pub fn handle(&mut self, input: ConnectionInput) {
        self.inner.handle_event(input.0);
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn timeout(&mut self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    /// Handles the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.inner.handle_timeout(now);
    }

    /// Appends at most `most` datagrams to `out`.
    pub fn transmit(&mut self, now: Instant, most: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        self.fit_send_window();
        self.inner.poll_transmit(now, most, out).map(|transmit| Transmit::of_engine(&transmit))
    }

    /// Returns the next input for the endpoint.
    pub fn endpoint_input(&mut self) -> Option<EndpointInput> {
        self.inner.poll_endpoint_events().map(EndpointInput)
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<QuicEvent> {
        use quinn_proto::Event as Engine;
        loop {
            return Some(match self.inner.poll()? {
                Engine::HandshakeDataReady => QuicEvent::HandshakeData,
                Engine::Connected => QuicEvent::Connected,
                Engine::ConnectionLost { reason } => QuicEvent::Lost(lost(reason)),
                Engine::Stream(event) => of_stream(event),
                Engine::DatagramReceived | Engine::DatagramsUnblocked => {
                    continue;
                }
            });
        }
    }

    /// Returns the results of the TLS handshake so far.
    pub fn details(&self) -> Arc<tls::Details> {
        let data = self.inner.crypto_session().handshake_data();
        data.and_then(|data| data.downcast().ok()).map_or_else(Arc::default, |details| *details)
    }

    /// Returns the transport parameters of both sides.
    pub fn parameters(&self) -> ParameterBytes {
        let data = self.inner.crypto_session().peer_identity();
        data.and_then(|data| data.downcast().ok()).map(|data| *data).unwrap_or_default()
    }

    /// Returns how long the connection may be idle, by the parameters of both sides; `None` without a limit.
    pub fn max_idle_timeout(&self) -> Option<Duration> {
        let ParameterBytes { local, remote } = self.parameters();
        [local, remote].iter().filter_map(|bytes| parameters::max_idle_timeout(bytes)).min()
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// Whether a client may send early data before the end of the handshake.
    pub fn has_early(&self) -> bool {
        self.inner.has_0rtt()
    }

    /// Whether the server has refused early data: it has processed none of the streams so far, and they no longer exist.
    pub fn refused_early(&self) -> bool {
        self.inner.has_0rtt() && !self.inner.is_handshaking() && !self.inner.accepted_0rtt()
    }

    /// Whether the connection was closed by either side.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Whether the connection is over for good: the peer has been told, and nothing of it is still under way.
    pub fn is_drained(&self) -> bool {
        self.inner.is_drained()
    }

    /// Closes the connection at once, with an error code of the application.
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        self.inner.close(now, var_int(code), Bytes::copy_from_slice(reason));
    }

    /// Sends a PING.
    pub fn ping(&mut self) {
        self.inner.ping();
    }

    /// The peer's current address.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// The local address that the peer uses.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// Returns the next stream that the peer has opened.
    pub fn accept(&mut self, direction: StreamDirection) -> Option<u64> {
        self.inner.streams().accept(dir(direction)).map(u64::from)
    }

    /// Opens a stream, if the peer allows another one.
    pub fn open(&mut self, direction: StreamDirection) -> Option<u64> {
        self.inner.streams().open(dir(direction)).map(u64::from)
    }

    /// Reads at most `max` bytes.
    pub fn read(&mut self, stream: u64, max: usize) -> StreamRead {
        let mut stream = self.inner.recv_stream(id(stream));
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return StreamRead::Finished;
            }
        };
        let chunk = match chunks.next(max) {
            Ok(Some(chunk)) => StreamRead::Bytes(chunk.bytes),
            Ok(None) => StreamRead::Finished,
            Err(ReadError::Blocked) => StreamRead::Blocked,
            Err(ReadError::Reset(code)) => StreamRead::Reset(code.into_inner()),
        };
        // Flow control frames leave with the next datagram.
        let _ = chunks.finalize();
        chunk
    }

    /// Writes as much of `data` as there is room for; returns 0 if there is none, and [`QuicEvent::Writable`] follows.
    ///
    /// # Errors
    /// The peer wants no more data.
    pub fn write(&mut self, stream: u64, data: &[u8]) -> Result<usize, Stopped> {
        written(self.inner.send_stream(id(stream)).write(data))
    }

    /// The same without a copy.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_bytes(&mut self, stream: u64, data: Bytes) -> Result<usize, Stopped> {
        let mut chunks = [data];
        written(self.inner.send_stream(id(stream)).write_chunks(&mut chunks).map(|written| written.bytes))
    }

    /// Ends the data of a stream; [`QuicEvent::Finished`] follows. Returns `false` if the stream was over.
    pub fn finish(&mut self, stream: u64) -> bool {
        match self.inner.send_stream(id(stream)).finish() {
            Ok(()) => true,
            Err(FinishError::Stopped(_) | FinishError::ClosedStream) => false,
        }
    }

    /// Aborts sending on a stream.
    pub fn reset(&mut self, stream: u64, code: u64) {
        // A stream that is already over needs no reset.
        let _ = self.inner.send_stream(id(stream)).reset(var_int(code));
    }

    /// Asks the peer to send no more on a stream, and drops data that was not read.
    pub fn stop(&mut self, stream: u64, code: u64) {
        // A stream that is already over needs no stop.
        let _ = self.inner.recv_stream(id(stream)).stop(var_int(code));
    }

    /// Sets the priority of a stream: data of higher ones is sent first.
    pub fn set_priority(&mut self, stream: u64, priority: i32) {
        let _ = self.inner.send_stream(id(stream)).set_priority(priority);
    }

    /// Limits how many streams the peer may have open.
    pub fn set_max_streams(&mut self, count: u64) {
        self.inner.set_max_concurrent_streams(Dir::Bi, var_int(count));
    }

    /// Returns the numbers of the connection.
    pub fn stats(&self) -> Stats {
        let quinn_proto::ConnectionStats { udp_tx, udp_rx, frame_rx, frame_tx, path, .. } =
            self.inner.stats();
        let controller = self.inner.congestion_state();
        let threshold = controller.metrics().ssthresh;
        let limited = Limited::of(controller);
        Stats {
            rtt: path.rtt,
            rtt_variation: limited.as_ref().map(|own| own.rtt_variation()).unwrap_or_default(),
            in_flight: limited.as_ref().map(|own| own.in_flight()).unwrap_or_default(),
            slow_start_threshold: threshold.filter(|threshold| *threshold < u64::MAX),
            rtt_min: path.min_rtt,
            window: path.cwnd,
            datagrams_sent: udp_tx.datagrams,
            bytes_sent: udp_tx.bytes,
            datagrams_received: udp_rx.datagrams,
            bytes_received: udp_rx.bytes,
            packets_sent: path.sent_packets,
            packets_lost: path.lost_packets,
            congestion_events: path.congestion_events,
            mtu: path.current_mtu,
            data_blocked: frame_rx.data_blocked,
            stream_data_blocked: frame_rx.stream_data_blocked,
            streams_blocked_bidi: frame_rx.streams_blocked_bidi,
            streams_blocked_uni: frame_rx.streams_blocked_uni,
            control_frames: frame_rx.reset_stream
                + frame_rx.stop_sending
                + frame_rx.path_challenge
                + frame_rx.retire_connection_id
                + frame_rx.new_connection_id
                + frame_rx.ping,
            ids_to_send: frame_rx.retire_connection_id.saturating_sub(frame_tx.new_connection_id),
        }
    }
}

fn dir(direction: StreamDirection) -> Dir {
    match direction {
        StreamDirection::Both => Dir::Bi,
        StreamDirection::One => Dir::Uni,
    }
}

fn direction(dir: Dir) -> StreamDirection {
    match dir {
        Dir::Bi => StreamDirection::Both,
        Dir::Uni => StreamDirection::One,
    }
}

fn of_stream(event: StreamEvent) -> QuicEvent {
    match event {
        StreamEvent::Opened { dir } => QuicEvent::Opened(direction(dir)),
        StreamEvent::Readable { id } => QuicEvent::Readable(id.into()),
        StreamEvent::Writable { id } => QuicEvent::Writable(id.into()),
        StreamEvent::Finished { id } => QuicEvent::Finished(id.into()),
        StreamEvent::Stopped { id, error_code } => QuicEvent::Stopped(id.into(), error_code.into_inner()),
        StreamEvent::Available { dir } => QuicEvent::Available(direction(dir)),
    }
}

fn written(result: Result<usize, WriteError>) -> Result<usize, Stopped> {
    match result {
        Ok(count) => Ok(count),
        Err(WriteError::Blocked) => Ok(0),
        Err(WriteError::Stopped(code)) => Err(Stopped(code.into_inner())),
        Err(WriteError::ClosedStream) => Err(Stopped(0)),
    }
}

fn lost(reason: ConnectionError) -> LostReason {
    let code = |code: TransportErrorCode| u64::from(code);
    match reason {
        ConnectionError::ApplicationClosed(close) => LostReason::Application(close.error_code.into_inner()),
        ConnectionError::ConnectionClosed(close) => LostReason::Closed(code(close.error_code)),
        ConnectionError::TransportError(error) => LostReason::Violation(code(error.code), error.to_string()),
        ConnectionError::Reset => LostReason::Reset,
        ConnectionError::TimedOut => LostReason::TimedOut,
        ConnectionError::LocallyClosed => LostReason::Local,
        // Both concern connections to servers: the server does not speak our version, or the endpoint has no room.
        ConnectionError::VersionMismatch | ConnectionError::CidsExhausted => LostReason::Reset,
    }
}
