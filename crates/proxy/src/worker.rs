//! One worker's state: proxies and servers, idle connections, log lines.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use state::sessions;

use crate::log::Outbox;
use crate::server::agents::Agents;
use crate::server::fcgi::Applications;
use crate::server::h2_pool::Carriers;
use crate::server::h3::{QmuxCarriers, QuicCarriers};
use crate::server::per_worker::{LocalProxy, LocalServer, Locals};
use crate::server::pool::Pools;
use crate::shared::{PreparedProxy, Shared};

/// Closes the idle connections of all workers to a server of a plan. Ready once they are closed.
pub async fn close_idle(generation: u64, backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        let (send, receive) = tokio::sync::oneshot::channel();
        runtime::worker::post(index, move || {
            if let Some(worker) = current_of(generation)
                && let Some(server) = worker.locals.known_server(backend, server)
            {
                while worker.pools.evict(&server) {}
                worker.carriers.look(&server);
                worker.quic_carriers.look(&server);
                worker.qmux_carriers.look(&server);
                worker.applications.look(&server);
                worker.agents.look(&server);
            }
            // The requester may no longer wait.
            let _ = send.send(());
        });
        // A worker that no longer responds has no connection either.
        let _ = receive.await;
    }
}

/// Drops all workers' references to a server that was removed from a plan, so that its index can be reused.
pub fn forget(generation: u64, backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        // A worker that no longer responds is ending, together with its state.
        runtime::worker::post(index, move || {
            if let Some(worker) = current_of(generation)
                && let Some(removed) = worker.locals.forget(backend, server)
            {
                worker.pools.clear(&removed);
            }
        });
    }
}

/// A worker's background task, which watches its idle connections and runs as long as the worker.
pub async fn background(worker: Rc<Worker>) {
    tokio::task::spawn_local(write_lines(Rc::downgrade(&worker)));
    let (timer, mut places) = (runtime::timer::Timer::new(), Vec::new());
    poll_fn(|context| worker.pools.poll_sweep(context, &worker.locals, &timer, &mut places)).await;
}

/// Writes the log lines of each turn. Ends with the worker. Connections can keep a worker after a reload.
async fn write_lines(worker: Weak<Worker>) {
    poll_fn(|context| match worker.upgrade() {
        None => Poll::Ready(()),
        Some(worker) => {
            worker.outbox.borrow_mut().flush(&worker.shared, context.waker());
            Poll::Pending
        }
    })
    .await;
}

/// The calling thread's worker for the current plan, and the one for the previous plan as long as other threads may refer to it.
#[derive(Default)]
struct CurrentWorkers {
    now: Option<Rc<Worker>>,
    before: Option<Rc<Worker>>,
}

thread_local! {
    static CURRENT: RefCell<CurrentWorkers> = RefCell::default();
}

/// Returns the calling thread's worker. Used for messages from other threads.
pub(crate) fn current() -> Option<Rc<Worker>> {
    CURRENT.with_borrow(|current| current.now.clone())
}

/// Returns the calling thread's worker, for the binary.
pub fn now() -> Option<Rc<Worker>> {
    current()
}

/// Returns the calling thread's worker if the current plan has this generation, to which the indexes in a message refer.
pub(crate) fn current_of(generation: u64) -> Option<Rc<Worker>> {
    current().filter(|worker| worker.shared.generation == generation)
}

/// Returns the calling thread's worker for the plan with this generation, which may be the previous plan.
pub(crate) fn of_plan(generation: u64) -> Option<Rc<Worker>> {
    CURRENT.with_borrow(|current| {
        let all = current.now.iter().chain(&current.before);
        all.clone().find(|worker| worker.shared.generation == generation).cloned()
    })
}

/// Switches the calling thread to another plan. Connections between requests move to the new plan, as do idle connections to
/// servers that it also contains. Requests finish with the old plan. `closing` lists the sockets, by frontend and bind line, that
/// must be closed once their pending connections are accepted.
pub fn succeed(shared: Arc<Shared>, closing: Arc<HashSet<(usize, usize)>>) -> Option<Rc<Worker>> {
    let old = current()?;
    let new = Worker::make(shared, old.group.clone(), Some(&old));
    CURRENT.with_borrow_mut(|current| {
        current.before = current.now.replace(new.clone());
    });
    old.closing.replace(closing);
    old.is_old.set(true);
    for server in old.locals.known_servers() {
        match new.same_server(&server) {
            Some(same) => new.pools.take_over(&old.pools, &server, &same),
            None => {
                while old.pools.evict(&server) {}
                old.carriers.look(&server);
                old.quic_carriers.look(&server);
                old.qmux_carriers.look(&server);
                old.applications.look(&server);
                old.agents.look(&server);
            }
        }
    }
    old.applications.retire();
    old.agents.retire();
    old.pools.retire(Box::new(|mut connection| {
        // When the request ends, yet another plan may be in use.
        let Some(now) = current() else { return Some(connection) };
        let Some(server) = now.same_server(&connection.open.server) else { return Some(connection) };
        connection.open.server = server;
        now.pools.try_put(connection)
    }));
    tokio::task::spawn_local(background(new.clone()));
    Some(new)
}

/// Wakes the calling thread's tasks that use an old plan. Called once all threads use the new one.
pub fn wake_old() {
    sessions::wake_all();
    if let Some(before) = CURRENT.with_borrow(|current| current.before.clone()) {
        for proxy in before.shared.plan.listening() {
            proxy.state.listeners.load().iter().for_each(|listener| listener.wake());
            proxy.binds.iter().for_each(|bind| bind.listener.wake());
        }
    }
}

/// Drops the calling thread's previous plan, once no message can refer to it.
pub fn release_old() {
    let before = CURRENT.with_borrow_mut(|current| current.before.take());
    drop(before);
}

/// One worker's state. It exists as long as its thread.
pub struct Worker {
    /// The index of the worker.
    pub index: usize,
    /// The state shared by all workers.
    pub shared: Arc<Shared>,
    /// The proxies and servers that the worker has used.
    pub(crate) locals: Locals,
    /// Idle connections to servers.
    pub(crate) pools: Pools,
    /// Shared HTTP/2 connections to servers.
    pub(crate) carriers: Rc<Carriers>,
    /// Shared HTTP/3 connections to servers, over QUIC.
    pub(crate) quic_carriers: Rc<QuicCarriers>,
    /// Shared HTTP/3 connections to servers, over QMux.
    pub(crate) qmux_carriers: Rc<QmuxCarriers>,
    /// FastCGI connections to servers.
    pub(crate) applications: Rc<Applications>,
    /// Connections to agents (SPOE).
    pub(crate) agents: Rc<Agents>,
    /// The output for log lines.
    pub(crate) outbox: RefCell<Outbox>,
    /// The workers of the group. They serve the same listeners and share idle connections.
    pub(crate) group: std::ops::Range<usize>,
    /// The number of the next session, and of the next stream if nothing reads stream numbers. Each worker counts separately, in
    /// steps of the number of workers.
    next_number: Rc<Cell<u64>>,
    /// Whether another plan is in use.
    is_old: Cell<bool>,
    /// The sockets missing in the new plan, by frontend and bind line.
    closing: RefCell<Arc<HashSet<(usize, usize)>>>,
    /// Whether anything reads stream numbers.
    numbers_streams: bool,
}

impl Worker {
    /// Creates the calling thread's worker.
    pub fn new(shared: Arc<Shared>, group: std::ops::Range<usize>) -> Rc<Self> {
        let worker = Self::make(shared, group, None);
        CURRENT.with_borrow_mut(|current| current.now = Some(worker.clone()));
        worker
    }

    fn make(shared: Arc<Shared>, group: std::ops::Range<usize>, before: Option<&Self>) -> Rc<Self> {
        let index = runtime::current_worker();
        runtime::buffer::set_small_size(shared.plan.global.tune.bufsize);
        if shared.plan.variables.wants_turns() {
            runtime::profile::want_measures();
        }
        Rc::new(Self {
            index,
            group,
            locals: Locals::new(shared.clone()),
            pools: Pools::new(&shared),
            // The connections of the previous worker are found through their servers.
            carriers: before.map_or_else(
                || Carriers::new(shared.plan.global.tune.glitches.cpu_usage),
                |before| before.carriers.clone(),
            ),
            quic_carriers: before.map_or_else(
                || QuicCarriers::new(shared.plan.global.tune.glitches.cpu_usage),
                |before| before.quic_carriers.clone(),
            ),
            qmux_carriers: before.map_or_else(
                || QmuxCarriers::new(shared.plan.global.tune.glitches.cpu_usage),
                |before| before.qmux_carriers.clone(),
            ),
            applications: before.map_or_else(Rc::default, |before| before.applications.clone()),
            agents: before.map_or_else(Rc::default, |before| before.agents.clone()),
            outbox: RefCell::new(Outbox::new(&shared)),
            next_number: before
                .map_or_else(|| Rc::new(Cell::new(index as u64)), |before| before.next_number.clone()),
            is_old: Cell::new(false),
            closing: RefCell::default(),
            numbers_streams: shared.plan.variables.wants_stream_numbers(),
            shared,
        })
    }

    /// Whether another plan is in use.
    #[inline]
    pub fn is_old(&self) -> bool {
        self.is_old.get()
    }

    /// Whether the current plan does not have this socket.
    pub(crate) fn closes(&self, frontend: usize, bind: usize) -> bool {
        self.closing.borrow().contains(&(frontend, bind))
    }

    /// Returns this plan's counterpart of an older plan's frontend, if it has one.
    pub(crate) fn same_frontend(&self, old: &LocalProxy) -> Option<Rc<LocalProxy>> {
        let plan = &self.shared.plan;
        let same = plan.frontend(&old.state.name).filter(|own| Arc::ptr_eq(&own.state, &old.state));
        // A `log-forward` section cannot be found by name.
        let hidden = || plan.proxies.iter().find(|own| Arc::ptr_eq(&own.state, &old.state));
        let same = same.or_else(|| hidden().filter(|_| old.is_hidden()))?;
        Some(self.local(same.index))
    }

    /// Returns the server of this plan that corresponds to a server of an older plan, if there is one and none of the settings
    /// that connections depend on has changed.
    pub(crate) fn same_server(&self, old: &LocalServer) -> Option<Rc<LocalServer>> {
        self.server_with_state(old).filter(|server| server.print == old.print)
    }

    /// Returns the server of this plan that has the state of `old`, also if its line has changed.
    pub(crate) fn server_with_state(&self, old: &LocalServer) -> Option<Rc<LocalServer>> {
        let backend = self.shared.plan.backend(&old.state.proxy)?;
        let is = |place: &usize| {
            backend.servers.get(*place).is_some_and(|server| Arc::ptr_eq(&server.state, &old.state))
        };
        let place = Some(old.index).filter(is).or_else(|| (0..backend.servers.len()).find(is))?;
        self.local(backend.index).server(place)
    }

    /// Returns the number for a new stream, unique in the process.
    #[inline]
    pub(crate) fn stream_id(&self) -> u64 {
        if self.numbers_streams {
            runtime::shared::Shared::add(&self.shared.process.streams, 1)
        } else {
            self.session_id()
        }
    }

    /// Returns the number for a new session, unique in the process.
    #[inline]
    pub(crate) fn session_id(&self) -> u64 {
        let id = self.next_number.get();
        self.next_number.set(id + runtime::shard::workers() as u64);
        id
    }

    /// Returns the proxy `index`, to be held by a task.
    #[inline]
    pub(crate) fn local(&self, index: usize) -> Rc<LocalProxy> {
        self.locals.proxy(index)
    }

    /// The prepared proxy `index`.
    #[inline]
    pub(crate) fn proxy(&self, index: usize) -> &PreparedProxy {
        &self.shared.proxies[index]
    }

    /// Whether a soft stop requires that this connection ends with its current request. This applies to all connections, or to a
    /// growing share of them during `close-spread-time`.
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
