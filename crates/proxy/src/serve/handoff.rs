//! Passes incoming traffic to the worker that serves it: accepted connections, connections that were opened to receive requests,
//! and datagrams.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use net::Stream;
use runtime::datagrams::Receiver;
use runtime::worker::ConnectionGuard;

use super::quic_socket::QuicSocket;
use super::reverse_quota::OpenPermit;
use crate::stream::ReceivedBytes;
use crate::stream::h2::H2Connection;
use crate::stream::h3::H3Connection;
use crate::worker::{self, Worker};

/// Starts to serve incoming traffic, as a worker of the plan to which the indexes in [`Incoming`] belong.
pub(super) type ServeFn = Box<dyn Fn(Rc<Worker>, Incoming)>;

thread_local! {
    /// The function with which the calling worker starts to serve. Set once.
    static STARTER: OnceCell<ServeFn> = const { OnceCell::new() };
}

/// Sets the calling worker's start function.
pub(super) fn install(starter: ServeFn) {
    STARTER.with(|cell| {
        // A second call keeps the first function, because each thread has one worker.
        let _ = cell.set(starter);
    });
}

/// Starts to serve `incoming` on the calling worker.
pub(super) fn start(incoming: Incoming) {
    let generation = match &incoming {
        Incoming::Socket(newcomer) => newcomer.generation,
        Incoming::Dialled(dialled) => dialled.generation,
        Incoming::Quic(newcomer) => newcomer.generation,
        Incoming::Datagrams(datagrams) => datagrams.generation,
    };
    if let Some(worker) = worker::of_plan(generation) {
        start_at(worker, incoming);
    }
}

/// Starts to serve `incoming` on the calling worker, with the given plan.
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
    /// A connection that this process opened (`bind rhttp@`).
    Dialled(Box<Dialled>),
    /// A QUIC connection that a client has begun.
    Quic(Box<QuicNewcomer>),
    /// The worker's share of a datagram socket.
    Datagrams(Datagrams),
}

/// A connection that is passed to the worker that will serve it.
pub(crate) struct AcceptedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Option<SocketAddr>,
    /// The generation of the plan in which the slots are counted.
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: ConnectionGuard,
    pub(crate) accepted_us: u64,
    /// The reserved TLS slot, if the number of TLS connections is limited.
    pub(crate) tls_place: Option<tls::ConnectionPermit>,
}

/// A connection that this process opened, ready to receive requests.
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

/// A QUIC connection that is still in its handshake.
pub(crate) struct QuicNewcomer {
    pub(crate) listener: Rc<QuicSocket>,
    pub(crate) connection: Rc<H3Connection>,
    pub(crate) handle: quic::ConnectionHandle,
    /// The client's address, and the address to which the client sends.
    pub(crate) ends: [Option<SocketAddr>; 2],
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: ConnectionGuard,
    pub(crate) accepted_us: u64,
}

/// The datagrams that a worker gets from the worker that reads their socket.
pub(crate) struct Datagrams {
    pub(crate) receiver: Receiver<SocketAddr>,
    /// The plan of `frontend`.
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
}
