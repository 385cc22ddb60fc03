//! Idle connections to servers, one set per worker (`http-reuse`, `pool-*`, `max-reuse`).
//!
//! An idle connection is used only if the kernel has reported no event on it, so this check needs no system call. The sweeper, a
//! task on each worker, is notified of every server with an event on an idle connection, and drops the connections that were
//! closed.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use plan::global::Glitches;
use plan::proxy::Reuse;
use runtime::timer::{Timer, now_ms};
use state::Server;

use super::h1::{Connection, PROVEN};
use super::idle_waker::{Bell, Board, ServerPosition};
use super::per_worker::{LocalServer, Locals};
use super::private::ClientId;
use crate::shared::Shared;
use crate::violation;

/// Decrements the count of idle connections.
fn count_out(server: &LocalServer, idle: &Connection) {
    let counters = server.state.counters.mine();
    counters.idle.down();
    if !idle.is_proven() {
        counters.idle_unproven.down();
    }
}

/// A worker's idle connections to one server.
#[derive(Default)]
pub(crate) struct ServerPool {
    /// In order of last use, oldest first.
    #[allow(clippy::vec_box)] // Passed on without moving its content.
    idle: Vec<Box<Connection>>,
    /// The smallest number of idle connections since the last purge. That many were not needed.
    spare: usize,
    /// The most connections in use at once, both since the last purge and as expected from earlier periods.
    peak: u32,
    expected: u32,
    purge_at: u64,
    elsewhere: Elsewhere,
    /// The bell that the idle connections ring, and its waker. Created with the first connection.
    bell: Option<(Arc<Bell>, Waker)>,
}

/// The connections to a server on other workers, as of the last check.
#[derive(Debug, Default, Clone, Copy)]
struct Elsewhere {
    /// The time of the check, in ms.
    seen_at: u64,
    /// The requests that those workers count separately.
    used: i64,
    idle: i64,
}

/// A worker's idle connections.
pub(crate) struct Pools {
    /// The connections to each server, by the index of the backend and the index of the server.
    servers: RefCell<Vec<Vec<ServerPool>>>,
    board: Arc<Board>,
    /// The number of glitches from which a connection is not kept.
    glitches: Glitches,
    /// The earliest instant at which a pool must be purged.
    purge_at: Cell<u64>,
    /// Whether another plan is in use.
    is_old: Cell<bool>,
    /// The receiver of connections in that case.
    successor: RefCell<Option<Successor>>,
}

/// Accepts a connection to a server of an older plan, or returns the connection.
pub(crate) type Successor = Box<dyn Fn(Box<Connection>) -> Option<Box<Connection>>>;

/// A request's requirements for a pooled connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolQuery<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) reuse: Reuse,
    /// Whether the request is the first of its client's connection.
    pub(crate) first: bool,
    /// The client, if it may have reserved connections.
    pub(crate) client: Option<ClientId>,
}

impl PoolQuery<'_> {
    /// Returns how many requests, including this one, a connection must have served before it may be reused. Returns `None` if
    /// reuse is not allowed (manual, 4.2 `http-reuse`).
    #[inline]
    pub(crate) fn least_uses(&self) -> Option<u32> {
        match (self.reuse, self.first) {
            (Reuse::Never, _) | (Reuse::Safe, true) => None,
            (Reuse::Aggressive, true) => Some(PROVEN),
            _ => Some(0),
        }
    }
}

impl Pools {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            servers: RefCell::default(),
            board: Arc::default(),
            glitches: shared.plan.global.tune.glitches,
            purge_at: Cell::new(u64::MAX),
            is_old: Cell::new(false),
            successor: RefCell::default(),
        }
    }

    /// Returns the idle connections to `server`.
    #[inline]
    fn of(&self, server: &LocalServer) -> RefMut<'_, ServerPool> {
        let (backend, place) = (server.backend, server.index);
        let mut all = self.servers.borrow_mut();
        if all.get(backend).is_none_or(|servers| servers.len() <= place) {
            extend(&mut all, backend, place);
        }
        RefMut::map(all, |all| &mut all[backend][place])
    }

    /// Closes the idle connections to a server that was removed.
    pub(crate) fn clear(&self, server: &LocalServer) {
        // Closed only after the borrow ends.
        let pool = std::mem::take(&mut *self.of(server));
        drop(pool);
    }

    /// Takes an idle connection that this request may use.
    pub(crate) fn take(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Box<Connection>> {
        let least = ask.least_uses()?;
        let mut pool = self.of(server);
        let mut at = pool.idle.len();
        while at > 0 {
            at -= 1;
            let idle = &pool.idle[at];
            if idle.uses < least || *idle.key != *ask.key {
                continue;
            }
            let mut idle = pool.idle.remove(at);
            count_out(server, &idle);
            if idle.socket.stream.is_idle() && idle.open.is_current() {
                pool.spare = pool.spare.min(pool.idle.len());
                return Some(idle);
            }
        }
        None
    }

    /// Keeps a connection for later if the server's limits allow it. Otherwise, closes it.
    pub(crate) fn put(&self, connection: Box<Connection>) {
        if let Some(unwanted) = self.keep(connection) {
            unwanted.discard();
        }
    }

    /// Passes connections to `successor` from now on, and ends the sweeper.
    pub(crate) fn retire(&self, successor: Successor) {
        self.successor.replace(Some(successor));
        self.is_old.set(true);
        self.board.wake_sweeper();
    }

    /// Takes the idle connections to the server `from` from the pools of the older plan `older`. In this plan, the server is
    /// `to`.
    pub(crate) fn take_over(&self, older: &Self, from: &LocalServer, to: &Rc<LocalServer>) {
        let old = std::mem::take(&mut *older.of(from));
        let pool = &mut *self.of(to);
        (pool.spare, pool.peak, pool.expected) = (old.spare, old.peak, old.expected);
        for mut connection in old.idle {
            connection.open.server = to.clone();
            let waker = pool.waker(to, &self.board);
            if connection.socket.stream.poll_idle(&mut Context::from_waker(waker)).is_ready() {
                count_out(to, &connection);
                continue;
            }
            pool.idle.push(connection);
        }
        if pool.purge_at == 0 && !pool.idle.is_empty() {
            pool.purge_at = now_ms() + to.pool_purge_delay.as_millis() as u64;
            self.purge_at.set(self.purge_at.get().min(pool.purge_at));
            self.board.wake_sweeper();
        }
    }

    /// Like [`put`](Self::put), but returns a connection that is not kept.
    #[cold]
    pub(crate) fn try_put(&self, connection: Box<Connection>) -> Option<Box<Connection>> {
        self.keep(connection)
    }

    #[inline(always)]
    fn keep(&self, mut connection: Box<Connection>) -> Option<Box<Connection>> {
        if self.is_old.get() {
            return match &*self.successor.borrow() {
                Some(successor) => successor(connection),
                None => Some(connection),
            };
        }
        let server = connection.open.server.clone();
        let settings = &*server;
        if !settings.keeps_idle() {
            return Some(connection);
        }
        if settings.max_reuse >= 0 && i64::from(connection.uses) > settings.max_reuse {
            return Some(connection);
        }
        let most = &self.glitches;
        if connection.glitches > 0
            && violation::is_nearly_enough(connection.glitches, most.server, most.cpu_usage)
        {
            return Some(connection);
        }
        if !settings.state.is_up() || !connection.open.is_current() || !connection.socket.is_drained() {
            return Some(connection);
        }
        connection.socket.input = None;
        let pool = &mut *self.of(settings);
        // One connection is always kept. More are kept only up to the number that was ever needed at the same time, including
        // this one.
        let elsewhere = pool.elsewhere(&settings.state);
        let own = settings.state.counters.mine();
        let used = match settings.state.counts_apart.load(Relaxed) {
            true => (own.traffic.sessions.get() + elsewhere.used).max(0) as u32,
            false => settings.state.served.0.load(Relaxed),
        };
        if used > pool.peak {
            pool.peak = used;
            own.needed.put(pool.peak.max(pool.expected));
        }
        if !pool.idle.is_empty() {
            let others = i64::from(used.saturating_sub(1));
            let idle = own.idle.get() + elsewhere.idle + 1;
            let needed = others.max(pool.peak.max(pool.expected).into());
            if others + idle > needed + i64::from(settings.pool_low_conn) {
                return Some(connection);
            }
        }
        // The sweeper is notified of events on the connection from here on.
        let waker = pool.waker(settings, &self.board);
        if connection.socket.stream.poll_idle(&mut Context::from_waker(waker)).is_ready() {
            return Some(connection);
        }
        if pool.idle.is_empty() && pool.purge_at == 0 {
            pool.purge_at = now_ms() + settings.pool_purge_delay.as_millis() as u64;
            if pool.purge_at < self.purge_at.get() {
                self.purge_at.set(pool.purge_at);
                self.board.wake_sweeper();
            }
        }
        own.idle.up();
        if !connection.is_proven() {
            own.idle_unproven.up();
        }
        pool.idle.push(connection);
        None
    }

    /// Closes the oldest idle connection to `server`. Returns whether one existed.
    pub(crate) fn evict(&self, server: &LocalServer) -> bool {
        let mut pool = self.of(server);
        if pool.idle.is_empty() {
            return false;
        }
        let idle = pool.idle.remove(0);
        count_out(server, &idle);
        pool.spare = pool.spare.min(pool.idle.len());
        drop(pool);
        idle.discard();
        true
    }

    /// Closes an idle connection to any server.
    pub(crate) fn evict_any(&self, locals: &Locals) {
        locals.each_server(|server| !self.evict(server));
    }

    /// Watches the idle connections until another plan is in use.
    pub(crate) fn poll_sweep(
        &self,
        context: &mut Context<'_>,
        locals: &Locals,
        timer: &Timer,
        places: &mut Vec<ServerPosition>,
    ) -> Poll<()> {
        self.board.set_sweeper(context.waker());
        loop {
            if self.is_old.get() {
                return Poll::Ready(());
            }
            timer.set(self.sweep(locals, now_ms(), places));
            if timer.poll_expired(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Drops connections with an event at the servers listed in `places`. If it is time to purge, closes half of the connections
    /// that are not needed. Returns the next instant to check.
    fn sweep(&self, locals: &Locals, now: u64, places: &mut Vec<ServerPosition>) -> u64 {
        self.board.take(places);
        for (backend, index) in places.iter() {
            if let Some(server) = locals.known_server(*backend, *index) {
                self.of(&server).look(&server);
            }
        }
        if now < self.purge_at.get() {
            return self.purge_at.get();
        }
        let mut next = u64::MAX;
        locals.each_server(|server| {
            let pool = &mut *self.of(server);
            if pool.idle.is_empty() && pool.purge_at == 0 {
                return true;
            }
            pool.look(server);
            if now >= pool.purge_at {
                pool.purge(now, server);
            }
            if pool.purge_at > 0 {
                next = next.min(pool.purge_at);
            }
            true
        });
        self.purge_at.set(next);
        next
    }
}

/// Grows the list to include the server at `place` of `backend`.
#[cold]
fn extend(all: &mut Vec<Vec<ServerPool>>, backend: usize, place: usize) {
    if all.len() <= backend {
        all.resize_with(backend + 1, Vec::new);
    }
    if all[backend].len() <= place {
        all[backend].resize_with(place + 1, ServerPool::default);
    }
}

impl ServerPool {
    /// Returns the waker for idle connections to `server`.
    fn waker(&mut self, server: &LocalServer, board: &Arc<Board>) -> &Waker {
        let (_, waker) = self.bell.get_or_insert_with(|| {
            let bell = Bell::new((server.backend, server.index), board);
            (bell.clone(), bell.into())
        });
        waker
    }

    /// Drops the idle connections with an event, or all of them if the server is down.
    fn look(&mut self, server: &LocalServer) {
        let Some((bell, waker)) = &self.bell else { return };
        bell.reset();
        let mut context = Context::from_waker(waker);
        let is_up = server.state.is_up();
        self.idle.retain_mut(|idle| {
            let keep = idle.socket.stream.poll_idle(&mut context).is_pending() && is_up;
            if !keep {
                count_out(server, idle);
            }
            keep
        });
        self.spare = self.spare.min(self.idle.len());
    }

    /// Returns the counts of the other workers. They change on every request, and reading them moves their cache lines, so this
    /// is done only once per millisecond.
    fn elsewhere(&mut self, server: &Server) -> Elsewhere {
        let matters = !self.idle.is_empty() || server.counts_apart.load(Relaxed);
        if !matters || runtime::shard::workers() == 1 {
            return Elsewhere::default();
        }
        let now = now_ms();
        if self.elsewhere.seen_at != now {
            let own = server.counters.mine();
            let (mut used, mut idle) = (-own.traffic.sessions.get(), -own.idle.get());
            for shard in server.counters.all() {
                used += shard.traffic.sessions.get();
                idle += shard.idle.get();
            }
            self.elsewhere = Elsewhere { seen_at: now, used, idle };
        }
        self.elsewhere
    }

    fn purge(&mut self, now: u64, server: &LocalServer) {
        let closed = self.spare.div_ceil(2);
        // The oldest come first.
        for idle in self.idle.drain(..closed) {
            count_out(server, &idle);
        }
        self.spare = self.idle.len();
        self.expected = self.expected.midpoint(self.peak).max(self.peak.min(1));
        self.peak = 0;
        server.state.counters.mine().needed.put(self.expected);
        self.purge_at =
            if self.idle.is_empty() { 0 } else { now + (server.pool_purge_delay.as_millis() as u64).max(1) };
    }
}
