//! The client side: the connection ([`ClientConnection`]) and its shared part ([`Link`]), the view of one request ([`Client`]),
//! and the protocol ([`Downstream`]).
//!
//! The steps of a request use the methods of [`Client`] and [`Downstream`], which hide the protocol. `session` creates the
//! connections.

mod connection;
mod downstream;
mod h1;
mod h2;
pub(crate) mod handshake;
mod keep_alive;
mod presence;
mod substitute;
mod wait;

use std::cell::RefCell;
use std::io;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use net::Stream;
use runtime::Boxed;
use runtime::shared::Shared as _;
use runtime::timer::{self, Timer};
use runtime::worker::ConnectionGuard;
use sample::{ConnectionError, Session};
use state::counters::Traffic;
use state::sessions::{self, RegisteredSession};

use crate::fault::Fault;
use crate::flow::Socket;
use crate::server::PrivateConnections;
use crate::server::per_worker::{LocalProxy, LocalServer};
use crate::shared::PreparedProxy;
use crate::stream;
use crate::worker::Worker;

pub(crate) use connection::ClientConnection;
pub(crate) use downstream::Downstream;
pub(crate) use h1::Framed;
pub(crate) use presence::Presence;
pub(crate) use substitute::Substitute;
pub(crate) use wait::Watch;

/// The connection state that all concurrent requests share. Dropping it releases the connection's slots in the connection limits.
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) frontend: Rc<LocalProxy>,
    pub(crate) worker: Rc<Worker>,
    /// Server connections that only this client may use (`http-reuse never`, NTLM).
    pub(crate) private: RefCell<Option<Box<PrivateConnections>>>,
    /// The server of the last request, for `option prefer-last-server`.
    pub(crate) last_server: RefCell<Weak<LocalServer>>,
    _load: ConnectionGuard,
}

/// A client as one request sees it: the connection, and the state of the request. It is boxed and passed from step to step. There
/// can be many idle connections, so rarely used state is behind a pointer.
pub(crate) struct Client {
    pub(crate) link: Rc<Link>,
    /// The timer for the request's single active deadline.
    pub(crate) timer: Timer,
    /// The entry in the worker's register, used by `show sess` and `shutdown session`.
    pub(crate) entry: RegisteredSession,
    /// When the wait for the next request began, in µs of the monotonic clock.
    pub(crate) idle_from: u64,
    pub(crate) side: Downstream,
    /// The reserved TLS slot, until the handshake starts.
    pub(crate) tls_place: Option<tls::ConnectionPermit>,
}

impl Deref for Client {
    type Target = Link;

    #[inline]
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Link {
    /// Returns the frontend's prepared state.
    #[inline]
    pub(crate) fn prepared(&self) -> &PreparedProxy {
        self.frontend.prepared()
    }

    /// Increments a counter of the frontend, and of the listener if it has separate counters (`option socket-stats`).
    #[inline]
    pub(crate) fn count(&self, add: impl Fn(&Traffic)) {
        add(&self.frontend.state.frontend.mine().traffic);
        if let Some(of_listener) = self.session.listener.mine() {
            add(&of_listener.traffic);
        }
    }
}

impl Client {
    /// Creates the client for one stream of the connection behind `link`.
    pub(crate) fn of_stream(
        link: Rc<Link>,
        stream: impl Into<stream::AnyStream>,
        entry: RegisteredSession,
    ) -> Self {
        let idle_from = link.session.ready_us.get();
        Self {
            link,
            timer: Timer::new(),
            entry,
            idle_from,
            tls_place: None,
            side: Downstream::Stream(stream.into()),
        }
    }

    /// Creates a client for an additional request on the same connection. The response to this request is sent to `own`.
    pub(crate) fn aside(&self, own: UnixStream) -> Boxed<Self> {
        let (link, session) = (self.link.clone(), &self.link.session);
        let ends = [session.source().address(), session.destination().address()];
        let entry = sessions::register(&session.frontend, ends[0], ends[1], timer::now_ms());
        Boxed::new(Self {
            timer: Timer::new(),
            idle_from: timer::now_us(),
            entry,
            side: Downstream::Socket(Socket::new(Stream::from_fd(own.into(), false))),
            tls_place: None,
            link,
        })
    }

    /// Ready if the request must be aborted, because an operator ended it or its server requires it.
    #[inline]
    pub(crate) fn poll_killed(&self, context: &mut Context<'_>) -> Poll<Fault> {
        self.entry.poll_killed(context).map(Fault::of_kill)
    }

    /// Reads more data from the client. Returns 0 at the end of the data.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.side.poll_fill(context);
        self.note_error(read)
    }

    /// Like [`poll_fill`](Self::poll_fill), for the rest of the available data.
    pub(crate) fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.side.poll_rest(context);
        self.note_error(read)
    }

    #[inline]
    fn note_error(&self, read: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = &read {
            self.session.error.set(ConnectionError::of_kernel(error));
        }
        read
    }
}

impl Drop for Client {
    /// Sends the TLS close alert.
    fn drop(&mut self) {
        if let Downstream::Socket(socket) = &mut self.side {
            socket.stream.close();
        }
    }
}

impl Drop for Link {
    /// Releases the slots that `accept` acquired from the limits of the process, the frontend and the listener. Connections that
    /// were not accepted by a listener have no slots.
    fn drop(&mut self) {
        if self.session.listener.is_placeholder() {
            return;
        }
        crate::points::session_ends(&self.session);
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
