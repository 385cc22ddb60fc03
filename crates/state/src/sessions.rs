//! The connections a worker serves, for `show sess` and `shutdown session`: a register of its own
//! for each worker.
//!
//! `proxy` registers a connection at accept, updates its cells with plain stores and lets it go at
//! close. `control` reads and kills by posting a closure to each worker. Nothing here is shared
//! between threads.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use runtime::Local;

use crate::{Proxy, Server};

/// What a connection is doing, in the words of `show sess`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    /// Waiting for a request or the first bytes.
    #[default]
    Waiting,
    /// Request rules are being evaluated, or a body awaited.
    Request,
    /// In a queue.
    Queued,
    /// Connecting to a server.
    Connecting,
    /// Waiting for the response.
    Response,
    /// Transferring data.
    Data,
    /// A tunnel.
    Tunnel,
}

impl Activity {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Request => "request",
            Self::Queued => "queued",
            Self::Connecting => "connecting",
            Self::Response => "response",
            Self::Data => "data",
            Self::Tunnel => "tunnel",
        }
    }
}

/// One connection. Cells are written by the task that serves it.
pub struct SessionEntry {
    /// Unique in the process; shown in hexadecimal.
    pub id: u64,
    /// The frontend that accepted it.
    pub frontend: Local<Proxy>,
    ends: Ends,
    /// When it was accepted, in ms of the monotonic clock.
    pub since_ms: u64,
    /// What it is doing.
    pub activity: Cell<Activity>,
    /// Requests so far.
    pub requests: Cell<u32>,
    /// Bytes from the client.
    pub bytes_in: Cell<u64>,
    /// Bytes to the client.
    pub bytes_out: Cell<u64>,
    /// When it last did anything, in ms.
    pub active_ms: Cell<u64>,
    /// The descriptor of the client's connection, or -1.
    pub client_fd: Cell<i32>,
    /// The descriptor of the connection to the server, or -1.
    pub server_fd: Cell<i32>,
    /// The number of its stream on the client's connection, 0 where that has none.
    pub client_stream: Cell<u32>,
    /// The same on the server's.
    pub server_stream: Cell<u32>,
    backend: Cell<Option<Local<Proxy>>>,
    server: Cell<Option<Local<Server>>>,
    killed: Cell<Option<Kill>>,
    /// The request line, where it is kept for logs: lent by the register as long as the request lasts.
    request_line: Cell<Option<Box<RequestLine>>>,
    /// Its place in the register.
    index: u32,
    waker: Cell<Option<Waker>>,
}

/// The client's address and ours, in the least room: there is an entry for every idle connection.
#[derive(Debug)]
enum Ends {
    V4(SocketAddrV4, SocketAddrV4),
    Other(Box<(Option<SocketAddr>, Option<SocketAddr>)>),
}

impl Ends {
    const NONE: Self = {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Self::V4(nowhere, nowhere)
    };

    /// Other addresses, in the memory that these have.
    fn replaced(self, source: Option<SocketAddr>, destination: Option<SocketAddr>) -> Self {
        match (self, source, destination) {
            (_, Some(SocketAddr::V4(source)), Some(SocketAddr::V4(destination))) => {
                Self::V4(source, destination)
            }
            (Self::Other(mut ends), ..) => {
                *ends = (source, destination);
                Self::Other(ends)
            }
            (Self::V4(..), ..) => Self::Other(Box::new((source, destination))),
        }
    }

    fn get(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match self {
            Self::V4(source, destination) => (Some((*source).into()), Some((*destination).into())),
            Self::Other(ends) => **ends,
        }
    }
}

/// Looks at what a cell holds by taking it out for a moment.
fn peek<T, R>(cell: &Cell<Option<T>>, look: impl FnOnce(&mut Option<T>) -> R) -> R {
    let mut value = cell.take();
    let result = look(&mut value);
    cell.set(value);
    result
}

impl std::fmt::Debug for SessionEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id)
            .field("activity", &self.activity)
            .finish_non_exhaustive()
    }
}

/// Why a connection is ended from outside; becomes the termination flag of its log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// `shutdown session` (`K`).
    Operator,
    /// The server went down and has `on-marked-down shutdown-sessions` (`D`).
    ServerDown,
    /// A server came up and has `on-marked-up shutdown-backup-sessions` (`U`).
    ServerUp,
}

impl SessionEntry {
    /// Says which backend serves the request. The same as before costs no more than a look.
    pub fn set_backend(&self, backend: &Local<Proxy>) {
        peek(&self.backend, |own| {
            if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own.shared(), backend.shared())) {
                *own = Some(backend.clone());
            }
        });
    }

    /// Says which server serves the request.
    pub fn set_server(&self, server: &Local<Server>) {
        peek(&self.server, |own| {
            if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own.shared(), server.shared())) {
                *own = Some(server.clone());
            }
        });
    }

    /// Keeps a copy of the request line for `show sess`.
    pub fn note_request_line(&self, line: &[u8]) {
        let mut own = self.request_line.take().unwrap_or_else(|| REGISTER.with_borrow_mut(Register::lend));
        own.0.clear();
        own.0.extend_from_slice(&line[..line.len().min(LONGEST_LINE)]);
        self.request_line.set(Some(own));
    }

    /// The request is over: gives back what its line was kept in.
    #[inline]
    pub fn forget_request_line(&self) {
        if let Some(line) = self.request_line.take() {
            give_back(line);
        }
    }

    /// Whether it must end, and why. A stream asks between its steps.
    pub fn killed(&self) -> Option<Kill> {
        self.killed.get()
    }

    /// Ready when it must end; otherwise the task is woken then.
    pub fn poll_killed(&self, context: &mut Context<'_>) -> Poll<Kill> {
        if let Some(kill) = self.killed.get() {
            return Poll::Ready(kill);
        }
        peek(&self.waker, |waker| {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        });
        Poll::Pending
    }

    fn kill(&self, why: Kill) {
        self.killed.set(Some(why));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            id: self.id,
            worker: runtime::current_worker(),
            frontend: self.frontend.shared().clone(),
            backend: peek(&self.backend, |own| own.as_ref().map(|own| own.shared().clone())),
            server: peek(&self.server, |own| own.as_ref().map(|own| own.shared().clone())),
            source: self.ends.get().0,
            destination: self.ends.get().1,
            since_ms: self.since_ms,
            active_ms: self.active_ms.get(),
            client_fd: self.client_fd.get(),
            server_fd: self.server_fd.get(),
            client_stream: self.client_stream.get(),
            server_stream: self.server_stream.get(),
            activity: self.activity.get(),
            requests: self.requests.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            killed: self.killed.get().is_some(),
            request_line: None,
        }
    }
}

/// What a request line is kept in. Boxed, since there is an entry for every idle connection.
#[derive(Default)]
struct RequestLine(Vec<u8>);

/// The longest request line that is kept.
const LONGEST_LINE: usize = 1024;

#[cold]
fn give_back(line: Box<RequestLine>) {
    // try_with: a task may be dropped while the thread itself ends.
    let _ = REGISTER.try_with(|register| {
        let mut register = register.borrow_mut();
        if register.lines.len() < SPARE {
            register.lines.push(line);
        }
    });
}

/// An entry as it was at an instant; may leave the worker.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields of Entry")]
pub struct Snapshot {
    pub id: u64,
    /// The worker that serves it.
    pub worker: usize,
    pub frontend: Arc<Proxy>,
    pub backend: Option<Arc<Proxy>>,
    pub server: Option<Arc<Server>>,
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    pub since_ms: u64,
    pub active_ms: u64,
    pub client_fd: i32,
    pub server_fd: i32,
    pub client_stream: u32,
    pub server_stream: u32,
    pub activity: Activity,
    pub requests: u32,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Whether it was told to end.
    pub killed: bool,
    /// The request line, where it was asked for and is kept.
    pub request_line: Option<Box<[u8]>>,
}

#[derive(Default)]
struct Register {
    entries: Vec<Option<Rc<SessionEntry>>>,
    free: Vec<u32>,
    /// Memory of entries that are gone, for those to come.
    spare: Vec<Rc<SessionEntry>>,
    /// The same for request lines.
    #[expect(clippy::vec_box, reason = "an entry holds the box, which moves without an allocation")]
    lines: Vec<Box<RequestLine>>,
    next: u64,
}

/// How many entries' memory is kept.
const SPARE: usize = 128;

impl Register {
    /// What a request line can be kept in.
    fn lend(&mut self) -> Box<RequestLine> {
        self.lines.pop().unwrap_or_default()
    }

    /// An entry in memory that is spare, if there is any.
    fn entry(
        &mut self,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
        make: impl FnOnce(Ends) -> SessionEntry,
    ) -> Rc<SessionEntry> {
        if let Some(mut spare) = self.spare.pop() {
            // Not where somebody still looks at the one that is gone.
            if let Some(own) = Rc::get_mut(&mut spare) {
                let ends = std::mem::replace(&mut own.ends, Ends::NONE);
                *own = make(ends.replaced(source, destination));
                return spare;
            }
        }
        Rc::new(make(Ends::NONE.replaced(source, destination)))
    }
}

thread_local! {
    static REGISTER: RefCell<Register> = RefCell::default();
}

/// A registered connection; dropping it takes it off the register.
#[derive(Debug)]
pub struct RegisteredSession {
    entry: Rc<SessionEntry>,
}

impl RegisteredSession {
    /// The entry for somebody who waits for its end while another stands in its place.
    pub fn watched(&self) -> Rc<SessionEntry> {
        self.entry.clone()
    }
}

impl Deref for RegisteredSession {
    type Target = SessionEntry;

    fn deref(&self) -> &SessionEntry {
        &self.entry
    }
}

impl Drop for RegisteredSession {
    fn drop(&mut self) {
        self.forget_request_line();
        // try_with: a task may be dropped while the thread itself ends.
        let _ = REGISTER.try_with(|register| {
            let mut register = register.borrow_mut();
            let entry = register.entries[self.index as usize].take();
            register.free.push(self.index);
            if register.spare.len() < SPARE
                && let Some(entry) = entry
            {
                // What it refers to may go, and must not be woken.
                entry.backend.take();
                entry.server.take();
                entry.waker.take();
                register.spare.push(entry);
            }
        });
    }
}

/// Registers a connection of the calling worker.
pub fn register(
    frontend: &Local<Proxy>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    now_ms: u64,
) -> RegisteredSession {
    REGISTER.with_borrow_mut(|register| {
        register.next += 1;
        let index = register.free.pop().unwrap_or_else(|| {
            register.entries.push(None);
            register.entries.len() as u32 - 1
        });
        let id = ((runtime::current_worker() as u64 + 1) << 40) | register.next;
        let entry = register.entry(source, destination, |ends| SessionEntry {
            index,
            id,
            frontend: frontend.clone(),
            ends,
            since_ms: now_ms,
            activity: Cell::default(),
            requests: Cell::default(),
            bytes_in: Cell::default(),
            bytes_out: Cell::default(),
            active_ms: Cell::new(now_ms),
            client_fd: Cell::new(-1),
            server_fd: Cell::new(-1),
            client_stream: Cell::default(),
            server_stream: Cell::default(),
            backend: Cell::default(),
            server: Cell::default(),
            killed: Cell::default(),
            request_line: Cell::default(),
            waker: Cell::default(),
        });
        register.entries[index as usize] = Some(entry.clone());
        RegisteredSession { entry }
    })
}

/// The calling worker's connections that `wanted` accepts.
pub fn list(wanted: impl Fn(&Snapshot) -> bool) -> Vec<Snapshot> {
    REGISTER.with_borrow(|register| {
        register.entries.iter().flatten().map(|entry| entry.snapshot()).filter(wanted).collect()
    })
}

/// The same with their request lines.
pub fn list_with_lines(wanted: impl Fn(&Snapshot) -> bool) -> Vec<Snapshot> {
    let line = |entry: &Rc<SessionEntry>| {
        peek(&entry.request_line, |own| own.as_ref().map(|own| own.0.as_slice().into()))
    };
    REGISTER.with_borrow(|register| {
        let all = register.entries.iter().flatten().map(|entry| (entry, entry.snapshot()));
        let wanted = all.filter(|(_, snapshot)| wanted(snapshot));
        wanted.map(|(entry, snapshot)| Snapshot { request_line: line(entry), ..snapshot }).collect()
    })
}

/// Ends the calling worker's connections that `wanted` accepts; how many.
pub fn kill(why: Kill, wanted: impl Fn(&Snapshot) -> bool) -> usize {
    // Collected first: waking must not find the register borrowed.
    let entries: Vec<Rc<SessionEntry>> = REGISTER.with_borrow(|register| {
        register.entries.iter().flatten().filter(|entry| wanted(&entry.snapshot())).cloned().collect()
    });
    entries.iter().for_each(|entry| entry.kill(why));
    entries.len()
}

/// Wakes the tasks of the calling worker's connections: what they go by has changed.
pub fn wake_all() {
    let entries: Vec<Rc<SessionEntry>> =
        REGISTER.with_borrow(|register| register.entries.iter().flatten().cloned().collect());
    for entry in entries {
        peek(&entry.waker, |waker| waker.iter().for_each(Waker::wake_by_ref));
    }
}

/// Ends the calling worker's connections to `server`; how many.
pub fn kill_server(why: Kill, server: &Arc<Server>) -> usize {
    kill(why, |entry| entry.server.as_ref().is_some_and(|own| Arc::ptr_eq(own, server)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{Mode, ProxySeed};

    #[test]
    fn a_connection_is_listed_until_it_ends_and_can_be_killed() {
        let frontend = Local::new(Arc::new(Proxy::new(ProxySeed {
            id: 2,
            name: "fe".into(),
            mode: Mode::Http,
            is_frontend: true,
            is_backend: false,
            maxconn: 0,
            session_limit: 0,
            disabled: false,
        })));
        let first = register(&frontend, None, None, 5);
        let second = register(&frontend, None, None, 7);
        assert_ne!(first.id, second.id);
        assert_eq!(list(|entry| entry.since_ms > 5).len(), 1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.poll_killed(&mut context).is_pending());
        assert_eq!(kill(Kill::Operator, |entry| entry.id == first.id), 1);
        assert_eq!(first.poll_killed(&mut context), Poll::Ready(Kill::Operator));
        assert_eq!(second.killed(), None);
        second.note_request_line(b"GET / HTTP/1.1");
        let lines = list_with_lines(|entry| entry.id == second.id);
        assert_eq!(lines[0].request_line.as_deref(), Some(&b"GET / HTTP/1.1"[..]));
        second.forget_request_line();
        assert_eq!(list_with_lines(|entry| entry.id == second.id)[0].request_line, None);
        let old = first.index;
        drop(first);
        assert_eq!(list(|_| true).len(), 1);
        assert_eq!(register(&frontend, None, None, 9).index, old, "the place is used again");
    }
}
