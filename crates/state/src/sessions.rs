//! The connections of a worker, for `show sess` and `shutdown session`. Each worker has its own register.
//!
//! `proxy` registers a connection at accept, updates its cells with plain stores, and removes it at close. `control` reads and
//! kills connections by posting a closure to each worker. No data is shared between threads.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use runtime::Local;

use crate::{Proxy, Server};

/// The activity of a connection, as shown by `show sess`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    /// Waiting for a request or the first bytes.
    #[default]
    Waiting,
    /// Evaluating request rules, or waiting for a body.
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
    /// Returns the activity as one word.
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

/// A connection. The task that serves it writes its cells.
pub struct SessionEntry {
    /// The number of the session, unique in the process. Shown in hexadecimal.
    pub id: u64,
    /// The frontend that accepted it.
    pub frontend: Local<Proxy>,
    ends: Ends,
    /// When the connection was accepted, in ms of the monotonic clock.
    pub since_ms: u64,
    /// The current activity.
    pub activity: Cell<Activity>,
    /// Number of requests so far.
    pub requests: Cell<u32>,
    /// Bytes from the client.
    pub bytes_in: Cell<u64>,
    /// Bytes to the client.
    pub bytes_out: Cell<u64>,
    /// When the connection was last active, in ms.
    pub active_ms: Cell<u64>,
    /// The descriptor of the client's connection, or -1.
    pub client_fd: Cell<i32>,
    /// The descriptor of the connection to the server, or -1.
    pub server_fd: Cell<i32>,
    /// The number of its stream on the client's connection, 0 if there are no streams.
    pub client_stream: Cell<u64>,
    /// Whether the client's connection is a QUIC connection, which uses the listener's descriptor.
    pub is_quic: Cell<bool>,
    /// Like the previous field, for the server's connection.
    pub server_stream: Cell<u64>,
    backend: Cell<Option<Local<Proxy>>>,
    server: Cell<Option<Local<Server>>>,
    killed: Cell<Option<Kill>>,
    /// The request line, if it is kept for logs. Its memory belongs to the register and is used until the request ends.
    request_line: Cell<Option<Box<RequestLine>>>,
    /// The index of the entry in the register.
    index: u32,
    waker: Cell<Option<Waker>>,
}

/// The client's and the local address, in as little space as possible, because there is an entry for every idle connection.
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

    /// Replaces the addresses, reusing the memory.
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

/// Reads the content of a cell by taking it out temporarily.
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

/// Why a connection is killed. Determines the termination flag of the log line.
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
    /// Sets the backend that serves the request. Setting the same backend again only costs a comparison.
    pub fn set_backend(&self, backend: &Local<Proxy>) {
        peek(&self.backend, |own| {
            if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own.shared(), backend.shared())) {
                *own = Some(backend.clone());
            }
        });
    }

    /// Sets the server that serves the request.
    pub fn set_server(&self, server: &Local<Server>) {
        peek(&self.server, |own| {
            if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own.shared(), server.shared())) {
                *own = Some(server.clone());
            }
        });
    }

    /// Stores a copy of the request line for `show sess`.
    pub fn note_request_line(&self, line: &[u8]) {
        let mut own = self.request_line.take().unwrap_or_else(|| REGISTER.with_borrow_mut(Register::lend));
        own.0.clear();
        own.0.extend_from_slice(&line[..line.len().min(LONGEST_LINE)]);
        self.request_line.set(Some(own));
    }

    /// Called when the request is over. Releases the memory of the request line.
    #[inline]
    pub fn forget_request_line(&self) {
        if let Some(line) = self.request_line.take() {
            give_back(line);
        }
    }

    /// Returns whether the connection must end, and why. A stream checks this between its steps.
    pub fn killed(&self) -> Option<Kill> {
        self.killed.get()
    }

    /// Ready if the connection must end. Otherwise the task is woken when this happens.
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
            is_quic: self.is_quic.get(),
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

/// The memory for a request line. Boxed, because there is an entry for every idle connection.
#[derive(Default)]
struct RequestLine(Vec<u8>);

/// The maximum length of a stored request line.
const LONGEST_LINE: usize = 1024;

#[cold]
fn give_back(line: Box<RequestLine>) {
    // `try_with`, because a task may be dropped during thread exit.
    let _ = REGISTER.try_with(|register| {
        let mut register = register.borrow_mut();
        if register.lines.len() < SPARE {
            register.lines.push(line);
        }
    });
}

/// A copy of an entry at one time, which may be sent to other threads.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields of Entry")]
pub struct Snapshot {
    pub id: u64,
    /// The worker that serves the connection.
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
    pub client_stream: u64,
    pub is_quic: bool,
    pub server_stream: u64,
    pub activity: Activity,
    pub requests: u32,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Whether the connection was killed.
    pub killed: bool,
    /// The request line, if requested and kept.
    pub request_line: Option<Box<[u8]>>,
}

#[derive(Default)]
struct Register {
    entries: Vec<Option<Rc<SessionEntry>>>,
    free: Vec<u32>,
    /// Memory of removed entries, for reuse.
    spare: Vec<Rc<SessionEntry>>,
    /// The spare memory for request lines.
    #[expect(clippy::vec_box, reason = "an entry holds the box, which moves without an allocation")]
    lines: Vec<Box<RequestLine>>,
    next: u64,
}

/// The maximum number of spare entries.
const SPARE: usize = 128;

impl Register {
    /// Lends memory for a request line.
    fn lend(&mut self) -> Box<RequestLine> {
        self.lines.pop().unwrap_or_default()
    }

    /// Creates an entry, in spare memory if available.
    fn entry(
        &mut self,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
        make: impl FnOnce(Ends) -> SessionEntry,
    ) -> Rc<SessionEntry> {
        if let Some(mut spare) = self.spare.pop() {
            // Not if the removed entry is still referenced.
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

/// A registered connection. Dropping it removes the connection from the register.
#[derive(Debug)]
pub struct RegisteredSession {
    entry: Rc<SessionEntry>,
}

impl RegisteredSession {
    /// Returns the entry, to detect that it must end while another entry replaces it.
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
        // `try_with`, because a task may be dropped during thread exit.
        let _ = REGISTER.try_with(|register| {
            let mut register = register.borrow_mut();
            let entry = register.entries[self.index as usize].take();
            register.free.push(self.index);
            if register.spare.len() < SPARE
                && let Some(entry) = entry
            {
                // Drops the entry's references, and makes sure that the entry is not woken any more.
                entry.backend.take();
                entry.server.take();
                entry.waker.take();
                register.spare.push(entry);
            }
        });
    }
}

/// Registers a connection on the calling worker.
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
            is_quic: Cell::default(),
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

/// Returns the calling worker's connections that `wanted` accepts.
pub fn list(wanted: impl Fn(&Snapshot) -> bool) -> Vec<Snapshot> {
    REGISTER.with_borrow(|register| {
        register.entries.iter().flatten().map(|entry| entry.snapshot()).filter(wanted).collect()
    })
}

/// Like `list`, including the request lines.
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

/// Kills the calling worker's connections that `wanted` accepts. Returns their number.
pub fn kill(why: Kill, wanted: impl Fn(&Snapshot) -> bool) -> usize {
    // Collected first, because the register must not be borrowed while tasks are woken.
    let entries: Vec<Rc<SessionEntry>> = REGISTER.with_borrow(|register| {
        register.entries.iter().flatten().filter(|entry| wanted(&entry.snapshot())).cloned().collect()
    });
    entries.iter().for_each(|entry| entry.kill(why));
    entries.len()
}

/// Wakes the tasks of the calling worker's connections, because the plan has changed.
pub fn wake_all() {
    let entries: Vec<Rc<SessionEntry>> =
        REGISTER.with_borrow(|register| register.entries.iter().flatten().cloned().collect());
    for entry in entries {
        peek(&entry.waker, |waker| waker.iter().for_each(Waker::wake_by_ref));
    }
}

/// Kills the calling worker's connections to `server`. Returns their number.
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
