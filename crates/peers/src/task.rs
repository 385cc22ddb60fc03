//! A `peers` section running on its worker: the group with its connections, its clock and its tables.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use base::clock::now_ms;
use net::Stream;
use runtime::timer::{self, NEVER, Timer};
use runtime::trace::{self, Keys, TraceLevel, TraceSource, peers};
use tokio::sync::Notify;

use crate::group::{Group, GroupCommand, LinkId};
use crate::session::TIMEOUT;
use crate::tables::Tables;
use crate::transport::{self, ConnectionChannel, Speak};

/// A connection being opened.
pub type Making = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// Opens connections to peers. The owner of the plan implements this.
pub trait Ways: 'static {
    /// Connects to the peer at that index, including TLS.
    fn connect(&self, peer: usize) -> Making;

    /// Reports the number of connections, and how many of these have a session.
    fn count(&self, _: [u32; 2]) {}
}

/// A running section. It is used on one worker only.
pub struct SectionMailbox<T> {
    work: RefCell<SectionWork<T>>,
    ways: Box<dyn Ways>,
    /// Notified when the group's next deadline may have changed.
    changed: Notify,
    /// Notified when the successor has got everything, or cannot be reached.
    done: Notify,
    /// For each table that sends its changes at intervals, when that was last done, and whether it is due.
    paces: RefCell<HashMap<usize, (u64, bool)>>,
}

struct SectionWork<T> {
    group: Group,
    tables: T,
    lines: HashMap<LinkId, Rc<ConnectionChannel>>,
}

impl<T: Tables> SectionWork<T> {
    /// Wakes the connections that may have something to send.
    fn wake(&mut self) {
        let mut due = HashMap::new();
        for (link, line) in &self.lines {
            let (peer, is_beat_due) = self.group.to_wake(*link);
            let is_due = is_beat_due
                || peer.is_none_or(|peer| *due.entry(peer).or_insert_with(|| self.tables.take_due(peer)));
            if is_due {
                line.woken.notify_one();
            }
        }
    }
}

impl<T: Tables + 'static> SectionMailbox<T> {
    /// Starts a section on the calling worker.
    pub fn begin(group: Group, tables: T, ways: impl Ways) -> Rc<Self> {
        let desk = Rc::new(Self {
            work: RefCell::new(SectionWork { group, tables, lines: HashMap::new() }),
            ways: Box::new(ways),
            changed: Notify::new(),
            done: Notify::new(),
            paces: RefCell::default(),
        });
        desk.turn(|_, _| ());
        tokio::task::spawn_local(desk.clone().watch());
        desk
    }

    /// Calls `look` with the group and its tables.
    pub fn with<R>(&self, look: impl FnOnce(&Group, &mut T) -> R) -> R {
        let work = &mut *self.work.borrow_mut();
        look(&work.group, &mut work.tables)
    }

    /// Sets the names of the peers that DNS provides now, by the indices of these peers.
    pub fn rename(self: &Rc<Self>, names: &[(usize, Option<String>)]) {
        self.turn(|group, tables| group.rename(names, now_ms(), tables));
    }

    /// Called when tables have changed: sends the changes to peers.
    pub fn wake(&self) {
        self.work.borrow_mut().wake();
    }

    /// Called when a table has changed that sends its changes at most every `every` milliseconds: sends them to peers then.
    pub fn release(self: &Rc<Self>, table: usize, every: u64) {
        let now = now_ms();
        let last = match &mut *self.paces.borrow_mut().entry(table).or_default() {
            (_, true) => return,
            (last, due) => {
                *due = true;
                *last
            }
        };
        let desk = self.clone();
        tokio::task::spawn_local(async move {
            timer::sleep(Duration::from_millis((last + every).saturating_sub(now))).await;
            desk.paces.borrow_mut().insert(table, (now_ms(), false));
            desk.turn(|_, tables| tables.release(Some(table), now_ms()));
            desk.wake();
        });
    }

    /// Called when the process ends: sends all entries to its successor, trying up to `tries` times. Returns when that is done.
    pub async fn stop(self: &Rc<Self>, tries: u32) {
        let done = self.done.notified();
        self.turn(|group, _| group.stop(tries, now_ms()));
        done.await;
    }

    /// Called when the process is about to exit and will make no more changes: sends the remaining changes to its
    /// successor.
    pub fn drained(self: &Rc<Self>) {
        self.turn(|group, tables| {
            tables.release(None, now_ms());
            group.drained(now_ms(), tables);
        });
        self.wake();
    }

    /// Calls `act` on the group, and executes the resulting commands.
    fn turn<R>(self: &Rc<Self>, act: impl FnOnce(&mut Group, &mut T) -> R) -> R {
        let work = &mut *self.work.borrow_mut();
        let result = act(&mut work.group, &mut work.tables);
        if work.group.forgets_predecessor() {
            work.tables.forget_predecessor();
        }
        let is_due = work.group.settle(now_ms(), &mut work.tables);
        while let Some(command) = work.group.command() {
            match command {
                GroupCommand::Connect { peer, link } => {
                    work.lines.entry(link).or_default();
                    tokio::task::spawn_local(self.clone().dial(peer, link));
                }
                GroupCommand::Close(link) => {
                    if let Some(line) = work.lines.get(&link) {
                        line.ends.set(true);
                        line.woken.notify_one();
                    }
                }
                GroupCommand::Done => self.done.notify_one(),
            }
        }
        while let Some(link) = work.group.asked() {
            if let Some(line) = work.lines.get(&link) {
                line.woken.notify_one();
            }
        }
        if is_due {
            work.wake();
        }
        self.ways.count(work.group.connections());
        self.changed.notify_one();
        result
    }

    /// Runs the group at its deadlines.
    async fn watch(self: Rc<Self>) {
        let timer = Timer::new();
        loop {
            let next = {
                let work = self.work.borrow();
                work.group.next().into_iter().chain(work.tables.next()).min()
            };
            // Work that waits for a connection's own task must not cause a busy loop.
            timer.set(next.map_or(NEVER, |next| next.max(now_ms() + 1)));
            tokio::select! {
                () = self.changed.notified() => {}
                () = timer.expired() => {
                    self.turn(|group, _| group.tick(now_ms()));
                    self.wake();
                }
            }
        }
    }

    /// Serves an incoming connection, of which these bytes were already read, to its end. Connections above the limit are closed.
    pub async fn serve(self: Rc<Self>, stream: Stream, early: Vec<u8>) {
        let Some(link) = self.turn(|group, _| group.accept(now_ms())) else { return };
        let standing = self.open_link(link);
        if !early.is_empty() {
            self.turn(|group, tables| group.receive(link, &early, now_ms(), tables));
        }
        standing.run(Box::pin(async { Ok(stream) }), false).await;
    }

    async fn dial(self: Rc<Self>, peer: usize, link: LinkId) {
        let made = self.ways.connect(peer);
        self.open_link(link).run(made, true).await;
    }

    fn open_link(self: &Rc<Self>, link: LinkId) -> OpenLink<T> {
        let line = self.work.borrow_mut().lines.entry(link).or_default().clone();
        OpenLink { desk: self.clone(), link, line }
    }
}

/// A connection of the group. Dropping it removes the connection.
struct OpenLink<T: Tables + 'static> {
    desk: Rc<SectionMailbox<T>>,
    link: LinkId,
    line: Rc<ConnectionChannel>,
}

impl<T: Tables + 'static> OpenLink<T> {
    /// Runs the connection to its end.
    async fn run(self, made: Making, is_ours: bool) {
        let limit = Duration::from_millis(TIMEOUT);
        let Ok(Ok(stream)) = timer::timeout(limit, made).await else {
            self.observe(peers::ERROR, TraceLevel::Error, "cannot connect to peer", 0);
            return;
        };
        if self.line.ends.get() {
            return;
        }
        stream.set_nodelay();
        self.observe(peers::NEW, TraceLevel::User, "session started", 0);
        if is_ours {
            self.desk.turn(|group, _| group.connected(self.link, now_ms()));
        }
        transport::converse(stream, &self.line, &self).await;
    }
}

impl<T: Tables + 'static> OpenLink<T> {
    /// A trace point (`trace peers` on the runtime socket).
    #[inline]
    #[track_caller]
    fn observe(&self, events: u64, level: TraceLevel, message: &str, bytes: usize) {
        if trace::is_on(TraceSource::Peers) {
            self.trace(events, level, message, bytes);
        }
    }

    #[cold]
    #[track_caller]
    fn trace(&self, events: u64, level: TraceLevel, message: &str, bytes: usize) {
        let group = &self.desk.work.borrow().group;
        let keys = Keys { own: self.link + 1, group: group.number(), ..Keys::default() };
        trace::report(TraceSource::Peers, events, level, &keys, message, &|_, out| {
            let name = group.name_of(self.link).unwrap_or(b"?");
            // Writing to a string cannot fail.
            let _ = write!(out, "peer={} connection={}", String::from_utf8_lossy(name), self.link);
            if bytes > 0 {
                let _ = write!(out, " bytes={bytes}");
            }
        });
    }
}

impl<T: Tables + 'static> Drop for OpenLink<T> {
    fn drop(&mut self) {
        self.observe(peers::END, TraceLevel::State, "session ended", 0);
        self.desk.work.borrow_mut().lines.remove(&self.link);
        self.desk.turn(|group, _| group.closed(self.link, now_ms()));
    }
}

impl<T: Tables + 'static> Speak for OpenLink<T> {
    fn output(&self, out: &mut Vec<u8>, limit: usize) {
        let before = out.len();
        {
            let work = &mut *self.desk.work.borrow_mut();
            work.group.output(self.link, out, limit, now_ms(), &mut work.tables);
        }
        if out.len() > before {
            self.observe(peers::TX, TraceLevel::Proto, "messages serialized", out.len() - before);
        }
    }

    fn received(&self, bytes: &[u8]) {
        self.observe(peers::RX, TraceLevel::Proto, "messages received", bytes.len());
        self.desk.turn(|group, tables| group.receive(self.link, bytes, now_ms(), tables));
    }
}
