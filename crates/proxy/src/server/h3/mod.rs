//! HTTP/3 connections to servers, shared by the requests of many clients: finding one for a request, and starting a new one.
//!
//! Each connection has a separate UDP socket and a [`task`], which passes datagrams to QUIC ([`transport`]) and events to the streams.

mod task;
pub(crate) mod transport;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use runtime::trace::TraceSource;
use sample::Endpoint;
use state::counters::Multiplexed as Counters;
use state::quic_connections;

use super::h1::PoolKey;
use super::http_request::{HttpRequest, RequestProtocol, Settling};
use super::open_count::Open;
use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::shared::{Carrier, ConnectionList, ProtocolState};
use crate::stream::h3::H3Engine;
use crate::stream::{QuicEntry, RequestEngine as _};
use transport::{DetachedQuic, QuicTransport};

/// A connection shared by requests.
pub(crate) type Http3Connection = Carrier<H3Engine, Http3>;
/// A request's share of a connection.
pub(crate) type H3Request = HttpRequest<H3Engine, Http3>;

/// The HTTP/3 state of the connection.
#[derive(Default)]
pub(crate) struct Http3 {
    settling: Settling,
    /// Whether the handshake is in progress, so that only requests may be sent that can be early data.
    is_early: Cell<bool>,
    /// Whether the server refused the early data.
    refused_early: Cell<bool>,
    /// The callback that passes the connection to another worker, if one has requested it.
    leaves_to: RefCell<Option<Give>>,
}

/// Passes an idle connection to the worker that requested it.
pub(crate) type Give = Box<dyn FnOnce(QuicTransfer)>;

/// An idle connection that is passed to another worker.
pub(crate) struct QuicTransfer {
    detached: DetachedQuic,
    is_settled: bool,
    uses: u32,
    ends: Option<(Endpoint, Endpoint)>,
    open: super::OpenTransfer,
}

impl ProtocolState for Http3 {
    fn is_free(&self) -> bool {
        !self.is_early.get() && self.leaves_to.borrow().is_none()
    }
}

impl RequestProtocol for Http3 {
    fn settling(&self) -> &Settling {
        &self.settling
    }

    fn counters(&self) -> Option<&Counters> {
        None
    }
}

impl Http3Connection {
    fn is_idle(&self) -> bool {
        self.waiting.get() == 0 && self.connection.engine.borrow().streams() == 0
    }
}

impl H3Request {
    /// Whether the server refused the early data of the connection.
    pub(crate) fn refused_early(&self) -> bool {
        self.carrier.own.refused_early.get()
    }
}

/// A connection after its handshake, or one that may send early data.
pub(crate) struct OpenedQuic {
    pub(crate) transport: QuicTransport,
    pub(crate) key: PoolKey,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// Whether the connection serves only one request (`http-reuse never`).
    pub(crate) for_one: bool,
    pub(crate) open: Open,
}

/// One worker's shared HTTP/3 connections.
pub(crate) struct QuicCarriers {
    all: ConnectionList<H3Engine, Http3>,
    /// The CPU usage of the worker, in percent, from which connections with too many glitches are closed.
    busy_from: u8,
}

impl QuicCarriers {
    /// Creates an empty list.
    pub(crate) fn new(busy_from: u8) -> Rc<Self> {
        Rc::new(Self { all: ConnectionList::default(), busy_from })
    }

    /// Returns a share of a usable connection with room for a request, if there is one.
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Box<H3Request>> {
        self.all.share(server, ask).map(|shared| Box::new(H3Request::new(shared)))
    }

    /// Starts HTTP/3 on a connection; returns the first request on it.
    pub(crate) fn begin(self: &Rc<Self>, opened: OpenedQuic, backend: Arc<state::Proxy>) -> Box<H3Request> {
        opened.transport.connection.engine.borrow_mut().start();
        self.start(opened, (0, false), backend)
    }

    /// Passes on an idle, usable connection; does nothing if there is none.
    pub(crate) fn hand_over(&self, server: &LocalServer, ask: PoolQuery<'_>, give: Give) {
        if let Some(one) = self.all.find(server, ask, Http3Connection::is_idle) {
            *one.own.leaves_to.borrow_mut() = Some(give);
            one.connection.touch();
        }
    }

    /// Adds a connection of another worker, and starts a request on it; `None` if the kernel has no room for it.
    pub(crate) fn take_in(
        self: &Rc<Self>,
        handed: QuicTransfer,
        key: &[u8],
        backend: Arc<state::Proxy>,
        server: &Rc<LocalServer>,
    ) -> Option<Box<H3Request>> {
        let QuicTransfer { detached, is_settled, uses, ends, open } = handed;
        let open = open.take(server);
        let transport = QuicTransport::attach(detached).ok()?;
        let opened = OpenedQuic { transport, key: key.into(), ends, for_one: false, open };
        Some(self.start(opened, (uses, is_settled), backend))
    }

    /// Starts the task of a connection that has served `uses` requests so far.
    fn start(
        self: &Rc<Self>,
        opened: OpenedQuic,
        (uses, is_settled): (u32, bool),
        backend: Arc<state::Proxy>,
    ) -> Box<H3Request> {
        let all = self.clone();
        let OpenedQuic { transport, key, ends, for_one, mut open } = opened;
        open.source = TraceSource::H3;
        let connection = transport.connection.clone();
        let own = Http3 { settling: Settling::new(is_settled), ..Http3::default() };
        let shared = Http3Connection::of_connection(connection, uses, key, ends, open, own);
        shared.is_leaving.set(for_one);
        shared.own.is_early.set(!transport.is_connected());
        if transport.is_connected() {
            shared.note_connected();
        }
        let shared = Rc::new(shared);
        self.all.add(&shared);
        // Created before the task starts, because a connection with a request is not idle.
        let request = Box::new(H3Request::new(shared.clone()));
        let registered = quic_connections::register(Rc::new(QuicEntry {
            connection: shared.connection.clone(),
            proxy: backend,
            is_to_server: true,
            local: transport.local(),
        }));
        tokio::task::spawn_local(async move {
            if let Some((shared, transport)) = task::run(all, shared, transport).await {
                drop(registered);
                leave(shared, transport);
            }
        });
        request
    }

    /// Closes the idle connections to a server, and makes the tasks of the others check their state.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.all.look(server);
    }
}

/// Passes a connection to the worker that requested it.
fn leave(shared: Rc<Http3Connection>, transport: QuicTransport) {
    let Some(give) = shared.own.leaves_to.take() else { return };
    let Some(shared) = Rc::into_inner(shared) else { return };
    let (is_settled, uses) = (shared.own.settling.is_settled(), shared.uses.get());
    let Http3Connection { connection, ends, open, .. } = shared;
    drop(connection);
    if let Some(detached) = transport.detach() {
        give(QuicTransfer { detached, is_settled, uses, ends, open: open.hand_over() });
    }
}

impl Http3Connection {
    /// The handshake is complete.
    fn note_connected(&self) {
        let quic = &self.connection.engine.borrow().quic.connection;
        let _ = self.tls.set(quic.details());
        self.own.is_early.set(false);
        if quic.refused_early() {
            self.own.refused_early.set(true);
            self.is_leaving.set(true);
        }
    }
}
