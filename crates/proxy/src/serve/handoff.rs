//! The hand-off of incoming traffic to the worker that serves it: accepted connections, connections that
//! were opened to receive requests, and datagrams.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use net::Stream;
use runtime::datagrams::Receiver;
use runtime::worker::ConnectionGuard;

use super::reverse_quota::OpenPermit;
use crate::stream::ReceivedBytes;
use crate::stream::h2::H2Connection;
use crate::worker::{self, Worker};

/// Starts serving, as a worker of the plan that the indexes in [`Incoming`] belong to.
pub(super) type ServeFn = Box<dyn Fn(Rc<Worker>, Incoming)>;

thread_local! {
    /// The calling worker's starter; set once when the worker starts to serve.
    static STARTER: OnceCell<ServeFn> = const { OnceCell::new() };
}

/// Sets the starter of the calling worker.
pub(super) fn install(starter: ServeFn) {
    STARTER.with(|cell| {
        // A second call keeps the first worker: there is one per thread.
        let _ = cell.set(starter);
    });
}

/// Starts serving it on the calling worker.
pub(super) fn start(incoming: Incoming) {
    let generation = match &incoming {
        Incoming::Socket(newcomer) => newcomer.generation,
        Incoming::Dialled(dialled) => dialled.generation,
        Incoming::Datagrams(datagrams) => datagrams.generation,
    };
    if let Some(worker) = worker::of_plan(generation) {
        start_at(worker, incoming);
    }
}

/// Starts serving it on the calling worker, with a given plan.
pub(super) fn start_at(worker: Rc<Worker>, incoming: Incoming) {
    STARTER.with(|cell| {
        if let Some(start) = cell.get() {
            start(worker, incoming);
        }
    });
}

/// Traffic for a worker to serve.
pub(crate) enum Incoming {
    /// An accepted connection.
    Socket(AcceptedConnection),
    /// A connection that we opened (`bind rhttp@`).
    Dialled(Box<Dialled>),
    /// The worker's share of a datagram socket.
    Datagrams(Datagrams),
}

/// A connection on its way to the worker that will serve it.
pub(crate) struct AcceptedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Option<SocketAddr>,
    /// The generation of the plan that counts its slots.
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: ConnectionGuard,
    pub(crate) accepted_us: u64,
    /// The reserved TLS slot, if their number is limited.
    pub(crate) tls_place: Option<tls::ConnectionPermit>,
}

/// A connection that we opened, ready to receive requests.
pub(crate) struct Dialled {
    pub(crate) socket: Stream,
    pub(crate) connection: Rc<H2Connection>,
    pub(crate) reader: ReceivedBytes,
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: ConnectionGuard,
    pub(crate) slot: OpenPermit,
}

/// The datagrams that a worker gets from the worker that reads their socket.
pub(crate) struct Datagrams {
    pub(crate) receiver: Receiver<SocketAddr>,
    /// The plan of `frontend`.
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
}
