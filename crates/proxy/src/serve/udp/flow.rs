//! The data of a session.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use sample::Session;
use state::server::Tally;
use state::sessions::RegisteredSession;

use crate::server::per_worker::{LocalProxy, LocalServer};

/// A session's data besides its addresses and counters.
pub(super) struct UdpFlow {
    /// The socket that is connected to the server.
    pub(super) socket: OwnedFd,
    pub(super) server: Rc<LocalServer>,
    /// The backend of the server; `None` once a new plan does not have the server any more.
    pub(super) backend: Option<Rc<LocalProxy>>,
    pub(super) tally: Tally,
    /// The entry in `show sess`.
    pub(super) entry: RegisteredSession,
    /// The session as rules have changed it, if they did.
    pub(super) kept: Option<Box<Session>>,
    /// When the session began, in µs of the monotonic and of the wall clock.
    pub(super) began_us: u64,
    pub(super) began_wall_us: u64,
    /// Whether the kernel joins datagrams of the server.
    pub(super) is_joined: bool,
}
