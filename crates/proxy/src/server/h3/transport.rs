//! The datagrams and timers of one QUIC connection to a server.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::quic::{
    ClientSettings, ConnectFailure, Ecn, LostReason, QuicConnection, QuicEvent, ServerHandshake, Transmit,
};
use net::udp::{Batch, UdpSocket};
use runtime::timer::Timer;
use runtime::trace::Keys;
use state::quic_connections::{self, RegisteredQuic};
use state::quic_counters::QuicShard;

use super::{ServerTransport, TransportEnd, TransportTurn};
use crate::stream::h3::{self, H3Connection, QuicEngine};
use crate::stream::quic::{self, SEGMENTS_MAX, of_engine, timeout_ms};
use crate::stream::{QuicEntry, QuicTracer};

thread_local! {
    /// Buffers for received datagrams, which are processed at once.
    static BATCH: RefCell<Batch> = RefCell::default();
    /// Datagrams being assembled.
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The first code of errors that are TLS alerts (RFC 9000, 20.1).
const CRYPTO_ERROR: u64 = 0x100;

/// The transport of one connection.
pub(crate) struct QuicTransport {
    pub(crate) connection: Rc<H3Connection>,
    socket: UdpSocket,
    /// Fires at the engine's next timeout.
    timer: Timer,
    /// Datagrams that the socket had no room for.
    unsent: Option<Box<(Transmit, Vec<u8>)>>,
    /// Until the connection is established.
    handshake: Option<CountedHandshake>,
    /// The TLS alert with which the server ended the handshake.
    alert: Option<u8>,
    /// The state of the backend, for its counters.
    backend: Arc<state::Proxy>,
    tracer: QuicTracer,
}

/// A connection without requests on its way to another worker.
pub(crate) struct DetachedQuic {
    socket: OwnedFd,
    engine: QuicEngine,
    backend: Arc<state::Proxy>,
    keys: Keys,
}

/// HTTP/3 options for one connection.
pub(crate) struct Http3Settings<'a> {
    pub(crate) config: &'a Arc<::h3::Config>,
    /// Whether large payloads are sent from their buffers (`tune.quic.zero-copy-fwd-send`).
    pub(crate) owns: bool,
    /// Whether the kernel splits datagrams (`tune.quic.be.tx.udp-gso`).
    pub(crate) segments: bool,
}

/// Returns the calling worker's counters of a backend.
fn counters(backend: &state::Proxy) -> &QuicShard {
    backend.backend.mine().quic.get_or_init(Box::default)
}

/// Counts a handshake as in progress until it is dropped, even if the future that waits for the handshake is dropped.
struct CountedHandshake(Arc<state::Proxy>);

impl CountedHandshake {
    fn begin(backend: &Arc<state::Proxy>) -> Self {
        counters(backend).half_open.up();
        Self(backend.clone())
    }
}

impl Drop for CountedHandshake {
    fn drop(&mut self) {
        counters(&self.0).half_open.down();
    }
}

impl QuicTransport {
    /// Creates a connection to the server that `socket` is connected to. Nothing is sent yet.
    ///
    /// # Errors
    /// Why no connection can be started.
    pub(crate) fn new(
        socket: UdpSocket,
        remote: std::net::SocketAddr,
        settings: &ClientSettings,
        handshake: ServerHandshake,
        http: &Http3Settings<'_>,
        backend: Arc<state::Proxy>,
        keys: Keys,
    ) -> Result<Self, ConnectFailure> {
        if !http.segments {
            socket.disable_segmentation();
        }
        let quic = QuicConnection::connect(settings, h3::now(), remote, handshake)?;
        let engine = QuicEngine::to_server(quic, http.config, http.owns);
        let connection = H3Connection::new(engine, socket.as_fd().as_raw_fd(), false);
        let tracer = QuicTracer::new(keys);
        tracer.begins(&connection.engine.borrow());
        let handshake = Some(CountedHandshake::begin(&backend));
        let (timer, unsent, alert) = (Timer::new(), None, None);
        Ok(Self { connection, socket, timer, unsent, handshake, alert, backend, tracer })
    }

    /// Returns the results of the TLS handshake so far.
    pub(crate) fn handshake_details(&self) -> Arc<tls::Details> {
        let details = self.connection.engine.borrow().transport.connection.details();
        let Some(alert) = self.alert.filter(|_| details.failure.is_none()) else { return details };
        let (kind, reason) = (tls::FailureKind::Handshake, tls::Reason::Alert(alert));
        let failure = Some(tls::Error { kind, reason, verify: 0 });
        Arc::new(tls::Details { failure, ..(*details).clone() })
    }

    /// The address that the connection is from.
    pub(crate) fn local(&self) -> std::net::SocketAddr {
        self.socket.local_addr()
    }

    /// Continues the handshake. Ready once it is complete or, if `early` is set, once early data may be sent.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn poll_handshake(
        &mut self,
        early: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), TransportEnd>> {
        loop {
            let TransportTurn { received, end } = self.turn(context);
            if let Some(end) = end {
                return Poll::Ready(Err(end));
            }
            if self.handshake.is_none()
                || (early && self.connection.engine.borrow().transport.connection.has_early())
            {
                return Poll::Ready(Ok(()));
            }
            self.flush(context).map_err(TransportEnd::Socket)?;
            if !received {
                return Poll::Pending;
            }
        }
    }

    fn receive(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        BATCH.with_borrow_mut(|batch| {
            match self.socket.poll_recv(context, batch) {
                Poll::Pending => {
                    return match self.socket.poll_error(context) {
                        Poll::Ready(error) => Err(error),
                        Poll::Pending => Ok(false),
                    };
                }
                Poll::Ready(Ok(())) => {}
                // The socket is connected: such an error is about this server.
                Poll::Ready(Err(error)) => return Err(error),
            }
            let now = h3::now();
            let mut engine = self.connection.engine.borrow_mut();
            for received in batch.received() {
                let (source, destination) = (received.source, received.destination);
                let ecn = Ecn::from_bits(received.ecn);
                for datagram in received.datagrams() {
                    engine.transport.connection.receive(now, source, destination, ecn, datagram);
                }
            }
            Ok(true)
        })
    }

    fn transmit(&mut self, engine: &mut QuicEngine, context: &mut Context<'_>) -> io::Result<()> {
        let is_fatal = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if let Some(unsent) = &self.unsent {
            match self.socket.poll_send(context, &of_engine(&unsent.0, &unsent.1)) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) if is_fatal(&error) => return Err(error),
                Poll::Ready(_) => self.unsent = None,
            }
        }
        let most = self.socket.most_segments().min(SEGMENTS_MAX);
        OUTPUT.with_borrow_mut(|output| {
            loop {
                output.clear();
                let Some(transmit) = engine.transport.connection.transmit(h3::now(), most, output) else {
                    return Ok(());
                };
                match self.socket.poll_send(context, &of_engine(&transmit, output)) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) if is_fatal(&error) => return Err(error),
                    Poll::Ready(Err(_)) => counters(&self.backend).quic.sendto_err.add(1),
                    Poll::Pending => {
                        counters(&self.backend).quic.socket_full.add(1);
                        self.unsent = Some(Box::new((transmit, output.clone())));
                        return Ok(());
                    }
                }
            }
        })
    }
}

impl ServerTransport for QuicTransport {
    type Streams = QuicConnection;
    type Detached = DetachedQuic;

    const REFERENCES: usize = 3;

    fn connection(&self) -> &Rc<H3Connection> {
        &self.connection
    }

    fn is_connected(&self) -> bool {
        self.handshake.is_none()
    }

    fn refused_early(&self) -> bool {
        self.connection.engine.borrow().transport.connection.refused_early()
    }

    fn details(&self) -> Option<Arc<tls::Details>> {
        Some(self.connection.engine.borrow().transport.connection.details())
    }

    fn keep_alive(&self) -> Option<Duration> {
        let limit = self.connection.engine.borrow().transport.connection.max_idle_timeout();
        limit.map(|limit| limit / 2)
    }

    fn register(&self, backend: Arc<state::Proxy>) -> Option<RegisteredQuic> {
        Some(quic_connections::register(Rc::new(QuicEntry {
            connection: self.connection.clone(),
            proxy: backend,
            is_to_server: true,
            local: self.local(),
        })))
    }

    fn turn(&mut self, context: &mut Context<'_>) -> TransportTurn {
        let mut turn = TransportTurn { received: false, end: None };
        match self.receive(context) {
            Ok(received) => turn.received = received,
            Err(error) => turn.end = Some(TransportEnd::Socket(error)),
        }
        let mut engine = self.connection.engine.borrow_mut();
        if self.timer.poll_expired(context).is_ready() {
            engine.transport.connection.handle_timeout(h3::now());
        }
        while let Some(event) = engine.transport.connection.poll() {
            engine.note(&event);
            match event {
                QuicEvent::Connected => {
                    self.handshake = None;
                    self.tracer.is_connected(&engine);
                }
                QuicEvent::Lost(reason) => {
                    self.tracer.is_lost(&reason);
                    let counters = &counters(&self.backend).quic;
                    if let LostReason::Closed(code) | LostReason::Violation(code, _) = &reason {
                        counters.transport_error(*code).add(1);
                    }
                    counters.hdshk_fail.add(u64::from(self.handshake.is_some()));
                    if let LostReason::Closed(code) = reason
                        && (CRYPTO_ERROR..CRYPTO_ERROR + 0x100).contains(&code)
                    {
                        // Cannot truncate: the alert is the difference.
                        self.alert = Some((code - CRYPTO_ERROR) as u8);
                    }
                    turn.end = Some(TransportEnd::Lost(reason));
                }
                _ => {}
            }
        }
        turn
    }

    fn flush(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let connection = self.connection.clone();
        let mut engine = connection.engine.borrow_mut();
        self.transmit(&mut engine, context)?;
        self.tracer.turn(&engine);
        // The socket belongs to one connection, so no endpoint needs the connection's IDs.
        while engine.transport.connection.endpoint_input().is_some() {}
        let at = timeout_ms(&mut engine.transport.connection);
        drop(engine);
        self.timer.set(at);
        if self.timer.poll_expired(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.unsent.is_none() && self.handshake.is_none()
    }

    async fn abandon(&mut self) {
        if !self.connection.engine.borrow().transport.connection.is_closed() {
            self.tracer.closes();
            self.connection.close(None);
        }
        poll_fn(|context| {
            let _ = self.flush(context);
            Poll::Ready(())
        })
        .await;
        self.handshake = None;
        quic::count(counters(&self.backend), &self.connection);
        self.tracer.ends(&self.connection.engine.borrow().transport.connection.stats());
    }

    fn detach(self) -> Option<DetachedQuic> {
        let Self { connection, socket, backend, tracer, .. } = self;
        let engine = connection.into_engine()?;
        Some(DetachedQuic { socket: socket.detach(), engine, backend, keys: tracer.keys() })
    }

    fn attach(detached: DetachedQuic) -> io::Result<Self> {
        let DetachedQuic { socket, engine, backend, keys } = detached;
        let socket = UdpSocket::connected(socket)?;
        let connection = H3Connection::new(engine, socket.as_fd().as_raw_fd(), false);
        let (timer, tracer) = (Timer::new(), QuicTracer::new(keys));
        let (unsent, handshake, alert) = (None, None, None);
        Ok(Self { connection, socket, timer, unsent, handshake, alert, backend, tracer })
    }
}
