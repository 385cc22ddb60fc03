//! The socket and the records of one QMux connection to a server.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::quic::Settings;
use net::{Detached, Stream as Socket};
use qmux::QmuxConnection;
use runtime::timer::{NEVER, Timer};
use runtime::trace::Keys;
use state::quic_connections::RegisteredQuic;

use super::{ServerTransport, TransportEnd, TransportTurn};
use crate::server::shared::send;
use crate::stream::h3::{self, QmuxEngine, QmuxReader, QmuxStreams};
use crate::stream::quic::timer_ms;
use crate::stream::{QmuxTracer, Received};

/// The transport of one connection.
pub(crate) struct QmuxTransport {
    connection: Rc<QmuxStreams>,
    socket: Socket,
    reader: QmuxReader,
    /// Bytes to send first (PROXY protocol).
    preamble: Vec<u8>,
    /// Fires at the engine's next timeout.
    timer: Timer,
    tracer: QmuxTracer,
}

/// A connection without requests on its way to another worker.
pub(crate) struct DetachedQmux {
    socket: Detached,
    engine: QmuxEngine,
    keys: Keys,
}

impl QmuxTransport {
    /// Creates a connection over a socket, after the TLS handshake if there is one. `preamble` is sent first. Large payloads are copied
    /// unless `owns` is set.
    pub(crate) fn new(
        socket: Socket,
        preamble: Vec<u8>,
        settings: &Settings,
        config: &Arc<::h3::Config>,
        owns: bool,
        keys: Keys,
    ) -> Self {
        let transport = QmuxConnection::new(false, settings, h3::now());
        let engine = QmuxEngine::to_server(transport, config, owns);
        Self::of_engine(socket, preamble, engine, QmuxTracer::begin(keys))
    }

    fn of_engine(socket: Socket, preamble: Vec<u8>, engine: QmuxEngine, tracer: QmuxTracer) -> Self {
        let connection = QmuxStreams::new(engine, socket.as_fd().as_raw_fd(), socket.tls().is_some());
        Self { connection, socket, reader: QmuxReader::default(), preamble, timer: Timer::new(), tracer }
    }

    /// Exchanges transport parameters. Ready once the server's have arrived; until then, no streams are allowed.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn poll_parameters(&mut self, context: &mut Context<'_>) -> Poll<Result<(), TransportEnd>> {
        loop {
            let TransportTurn { received, end } = self.turn(context);
            if let Some(end) = end {
                return Poll::Ready(Err(end));
            }
            if self.is_connected() {
                return Poll::Ready(Ok(()));
            }
            self.flush(context).map_err(TransportEnd::Socket)?;
            if !received {
                return Poll::Pending;
            }
        }
    }
}

impl ServerTransport for QmuxTransport {
    type Streams = QmuxConnection;
    type Detached = DetachedQmux;

    const REFERENCES: usize = 2;

    fn connection(&self) -> &Rc<QmuxStreams> {
        &self.connection
    }

    fn is_connected(&self) -> bool {
        self.connection.engine.borrow().transport.connection.has_parameters()
    }

    fn refused_early(&self) -> bool {
        // Early data is not used, since the server's parameters are not known before the handshake.
        false
    }

    fn details(&self) -> Option<Arc<tls::Details>> {
        self.socket.tls().map(|session| session.details().clone())
    }

    fn keep_alive(&self) -> Option<Duration> {
        // While requests are in progress, only the server's limit can end the connection.
        self.connection.engine.borrow().transport.connection.idle_limit_of_peer().map(|limit| limit / 2)
    }

    fn register(&self, _: Arc<state::Proxy>) -> Option<RegisteredQuic> {
        None
    }

    fn turn(&mut self, context: &mut Context<'_>) -> TransportTurn {
        let mut turn = TransportTurn { received: false, end: None };
        let mut engine = self.connection.engine.borrow_mut();
        match self.reader.receive(&mut engine, &mut self.socket, context) {
            Ok(Received::Nothing) => {}
            Ok(Received::Bytes) => turn.received = true,
            Ok(Received::End) => turn.end = Some(TransportEnd::Socket(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => turn.end = Some(TransportEnd::Socket(error)),
        }
        if self.timer.poll_expired(context).is_ready() {
            engine.handle_timeout();
        }
        if let Some(reason) = engine.note_events() {
            self.tracer.is_lost(&reason);
            turn.end = Some(TransportEnd::Lost(reason));
        }
        turn
    }

    fn flush(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        send(&self.connection, &mut self.socket, &mut self.preamble, context)?;
        let engine = self.connection.engine.borrow();
        self.tracer.turn(&engine);
        if engine.has_work() {
            // Sending has made room for data that waits in the engine.
            context.waker().wake_by_ref();
        }
        self.timer.set(engine.transport.connection.timeout().map_or(NEVER, timer_ms));
        if self.timer.poll_expired(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        let engine = self.connection.engine.borrow();
        self.preamble.is_empty() && !engine.transport.connection.is_within_record()
    }

    async fn abandon(&mut self) {
        self.connection.close(None);
        poll_fn(|context| {
            // If the socket has no room now, the server is not reading, and misses only the reason.
            let _ = self.flush(context);
            Poll::Ready(())
        })
        .await;
        self.tracer.ends(&self.connection.engine.borrow());
        self.socket.close();
    }

    fn detach(self) -> Option<DetachedQmux> {
        let Self { connection, socket, tracer, .. } = self;
        let engine = connection.into_engine()?;
        Some(DetachedQmux { socket: socket.detach(), engine, keys: tracer.keys() })
    }

    fn attach(detached: DetachedQmux) -> io::Result<Self> {
        let DetachedQmux { socket, engine, keys } = detached;
        let socket = Socket::attach(socket);
        Ok(Self::of_engine(socket, Vec::new(), engine, QmuxTracer::resume(keys)))
    }
}
