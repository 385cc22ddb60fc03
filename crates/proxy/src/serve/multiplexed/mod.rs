//! A client's multiplexed connection (HTTP/2, HTTP/3): a single task serves all its requests.
//!
//! A turn reads once from the [`ClientCarrier`], decodes the frames, polls the streams that were woken, and writes their output once. The
//! streams' futures live in the boxes of [`Exchanges`], each with its own waker ([`stream_wakers`](super::stream_wakers)), so that a
//! turn polls only woken streams.

pub(super) mod carrier;
mod qmux;
mod socket;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};

use base::clock::WallTime;
use h2::Role;
use plan::global::LogErrors;
use runtime::{timer, turns};
use sample::track::{self, Trackers};
use sample::{Cause, ConnectionError, Endpoint};
use state::FaultCause;
use state::counters::Multiplexed;
use state::sessions::{self, Activity};

use self::carrier::{ClientCarrier, KeyOf};
pub(super) use self::qmux::serve_qmux;
use super::connection_deadline::{ConnectionDeadline, DeadlineState};
use super::exchange_pool::{Exchanges, RunningRequest, ServeExchange};
use super::shutdown_wakers::{self, ShutdownWaker};
use super::stream_quota::{StreamQuota, moderate};
use super::stream_wakers::{StreamWaker, WakeQueue};
use crate::client::{self, Client, handshake};
use crate::exchange::{Arrival, Exchange, report, trace};
use crate::stream::h2::{H2Connection, H2Engine};
use crate::stream::{
    EngineConnection, Lifecycle as _, Messages as _, Notice, Ping, Protocol as _, REST, Received,
    ReceivedBytes,
};
use crate::violation;

/// The maximum number of streams that are polled before their output is sent.
const STREAMS_A_TURN: usize = 64;

/// The maximum number of turns before the connection yields.
const TURNS: usize = 16;

/// The maximum duration of turns before the connection yields, in µs. The number of turns is not enough as a limit, because the
/// client decides how much work a turn is.
const TURNS_US: u64 = 500;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrontEnd {
    /// Agreed: one side sent GOAWAY, or the client closed.
    Agreed,
    /// The client violated the protocol and was notified.
    Broken,
    /// The socket failed.
    Failed,
    /// A timeout.
    Late,
    /// An operator ended it.
    Killed,
    /// A rule ended it silently.
    Vanished,
}

/// A connection and its streams.
struct Front<S: ServeExchange, C: ClientCarrier> {
    /// The client's connection, with its socket.
    root: client::ClientConnection,
    connection: Rc<EngineConnection<C::Engine>>,
    exchanges: Rc<Exchanges<S>>,
    carrier: C,
    /// The streams, indexed by key.
    streams: Vec<StreamSeat<S::Exchange>>,
    ready: Arc<WakeQueue>,
    /// The number of streams being served.
    open: usize,
    /// `idle-ping` of the listener.
    ping: Option<Box<Ping>>,
    /// Whether the client has closed its side.
    is_ended: bool,
    /// Wakes the task when the process stops.
    shutdown_waker: Option<ShutdownWaker>,
    /// Whether the end of the connection was announced.
    is_leaving: bool,
    /// Whether a stream had to be served with an outdated plan.
    is_outdated: bool,
    /// When the connection must end, in ms, if the timer is set to the time for freeing memory instead.
    ends_at: Option<u64>,
    deadline: ConnectionDeadline,
}

/// A reusable slot for serving a stream.
struct StreamSeat<F> {
    running: Option<RunningRequest<F>>,
    slot: Arc<StreamWaker>,
    waker: Waker,
}

/// Serves the streams of `client`'s connection until it ends. Early data waits until the handshake is complete, because its
/// streams could be replayed by an attacker (RFC 8470, 3).
#[allow(clippy::manual_async_fn, reason = "it would hold its arguments twice")]
pub(crate) fn serve<S: ServeExchange>(
    mut client: client::ClientConnection,
    exchanges: Rc<Exchanges<S>>,
) -> impl Future<Output = ()> {
    async move {
        if client.side.is_early() && !Box::pin(client.settle()).await {
            return;
        }
        let moderated = match client.worker.shared.plan.global.tune.h2.front.moderation {
            Some(own) => Box::pin(moderate(own, &client.prepared().h2.front)).await,
            None => None,
        };
        let (share, connection) = {
            let config = moderated.as_ref().unwrap_or(&client.prepared().h2.front);
            let (share, own) = StreamQuota::take(&client.worker, config).unzip();
            let engine = H2Engine::new(Role::Server, own.as_ref().unwrap_or(config));
            (share, H2Connection::new(engine, client.side.descriptor(), client.side.tls().is_some()))
        };
        let reader = ReceivedBytes::new(client.socket().input.take());
        go_on(client, exchanges, connection, reader).await;
        drop(share);
    }
}

/// Like `serve`, for a connection in progress. Returns its carrier at the end. The arguments are moved into the future only once,
/// because each further copy would cost memory for every idle connection.
pub(super) fn go_on<S: ServeExchange, C: ClientCarrier>(
    client: client::ClientConnection,
    exchanges: Rc<Exchanges<S>>,
    connection: Rc<EngineConnection<C::Engine>>,
    carrier: C,
) -> impl Future<Output = C> {
    let ping = handshake::bind(&client).and_then(|bind| bind.idle_ping);
    let front = Front {
        root: client,
        connection,
        exchanges,
        carrier,
        streams: Vec::new(),
        ready: Arc::new(WakeQueue::default()),
        open: 0,
        ping: ping.map(|every| Box::new(Ping::new(every))),
        is_ended: false,
        shutdown_waker: None,
        is_leaving: false,
        is_outdated: false,
        ends_at: None,
        deadline: ConnectionDeadline::new(timer::now_ms()),
    };
    front.run()
}

impl<S: ServeExchange, C: ClientCarrier> Front<S, C> {
    #[allow(clippy::manual_async_fn, reason = "it would hold itself twice")]
    fn run(mut self) -> impl Future<Output = C> {
        async move {
            self.root.session.http_major.set(C::HTTP_MAJOR);
            self.counters().connections.up();
            self.counters().connections_total.add(1);
            self.root.entry.activity.set(Activity::Waiting);
            self.arm(false, false);
            trace::events::multiplexed_begins(&self.root, C::POINTS);
            self.carrier.trace(&self.root, &self.connection);
            let end = poll_fn(|context| self.poll(context)).await;
            self.conclude(end).await;
            let is_error = matches!(end, FrontEnd::Broken | FrontEnd::Failed);
            trace::events::multiplexed_ends(&self.root, C::POINTS, &end, is_error);
            self.counters().connections.down();
            self.carrier
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<FrontEnd> {
        self.ready.enter(context.waker());
        self.shutdown_waker.get_or_insert_with(|| shutdown_wakers::register(context.waker()));
        if self.open == 0 {
            self.root.follow_plan();
        }
        let polled = match self.turns(context) {
            Ok(()) => self.poll_end(context),
            Err(end) => Poll::Ready(end),
        };
        self.ready.leave();
        polled
    }

    /// Takes turns while there is work.
    fn turns(&mut self, context: &mut Context<'_>) -> Result<(), FrontEnd> {
        let (mut heard, mut polled, mut wrote) = (false, false, false);
        let mut since = None;
        for turn in 1.. {
            let received = self.receive(context)?;
            // A window update or an acknowledgement made room for waiting streams. Their output is sent with that of this turn.
            self.connection.wake_writable();
            polled |= self.poll_streams();
            self.carrier.apply_changes(&mut self.root, &self.connection)?;
            wrote |= self.send(context)?;
            self.carrier.trace(&self.root, &self.connection);
            // Sending made room for waiting streams.
            self.connection.wake_writable();
            heard |= received;
            if !(received || self.ready.is_any()) {
                break;
            }
            // Yields to other tasks of the worker.
            if turn == TURNS || self.carrier.is_fresh() || (turn > 1 && is_over(&mut since)) {
                turns::yield_turn(context);
                break;
            }
        }
        if heard || polled || wrote {
            self.arm(heard, wrote);
        }
        Ok(())
    }

    fn counters(&self) -> &Multiplexed {
        C::counters(self.root.frontend.state.frontend.mine())
    }

    /// Reads once, and dispatches the received frames. Returns whether there were any.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<bool, FrontEnd> {
        if self.is_ended {
            return Ok(false);
        }
        let busy_from = self.root.worker.shared.plan.global.tune.glitches.cpu_usage;
        let connection = self.connection.clone();
        let busy = || violation::is_busy(busy_from);
        match self.carrier.receive(&mut self.root, &connection, context, busy) {
            Ok(Received::Nothing) => return Ok(false),
            Ok(Received::Bytes) => {}
            Ok(Received::End) => {
                self.is_ended = true;
                connection.put_end_of_all();
                return Ok(true);
            }
            Err(error) => {
                self.root.session.error.set(ConnectionError::of_kernel(&error));
                return Err(FrontEnd::Failed);
            }
        }
        let outcome = loop {
            match self.carrier.advance(&connection) {
                Ok(Some(notice)) => self.heed(notice),
                Ok(None) => break Ok(true),
                Err(why) => {
                    trace::events::protocol_broken(&self.root, C::POINTS, &why);
                    count_invalid_request(&self.root, LogErrors::Connection);
                    break Err(FrontEnd::Broken);
                }
            }
        };
        connection.count(self.counters());
        self.note_glitches(connection.engine.borrow().glitches());
        outcome
    }

    /// Records how many protocol violations the connection had so far.
    fn note_glitches(&self, count: u32) {
        let session = &self.root.session;
        let new = count.saturating_sub(session.glitches.replace(count));
        if new > 0 {
            let none = Trackers::default();
            track::note(session, &none, track::CountedEvent::Glitches(new), timer::now_ms());
        }
    }

    fn heed(&mut self, notice: Notice<KeyOf<C>>) {
        match notice {
            Notice::Head { key, end } => self.start(key, end),
            Notice::Refused => count_invalid_request(&self.root, LogErrors::Stream),
            // Weir opens no streams, and clients send no log output.
            Notice::GoingAway | Notice::Settings | Notice::Message => {}
        }
    }

    /// Starts serving a stream.
    fn start(&mut self, key: KeyOf<C>, is_whole: bool) {
        self.root.follow_plan();
        // The client must reconnect, because this connection is never idle.
        self.is_outdated |= self.root.worker.is_old();
        let mut x = Exchange::take();
        std::mem::swap(&mut x.txn.request, self.connection.engine.borrow_mut().head_mut());
        let stream = C::stream(&self.connection, key);
        if is_whole {
            self.connection.put_end(key, None);
        }
        let link = &self.root.link;
        let ends = [link.session.source(), link.session.destination()].map(Endpoint::address);
        let entry = sessions::register(&link.frontend.held, ends[0], ends[1], timer::now_ms());
        entry.client_fd.set(self.connection.descriptor);
        entry.activity.set(Activity::Request);
        entry.client_stream.set(C::stream_number(key));
        entry.is_quic.set(self.root.entry.is_quic.get());
        let mut client = Client::of_stream(link.clone(), stream, entry);
        client.idle_from = self.root.idle_from;
        let index = C::Engine::place(key);
        if self.streams.is_empty() {
            // Most connections have one stream at a time, whereas a vector would first grow to four.
            self.streams.reserve_exact(1);
        }
        while self.streams.len() <= index {
            let slot = StreamWaker::new(&self.ready, self.streams.len());
            self.streams.push(StreamSeat { running: None, waker: slot.clone().into(), slot });
        }
        self.streams[index].running = Some(self.exchanges.begin_stream(client, Arrival::Stream(x)));
        self.open += 1;
        self.counters().streams.up();
        self.streams[index].waker.wake_by_ref();
    }

    /// Polls woken streams, up to a limit. Returns whether there were any.
    fn poll_streams(&mut self) -> bool {
        for count in 0..STREAMS_A_TURN {
            let Some(index) = self.ready.next() else { return count > 0 };
            let Some(place) = self.streams.get_mut(index) else { continue };
            place.slot.clear();
            let Some(running) = &mut place.running else { continue };
            let mut context = Context::from_waker(&place.waker);
            let Poll::Ready((client, _)) = running.poll(&mut context) else { continue };
            self.root.idle_from = client.idle_from;
            if let Some(running) = place.running.take() {
                self.exchanges.end_stream(client, running);
            }
            self.open -= 1;
            self.counters().streams.down();
        }
        true
    }

    /// Announces the end of the connection.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.connection.shutdown();
        }
    }

    /// Writes as much of the output as the socket accepts. Returns whether anything was written.
    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, FrontEnd> {
        let may_stay = !self.is_outdated && self.root.may_stay();
        if !may_stay {
            self.leave();
        }
        let connection = self.connection.clone();
        self.carrier.send(&mut self.root, &connection, context).map_err(|_| FrontEnd::Failed)
    }

    /// Sets the connection's deadline after a turn.
    fn arm(&mut self, received: bool, wrote: bool) {
        let engine = self.connection.engine.borrow();
        let has_streams = self.open > 0;
        let turn = DeadlineState {
            now: timer::now_ms(),
            has_streams,
            had_requests: self.root.session.requests.get() > 0,
            received,
            // A stream's payload may pause anywhere, even within the header of its next frame.
            is_within_head: engine.is_within_head()
                || !(has_streams || self.carrier.is_empty() || self.carrier.is_fresh()),
            has_output: engine.pending() > 0,
            wrote,
        };
        drop(engine);
        let ends_at = self.deadline.note(&turn, &self.root.frontend.timeouts);
        let now = turn.now;
        let rest = now.saturating_add(REST.as_millis() as u64);
        let rests = !has_streams && !turn.has_output && ends_at > rest;
        self.ends_at = rests.then_some(ends_at);
        self.root.timer.set(if rests { rest } else { ends_at });
        if let Some(ping) = &mut self.ping {
            ping.note_life();
        }
        let entry = &self.root.entry;
        entry.requests.set(self.root.session.requests.get());
        entry.active_ms.set(now);
        // A client that was asked to leave may have sent another request.
        let is_busy = has_streams || turn.has_output || (self.is_leaving && C::ENDS_BY_ITSELF);
        entry.activity.set(if is_busy { Activity::Data } else { Activity::Waiting });
    }

    /// Whether the connection has reached its end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<FrontEnd> {
        let engine = self.connection.engine.borrow();
        let is_idle = self.open == 0 && engine.pending() == 0;
        if is_idle && (self.is_ended || engine.is_ours_to_close()) {
            return Poll::Ready(FrontEnd::Agreed);
        }
        drop(engine);
        if self.root.poll_killed(context).is_ready() {
            if !C::ENDS_BY_ITSELF || !self.root.worker.shared.process.closing.load(Relaxed) {
                return Poll::Ready(FrontEnd::Killed);
            }
            // A soft stop ends connections that seem idle, but a request may be in transit.
            self.leave();
            if let Err(end) = self.send(context) {
                return Poll::Ready(end);
            }
        }
        if self.open == 0
            && let Some(ping) = &mut self.ping
        {
            if ping.poll_silence(&self.connection, context).is_ready() {
                return Poll::Ready(FrontEnd::Late);
            }
            if let Err(end) = self.send(context) {
                return Poll::Ready(end);
            }
        }
        ready!(self.root.timer.poll_expired(context));
        if let Some(ends_at) = self.ends_at.take() {
            self.rest();
            self.root.timer.set(ends_at);
            ready!(self.root.timer.poll_expired(context));
        }
        Poll::Ready(FrontEnd::Late)
    }

    /// Frees the memory that only streams need, once the connection had no streams for a while.
    fn rest(&mut self) {
        self.streams = Vec::new();
        self.connection.shrink();
        self.root.side.rest();
    }

    /// Ends the connection. Its streams end first, each with a log line.
    async fn conclude(&mut self, end: FrontEnd) {
        if end == FrontEnd::Late || end == FrontEnd::Killed {
            self.connection.close(None);
        }
        self.connection.put_end_of_all();
        poll_fn(|context| {
            self.ready.enter(context.waker());
            while self.ready.is_any() {
                self.poll_streams();
            }
            let _ = self.send(context);
            self.ready.leave();
            if self.open == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        match end {
            FrontEnd::Broken | FrontEnd::Late | FrontEnd::Killed => self.finish(end).await,
            FrontEnd::Agreed if !self.is_ended => self.finish(end).await,
            FrontEnd::Agreed | FrontEnd::Failed | FrontEnd::Vanished => {}
        }
    }

    async fn finish(&mut self, end: FrontEnd) {
        self.carrier.finish(&mut self.root, &self.connection, end).await;
    }
}

/// Whether the time budget for turns is used up. The clock is read only from the second call on.
fn is_over(since: &mut Option<u64>) -> bool {
    let now = timer::now_us();
    now.saturating_sub(*since.get_or_insert(now)) > TURNS_US
}

/// Counts an invalid request, both as a request and as an error, for the frontend and in all entries that the connection tracks.
/// `tune.h2.log-errors` decides whether it is logged.
pub(super) fn count_invalid_request(client: &Client, what: LogErrors) {
    client.count(|traffic| traffic.request_errors.add(1));
    client.frontend.state.faults.add(FaultCause::BadRequest);
    let counters = client.frontend.state.frontend.mine();
    let now = timer::now_ms();
    counters.requests_total.add(1);
    counters.request_rate.tick(now);
    for event in [track::CountedEvent::Request, track::CountedEvent::Error] {
        track::note(&client.session, &Trackers::default(), event, now);
    }
    if what <= client.worker.shared.plan.global.tune.h2.log_errors {
        let mut x = Exchange::take();
        let now = timer::now_us();
        x.txn.is_http = true;
        x.txn.termination.set(Cause::Proxy, sample::Phase::Request);
        x.txn.fault = Some(FaultCause::BadRequest);
        (x.txn.times.idle_from, x.txn.times.started, x.txn.times.closed) = (now, now, now);
        x.txn.times.started_wall = WallTime::now().since_1970_us();
        report::no_request(client, &x);
        x.give();
    }
}
