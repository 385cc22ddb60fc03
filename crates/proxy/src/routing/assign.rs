//! Assigns a server to the request: persistence, `use-server`, balancing, and queueing when limits are reached (configuration
//! manual, 4.2 `balance`, `cookie`, `use-server`, `maxconn`, `fullconn`).

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use balance::Wish;
use plan::Proxy;
use runtime::timer::{self, now_us};
use sample::transaction::TimeoutSlot;
use state::server::Tally;
use state::sessions::Activity;
use state::{AttemptOutcome, Queue, Ticket};

use crate::client::{Client, Presence};
use crate::exchange::{Exchange, tracing};
use crate::fault::Fault;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// A slot on a server. Dropping it releases the slot and wakes the next request in the queue.
pub(crate) struct Lease {
    backend: Rc<LocalProxy>,
    server: Rc<LocalServer>,
    tally: Tally,
    /// The start of the attempt, in µs; 0 if response times are not needed.
    since: Cell<u64>,
}

impl Lease {
    /// The server.
    #[inline]
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        &self.server
    }

    /// Reports the outcome of the attempt to the balancer.
    #[inline]
    pub(crate) fn answered(&self, answer: AttemptOutcome) {
        if self.since.get() > 0 {
            let now = now_us();
            let picker = self.backend.prepared().picker();
            picker.answered(self.server.index, now, now - self.since.get(), answer);
        }
    }

    /// Reports to the balancer that the attempt was abandoned through no fault of the server.
    pub(crate) fn gave_up(&self) {
        self.backend.prepared().picker().gave_up(self.server.index, self.taken_us());
    }

    /// Returns the duration of the attempt, in µs, if it is measured.
    pub(crate) fn taken_us(&self) -> u64 {
        if self.since.get() > 0 { now_us() - self.since.get() } else { 0 }
    }

    /// Starts another attempt with the same slot.
    pub(crate) fn begin_again(&self) {
        if self.since.get() > 0 {
            self.since.set(now_us());
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (server, backend) = (&self.server.state, &self.backend.state);
        server.leave(self.tally);
        self.backend.prepared().picker().left(self.server.index);
        if !server.queue.is_empty() {
            server.queue.wake_first();
        } else if !backend.queue.is_empty() {
            backend.queue.wake_first();
        }
    }
}

/// The limit of a server that currently may not serve any request, because other processes use the whole limit (`maxconn …
/// fleet`).
const NO_ROOM: u32 = u32::MAX;

/// Returns how many requests a server may serve at this time: `maxconn`, reduced towards `minconn` while the backend is not busy
/// (`fullconn`), and reduced while the server has just come up (`slowstart`). 0 means unlimited, [`NO_ROOM`] that it may serve
/// none.
fn limit(backend: &Proxy, server: &state::Server) -> u32 {
    let most = server.maxconn.load(Relaxed);
    if most == 0 {
        return 0;
    }
    let limit = if server.minconn == 0 { most } else { dynamic_limit(backend, server, most) };
    match server.ramp() {
        100.. => limit,
        _ if limit == NO_ROOM => limit,
        percent => (u64::from(limit) * u64::from(percent) / 100).max(1) as u32,
    }
}

/// Returns how many requests a server with a limit may serve at this time.
fn room(backend: &Proxy, server: &state::Server) -> u32 {
    let limit = limit(backend, server);
    if limit == NO_ROOM { 0 } else { limit }
}

/// Like [`limit`], for callers that do not queue. Returns `None` if the server may not serve any request.
pub(crate) fn limit_without_queue(backend: &Proxy, server: &state::Server) -> Option<u32> {
    Some(limit(backend, server)).filter(|limit| *limit != NO_ROOM)
}

fn dynamic_limit(backend: &Proxy, server: &state::Server, most: u32) -> u32 {
    if let Some(room) = server.fleet_room() {
        return if room == 0 { NO_ROOM } else { room };
    }
    let full = u64::from(backend.state.fullconn.load(Relaxed).max(1));
    let busy = state::counters::current(&backend.state.backend, |shard| shard.traffic.sessions.get());
    if busy >= full {
        return most;
    }
    ((u64::from(most) * busy / full) as u32).max(server.minconn)
}

/// Finds a server and acquires a slot on it, waiting if necessary. `avoid` is the server that has just failed.
pub(crate) async fn assign(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    avoid: Option<&LocalServer>,
) -> Result<Lease, Fault> {
    match at_once(client, x, backend, avoid)? {
        Assigned::Place(lease) => Ok(lease),
        Assigned::Wait(server) => Box::pin(wait(client, x, backend, server, avoid)).await,
    }
}

/// Finds a server without waiting. This is the usual case, and creates no future.
#[inline(always)]
pub(crate) fn at_once(
    client: &Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    avoid: Option<&LocalServer>,
) -> Result<Assigned, Fault> {
    let assigned = try_assign(client, x, backend, avoid.map(|server| server.index));
    if let Ok(Assigned::Place(_)) = assigned {
        x.txn.times.queued = x.txn.times.request.max(x.txn.times.queued);
    }
    assigned
}

/// Returns a slot on a server other than `than`, if one is free.
pub(crate) fn another(x: &Exchange, backend: &Rc<LocalProxy>, than: &LocalServer) -> Option<Lease> {
    if !backend.state.queue.is_empty() {
        return None;
    }
    let now_us = now_us();
    let wish = Wish { hash: x.choice.hash, avoid: Some(than.index), now_us };
    let picked = pick_late(backend, wish).filter(|picked| picked.index != than.index)?;
    enter(backend, &picked, now_us)
}

/// The result of asking for a server.
pub(crate) enum Assigned {
    Place(Lease),
    /// No slot is free: the caller must [`wait`] for this server if the request is bound to it, or otherwise for any server.
    Wait(Option<Rc<LocalServer>>),
}

// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
fn try_assign(
    client: &Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    avoid: Option<usize>,
) -> Result<Assigned, Fault> {
    if let Some(bound) = &x.choice.bound {
        let again = bound.again && !bound.server.state.removed.load(Relaxed);
        if bound.server.state.is_up() || bound.even_down || again {
            return Ok(match enter(backend, &bound.server, x.txn.times.request) {
                Some(lease) => Assigned::Place(lease),
                None => Assigned::Wait(Some(bound.server.clone())),
            });
        }
        x.choice.bound = None;
    }
    let wish = Wish { hash: x.choice.hash, avoid, now_us: x.txn.times.request };
    let preferred = preferred(client, backend, avoid);
    let is_preferred = preferred.is_some();
    let picked = preferred.or_else(|| pick(backend, wish)).ok_or(Fault::NoServer)?;
    // Persistence, the preferred last server and requests from the backend's queue are not counted as choices of the balancer
    // (`lbtot`).
    let count = || {
        if !is_preferred && Some(picked.index) != avoid {
            picked.state.counters.mine().chosen.add(1);
            backend.state.backend.mine().chosen.add(1);
        }
    };
    if backend.state.queue.is_empty()
        && let Some(lease) = enter(backend, &picked, x.txn.times.request)
    {
        count();
        return Ok(Assigned::Place(lease));
    }
    // The first backup is exempt, because it is used only when no other server could serve the request.
    let stands_alone = picked.state.backup && !backend.options.allbackups;
    if x.choice.hash.is_none() && !is_preferred && !stands_alone {
        return Ok(Assigned::Wait(None));
    }
    count();
    Ok(Assigned::Wait(Some(picked)))
}

/// Returns the balancer's choice.
#[inline(always)]
pub(crate) fn pick(backend: &LocalProxy, wish: Wish) -> Option<Rc<LocalServer>> {
    let picked = backend.prepared().picker().pick(wish, |server| room(backend, server));
    match picked {
        Some(at) => backend.server(at),
        None => pick_again(backend, wish),
    }
}

/// Repeats a choice that found no server, because the servers of the balancer may have been replaced in the meantime.
#[cold]
fn pick_again(backend: &LocalProxy, wish: Wish) -> Option<Rc<LocalServer>> {
    let at = backend.prepared().picker().pick(wish, |server| room(backend, server))?;
    backend.server(at)
}

/// Chooses a server for an attempt that is not the first one of a request.
#[cold]
fn pick_late(backend: &LocalProxy, wish: Wish) -> Option<Rc<LocalServer>> {
    pick(backend, wish)
}

/// Returns the server to which the client authenticated over a connection that is reserved for it (NTLM), or the server of the
/// connection's last request (`option prefer-last-server`). Returns `None` if that server is not usable, if its queue exceeds
/// `max-keep-alive-queue`, or if the balancing algorithm uses a hash.
fn preferred(client: &Client, backend: &LocalProxy, avoid: Option<usize>) -> Option<Rc<LocalServer>> {
    if client.private.borrow().is_none() && !backend.options.prefer_last_server
        || backend.balance.algorithm.hashes()
    {
        return None;
    }
    let last = || client.last_server.borrow().upgrade().filter(|_| backend.options.prefer_last_server);
    let bound = || client.private.borrow().as_deref()?.authenticated_server(backend.index);
    let server = bound().or_else(last).filter(|server| server.backend == backend.index)?;
    if Some(server.index) == avoid {
        return None;
    }
    let state = &server.state;
    let limit = limit(backend, state);
    let has_room = limit == 0 || (limit != NO_ROOM && state.serves_fewer(limit));
    // `max-keep-alive-queue`: the longest queue with which the server is still preferred to another one.
    let most = i64::from(backend.max_keep_alive_queue);
    let short = most < 0 || has_room || i64::from(state.queue.len()) < most;
    let usable = state.effective_weight() > 0;
    (short && usable).then_some(server)
}

#[inline]
fn enter(backend: &Rc<LocalProxy>, server: &Rc<LocalServer>, now: u64) -> Option<Lease> {
    let limit = limit(backend, &server.state);
    if limit > 0 && (limit == NO_ROOM || !server.state.queue.is_empty()) {
        return None;
    }
    server.state.try_enter(limit).map(|tally| lease(backend, server, tally, now))
}

#[inline(always)]
fn lease(backend: &Rc<LocalProxy>, server: &Rc<LocalServer>, tally: Tally, now: u64) -> Lease {
    let picker = backend.prepared().picker();
    picker.entered(server.index, now);
    let since = if picker.wants_answers() { now_us() } else { 0 };
    drop(picker);
    Lease { backend: backend.clone(), server: server.clone(), tally, since: Cell::new(since) }
}

/// A position in the queue of a server or of the backend. Dropping it leaves the queue.
struct InLine<'a> {
    queue: &'a Queue,
    ticket: Ticket,
    /// The balancer, and the index of the server to which the queue belongs. The queue is part of the server's load.
    load: Option<(&'a LocalProxy, usize)>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.queue.leave(self.ticket);
        if let Some((backend, server)) = self.load {
            backend.prepared().picker().parted(server);
        }
        // If one slot became free, there may be more, so the next request is woken to check.
        self.queue.wake_first();
    }
}

/// Waits for a slot on `server`, or on any server.
///
/// # Errors
/// The queue is full, the queue timeout expired, or the client left.
pub(crate) async fn wait(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    mut server: Option<Rc<LocalServer>>,
    avoid: Option<&LocalServer>,
) -> Result<Lease, Fault> {
    let avoid = avoid.map(|server| server.index);
    let begun = tracing::clock(x);
    loop {
        let waited = wait_in_line(client, x, backend, server.as_ref(), avoid).await;
        tracing::step(x, "queue", &backend.state.name, begun, waited.is_err());
        if let Some(lease) = waited? {
            return Ok(lease);
        }
        x.choice.bound = None;
        match try_assign(client, x, backend, avoid)? {
            Assigned::Place(lease) => return Ok(lease),
            Assigned::Wait(other) => server = other,
        }
    }
}

/// Waits in one queue. Returns `None` if the queue's server went down.
async fn wait_in_line(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    server: Option<&Rc<LocalServer>>,
    avoid: Option<usize>,
) -> Result<Option<Lease>, Fault> {
    // Logs name the server that a request waits for, even if it never gets a slot there.
    x.txn.server = server.map(|server| server.held.clone()).or(x.txn.server.take());
    let allowed = x.timeout(TimeoutSlot::Queue, backend.timeouts.queue.or(backend.timeouts.connect));
    client.timer.set_after(timer::now_ms(), allowed);
    client.entry.activity.set(Activity::Queued);
    let watch = x.aborts_on_close(client, backend);
    let mut line = QueueWait::new(backend, server, avoid);
    let outcome = poll_fn(|context| line.poll(client, x, context, watch)).await;
    let position = line.leave(matches!(outcome, Ok(Some(_))));
    match server {
        Some(_) => x.txn.server_queue = position,
        None => x.txn.backend_queue = position,
    }
    x.txn.times.queued = now_us();
    outcome
}

/// A request's wait in the queue of a server or of the backend.
struct QueueWait<'a> {
    backend: &'a Rc<LocalProxy>,
    server: Option<&'a Rc<LocalServer>>,
    /// The server to avoid.
    avoid: Option<usize>,
    queue: &'a Queue,
    /// How many requests the queue had served when the wait began.
    served_before: u64,
    place: Option<InLine<'a>>,
}

impl<'a> QueueWait<'a> {
    fn new(backend: &'a Rc<LocalProxy>, server: Option<&'a Rc<LocalServer>>, avoid: Option<usize>) -> Self {
        let queue = server.map_or(&backend.state.queue, |server| &server.state.queue);
        let served_before = queue.served();
        Self { backend, server, avoid, queue, served_before, place: None }
    }

    /// Ready with a slot, or with `None` if the server went down.
    fn poll(
        &mut self,
        client: &mut Client,
        x: &Exchange,
        context: &mut Context<'_>,
        watch: bool,
    ) -> Poll<Result<Option<Lease>, Fault>> {
        let is_first = match &self.place {
            Some(place) => self.queue.is_first(place.ticket),
            None => {
                self.enter(x, context)?;
                // A slot may have become free since the queue was chosen.
                true
            }
        };
        if !is_first {
            return waiting(client, x, context, watch);
        }
        let lease = match self.server {
            Some(server) if !server.state.is_up() => return Poll::Ready(Ok(None)),
            Some(server) => take_place(self.backend, server),
            None => {
                let wish = Wish { hash: x.choice.hash, avoid: self.avoid, now_us: now_us() };
                let picked = pick_late(self.backend, wish).ok_or(Fault::NoServer)?;
                take_place(self.backend, &picked)
            }
        };
        match lease {
            Some(lease) => Poll::Ready(Ok(Some(lease))),
            None => waiting(client, x, context, watch),
        }
    }

    /// Joins the queue, with the request's priority.
    fn enter(&mut self, x: &Exchange, context: &Context<'_>) -> Result<(), Fault> {
        let (class, offset) = x.txn.priority;
        let date = timer::now_ms() as i64 + i64::from(offset);
        let most = self.server.map_or(0, |server| server.state.maxqueue);
        let entered = self.queue.enter(class, date, most, context.waker().clone());
        let Some((ticket, _)) = entered else {
            self.note_full_queue(most);
            return Err(Fault::QueueFull);
        };
        let load = self.server.map(|server| (&**self.backend, server.index));
        if let Some((backend, server)) = load {
            backend.prepared().picker().joined(server);
        }
        self.place = Some(InLine { queue: self.queue, ticket, load });
        Ok(())
    }

    #[cold]
    fn note_full_queue(&self, most: u32) {
        self.queue.note_full(|| {
            let server = self.server.map(|server| format!("/{}", server.state.name)).unwrap_or_default();
            let text = format!("maxqueue {most} of the server is reached: requests are rejected.");
            (format!("{}{server}", self.backend.state.name), text)
        });
    }

    /// Leaves the queue, and counts the request if it was `served`. Returns the position to log: the number of requests served
    /// before it, plus one if it was queued.
    fn leave(self, served: bool) -> u32 {
        let before = self.queue.served().saturating_sub(self.served_before) as u32;
        let position = before + u32::from(self.place.is_some());
        drop(self.place);
        if served {
            self.queue.count_served();
        }
        position
    }
}

fn take_place(backend: &Rc<LocalProxy>, server: &Rc<LocalServer>) -> Option<Lease> {
    let limit = limit(backend, &server.state);
    if limit == NO_ROOM {
        return None;
    }
    server.state.try_enter(limit).map(|tally| lease(backend, server, tally, now_us()))
}

fn waiting<T>(
    client: &mut Client,
    x: &Exchange,
    context: &mut Context<'_>,
    watch: bool,
) -> Poll<Result<T, Fault>> {
    if client.timer.poll_expired(context).is_ready() {
        return Poll::Ready(Err(Fault::QueueTimeout));
    }
    match left(client, x, context, watch) {
        Some(fault) => Poll::Ready(Err(fault)),
        None => Poll::Pending,
    }
}

/// Checks the client while no server is reached. A broken connection ends the stream. If the client has only closed its write
/// side, this ends the stream only if the client is watched (`option abortonclose`).
pub(crate) fn left(
    client: &mut Client,
    x: &Exchange,
    context: &mut Context<'_>,
    watch: bool,
) -> Option<Fault> {
    match client.poll_presence(context) {
        Presence::Here => None,
        // If the client never sent anything, there is nothing to wait for.
        Presence::Closed => {
            (watch || client.side.is_drained() && !x.txn.is_http).then_some(Fault::ClientAborted)
        }
        Presence::Broken if x.txn.is_http => Some(Fault::ClientAborted),
        Presence::Broken => Some(Fault::ClientReset),
    }
}
