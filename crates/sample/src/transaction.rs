//! A request with its response, or a TCP stream, as data: expressions read it, rules change it, and logs report it.
//!
//! The data is reused for the next request on a connection: [`Transaction::reset`] keeps the memory.

use runtime::Local;
use std::cell::RefCell;
use std::sync::Arc;

use http::Head;
use state::{FaultCause, Server};

use crate::bandwidth::BandwidthLimit;
use crate::request_trace::RequestTrace;
use crate::session::Endpoint;
use crate::slots::Slots;
use crate::tracked::Trackers;

/// The cause of the stream's end: the first letter of the termination state (configuration manual, 8.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Cause {
    /// Normal end.
    #[default]
    None = b'-',
    /// The client aborted.
    Client = b'C',
    /// The server aborted or refused.
    Server = b'S',
    /// The proxy ended the stream, because of a rule, an invalid message or a limit.
    Proxy = b'P',
    /// The proxy itself answered (redirect, return, statistics).
    Local = b'L',
    /// A resource was exhausted.
    Resource = b'R',
    /// An internal error.
    Internal = b'I',
    /// The server went down, and `on-marked-down shutdown-sessions` ended the stream.
    Down = b'D',
    /// The active servers came up, and `on-marked-up` ended this stream at a backup server.
    Up = b'U',
    /// An administrator ended the stream.
    Killed = b'K',
    /// The client timed out.
    ClientTimeout = b'c',
    /// The server timed out.
    ServerTimeout = b's',
}

/// The phase at the stream's end: the second letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Phase {
    /// After the end of the transfer.
    #[default]
    None = b'-',
    /// Waiting for a whole request.
    Request = b'R',
    /// Waiting in a queue.
    Queue = b'Q',
    /// Connecting to the server.
    Connect = b'C',
    /// Waiting for response headers.
    Headers = b'H',
    /// Transferring data.
    Data = b'D',
    /// Sending the last data to the client.
    Last = b'L',
    /// Held in a tarpit.
    Tarpit = b'T',
}

/// The termination state: cause, phase, and the two letters about cookies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Termination {
    /// The cause.
    pub cause: Cause,
    /// The phase.
    pub phase: Phase,
    /// The client's cookie: `N I D V E O U` or `-`.
    pub cookie: u8,
    /// The change to the response's cookie: `N I U P R D` or `-`.
    pub set_cookie: u8,
}

impl Default for Termination {
    fn default() -> Self {
        Self { cause: Cause::None, phase: Phase::None, cookie: b'-', set_cookie: b'-' }
    }
}

impl Termination {
    /// Sets the cause if none is set yet, so that consequences do not overwrite the first cause.
    pub fn set(&mut self, cause: Cause, phase: Phase) {
        if self.cause == Cause::None {
            self.cause = cause;
            self.phase = phase;
        }
    }
}

/// Timestamps of a stream in µs of the monotonic clock, 0 for "not reached".
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// When the stream began to wait for its request: at accept for the first request, at the end of the previous one for others.
    pub idle_from: u64,
    /// When the first byte of the request arrived.
    pub started: u64,
    /// `started` as wall-clock time, in µs since the UNIX epoch: the date in logs.
    pub started_wall: u64,
    /// When the request head was complete.
    pub request: u64,
    /// When the request left the queue.
    pub queued: u64,
    /// When the server connection was established.
    pub connected: u64,
    /// When the response head was complete.
    pub response: u64,
    /// When the last byte was forwarded.
    pub closed: u64,
    /// When the response must have begun, on the worker's clock in ms (`set-timeout request`); 0 for no limit.
    pub deadline_ms: u64,
}

/// A part of the request line or of a head that is kept for the logs, as a range of [`Transaction::kept`].
pub type LoggedPart = Option<(u32, u32)>;

/// A slot for a captured value, in the request or the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureSlot {
    /// A slot of the request.
    Request(usize),
    /// A slot of the response.
    Response(usize),
}

impl CaptureSlot {
    /// The maximum length of the slot's value, or `None` if the frontend has no such slot.
    pub fn length(self, frontend: &state::Proxy) -> Option<usize> {
        let lengths = frontend.capture_lengths.load();
        let [requests, responses] = &**lengths.as_ref()?;
        match self {
            Self::Request(index) => requests.get(index).copied(),
            Self::Response(index) => responses.get(index).copied(),
        }
    }
}

/// A stream of a multiplexed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamFacts {
    /// The major version of HTTP; 1 for other protocols.
    pub major: u8,
    /// The stream's number.
    pub id: u64,
    /// The number of streams open on its connection.
    pub open: u32,
    /// The negotiated maximum of open streams.
    pub most: u32,
    /// The code of the peer's reset, if any.
    pub reset: Option<u64>,
}

/// The outcome of `hedge` for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hedged {
    /// Only one server was used.
    #[default]
    No,
    /// Two servers were used; the first responded, or neither did.
    First,
    /// Two servers were used; the second responded.
    Second,
}

/// One request and its response, or one TCP stream.
#[derive(Debug)]
pub struct Transaction {
    /// The request head. In TCP mode, the part of it that was parsed.
    pub request: Head,
    /// The response head; empty until it arrives.
    pub response: Head,
    /// Whether this is an HTTP transaction.
    pub is_http: bool,
    /// In TCP mode: whether the first bytes are an HTTP request.
    pub first_bytes: FirstBytes,
    /// Whether there is a response head, from the server or created by a rule.
    pub has_response: bool,
    /// The backend, after it was chosen.
    pub backend: Option<Local<state::Proxy>>,
    /// The server, after it was chosen.
    pub server: Option<Local<Server>>,
    /// The local and the remote address of the server connection (`bc_src`, `bc_dst`).
    pub server_ends: Option<(Endpoint, Endpoint)>,
    /// The remote address of the last connection attempt, unless it succeeded.
    pub server_target: Option<Endpoint>,
    /// The compression algorithm of the response, by its configuration name.
    pub compressed: Option<&'static str>,
    /// The cache store from which the response came.
    pub cache: Option<Arc<cache::Store>>,
    /// TLS details of the server connection, even if its handshake failed.
    pub server_tls: Option<Arc<tls::Details>>,
    /// The tracked stick table entries.
    pub trackers: Trackers,
    /// Bandwidth limits enabled by rules.
    pub bandwidth: Vec<BandwidthLimit>,
    /// The stream on the client's connection, if that is multiplexed.
    pub client_stream: Option<StreamFacts>,
    /// The stream on the server's connection, if that is multiplexed.
    pub server_stream: Option<StreamFacts>,
    /// The number of requests sent over the server connection, including this one.
    pub server_uses: u32,
    /// Tolerated protocol violations on the server connection (`bc_glitches`).
    pub server_glitches: u32,
    /// The error of the last connection attempt to a server.
    pub server_error: crate::socket::ConnectionError,
    /// Timestamps.
    pub times: Times,
    /// The termination state.
    pub termination: Termination,
    /// The events of the layers at the end (`term_events`).
    pub ending: crate::ending::Ending,
    /// Why the stream ended abnormally (`fault`).
    pub fault: Option<FaultCause>,
    /// The name that a `use_backend` rule computed, if no backend has it.
    pub unknown_backend: Option<Box<str>>,
    /// The status sent to the client, 0 for none.
    pub status: u16,
    /// The status that the server sent, 0 for none.
    pub server_status: u16,
    /// Bytes received from the client and from the server, including heads (`%U`; `%B` is the number of bytes sent to the client).
    pub bytes_in: u64,
    /// Bytes sent to the client.
    pub bytes_out: u64,
    /// The number of retries (`%rc`).
    pub retries: u32,
    /// Whether a redispatch happened (the `+` of `%rc`).
    pub redispatched: bool,
    /// Whether a second server was tried while the first was silent (`hedge`).
    pub hedged: Hedged,
    /// The name logged instead of a server if an internal service responded.
    pub service: Option<&'static str>,
    /// Requests before this one in the server's queue (`%sq`).
    pub server_queue: u32,
    /// Requests before this one in the backend's queue (`%bq`).
    pub backend_queue: u32,
    /// Bytes kept for the logs: the request line as received, captures, the unique ID.
    pub kept: Vec<u8>,
    /// The request's method, target and version as received (one range: the request line without CRLF).
    pub request_line: LoggedPart,
    /// `capture request header` and `http-request capture`, one entry per slot.
    pub request_captures: Vec<LoggedPart>,
    /// `capture response header`, one entry per slot.
    pub response_captures: Vec<LoggedPart>,
    /// Values captured by converters, which only have shared access to the transaction. The last value of a slot is used.
    pub late_captures: RefCell<Vec<(CaptureSlot, Box<[u8]>)>>,
    /// `capture cookie`: from the client, from the server.
    pub cookie_captures: [LoggedPart; 2],
    /// The unique ID, once generated.
    pub unique_id: LoggedPart,
    /// The unique ID, if a rule used it before the request was sent.
    pub early_id: crate::early_id::EarlyId,
    /// Variables in the `txn` scope.
    pub txn_vars: Slots,
    /// Variables in the `req` scope.
    pub req_vars: Slots,
    /// Variables in the `res` scope.
    pub res_vars: Slots,
    /// The log level that a rule has set; `Some(None)` for silent.
    pub log_level: Option<Option<u8>>,
    /// The rule that ended the evaluation: its file and line (`last_rule_file`, `last_rule_line`).
    pub last_rule: Option<(&'static str, u32)>,
    /// The rule for which the stream waits (`waiting_entity`). It remains set if the wait ends in an error.
    pub waiting_rule: Option<(&'static str, u32)>,
    /// `set-priority-class`, and `set-priority-offset` in ms.
    pub priority: (i32, i32),
    /// Timeouts changed by `set-timeout`, in ms: client, server, tunnel, connect, queue, tarpit.
    pub timeouts: [Option<u32>; 6],
    /// `set-retries`.
    pub max_retries: Option<u32>,
    /// The source address, if `set-src` changed it on this stream.
    pub source: Option<Endpoint>,
    /// The destination address, if changed by `set-dst`.
    pub destination: Option<Endpoint>,
    /// The firewall mark of the server connection (`set-bc-mark`).
    pub server_mark: Option<u32>,
    /// The type of service of the server connection (`set-bc-tos`).
    pub server_tos: Option<u32>,
    /// Whether the request must not be sent twice (`disable-l7-retry`).
    pub no_replay: bool,
    /// Whether the client uses Weir as a forward proxy (`option http-use-proxy-header`, absolute targets).
    pub to_proxy: bool,
    /// The trace context, if the frontend has `trace-to`.
    pub trace: Option<Box<RequestTrace>>,
    /// Process-wide number of the stream (`%rt`).
    pub id: u64,
    /// Whether the log line is written before the end of the transfer. Counters and times are then prefixed with `+`.
    pub logged_early: bool,
}

/// Indexes of [`Transaction::timeouts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum TimeoutSlot {
    Client,
    Server,
    Tunnel,
    Connect,
    Queue,
    Tarpit,
}

/// The state of a TCP stream's first bytes, while content rules inspect them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstBytes {
    /// Not inspected, or not HTTP.
    #[default]
    Foreign,
    /// Possibly the start of a request head.
    Begun,
    /// A request head.
    Request,
}

impl Default for Transaction {
    fn default() -> Self {
        Self {
            request: Head::new(),
            response: Head::new(),
            is_http: false,
            first_bytes: FirstBytes::default(),
            has_response: false,
            backend: None,
            server: None,
            server_ends: None,
            server_target: None,
            server_tls: None,
            trackers: Trackers::default(),
            bandwidth: Vec::new(),
            compressed: None,
            cache: None,
            client_stream: None,
            server_stream: None,
            server_uses: 0,
            server_glitches: 0,
            server_error: Default::default(),
            times: Times::default(),
            termination: Termination::default(),
            ending: Default::default(),
            fault: None,
            unknown_backend: None,
            status: 0,
            server_status: 0,
            bytes_in: 0,
            bytes_out: 0,
            retries: 0,
            redispatched: false,
            hedged: Hedged::No,
            service: None,
            server_queue: 0,
            backend_queue: 0,
            kept: Vec::new(),
            request_line: None,
            request_captures: Vec::new(),
            response_captures: Vec::new(),
            late_captures: RefCell::default(),
            cookie_captures: [None; 2],
            unique_id: None,
            early_id: Default::default(),
            txn_vars: Slots::default(),
            req_vars: Slots::default(),
            res_vars: Slots::default(),
            log_level: None,
            last_rule: None,
            waiting_rule: None,
            priority: (0, 0),
            timeouts: [None; 6],
            max_retries: None,
            source: None,
            destination: None,
            server_mark: None,
            server_tos: None,
            no_replay: false,
            to_proxy: false,
            trace: None,
            id: 0,
            logged_early: false,
        }
    }
}

impl Transaction {
    /// Parses all that the client of a TCP stream has sent so far as an HTTP request, for request fetches of content rules.
    pub fn look_at(&mut self, bytes: &[u8]) {
        if self.is_http || self.first_bytes == FirstBytes::Request {
            return;
        }
        let may_be = bytes.first().is_none_or(|first| first.is_ascii_uppercase());
        self.first_bytes = match may_be {
            true => match http::parse_request(bytes, &mut self.request, &http::ParseOptions::default()) {
                Ok(http::ParseStatus::Complete { .. }) => FirstBytes::Request,
                Ok(_) => FirstBytes::Begun,
                Err(_) => FirstBytes::Foreign,
            },
            false => FirstBytes::Foreign,
        };
    }

    /// Called after the stream's first bytes were forwarded.
    pub fn look_away(&mut self) {
        if !self.is_http {
            self.first_bytes = FirstBytes::default();
            self.request.clear();
        }
    }

    /// Resets the transaction for the next request; the memory is kept.
    pub fn reset(&mut self) {
        // Every field is listed, so that the compiler reports a missing one.
        let Self {
            request,
            response,
            is_http,
            first_bytes,
            has_response,
            backend,
            server,
            server_ends,
            server_target,
            server_tls,
            trackers,
            bandwidth,
            compressed,
            cache,
            client_stream,
            server_stream,
            server_uses,
            server_glitches,
            server_error,
            waiting_rule,
            times,
            termination,
            ending,
            fault,
            unknown_backend,
            status,
            server_status,
            bytes_in,
            bytes_out,
            retries,
            redispatched,
            hedged,
            service,
            server_queue,
            backend_queue,
            kept,
            request_line,
            request_captures,
            response_captures,
            late_captures,
            cookie_captures,
            unique_id,
            early_id,
            txn_vars,
            req_vars,
            res_vars,
            log_level,
            last_rule,
            priority,
            timeouts,
            max_retries,
            source,
            destination,
            server_mark,
            server_tos,
            no_replay,
            to_proxy,
            trace,
            id,
            logged_early,
        } = self;
        request.clear();
        response.clear();
        trackers.end();
        bandwidth.clear();
        *is_http = false;
        *first_bytes = FirstBytes::default();
        *has_response = false;
        *backend = None;
        *server = None;
        *server_ends = None;
        *server_target = None;
        *server_tls = None;
        *compressed = None;
        *cache = None;
        *client_stream = None;
        *server_stream = None;
        *server_uses = 0;
        *server_glitches = 0;
        *server_error = Default::default();
        *waiting_rule = None;
        *times = Times::default();
        *termination = Termination::default();
        *ending = Default::default();
        *fault = None;
        *unknown_backend = None;
        *status = 0;
        *server_status = 0;
        *bytes_in = 0;
        *bytes_out = 0;
        *retries = 0;
        *redispatched = false;
        *hedged = Hedged::No;
        *service = None;
        *server_queue = 0;
        *backend_queue = 0;
        kept.clear();
        *request_line = None;
        request_captures.clear();
        response_captures.clear();
        late_captures.get_mut().clear();
        *cookie_captures = [None; 2];
        *unique_id = None;
        early_id.take();
        txn_vars.clear();
        req_vars.clear();
        res_vars.clear();
        *log_level = None;
        *last_rule = None;
        *priority = (0, 0);
        *timeouts = [None; 6];
        *max_retries = None;
        *source = None;
        *destination = None;
        *server_mark = None;
        *server_tos = None;
        *no_replay = false;
        *to_proxy = false;
        *trace = None;
        *id = 0;
        *logged_early = false;
    }

    /// Stores `bytes` for the logs.
    pub fn keep(&mut self, bytes: &[u8]) -> LoggedPart {
        let start = self.kept.len() as u32;
        self.kept.extend_from_slice(bytes);
        Some((start, self.kept.len() as u32))
    }

    /// The bytes of a kept part.
    pub fn kept(&self, part: LoggedPart) -> Option<&[u8]> {
        part.and_then(|(start, end)| self.kept.get(start as usize..end as usize))
    }
}
