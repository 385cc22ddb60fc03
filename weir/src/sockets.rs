//! Listening sockets: those that this process has bound, and those that it took over from an earlier one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use plan::bind::BindAddress;

/// The user of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketOwner {
    /// A frontend's bind.
    Frontend {
        /// The proxy's index.
        proxy: usize,
        /// The bind's index.
        bind: usize,
    },
    /// A `dgram-bind` of a frontend, which is a log forwarder.
    Datagrams {
        /// The proxy's index.
        proxy: usize,
        /// The index of the `dgram-bind`.
        bind: usize,
    },
    /// A `stats socket` of global, by number.
    RuntimeSocket(usize),
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) socket: OwnedFd,
    pub(crate) owner: SocketOwner,
    /// The workers that may serve the socket's connections.
    pub(crate) workers: Arc<[usize]>,
}

/// A socket of an earlier process.
#[derive(Debug)]
pub(crate) struct InheritedSocket {
    pub(crate) address: BindAddress,
    pub(crate) namespace: String,
    pub(crate) interface: String,
    pub(crate) socket: OwnedFd,
    /// The user of the socket in the current plan, if this process opened it.
    pub(crate) owner: Option<SocketOwner>,
}

/// Sockets of an earlier process.
pub(crate) type Inherited = Vec<InheritedSocket>;
