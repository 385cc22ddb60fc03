//! A client connection: its socket, its deadline, what was read and not used yet, and the places it takes.

use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use net::Stream;
use runtime::shared::Shared as _;
use runtime::worker::Load;
use runtime::{Buffer, timer::Timer};
use sample::{Cause, ConnectionError, Session};
use state::counters::Traffic;
use state::sessions::{Kill, Registered};

use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::local::{LocalProxy, LocalServer};
use crate::pool::Upstream;
use crate::worker::{Prepared, Worker};

/// A client's connection. Boxed once at accept and handed from step to step. Idle connections are many: what only
/// some of them need stands behind a pointer. The places it takes in the limits are given back when it is dropped.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) timer: Timer,
    /// Bytes received and not consumed; `None` while idle.
    pub(crate) input: Option<Buffer>,
    pub(crate) session: Session,
    pub(crate) frontend: Rc<LocalProxy>,
    pub(crate) worker: Rc<Worker>,
    /// Connections to servers that only this client may use (`http-reuse never`, NTLM).
    pub(crate) private: Option<Box<Private>>,
    /// The stream of TCP that goes on as the first request.
    pub(crate) upgraded: Option<Box<Exchange>>,
    /// When it began to wait for its next request, µs of the monotonic clock.
    pub(crate) idle_from: u64,
    /// The server of the last request, for `option prefer-last-server`.
    pub(crate) last_server: Weak<LocalServer>,
    /// Its entry in the worker's register: `show sess`, `shutdown session`.
    pub(crate) entry: Registered,
    _load: Load,
}

/// The connections to servers that belong to one client, longest kept first.
#[derive(Default)]
#[allow(clippy::vec_box)] // Handed on as it is, without a move of its content.
pub(crate) struct Private(pub(crate) Vec<Box<Upstream>>);

impl Drop for Private {
    /// Nothing is outstanding on them.
    fn drop(&mut self) {
        self.0.drain(..).for_each(|upstream| upstream.discard());
    }
}

impl Connection {
    /// A connection at its beginning.
    pub(crate) fn new(
        worker: Rc<Worker>,
        frontend: Rc<LocalProxy>,
        stream: Stream,
        session: Session,
        entry: Registered,
        load: Load,
    ) -> Box<Self> {
        Box::new(Self {
            stream,
            timer: Timer::new(),
            input: None,
            idle_from: session.accepted_us,
            session,
            frontend,
            worker,
            upgraded: None,
            private: None,
            last_server: Weak::new(),
            entry,
            _load: load,
        })
    }

    /// Ready when the connection is to be ended from outside: by an operator, or with its server.
    #[inline]
    pub(crate) fn poll_killed(&self, context: &mut Context<'_>) -> Poll<Fault> {
        self.entry.poll_killed(context).map(|why| match why {
            Kill::Operator => Fault::Killed(Cause::Killed),
            Kill::ServerDown => Fault::Killed(Cause::Down),
            Kill::ServerUp => Fault::Killed(Cause::Up),
        })
    }

    /// The frontend with what was prepared from it.
    #[inline]
    pub(crate) fn prepared(&self) -> &Prepared {
        self.frontend.prepared()
    }

    /// Counts something for the frontend, and for the listener if it counts (`option socket-stats`).
    #[inline]
    pub(crate) fn count(&self, add: impl Fn(&Traffic)) {
        add(&self.frontend.state.frontend.mine().traffic);
        if let Some(of_listener) = self.session.listener.mine() {
            add(&of_listener.traffic);
        }
    }

    /// The buffer of received bytes, taken from the pool if there is none.
    #[inline]
    pub(crate) fn input(&mut self) -> &mut Buffer {
        self.input.get_or_insert_with(Buffer::small)
    }

    /// Reads once into the buffer: 0 at the end of the stream.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let buffer = self.input.get_or_insert_with(Buffer::small);
        if buffer.room_len() == 0 {
            buffer.compact();
        }
        if buffer.room_len() == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::OutOfMemory.into()));
        }
        let read = self.stream.poll_read(context, buffer.room());
        match &read {
            Poll::Ready(Ok(n)) => buffer.fill(*n),
            Poll::Ready(Err(error)) => self.session.error = ConnectionError::of_kernel(error),
            Poll::Pending => {}
        }
        read
    }

    /// Gives the buffer back if nothing is in it.
    #[inline]
    pub(crate) fn release_input(&mut self) {
        if self.input.as_ref().is_some_and(Buffer::is_empty) {
            self.input = None;
        }
    }
}

impl Drop for Connection {
    /// Gives back the places that `accept` took in the limits of the process, the frontend and the listener.
    fn drop(&mut self) {
        let (process, frontend) = (&self.worker.shared.process, &self.session.frontend);
        let listener = &self.session.listener;
        let before = process.connections.sub(1);
        let listeners = listener.connections.sub(1);
        frontend.disconnect();
        if before == process.maxconn.load(Relaxed) || listeners == listener.maxconn {
            listener.wake();
        }
        if let Some(counters) = frontend.frontend.all().nth(runtime::current_worker()) {
            counters.traffic.sessions.down();
        }
        if let Some(counters) =
            listener.counters.get().and_then(|all| all.all().nth(runtime::current_worker()))
        {
            counters.traffic.sessions.down();
        }
    }
}
// Idle connections are many, and the next larger size of the allocator is 320. Debug builds of the reactor keep more.
const _: () = assert!(cfg!(debug_assertions) || size_of::<Connection>() <= 256);
