//! The state of the server choice for a request.

use std::net::SocketAddr;
use std::rc::Rc;

use crate::server::per_worker::LocalServer;

/// The dates of a persistence cookie, in units of four seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dates {
    /// Last use.
    pub(crate) last: Option<u64>,
    /// First use.
    pub(crate) first: Option<u64>,
}

/// The inputs for choosing and reaching the server.
#[derive(Default)]
pub(crate) struct Choice {
    /// The hash of the `balance` key.
    pub(crate) hash: Option<u32>,
    /// The server that persistence requires.
    pub(crate) bound: Option<BoundServer>,
    /// Whether `ignore-persist` applies, so that the client's cookie is neither used nor set.
    pub(crate) is_ignored: bool,
    /// When the client's cookie was set.
    pub(crate) dates: Dates,
    /// The server in the client's cookie, for the response.
    pub(crate) cookie: CookieServer,
    /// The address to connect to instead of the server's address (`dispatch`, `transparent`, `set-dst` without a server).
    pub(crate) address: Option<SocketAddr>,
    /// Whether to avoid idle connections, because the previous one turned out to be closed.
    pub(crate) fresh: bool,
    /// Bytes to send on a new connection before the head: the PROXY header.
    pub(crate) preamble: Vec<u8>,
    /// Deadline for reaching the server, in ms of the worker's clock.
    pub(crate) connect_by: u64,
    /// Whether the client sent more of its request while a server was being reached.
    pub(crate) heard_late: bool,
    /// Whether the server was informed that the request is early data.
    pub(crate) said_early: bool,
    /// Whether the request is sent to the server as early data.
    pub(crate) is_early: bool,
    /// Whether the request must not be sent as early data.
    pub(crate) never_early: bool,
    /// Whether the proxy generated the WebSocket key of the request.
    pub(crate) gave_key: bool,
}

impl Choice {
    /// Resets all choices.
    pub(super) fn reset(&mut self) {
        self.hash = None;
        self.bound = None;
        self.is_ignored = false;
        self.dates = Dates::default();
        self.cookie = CookieServer::Absent;
        self.address = None;
        self.fresh = false;
        self.preamble.clear();
        self.heard_late = false;
        self.said_early = false;
        self.is_early = false;
        self.never_early = false;
        self.gave_key = false;
    }
}

/// A fixed server for the request, which overrides the balancer.
#[derive(Clone)]
pub(crate) struct BoundServer {
    /// The server.
    pub(crate) server: Rc<LocalServer>,
    /// Whether to use the server even if it is down (`force-persist`, `option persist`).
    pub(crate) even_down: bool,
    /// Whether this is a retry at the server that has just failed, rather than persistence.
    pub(crate) again: bool,
}

/// The server that the request's cookie named.
#[derive(Default)]
pub(crate) enum CookieServer {
    /// The request had no cookie.
    #[default]
    Absent,
    /// The cookie named this server, which was usable. `use-server` and stick tables count as such a cookie.
    Server(Rc<LocalServer>),
    /// The cookie named an unusable or unknown server.
    Other,
}

impl CookieServer {
    /// Whether the cookie named `server`.
    pub(crate) fn names(&self, server: &LocalServer) -> bool {
        matches!(self, Self::Server(own) if own.is(server))
    }
}
