//! A client connection: its socket, its deadline, what was read and not used yet, and the places it takes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use config::plan::Proxy;
use net::Stream;
use runtime::worker::Load;
use runtime::{Buffer, timer::Timer};
use sample::{Cause, Session};
use state::sessions::{Kill, Registered};

use crate::fault::Fault;
use crate::pool::Upstream;
use crate::worker::{Prepared, Worker};

/// A client's connection. Boxed once at accept and handed from step to step.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) timer: Timer,
    /// Bytes received and not consumed; `None` while idle.
    pub(crate) input: Option<Buffer>,
    pub(crate) session: Session,
    pub(crate) frontend: Arc<Proxy>,
    pub(crate) worker: Rc<Worker>,
    /// Connections to servers that only this client may use (`http-reuse never`, NTLM).
    pub(crate) private: Vec<Upstream>,
    /// When it began to wait for its next request, µs of the monotonic clock.
    pub(crate) idle_from: u64,
    /// The server of the last request, for `option prefer-last-server`.
    pub(crate) last_server: Option<(usize, usize)>,
    /// Its entry in the worker's register: `show sess`, `shutdown session`.
    pub(crate) entry: Registered,
    _places: Places,
}

impl Connection {
    /// A connection at its beginning.
    pub(crate) fn new(
        worker: Rc<Worker>,
        frontend: Arc<Proxy>,
        stream: Stream,
        session: Session,
        entry: Registered,
        places: Places,
    ) -> Box<Self> {
        Box::new(Self {
            stream,
            timer: Timer::new(),
            input: None,
            idle_from: session.accepted_us,
            session,
            frontend,
            worker,
            private: Vec::new(),
            last_server: None,
            entry,
            _places: places,
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
        self.worker.proxy(self.frontend.index)
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
        if let Poll::Ready(Ok(n)) = read {
            buffer.fill(n);
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

/// The places a connection takes in the limits of the process, the frontend and the listener, and in its
/// worker's load. Given back when dropped.
pub(crate) struct Places {
    process: Arc<state::Process>,
    frontend: Arc<state::Proxy>,
    listener: Arc<state::Listener>,
    _load: Load,
}

impl Places {
    /// Takes the places; the limits were checked by `accept`, which took the frontend's and the process's.
    pub(crate) fn new(
        process: Arc<state::Process>,
        frontend: Arc<state::Proxy>,
        listener: Arc<state::Listener>,
        load: Load,
    ) -> Self {
        Self { process, frontend, listener, _load: load }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let before = self.process.connections.fetch_sub(1, Relaxed);
        let listeners = self.listener.connections.fetch_sub(1, Relaxed);
        self.frontend.disconnect();
        if before == self.process.maxconn.load(Relaxed) || listeners == self.listener.maxconn {
            self.listener.wake();
        }
        if let Some(counters) = self.frontend.frontend.all().nth(runtime::current_worker()) {
            counters.traffic.sessions.down();
        }
    }
}
