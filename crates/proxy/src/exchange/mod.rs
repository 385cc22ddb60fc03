//! The state of one exchange (an HTTP request and its response, or a TCP stream) from its first byte to its log line, with its
//! views for expressions ([`view`]), logs ([`report`]) and counters ([`finish`]).

pub(crate) mod attributes;
pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod ending;
mod extra_attempt;
mod fastcgi_params;
pub(crate) mod faults;
pub(crate) mod filters;
pub(crate) mod finish;
pub(crate) mod lua;
mod mirror;
pub(crate) mod report;
mod server_choice;
pub(crate) mod sockets;
mod spoe;
pub(crate) mod trace;
pub(crate) mod tracing;
pub(crate) mod unique_id;
pub(crate) mod view;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use http::{BodyLength, Method};
use plan::Proxy;
use rules::Spoken;
use runtime::timer::now_ms;
use sample::track::{self, CountedEvent};
use sample::transaction::TimeoutSlot;
use sample::{Endpoint, Phase, Scratch, Transaction};

use crate::client::Client;
use crate::fault::Fault;
use crate::flow::{Flow, MemoryBody, Trace};
use crate::server::per_worker::LocalProxy;
use compression::Coded;
use sockets::ServerSocket;

pub(crate) use self::cache::state::{Caching, Given};
pub(crate) use extra_attempt::ExtraAttempt;
pub(crate) use fastcgi_params::FcgiParams;
pub(crate) use mirror::Mirrors;
pub(crate) use server_choice::{BoundServer, Choice, CookieServer, Dates};
pub(crate) use spoe::Engaged;

/// The state of a request in progress, without its connection. Exchanges are reused, so that in the steady state a request
/// allocates nothing.
#[derive(Default)]
pub(crate) struct Exchange {
    /// The part visible to rules and logs.
    pub(crate) txn: Transaction,
    /// The current phase, for the termination state.
    pub(crate) phase: Phase,
    /// The progress of a stream that began in TCP mode.
    pub(crate) upgrade: Upgrade,
    pub(crate) backend: Option<Rc<LocalProxy>>,
    /// The choice of the server.
    pub(crate) choice: Choice,
    /// Keys that will be stored together with the server, with the indexes of their `stick` lines.
    pub(crate) sticky: Vec<(usize, Scratch)>,
    /// The compression state, if compression is in use.
    pub(crate) coded: Option<Box<Coded>>,
    /// The trace, if a proxy has a `filter trace`.
    pub(crate) trace: Option<Rc<Trace>>,
    /// Copies for other backends (`mirror`), if a rule requests any.
    pub(crate) mirrors: Option<Box<Mirrors>>,
    /// The engines that query agents about the exchange (SPOE), if a proxy has any.
    pub(crate) engaged: Option<Box<Engaged>>,
    /// The cache state, if rules used a cache.
    pub(crate) caching: Option<Box<Caching>>,
    /// The script state, if any.
    pub(crate) scripting: Option<Box<lua::scripting::Scripting>>,
    /// The script filters, if a proxy has any.
    pub(crate) filtering: Option<Box<lua::filtering::Filtering>>,
    /// A copy of the original request, if the exchange may have to be repeated.
    pub(crate) original: Option<Box<http::Head>>,
    /// The flow from the client to the server.
    pub(crate) upload: Flow,
    /// The flow from the server to the client.
    pub(crate) download: Flow,
    pub(crate) request_body: RequestBody,
    pub(crate) response_body: ResponseBody,
    /// The body of a generated response.
    pub(crate) reply: MemoryBody,
    /// The status of the error for which a response was generated, even if another status is sent (`errorloc`, `errorfile`). 0
    /// for other responses.
    pub(crate) error_status: u16,
    /// Whether any byte of a final response was sent to the client.
    pub(crate) answered: bool,
    /// Whether the client sent HEAD, even if rules changed the method afterwards.
    pub(crate) head_only: bool,
    /// Whether the server's response turns both connections into a tunnel.
    pub(crate) is_tunnel: bool,
    /// Whether the client's connection can take another request.
    pub(crate) keep_alive: bool,
    /// Whether the server announced that it will close the connection. Recorded before Weir edits the head.
    pub(crate) server_closes: bool,
    /// Whether a rule requires that the server's connection is closed after the response.
    pub(crate) closes_server: bool,
    /// The FastCGI parameters set by rules.
    pub(crate) fastcgi: Option<Box<FcgiParams>>,
    /// The server's connection, for queries to the kernel.
    pub(crate) server_socket: ServerSocket,
    /// The bytes received from and sent to the client that were already counted.
    pub(crate) counted: (u64, u64),
    /// The current attempt beyond the first, if such attempts are limited.
    pub(crate) extra: Option<Box<ExtraAttempt>>,
    /// When the latest attempt failed, in µs, if the request was retried and attempts are counted. Not reset between requests.
    pub(crate) failed_at: u64,
}

/// The state of the request's body, without its forwarding to the server.
#[derive(Default)]
pub(crate) struct RequestBody {
    /// How the end of the received body is marked. Rules cannot change this.
    pub(crate) length: BodyLength,
    /// Whether the body arrives as bare payload, with its end marked by the stream.
    pub(crate) is_bare: bool,
    /// The buffered and decoded part that rules can see. Empty unless something needs it.
    pub(crate) seen: Vec<u8>,
    /// Whether `seen` is the whole body.
    pub(crate) is_complete: bool,
    /// Whether the client closed the connection before the body was complete.
    pub(crate) is_cut: bool,
    /// Whether the client timed out while rules waited for more.
    pub(crate) is_late: bool,
    /// When the client last sent data while rules waited for more, in ms of the worker's clock; 0 if no rule waited.
    pub(crate) heard_ms: u64,
    /// When the client ended its side while rules waited for the server, in ms of the worker's clock; 0 if it has not.
    pub(crate) ended_ms: u64,
    /// The bytes to send again in a retry.
    pub(crate) kept: Vec<u8>,
    /// Whether rules removed the body's framing, so that the body is read but not sent.
    pub(crate) is_dropped: bool,
    /// Whether the client waits for a 100 that has not been sent yet.
    pub(crate) expects_continue: bool,
}

/// The state of the response's body, without its forwarding to the client.
#[derive(Default)]
pub(crate) struct ResponseBody {
    /// How the server marks the end of the body.
    pub(crate) length: BodyLength,
    /// Whether the body arrives as bare payload, with its end marked by the stream.
    pub(crate) is_bare: bool,
    /// The beginning of the body, which rules can see.
    pub(crate) seen: Vec<u8>,
    /// Whether a rule waited after the head had arrived. If so, the arrival time of the head differs from the current time.
    pub(crate) waited: bool,
    /// Whether the server timed out while rules inspected the received bytes.
    pub(crate) is_silent: bool,
    /// When the server last sent data while rules waited for more, in ms of the worker's clock; 0 if no rule waited.
    pub(crate) heard_ms: u64,
    /// Whether the server's connection broke while rules waited for more data.
    pub(crate) is_broken: bool,
}

/// The result of the wait for a request.
pub(crate) enum Arrival {
    /// Bytes, or the end of the stream.
    Ready,
    /// Bytes that were inspected before. The first of them arrived at `since` (µs of the monotonic clock). `late` is set if no
    /// more bytes arrived in time.
    Begun {
        /// When the first byte arrived.
        since: u64,
        /// Whether the time limit has passed.
        late: bool,
    },
    /// Nothing arrived within the allowed time.
    Expired,
    /// A request on a multiplexed stream, with its head received.
    Stream(Box<Exchange>),
    /// The head is in the exchange.
    Received,
    /// A TCP stream upgraded to an HTTP request.
    Upgraded(Box<Exchange>),
}

/// How the connection continues after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for another request.
    KeepAlive,
    /// Wait for another request after discarding the rest of this one.
    Drain,
    /// Close.
    Close,
    /// Close, but first give the client time to read the response, because it is still sending.
    Linger,
}

/// How a TCP stream became an HTTP stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Upgrade {
    /// The stream has been HTTP from the beginning.
    #[default]
    None,
    /// A `tcp-request content` rule of the frontend switched to HTTP (`switch-mode`).
    ByRule(Spoken),
    /// The chosen backend is in HTTP mode.
    ByBackend,
}

/// Why a step does not continue with the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Something went wrong.
    Fault(Fault),
    /// Weir generated the response. It is in the transaction's response and in `reply`.
    Reply,
    /// A cached response answers the request.
    Cached,
    /// A script service answers the request.
    Script,
    /// The connection is closed without a response.
    Close,
    /// The stream goes on in HTTP mode.
    Upgrade(Upgrade),
    /// The connection is closed without a response and without a log line.
    Silent,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

thread_local! {
    // Boxed, so that taking one moves only a pointer.
    #[allow(clippy::vec_box)]
    static FREE: RefCell<Vec<Box<Exchange>>> = const { RefCell::new(Vec::new()) };
}

impl Exchange {
    /// Takes a clean exchange from the worker's pool.
    pub(crate) fn take() -> Box<Self> {
        FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Returns the exchange to the pool.
    pub(crate) fn give(mut self: Box<Self>) {
        self.reset();
        FREE.with_borrow_mut(|free| free.push(self));
    }

    fn reset(&mut self) {
        let Self { txn, choice, upload, download, request_body, response_body, reply, .. } = self;
        txn.reset();
        choice.reset();
        upload.start(BodyLength::None, Default::default());
        download.start(BodyLength::None, Default::default());
        request_body.reset();
        response_body.length = BodyLength::None;
        response_body.is_bare = false;
        response_body.seen.clear();
        response_body.waited = false;
        response_body.is_silent = false;
        response_body.heard_ms = 0;
        response_body.is_broken = false;
        reply.clear();
        self.phase = Phase::Request;
        self.upgrade = Upgrade::None;
        self.trace = None;
        self.engaged = None;
        self.mirrors = None;
        self.fastcgi = None;
        self.caching = None;
        self.scripting = None;
        self.filtering = None;
        self.original = None;
        self.coded = None;
        self.backend = None;
        self.error_status = 0;
        self.answered = false;
        self.head_only = false;
        self.is_tunnel = false;
        self.keep_alive = false;
        self.server_closes = false;
        self.closes_server = false;
        self.server_socket = ServerSocket::None;
        self.counted = (0, 0);
        self.extra = None;
        self.sticky.clear();
    }

    /// Counts `event` in the table entries that the request and its connection track.
    #[inline]
    pub(crate) fn note(&self, client: &Client, event: CountedEvent) {
        track::note(&client.session, &self.txn.trackers, event, now_ms());
    }

    /// Counts the request in the table entries that the request and its connection track.
    #[inline]
    pub(crate) fn note_request(&mut self, client: &Client) {
        track::note_request(&client.session, &mut self.txn.trackers, now_ms());
    }

    /// Whether the request has a body.
    pub(crate) fn has_body(&self) -> bool {
        !self.upload.is_received() || self.upload.is_blocked()
    }

    /// Whether the request can be sent again from the beginning, because none of its body was consumed or all of it was kept.
    pub(crate) fn can_rewind(&self) -> bool {
        self.upload.consumed() == 0 || !self.request_body.kept.is_empty()
    }

    /// Whether a half-close by the client ends the request (`option abortonclose`). It never ends a tunnel.
    pub(crate) fn aborts_on_close(&self, client: &Client, backend: &Proxy) -> bool {
        client.aborts_on_close(backend) && self.txn.request.method_id() != Method::Connect
    }

    /// Whether the whole request had been received when it was first sent. If so, it can be sent again, however much of it the
    /// server has read.
    pub(crate) fn is_kept(&self) -> bool {
        // The bytes after a CONNECT belong to the tunnel, and their end is not known yet.
        !self.request_body.kept.is_empty()
            || matches!(self.request_body.length, BodyLength::None | BodyLength::Length(0))
                && self.txn.request.method_id() != Method::Connect
    }

    /// Returns the timeout for `slot`: the one set by a rule, or else the configured one.
    pub(crate) fn timeout(&self, slot: TimeoutSlot, configured: Option<Duration>) -> Option<Duration> {
        let own = match self.txn.timeouts[slot as usize] {
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms.into())),
            None => configured,
        };
        let until = self.txn.times.deadline_ms;
        if until == 0 || matches!(slot, TimeoutSlot::Client | TimeoutSlot::Tarpit | TimeoutSlot::Tunnel) {
            return own;
        }
        let left = Duration::from_millis(until.saturating_sub(now_ms()));
        Some(own.map_or(left, |own| own.min(left)))
    }

    /// Whether the time for the response is over (`set-timeout request`).
    pub(crate) fn is_overdue(&self) -> bool {
        (1..=now_ms()).contains(&self.txn.times.deadline_ms)
    }

    /// Returns the client's address for this request.
    pub(crate) fn source(&self, client: &Client) -> Endpoint {
        self.txn.source.unwrap_or_else(|| client.session.source())
    }

    /// Returns the destination address for this request.
    pub(crate) fn destination(&self, client: &Client) -> Endpoint {
        self.txn.destination.unwrap_or_else(|| client.session.destination())
    }

    /// Returns the bytes of the request that expressions can see.
    pub(crate) fn request_bytes<'a>(&'a self, client: &'a Client) -> &'a [u8] {
        if self.txn.is_http { &self.request_body.seen } else { client.side.received() }
    }
}

impl RequestBody {
    /// Checks that the client did not fail while rules waited for the body.
    ///
    /// # Errors
    /// The client closed the connection, or sent nothing for too long.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match (self.is_cut, self.is_late) {
            (true, _) => Err(Fault::ClientCut),
            (false, true) => Err(Fault::ClientTimeout),
            (false, false) => Ok(()),
        }
    }

    fn reset(&mut self) {
        self.length = BodyLength::None;
        self.is_bare = false;
        self.seen.clear();
        self.is_complete = false;
        self.is_cut = false;
        self.is_late = false;
        self.heard_ms = 0;
        self.ended_ms = 0;
        self.kept.clear();
        self.is_dropped = false;
        self.expects_continue = false;
    }
}
