//! The input for evaluating a rule set, and the outcome.

use std::sync::Arc;

use base::address::Family;
use sample::vars::Var;
use sample::{Env, LogOrigin, LogProfile, Session, Transaction};
use state::Process;
use state::resolvers::ResolversSection;

use crate::reply::Reply;

/// The input of a rule set's evaluation.
pub struct Stage<'a> {
    /// The process.
    pub process: &'a Process,
    /// The client connection.
    pub session: &'a Session,
    /// The request, or `None` before a request exists.
    pub transaction: Option<&'a mut Transaction>,
    /// See [`Env::request_bytes`].
    pub request_bytes: &'a [u8],
    /// See [`Env::response_bytes`].
    pub response_bytes: &'a [u8],
    /// The maximum size of a head after rewriting: the part of a buffer that is not reserved for the body (`tune.bufsize`).
    pub longest_head: usize,
    /// See [`Env::sockets`].
    pub sockets: Option<&'a dyn sample::Sockets>,
    /// See [`Env::complete`].
    pub complete: bool,
    /// Whether an entry counts the request as soon as a rule tracks it. If there are content rules, the request is counted only
    /// once they have accepted it.
    pub counts_requests: bool,
    /// The monotonic clock in milliseconds.
    pub now_ms: u64,
}

impl<'a> Stage<'a> {
    /// Returns the stage of a client without a request and without data.
    pub fn of_session(process: &'a Process, session: &'a Session, now_ms: u64) -> Self {
        Self {
            process,
            session,
            transaction: None,
            request_bytes: &[],
            response_bytes: &[],
            longest_head: usize::MAX,
            sockets: None,
            complete: true,
            counts_requests: false,
            now_ms,
        }
    }

    /// The environment for expressions.
    pub(crate) fn env(&self) -> Env<'_> {
        Env {
            session: Some(self.session),
            transaction: self.transaction.as_deref(),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            sockets: self.sockets,
            complete: self.complete,
            ..Env::new(self.process, self.now_ms)
        }
    }
}

/// The outcome of running a set.
#[derive(Debug)]
pub enum RuleOutcome {
    /// All rules were evaluated.
    Done,
    /// A rule accepted the message; the rest of the set is skipped.
    Accept,
    /// A condition needs more bytes. Run the set again from the same rule.
    Wait,
    /// The caller must do something before the next rule.
    Hold(Hold),
    /// A rule ended it.
    Final(Final),
}

/// An operation that the caller performs before continuing.
#[derive(Debug, Clone)]
pub enum Hold {
    /// Waits for this number of body bytes (0: the whole body), up to a time limit.
    Body {
        /// Bytes.
        at_least: usize,
        /// Milliseconds.
        timeout_ms: u64,
        /// Whether to use a large buffer if a regular one is too small (`tune.bufsize.large`).
        in_large: bool,
    },
    /// Waits for the end of the client's TLS handshake.
    Handshake,
    /// Pauses for this number of milliseconds.
    Pause(u64),
    /// Sends these bytes, a complete interim response.
    EarlyHint(Box<[u8]>),
    /// Expects a PROXY header first (`tcp-request connection expect-proxy layer4`).
    ExpectProxy,
    /// Expects a NetScaler Client IP header first
    /// (`tcp-request connection expect-netscaler-cip layer4`).
    ExpectNetscaler,
    /// Turns the client connection into one of this server's connections, after the preamble and before the first request
    /// (`attach-srv`).
    Attach {
        /// The server.
        server: Arc<state::Server>,
        /// The name for selecting the connection; empty for none.
        name: Box<[u8]>,
    },
    /// Sets the type of service of packets to the client.
    Tos(u32),
    /// Sets the firewall mark of packets to the client.
    Mark(u32),
    /// Writes a log line (`do-log`).
    Log {
        /// The rule set.
        origin: LogOrigin,
        /// `profile`: the profile that replaces those of the loggers.
        profile: Option<Arc<LogProfile>>,
    },
    /// Runs a script function (`lua.name`).
    Script(Arc<ScriptCall>),
    /// Looks up a response in a cache (`cache-use`).
    UseCache {
        /// The cache's store.
        store: Arc<cache::Store>,
        /// Whether known hints may be sent.
        hints: bool,
    },
    /// Stores the response in a cache, if permitted (`cache-store`).
    StoreInCache(Arc<cache::Store>),
    /// Sends copies of a percentage of the requests to another backend (`mirror`), when the request is ready to be sent.
    Mirror {
        /// The backend.
        backend: Arc<state::Proxy>,
        /// The percentage of requests.
        percent: u8,
    },
    /// Sends messages to an SPOE agent and waits for the response (`send-spoe-group`). Holds the number of the request among those
    /// of the rule's proxy.
    SendSpoeGroup(usize),
    /// Resolves a name and stores the address in a variable (`do-resolve`).
    Resolve {
        /// The section with the name servers.
        section: Arc<ResolversSection>,
        /// The host.
        name: Box<str>,
        /// The preferred address family.
        prefer: Option<Family>,
        /// The variable, which does not change if there is no address.
        var: Var,
    },
}

/// A script function with its argument words.
#[derive(Debug)]
pub struct ScriptCall {
    /// The function.
    pub function: Arc<dyn sample::script::Function>,
    /// The words.
    pub words: Vec<Box<str>>,
    /// The name in logs.
    pub shown: &'static str,
}

/// A service that responds to requests (`use-service`).
#[derive(Debug, Clone)]
pub enum Service {
    /// A script function.
    Script(Arc<ScriptCall>),
    /// `prometheus-exporter`.
    PrometheusExporter,
}

/// The protocol for a TCP stream after `switch-mode http [proto <name>]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spoken {
    /// HTTP/2 if its preface is found, otherwise HTTP/1.
    #[default]
    Found,
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// How a rule ended the message or connection.
#[derive(Debug, Clone)]
pub enum Final {
    /// Refused, with this response.
    Deny(Arc<Reply>),
    /// Refused after `timeout tarpit`.
    Tarpit(Arc<Reply>),
    /// Answered (`return`, `redirect`, `auth`).
    Reply(Arc<Reply>),
    /// Closed without a response.
    Reject,
    /// The client must validate its address first (`quic-initial send-retry`).
    SendRetry,
    /// The connection to the server is closed (`tcp-response content close`).
    CloseServer,
    /// Dropped without notifying the client.
    SilentDrop {
        /// The TTL of the reset, if one is sent.
        rst_ttl: Option<u8>,
    },
    /// Handled by a service (`use-service`).
    Service(Service),
    /// The stream continues in HTTP mode (`switch-mode http`).
    SwitchMode(Spoken),
    /// A rewrite failed under `strict-mode on`.
    Internal,
}
