//! One HTTP request from its first byte to its log line: read [`serve`] from top to bottom.

use state::server::Trouble;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::BodyLength;
use net::splice::Pipe;
use plan::Proxy;
use plan::server::{Observe, ServerSettings};
use runtime::timer::now_us;
use sample::transaction::TimeoutSlot;
use sample::{Endpoint, LogOrigin, Phase, Transaction};
use state::Answer;

use crate::assign::{self, Bound, Lease};
use crate::client::Client;
use crate::cookie;
use crate::fault::{Fault, RetryKind};
use crate::flow::{Flow, Stored};
use crate::server::Upstream;
use crate::server::local::{LocalProxy, LocalServer};
use crate::session::{Arrival, Next};
use crate::sockets::{self, ServerSocket};
use crate::{
    cacheable, conclude, connect, ending, evaluate, fields, finish, report, request, respond, response,
    retry, route, tunnel, upload,
};

/// What a request in progress needs beside its connection. Reused, so that a warm request allocates nothing.
#[derive(Default)]
pub(crate) struct Exchange {
    pub(crate) txn: Transaction,
    /// How far the stream came in TCP mode, if it began so.
    pub(crate) upgrade: Upgrade,
    /// From the client to the server.
    pub(crate) upload: Flow,
    /// From the server to the client.
    pub(crate) download: Flow,
    /// Pipes that the kernel moves bodies through, where the options ask for it.
    pub(crate) upload_pipe: Option<Pipe>,
    /// Likewise of the response.
    pub(crate) download_pipe: Option<Pipe>,
    pub(crate) backend: Option<Rc<LocalProxy>>,
    /// The body of the request as rules see it: buffered and decoded; empty unless something asked for it.
    pub(crate) body: Vec<u8>,
    /// Whether the client closed before all of it was there.
    pub(crate) cut_short: bool,
    /// Whether `body` is all of it.
    pub(crate) body_complete: bool,
    /// Likewise the beginning of a response's body.
    pub(crate) response_bytes: Vec<u8>,
    /// Bytes of the request's body that a retry sends again.
    pub(crate) replay: Vec<u8>,
    /// The body of an answer made here.
    pub(crate) reply: Stored,
    /// How the request's body ends, as it came: rules cannot change it.
    pub(crate) request_length: BodyLength,
    /// How the response's body ends, as the server sends it.
    pub(crate) response_length: BodyLength,
    /// Whether rules took the framing of the request's body away: it is read and not sent.
    pub(crate) drops_body: bool,
    /// Whether the server's answer makes a tunnel of both connections.
    pub(crate) is_tunnel: bool,
    /// What goes before the head on a new connection: the PROXY header.
    pub(crate) preamble: Vec<u8>,
    /// The hash of the key that `balance` asks for.
    pub(crate) hash: Option<u32>,
    /// What persistence asks for.
    pub(crate) bound: Option<Bound>,
    /// What the client's cookie said, for the response.
    pub(crate) cookie: cookie::Seen,
    /// The address to connect to instead of the server's (`dispatch`, `transparent`, `set-dst` with no server).
    pub(crate) server_address: Option<SocketAddr>,
    /// The connection to the server, for what asks the kernel about it.
    pub(crate) server_socket: ServerSocket,
    /// No idle connection, please: the last one was stale.
    pub(crate) fresh: bool,
    /// Where the request is, for the termination state.
    pub(crate) phase: Phase,
    /// Whether any byte of a final response was sent to the client.
    pub(crate) answered: bool,
    /// The error that the answer made here stands for, whatever its page says (`errorloc`, `errorfile`); 0 for none.
    pub(crate) error_status: u16,
    /// Whether the client's connection can take another request.
    pub(crate) keep_alive: bool,
    /// Time spent in queues, µs.
    pub(crate) waited_us: u64,
    /// Whether the client asked with HEAD, whatever rules made of it.
    pub(crate) head_only: bool,
    /// Whether the server said, before our own edits, that it closes.
    pub(crate) server_closes: bool,
    /// Whether rules said that the server's connection closes behind the response.
    pub(crate) closes_server: bool,
    /// Whether the client waits for a 100 that nobody has sent yet.
    pub(crate) expects_continue: bool,
    /// Bytes from and to the client that the counters have already.
    pub(crate) counted: (u64, u64),
}

/// How far a stream of TCP came before it became one of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Upgrade {
    /// It did not begin as one.
    #[default]
    None,
    /// A rule of the frontend's `tcp-request content` switched (`switch-mode`).
    ByRule,
    /// Its backend is one of HTTP, and is chosen.
    ByBackend,
}

/// How a step ends the usual course.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Something went wrong.
    Fault(Fault),
    /// The answer was made here and lies in the transaction's response and `reply_body`.
    Reply,
    /// The connection just ends.
    Close,
    /// The stream goes on in HTTP mode.
    Upgrade(Upgrade),
    /// The connection just ends, and no log line tells of it.
    Silent,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

thread_local! {
    // Boxed, so that handing one out moves a pointer.
    #[allow(clippy::vec_box)]
    static FREE: RefCell<Vec<Box<Exchange>>> = const { RefCell::new(Vec::new()) };
}

impl Exchange {
    /// One of the worker's, as new.
    pub(crate) fn take() -> Box<Self> {
        FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Gives it back for the next request.
    pub(crate) fn give(mut self: Box<Self>) {
        self.reset();
        FREE.with_borrow_mut(|free| free.push(self));
    }

    fn reset(&mut self) {
        self.txn.reset();
        self.upgrade = Upgrade::None;
        self.upload.start(BodyLength::None, Default::default());
        self.download.start(BodyLength::None, Default::default());
        self.upload_pipe = None;
        self.download_pipe = None;
        self.backend = None;
        for bytes in [&mut self.body, &mut self.response_bytes, &mut self.replay, &mut self.preamble] {
            bytes.clear();
        }
        self.reply.clear();
        self.request_length = BodyLength::None;
        self.response_length = BodyLength::None;
        self.drops_body = false;
        self.is_tunnel = false;
        self.body_complete = false;
        self.cut_short = false;
        self.hash = None;
        self.bound = None;
        self.cookie = cookie::Seen::default();
        self.server_address = None;
        self.server_socket = ServerSocket::None;
        self.fresh = false;
        self.phase = Phase::Request;
        self.answered = false;
        self.error_status = 0;
        self.keep_alive = false;
        self.waited_us = 0;
        self.head_only = false;
        self.server_closes = false;
        self.closes_server = false;
        self.expects_continue = false;
        self.counted = (0, 0);
    }

    /// The timeout of `slot`: what a rule set, or the configured one.
    pub(crate) fn timeout(&self, slot: TimeoutSlot, configured: Option<Duration>) -> Option<Duration> {
        match self.txn.timeouts[slot as usize] {
            Some(0) => None,
            Some(ms) => Some(Duration::from_millis(ms.into())),
            None => configured,
        }
    }

    /// The client's address as this request sees it.
    pub(crate) fn source(&self, client: &Client) -> Endpoint {
        self.txn.source.unwrap_or_else(|| client.session.source())
    }

    /// The address it was sent to, likewise.
    pub(crate) fn destination(&self, client: &Client) -> Endpoint {
        self.txn.destination.unwrap_or_else(|| client.session.destination())
    }

    /// What expressions see of the request's content.
    pub(crate) fn request_bytes<'a>(&'a self, client: &'a Client) -> &'a [u8] {
        if self.txn.is_http { &self.body } else { client.side.received() }
    }
}

/// Serves one request of `client`. The connection comes back with what to do next.
pub(crate) async fn exchange(mut client: Box<Client>, arrival: Arrival) -> (Box<Client>, Next) {
    let (mut x, arrival) = match arrival {
        Arrival::Upgraded(stream) => (stream, Arrival::Ready),
        arrival => (Exchange::take(), arrival),
    };
    x.txn.is_http = true;
    x.phase = Phase::Request;
    x.txn.times.idle_from = client.idle_from;
    client.entry.requests.set(client.session.requests.get() + 1);
    let next = match serve(&mut client, &mut x, arrival).await {
        Ok(next) => next,
        Err(stop) => {
            sockets::forget(&mut x);
            ending::note(&client, &mut x, stop);
            Box::pin(respond::after(&mut client, &mut x, stop)).await
        }
    };
    x.txn.ending.client_closed = next == Next::Close;
    finish::finish(&mut client, &mut x);
    client.idle_from = x.txn.times.closed;
    x.give();
    if next == Next::Linger {
        // The request is over, counted and logged.
        Box::pin(client.linger()).await;
        return (client, Next::Close);
    }
    (client, next)
}

async fn serve(client: &mut Client, x: &mut Exchange, arrival: Arrival) -> Result<Next, Stop> {
    request::receive(client, x, arrival).await?;
    if x.upgrade == Upgrade::None {
        report::accepted(client, x);
    }
    report::step(client, x, LogOrigin::Request);
    let backend = match (x.upgrade, x.backend.clone()) {
        (Upgrade::ByBackend, Some(backend)) => backend,
        _ => {
            evaluate::of_frontend(client, x).await?;
            route::choose(client, x)?
        }
    };
    evaluate::of_backend(client, x, &backend).await?;
    upload::prepare(client, x, &backend).await?;
    if x.cut_short {
        return Err(Fault::RequestAborted.into());
    }
    fields::of_request(client, x, &backend)?;
    route::bind_server(client, x, &backend);
    cookie::of_request(client, x, &backend);
    x.hash = route::hash(client, x, &backend);
    let (mut upstream, lease) = obtain_response(client, x, &backend).await?;
    evaluate::of_response(client, x, &backend, &mut upstream).await?;
    if backend.options.checkcache {
        cacheable::check(client, x, &backend)?;
    }
    cookie::of_response(client, x, &backend, &lease);
    fields::of_response(client, x)?;
    report::early(client, x, LogOrigin::Response);
    if x.is_tunnel {
        upstream.send_at_once();
        Box::pin(tunnel::upgrade(client, x, &backend, &mut upstream)).await?;
        sockets::leave(client, x);
        return Ok(Next::Close);
    }
    response::forward(client, x, &backend, &mut upstream).await?;
    let next = conclude::after_response(client, x, &backend, upstream, lease);
    if next == Next::Close && !x.upload.is_finished() {
        return Ok(Next::Linger);
    }
    Ok(next)
}

/// Sends the request to a server and waits for the head of its final response; tries again where that is
/// allowed (`retries`, `retry-on`, `option redispatch`).
async fn obtain_response(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
) -> Result<(Upstream, Lease), Stop> {
    let retries = retry::most(x, backend);
    let mut avoid: Option<Rc<LocalServer>> = None;
    loop {
        x.phase = Phase::Queue;
        let lease = assign::assign(client, x, backend, avoid.as_deref()).await?;
        note_server(client, x, &lease, backend, avoid.as_deref());
        if let Some(prefix) = &lease.server().redirect {
            to_server_itself(x, prefix)?;
        }
        x.phase = Phase::Connect;
        let fault = loop {
            match attempt(client, x, backend, &lease).await {
                Ok(upstream) => {
                    lease.answered(answer(x.txn.server_status));
                    return Ok((upstream, lease));
                }
                Err((fault, true)) if retry::is_stale(x, fault) => {
                    // The server closed an idle connection just as we used it: not its fault, nor a retry.
                    x.fresh = true;
                    x.txn.response.clear();
                    upload::rewind(client, x);
                }
                Err((fault, _)) => break fault,
            }
        };
        // What broke a connection that stood was noted when it did.
        if !matches!(fault, Fault::EmptyResponse | Fault::ResponseCut | Fault::SendFailed) {
            x.txn.server_error = fault.connection_error();
        }
        let last = x.txn.retries >= retries || !retry::may_retry(x, backend, fault);
        count_failure(backend, &lease, fault, last);
        if last {
            return Err(fault.into());
        }
        x.txn.response.clear();
        upload::rewind(client, x);
        avoid = retry::before_retry(client, x, backend, lease, fault).await?;
        if avoid.is_some() || fault.retry_kind() != Some(RetryKind::Connection) {
            // Time lost to a server that was left, or that had the request, counts as waiting for one (manual, 8.4).
            x.txn.times.queued = now_us();
        }
    }
}

/// `redir` of a server: GET and HEAD are sent to the server itself.
fn to_server_itself(x: &mut Exchange, prefix: &str) -> Result<(), Stop> {
    if !matches!(x.txn.request.method_id(), http::Method::Get | http::Method::Head) {
        return Ok(());
    }
    let Some(path) = http::uri::split(x.txn.request.target()).pathq() else {
        return Err(Fault::BadRequest(http::ErrorKind::Target).into());
    };
    let location = [prefix.as_bytes(), path].concat();
    let head = &mut x.txn.response;
    head.clear();
    head.start_response(302, None);
    head.append(b"cache-control", b"no-cache");
    head.append(b"location", &location);
    head.set_content_length(0);
    x.reply.bytes.clear();
    x.txn.termination.set(sample::Cause::Local, Phase::Connect);
    Err(Stop::Reply)
}

async fn attempt(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    lease: &Lease,
) -> Result<Upstream, (Fault, bool)> {
    count_attempt(x, lease);
    let mut upstream = connect::obtain(client, x, backend, lease).await.map_err(|fault| (fault, false))?;
    let reused = upstream.uses() > 1;
    sockets::take(x, &upstream);
    report::step(client, x, LogOrigin::Connect);
    x.phase = Phase::Headers;
    upload::start(client, x, backend, lease.server());
    if !x.upload.is_one_write() {
        upstream.send_at_once();
    }
    match response::await_head(client, x, backend, &mut upstream).await {
        Ok(()) => Ok(upstream),
        Err(fault) => {
            // Something is outstanding, which its server need not finish.
            upstream.reset();
            sockets::leave(client, x);
            // Half a head came back: that is no stale connection.
            let nothing_came = upstream.received().is_empty();
            Err((fault, reused && nothing_came))
        }
    }
}

/// Notes the server that was chosen, `instead` of another that had failed.
pub(crate) fn note_server(
    client: &Client,
    x: &mut Exchange,
    lease: &Lease,
    backend: &Proxy,
    instead: Option<&LocalServer>,
) {
    let server = lease.server();
    client.entry.set_server(&server.held);
    x.txn.server = Some(server.held.clone());
    match instead {
        None => {}
        // There was no other.
        Some(failed) if failed.is(server) => retry::count_retry(backend, failed),
        Some(failed) => {
            if x.cookie.names(failed) {
                // What its cookie asked for is down, for all that is known.
                x.txn.termination.cookie = b'D';
            }
            x.txn.redispatched = true;
            backend.state.backend.mine().redispatches.add(1);
            failed.state.counters.mine().redispatches.add(1);
        }
    }
}

/// Counts a session of the server: each attempt to reach it is one.
pub(crate) fn count_attempt(x: &Exchange, lease: &Lease) {
    let of_server = &lease.server().state.counters.mine().traffic;
    of_server.sessions_total.add(1);
    of_server.session_rate.tick(x.txn.times.queued / 1000);
}

/// What a status says of the server itself, as for `observe layer7`.
fn answer(status: u16) -> Answer {
    if matches!(status, 500..=599) && !matches!(status, 501 | 505) { Answer::Bad } else { Answer::Good }
}

/// Counts what went wrong with a server, where it is the `last` word on the request, and tells the one who watches it
/// (`observe`).
pub(crate) fn count_failure(backend: &Proxy, lease: &Lease, fault: Fault, last: bool) {
    let of_server = lease.server().state.counters.mine();
    let of_backend = backend.state.backend.mine();
    for counters in [of_backend, of_server].into_iter().filter(|_| last) {
        match fault {
            Fault::ConnectFailed(_) | Fault::ConnectTimeout | Fault::Resource(_) => {
                counters.connection_errors.add(1);
            }
            fault if fault.blames_server() => counters.response_errors.add(1),
            _ => {}
        }
    }
    let connected = match fault {
        Fault::ConnectFailed(_) | Fault::ConnectTimeout => false,
        fault if fault.blames_server() => true,
        _ => return,
    };
    lease.answered(Answer::Bad);
    match lease.server().observe {
        Observe::Layer4 if !connected => tell(lease.server(), Err(Trouble::Connection)),
        Observe::Layer7 => tell(lease.server(), Err(trouble(fault))),
        Observe::None | Observe::Layer4 => {}
    }
}

/// What the checks are told of a fault.
fn trouble(fault: Fault) -> Trouble {
    match fault {
        Fault::ConnectFailed(_) | Fault::ConnectTimeout => Trouble::Connection,
        Fault::ResponseTimeout | Fault::ServerTimeout => Trouble::Timeout,
        Fault::BadResponse(_) | Fault::ResponseCut | Fault::Truncated => Trouble::Head,
        Fault::BadResponseBody => Trouble::Body,
        _ => Trouble::Read,
    }
}

/// Tells the checks of `server` how a connection or an exchange with it went.
#[inline]
pub(crate) fn tell(server: &ServerSettings, seen: Result<(), Trouble>) {
    if server.observe != Observe::None {
        server.state.health.observe(seen, server.error_limit, server.on_error.demand());
    }
}
