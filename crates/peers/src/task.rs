//! A `peers` section at work on its worker: the group between its connections, its clock and its
//! tables.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use base::clock::now_ms;
use net::{Listener, Stream};
use runtime::timer::{self, NEVER, Timer};
use tokio::sync::Notify;

use crate::group::{Command, Group, Link};
use crate::session::TIMEOUT;
use crate::tables::Tables;
use crate::transport::{self, Line, Speak};

/// A connection on its way.
pub type Making = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

/// How connections are made: whoever has the plan knows.
pub trait Ways: 'static {
    /// Connects to the peer at that place in the section, TLS and all.
    fn connect(&self, peer: usize) -> Making;

    /// Makes what was accepted a connection: TLS, a PROXY header.
    fn accept(&self, stream: Stream) -> Making;
}

/// How long to wait after an error of the system's before the next connection is accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A section at work. It lives and is used on one worker.
pub struct Desk<T> {
    work: RefCell<Work<T>>,
    ways: Box<dyn Ways>,
    /// Told when the next instant to look at the group may have changed.
    changed: Notify,
    /// Told when the successor knows everything, or cannot be reached.
    done: Notify,
}

struct Work<T> {
    group: Group,
    tables: T,
    lines: HashMap<Link, Rc<Line>>,
}

impl<T: Tables + 'static> Desk<T> {
    /// Begins the work of a section on the calling worker.
    pub fn begin(group: Group, tables: T, ways: impl Ways, listeners: Vec<Listener>) -> Rc<Self> {
        let desk = Rc::new(Self {
            work: RefCell::new(Work { group, tables, lines: HashMap::new() }),
            ways: Box::new(ways),
            changed: Notify::new(),
            done: Notify::new(),
        });
        for listener in listeners {
            tokio::task::spawn_local(desk.clone().listen(listener));
        }
        desk.turn(|_, _| ());
        tokio::task::spawn_local(desk.clone().watch());
        desk
    }

    /// Looks at the section, or changes its tables.
    pub fn with<R>(&self, look: impl FnOnce(&Group, &mut T) -> R) -> R {
        let work = &mut *self.work.borrow_mut();
        look(&work.group, &mut work.tables)
    }

    /// Tables have changed: peers are told.
    pub fn wake(&self) {
        self.work.borrow().lines.values().for_each(|line| line.woken.notify_one());
    }

    /// The process ends: its successor is taught, which is tried so often. Returns when that is done.
    pub async fn stop(self: &Rc<Self>, tries: u32) {
        let done = self.done.notified();
        self.turn(|group, _| group.stop(tries, now_ms()));
        done.await;
    }

    /// Does something to the group, and what comes of it.
    fn turn<R>(self: &Rc<Self>, act: impl FnOnce(&mut Group, &mut T) -> R) -> R {
        let work = &mut *self.work.borrow_mut();
        let result = act(&mut work.group, &mut work.tables);
        while let Some(command) = work.group.command() {
            match command {
                Command::Connect { peer, link } => {
                    let line = work.lines.entry(link).or_default().clone();
                    tokio::task::spawn_local(self.clone().dial(peer, link, line));
                }
                Command::Close(link) => {
                    if let Some(line) = work.lines.get(&link) {
                        line.ends.set(true);
                        line.woken.notify_one();
                    }
                }
                Command::Done => self.done.notify_one(),
            }
        }
        self.changed.notify_one();
        result
    }

    /// Looks at the group whenever it wants to be looked at.
    async fn watch(self: Rc<Self>) {
        let timer = Timer::new();
        loop {
            let next = self.work.borrow().group.next();
            // What is due and waits for a connection's own task is no reason to look without end.
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

    async fn listen(self: Rc<Self>, mut listener: Listener) {
        loop {
            let Ok(accepted) = poll_fn(|context| listener.poll_accept(context)).await else {
                timer::sleep(PAUSE).await;
                continue;
            };
            // One too many is closed.
            let Some(link) = self.turn(|group, _| group.accept(now_ms())) else { continue };
            let line = self.work.borrow_mut().lines.entry(link).or_default().clone();
            let stream = Stream::from_fd(accepted.socket, accepted.peer.is_some());
            let desk = self.clone();
            tokio::task::spawn_local(async move {
                let made = desk.ways.accept(stream);
                desk.run(link, line, made, false).await;
            });
        }
    }

    async fn dial(self: Rc<Self>, peer: usize, link: Link, line: Rc<Line>) {
        let made = self.ways.connect(peer);
        self.run(link, line, made, true).await;
    }

    /// A connection from its making to its end.
    async fn run(self: Rc<Self>, link: Link, line: Rc<Line>, made: Making, is_ours: bool) {
        let limit = Duration::from_millis(TIMEOUT);
        if let Ok(Ok(stream)) = timer::timeout(limit, made).await
            && !line.ends.get()
        {
            if is_ours {
                stream.set_nodelay();
                self.turn(|group, _| group.connected(link, now_ms()));
            }
            transport::converse(stream, &line, &Speaker { desk: self.clone(), link }).await;
        }
        self.work.borrow_mut().lines.remove(&link);
        self.turn(|group, _| group.closed(link, now_ms()));
    }
}

/// The section to one connection.
struct Speaker<T> {
    desk: Rc<Desk<T>>,
    link: Link,
}

impl<T: Tables + 'static> Speak for Speaker<T> {
    fn output(&self, out: &mut Vec<u8>, limit: usize) {
        let work = &mut *self.desk.work.borrow_mut();
        work.group.output(self.link, out, limit, now_ms(), &mut work.tables);
    }

    fn received(&self, bytes: &[u8]) {
        self.desk.turn(|group, tables| group.receive(self.link, bytes, now_ms(), tables));
    }
}
