//! One HTTP/3 connection over the streams of a transport, for both sides (RFC 9114).
//!
//! The caller owns the transport, the bodies and the clock. After the transport made progress, the caller passes its reports to
//! [`Connection::opened`], [`readable`](Connection::readable), [`writable`](Connection::writable) and
//! [`stopped`](Connection::stopped), which only note them, and then calls [`Connection::next`] until that returns no more events,
//! and [`Connection::next_writable`] in a loop. Files: `read` parses request streams, `sections` processes their messages, `unis`
//! reads unidirectional streams, `control` processes control frames, `own` writes our unidirectional streams, `send` writes
//! messages, `life` ends streams and the connection, `hq` reads HTTP/0.9.

mod control;
mod hq;
mod life;
mod own;
mod read;
mod sections;
mod send;
mod unis;

use std::collections::VecDeque;
use std::sync::Arc;

use http::Head;

use crate::counts::Counts;
use crate::event::H3Event;
use crate::fault::{self, Violation};
use crate::limits::{self, Config, PeerUsage};
use crate::priority::EarlyPriorities;
use crate::qpack::{QpackDecoder, QpackEncoder};
use crate::settings::PeerSettings;
use crate::stream::{
    BLOCKED, FLUSHABLE, FREE, KNOWN, LOCAL_ENDED, PAUSED, READ_DONE, READY, RELEASED, REMOTE_ENDED, RESET,
    RequestKey, StreamTable, WRITE_DONE,
};
use crate::transport::Streams;
use crate::varint;
use fields::Role;
use own::OwnStreams;
use unis::PeerStreams;

/// The reason why no request can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The limit of the peer or the configuration is reached.
    Full,
    /// The connection is shutting down: a new one is needed.
    Ending,
}

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestState {
    /// The ID of its stream.
    pub id: u64,
    /// Whether the peer's message is complete.
    pub is_received: bool,
    /// Whether our message is complete.
    pub is_sent: bool,
    /// Bytes passed to the caller but not consumed.
    pub held: usize,
    /// Bytes of our message that the transport did not take yet.
    pub queued: usize,
}

/// An HTTP/3 connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    peer: PeerSettings,
    decoder: QpackDecoder,
    encoder: QpackEncoder,
    /// The message of the last event; `None` while the connection is idle.
    head: Option<Box<Head>>,
    requests: StreamTable,
    own: OwnStreams,
    peers: PeerStreams,
    /// Bidirectional streams opened by the peer that were not looked at yet.
    arrivals: VecDeque<u64>,
    /// Slots of streams to read.
    ready: VecDeque<u32>,
    /// Slots of streams that the transport reported as writable.
    flushable: VecDeque<u32>,
    /// Slots of streams that the caller may continue.
    writable: VecDeque<u32>,
    /// Streams that the peer asked us to stop, with its codes.
    stops: VecDeque<(u64, u64)>,
    /// Priorities that arrived before their streams.
    early: Option<Box<EarlyPriorities>>,
    used: PeerUsage,
    counts: Counts,
    /// A message being encoded.
    scratch: Vec<u8>,
    /// Bytes of heads and frame headers that the transport did not take yet.
    unsent: usize,
    /// Bytes of payload that it did not take yet.
    unsent_payload: usize,
    /// Bytes of unfinished field sections.
    sections: usize,
    /// The number of streams that wait for the dynamic table.
    blocked: u32,
    /// The number of requests opened.
    total: u32,
    /// The lowest ID that no request of the peer has reached yet.
    next_id: u64,
    /// Whether a GOAWAY that excludes no request was sent.
    is_announced: bool,
    /// The ID in our GOAWAY: requests from this one on are rejected.
    going: Option<u64>,
    /// The ID in the peer's GOAWAY.
    peer_going: Option<u64>,
    /// Requests from this ID on have yet to be reported as reset.
    cut: Option<u64>,
    /// The peer's MAX_PUSH_ID.
    max_push: Option<u64>,
    /// Whether the transport permits no further request for now.
    is_exhausted: bool,
    /// Whether glitches may end the connection.
    is_busy: bool,
    /// Whether the client uses HTTP/0.9 (`hq-interop`).
    is_hq: bool,
    closed: Option<Violation>,
}

impl Connection {
    /// Creates a connection. Nothing is sent before [`Connection::start`].
    #[must_use]
    pub fn new(role: Role, config: &Arc<Config>) -> Connection {
        Connection {
            role,
            peer: PeerSettings::default(),
            decoder: match role {
                Role::Server => QpackDecoder::new(config.table_capacity),
                Role::Client => QpackDecoder::of_server(config.table_capacity),
            },
            encoder: QpackEncoder::new(config.huffman),
            head: None,
            requests: StreamTable::new(),
            own: OwnStreams::new(role, config),
            peers: PeerStreams::default(),
            arrivals: VecDeque::new(),
            ready: VecDeque::new(),
            flushable: VecDeque::new(),
            writable: VecDeque::new(),
            stops: VecDeque::new(),
            early: None,
            used: PeerUsage::default(),
            counts: Counts::default(),
            scratch: Vec::new(),
            unsent: 0,
            unsent_payload: 0,
            sections: 0,
            blocked: 0,
            total: 0,
            next_id: 0,
            is_announced: false,
            going: None,
            peer_going: None,
            cut: None,
            max_push: None,
            is_exhausted: false,
            is_busy: true,
            is_hq: false,
            closed: None,
            config: Arc::clone(config),
        }
    }

    /// Opens the control stream and sends SETTINGS. If the transport permits no stream yet, [`Connection::next`] tries again.
    pub fn start(&mut self, streams: &mut impl Streams) {
        if let Err(violation) = self.flush_own(streams) {
            self.fail(violation);
        }
    }

    /// Writes to our unidirectional streams, opening them first.
    fn flush_own(&mut self, streams: &mut impl Streams) -> Result<(), Violation> {
        if self.is_hq { Ok(()) } else { self.own.flush(streams) }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Starts a turn: resets the per-turn limits. `busy` enables ending connections that reach their glitches threshold
    /// (`tune.glitches.kill.cpu-usage`).
    pub fn begin_turn(&mut self, busy: bool) {
        self.is_busy = busy;
        self.used.begin_turn();
    }

    /// Called when the transport has received `count` frames without data in a turn, beyond a plain number.
    pub fn overhead(&mut self, count: u32) {
        fault::OVERHEAD.note();
        self.glitch();
        if self.used.waste(count) {
            self.end_flood();
        }
    }

    /// Called when the peer's frames make the transport keep more data than it can send: the connection is closed.
    fn end_flood(&mut self) {
        if self.closed.is_none() {
            self.fail(Violation::Flood);
        }
    }

    /// Called when the peer opened a stream.
    pub fn opened(&mut self, id: u64) {
        if self.closed.is_some() {
        } else if is_uni(id) {
            self.peers.open(id);
        } else {
            self.arrivals.push_back(id);
        }
    }

    /// Called when a stream has more to read: bytes, its end or a reset.
    pub fn readable(&mut self, id: u64) {
        if is_uni(id) {
            return self.peers.wake(id);
        }
        if let Some(slot) = self.requests.find(id)
            && !self.requests.at(slot).has(PAUSED | BLOCKED)
        {
            self.make_ready(slot);
        }
    }

    /// Called when a stream accepts more bytes.
    pub fn writable(&mut self, id: u64) {
        if is_uni(id) {
            return self.own.wake();
        }
        let Some(slot) = self.requests.find(id) else { return };
        let stream = self.requests.at(slot);
        if !stream.has(FLUSHABLE | WRITE_DONE) {
            stream.flags |= FLUSHABLE;
            self.flushable.push_back(slot);
        }
    }

    /// Called when the peer asked us to stop sending on a stream (STOP_SENDING).
    pub fn stopped(&mut self, id: u64, code: u64) {
        let is_ours = self.own.has(id);
        let is_request = self.requests.find(id).is_some() || self.has_arrived(id);
        if is_ours || (is_request && !self.stops.iter().any(|stop| stop.0 == id)) {
            self.stops.push_back((id, code));
        }
    }

    /// Called when the transport permits further streams after it refused one.
    pub fn available(&mut self) {
        self.is_exhausted = false;
        self.own.wake();
    }

    /// Counts the code of a closed transport connection, unless it is that of a [`Violation`], which is counted already.
    pub fn closed_with(&mut self, code: u64) {
        self.counts.note(crate::Code::from_number(code));
    }

    /// Reads streams up to the next event, and writes bytes that earlier calls had to keep. Call until it returns `None`.
    ///
    /// # Errors
    /// The connection must be closed with the code of the violation. All further calls return the same error.
    pub fn next(&mut self, streams: &mut impl Streams) -> Result<Option<H3Event>, Violation> {
        if let Some(violation) = self.closed {
            return Err(violation);
        }
        self.advance(streams).map_err(|violation| self.fail(violation))
    }

    fn advance(&mut self, streams: &mut impl Streams) -> Result<Option<H3Event>, Violation> {
        loop {
            self.judge_glitches(streams)?;
            self.flush_own(streams)?;
            self.flush_requests(streams);
            let event = match self.next_stop(streams)?.or_else(|| self.next_cut(streams)) {
                Some(event) => Some(event),
                None => self.read_unis(streams)?,
            };
            if event.is_some() {
                return Ok(event);
            }
            if let Some(id) = self.next_arrival() {
                if let Some(event) = self.arrive(id, streams)? {
                    return Ok(Some(event));
                }
                continue;
            }
            let Some(slot) = self.next_ready() else { break };
            if let Some(event) = self.read_request(slot, streams)? {
                return Ok(Some(event));
            }
        }
        self.flush_own(streams)?;
        Ok(None)
    }

    /// Whether the peer has opened this stream, and it was not looked at yet. Streams arrive in order.
    pub(super) fn has_arrived(&self, id: u64) -> bool {
        self.arrivals.binary_search(&id).is_ok()
    }

    fn next_arrival(&mut self) -> Option<u64> {
        if self.must_wait() { None } else { self.arrivals.pop_front() }
    }

    /// The next stream to read.
    fn next_ready(&mut self) -> Option<u32> {
        if self.must_wait() {
            return None;
        }
        let slot = self.ready.pop_front()?;
        self.requests.at(slot).flags &= !READY;
        Some(slot)
    }

    /// Whether request streams are not read, since the client does not read the responses that they trigger.
    fn must_wait(&self) -> bool {
        self.role == Role::Server && !self.takes_heads()
    }

    fn make_ready(&mut self, slot: u32) {
        let stream = self.requests.at(slot);
        if stream.id != FREE && !stream.has(READY | READ_DONE | RESET) {
            stream.flags |= READY;
            self.ready.push_back(slot);
        }
    }

    /// Whether the transport keeps up with heads. [`Connection::open_request`] and [`Connection::send_head`] accept them
    /// regardless. If the peer controls their number (interim responses, requests to a server that stopped reading), the caller
    /// must wait.
    #[inline]
    #[must_use]
    pub fn takes_heads(&self) -> bool {
        self.unsent < limits::HEADS
    }

    /// Whether part of a head has been received.
    #[must_use]
    pub fn is_within_head(&self) -> bool {
        self.requests.iter().any(crate::stream::RequestStream::is_within_head)
    }

    /// The head or trailers of the last event, for swapping with the caller's own.
    pub fn head_mut(&mut self) -> &mut Head {
        self.head.get_or_insert_default()
    }

    /// The number of bytes that the transport did not take yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.unsent + self.unsent_payload + if self.is_hq { 0 } else { self.own.pending() }
    }

    /// The number of requests that the caller knows and did not release yet.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.requests.iter().filter(|stream| stream.flags & (KNOWN | RELEASED) == KNOWN).count()
    }

    /// The keys of these requests, the oldest first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = RequestKey> {
        let is_known = |key: &RequestKey| {
            self.requests.get(*key).is_some_and(|stream| stream.flags & (KNOWN | RELEASED) == KNOWN)
        };
        self.requests.keys().filter(is_known)
    }

    /// Returns the state of these requests, the oldest first, for the runtime socket.
    pub fn request_states(&self) -> impl Iterator<Item = RequestState> {
        self.keys().filter_map(|key| self.requests.get(key)).map(|stream| RequestState {
            id: stream.id,
            is_received: stream.has(REMOTE_ENDED | READ_DONE),
            is_sent: stream.has(LOCAL_ENDED | RESET),
            held: stream.held,
            queued: stream.queued(),
        })
    }

    /// The peer's settings.
    #[must_use]
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// Whether the peer's settings have arrived.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.peers.control.is_settled
    }

    /// `fc_glitches`, `bc_glitches`.
    #[must_use]
    pub fn glitches(&self) -> u32 {
        self.used.glitches
    }

    /// Takes the statistics since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Frees memory that an idle connection does not need, and allocates it again on use: for connections that are about to be idle
    /// for long.
    pub fn shrink(&mut self) {
        self.head = None;
        self.early = None;
        self.scratch = Vec::new();
        self.decoder.shrink();
        self.encoder.shrink();
        self.requests.shrink();
        self.peers.shrink();
        self.own.shrink();
        for queue in [&mut self.ready, &mut self.flushable, &mut self.writable] {
            queue.shrink_to_fit();
        }
        self.arrivals.shrink_to_fit();
        self.stops.shrink_to_fit();
    }

    /// Heap memory in bytes, without the header tables, the head and bytes of the transport.
    #[must_use]
    pub fn heap(&self) -> usize {
        let queues = [&self.ready, &self.flushable, &self.writable];
        self.requests.heap()
            + self.own.heap()
            + self.peers.heap()
            + self.scratch.capacity()
            + queues.iter().map(|queue| queue.capacity() * size_of::<u32>()).sum::<usize>()
            + self.arrivals.capacity() * size_of::<u64>()
            + self.stops.capacity() * size_of::<(u64, u64)>()
    }

    /// The number of body bytes that the caller has not consumed yet.
    #[must_use]
    pub fn held(&self, key: RequestKey) -> usize {
        self.requests.get(key).map_or(0, |stream| stream.held)
    }

    /// Whether our message on that stream is complete, or cannot be completed any more.
    #[must_use]
    pub fn is_sent(&self, key: RequestKey) -> bool {
        self.requests.get(key).is_none_or(|stream| stream.has(LOCAL_ENDED | RESET))
    }

    /// Panics if redundant state is inconsistent.
    #[cfg(any(test, debug_assertions))]
    pub fn check_invariants(&mut self) {
        use crate::stream::{HEAD_RECEIVED, WRITABLE};
        let keys: Vec<RequestKey> = self.requests.keys().collect();
        assert!(keys.is_sorted_by_key(|key| key.id));
        let (mut unsent, mut payload, mut sections, mut blocked) = (0, 0, 0, 0);
        for key in keys {
            let stream = self.requests.at(key.slot);
            assert_eq!(stream.id, key.id);
            assert!(stream.queued() == 0 || !stream.has(WRITE_DONE | RESET));
            assert!(stream.has(HEAD_RECEIVED) || stream.held == 0);
            unsent += stream.output.len();
            payload += stream.payload.len();
            sections += stream.section.len();
            blocked += u32::from(stream.has(BLOCKED));
            let flags = stream.flags;
            for (flag, queue) in
                [(READY, &self.ready), (FLUSHABLE, &self.flushable), (WRITABLE, &self.writable)]
            {
                let count = queue.iter().filter(|slot| **slot == key.slot).count();
                assert_eq!(count, usize::from(flags & flag != 0), "{flags:b}");
            }
        }
        assert_eq!((unsent, payload), (self.unsent, self.unsent_payload));
        assert_eq!((sections, blocked), (self.sections, self.blocked));
    }
}

/// Whether a stream is unidirectional (RFC 9000 section 2.1).
fn is_uni(id: u64) -> bool {
    id & 2 != 0
}

/// Whether requests can use this stream: a bidirectional one opened by the client.
fn is_request(id: u64) -> bool {
    id & 3 == 0
}

/// The highest ID of a request.
const REQUEST_MAX: u64 = varint::MAX & !3;
