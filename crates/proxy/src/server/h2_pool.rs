//! The connections of one worker that requests share (HTTP/2): how requests find them, how they come
//! from clients and other workers and go to these, and the task of each.
//!
//! The task owns the socket ([`run`]): it reads, puts what came into the places of the streams, and
//! sends what their requests left once after all of them.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::h2::Role;
use net::Stream as Socket;
use runtime::trace::{self, TraceSource};
use runtime::{Local, turns};
use sample::Endpoint;

use super::h1::PoolKey;
use super::h2::{BoxedRequest, Give, H2Request, H2Transfer, Http2, Multiplexed};
use super::open_count::Open;
use super::per_worker::LocalServer;
use super::pool::PoolQuery;
use super::shared::{Carrier, ConnectionList, Idle, OpenedConnection, send};
use crate::points;
use crate::stream::h2::Engine;
use crate::stream::{Driver as _, DriverFailure, Notice, Ping, Reader, Received};
use crate::violation;

/// A connection that stands already, with nothing outstanding on it.
pub(crate) struct Standing {
    pub(crate) socket: Socket,
    pub(crate) engine: Engine,
    pub(crate) reader: Reader,
    /// Whether the server's settings are known.
    pub(crate) is_settled: bool,
    /// Requests sent over it so far.
    pub(crate) uses: u32,
    pub(crate) key: PoolKey,
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// The backend of its server.
    pub(crate) backend: Local<state::Proxy>,
    pub(crate) open: Open,
}

/// The connections of one worker that requests share.
pub(crate) struct Carriers {
    all: ConnectionList<Engine, Http2>,
    /// How busy the worker has to be for connections to end that glitch too often, in percent.
    busy_from: u8,
}

impl Carriers {
    /// None yet.
    pub(crate) fn new(busy_from: u8) -> Rc<Self> {
        Rc::new(Self { all: ConnectionList::default(), busy_from })
    }

    /// A connection that has room for a request, if there is one that this may use.
    #[inline]
    pub(crate) fn share(&self, server: &LocalServer, ask: PoolQuery<'_>) -> Option<BoxedRequest> {
        self.all.share(server, ask).map(H2Request::begin)
    }

    /// Makes a connection of a socket on which HTTP/2 is spoken; its first request comes back.
    pub(crate) fn begin(
        self: &Rc<Self>,
        opened: OpenedConnection,
        backend: Local<state::Proxy>,
        config: &Arc<::h2::Config>,
    ) -> BoxedRequest {
        let OpenedConnection { socket, preamble, key, ends, for_one, open } = opened;
        let engine = Engine::new(Role::Client, config);
        let reader = Reader::default();
        let standing =
            Standing { socket, engine, reader, is_settled: false, uses: 0, key, ends, backend, open };
        let (shared, request) = self.start(standing, preamble, H2Request::begin);
        shared.is_leaving.set(for_one);
        shared.counters().connections_total.add(1);
        request
    }

    /// Takes in a connection that a client brought: requests find it from now on.
    pub(crate) fn attach(self: &Rc<Self>, standing: Standing) {
        let (shared, ()) = self.start(standing, Vec::new(), drop);
        shared.counters().connections_total.add(1);
    }

    /// Takes in a connection of another worker, for a request to begin with.
    pub(crate) fn take_in(
        self: &Rc<Self>,
        handed: H2Transfer,
        key: &[u8],
        backend: Local<state::Proxy>,
        server: &Rc<LocalServer>,
    ) -> BoxedRequest {
        let H2Transfer { stream, engine, is_settled, uses, ends, open } = handed;
        // Nothing waits in it to be sent.
        let engine = engine.repacked().unwrap_or_else(|| unreachable!("it was repacked before"));
        let standing = Standing {
            socket: Socket::attach(stream),
            engine,
            reader: Reader::default(),
            is_settled,
            uses,
            key: key.into(),
            ends,
            backend,
            open: open.take(server),
        };
        self.start(standing, Vec::new(), H2Request::begin).1
    }

    /// Has a connection that is idle, and that this may use, given away; nothing where there is none.
    pub(crate) fn hand_over(&self, server: &LocalServer, ask: PoolQuery<'_>, give: Give) {
        if let Some(one) = self.all.find(server, ask, Multiplexed::is_idle) {
            *one.own.leaves_to.borrow_mut() = Some(give);
            one.connection.touch();
        }
    }

    /// Has the connections to a server end that are idle, and tells those that are not.
    pub(crate) fn look(&self, server: &LocalServer) {
        self.all.look(server);
    }

    fn start<T>(
        self: &Rc<Self>,
        standing: Standing,
        preamble: Vec<u8>,
        begin: impl FnOnce(Rc<Multiplexed>) -> T,
    ) -> (Rc<Multiplexed>, T) {
        let Standing { socket, engine, reader, is_settled, uses, key, ends, backend, mut open } = standing;
        open.source = TraceSource::H2;
        let own = Http2 {
            is_settled: Cell::new(is_settled),
            unsettled: RefCell::default(),
            backend,
            leaves_to: RefCell::default(),
        };
        let shared = Carrier::new((&socket, engine), uses, key, ends, open, own);
        shared.counters().connections.up();
        self.all.add(&shared);
        // Before the task begins: a connection that is to serve a request is not idle.
        let begun = begin(shared.clone());
        tokio::task::spawn_local(run(self.clone(), shared.clone(), socket, preamble, reader));
        (shared, begun)
    }
}

/// How many reads a connection takes before others of the worker have their turn.
const TURNS: usize = 16;

/// Why a connection ends.
enum End {
    Socket,
    Protocol,
    Agreed,
    /// Another worker has it.
    Left,
}

/// Serves the socket of a connection until it ends.
async fn run(
    all: Rc<Carriers>,
    shared: Rc<Multiplexed>,
    mut socket: Socket,
    mut preamble: Vec<u8>,
    mut reader: Reader,
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
                return Poll::Ready(End::Socket);
            }
            if trace::is_on(TraceSource::H2) {
                tell_frames(&shared);
            }
            // What was sent made room for those that wait.
            shared.connection.wake_writable();
            if !received {
                break;
            }
            if reader.is_fresh() || turn == TURNS {
                // Others of the worker have their turn too.
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
                return Poll::Ready(End::Socket);
            }
            if send(&shared.connection, &mut socket, &mut preamble, context).is_err() {
                return Poll::Ready(End::Socket);
            }
        }
        if shared.own.leaves_to.borrow().is_some() {
            if may_leave(&shared, &reader, &preamble) {
                return Poll::Ready(End::Left);
            }
            // Who asked does not wait for this one.
            shared.own.leaves_to.take();
        }
        if !shared.is_idle() {
            idle.end(&shared.open.server);
            return Poll::Pending;
        }
        idle.poll(&shared, &all.all, context).map(|()| End::Agreed)
    })
    .await;
    shared.is_leaving.set(true);
    shared.counters().connections.down();
    idle.end(&shared.open.server);
    shared.own.unsettled.take().iter().for_each(Waker::wake_by_ref);
    if matches!(end, End::Left) {
        return leave(shared, socket);
    }
    shared.connection.put_end_of_all();
    if matches!(end, End::Protocol | End::Agreed) {
        // GOAWAY, if there is one; a socket that takes nothing does without.
        poll_fn(|context| {
            let _ = send(&shared.connection, &mut socket, &mut preamble, context);
            Poll::Ready(())
        })
        .await;
    }
    socket.close();
}

/// Tells of the frames that came and were made.
#[cold]
fn tell_frames(shared: &Multiplexed) {
    let Multiplexed { connection, open, .. } = shared;
    let server = &open.server.state;
    let keys = points::of_server(server, connection.descriptor as u64 + 1);
    let frames = connection.engine.borrow_mut().take_frames();
    points::frames(&keys, frames, &|out| {
        let _ = write!(out, "server={}", server.name);
    });
}

/// Whether nothing is outstanding on it, in either direction.
fn may_leave(shared: &Rc<Multiplexed>, reader: &Reader, preamble: &[u8]) -> bool {
    let is_quiet = reader.is_empty() && preamble.is_empty() && !shared.is_leaving.get();
    is_quiet
        && Rc::strong_count(shared) == 1
        && shared.is_idle()
        && shared.connection.engine.borrow().pending() == 0
}

/// Gives it away.
fn leave(shared: Rc<Multiplexed>, socket: Socket) {
    let Some(give) = shared.own.leaves_to.take() else { return };
    let config = shared.connection.engine.borrow().config();
    let engine = shared.connection.engine.replace(Engine::new(Role::Client, &config));
    let (is_settled, uses, ends) = (shared.own.is_settled.get(), shared.uses.get(), shared.ends);
    let (Some(engine), Some(shared)) = (engine.repacked(), Rc::into_inner(shared)) else { return };
    let open = shared.open.hand_over();
    give(H2Transfer { stream: socket.detach(), engine, is_settled, uses, ends, open });
}

/// Reads once, and puts what came where it belongs; whether there was anything.
fn receive(
    shared: &Multiplexed,
    socket: &mut Socket,
    reader: &mut Reader,
    busy_from: u8,
    context: &mut Context<'_>,
) -> Result<bool, End> {
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
            shared.own.is_settled.set(true);
            shared.own.unsettled.take().iter().for_each(Waker::wake_by_ref);
        }
        // Servers open no streams, and write to no logs.
        Notice::Refused | Notice::Message => {}
    });
    connection.count(shared.counters());
    match taken {
        Ok(Received::Nothing) => Ok(false),
        Ok(Received::Bytes) => Ok(true),
        Ok(Received::End) | Err(DriverFailure::Socket) => Err(End::Socket),
        Err(DriverFailure::Protocol) => Err(End::Protocol),
    }
}
