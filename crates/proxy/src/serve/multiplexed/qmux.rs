//! QMux over a socket, as the carrier of a client's streams.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::quic::LostReason;
use bytes::Bytes;
use h3::{Code, RequestKey, Violation};
use qmux::QmuxConnection;
use runtime::timer::{NEVER, Timer};
use state::counters::{FrontendCounters, Multiplexed};

use super::FrontEnd;
use super::carrier::ClientCarrier;
use super::socket::apply_wish;
use crate::client::ClientConnection;
use crate::exchange::trace::events::ConnectionPoints;
use crate::points;
use crate::serve::exchange_pool::{Exchanges, ServeExchange};
use crate::stream::h3::{self as engine, QmuxEngine, QmuxReader, QmuxStream, QmuxStreams};
use crate::stream::quic::{settings, timer_ms};
use crate::stream::{AnyStream, Notice, QmuxTracer, Received};

/// The transport of one connection.
pub(in crate::serve) struct QmuxCarrier {
    reader: QmuxReader,
    /// Fires at the engine's next timeout.
    timer: Timer,
    /// The payload of the last event.
    payload: Bytes,
    lost: Option<LostReason>,
    /// Whether an incomplete record was received.
    is_within_record: bool,
    tracer: QmuxTracer,
}

/// A violation that ends the connection.
#[derive(Debug)]
#[expect(dead_code, reason = "they are traced")]
pub(in crate::serve) enum QmuxViolation {
    /// A QMux violation: the error code and the reason.
    Transport(u64, String),
    /// An HTTP/3 violation.
    Http3(Violation),
}

/// Serves the streams of `client`'s connection until it ends. Early data waits until the handshake is complete, as for HTTP/2.
#[allow(clippy::manual_async_fn, reason = "it would hold its arguments twice")]
pub(crate) fn serve_qmux<S: ServeExchange>(
    mut client: ClientConnection,
    exchanges: Rc<Exchanges<S>>,
) -> impl Future<Output = ()> {
    async move {
        if client.side.is_early() && !Box::pin(client.settle()).await {
            return;
        }
        let connection = {
            let tune = &client.worker.shared.plan.global.tune;
            let quic = &tune.quic;
            let own = settings((Default::default(), quic.front.max_window), &quic.front, quic, tune.bufsize);
            let transport = QmuxConnection::new(true, &engine::qmux_settings(own), engine::now());
            let engine = QmuxEngine::new(transport, &client.prepared().h2.h3, quic.zero_copy);
            QmuxStreams::new(engine, client.side.descriptor(), client.side.tls().is_some())
        };
        connection.engine.borrow_mut().start();
        let carrier = QmuxCarrier {
            reader: QmuxReader::new(client.socket().input.take()),
            timer: Timer::new(),
            payload: Bytes::new(),
            lost: None,
            is_within_record: false,
            tracer: QmuxTracer::begin(points::of_session(&client.session)),
        };
        let state = client.frontend.state.clone();
        let carrier = super::go_on(client, exchanges, connection.clone(), carrier).await;
        let mut engine = connection.engine.borrow_mut();
        engine.count_frames(&state.frontend.mine().quic.h3);
        carrier.tracer.ends(&engine);
    }
}

impl ClientCarrier for QmuxCarrier {
    type Engine = QmuxEngine;
    type Broken = QmuxViolation;

    const HTTP_MAJOR: u8 = 3;
    const ENDS_BY_ITSELF: bool = true;
    const POINTS: ConnectionPoints = ConnectionPoints::HTTP3;

    fn counters(counters: &FrontendCounters) -> &Multiplexed {
        &counters.h3
    }

    fn stream(connection: &Rc<QmuxStreams>, key: RequestKey) -> AnyStream {
        QmuxStream::new(connection.clone(), key).into()
    }

    fn stream_number(key: RequestKey) -> u64 {
        key.id()
    }

    fn receive(
        &mut self,
        root: &mut ClientConnection,
        connection: &QmuxStreams,
        context: &mut Context<'_>,
        busy: impl FnOnce() -> bool,
    ) -> io::Result<Received> {
        connection.set_owner(context.waker());
        connection.take_touched();
        let mut engine = connection.engine.borrow_mut();
        let received = self.reader.receive(&mut engine, &mut root.socket().stream, context)?;
        if received == Received::End {
            engine.note_end();
        }
        if self.timer.poll_expired(context).is_ready() {
            engine.handle_timeout();
            engine.follow_announcement(engine::now());
        }
        self.is_within_record = engine.transport.connection.is_within_record();
        if let Some(reason) = engine.note_events() {
            self.tracer.is_lost(&reason);
            self.lost = Some(reason);
        }
        match &self.lost {
            // `advance` reports it.
            None | Some(LostReason::Violation(..)) => {}
            Some(LostReason::Application(code)) if [Code::NoError.number(), 0].contains(code) => {
                return Ok(Received::End);
            }
            Some(LostReason::Local) => return Ok(Received::End),
            Some(LostReason::TimedOut) => return Err(io::ErrorKind::TimedOut.into()),
            Some(_) => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        let has_work = engine.begin_turn(busy());
        // Even an incomplete record may be followed by more bytes.
        Ok(if has_work && received == Received::Nothing { Received::Bytes } else { received })
    }

    fn advance(&mut self, connection: &QmuxStreams) -> Result<Option<Notice<RequestKey>>, QmuxViolation> {
        if let Some(LostReason::Violation(code, reason)) = &self.lost {
            return Err(QmuxViolation::Transport(*code, reason.clone()));
        }
        engine::advance(connection, &mut self.payload).map_err(QmuxViolation::Http3)
    }

    fn is_fresh(&self) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        !self.is_within_record
    }

    fn send(
        &mut self,
        root: &mut ClientConnection,
        connection: &QmuxStreams,
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        let wrote = connection.send(&mut root.socket().stream, context)?;
        let engine = connection.engine.borrow();
        self.tracer.turn(&engine);
        if engine.has_work() {
            // Sending has made room for data that waits in the engine.
            context.waker().wake_by_ref();
        }
        let at = [engine.transport.connection.timeout(), engine.shutdown_at()];
        self.timer.set(at.into_iter().flatten().min().map_or(NEVER, timer_ms));
        if self.timer.poll_expired(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(wrote)
    }

    fn apply_changes(
        &mut self,
        root: &mut ClientConnection,
        connection: &QmuxStreams,
    ) -> Result<(), FrontEnd> {
        apply_wish(root, connection.take_wish())
    }

    async fn finish(&mut self, root: &mut ClientConnection, connection: &QmuxStreams, end: FrontEnd) {
        if end == FrontEnd::Agreed {
            connection.close(None);
            poll_fn(|context| {
                // If the socket has no room now, the client is not reading, and misses only the reason.
                let _ = connection.send(&mut root.socket().stream, context);
                Poll::Ready(())
            })
            .await;
        }
        // A reset must not overtake the last message to the client.
        root.linger().await;
    }

    fn trace(&self, _: &ClientConnection, _: &QmuxStreams) {}
}
