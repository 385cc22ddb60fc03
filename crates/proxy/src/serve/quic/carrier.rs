//! QUIC as the carrier of a client's streams.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::quic::{ConnectionHandle, LostReason, QuicEvent, Transmit};
use bytes::Bytes;
use h3::{Code, RequestKey, Violation};
use runtime::timer::{NEVER, Timer};
use state::counters::{FrontendCounters, Multiplexed};
use state::quic_counters::QuicCounters;

use crate::client::ClientConnection;
use crate::exchange::trace::events::ConnectionPoints;
use crate::serve::multiplexed::FrontEnd;
use crate::serve::multiplexed::carrier::ClientCarrier;
use crate::serve::quic_socket::QuicSocket;
use crate::stream::h3::{self as engine, H3Connection, H3Stream, QuicEngine};
use crate::stream::quic::{SEGMENTS_MAX, of_engine, timeout_ms, timer_ms};
use crate::stream::{AnyStream, Notice, QuicTracer, Received, Wish};

/// The transport of one connection.
pub(super) struct QuicCarrier {
    listener: Rc<QuicSocket>,
    handle: ConnectionHandle,
    /// Fires at the engine's next timeout.
    timer: Timer,
    /// Datagrams that the socket had no room for.
    unsent: Option<Box<(Transmit, Vec<u8>)>>,
    /// The payload of the last event.
    payload: Bytes,
    progress: HandshakeProgress,
    /// The progress of the output at the last turn.
    progress_of_output: u64,
    /// The client's address, as last seen.
    remote: SocketAddr,
    state: Arc<state::Proxy>,
    pub(super) tracer: QuicTracer,
}

/// How far the connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HandshakeProgress {
    /// The handshake is in progress.
    Begun,
    /// The handshake is in progress, and early data has arrived.
    Early,
    Connected,
    Lost(LostReason),
}

impl QuicCarrier {
    pub(super) fn new(
        listener: Rc<QuicSocket>,
        handle: ConnectionHandle,
        remote: SocketAddr,
        state: Arc<state::Proxy>,
        tracer: QuicTracer,
    ) -> Self {
        Self {
            listener,
            handle,
            timer: Timer::new(),
            unsent: None,
            payload: Bytes::new(),
            progress: HandshakeProgress::Begun,
            progress_of_output: 0,
            remote,
            state,
            tracer,
        }
    }

    pub(super) fn progress(&self) -> &HandshakeProgress {
        &self.progress
    }

    fn counters(&self) -> &QuicCounters {
        &self.state.frontend.mine().quic.quic
    }

    /// Runs the timers that are due, and takes the events of the connection.
    pub(super) fn turn(&mut self, connection: &H3Connection, context: &mut Context<'_>) {
        connection.set_owner(context.waker());
        connection.take_touched();
        let mut engine = connection.engine.borrow_mut();
        if self.timer.poll_expired(context).is_ready() {
            engine.transport.connection.handle_timeout(engine::now());
            engine.follow_announcement(engine::now());
        }
        let mut waiting = Vec::new();
        while let Some(event) = engine.transport.connection.poll() {
            match event {
                QuicEvent::Connected => {
                    self.tracer.is_connected(&engine);
                    self.progress = HandshakeProgress::Connected;
                    waiting = engine.take_waiting();
                }
                QuicEvent::Lost(reason) => {
                    if let LostReason::Closed(code) | LostReason::Violation(code, _) = &reason {
                        self.counters().transport_error(*code).add(1);
                    }
                    self.tracer.is_lost(&reason);
                    engine.note(&QuicEvent::Lost(reason.clone()));
                    self.progress = HandshakeProgress::Lost(reason);
                    waiting = engine.take_waiting();
                }
                event => {
                    if matches!(event, QuicEvent::Opened(_)) && self.progress == HandshakeProgress::Begun {
                        self.progress = HandshakeProgress::Early;
                    }
                    engine.note(&event);
                }
            }
        }
        let remote = engine.transport.connection.remote();
        if remote != self.remote {
            self.remote = remote;
            self.counters().conn_migration_done.add(1);
        }
        // Requests are woken only while the engine is not borrowed.
        drop(engine);
        waiting.iter().for_each(Waker::wake_by_ref);
    }

    /// Sends what the connection has to send, and sets its timer.
    pub(super) fn flush(&mut self, connection: &H3Connection, context: &mut Context<'_>) {
        let mut engine = connection.engine.borrow_mut();
        // The endpoint may issue connection IDs, which are to be sent.
        self.listener.exchange(self.handle, &mut engine);
        self.transmit(&mut engine, context);
        self.tracer.turn(&engine);
        self.listener.exchange(self.handle, &mut engine);
        let shutdown = engine.shutdown_at().map_or(NEVER, timer_ms);
        let at = timeout_ms(&mut engine.transport.connection).min(shutdown);
        drop(engine);
        self.timer.set(at);
        if self.timer.poll_expired(context).is_ready() {
            // While the requests of a connection that is over end, there are no turns.
            connection.engine.borrow_mut().transport.connection.handle_timeout(engine::now());
            context.waker().wake_by_ref();
        }
    }

    fn transmit(&mut self, engine: &mut QuicEngine, context: &mut Context<'_>) {
        let socket = &self.listener.socket;
        if let Some(unsent) = &self.unsent {
            if socket.poll_send(context, &of_engine(&unsent.0, &unsent.1)).is_pending() {
                return;
            }
            self.unsent = None;
        }
        let mut output = self.listener.output.borrow_mut();
        let most = socket.most_segments().min(SEGMENTS_MAX);
        loop {
            output.clear();
            let Some(transmit) = engine.transport.connection.transmit(engine::now(), most, &mut output)
            else {
                return;
            };
            match socket.poll_send(context, &of_engine(&transmit, &output)) {
                // Lost datagrams are repeated: an error here is like one in the network.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => self.counters().sendto_err.add(1),
                Poll::Pending => {
                    self.counters().socket_full.add(1);
                    self.unsent = Some(Box::new((transmit, output.clone())));
                    return;
                }
            }
        }
    }

    /// Closes the connection if it is open, and continues until its last packets cannot be under way any more. Returns the tracer.
    pub(super) async fn drain(mut self, connection: &H3Connection) -> QuicTracer {
        if !connection.engine.borrow().transport.connection.is_closed() {
            self.tracer.closes();
            connection.close(None);
        }
        std::future::poll_fn(|context| {
            self.turn(connection, context);
            self.flush(connection, context);
            if connection.engine.borrow().transport.connection.is_drained() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        self.tracer
    }
}

impl ClientCarrier for QuicCarrier {
    type Engine = QuicEngine;
    type Broken = Violation;

    const HTTP_MAJOR: u8 = 3;
    const ENDS_BY_ITSELF: bool = true;
    const POINTS: ConnectionPoints = ConnectionPoints::HTTP3;

    fn counters(counters: &FrontendCounters) -> &Multiplexed {
        &counters.h3
    }

    fn stream(connection: &Rc<H3Connection>, key: RequestKey) -> AnyStream {
        H3Stream::new(connection.clone(), key).into()
    }

    fn stream_number(key: RequestKey) -> u64 {
        key.id()
    }

    fn receive(
        &mut self,
        _: &mut ClientConnection,
        connection: &H3Connection,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received> {
        self.turn(connection, context);
        match &self.progress {
            HandshakeProgress::Lost(LostReason::Application(code))
                if [Code::NoError.number(), 0].contains(code) =>
            {
                Ok(Received::End)
            }
            HandshakeProgress::Lost(LostReason::Local) => Ok(Received::End),
            HandshakeProgress::Lost(LostReason::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
            HandshakeProgress::Lost(_) => Err(io::ErrorKind::ConnectionReset.into()),
            HandshakeProgress::Begun | HandshakeProgress::Early | HandshakeProgress::Connected => {
                let has_work = connection.engine.borrow_mut().begin_turn(busy());
                Ok(if has_work { Received::Bytes } else { Received::Nothing })
            }
        }
    }

    fn advance(&mut self, connection: &H3Connection) -> Result<Option<Notice<RequestKey>>, Violation> {
        engine::advance(connection, &mut self.payload)
    }

    fn is_fresh(&self) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn send(
        &mut self,
        _: &mut ClientConnection,
        connection: &H3Connection,
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        self.flush(connection, context);
        // Acknowledgements and repeated packets are no sign of a client that reads.
        let progress = connection.engine.borrow().progress();
        Ok(std::mem::replace(&mut self.progress_of_output, progress) != progress)
    }

    fn apply_changes(&mut self, _: &mut ClientConnection, connection: &H3Connection) -> Result<(), FrontEnd> {
        // The socket is that of all connections, so that type of service and mark stay as they are.
        match connection.take_wish() {
            Wish { vanish: Some(_), .. } => {
                connection.engine.borrow_mut().transport.connection.vanish(engine::now());
                Err(FrontEnd::Vanished)
            }
            _ => Ok(()),
        }
    }

    async fn finish(&mut self, _: &mut ClientConnection, connection: &H3Connection, end: FrontEnd) {
        if end == FrontEnd::Agreed {
            connection.close(None);
        }
    }

    fn trace(&self, _: &ClientConnection, _: &H3Connection) {}
}
