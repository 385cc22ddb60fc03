//! The HTTP/3 engine behind the traits of [`stream`](super): messages over the streams of a QUIC or QMux connection.

mod over_socket;
mod transport;

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fields::Scheme;
use h3::{Code, RequestKey, Violation};
use http::Head;
use quic::{QuicConnection, StreamDirection};
use runtime::{Buffer, timer};
use sample::StreamFacts;
use state::counters::Multiplexed;
use state::quic_counters::Http3Counters;

use super::protocol::unsent;
use super::{ConnectionEvent, Lifecycle, Messages, NoHead, Notice, Protocol, RequestEngine, Reset};

pub(crate) use over_socket::{QmuxEngine, QmuxIncoming, QmuxReader, QmuxStream, QmuxStreams, qmux_settings};
pub(crate) use transport::StreamTransport;
use transport::TransportStreams;

/// HTTP/3 and the connection beneath it.
pub(crate) struct H3Engine<T> {
    h3: h3::Connection,
    pub(crate) transport: TransportStreams<T>,
    /// Whether HTTP/3 has streams to look at.
    has_work: bool,
    /// Frames and codes counted so far.
    counts: h3::Counts,
    /// Transport frames without data received so far.
    control_frames: u64,
    /// Whether the peer or the network ended the connection.
    is_lost: bool,
    /// Wakers of requests that wait for the end of the handshake.
    waiting: Vec<Waker>,
    /// Whether large payloads are sent from their buffers (`tune.quic.zero-copy-fwd-send`).
    owns: bool,
    /// When an announced shutdown begins.
    shutdown_at: Option<Instant>,
    /// The number of datagrams or records received, and when this number was last seen to change.
    heard: (u64, Instant),
}

/// The time between the announcement of a shutdown and the shutdown, in addition to three round trips, and its maximum. It allows
/// for requests that the client sent before it processed the announcement.
const GOAWAY_MIN: Duration = Duration::from_secs(2);
const GOAWAY_MAX: Duration = Duration::from_secs(5);

/// How long to wait for acknowledgements while the client is silent. The client has to acknowledge the packets that are
/// retransmitted.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The number of transport frames without data that a client may send in each turn. Every connection has a few of them, and a
/// client that cancels all its requests at the same time sends two for each.
const CONTROL_FRAMES: u64 = 32;

/// HTTP/3 over QUIC.
pub(crate) type QuicEngine = H3Engine<QuicConnection>;
/// The streams of one QUIC connection.
pub(crate) type H3Connection = super::EngineConnection<QuicEngine>;
/// The incoming half of a stream over QUIC.
pub(crate) type H3Incoming = super::IncomingHalf<QuicEngine>;
/// A request over QUIC. Dropping it resets the stream unless it is over.
pub(crate) type H3Stream = super::EngineStream<QuicEngine>;

/// The codes of RFC 9114, 8.1.
impl From<Code> for Reset {
    fn from(code: Code) -> Self {
        match code {
            Code::RequestCancelled => Self::Cancelled,
            Code::RequestRejected => Self::Refused,
            Code::InternalError => Self::Internal,
            other => Self::Code(other.number()),
        }
    }
}

impl From<Reset> for Code {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::Cancelled => Self::RequestCancelled,
            Reset::Refused => Self::RequestRejected,
            Reset::Internal => Self::InternalError,
            Reset::Code(number) => Self::from_number(number),
        }
    }
}

impl<T: StreamTransport> H3Engine<T> {
    /// Creates the server side over a connection, possibly during its handshake. Large payloads are copied unless `owns` is set.
    pub(crate) fn new(connection: T, config: &std::sync::Arc<h3::Config>, owns: bool) -> Self {
        Self::of_role(h3::Role::Server, connection, config, owns)
    }

    /// Creates the client's side. The arguments are those of [`new`](Self::new).
    pub(crate) fn to_server(connection: T, config: &std::sync::Arc<h3::Config>, owns: bool) -> Self {
        Self::of_role(h3::Role::Client, connection, config, owns)
    }

    fn of_role(role: h3::Role, connection: T, config: &std::sync::Arc<h3::Config>, owns: bool) -> Self {
        Self {
            h3: h3::Connection::new(role, config),
            transport: TransportStreams::new(connection),
            has_work: false,
            counts: h3::Counts::default(),
            control_frames: 0,
            is_lost: false,
            waiting: Vec::new(),
            owns,
            shutdown_at: None,
            heard: (0, now()),
        }
    }

    /// Whether the client or the network ended the connection.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the state of the open requests, the oldest first.
    pub(crate) fn requests(&self) -> impl Iterator<Item = h3::RequestState> {
        self.h3.request_states()
    }

    /// Starts the negotiated protocol once the connection can send: for HTTP/3, opens the control stream and sends SETTINGS.
    pub(crate) fn start(&mut self) {
        if self.transport.connection.speaks_hq() {
            self.h3.use_hq();
        }
        self.h3.start(&mut self.transport);
    }

    /// Passes an event of the connection to HTTP/3.
    pub(crate) fn note(&mut self, event: &quic::QuicEvent) {
        self.has_work |= !matches!(event, quic::QuicEvent::Finished(_));
        if let quic::QuicEvent::Lost(reason) = event {
            self.is_lost = *reason != quic::LostReason::Local;
            self.transport.unacknowledged.clear();
        }
        match *event {
            quic::QuicEvent::Opened(direction) => {
                while let Some(id) = self.transport.connection.accept_stream(direction) {
                    self.h3.opened(id);
                }
            }
            quic::QuicEvent::Readable(id) => self.h3.readable(id),
            quic::QuicEvent::Writable(id) => self.h3.writable(id),
            quic::QuicEvent::Stopped(id, code) => {
                self.transport.note_acknowledged(id);
                self.h3.stopped(id, code);
            }
            quic::QuicEvent::Available(_) => self.h3.available(),
            quic::QuicEvent::Lost(quic::LostReason::Application(code)) => self.h3.closed_with(code),
            quic::QuicEvent::Finished(id) => self.transport.note_acknowledged(id),
            quic::QuicEvent::HandshakeData | quic::QuicEvent::Connected | quic::QuicEvent::Lost(_) => {}
        }
    }

    /// Returns the next event; the payload of a DATA frame is in `payload`.
    ///
    /// # Errors
    /// The connection is to be closed with the code of the breach.
    pub(crate) fn next(
        &mut self,
        payload: &mut Bytes,
    ) -> Result<Option<ConnectionEvent<RequestKey>>, Violation> {
        let Some(event) = self.h3.next(&mut self.transport)? else {
            self.has_work = false;
            return Ok(None);
        };
        Ok(Some(match event {
            h3::H3Event::Head { key, end, .. } => ConnectionEvent::Head { key, end },
            h3::H3Event::Data { key, bytes, end } => {
                let range = 0..bytes.len();
                *payload = bytes;
                ConnectionEvent::Data { key, range, end }
            }
            h3::H3Event::Trailers { key } => ConnectionEvent::Trailers { key },
            h3::H3Event::End { key } => ConnectionEvent::End { key },
            h3::H3Event::Reset { key, code, by } => {
                let why = if by.is_unprocessed(code) { NoHead::Refused } else { NoHead::Cut };
                ConnectionEvent::Reset { key, reset: code.into(), why }
            }
            h3::H3Event::Refused { .. } => ConnectionEvent::Refused,
            h3::H3Event::Goaway { .. } => ConnectionEvent::GoingAway,
            h3::H3Event::Settings => ConnectionEvent::Settings,
        }))
    }

    /// Adds the frames and error codes of a connection that is over to `counters`.
    pub(crate) fn count_frames(&mut self, counters: &Http3Counters) {
        self.counts.add(&self.h3.take_counts());
        let counts = &self.counts;
        let frames = [
            counts.data,
            counts.headers,
            counts.cancel_push,
            counts.push_promise,
            counts.max_push_id,
            counts.goaway,
            counts.settings,
        ];
        for (counter, count) in counters.all().into_iter().zip(frames.iter().chain(&counts.codes)) {
            if *count > 0 {
                counter.add((*count).into());
            }
        }
    }

    /// Starts a turn. Returns whether there is any work. If the worker is `busy`, a connection with too many glitches is ended.
    pub(crate) fn begin_turn(&mut self, busy: bool) -> bool {
        let connection = &self.transport.connection;
        let (control_frames, received) = (connection.control_frames(), connection.received());
        let control_frames = control_frames - std::mem::replace(&mut self.control_frames, control_frames);
        if received != self.heard.0 {
            self.heard = (received, now());
        } else if !self.transport.unacknowledged.is_empty() && now() > self.heard.1 + SILENCE_MAX {
            self.transport.unacknowledged.clear();
        }
        let is_excessive = control_frames > CONTROL_FRAMES;
        self.has_work |= is_excessive;
        if self.has_work {
            self.h3.begin_turn(busy);
        }
        if is_excessive {
            self.h3.overhead(u32::try_from(control_frames - CONTROL_FRAMES).unwrap_or(u32::MAX));
        }
        self.has_work
    }

    /// Whether HTTP/3 has something to do in the next turn.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work
    }

    /// Returns a number that grows while the peer reads: with the bytes that the transport accepts, which the peer's flow control
    /// limits, and with the responses that the peer has received.
    pub(crate) fn progress(&self) -> u64 {
        self.transport.progress
    }

    /// Begins an announced shutdown when it is due.
    pub(crate) fn follow_announcement(&mut self, now: Instant) {
        if self.shutdown_at.is_some_and(|at| now >= at) {
            self.shutdown_at = None;
            self.h3.shutdown(&mut self.transport);
            self.has_work = true;
        }
    }

    /// Returns when [`follow_announcement`](Self::follow_announcement) must be called.
    pub(crate) fn shutdown_at(&self) -> Option<Instant> {
        self.shutdown_at
    }
}

impl QuicEngine {
    /// Whether requests are early data, which an attacker could replay (RFC 8470, 3).
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        self.transport.connection.is_handshaking()
    }

    /// Ready once the handshake is complete.
    ///
    /// # Errors
    /// The handshake has failed.
    pub(crate) fn poll_handshake(&mut self, context: &Context<'_>) -> Poll<Result<(), tls::Error>> {
        if !self.is_early() {
            return Poll::Ready(Ok(()));
        }
        if self.transport.connection.is_closed() {
            let failure = self.transport.connection.details().failure;
            let cut = tls::Reason::UnexpectedEof;
            let cut = tls::Error { kind: tls::FailureKind::Handshake, reason: cut, verify: 0 };
            return Poll::Ready(Err(failure.unwrap_or(cut)));
        }
        if !self.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            self.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Takes the wakers of the requests that wait for the end of the handshake.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.waiting)
    }
}

impl<T: StreamTransport> Protocol for H3Engine<T> {
    type Key = RequestKey;

    const HTTP_MAJOR: u8 = 3;

    #[inline]
    fn place(key: RequestKey) -> usize {
        key.index()
    }

    fn free(&self) -> usize {
        if self.transport.connection.is_unresponsive() {
            return 0;
        }
        let openable = self.transport.connection.openable(StreamDirection::Both);
        self.h3.free().min(usize::try_from(openable).unwrap_or(usize::MAX))
    }

    #[inline]
    fn consume(&mut self, key: RequestKey, count: usize) {
        self.h3.consume(key, count);
        self.has_work = true;
    }

    fn release(&mut self, key: RequestKey, reset: Option<Reset>) {
        self.h3.release(&mut self.transport, key, reset.map(Code::from));
        self.has_work = true;
    }

    fn facts(&self, key: RequestKey, reset: Option<Reset>) -> StreamFacts {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        StreamFacts {
            major: Self::HTTP_MAJOR,
            id: key.id(),
            open: number(self.h3.streams()),
            most: self.h3.most_streams(),
            reset: reset.map(|reset| Code::from(reset).number()),
        }
    }

    fn shrink(&mut self) {
        self.h3.shrink();
        self.transport.unacknowledged.shrink_to_fit();
        self.transport.connection.shrink();
    }
}

impl<T: StreamTransport> Messages for H3Engine<T> {
    const SENDS_OWNED: bool = true;

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        self.h3.head_mut()
    }

    fn send_head(&mut self, key: RequestKey, head: &Head, ends: bool) {
        self.h3.send_head(&mut self.transport, key, head, ends);
    }

    fn send_data(&mut self, key: RequestKey, data: &[u8], ends: bool) -> usize {
        self.h3.send_data(&mut self.transport, key, data, ends)
    }

    fn send_owned(&mut self, key: RequestKey, buffer: Buffer, ends: bool) -> Result<(), (Buffer, usize)> {
        // Small pieces are cheaper to copy than to own.
        const OWNED_MIN: usize = 2048;
        let length = buffer.len();
        if length < OWNED_MIN || !self.owns {
            let taken = self.send_data(key, buffer.filled(), ends);
            return unsent(buffer, taken);
        }
        if self.h3.is_blocked(key) {
            return Err((buffer, 0));
        }
        self.h3.send_bytes(&mut self.transport, key, Bytes::from_owner(buffer), ends);
        Ok(())
    }

    fn is_blocked(&mut self, key: RequestKey) -> bool {
        self.h3.is_blocked(key)
    }

    fn send_static(&mut self, key: RequestKey, data: &'static [u8], ends: bool) -> usize {
        if self.h3.is_blocked(key) {
            return 0;
        }
        self.h3.send_bytes(&mut self.transport, key, Bytes::from_static(data), ends);
        data.len()
    }

    fn send_trailers(&mut self, key: RequestKey, trailers: &Head) {
        self.h3.send_trailers(&mut self.transport, key, trailers);
    }

    fn next_writable(&mut self) -> Option<RequestKey> {
        self.h3.next_writable()
    }

    fn takes_heads(&self) -> bool {
        self.h3.takes_heads()
    }
}

impl<T: StreamTransport> RequestEngine for H3Engine<T> {
    fn open(&mut self, head: &Head, scheme: Scheme, ends: bool) -> Option<RequestKey> {
        let opened = self.h3.open_request(&mut self.transport, head, scheme, ends);
        self.has_work = true;
        opened.ok()
    }

    fn takes_upgrades(&self) -> bool {
        self.h3.peer().connect_protocol
    }

    fn streams(&self) -> usize {
        self.h3.streams()
    }
}

impl<T: StreamTransport> Lifecycle for H3Engine<T> {
    fn ping(&mut self) {
        self.transport.connection.ping();
    }

    fn shutdown(&mut self) {
        self.h3.announce_shutdown(&mut self.transport);
        let grace = self
            .transport
            .connection
            .round_trip()
            .saturating_mul(3)
            .saturating_add(GOAWAY_MIN)
            .min(GOAWAY_MAX);
        self.shutdown_at = Some(now() + grace);
    }

    fn close(&mut self, reset: Option<Reset>) {
        self.shutdown_at = None;
        let code = reset.map_or(Code::NoError, Code::from);
        self.transport.connection.close(now(), code.number());
    }

    fn glitches(&self) -> u32 {
        self.h3.glitches()
    }

    fn is_within_head(&self) -> bool {
        self.h3.is_within_head()
    }

    fn pending(&self) -> usize {
        // A peer that has left takes nothing any more.
        if self.is_lost {
            return 0;
        }
        let TransportStreams { connection, unacknowledged, .. } = &self.transport;
        self.h3.pending() + unacknowledged.len() + connection.unsent()
    }

    fn is_ours_to_close(&self) -> bool {
        // Data that the peer has not acknowledged would be lost with the connection.
        self.h3.is_ours_to_close()
            && self.transport.unacknowledged.is_empty()
            && self.transport.connection.unsent() == 0
    }

    fn count(&mut self, counters: &Multiplexed) {
        let counts = self.h3.take_counts();
        if counts != h3::Counts::default() {
            counters.streams_total.add(counts.streams.into());
            self.counts.add(&counts);
        }
    }
}

/// Passes stream events to mailboxes, up to the next event of the connection. `payload` is the payload of an event.
///
/// # Errors
/// The peer violated the protocol, and the connection was closed.
pub(crate) fn advance<T: StreamTransport>(
    connection: &super::EngineConnection<H3Engine<T>>,
    payload: &mut Bytes,
) -> Result<Option<Notice<RequestKey>>, Violation> {
    loop {
        let next = connection.engine.borrow_mut().next(payload);
        let event = match next {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(None),
            Err(breach) => {
                connection.close(Some(Reset::from(breach.code())));
                return Err(breach);
            }
        };
        return Ok(Some(match event {
            ConnectionEvent::Head { key, end } => Notice::Head { key, end },
            ConnectionEvent::Refused => Notice::Refused,
            ConnectionEvent::GoingAway => Notice::GoingAway,
            ConnectionEvent::Settings => Notice::Settings,
            ConnectionEvent::Message => Notice::Message,
            ConnectionEvent::Data { key, end, .. } => {
                let payload = std::mem::take(payload);
                connection.put(key, &payload, end);
                continue;
            }
            ConnectionEvent::Trailers { key } => {
                connection.put_end(key, Some(Messages::head_mut(&mut *connection.engine.borrow_mut())));
                continue;
            }
            ConnectionEvent::End { key } => {
                connection.put_end(key, None);
                continue;
            }
            ConnectionEvent::Reset { key, reset, why } => {
                connection.put_reset(key, reset, why);
                continue;
            }
            ConnectionEvent::Pong => continue,
        }));
    }
}

/// The time for QUIC, as precise as the worker's clock.
pub(crate) fn now() -> Instant {
    timer::epoch() + Duration::from_micros(timer::now_us())
}
