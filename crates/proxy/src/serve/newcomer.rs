//! What accepting a connection, or opening one that brings requests, hands to the worker that serves
//! it.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use net::Stream;
use runtime::worker::Load;

use super::slots::Slot;
use crate::stream::Reader;
use crate::stream::h2::Connection;
use crate::worker::{self, Worker};

/// Serves who arrives, as a worker of the plan that its places are of.
pub(super) type Starter = Box<dyn Fn(Rc<Worker>, Arrived)>;

thread_local! {
    /// What the calling worker does with whoever arrives; set once when the worker starts to serve.
    static STARTER: OnceCell<Starter> = const { OnceCell::new() };
}

/// Sets that.
pub(super) fn install(starter: Starter) {
    STARTER.with(|cell| {
        // A second call keeps the first worker: there is one a thread.
        let _ = cell.set(starter);
    });
}

/// Has the calling worker serve it.
pub(super) fn start(arrived: Arrived) {
    let generation = match &arrived {
        Arrived::Accepted(newcomer) => newcomer.generation,
        Arrived::Dialled(dialled) => dialled.generation,
    };
    if let Some(worker) = worker::of_plan(generation) {
        start_at(worker, arrived);
    }
}

/// Has the calling worker serve it by a certain plan.
pub(super) fn start_at(worker: Rc<Worker>, arrived: Arrived) {
    STARTER.with(|cell| {
        if let Some(start) = cell.get() {
            start(worker, arrived);
        }
    });
}

/// A connection that is to be served.
pub(crate) enum Arrived {
    /// A client came.
    Accepted(Newcomer),
    /// We went to it (`bind rhttp@`).
    Dialled(Box<Dialled>),
}

/// A connection on its way to the worker that will serve it.
pub(crate) struct Newcomer {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Option<std::net::SocketAddr>,
    /// The plan that the places are of.
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: Load,
    pub(crate) accepted_us: u64,
    /// What was taken of the places for TLS, where these are limited.
    pub(crate) tls_place: Option<tls::Place>,
}

/// A connection that was opened and brings requests from now on.
pub(crate) struct Dialled {
    pub(crate) socket: Stream,
    pub(crate) connection: Rc<Connection>,
    pub(crate) reader: Reader,
    pub(crate) generation: u64,
    pub(crate) frontend: usize,
    pub(crate) bind: usize,
    pub(crate) load: Load,
    pub(crate) slot: Slot,
}
