//! Connects to the chosen server over an idle connection, if the request may use one, or over a new one.

use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use net::{Stream, Target, socks4};
use plan::fcgi::App;
use plan::proxy::Reuse;
use plan::quic::QmuxUse;
use plan::server::{SendProxy, UseSource, Ws};
use plan::{Proxy, ServerSettings};
use runtime::timer::{NEVER, now_ms, now_us};
use sample::transaction::TimeoutSlot;
use sample::{ConnectionError, Endpoint, Env};
use state::sessions::Activity;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::view;
use crate::fault::Fault;
use crate::flow::Socket;
use crate::log::LogLine;
use crate::routing::assign::Lease;
use crate::routing::connect_wait::reach;
use crate::routing::send_proxy::proxy_header;
use crate::routing::server_target::{place, socket_options, target};
use crate::routing::takeover::{has_idle_elsewhere, take_over};
use crate::routing::{connect_error, connect_qmux, connect_quic, server_tls};
use crate::server::h1::Connection;
use crate::server::per_worker::LocalServer;
use crate::server::pool::PoolQuery;
use crate::server::shared::OpenedConnection;
use crate::server::{self, ClientId, Open, SharedRequest, Upstream};
use crate::worker::Worker;

/// The log level for the output of applications.
const ERR: u8 = 3;

/// Returns a connection for this request.
pub(crate) async fn obtain(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    lease: &Lease,
) -> Result<Upstream, Fault> {
    match idle(client, x, backend, lease) {
        Some(upstream) => Ok(upstream),
        None => Box::pin(establish(client, x, backend, lease)).await,
    }
}

/// Takes an idle connection of this worker. This is the usual case, and creates no future.
#[inline(always)]
pub(crate) fn idle(client: &Client, x: &mut Exchange, backend: &Proxy, lease: &Lease) -> Option<Upstream> {
    let settings = lease.server();
    if !may_reuse(x, settings) {
        return None;
    }
    let key = pool_key(client, x, settings);
    let ask = ask(client, backend, settings, &key);
    let mut upstream = match client.worker.carriers.share(settings, ask) {
        Some(request) => Upstream::Stream(SharedRequest::H2(request)),
        None if settings.quic.is_some() => {
            Upstream::Stream(SharedRequest::H3(client.worker.quic_carriers.share(settings, ask)?))
        }
        None if settings.qmux != QmuxUse::Never
            && let Some(request) = client.worker.qmux_carriers.share(settings, ask) =>
        {
            Upstream::Stream(SharedRequest::Qmux(request))
        }
        None if settings.speaks_fcgi => {
            Upstream::Stream(SharedRequest::Fcgi(client.worker.applications.share(settings, ask)?))
        }
        None => Upstream::Socket(reuse(client, settings, ask)?),
    };
    begin_again(x, backend, settings, &mut upstream);
    Some(upstream)
}

/// Takes an idle connection of another worker, or opens a new one.
pub(crate) async fn establish(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    lease: &Lease,
) -> Result<Upstream, Fault> {
    let settings = lease.server();
    let key = pool_key(client, x, settings);
    if may_reuse(x, settings) && !settings.speaks_fcgi {
        let ask = ask(client, backend, settings, &key);
        if has_idle_elsewhere(&client.worker, settings, ask)
            && let Some(mut upstream) = take_over(&client.worker, settings, ask, true).await
        {
            begin_again(x, backend, settings, &mut upstream);
            return Ok(upstream);
        }
    }
    if settings.is_reverse {
        return Err(Fault::NoConnection);
    }
    let opened = match settings.quic {
        Some(_) => connect_quic::open(client, x, backend, settings, key).await,
        None => open(client, x, backend, settings, key).await,
    };
    if backend.reuse == Reuse::Never
        && let Ok(Upstream::Stream(request)) = &opened
    {
        client.private.borrow_mut().get_or_insert_default().reserve(
            &request.connection(),
            ClientId::of(&client.link),
            client.frontend.max_private_connections(),
        );
    }
    opened
}

/// Whether the request may use an idle connection.
#[inline]
fn may_reuse(x: &Exchange, settings: &LocalServer) -> bool {
    x.txn.is_http && (!x.choice.fresh || settings.is_reverse)
}

/// Returns the query for idle connections.
#[inline]
fn ask<'a>(client: &Client, backend: &Proxy, settings: &LocalServer, key: &'a [u8]) -> PoolQuery<'a> {
    // Connections that clients provide are not reserved for particular requests.
    let first = is_first(client, backend) && !settings.is_reverse;
    PoolQuery { key, reuse: backend.reuse, first, client: Some(ClientId::of(&client.link)) }
}

/// Prepares a connection that is reused for this request.
#[inline]
fn begin_again(x: &mut Exchange, backend: &Proxy, settings: &LocalServer, upstream: &mut Upstream) {
    upstream.begin_again();
    settings.state.counters.mine().reuses.add(1);
    backend.state.backend.mine().reuses.add(1);
    // Deadlines start here, so the clock must be read again after a retry. Otherwise, the earlier reading is accurate enough.
    x.txn.times.connected = if x.txn.retries == 0 { x.txn.times.queued } else { now_us() };
}

fn reuse(client: &Client, server: &LocalServer, ask: PoolQuery<'_>) -> Option<Box<Connection>> {
    let private =
        client.private.borrow_mut().as_deref_mut().and_then(|private| private.take(server, ask.key));
    if private.is_some() {
        return private;
    }
    client.worker.pools.take(server, ask)
}

/// Whether the request is the first on its client's connection, so that only the client could resend it if the server has closed
/// the connection. False if `retry-on` allows Weir to resend it anyway.
fn is_first(client: &Client, backend: &Proxy) -> bool {
    let on = &backend.retry_on;
    client.session.requests.get() <= 1 && !(on.conn_failure && on.empty_response && on.response_timeout)
}

/// Returns the key that distinguishes the connections to this server in the pool.
pub(crate) fn pool_key(client: &Client, x: &Exchange, settings: &ServerSettings) -> Box<[u8]> {
    if settings.is_reverse {
        // Connections that clients provide differ only in their name.
        let name = match &settings.pool_conn_name {
            Some(name) => {
                let mut text = Vec::new();
                view::with(client, x, |env: &Env<'_>| name.eval_into(env, &mut text));
                text
            }
            None => server_tls::server_name(client, x, settings).unwrap_or_default(),
        };
        return name.into();
    }
    let foreign = settings.source.as_ref().map(|source| &source.transparent);
    let by_source = settings.send_proxy != SendProxy::None
        || !matches!(foreign, None | Some(UseSource::No | UseSource::Fixed(_)));
    let by_destination = settings.send_proxy != SendProxy::None
        || x.choice.address.is_some()
        || settings.state.port_offset().is_some()
        || settings.state.is_unspecified();
    // A connection name on the `server` line replaces the name that is sent to the server (manual, 5.2 `pool-conn-name`).
    let name = match settings.pool_conn_name {
        Some(_) => None,
        None => server_tls::server_name(client, x, settings),
    };
    // Upgrades may use a different protocol than other requests, so they have separate connections.
    let apart = x.txn.request.has_upgrade()
        && (settings.ws != Ws::Auto || settings.tls.as_ref().is_some_and(|tls| tls.of_upgrades.is_some()));
    let marked = x.txn.server_tos.is_some() || x.txn.server_mark.is_some();
    if !by_source
        && !by_destination
        && !marked
        && !apart
        && name.is_none()
        && settings.pool_conn_name.is_none()
    {
        return Box::default();
    }
    let mut key = Vec::new();
    if by_source {
        key.extend_from_slice(format!("{:?}", x.source(client)).as_bytes());
    }
    if by_destination {
        key.extend_from_slice(format!("{:?}{:?}", x.destination(client), x.choice.address).as_bytes());
    }
    if settings.send_proxy != SendProxy::None {
        // The additional fields of the header may differ between requests.
        key.extend_from_slice(&proxy_header(client, x, settings));
    }
    if marked {
        key.extend_from_slice(format!("{:?}{:?}", x.txn.server_tos, x.txn.server_mark).as_bytes());
    }
    if apart {
        key.push(2);
    }
    if let Some(name) = name {
        key.push(1);
        key.extend_from_slice(&name);
    }
    if let Some(name) = &settings.pool_conn_name {
        key.push(0);
        view::with(client, x, |env: &Env<'_>| name.eval_into(env, &mut key));
    }
    key.into()
}

/// Opens a connection that several requests will share. The caller starts the protocol on it.
pub(crate) async fn open_shared(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    settings: &Rc<LocalServer>,
    key: Box<[u8]>,
) -> Result<OpenedConnection, Fault> {
    let stands = Box::pin(open_socket(client, x, backend, settings)).await?;
    let for_one = backend.reuse == Reuse::Never;
    Ok(OpenedConnection { for_one, ..shared(x, stands, key) })
}

/// Prepares an established connection for sharing. The frames of many requests follow each other, so a frame must not wait until
/// the previous one is acknowledged.
fn shared(x: &mut Exchange, (socket, ends, open): OpenedSocket, key: Box<[u8]>) -> OpenedConnection {
    socket.set_nodelay();
    let preamble = std::mem::take(&mut x.choice.preamble);
    OpenedConnection { socket, preamble, key, ends, for_one: false, open }
}

/// A socket, its two endpoints, and its slot in the count of open connections.
type OpenedSocket = (Stream, Option<(Endpoint, Endpoint)>, Open);

/// Opens a socket, with TLS if configured. The bytes that must be sent first remain in the exchange's preamble.
async fn open_socket(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    settings: &Rc<LocalServer>,
) -> Result<OpenedSocket, Fault> {
    // Read before the address: if the address changes between the two reads, the connection counts as outdated, never wrongly as
    // current.
    let moves = settings.state.moves();
    let target = target(client, x, settings).ok_or(Fault::ConnectFailed(ConnectionError::SOCKET))?;
    let mut opened = place(client, settings).await?;
    opened.moves = moves;
    x.txn.server_target = Some(match &target {
        Target::Ip(theirs) => Endpoint::Ip(*theirs),
        _ => Endpoint::Local,
    });
    settings.state.counters.mine().connects.add(1);
    backend.state.backend.mine().connects.add(1);
    let allowed = x.timeout(TimeoutSlot::Connect, backend.timeouts.connect);
    // In HTTP mode, a request is ready to be sent, and its packet can carry the acknowledgement.
    let late_ack = backend.options.tcp_smart_connect.unwrap_or(x.txn.is_http);
    let watch = client.aborts_on_close(backend);
    let mut stream = match settings.socks4 {
        None => dial(client, x, settings, &target, allowed, late_ack, watch).await,
        Some(proxy) => through(client, x, settings, proxy, &target, allowed, watch).await,
    }?;
    set_options(&stream, backend);
    x.choice.preamble = proxy_header(client, x, settings);
    if let Some(tls) = settings.speaks_tls() {
        let name = server_tls::server_name(client, x, settings);
        let preamble = std::mem::take(&mut x.choice.preamble);
        // The transport parameters of QMux are not available before the handshake.
        let early = settings.qmux == QmuxUse::Never && server_tls::may_be_early(client, x, backend, tls);
        let sent = (name.as_deref(), &*preamble, early);
        let upgrades = tls.of_upgrades.as_ref().filter(|_| x.txn.request.has_upgrade());
        let connector = upgrades.unwrap_or(&tls.connector);
        if let Err(fault) = server_tls::begin(client, x, &mut stream, connector, sent, watch).await {
            x.txn.server_tls = stream.tls().map(|session| session.details().clone());
            return Err(fault);
        }
        x.choice.is_early = stream.is_early();
    }
    x.txn.times.connected = now_us();
    let asked = client.worker.shared.plan.variables.wants_backend_source();
    let ours = if asked { stream.local().map_or(Endpoint::Local, Endpoint::Ip) } else { Endpoint::Local };
    let ends = Some(match target {
        Target::Ip(theirs) => (ours, Endpoint::Ip(theirs)),
        _ => (Endpoint::Local, Endpoint::Local),
    });
    Ok((stream, ends, opened))
}

async fn open(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    settings: &Rc<LocalServer>,
    key: Box<[u8]>,
) -> Result<Upstream, Fault> {
    let (stream, ends, opened) = open_socket(client, x, backend, settings).await?;
    let agreed =
        |name: &[u8]| stream.tls().is_some_and(|session| session.details().alpn.as_deref() == Some(name));
    let (spoken, qmux) = match (settings.ws, x.txn.request.has_upgrade()) {
        (Ws::Http1, true) => (false, QmuxUse::Never),
        (Ws::Http2, true) => (true, QmuxUse::Never),
        _ => (settings.speaks_h2, settings.qmux),
    };
    let is_qmux = qmux == QmuxUse::Always || (qmux == QmuxUse::Negotiated && agreed(b"h3"));
    if x.txn.is_http && is_qmux {
        let watch = client.aborts_on_close(backend);
        let opened = shared(x, (stream, ends, opened), key);
        return connect_qmux::begin(client, x, opened, watch).await;
    }
    let is_h2 = x.txn.is_http && (spoken || agreed(b"h2"));
    if settings.speaks_fcgi || is_h2 {
        let opened = shared(x, (stream, ends, opened), key);
        return begin_shared(client, x, backend, opened, settings.speaks_fcgi);
    }
    Ok(Upstream::Socket(Box::new(Connection {
        socket: Socket::new(stream),
        key,
        uses: 1,
        glitches: 0,
        private: false,
        ends,
        late_nodelay: may_wait(x, settings),
        open: opened,
    })))
}

/// Creates a shared connection, and the first request on it.
fn begin_shared(
    client: &Client,
    x: &Exchange,
    backend: &Proxy,
    opened: OpenedConnection,
    is_fcgi: bool,
) -> Result<Upstream, Fault> {
    let worker = &client.worker;
    let prepared = worker.proxy(backend.index);
    if !is_fcgi {
        let held = worker.local(backend.index).held.clone();
        let request = worker.carriers.begin(opened, held, &prepared.h2.back);
        return Ok(Upstream::Stream(SharedRequest::H2(request)));
    }
    // The configuration guarantees that both exist.
    let Some(app) = backend.fcgi.as_ref().filter(|_| x.txn.is_http) else { return Err(Fault::Internal) };
    let config = fcgi_config(app, prepared.response_options.clone());
    let request = worker.applications.begin(opened, config, error_logger(worker, app));
    Ok(Upstream::Stream(SharedRequest::Fcgi(request)))
}

/// Returns the connection settings of an application.
fn fcgi_config(app: &App, head: http::ParseOptions) -> fcgi::Config {
    fcgi::Config {
        keeps: app.keeps,
        multiplexes: app.multiplexes,
        most: app.most,
        asks: app.asks,
        wants_messages: !app.loggers.is_empty(),
        head,
    }
}

/// Returns a callback that logs the error output of an application (`log-stderr`).
fn error_logger(worker: &Rc<Worker>, app: &Arc<App>) -> server::fcgi::ErrorLog {
    let (worker, app) = (worker.clone(), app.clone());
    Box::new(move |text| {
        // As in HAProxy, each message is one line, with control characters replaced.
        let text: Vec<u8> =
            text.iter().map(|byte| if byte.is_ascii_control() { b'.' } else { *byte }).collect();
        let line = LogLine::own(ERR, app.name.as_bytes(), &text);
        worker.outbox.borrow_mut().send_all(&worker.shared, &app.loggers, &line);
    })
}

/// Applies the backend's options to an established connection.
pub(crate) fn set_options(stream: &Stream, backend: &Proxy) {
    let options = &backend.options;
    if options.srvtcpka {
        let probe = options.tcp_keepalive_server;
        stream.set_keepalive(probe.count, probe.idle, probe.interval);
    }
    if options.nolinger_backend {
        stream.reset_on_close();
    }
}

/// Connects through a SOCKS4 proxy. All steps together may take at most `allowed`.
async fn through(
    client: &mut Client,
    x: &mut Exchange,
    settings: &ServerSettings,
    proxy: SocketAddr,
    target: &Target,
    allowed: Option<Duration>,
    watch: bool,
) -> Result<Stream, Fault> {
    // SOCKS4 supports only IPv4.
    let Target::Ip(SocketAddr::V4(wanted)) = target else {
        return Err(Fault::ConnectFailed(ConnectionError::NO_PROTOCOL));
    };
    let mut stream = dial(client, x, settings, &Target::Ip(proxy), allowed, false, watch).await?;
    let mut handshake = socks4::Handshake::new(*wanted);
    reach(client, x, watch, |context| handshake.poll(context, &mut stream).map_err(connect_error::by_socks4))
        .await?;
    Ok(stream)
}

/// Connects within `allowed`. If the client is watched (`option abortonclose`), the attempt ends when the client leaves.
async fn dial(
    client: &mut Client,
    x: &mut Exchange,
    settings: &ServerSettings,
    target: &Target,
    allowed: Option<Duration>,
    late_ack: bool,
    watch: bool,
) -> Result<Stream, Fault> {
    let worker = client.worker.clone();
    let mut dial = socket_options(client, x, (&worker.shared.plan.global.tune).into(), settings, target);
    dial.fast_open = settings.tfo;
    dial.late_ack = late_ack;
    dial.late_nodelay = may_wait(x, settings);
    x.choice.connect_by = allowed.map_or(NEVER, |allowed| now_ms() + allowed.as_millis() as u64);
    client.entry.activity.set(Activity::Connecting);
    let mut connecting = pin!(dial.connect(target));
    let step = |context: &mut Context<'_>| {
        connecting.as_mut().poll(context).map_err(|error| connect_error::by_kernel(&error))
    };
    reach(client, x, watch, step).await
}

/// Whether a small write may wait for acknowledgements until another one follows. This is harmless for most requests: they are a
/// single write, and most clients that open a connection per request use it only once.
fn may_wait(x: &Exchange, settings: &ServerSettings) -> bool {
    x.txn.is_http && settings.socks4.is_none()
}
