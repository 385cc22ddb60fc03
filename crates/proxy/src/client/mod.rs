//! The client's side: the connection ([`ClientConnection`]) and its shared part ([`Link`]), the view
//! of one request ([`Client`]), and the protocol in between ([`Downstream`]).
//!
//! The steps of a request call the methods of [`Client`] and [`Downstream`] and do not know which
//! protocol answers. Made by `session`.

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
use crate::server::Private;
use crate::server::per_worker::{LocalProxy, LocalServer};
use crate::shared::PreparedProxy;
use crate::stream;
use crate::worker::Worker;

pub(crate) use connection::ClientConnection;
pub(crate) use downstream::Downstream;
pub(crate) use h1::Framed;
pub(crate) use presence::Presence;
pub(crate) use substitute::StandIn;
pub(crate) use wait::Watch;

/// What a connection has, however many requests it serves at once. The places it takes in the
/// limits are given back when it is dropped.
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) frontend: Rc<LocalProxy>,
    pub(crate) worker: Rc<Worker>,
    /// Connections to servers that only this client may use (`http-reuse never`, NTLM), longest
    /// kept first.
    pub(crate) private: RefCell<Option<Box<Private>>>,
    /// The server of the last request, for `option prefer-last-server`.
    pub(crate) last_server: RefCell<Weak<LocalServer>>,
    _load: ConnectionGuard,
}

/// A client as one request sees it: its connection, and what belongs to the request alone. Boxed,
/// and handed from step to step. Idle connections are many: what only some of them need stands
/// behind a pointer.
pub(crate) struct Client {
    pub(crate) link: Rc<Link>,
    /// The one deadline that the request waits for at a time.
    pub(crate) timer: Timer,
    /// Its entry in the worker's register: `show sess`, `shutdown session`.
    pub(crate) entry: RegisteredSession,
    /// When it began to wait for its next request, µs of the monotonic clock.
    pub(crate) idle_from: u64,
    pub(crate) side: Downstream,
    /// What was taken of the places for TLS, until that begins.
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
    /// The frontend with what was prepared from it.
    #[inline]
    pub(crate) fn prepared(&self) -> &PreparedProxy {
        self.frontend.prepared()
    }

    /// Counts something for the frontend, and for the listener if it counts
    /// (`option socket-stats`).
    #[inline]
    pub(crate) fn count(&self, add: impl Fn(&Traffic)) {
        add(&self.frontend.state.frontend.mine().traffic);
        if let Some(of_listener) = self.session.listener.mine() {
            add(&of_listener.traffic);
        }
    }
}

impl Client {
    /// One stream of the connection that `link` is of.
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

    /// One more request of the same connection, whose response goes to `own` instead.
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

    /// Ready when the request is to be ended from outside: by an operator, or with its server.
    #[inline]
    pub(crate) fn poll_killed(&self, context: &mut Context<'_>) -> Poll<Fault> {
        self.entry.poll_killed(context).map(Fault::of_kill)
    }

    /// Reads more of what the client sends: 0 at its end.
    #[inline]
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = self.side.poll_fill(context);
        self.note_error(read)
    }

    /// As [`poll_fill`](Self::poll_fill), for the rest of what is here.
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
    /// Says in TLS that this is the end.
    fn drop(&mut self) {
        if let Downstream::Socket(socket) = &mut self.side {
            socket.stream.close();
        }
    }
}

impl Drop for Link {
    /// Gives back the places that `accept` took in the limits of the process, the frontend and the
    /// listener. Of what no listener accepted it took none.
    fn drop(&mut self) {
        if self.session.listener.is_nobody() {
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
