//! What accepting a connection hands to the worker that serves it.

use std::os::fd::OwnedFd;

use runtime::worker::Load;

/// A connection on its way to the worker that will serve it.
pub(crate) struct Newcomer {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Option<std::net::SocketAddr>,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: Load,
    pub(crate) accepted_us: u64,
    /// What was taken of the places for TLS, where these are limited.
    pub(crate) tls_place: Option<tls::Place>,
}
