//! One worker's shared HTTP/2 connections: finds one for a request, exchanges them with clients and other workers, and runs the
//! task of each.
//!
//! The task ([`run`]) owns the socket: it reads from it, passes frames to the streams, and sends the output of all requests
//! together.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::h2::Role;
use net::Stream as Socket;
use runtime::trace::{self, TraceSource};
use runtime::{Local, turns};
use sample::Endpoint;

use super::h1::PoolKey;
use super::h2::{BoxedRequest, Give, H2Request, H2Transfer, Http2, Multiplexed};
use super::http_request::Settling;
use super::open_count::Open;
use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::shared::{Carrier, ConnectionList, Idle, OpenedConnection, send};
use crate::points;
use crate::stream::h2::H2Engine;
use crate::stream::{Driver as _, DriverFailure, Notice, Ping, Received, ReceivedBytes};
use crate::violation;

/// An established, idle connection.
pub(crate) struct IdleHttp2 {
    pub(crate) socket: Socket,
    pub(crate) engine: H2Engine,
    pub(crate) reader: ReceivedBytes,
    /// Whether the server's settings have been received.
    pub(crate) is_settled: bool,
    /// The number of requests sent over the connection so far.
    pub(crate) uses: u32,
    pub(crate) key: PoolKey,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// The backend that the server belongs to.
    pub(crate) backend: Local<state::Proxy>,
    pub(crate) open: Open,
}

/// One worker's shared HTTP/2 connections.
pub(crate) struct Carriers {
    all: ConnectionList<H2Engine, Http2>,
    /// The worker's CPU usage, in percent, above which connections with too many glitches are closed.
    busy_from: u8,
}

impl Carriers {
    /// Creates an empty list.
    pub(crate) fn new(busy_from: u8) -> Rc<Self> {
        Rc::new(Self { all: ConnectionList::default(), busy_from })
    }

    /// Returns a share of a usable connection with room for a request, if there is one.
    #[inline]
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<BoxedRequest> {
        self.all.share(server, ask).map(H2Request::begin)
    }

    /// Creates a connection on an HTTP/2 socket. Returns the first request on it.
    pub(crate) fn begin(
        self: &Rc<Self>,
        opened: OpenedConnection,
        backend: Local<state::Proxy>,
        config: &Arc<::h2::Config>,
    ) -> BoxedRequest {
        let OpenedConnection { socket, preamble, key, ends, for_one, open } = opened;
        let engine = H2Engine::new(Role::Client, config);
        let reader = ReceivedBytes::default();
        let standing =
            IdleHttp2 { socket, engine, reader, is_settled: false, uses: 0, key, ends, backend, open };
        let (shared, request) = self.start(standing, preamble, H2Request::begin);
        shared.is_leaving.set(for_one);
        shared.counters().connections_total.add(1);
        request
    }

    /// Adds a connection that a client provided. From now on, requests can use it.
    pub(crate) fn attach(self: &Rc<Self>, standing: IdleHttp2) {
        let (shared, ()) = self.start(standing, Vec::new(), drop);
        shared.counters().connections_total.add(1);
    }

    /// Adds a connection from another worker, and starts a request on it.
    pub(crate) fn take_in(
        self: &Rc<Self>,
        handed: H2Transfer,
        key: &[u8],
        backend: Local<state::Proxy>,
        server: &Rc<LocalServer>,
    ) -> BoxedRequest {
        let H2Transfer { stream, engine, is_settled, uses, ends, open } = handed;
        // The connection has no pending output.
        let engine = engine.repacked().unwrap_or_else(|| unreachable!("it was repacked before"));
        let standing = IdleHttp2 {
            socket: Socket::attach(stream),
            engine,
            reader: ReceivedBytes::default(),
            is_settled,
            uses,
            key: key.into(),
            ends,
            backend,
            open: open.take(server),
        };
        self.start(standing, Vec::new(), H2Request::begin).1
    }

    /// Passes on an idle, usable connection if there is one.
    pub(crate) fn hand_over(&self, server: &LocalServer, ask: PoolQuery<'_>, give: Give) {
        if let Some(one) = self.all.find(server, ask, Multiplexed::is_idle) {
            *one.own.leaves_to.borrow_mut() = Some(give);
            one.connection.touch();
        }
    }

    /// Closes the idle connections to a server, and makes the tasks of its other connections check their state.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.all.look(server);
    }

    fn start<T>(
        self: &Rc<Self>,
        standing: IdleHttp2,
        preamble: Vec<u8>,
        begin: impl FnOnce(Rc<Multiplexed>) -> T,
    ) -> (Rc<Multiplexed>, T) {
        let IdleHttp2 { socket, engine, reader, is_settled, uses, key, ends, backend, mut open } = standing;
        open.source = TraceSource::H2;
        let own = Http2 { settling: Settling::new(is_settled), backend, leaves_to: RefCell::default() };
        let shared = Carrier::new((&socket, engine), uses, key, ends, open, own);
        shared.counters().connections.up();
        self.all.add(&shared);
        // Created before the task starts, because a connection with a request is not idle.
        let begun = begin(shared.clone());
        tokio::task::spawn_local(run(self.clone(), shared.clone(), socket, preamble, reader));
        (shared, begun)
    }
}

/// Maximum number of reads before the task yields.
const TURNS: usize = 16;

/// Why a connection ends.
enum PooledEnd {
    Socket,
    Protocol,
    Agreed,
    /// The connection moved to another worker.
    Left,
}

/// Serves the socket of a connection until it ends.
async fn run(
    all: Rc<Carriers>,
    shared: Rc<Multiplexed>,
    mut socket: Socket,
    mut preamble: Vec<u8>,
    mut reader: ReceivedBytes,
) {
    let mut idle = Idle::default();
    let mut ping = shared.open.server.idle_ping.map(|every| Box::new(Ping::new(every)));
    let end = poll_fn(|context| {
        shared.connection.set_owner(context.waker());
        for turn in 1.. {
            shared.connection.take_touched();
            let received = match receive(&shared, &mut socket, &mut reader, all.busy_from, context) {
                Ok(received) => received,
                Err(end) => return Poll::Ready(end),
            };
            if send(&shared.connection, &mut socket, &mut preamble, context).is_err() {
                return Poll::Ready(PooledEnd::Socket);
            }
            if trace::is_on(TraceSource::H2) {
                trace_frames(&shared);
            }
            // Sending has made room for waiting streams.
            shared.connection.wake_writable();
            if !received {
                break;
            }
            if reader.is_fresh() || turn == TURNS {
                // Lets other tasks of the worker run.
                turns::yield_turn(context);
                break;
            }
            if let Some(ping) = &mut ping {
                ping.note_life();
            }
        }
        if shared.is_idle()
            && let Some(ping) = &mut ping
        {
            if ping.poll_silence(&shared.connection, context).is_ready() {
                return Poll::Ready(PooledEnd::Socket);
            }
            if send(&shared.connection, &mut socket, &mut preamble, context).is_err() {
                return Poll::Ready(PooledEnd::Socket);
            }
        }
        if shared.own.leaves_to.borrow().is_some() {
            if may_leave(&shared, &reader, &preamble) {
                return Poll::Ready(PooledEnd::Left);
            }
            // The worker that requested the connection no longer waits for this one.
            shared.own.leaves_to.take();
        }
        if !shared.is_idle() {
            idle.end(&shared.open.server);
            return Poll::Pending;
        }
        idle.poll(&shared, &all.all, context).map(|()| PooledEnd::Agreed)
    })
    .await;
    shared.is_leaving.set(true);
    shared.counters().connections.down();
    idle.end(&shared.open.server);
    shared.own.settling.wake();
    if matches!(end, PooledEnd::Left) {
        return leave(shared, socket);
    }
    shared.connection.put_end_of_all();
    if matches!(end, PooledEnd::Protocol | PooledEnd::Agreed) {
        // Sends GOAWAY, if one is queued; skipped if the socket blocks.
        poll_fn(|context| {
            let _ = send(&shared.connection, &mut socket, &mut preamble, context);
            Poll::Ready(())
        })
        .await;
    }
    socket.close();
}

/// Traces the frames received and sent.
#[cold]
fn trace_frames(shared: &Multiplexed) {
    let Multiplexed { connection, open, .. } = shared;
    let server = &open.server.state;
    let keys = points::of_server(server, connection.descriptor as u64 + 1);
    let frames = connection.engine.borrow_mut().take_frames();
    points::frames(&keys, frames, &|out| {
        let _ = write!(out, "server={}", server.name);
    });
}

/// Whether the connection is completely idle, in both directions.
fn may_leave(shared: &Rc<Multiplexed>, reader: &ReceivedBytes, preamble: &[u8]) -> bool {
    let is_quiet = reader.is_empty() && preamble.is_empty() && !shared.is_leaving.get();
    is_quiet
        && Rc::strong_count(shared) == 1
        && shared.is_idle()
        && shared.connection.engine.borrow().pending() == 0
}

/// Passes the connection to the worker that requested it.
fn leave(shared: Rc<Multiplexed>, socket: Socket) {
    let Some(give) = shared.own.leaves_to.take() else { return };
    let config = shared.connection.engine.borrow().config();
    let engine = shared.connection.engine.replace(H2Engine::new(Role::Client, &config));
    let (is_settled, uses, ends) = (shared.own.settling.is_settled(), shared.uses.get(), shared.ends);
    let (Some(engine), Some(shared)) = (engine.repacked(), Rc::into_inner(shared)) else { return };
    let open = shared.open.hand_over();
    give(H2Transfer { stream: socket.detach(), engine, is_settled, uses, ends, open });
}

/// Reads once, and passes the frames to their streams. Returns whether there were any.
fn receive(
    shared: &Multiplexed,
    socket: &mut Socket,
    reader: &mut ReceivedBytes,
    busy_from: u8,
    context: &mut Context<'_>,
) -> Result<bool, PooledEnd> {
    let connection = &shared.connection;
    let busy = || violation::is_busy(busy_from);
    let taken = reader.take_in(connection, socket, context, busy, |notice| match notice {
        Notice::Head { key, end } => {
            connection.put_head(key);
            if end {
                connection.put_end(key, None);
            }
        }
        Notice::GoingAway => shared.is_leaving.set(true),
        Notice::Settings => {
            shared.own.settling.settle();
        }
        // Servers open no streams, and send no log output.
        Notice::Refused | Notice::Message => {}
    });
    connection.count(shared.counters());
    match taken {
        Ok(Received::Nothing) => Ok(false),
        Ok(Received::Bytes) => Ok(true),
        Ok(Received::End) | Err(DriverFailure::Socket) => Err(PooledEnd::Socket),
        Err(DriverFailure::Protocol) => Err(PooledEnd::Protocol),
    }
}
