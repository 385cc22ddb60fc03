//! Which server a request is for, as far as it has been decided.

use std::net::SocketAddr;
use std::rc::Rc;

use crate::server::per_worker::LocalServer;

/// The dates of a persistence cookie, in its units of four seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dates {
    /// When it was last seen.
    pub(crate) last: Option<u64>,
    /// When it was first set.
    pub(crate) first: Option<u64>,
}

/// What decides on the server, and how it is reached.
#[derive(Default)]
pub(crate) struct Choice {
    /// The hash of the key that `balance` asks for.
    pub(crate) hash: Option<u32>,
    /// What persistence asks for.
    pub(crate) bound: Option<BoundServer>,
    /// Whether `ignore-persist` says that the client's cookie is nobody's business: it is neither
    /// used nor set.
    pub(crate) is_ignored: bool,
    /// When the client's cookie was set.
    pub(crate) dates: Dates,
    /// What the client's cookie said, for the response.
    pub(crate) cookie: CookieServer,
    /// The address to connect to instead of the server's (`dispatch`, `transparent`, `set-dst` with
    /// no server).
    pub(crate) address: Option<SocketAddr>,
    /// No idle connection, please: the last one was stale.
    pub(crate) fresh: bool,
    /// What goes before the head on a new connection: the PROXY header.
    pub(crate) preamble: Vec<u8>,
    /// When the server must have been reached, in ms of the worker's clock.
    pub(crate) connect_by: u64,
    /// Whether the client sent more of its request while a server was being reached.
    pub(crate) heard_late: bool,
    /// Whether the server is told that the request came before the end of the client's handshake.
    pub(crate) said_early: bool,
    /// Whether it is sent to the server before the end of that one's.
    pub(crate) is_early: bool,
    /// Whether it must not be.
    pub(crate) never_early: bool,
    /// Whether its key of WebSocket is one of ours.
    pub(crate) gave_key: bool,
}

impl Choice {
    /// Nothing is decided yet.
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

/// The server that the request is for, whatever the balancer would choose.
#[derive(Clone)]
pub(crate) struct BoundServer {
    /// The server.
    pub(crate) server: Rc<LocalServer>,
    /// Whether it is to be used even when it is down (`force-persist`, `option persist`).
    pub(crate) even_down: bool,
    /// Not persistence: it is tried once more because it just failed.
    pub(crate) again: bool,
}

/// The server that the request's cookie named.
#[derive(Default)]
pub(crate) enum CookieServer {
    /// There was none.
    #[default]
    Absent,
    /// This server, which was usable. `use-server` and stick tables count as such a cookie.
    Server(Rc<LocalServer>),
    /// It named a server that cannot be used, or none of ours.
    Other,
}

impl CookieServer {
    /// Whether it named `server`.
    pub(crate) fn names(&self, server: &LocalServer) -> bool {
        matches!(self, Self::Server(own) if own.is(server))
    }
}
