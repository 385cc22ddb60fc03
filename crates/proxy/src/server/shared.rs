//! Connections to servers that requests of several clients share, in any protocol: which requests may use one, a request's share
//! of it, the list of one worker, and how long an idle one is kept.
//!
//! Each protocol adds its own state ([`h2`](super::h2), [`fcgi`](super::fcgi)), and the task that owns the socket.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use net::Stream as Socket;
use runtime::timer::{Timer, now_ms};
use runtime::{Buffer, turns};
use sample::{Endpoint, StreamFacts};

use super::h1::PoolKey;
use super::open_count::Open;
use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::private::{ClientId, Reservable};
use crate::flow::{Flow, FlowError, Sink, Source};
use crate::stream::{AnyStream, EngineConnection, Protocol, REST, SocketOutput};

/// A newly opened connection.
pub(crate) struct OpenedConnection {
    pub(crate) socket: Socket,
    /// Bytes to send first (PROXY protocol).
    pub(crate) preamble: Vec<u8>,
    pub(crate) key: PoolKey,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// Whether the connection serves only one request (`http-reuse never`).
    pub(crate) for_one: bool,
    pub(crate) open: Open,
}

/// A connection shared by requests, with its protocol's state.
pub(crate) struct Carrier<E: Protocol, X> {
    pub(super) connection: Rc<EngineConnection<E>>,
    pub(super) key: PoolKey,
    /// The number of requests sent over the connection so far.
    pub(super) uses: Cell<u32>,
    /// The number of requests that hold the connection and have not started yet.
    pub(super) waiting: Cell<u32>,
    /// Whether the connection accepts no more requests. It is closed once its current ones have ended.
    pub(super) is_leaving: Cell<bool>,
    /// The only client that may use the connection (`http-reuse never`).
    reserved_for: Cell<Option<ClientId>>,
    pub(super) ends: Option<(Endpoint, Endpoint)>,
    /// The TLS details, once the handshake is complete.
    pub(super) tls: OnceCell<Arc<tls::Details>>,
    pub(super) open: Open,
    pub(super) own: X,
}

/// A protocol's state of a connection.
pub(crate) trait ProtocolState {
    /// Whether the protocol allows one more request.
    fn is_free(&self) -> bool {
        true
    }
}

impl ProtocolState for () {}

impl<E: Protocol, X: ProtocolState> Carrier<E, X> {
    /// Creates a connection without requests.
    pub(super) fn new(
        (socket, engine): (&Socket, E),
        uses: u32,
        key: PoolKey,
        ends: Option<(Endpoint, Endpoint)>,
        open: Open,
        own: X,
    ) -> Rc<Self> {
        let descriptor = socket.as_fd().as_raw_fd();
        let connection = EngineConnection::new(engine, descriptor, socket.tls().is_some());
        let shared = Self::of_connection(connection, uses, key, ends, open, own);
        if let Some(session) = socket.tls() {
            let _ = shared.tls.set(session.details().clone());
        }
        Rc::new(shared)
    }

    /// Takes over an existing connection, without requests and without TLS details.
    pub(super) fn of_connection(
        connection: Rc<EngineConnection<E>>,
        uses: u32,
        key: PoolKey,
        ends: Option<(Endpoint, Endpoint)>,
        open: Open,
        own: X,
    ) -> Self {
        Self {
            connection,
            key,
            uses: Cell::new(uses),
            waiting: Cell::new(0),
            is_leaving: Cell::new(false),
            reserved_for: Cell::new(None),
            ends,
            tls: OnceCell::new(),
            open,
            own,
        }
    }

    /// Whether the connection can accept one more request.
    pub(super) fn has_room(&self) -> bool {
        !self.is_leaving.get()
            && self.own.is_free()
            && self.open.is_current()
            && !self.connection.is_crowded()
            && self.connection.engine.borrow().free() > self.waiting.get() as usize
            && (self.open.server.max_reuse < 0 || i64::from(self.uses.get()) <= self.open.server.max_reuse)
    }

    /// Whether the requester is allowed to use the connection.
    pub(super) fn may_serve(&self, server: &LocalServer, ask: PoolQuery<'_>) -> bool {
        let is_permitted = match self.reserved_for.get() {
            None => ask.least_uses().is_some_and(|least| self.uses.get() >= least),
            client => client == ask.client,
        };
        is_permitted && self.open.server.is(server) && *self.key == *ask.key
    }
}

impl<E: Protocol, X> Reservable for Carrier<E, X> {
    fn reserve(&self, client: ClientId) {
        self.reserved_for.set(Some(client));
    }

    fn leave(&self) {
        self.is_leaving.set(true);
        self.connection.touch();
    }
}

/// The connections of one worker with one protocol.
pub(super) struct ConnectionList<E: Protocol, X>(RefCell<Vec<Weak<Carrier<E, X>>>>);

impl<E: Protocol, X> Default for ConnectionList<E, X> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<E: Protocol, X: ProtocolState> ConnectionList<E, X> {
    /// Adds a connection.
    pub(super) fn add(&self, one: &Rc<Carrier<E, X>>) {
        let mut all = self.0.borrow_mut();
        all.retain(|one| one.strong_count() > 0);
        all.push(Rc::downgrade(one));
    }

    /// Returns a usable connection with room for a request, if there is one.
    #[inline]
    pub(super) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Rc<Carrier<E, X>>> {
        if self.0.borrow().is_empty() { None } else { self.find(server, ask, |_| true) }
    }

    /// Returns a usable connection with room for a request, among those that are `wanted`.
    pub(super) fn find(
        &self,
        server: &LocalServer,
        ask: PoolQuery<'_>,
        wanted: impl Fn(&Carrier<E, X>) -> bool,
    ) -> Option<Rc<Carrier<E, X>>> {
        let all = self.0.borrow();
        all.iter()
            .filter_map(Weak::upgrade)
            .find(|one| one.may_serve(server, ask) && wanted(one) && one.has_room())
    }

    /// Calls `look` for each connection.
    pub(super) fn each(&self, look: impl FnMut(Rc<Carrier<E, X>>)) {
        self.0.borrow().iter().filter_map(Weak::upgrade).for_each(look);
    }

    /// Closes all connections once their requests have ended, because they belong to an older plan.
    pub(super) fn retire(&self) {
        self.each(|one| {
            one.is_leaving.set(true);
            one.connection.touch();
        });
    }

    /// Closes the idle connections to a server, and makes the tasks of its other connections check their state.
    pub(super) fn look(&self, server: &LocalServer) {
        self.each(|one| {
            if one.open.server.is(server) {
                one.connection.touch();
            }
        });
    }

    /// Returns the number of connections to this server.
    fn count(&self, server: &LocalServer) -> usize {
        self.0.borrow().iter().filter_map(Weak::upgrade).filter(|one| one.open.server.is(server)).count()
    }
}

/// A request's share of a connection.
///
/// `S` is the type of the stream: [`AnyStream`] for HTTP messages.
pub(crate) struct Share<E: Protocol, X, S = AnyStream> {
    pub(super) carrier: Rc<Carrier<E, X>>,
    /// The stream of the request, once its head was sent.
    pub(super) stream: Option<S>,
    /// The number of this request among those of the connection.
    uses: u32,
}

impl<E: Protocol, X, S> Share<E, X, S> {
    /// Creates a share that has not started yet.
    pub(super) fn new(carrier: Rc<Carrier<E, X>>) -> Self {
        carrier.waiting.set(carrier.waiting.get() + 1);
        carrier.uses.set(carrier.uses.get() + 1);
        let uses = carrier.uses.get();
        Self { carrier, stream: None, uses }
    }

    /// Starts the request with its stream.
    pub(super) fn begin(&mut self, stream: impl Into<S>) {
        self.carrier.waiting.set(self.carrier.waiting.get() - 1);
        self.stream = Some(stream.into());
    }

    /// Returns the server of the connection.
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        &self.carrier.open.server
    }

    /// Returns the number of requests sent over the connection so far, including this one.
    pub(crate) fn uses(&self) -> u32 {
        self.uses
    }

    /// Returns the local endpoint of the connection and the server's.
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        self.carrier.ends
    }

    /// Returns the connection, to reserve it.
    pub(crate) fn connection(&self) -> Rc<dyn Reservable>
    where
        E: 'static,
        X: 'static,
    {
        self.carrier.clone()
    }

    /// Returns the TLS details of the connection.
    pub(crate) fn tls(&self) -> Option<&Arc<tls::Details>> {
        self.carrier.tls.get()
    }

    /// Returns the connection's file descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.carrier.connection.descriptor
    }
}

impl<E: Protocol, X> Share<E, X> {
    /// Returns the number, limits, and reset code of the stream.
    pub(crate) fn facts(&self) -> StreamFacts {
        let none = StreamFacts { major: E::HTTP_MAJOR, id: 0, open: 0, most: 0, reset: None };
        self.stream.as_ref().map_or(none, AnyStream::facts)
    }

    /// Returns the source of the response's body.
    pub(crate) fn source(&mut self) -> Source<'_> {
        self.stream.as_mut().map_or(Source::Gone, Source::Stream)
    }

    /// Returns the sink of the request's body.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        self.stream.as_mut().map_or(Sink::Gone, Sink::Stream)
    }

    /// Returns the buffer of received bytes, if there is a stream.
    pub(crate) fn input(&mut self) -> Option<&mut Buffer> {
        self.stream.as_mut().map(AnyStream::input)
    }

    /// Receives more of the response's body. Returns 0 at its end.
    ///
    /// # Errors
    /// The response was aborted, or there is no stream.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Some(stream) => stream.poll_fill(context),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Passes the received part of the body to `flow`.
    ///
    /// # Errors
    /// None that a body could cause.
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        let input = self.stream.as_mut().and_then(|stream| stream.input_slot().as_mut());
        input.map_or(Ok(()), |input| flow.admit(input))
    }

    /// Returns the bytes received but not consumed yet.
    pub(crate) fn received(&self) -> &[u8] {
        self.stream.as_ref().map_or(&[][..], AnyStream::received)
    }

    /// Whether the response is completely consumed, with neither payload nor trailers left.
    pub(crate) fn has_no_rest(&self) -> bool {
        self.stream.as_ref().is_none_or(AnyStream::has_no_rest)
    }

    /// Whether the whole response has arrived, and the rest is in the buffer.
    pub(crate) fn is_ended(&self) -> bool {
        self.stream.as_ref().is_none_or(AnyStream::is_ended)
    }
}

impl<E: Protocol, X, S> Drop for Share<E, X, S> {
    fn drop(&mut self) {
        if self.stream.is_none() {
            self.carrier.waiting.set(self.carrier.waiting.get().saturating_sub(1));
        }
        // The stream is released after this call, and the connection may then be idle.
        self.carrier.connection.touch();
    }
}

/// Sends the `preamble`, then as much of the output as the socket accepts.
///
/// # Errors
/// As [`Protocol::send`].
pub(super) fn send<E: SocketOutput>(
    connection: &EngineConnection<E>,
    socket: &mut Socket,
    preamble: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> io::Result<()> {
    while !preamble.is_empty() {
        match socket.poll_write(context, preamble) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(n)) => drop(preamble.drain(..n)),
            Poll::Ready(Err(error)) => return Err(error),
        }
    }
    connection.send(socket, context).map(drop)
}

/// The maximum number of consecutive steps before the task yields.
const TURN: u32 = 8;

/// Calls `step` until it returns that nothing remains to be done or the turn is over.
///
/// # Errors
/// The reason to end the connection.
pub(super) fn take_turn<End>(
    context: &mut Context<'_>,
    mut step: impl FnMut(&mut Context<'_>) -> Result<bool, End>,
) -> Result<(), End> {
    for _ in 0..TURN {
        if !step(context)? {
            return Ok(());
        }
    }
    turns::yield_turn(context);
    Ok(())
}

/// Tracks whether a connection is idle, and for how long (`pool-purge-delay`).
#[derive(Default)]
pub(super) struct Idle {
    timer: Timer,
    is_idle: bool,
    /// Whether it is idle, and reserved for a client.
    is_private: bool,
}

impl Idle {
    /// The connection is busy, or has ended.
    pub(super) fn end(&mut self, server: &LocalServer) {
        if std::mem::take(&mut self.is_idle) {
            server.state.counters.mine().idle.down();
        }
        if std::mem::take(&mut self.is_private) {
            server.state.counters.mine().private_idle.down();
        }
    }

    /// Called while the connection is idle. Ready once it can be closed.
    pub(super) fn poll<E: Protocol, X: ProtocolState>(
        &mut self,
        carrier: &Carrier<E, X>,
        all: &ConnectionList<E, X>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let server = &carrier.open.server;
        // Clients that provide connections cannot detect that a health check considers the server down.
        let is_left = match server.is_reverse {
            true => server.state.admin().in_maintenance(),
            false => !server.state.is_up(),
        };
        if !carrier.has_room() || is_left {
            return Poll::Ready(());
        }
        if carrier.reserved_for.get().is_some() {
            // It is closed with its client's connection.
            if !std::mem::replace(&mut self.is_private, true) {
                server.state.counters.mine().private_idle.up();
                self.timer.set_after(now_ms(), Some(REST));
            }
            if self.timer.poll_expired(context).is_ready() {
                carrier.connection.shrink();
                self.timer.set_after(now_ms(), None);
            }
            return Poll::Pending;
        }
        if !self.is_idle && !server.keeps_idle() {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_idle, true) {
            server.state.counters.mine().idle.up();
            self.timer.set_after(now_ms(), Some(server.pool_purge_delay));
        }
        while self.timer.poll_expired(context).is_ready() {
            // One connection is always kept, and so are connections that Weir cannot open itself.
            if all.count(server) > 1 && !server.is_reverse {
                return Poll::Ready(());
            }
            carrier.connection.shrink();
            self.timer.set_after(now_ms(), Some(server.pool_purge_delay));
        }
        Poll::Pending
    }
}
