//! What one worker holds for its tasks: proxies and servers, idle connections, log lines.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::sessions;

use crate::log::Outbox;
use crate::server::agents::Agents;
use crate::server::fcgi::Applications;
use crate::server::h2_pool::Carriers;
use crate::server::per_worker::{LocalProxy, LocalServer, Locals};
use crate::server::pool::Pools;
use crate::shared::{PreparedProxy, Shared};

/// Closes the idle connections of all workers to a server of a plan; ready when they are closed.
pub async fn close_idle(generation: u64, backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        let (send, receive) = tokio::sync::oneshot::channel();
        runtime::worker::post(index, move || {
            if let Some(worker) = current_of(generation)
                && let Some(server) = worker.locals.known_server(backend, server)
            {
                while worker.pools.evict(&server) {}
                worker.carriers.look(&server);
                worker.applications.look(&server);
                worker.agents.look(&server);
            }
            // Who asked may be gone.
            let _ = send.send(());
        });
        // A worker that no longer answers has no connection either.
        let _ = receive.await;
    }
}

/// Lets all workers go of a server of a plan that was removed, so that its place may become
/// another's.
pub fn forget(generation: u64, backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        // A worker that no longer listens ends with all that it holds.
        runtime::worker::post(index, move || {
            if let Some(worker) = current_of(generation)
                && let Some(removed) = worker.locals.forget(backend, server)
            {
                worker.pools.clear(&removed);
            }
        });
    }
}

/// What a worker does beside serving: watches its idle connections. Runs as long as the worker.
pub async fn background(worker: Rc<Worker>) {
    let (timer, mut places) = (runtime::timer::Timer::new(), Vec::new());
    poll_fn(|context| worker.pools.poll_sweep(context, &worker.locals, &timer, &mut places)).await;
}

/// The calling thread's worker of the plan in use, and of the one before as long as other threads
/// may mean that.
#[derive(Default)]
struct CurrentWorkers {
    now: Option<Rc<Worker>>,
    before: Option<Rc<Worker>>,
}

thread_local! {
    static CURRENT: RefCell<CurrentWorkers> = RefCell::default();
}

/// The calling thread's worker, for messages that come from other threads.
pub(crate) fn current() -> Option<Rc<Worker>> {
    CURRENT.with_borrow(|current| current.now.clone())
}

/// The calling thread's worker, for the binary.
pub fn now() -> Option<Rc<Worker>> {
    current()
}

/// The same if the plan in use is that one, which places in a message are of.
pub(crate) fn current_of(generation: u64) -> Option<Rc<Worker>> {
    current().filter(|worker| worker.shared.generation == generation)
}

/// The calling thread's worker of that plan, which may be the one before.
pub(crate) fn of_plan(generation: u64) -> Option<Rc<Worker>> {
    CURRENT.with_borrow(|current| {
        let all = current.now.iter().chain(&current.before);
        all.clone().find(|worker| worker.shared.generation == generation).cloned()
    })
}

/// Has the calling thread serve by another plan from now on. Connections between requests go over to
/// it, with idle connections to servers that it has too; requests end as they began. `closing` are
/// the sockets, by frontend and bind line, that are to close once what waits in them is accepted.
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
                old.applications.look(&server);
                old.agents.look(&server);
            }
        }
    }
    old.applications.retire();
    old.agents.retire();
    old.pools.retire(Box::new(|mut connection| {
        // Another plan may be in use again by the time that the request ends.
        let Some(now) = current() else { return Some(connection) };
        let Some(server) = now.same_server(&connection.open.server) else { return Some(connection) };
        connection.open.server = server;
        now.pools.try_put(connection)
    }));
    tokio::task::spawn_local(background(new.clone()));
    Some(new)
}

/// Wakes whoever of the calling thread goes by a plan that is in use no more. Once all threads serve
/// by the new one.
pub fn wake_old() {
    sessions::wake_all();
    if let Some(before) = CURRENT.with_borrow(|current| current.before.clone()) {
        for proxy in before.shared.plan.proxies.iter() {
            proxy.state.listeners.load().iter().for_each(|listener| listener.wake());
            proxy.binds.iter().for_each(|bind| bind.listener.wake());
        }
    }
}

/// Lets the calling thread go of the plan before: no message is on its way that means it.
pub fn release_old() {
    let before = CURRENT.with_borrow_mut(|current| current.before.take());
    drop(before);
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
    /// Connections to servers that speak FastCGI.
    pub(crate) applications: Rc<Applications>,
    /// Connections to agents (SPOE).
    pub(crate) agents: Rc<Agents>,
    /// Log lines on their way out.
    pub(crate) outbox: RefCell<Outbox>,
    /// The workers of its group: those that serve the same listeners and share idle connections.
    pub(crate) group: std::ops::Range<usize>,
    /// The next session's number, and the next stream's where nothing reads those: workers count
    /// apart, in steps of the number of workers.
    next_number: Rc<Cell<u64>>,
    /// Whether another plan is in use.
    is_old: Cell<bool>,
    /// Which sockets that one does not have, by frontend and bind line.
    closing: RefCell<Arc<HashSet<(usize, usize)>>>,
    /// Whether something reads the numbers of streams.
    numbers_streams: bool,
}

impl Worker {
    /// The calling thread's worker.
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
            // Those of before are found by the servers that they lead to.
            carriers: before.map_or_else(
                || Carriers::new(shared.plan.global.tune.glitches.cpu_usage),
                |before| before.carriers.clone(),
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

    /// Whether the plan that is in use instead does not have this socket.
    pub(crate) fn closes(&self, frontend: usize, bind: usize) -> bool {
        self.closing.borrow().contains(&(frontend, bind))
    }

    /// The frontend of an older plan, if this one has it too.
    pub(crate) fn same_frontend(&self, old: &LocalProxy) -> Option<Rc<LocalProxy>> {
        let plan = &self.shared.plan;
        let same = plan.frontend(&old.state.name).filter(|own| Arc::ptr_eq(&own.state, &old.state));
        // A `log-forward` section is no frontend by name.
        let hidden = || plan.proxies.iter().find(|own| Arc::ptr_eq(&own.state, &old.state));
        let same = same.or_else(|| hidden().filter(|_| old.is_hidden()))?;
        Some(self.local(same.index))
    }

    /// The server of an older plan, if this one has it too and nothing has changed that connections
    /// to it depend on.
    pub(crate) fn same_server(&self, old: &LocalServer) -> Option<Rc<LocalServer>> {
        let plan = &self.shared.plan;
        let backend = plan.backend(&old.state.proxy)?;
        let at = |place: usize| {
            let server = backend.servers.get(place)?;
            (Arc::ptr_eq(&server.state, &old.state) && server.print == old.print).then_some(place)
        };
        let place = at(old.index).or_else(|| (0..backend.servers.len()).find_map(at))?;
        self.local(backend.index).server(place)
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
    pub(crate) fn proxy(&self, index: usize) -> &PreparedProxy {
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
