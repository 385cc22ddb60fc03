//! HTTP/3 connections to servers, shared by requests from many clients: finds one for a request, and starts new ones.
//!
//! Each connection has a [`task`], which passes the data that its [`ServerTransport`] receives to the streams: QUIC datagrams
//! ([`transport`]), or QMux records ([`qmux`]).

pub(crate) mod qmux;
mod task;
pub(crate) mod transport;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use ::quic::LostReason;
use runtime::trace::TraceSource;
use sample::Endpoint;
use state::counters::Multiplexed as Counters;
use state::quic_connections::RegisteredQuic;

use self::qmux::QmuxTransport;
use super::h1::PoolKey;
use super::http_request::{HttpRequest, RequestProtocol, Settling};
use super::open_count::Open;
use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::shared::{Carrier, ConnectionList, ProtocolState};
use crate::stream::h3::{H3Engine, StreamTransport};
use crate::stream::{AnyStream, EngineConnection, EngineStream, RequestEngine as _};
use transport::QuicTransport;

/// A connection shared by requests.
pub(crate) type Http3Connection<T> = Carrier<H3Engine<<T as ServerTransport>::Streams>, Http3<T>>;
/// A request's share of a connection.
pub(crate) type Http3Request<T> = HttpRequest<H3Engine<<T as ServerTransport>::Streams>, Http3<T>>;
/// A request over QUIC.
pub(crate) type QuicRequest = Http3Request<QuicTransport>;
/// A request over QMux.
pub(crate) type QmuxRequest = Http3Request<QmuxTransport>;
/// One worker's connections over QUIC.
pub(crate) type QuicCarriers = Http3Carriers<QuicTransport>;
/// One worker's connections over QMux.
pub(crate) type QmuxCarriers = Http3Carriers<QmuxTransport>;

/// The transport of one connection to a server.
pub(crate) trait ServerTransport: Sized + 'static {
    /// The transport connection.
    type Streams: StreamTransport;
    /// A connection without requests on its way to another worker.
    type Detached;

    /// The number of references to an unused connection: those held by the transport, by the task, and by the register if the
    /// transport has one.
    const REFERENCES: usize;

    /// Returns the connection.
    fn connection(&self) -> &Rc<EngineConnection<H3Engine<Self::Streams>>>;

    /// Whether requests that are not early data may be sent.
    fn is_connected(&self) -> bool;

    /// Whether the server refused early data.
    fn refused_early(&self) -> bool;

    /// Returns the results of the TLS handshake, if there was one.
    fn details(&self) -> Option<Arc<tls::Details>>;

    /// Returns the interval of the pings that keep the connection open while a server works on requests without sending anything.
    fn keep_alive(&self) -> Option<Duration>;

    /// Adds the connection to the register of connections, if the transport has one.
    fn register(&self, backend: Arc<state::Proxy>) -> Option<RegisteredQuic>;

    /// Receives once, runs the timers that are due, and passes the events of the connection to HTTP/3.
    fn turn(&mut self, context: &mut Context<'_>) -> TransportTurn;

    /// Sends the pending output of the connection, and sets its timer.
    ///
    /// # Errors
    /// The socket failed.
    fn flush(&mut self, context: &mut Context<'_>) -> io::Result<()>;

    /// Whether nothing waits to be sent, and nothing was received in part.
    fn is_quiet(&self) -> bool;

    /// Closes a connection that is not used any more.
    async fn abandon(&mut self);

    /// Takes the connection from this worker, or `None` if something still refers to it.
    fn detach(self) -> Option<Self::Detached>;

    /// Continues a connection on this worker.
    ///
    /// # Errors
    /// The kernel has no room for the socket.
    fn attach(detached: Self::Detached) -> io::Result<Self>;
}

/// Why a connection has ended.
#[derive(Debug)]
pub(crate) enum TransportEnd {
    /// The socket failed. For datagrams: the server's machine rejects them.
    Socket(io::Error),
    /// The connection was closed, or timed out.
    Lost(LostReason),
}

/// The result of [`ServerTransport::turn`].
pub(crate) struct TransportTurn {
    /// Whether anything was received.
    pub(super) received: bool,
    /// Why the connection has ended, if it has. The streams may still hold data that arrived before the end.
    pub(super) end: Option<TransportEnd>,
}

/// The HTTP/3 state of the connection.
pub(crate) struct Http3<T: ServerTransport> {
    settling: Settling,
    /// Whether the handshake is still in progress, so that only requests that can be early data may be sent.
    is_early: Cell<bool>,
    /// Whether the server refused the early data.
    refused_early: Cell<bool>,
    /// The callback that passes the connection to another worker, if one has requested it.
    leaves_to: RefCell<Option<Give<T>>>,
}

/// Passes an idle connection to the worker that requested it.
pub(crate) type Give<T> = Box<dyn FnOnce(Http3Transfer<T>)>;

/// An idle connection that is passed to another worker.
pub(crate) struct Http3Transfer<T: ServerTransport> {
    detached: T::Detached,
    is_settled: bool,
    uses: u32,
    ends: Option<(Endpoint, Endpoint)>,
    open: super::OpenTransfer,
}

impl<T: ServerTransport> ProtocolState for Http3<T> {
    fn is_free(&self) -> bool {
        !self.is_early.get() && self.leaves_to.borrow().is_none()
    }
}

impl<T: ServerTransport> RequestProtocol for Http3<T> {
    fn settling(&self) -> &Settling {
        &self.settling
    }

    fn counters(&self) -> Option<&Counters> {
        None
    }
}

impl<T: ServerTransport> Http3Request<T> {
    /// Whether the server refused the early data of the connection.
    pub(crate) fn refused_early(&self) -> bool {
        self.carrier.own.refused_early.get()
    }
}

/// A connection after its handshake, or one that may send early data.
pub(crate) struct OpenedHttp3<T> {
    pub(crate) transport: T,
    pub(crate) key: PoolKey,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// Whether the connection serves only one request (`http-reuse never`).
    pub(crate) for_one: bool,
    pub(crate) open: Open,
}

/// One worker's shared HTTP/3 connections with one transport.
pub(crate) struct Http3Carriers<T: ServerTransport> {
    all: ConnectionList<H3Engine<T::Streams>, Http3<T>>,
    /// The worker's CPU usage, in percent, above which connections with too many glitches are closed.
    busy_from: u8,
}

impl<T: ServerTransport> Http3Carriers<T>
where
    EngineStream<H3Engine<T::Streams>>: Into<AnyStream>,
{
    /// Creates an empty list.
    pub(crate) fn new(busy_from: u8) -> Rc<Self> {
        Rc::new(Self { all: ConnectionList::default(), busy_from })
    }

    /// Returns a share of a usable connection with room for a request, if there is one.
    #[inline]
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Box<Http3Request<T>>> {
        self.all.share(server, ask).map(|shared| Box::new(Http3Request::<T>::new(shared)))
    }

    /// Starts HTTP/3 on a connection. Returns the first request on it.
    pub(crate) fn begin(
        self: &Rc<Self>,
        opened: OpenedHttp3<T>,
        backend: Arc<state::Proxy>,
    ) -> Box<Http3Request<T>> {
        opened.transport.connection().engine.borrow_mut().start();
        self.start(opened, (0, false), backend)
    }

    /// Whether there is an idle, usable connection.
    pub(crate) fn has_idle(&self, server: &LocalServer, ask: PoolQuery<'_>) -> bool {
        self.all.find(server, ask, |one| is_idle(one)).is_some()
    }

    /// Passes on an idle, usable connection, if one is available.
    pub(crate) fn hand_over(&self, server: &LocalServer, ask: PoolQuery<'_>, give: Give<T>) {
        if let Some(one) = self.all.find(server, ask, |one| is_idle(one)) {
            *one.own.leaves_to.borrow_mut() = Some(give);
            one.connection.touch();
        }
    }

    /// Adds a connection from another worker, and starts a request on it. Returns `None` if the kernel has no room for it.
    pub(crate) fn take_in(
        self: &Rc<Self>,
        handed: Http3Transfer<T>,
        key: &[u8],
        backend: Arc<state::Proxy>,
        server: &Rc<LocalServer>,
    ) -> Option<Box<Http3Request<T>>> {
        let Http3Transfer { detached, is_settled, uses, ends, open } = handed;
        let open = open.take(server);
        let transport = T::attach(detached).ok()?;
        let opened = OpenedHttp3 { transport, key: key.into(), ends, for_one: false, open };
        Some(self.start(opened, (uses, is_settled), backend))
    }

    /// Starts the task of a connection that has served `uses` requests so far.
    fn start(
        self: &Rc<Self>,
        opened: OpenedHttp3<T>,
        (uses, is_settled): (u32, bool),
        backend: Arc<state::Proxy>,
    ) -> Box<Http3Request<T>> {
        let all = self.clone();
        let OpenedHttp3 { transport, key, ends, for_one, mut open } = opened;
        open.source = TraceSource::H3;
        let connection = transport.connection().clone();
        let is_connected = transport.is_connected();
        let own = Http3 {
            settling: Settling::new(is_settled),
            is_early: Cell::new(!is_connected),
            refused_early: Cell::new(false),
            leaves_to: RefCell::default(),
        };
        let shared = Http3Connection::<T>::of_connection(connection, uses, key, ends, open, own);
        shared.is_leaving.set(for_one);
        if is_connected {
            note_connected(&shared, &transport);
        }
        let shared = Rc::new(shared);
        self.all.add(&shared);
        // Created before the task starts, because a connection with a request is not idle.
        let request = Box::new(Http3Request::<T>::new(shared.clone()));
        let registered = transport.register(backend);
        tokio::task::spawn_local(async move {
            if let Some((shared, transport)) = task::run(all, shared, transport).await {
                drop(registered);
                leave(shared, transport);
            }
        });
        request
    }

    /// Closes the idle connections to a server, and makes the tasks of its other connections check their state.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.all.look(server);
    }
}

fn is_idle<T: ServerTransport>(shared: &Http3Connection<T>) -> bool {
    shared.waiting.get() == 0 && shared.connection.engine.borrow().streams() == 0
}

/// Passes a connection to the worker that requested it.
fn leave<T: ServerTransport>(shared: Rc<Http3Connection<T>>, transport: T) {
    let Some(give) = shared.own.leaves_to.take() else { return };
    let Some(shared) = Rc::into_inner(shared) else { return };
    let (is_settled, uses) = (shared.own.settling.is_settled(), shared.uses.get());
    let Http3Connection::<T> { connection, ends, open, .. } = shared;
    drop(connection);
    if let Some(detached) = transport.detach() {
        give(Http3Transfer { detached, is_settled, uses, ends, open: open.hand_over() });
    }
}

/// The handshake is complete.
fn note_connected<T: ServerTransport>(shared: &Http3Connection<T>, transport: &T) {
    if let Some(details) = transport.details() {
        let _ = shared.tls.set(details);
    }
    shared.own.is_early.set(false);
    if transport.refused_early() {
        shared.own.refused_early.set(true);
        shared.is_leaving.set(true);
    }
}
