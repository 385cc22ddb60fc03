//! What rules are run on, and what comes of it.

use std::sync::Arc;

use base::address::Family;
use sample::vars::Var;
use sample::{Env, LogOrigin, LogProfile, Session, Transaction};
use state::Process;
use state::resolvers::ResolversSection;

use crate::reply::Reply;

/// What a set of rules is run on.
pub struct Stage<'a> {
    /// The process.
    pub process: &'a Process,
    /// The client's connection.
    pub session: &'a Session,
    /// The request; `None` before there is one.
    pub transaction: Option<&'a mut Transaction>,
    /// See [`Env::request_bytes`].
    pub request_bytes: &'a [u8],
    /// See [`Env::response_bytes`].
    pub response_bytes: &'a [u8],
    /// The longest that a head may become by rewriting: what its body leaves of a buffer
    /// (`tune.bufsize`).
    pub longest_head: usize,
    /// See [`Env::sockets`].
    pub sockets: Option<&'a dyn sample::Sockets>,
    /// See [`Env::complete`].
    pub complete: bool,
    /// Whether an entry that a rule begins to track counts the request at once. Rules on content
    /// count it when they have let it pass.
    pub counts_requests: bool,
    /// Milliseconds of the monotonic clock.
    pub now_ms: u64,
}

impl Stage<'_> {
    /// The view that expressions get.
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

/// How running a set ended.
#[derive(Debug)]
pub enum RuleOutcome {
    /// All rules were looked at.
    Done,
    /// A rule let it pass: the rest of the set is not looked at.
    Accept,
    /// A condition needs bytes that are not here yet: run again from the same rule.
    Wait,
    /// Something is to be done before the next rule.
    Hold(Hold),
    /// A rule ended it.
    Final(Final),
}

/// What the caller does before it goes on.
#[derive(Debug, Clone)]
pub enum Hold {
    /// Waits for this many bytes of the body (0: for all of it), at most so long.
    Body {
        /// Bytes.
        at_least: usize,
        /// Milliseconds.
        timeout_ms: u64,
        /// Whether a large buffer holds what a usual one does not (`tune.bufsize.large`).
        in_large: bool,
    },
    /// Waits until the client's TLS handshake is over.
    Handshake,
    /// Waits so many milliseconds.
    Pause(u64),
    /// Sends these bytes, a whole interim response.
    EarlyHint(Box<[u8]>),
    /// Expects a PROXY header first (`tcp-request connection expect-proxy layer4`).
    ExpectProxy,
    /// Expects a NetScaler Client IP header first
    /// (`tcp-request connection expect-netscaler-cip layer4`).
    ExpectNetscaler,
    /// The connection is to become one of this server's, once what comes before the first request is
    /// over (`attach-srv`).
    Attach {
        /// The server.
        server: Arc<state::Server>,
        /// The name that requests ask for; empty for none.
        name: Box<[u8]>,
    },
    /// Sets the type of service of what goes to the client.
    Tos(u32),
    /// Sets the firewall mark of what goes to the client.
    Mark(u32),
    /// Writes a log line now (`do-log`).
    Log {
        /// The rule set.
        origin: LogOrigin,
        /// `profile`: instead of those of the loggers.
        profile: Option<Arc<LogProfile>>,
    },
    /// Runs a function of a script (`lua.name`).
    Script(Arc<ScriptCall>),
    /// Looks for what answers the request in a cache (`cache-use`).
    UseCache {
        /// Where.
        store: Arc<cache::Store>,
        /// Whether hints that are known may be sent.
        hints: bool,
    },
    /// Keeps the response in a cache, if that may be (`cache-store`).
    StoreInCache(Arc<cache::Store>),
    /// Sends a copy of so many requests of a hundred to another backend (`mirror`), once this one is
    /// ready to leave.
    Mirror {
        /// The backend.
        backend: Arc<state::Proxy>,
        /// The share of requests.
        percent: u8,
    },
    /// Sends messages to an agent and waits for its answer (`send-spoe-group`): the number of what is
    /// sent among those of the rule's proxy.
    SendSpoeGroup(usize),
    /// Finds the address of a name and puts it into a variable (`do-resolve`).
    Resolve {
        /// Whose name servers are asked.
        section: Arc<ResolversSection>,
        /// The host.
        name: Box<str>,
        /// The family that is asked for first.
        prefer: Option<Family>,
        /// Where the address goes; it stays as it is when there is none.
        var: Var,
    },
}

/// A function of a script, and the words behind its name.
#[derive(Debug)]
pub struct ScriptCall {
    /// The function.
    pub function: Arc<dyn sample::script::Function>,
    /// The words.
    pub words: Vec<Box<str>>,
    /// How logs name it.
    pub shown: &'static str,
}

/// A service that answers requests (`use-service`).
#[derive(Debug, Clone)]
pub enum Service {
    /// A function of a script.
    Script(Arc<ScriptCall>),
    /// `prometheus-exporter`.
    PrometheusExporter,
}

/// What a stream of TCP goes on as (`switch-mode http [proto <name>]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spoken {
    /// HTTP/2 where its preface is found, else HTTP/1.
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
    /// Refused, with this answer.
    Deny(Arc<Reply>),
    /// Refused after `timeout tarpit`.
    Tarpit(Arc<Reply>),
    /// Answered (`return`, `redirect`, `auth`).
    Reply(Arc<Reply>),
    /// Closed without an answer.
    Reject,
    /// The connection to the server is closed (`tcp-response content close`).
    CloseServer,
    /// Dropped so that the client does not learn of it.
    SilentDrop {
        /// The TTL of the reset that is sent, if one is.
        rst_ttl: Option<u8>,
    },
    /// Answered by a service (`use-service`).
    Service(Service),
    /// The stream goes on in HTTP mode (`switch-mode http`).
    SwitchMode(Spoken),
    /// A rewrite failed under `strict-mode on`.
    Internal,
}
