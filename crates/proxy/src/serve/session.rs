//! A connection from accept to close: first the `tcp-request connection` rules, the headers from a proxy in front of this one
//! ([`handshake`]) and the `tcp-request session` rules, then requests one after the other (HTTP) or one stream (TCP).
//!
//! An idle keep-alive connection waits in this module, in a future without a buffer; the future of a request in progress is in a
//! reused box (`boxes`).

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::Stream;
use plan::bind::{Bind, BindAddress};
use plan::quic::QmuxUse;
use rules::Spoken;
use runtime::pools::{self, Pool};
use runtime::profile;
use runtime::shared::Shared as _;
use runtime::timer::now_us;
use runtime::usage::Measured;
use runtime::watchdog;
use state::Mode;
use state::sessions::Activity;
use tokio::task::coop;

use crate::client::{Client, ClientConnection, Downstream, handshake};
use crate::evaluate::{self, Attach};
use crate::exchange::{Arrival, Next, Upgrade, faults, trace};
use crate::flow::Socket;
use crate::serve::cache::revalidate;
use crate::serve::exchange_pool::{Exchanges, ServeExchange, task_of};
use crate::serve::handoff::{AcceptedConnection, Dialled, Incoming, ServeFn};
use crate::serve::log::forward;
use crate::serve::opening::{
    ConnectionRefused, accept_session, count_connection, count_refused_connection, count_session,
    follow_rules, is_plain, new_connection,
};
use crate::serve::reverse::accept;
use crate::serve::{datagrams, multiplexed, peer, preface, quic};
use crate::worker::Worker;

/// Returns the function with which this worker starts to serve each new connection.
pub(crate) fn starter() -> ServeFn {
    let exchanges = Rc::new(Exchanges::new(super::http::exchange));
    revalidate::install(|client, arrival| {
        Box::pin(async move {
            super::http::exchange(client, arrival).await;
        })
    });
    pools::register({
        let exchanges = exchanges.clone();
        move || exchanges.pool()
    });
    pools::register({
        let exchanges = exchanges.clone();
        move || exchanges.stream_pool()
    });
    let index = runtime::current_worker();
    pools::register(move || {
        let allocated = runtime::worker::connections(index);
        Pool { name: "connection", size: size_of::<Client>(), allocated, free: 0 }
    });
    Box::new(move |worker, incoming| {
        let exchanges = exchanges.clone();
        match incoming {
            Incoming::Socket(newcomer) => {
                tokio::task::spawn_local(run(begin(worker, newcomer), exchanges));
            }
            Incoming::Dialled(dialled) => {
                tokio::task::spawn_local(reversed(worker, dialled, exchanges));
            }
            Incoming::Quic(newcomer) => {
                tokio::task::spawn_local(quic::run(worker, newcomer, exchanges));
            }
            Incoming::Datagrams(datagrams) => {
                tokio::task::spawn_local(datagrams::process(worker, datagrams));
            }
        }
    })
}

/// Creates the connection from the descriptor.
fn begin(worker: Rc<Worker>, newcomer: AcceptedConnection) -> ClientConnection {
    let frontend = worker.local(newcomer.frontend);
    let bind = &frontend.binds[newcomer.bind];
    let is_tcp = newcomer.peer.is_some();
    count_connection(&worker, &frontend, bind, newcomer.accepted_us / 1000);
    let stream = Stream::from_fd(newcomer.socket, is_tcp);
    // If a socket is bound to one address, the destination is known. The kernel must be queried only for wildcard addresses.
    let destination = match &bind.address {
        BindAddress::Ip(address) if !address.ip().is_unspecified() && !bind.transparent => Some(*address),
        _ if is_tcp => stream.local(),
        _ => None,
    };
    set_options(&stream, &frontend, is_tcp);
    let ends = [newcomer.peer, destination];
    let of = (newcomer.frontend, newcomer.bind);
    let side = Downstream::Socket(Socket::new(stream));
    new_connection(worker, of, side, ends, newcomer.accepted_us, newcomer.load, newcomer.tls_place)
}

/// Applies the frontend's options to a client's socket.
fn set_options(stream: &Stream, frontend: &plan::Proxy, is_tcp: bool) {
    let options = &frontend.options;
    if options.clitcpka && is_tcp {
        let probe = options.tcp_keepalive_client;
        stream.set_keepalive(probe.count, probe.idle, probe.interval);
    }
    if options.tcp_smart_accept == Some(true) {
        // The acknowledgement of the request is sent with the response.
        stream.set_quickack(false);
    }
    if options.nolinger_frontend {
        stream.reset_on_close();
    }
}

/// Serves a connection that this process opened to receive requests (`bind rhttp@`).
async fn reversed<S: ServeExchange>(worker: Rc<Worker>, dialled: Box<Dialled>, exchanges: Rc<Exchanges<S>>) {
    let Dialled { socket, connection, reader, frontend, bind, load, slot: _slot, .. } = *dialled;
    let proxy = worker.local(frontend);
    let (line, now_us) = (&proxy.binds[bind], now_us());
    // Such connections are not queued: above the limits, they are closed.
    let process = &worker.shared.process;
    let limit = process.maxconn.load(Relaxed);
    if process.connections.take_below(if limit == 0 { u32::MAX } else { limit }).is_err() {
        return;
    }
    if !proxy.state.try_connect() {
        process.connections.sub(1);
        return;
    }
    line.listener.connections.add(1);
    count_connection(&worker, &proxy, line, now_us / 1000);
    set_options(&socket, &proxy, socket.peer().is_some());
    let ends = [socket.peer(), socket.local()];
    let details = socket.tls().map(|session| session.details().clone());
    let side = Downstream::Socket(Socket::new(socket));
    let mut root = new_connection(worker, (frontend, bind), side, ends, now_us, load, None);
    if let Some(details) = details {
        root.session.set_tls(details);
    }
    if is_plain(&root) || Box::pin(follow_rules(&mut root)).await {
        count_session(&root);
        Box::pin(multiplexed::go_on(root, exchanges, connection, reader)).await;
    }
}

/// Serves a connection until its end.
// The size of this future is the memory cost of every idle connection: 256 bytes including the runtime's overhead, or 384, which
// with their alignment are 512.
#[allow(clippy::manual_async_fn, reason = "it would hold its arguments twice")]
fn run<S: ServeExchange>(
    mut connection: ClientConnection,
    exchanges: Rc<Exchanges<S>>,
) -> impl Future<Output = ()> {
    async move {
        trace::events::session_begins(&connection);
        let starts_at_once =
            is_plain(&connection) && !connection.frontend.binds.iter().any(Bind::begins_with_a_handshake);
        let mut leaves_to = None;
        if !starts_at_once {
            match Box::pin(open(&mut connection)).await {
                Ok(attach) => leaves_to = attach,
                Err(ConnectionRefused) => {
                    trace::events::session_fails(&connection);
                    return;
                }
            }
        }
        count_session(&connection);
        // Boxed, so that the future of an idle HTTP/1 connection needs no room for the other kinds.
        match kind(&connection, leaves_to) {
            ConnectionKind::Reversed(attach) => return Box::pin(accept::attach(connection, *attach)).await,
            ConnectionKind::LogForward => return Box::pin(forward::stream(connection)).await,
            ConnectionKind::Peer => return Box::pin(peer::serve(connection)).await,
            ConnectionKind::Tcp => match Box::pin(stream(connection, &exchanges)).await {
                After::Http(back) => connection = back,
                After::Multiplexed(back) => return Box::pin(multiplexed::serve(back, exchanges)).await,
                After::End => return,
            },
            ConnectionKind::Http2 => return Box::pin(multiplexed::serve(connection, exchanges)).await,
            ConnectionKind::Qmux => return Box::pin(multiplexed::serve_qmux(connection, exchanges)).await,
            ConnectionKind::Http1 => {}
            ConnectionKind::Unserved => return,
            ConnectionKind::Irreversible => return connection.side.reset(),
        }
        trace::events::speaks_h1(&connection);
        loop {
            connection.entry.activity.set(Activity::Waiting);
            connection.entry.active_ms.set(connection.idle_from / 1000);
            connection.entry.forget_request_line();
            let Some(arrival) = wait_for_request(&mut connection).await else { return };
            let arrival = match arrival {
                Arrival::Ready if connection.session.requests.get() == 0 => {
                    match preface::look(&mut connection).await {
                        Some(arrival) => arrival,
                        None => return Box::pin(multiplexed::serve(connection, exchanges)).await,
                    }
                }
                arrival => arrival,
            };
            connection.entry.activity.set(Activity::Request);
            if matches!(arrival, Arrival::Expired) && connection.session.requests.get() > 0 {
                return;
            }
            let (back, next) = exchanges.run(connection, arrival).await;
            connection = back;
            if next == Next::Close {
                return;
            }
            connection.side.release();
        }
    }
}

/// The protocol of a connection, determined once the connection is ready.
enum ConnectionKind {
    /// HTTP/1, or HTTP/2 if the client begins with its preface.
    Http1,
    /// HTTP/2, negotiated in TLS or set by the bind line.
    Http2,
    /// HTTP/3 over QMux, negotiated in TLS or set by the bind line.
    Qmux,
    /// TCP, which may become HTTP.
    Tcp,
    /// A peer of a `peers` section.
    Peer,
    /// A source of log messages (`log-forward`).
    LogForward,
    /// HTTP/2 with requests that the client serves (`attach-srv`).
    Reversed(Box<Attach>),
    /// A connection that a rule attaches (`attach-srv`) but that is not HTTP/2, so it cannot be reversed.
    Irreversible,
    /// A connection to a frontend for agents, which serves no clients.
    Unserved,
}

/// Returns the kind of `connection`. `leaves_to` is the server to which a rule attaches it.
fn kind(connection: &ClientConnection, leaves_to: Option<Box<Attach>>) -> ConnectionKind {
    let frontend = &connection.frontend;
    match leaves_to {
        Some(attach) if speaks_h2(connection) => return ConnectionKind::Reversed(attach),
        // The preface is not checked for these connections.
        Some(_) => return ConnectionKind::Irreversible,
        None if frontend.log_forward.is_some() => return ConnectionKind::LogForward,
        None if frontend.peers.is_some() => return ConnectionKind::Peer,
        None => {}
    }
    match frontend.mode {
        Mode::Http if speaks_qmux(connection) => ConnectionKind::Qmux,
        Mode::Http if speaks_h2(connection) => ConnectionKind::Http2,
        Mode::Http => ConnectionKind::Http1,
        Mode::Tcp | Mode::Log => ConnectionKind::Tcp,
        Mode::Spop | Mode::Udp => ConnectionKind::Unserved,
    }
}

/// How a connection that began as a TCP stream continues.
enum After {
    /// The connection has ended.
    End,
    /// The connection was upgraded to HTTP and stays open for further requests.
    Http(ClientConnection),
    /// The connection was upgraded to HTTP/2.
    Multiplexed(ClientConnection),
}

/// Serves a TCP stream, and the first request if it is upgraded to HTTP.
async fn stream<S: ServeExchange>(connection: ClientConnection, exchanges: &Exchanges<S>) -> After {
    let measured = profile::measures();
    let mut measure = Measured::new("relay");
    let task = task_of(&connection);
    let mut stream = Box::pin(crate::serve::tcp::relay(connection.into_client()));
    let upgraded = poll_fn(|context| {
        watchdog::during(task, || match measured {
            true => measure.poll(context, |context| stream.as_mut().poll(context)),
            false => stream.as_mut().poll(context),
        })
    })
    .await;
    let Some((client, stream)) = upgraded else { return After::End };
    let mut connection = ClientConnection::of_client(client);
    let spoken = match stream.upgrade {
        Upgrade::ByRule(spoken) => spoken,
        Upgrade::None | Upgrade::ByBackend => Spoken::Found,
    };
    let multiplexed = match spoken {
        Spoken::Http1 => false,
        Spoken::Http2 => true,
        Spoken::Found => preface::look(&mut connection).await.is_none(),
    };
    if multiplexed {
        // There was no TCP stream.
        stream.give();
        return After::Multiplexed(connection);
    }
    if matches!(stream.upgrade, Upgrade::ByRule(_)) {
        connection.frontend.state.frontend.mine().switched.add(1);
    }
    let (mut back, next) = exchanges.run(connection, Arrival::Upgraded(stream)).await;
    back.side.release();
    if next == Next::Close { After::End } else { After::Http(back) }
}

/// Whether the client uses HTTP/2 from the start, because the listener requires it or because TLS negotiated it.
fn speaks_h2(connection: &ClientConnection) -> bool {
    let is_spoken = |bind: &Bind| bind.speaks_h2;
    connection.frontend.mode == Mode::Http
        && (connection.session.tls().is_some_and(|details| details.alpn.as_deref() == Some(b"h2"))
            || handshake::bind(connection).is_some_and(is_spoken))
}

/// Whether the client uses HTTP/3 over QMux, because the listener requires it or because TLS negotiated it over TCP.
fn speaks_qmux(connection: &ClientConnection) -> bool {
    match handshake::bind(connection).map_or(QmuxUse::Never, |bind| bind.qmux) {
        QmuxUse::Never => false,
        QmuxUse::Negotiated => {
            connection.session.tls().is_some_and(|details| details.alpn.as_deref() == Some(b"h3"))
        }
        QmuxUse::Always => true,
    }
}

/// How long a connection must be idle before it frees the memory of its TLS keys. They are prepared again for the next record,
/// which takes less than a microsecond.
const REST: Duration = Duration::from_secs(1);

/// Waits for the first byte of the next request without holding a buffer. Returns `None` if the connection must end.
fn wait_for_request(connection: &mut ClientConnection) -> impl Future<Output = Option<Arrival>> {
    connection.follow_plan();
    let is_here = !connection.side.is_drained();
    let is_first = connection.session.requests.get() == 0;
    let (mut is_armed, mut rests_first) = (false, connection.side.tls().is_some());
    poll_fn(move |context: &mut Context<'_>| {
        if is_here {
            // Pipelined requests rarely poll the socket. Without this, a client that keeps sending them would monopolize the
            // worker.
            return coop::poll_proceed(context).map(|turn| {
                turn.made_progress();
                Some(Arrival::Ready)
            });
        }
        connection.follow_plan();
        // A new client usually sends first, and its data has often already arrived.
        let came = is_first && !is_armed && connection.poll_fill(context).is_ready();
        connection.side.release();
        if came || connection.side.poll_arrival(context).is_ready() {
            return Poll::Ready(Some(Arrival::Ready));
        }
        if connection.poll_killed(context).is_ready() {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut is_armed, true) {
            let allowed = allowed_wait(connection, is_first);
            rests_first &= allowed.is_none_or(|allowed| allowed > REST);
            let until = if rests_first { Some(REST) } else { allowed };
            // The last request ended in this turn, so the time of its end is accurate enough.
            connection.timer.set_after(connection.idle_from / 1000, until);
        }
        connection.limit_rest();
        ready!(connection.timer.poll_expired(context));
        if std::mem::take(&mut rests_first) {
            connection.side.rest();
            connection.timer.set_after(connection.idle_from / 1000, allowed_wait(connection, is_first));
            connection.limit_rest();
            ready!(connection.timer.poll_expired(context));
        }
        Poll::Ready(Some(Arrival::Expired))
    })
}

/// Returns how long a connection may wait for its next request.
fn allowed_wait(connection: &ClientConnection, is_first: bool) -> Option<Duration> {
    let timeouts = &connection.frontend.timeouts;
    match is_first {
        true => timeouts.http_request.or(timeouts.client),
        false => timeouts.http_keep_alive.or(timeouts.http_request).or(timeouts.client),
    }
}

/// Performs the steps before the first request: the `tcp-request connection` rules, the headers of proxies, and the `tcp-request
/// session` rules. Returns the server to which a rule attaches the connection, if any.
async fn open(connection: &mut ClientConnection) -> Result<Option<Box<Attach>>, ConnectionRefused> {
    let Ok(expected) = evaluate::tcp_connection(connection).await else {
        count_refused_connection(connection);
        return Err(ConnectionRefused);
    };
    let received = handshake::receive(connection, expected).await;
    trace::events::client_tls(connection, received.err());
    if let Err(why) = received {
        connection.session.error.set(why);
        if !handshake::is_silent(why) {
            faults::note_connection(connection, why);
        }
        if !handshake::is_silent(why) || !connection.frontend.options.dontlognull {
            let text = connection.session.tls().and_then(|details| handshake::failure_text(details));
            crate::exchange::report::session_error(connection, text.as_deref().unwrap_or(why.message()));
        }
        return Err(ConnectionRefused);
    }
    if connection.session.tls().is_some_and(|details| details.is_challenge) {
        // The client that validates the domain has seen the certificate, and sends no request (RFC 8737, 3).
        connection.side.finish();
        return Err(ConnectionRefused);
    }
    connection.session.ready_us.set(now_us());
    connection.idle_from = connection.session.ready_us.get();
    accept_session(connection).await
}
