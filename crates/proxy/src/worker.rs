//! What one worker holds for its tasks: proxies and servers, idle connections, log lines.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::log::Outbox;
use crate::server::carriers::Carriers;
use crate::server::local::{LocalProxy, Locals};
use crate::server::pool::Pools;
use crate::shared::{Prepared, Shared};

/// Closes the idle connections of all workers to a server; ready when they are closed.
pub async fn close_idle(backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        let (send, receive) = tokio::sync::oneshot::channel();
        runtime::worker::post(index, move || {
            if let Some(worker) = current()
                && let Some(server) = worker.locals.known_server(backend, server)
            {
                while worker.pools.evict(&server) {}
                worker.carriers.look(&server);
            }
            // Who asked may be gone.
            let _ = send.send(());
        });
        // A worker that no longer answers has no connection either.
        let _ = receive.await;
    }
}

/// Lets all workers go of a server that was removed, so that its place may become another's.
pub fn forget(backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        // A worker that no longer listens ends with all that it holds.
        runtime::worker::post(index, move || {
            if let Some(worker) = current() {
                worker.locals.forget(backend, server);
            }
        });
    }
}

/// What a worker does beside serving: watches its idle connections. Runs as long as the worker.
pub async fn background(worker: Rc<Worker>) {
    let (timer, mut places) = (runtime::timer::Timer::new(), Vec::new());
    poll_fn(|context| worker.pools.poll_sweep(context, &worker.locals, &timer, &mut places)).await;
}

thread_local! {
    static CURRENT: OnceCell<Rc<Worker>> = const { OnceCell::new() };
}

/// The calling thread's worker, for messages that come from other threads.
pub(crate) fn current() -> Option<Rc<Worker>> {
    CURRENT.with(|current| current.get().cloned())
}

/// One worker's own things. Lives as long as its thread.
pub struct Worker {
    /// Its number.
    pub index: usize,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// The proxies and servers that it had to do with.
    pub(crate) locals: Locals,
    /// Idle connections to servers.
    pub(crate) pools: Pools,
    /// Connections to servers that requests share (HTTP/2).
    pub(crate) carriers: Rc<Carriers>,
    /// Log lines on their way out.
    pub(crate) outbox: RefCell<Outbox>,
    /// The workers of its group: those that serve the same listeners and share idle connections.
    pub(crate) group: std::ops::Range<usize>,
    /// The next session's number, and the next stream's where nothing reads those: workers count
    /// apart, in steps of the number of workers.
    next_number: Cell<u64>,
    /// Whether something reads the numbers of streams.
    numbers_streams: bool,
}

impl Worker {
    /// The calling thread's worker.
    pub fn new(shared: Arc<Shared>, group: std::ops::Range<usize>) -> Rc<Self> {
        let index = runtime::current_worker();
        runtime::buffer::set_small_size(shared.plan.global.tune.bufsize);
        if shared.plan.variables.wants_turns() {
            runtime::profile::want_measures();
        }
        let worker = Rc::new(Self {
            index,
            group,
            locals: Locals::new(shared.clone()),
            pools: Pools::new(&shared),
            carriers: Carriers::new(shared.plan.global.tune.glitches.cpu_usage),
            outbox: RefCell::new(Outbox::new(&shared)),
            next_number: Cell::new(index as u64),
            numbers_streams: shared.plan.variables.wants_stream_numbers(),
            shared,
        });
        CURRENT.with(|current| {
            // A thread has one worker for its whole life.
            let _ = current.set(worker.clone());
        });
        worker
    }

    /// The number of a new stream, unique in the process.
    #[inline]
    pub(crate) fn stream_id(&self) -> u64 {
        if self.numbers_streams {
            runtime::shared::Shared::add(&self.shared.process.streams, 1)
        } else {
            self.session_id()
        }
    }

    /// The number of a new session, unique in the process.
    #[inline]
    pub(crate) fn session_id(&self) -> u64 {
        let id = self.next_number.get();
        self.next_number.set(id + runtime::shard::workers() as u64);
        id
    }

    /// The proxy `index`, to be kept by a task.
    #[inline]
    pub(crate) fn local(&self, index: usize) -> Rc<LocalProxy> {
        self.locals.proxy(index)
    }

    /// The prepared proxy `index`.
    #[inline]
    pub(crate) fn proxy(&self, index: usize) -> &Prepared {
        &self.shared.proxies[index]
    }

    /// Whether a soft stop wants this connection to end with its current request: all of them, or
    /// while `close-spread-time` lasts more and more of them.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        let process = &self.shared.process;
        process.closing.load(Relaxed) && {
            let (window, until) = (process.close_window.load(Relaxed), process.close_until.load(Relaxed));
            let left = until.saturating_sub(runtime::timer::now_ms());
            until != u64::MAX && (left == 0 || fastrand::u64(..window.max(1)) >= left)
        }
    }
}
