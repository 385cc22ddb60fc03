//! The task of a socket.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use net::connected::SocketSet;
use net::udp::{Batch, Replies, UdpSocket};
use runtime::timer::{NEVER, Timer, now_ms};
use sample::{Cause, Phase};
use state::proxy::Admission;
use state::sessions::{Kill, SessionEntry};
use udplb::{SessionId, SessionTable};

use super::flow::UdpFlow;
use super::place::ShardPlace;
use super::slots;
use crate::worker::Worker;

/// How many batches of datagrams are received from clients, and how many from servers, before the task yields.
const TURNS: usize = 8;

/// The number of idle sessions that end before the task yields.
const ENDS: usize = 256;

/// The largest number of bytes that the kernel joins.
const ROOM: usize = 65_536;

/// Wakes the task because a session was killed.
#[derive(Default)]
struct Killer {
    has_killed: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Killer {
    fn watch(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|own| own.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for Killer {
    fn wake(self: Arc<Self>) {
        self.has_killed.store(true, Relaxed);
        if let Some(waker) = self.task.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// Memory that the task reuses.
struct Buffers {
    batch: Batch,
    /// Datagrams of a client that are joined.
    joined: Vec<u8>,
    replies: Replies,
    /// Sessions with datagrams from their servers.
    ready: Vec<u64>,
}

/// A socket with its sessions.
pub(super) struct Shard {
    pub(super) inode: u64,
    pub(super) socket: UdpSocket,
    /// The sockets of the sessions.
    pub(super) servers: SocketSet,
    pub(super) table: RefCell<SessionTable<UdpFlow>>,
    pub(super) place: RefCell<Rc<ShardPlace>>,
    timer: Timer,
    killer: Arc<Killer>,
    killer_waker: Waker,
    /// Set when the plan does not have the socket any more, or another process has its sessions.
    is_left: Cell<bool>,
    /// Whether the sessions of another process are still to come.
    is_waiting: Cell<bool>,
    /// The number of the task's registration at the listener of its place.
    registration: Cell<Option<u32>>,
}

impl Shard {
    pub(super) fn new(
        worker: Rc<Worker>,
        socket: OwnedFd,
        inode: u64,
        frontend: usize,
        bind: usize,
    ) -> io::Result<Self> {
        let killer = Arc::<Killer>::default();
        Ok(Self {
            inode,
            socket: UdpSocket::new(socket, true)?,
            servers: SocketSet::new()?,
            table: RefCell::default(),
            place: RefCell::new(Rc::new(ShardPlace::new(worker, frontend, bind))),
            timer: Timer::new(),
            killer_waker: killer.clone().into(),
            killer,
            is_left: Cell::new(false),
            is_waiting: Cell::new(super::EXPECTS.load(Relaxed)),
            registration: Cell::new(None),
        })
    }

    pub(super) fn place(&self) -> Rc<ShardPlace> {
        self.place.borrow().clone()
    }

    pub(super) fn generation(&self) -> u64 {
        self.place.borrow().worker.shared.generation
    }

    /// The address that a client sends to, or that of the socket if the kernel does not report it.
    pub(super) fn local(&self, destination: Option<std::net::IpAddr>) -> SocketAddr {
        let own = self.socket.local_addr();
        destination.map_or(own, |ip| (ip, own.port()).into())
    }

    /// Lets the task notice when a session is killed.
    pub(super) fn watch_kill(&self, entry: &SessionEntry) {
        // Only registers the waker.
        let _ = entry.poll_killed(&mut Context::from_waker(&self.killer_waker));
    }

    /// Begins to read, now that all sessions of another process are here.
    pub(super) fn begin_reading(&self) {
        self.is_waiting.set(false);
        self.killer_waker.wake_by_ref();
    }

    /// Ends all sessions and the task.
    pub(super) fn stop(&self) {
        self.is_left.set(true);
        self.killer_waker.wake_by_ref();
    }

    /// Follows another plan, with all sessions. The sessions of a server that it does not have continue.
    pub(super) fn follow(&self, worker: Rc<Worker>, frontend: usize, bind: usize) {
        let place = Rc::new(ShardPlace::new(worker, frontend, bind));
        let mut table = self.table.borrow_mut();
        for id in table.ids() {
            let Some(session) = table.get_mut(id) else { continue };
            let flow = &mut session.data;
            match place.worker.server_with_state(&flow.server) {
                Some(server) => {
                    let backend = place.worker.local(server.backend);
                    // Another algorithm may count the sessions of servers in another way.
                    server.state.leave(flow.tally);
                    if let Some(tally) = slots::enter_again(&backend, &server) {
                        flow.tally = tally;
                    }
                    if flow.backend.is_none() {
                        backend.state.backend.mine().traffic.sessions.up();
                    }
                    flow.server = server;
                    flow.backend = Some(backend);
                }
                None => {
                    // Nothing else counts the session in that backend from here on.
                    if let Some(backend) = flow.backend.take() {
                        backend.state.backend.mine().traffic.sessions.down();
                    }
                }
            }
        }
        table.renew(&place.limits);
        slots::move_slots(&self.place.borrow(), &place, table.len());
        drop(table);
        self.place.replace(place);
        self.registration.set(None);
        self.killer_waker.wake_by_ref();
    }

    /// Serves the socket until its frontend has stopped and all sessions have ended.
    pub(super) async fn run(self: &Rc<Self>) {
        let mut buffers = Buffers {
            batch: Batch::default(),
            joined: vec![0; ROOM],
            replies: Replies::default(),
            ready: Vec::new(),
        };
        while !poll_fn(|context| self.poll(context, &mut buffers)).await {
            tokio::task::yield_now().await;
        }
        let ids = self.table.borrow().ids();
        ids.into_iter().for_each(|id| self.end(id, Cause::Killed, Phase::Data));
    }

    /// Ready with `false` if there is more to do, and with `true` at the end.
    fn poll(&self, context: &mut Context<'_>, buffers: &mut Buffers) -> Poll<bool> {
        self.killer.watch(context.waker());
        if self.killer.has_killed.swap(false, Relaxed) {
            self.end_killed();
        }
        if self.is_left.get() {
            return Poll::Ready(true);
        }
        if self.is_waiting.get() {
            return Poll::Pending;
        }
        let mut has_more = self.poll_servers(context, &mut buffers.replies, &mut buffers.ready);
        has_more |= self.poll_clients(context, &mut buffers.batch, &mut buffers.joined);
        has_more |= self.end_expired();
        if has_more {
            return Poll::Ready(false);
        }
        if self.has_stopped(context) {
            return Poll::Ready(true);
        }
        let due = self.table.borrow().next_due().unwrap_or(NEVER);
        self.timer.set(due);
        match self.timer.poll_expired(context) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Receives from clients; returns whether more may be waiting.
    fn poll_clients(&self, context: &mut Context<'_>, batch: &mut Batch, room: &mut [u8]) -> bool {
        for _ in 0..TURNS {
            match self.socket.poll_recv(context, batch) {
                Poll::Pending => return false,
                // An error belongs to one datagram, such as the refusal of an answer.
                Poll::Ready(Err(_)) => continue,
                Poll::Ready(Ok(())) => self.receive_from_clients(batch, room),
            }
        }
        true
    }

    /// Receives from servers; returns whether more may be waiting.
    fn poll_servers(&self, context: &mut Context<'_>, replies: &mut Replies, ready: &mut Vec<u64>) -> bool {
        for _ in 0..TURNS {
            ready.clear();
            if self.servers.poll_ready(context, ready).is_pending() {
                return false;
            }
            ready.iter().for_each(|id| self.receive_from_server(SessionId::from_bits(*id), replies));
            replies.flush(&self.socket);
        }
        true
    }

    /// Ends sessions that were idle for too long; returns whether there may be more.
    fn end_expired(&self) -> bool {
        let (now, limits) = (now_ms(), self.place.borrow().limits);
        for _ in 0..ENDS {
            let mut table = self.table.borrow_mut();
            let Some(id) = table.expired(now, &limits) else { return false };
            let lacks = table.get(id).is_some_and(|session| session.lacks_answers(&limits));
            drop(table);
            if lacks {
                self.end(id, Cause::ServerTimeout, Phase::Data);
            } else {
                self.end(id, Cause::None, Phase::None);
            }
        }
        true
    }

    fn end_killed(&self) {
        let ids = self.table.borrow().ids();
        for id in ids {
            let why = self.table.borrow().get(id).and_then(|session| session.data.entry.killed());
            let cause = match why {
                None => continue,
                Some(Kill::Operator) => Cause::Killed,
                Some(Kill::ServerDown) => Cause::Down,
                Some(Kill::ServerUp) => Cause::Up,
            };
            self.end(id, cause, Phase::Data);
        }
    }

    /// Whether the frontend has stopped and no session is left. Otherwise the task is woken when the frontend stops.
    fn has_stopped(&self, context: &Context<'_>) -> bool {
        let place = self.place.borrow();
        let has_stopped =
            || place.frontend.state.admission() == Admission::Stopped && self.table.borrow().is_empty();
        let listener = &place.bind().listener;
        has_stopped() || {
            // Registering takes a lock.
            if !self.registration.get().is_some_and(|number| listener.is_registered(number)) {
                self.registration.set(Some(listener.wait(context.waker().clone())));
            }
            // The state may have changed before the registration.
            has_stopped()
        }
    }
}
