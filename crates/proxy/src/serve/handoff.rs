//! What accepting a connection, or opening one that brings requests, hands to the worker that serves
//! it.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use net::Stream;
use runtime::worker::ConnectionGuard;

use super::slots::OpenPermit;
use crate::stream::Reader;
use crate::stream::h2::Connection;
use crate::worker::{self, Worker};

/// Serves who arrives, as a worker of the plan that its places are of.
pub(super) type ServeFn = Box<dyn Fn(Rc<Worker>, ArrivedConnection)>;

thread_local! {
    /// What the calling worker does with whoever arrives; set once when the worker starts to serve.
    static STARTER: OnceCell<ServeFn> = const { OnceCell::new() };
}

/// Sets that.
pub(super) fn install(starter: ServeFn) {
    STARTER.with(|cell| {
        // A second call keeps the first worker: there is one a thread.
        let _ = cell.set(starter);
    });
}

/// Has the calling worker serve it.
pub(super) fn start(arrived: ArrivedConnection) {
    let generation = match &arrived {
        ArrivedConnection::Accepted(newcomer) => newcomer.generation,
        ArrivedConnection::Dialled(dialled) => dialled.generation,
    };
    if let Some(worker) = worker::of_plan(generation) {
        start_at(worker, arrived);
    }
}

/// Has the calling worker serve it by a certain plan.
pub(super) fn start_at(worker: Rc<Worker>, arrived: ArrivedConnection) {
    STARTER.with(|cell| {
        if let Some(start) = cell.get() {
            start(worker, arrived);
        }
    });
}

/// A connection that is to be served.
pub(crate) enum ArrivedConnection {
    /// A client came.
    Accepted(AcceptedConnection),
    /// We went to it (`bind rhttp@`).
    Dialled(Box<Dialled>),
}

/// A connection on its way to the worker that will serve it.
pub(crate) struct AcceptedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Option<std::net::SocketAddr>,
    /// The plan that the places are of.
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: ConnectionGuard,
    pub(crate) accepted_us: u64,
    /// What was taken of the places for TLS, where these are limited.
    pub(crate) tls_place: Option<tls::ConnectionPermit>,
}

/// A connection that was opened and brings requests from now on.
pub(crate) struct Dialled {
    pub(crate) socket: Stream,
    pub(crate) connection: Rc<Connection>,
    pub(crate) reader: Reader,
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: ConnectionGuard,
    pub(crate) slot: OpenPermit,
}
