//! One worker's view of proxies and servers.
//!
//! Each worker references the shared state of the plan once, on first use; its tasks count their references locally ([`Local`]).
//! A request can therefore reference a proxy and a server without a write that other workers would notice. A server that a task
//! holds keeps its index (`plan::servers`), even while the task waits.

use std::cell::{OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plan::{Proxy, ServerSettings};
use runtime::Local;
use state::{Listener, Process};

use crate::shared::{PreparedProxy, Shared};

/// A proxy.
pub(crate) struct LocalProxy {
    shared: Arc<Shared>,
    plan: Arc<Proxy>,
    /// The shared state of the proxy.
    pub(crate) held: Local<state::Proxy>,
    /// The listeners that had a connection on this worker, by the number of their `bind` line.
    listeners: RefCell<Vec<Option<Local<Listener>>>>,
    /// The servers that had a request on this worker, by index.
    servers: RefCell<Vec<Option<Rc<LocalServer>>>>,
}

impl Deref for LocalProxy {
    type Target = Proxy;

    #[inline]
    fn deref(&self) -> &Proxy {
        &self.plan
    }
}

/// A server.
pub(crate) struct LocalServer {
    settings: Arc<ServerSettings>,
    /// The shared state of the server.
    pub(crate) held: Local<state::Server>,
    /// The index of the server's backend.
    pub(crate) backend: usize,
    pub(crate) process: Arc<Process>,
    /// The transport settings of QUIC connections, and the tokens of the server; prepared on first use.
    pub(crate) quic_settings: OnceCell<quic::ClientSettings>,
}

impl Deref for LocalServer {
    type Target = ServerSettings;

    #[inline]
    fn deref(&self) -> &ServerSettings {
        &self.settings
    }
}

impl LocalServer {
    /// Whether both are the same server.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        // Servers of two plans are the same if no setting that connections depend on has changed.
        Arc::ptr_eq(&self.settings, &other.settings)
            || (Arc::ptr_eq(self.held.shared(), other.held.shared()) && self.print == other.print)
    }

    /// Whether one more idle connection to the server may be kept (manual, 5.2 `pool-max-conn` and `pool-purge-delay`, 3.2
    /// `tune.pool-low-fd-ratio`).
    #[inline]
    pub(crate) fn keeps_idle(&self) -> bool {
        let (limit, counters) = (self.pool_max_conn, &self.state.counters);
        (limit < 0 || (state::counters::current(counters, |shard| shard.idle.get()) as i64) < limit)
            // Without a delay, all idle connections would be purged at once.
            && !self.pool_purge_delay.is_zero()
            && !self.process.uses(&self.process.idle_from_fds)
    }
}

impl LocalProxy {
    /// Returns how many connections may be reserved for one client (`max-session-srv-conns`).
    pub(crate) fn max_private_connections(&self) -> usize {
        usize::try_from(self.max_session_server_connections).unwrap_or(usize::MAX)
    }

    fn new(shared: &Arc<Shared>, index: usize) -> Self {
        let plan = &shared.proxies[index].plan;
        Self {
            plan: plan.clone(),
            held: Local::new(plan.state.clone()),
            listeners: RefCell::default(),
            servers: RefCell::default(),
            shared: shared.clone(),
        }
    }

    /// Returns the prepared state of the proxy.
    #[inline]
    pub(crate) fn prepared(&self) -> &PreparedProxy {
        &self.shared.proxies[self.plan.index]
    }

    /// Returns the listener of the proxy's `bind` line `number`.
    pub(crate) fn listener(&self, number: usize) -> Local<Listener> {
        let mut all = self.listeners.borrow_mut();
        if all.len() <= number {
            all.resize_with(number + 1, || None);
        }
        all[number].get_or_insert_with(|| Local::new(self.plan.binds[number].listener.clone())).clone()
    }

    /// Returns the server at index `place`, or `None` if there never was one.
    #[inline]
    pub(crate) fn server(&self, place: usize) -> Option<Rc<LocalServer>> {
        if let Some(Some(known)) = self.servers.borrow().get(place) {
            return Some(known.clone());
        }
        self.learn(place)
    }

    #[cold]
    fn learn(&self, place: usize) -> Option<Rc<LocalServer>> {
        let settings = self.plan.servers.get(place)?.shared();
        let known = Rc::new(LocalServer {
            held: Local::new(settings.state.clone()),
            backend: self.plan.index,
            process: self.shared.process.clone(),
            quic_settings: OnceCell::new(),
            settings,
        });
        // A removed server is held only by the tasks that still use it.
        if !known.state.removed.load(Relaxed) {
            let mut all = self.servers.borrow_mut();
            if all.len() <= place {
                all.resize_with(place + 1, || None);
            }
            all[place] = Some(known.clone());
        }
        Some(known)
    }
}

/// The proxies that a worker has used, by index.
pub(crate) struct Locals {
    shared: Arc<Shared>,
    proxies: RefCell<Vec<Option<Rc<LocalProxy>>>>,
}

impl Locals {
    /// Creates an empty list.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, proxies: RefCell::default() }
    }

    /// Returns the proxy `index` of the plan.
    #[inline]
    pub(crate) fn proxy(&self, index: usize) -> Rc<LocalProxy> {
        if let Some(Some(known)) = self.proxies.borrow().get(index) {
            return known.clone();
        }
        self.learn(index)
    }

    #[cold]
    fn learn(&self, index: usize) -> Rc<LocalProxy> {
        let known = Rc::new(LocalProxy::new(&self.shared, index));
        let mut all = self.proxies.borrow_mut();
        if all.len() <= index {
            all.resize_with(index + 1, || None);
        }
        all[index] = Some(known.clone());
        known
    }

    /// Returns the server at index `place` of backend `backend`, if it had a request on this worker.
    pub(crate) fn known_server(&self, backend: usize, place: usize) -> Option<Rc<LocalServer>> {
        let proxies = self.proxies.borrow();
        let servers = proxies.get(backend)?.as_ref()?.servers.borrow();
        servers.get(place)?.clone()
    }

    /// Returns all servers that had requests on this worker.
    pub(crate) fn known_servers(&self) -> Vec<Rc<LocalServer>> {
        let mut all = Vec::new();
        for proxy in self.proxies.borrow().iter().flatten() {
            all.extend(proxy.servers.borrow().iter().flatten().cloned());
        }
        all
    }

    /// Calls `look` for all servers that had requests on this worker, until it returns `false`.
    pub(crate) fn each_server(&self, mut look: impl FnMut(&LocalServer) -> bool) {
        for proxy in self.proxies.borrow().iter().flatten() {
            if !proxy.servers.borrow().iter().flatten().all(|server| look(server)) {
                return;
            }
        }
    }

    /// Removes and returns the server at index `place` of backend `backend`, if it was removed from the plan.
    pub(crate) fn forget(&self, backend: usize, place: usize) -> Option<Rc<LocalServer>> {
        let proxy = self.proxies.borrow().get(backend)?.clone()?;
        let mut servers = proxy.servers.borrow_mut();
        servers.get_mut(place)?.take_if(|server| server.state.removed.load(Relaxed))
    }
}
