//! One HTTP request from its first byte to its log line: read [`serve`] from top to bottom.

use std::rc::Rc;

use runtime::Boxed;
use runtime::timer::now_us;
use sample::track::Event;
use sample::{Cause, Hedged, LogOrigin, Phase};
use state::sessions::Activity;

use super::{cached, hedge, reply, tunnel};
use crate::client::Client;
use crate::evaluate::{self, cacheable};
use crate::exchange::{Arrival, Exchange, Next, Stop, Upgrade, ending, finish, report, sockets, trace};
use crate::fault::Fault;
use crate::message::{caching, conclude, download, fastcgi, fields, request, response, upload};
use crate::observe;
use crate::routing::assign::{self, Lease};
use crate::routing::attempt::{self, count_attempt, count_failure, note_server};
use crate::routing::{connect, cookie, retry, route, stick};
use crate::server::Upstream;
use crate::server::local::{LocalProxy, LocalServer};

/// Serves one request of `client`. The connection comes back with what to do next.
pub(crate) async fn exchange(mut client: Boxed<Client>, arrival: Arrival) -> (Boxed<Client>, Next) {
    let (mut x, arrival) = match arrival {
        Arrival::Upgraded(stream) => (stream, Arrival::Ready),
        Arrival::Stream(x) => (x, Arrival::Received),
        arrival => (Exchange::take(), arrival),
    };
    x.txn.is_http = true;
    x.phase = Phase::Request;
    // Of the first request the handshakes before it are told too (`%Th`).
    let is_first = client.idle_from == client.session.ready_us.get();
    x.txn.times.idle_from = if is_first { client.session.accepted_us } else { client.idle_from };
    client.entry.requests.set(client.session.requests.get() + 1);
    let next = match serve(&mut client, &mut x, arrival).await {
        Ok(next) => next,
        Err(stop) => {
            let stop = if x.caching.is_some() { cached::instead_of(&mut client, &mut x, stop) } else { stop };
            observe::stopped(&client, &x, stop);
            sockets::forget(&client, &mut x);
            ending::note(&client, &mut x, stop);
            Box::pin(reply::after(&mut client, &mut x, stop)).await
        }
    };
    let mut next = next;
    if client.side.is_early() {
        // The next request, or our end of the connection, comes behind the end of the handshake.
        match Box::pin(client.settle()).await {
            true if next == Next::Close => client.side.finish(),
            true => {}
            false => next = Next::Close,
        }
    }
    x.txn.ending.client_closed = next == Next::Close;
    if x.txn.client_stream.is_some() {
        // Whether it was reset is known only now.
        x.txn.client_stream = client.side.stream_facts();
    }
    observe::over(&client, &x);
    finish::finish(&mut client, &mut x);
    client.idle_from = x.txn.times.closed;
    let next = match next {
        // The request is over, counted and logged.
        Next::Drain if Box::pin(reply::drain(&mut client, &mut x)).await => {
            client.idle_from = now_us();
            Next::KeepAlive
        }
        Next::Drain => Next::Close,
        next => next,
    };
    x.give();
    if next == Next::Linger {
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
    trace::begin(x, &client.frontend);
    let backend = match (x.upgrade, x.backend.clone()) {
        (Upgrade::ByBackend, Some(backend)) => backend,
        _ => {
            if let Err(stop) = evaluate::of_frontend(client, x).await {
                let frontend = client.frontend.clone();
                return Err(denied(client, x, &frontend, stop));
            }
            route::choose(client, x)?
        }
    };
    trace::backend(x, &client.frontend, &backend);
    if let Err(stop) = evaluate::of_backend(client, x, &backend).await {
        return Err(denied(client, x, &backend, stop));
    }
    upload::prepare(client, x, &backend).await?;
    if x.request_body.is_cut {
        return Err(Fault::ClientCut.into());
    }
    if x.request_body.is_late {
        return Err(Fault::ClientTimeout.into());
    }
    fields::of_request(client, x, &backend)?;
    if let Some(app) = &backend.fcgi {
        Box::pin(upload::hold_for_application(client, x, &backend)).await?;
        fastcgi::of_request(client, x, app);
    }
    route::bind_server(client, x, &backend);
    cookie::of_request(client, x, &backend);
    stick::of_request(client, x, &backend);
    x.choice.hash = route::hash(client, x, &backend);
    trace::forwards_request(x);
    x.txn.req_vars.clear();
    let (mut upstream, lease) = obtain_response(client, x, &backend).await?;
    note_status(client, x);
    if x.caching.is_some() && caching::helps(x) {
        upstream.reset();
        return Err(Stop::Cached);
    }
    stick::of_response(client, x, &backend, lease.server());
    evaluate::of_response(client, x, &backend, &mut upstream).await?;
    if backend.options.checkcache {
        cacheable::check(client, x, &backend)?;
    }
    cookie::of_response(client, x, &backend, &lease);
    evaluate::after_response(client, x, &upstream).await?;
    fields::of_response(client, x)?;
    trace::forwards_response(x);
    observe::answer(client, x);
    report::early(client, x, LogOrigin::Response);
    if x.is_tunnel {
        upstream.send_at_once();
        client.entry.activity.set(Activity::Tunnel);
        Box::pin(tunnel::upgrade(client, x, &backend, &mut upstream)).await?;
        sockets::leave(client, x);
        return Ok(Next::Close);
    }
    client.entry.activity.set(Activity::Data);
    download::forward(client, x, &backend, &mut upstream).await?;
    if x.caching.is_some() {
        caching::complete(x);
    }
    let next = conclude::after_response(client, x, &backend, upstream, lease);
    if next == Next::Close && !x.upload.is_finished() {
        return Ok(Next::Linger);
    }
    Ok(next)
}

/// Counts what the status says of the client or of the server, in what the request tracks.
fn note_status(client: &Client, x: &Exchange) {
    let counted = &client.worker.shared.process.counted;
    if counted.errors.holds(x.txn.server_status) {
        x.note(client, Event::Error);
    }
    if counted.failures.holds(x.txn.server_status) {
        x.note(client, Event::Failure);
    }
}

/// Logs tell of the cookie of a request that rules of `proxy` denied; of others that got no further
/// they do not.
fn denied(client: &Client, x: &mut Exchange, proxy: &LocalProxy, stop: Stop) -> Stop {
    if stop == Stop::Reply && x.txn.termination.cause == Cause::Proxy {
        cookie::of_denied(client, x, proxy);
    }
    stop
}

/// Sends the request to a server and waits for the head of its final response; tries again where
/// that is allowed (`retries`, `retry-on`, `option redispatch`).
async fn obtain_response(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
) -> Result<(Upstream, Lease), Stop> {
    let retries = retry::most(x, backend);
    let mut avoid: Option<Rc<LocalServer>> = None;
    let mut kept: Option<Lease> = None;
    loop {
        x.phase = Phase::Queue;
        let mut lease = match kept.take() {
            Some(lease) => lease,
            None => assign::assign(client, x, backend, avoid.as_deref()).await?,
        };
        note_server(client, x, &lease, backend, avoid.as_deref());
        count_attempt(x, &lease);
        if let Some(prefix) = &lease.server().redirect {
            to_server_itself(x, prefix)?;
        }
        x.phase = Phase::Connect;
        let fault = loop {
            match attempt(client, x, backend, &mut lease).await {
                Ok(upstream) => {
                    lease.answered(attempt::answer(x.txn.server_status));
                    return Ok((upstream, lease));
                }
                Err((fault, true))
                    if retry::is_stale(x, fault) && !(lease.server().is_reverse && x.choice.fresh) =>
                {
                    // The server closed an idle connection just as we used it: not its fault, nor a
                    // retry.
                    x.choice.fresh = true;
                    x.txn.response.clear();
                    upload::rewind(client, x);
                }
                Err((fault, _)) => break fault,
            }
        };
        observe::attempt_failed(client, x, fault);
        // What broke a connection that stood was noted when it did.
        if !matches!(
            fault,
            Fault::EmptyResponse | Fault::Unprocessed | Fault::ResponseCut | Fault::SendFailed
        ) {
            x.txn.server_error = fault.connection_error();
        }
        let last = x.txn.retries >= retries
            || !retry::may_retry(x, backend, fault)
            || !retry::is_affordable(x, backend);
        count_failure(backend, &lease, fault, last);
        if last {
            return Err(fault.into());
        }
        x.txn.response.clear();
        x.txn.times.response = 0;
        upload::rewind(client, x);
        (kept, avoid) = retry::before_retry(client, x, backend, lease, fault).await?.parts();
        if avoid.is_some() {
            // Time lost to a server that was left counts as waiting for one (manual, 8.4), to the
            // same as connecting.
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
    x.txn.termination.set(Cause::Local, Phase::Connect);
    Err(Stop::Reply)
}

async fn attempt(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
    lease: &mut Lease,
) -> Result<Upstream, (Fault, bool)> {
    let mut upstream = connect::obtain(client, x, backend, lease).await.map_err(|fault| (fault, false))?;
    let reused = upstream.uses() > 1;
    sockets::take(client, x, &upstream);
    report::step(client, x, LogOrigin::Connect);
    x.phase = Phase::Headers;
    client.entry.activity.set(Activity::Response);
    observe::reached(client, x, &upstream);
    upload::start(client, x, backend, &mut upstream);
    if !x.upload.is_one_write() {
        upstream.send_at_once();
    }
    let outcome = match &backend.balance.hedge {
        None => response::await_head(client, x, backend, &mut upstream).await,
        Some(own) => Box::pin(hedge::await_head(client, x, backend, (&mut upstream, lease), own)).await,
    };
    match outcome {
        Ok(()) => {
            observe::response(client, x, &upstream);
            Ok(upstream)
        }
        Err(fault) => {
            // Something is outstanding, which its server need not finish.
            upstream.reset();
            x.txn.server_stream = upstream.stream_facts();
            sockets::leave(client, x);
            // Half a head came back: that is no stale connection.
            let nothing_came = upstream.received().is_empty();
            Err((fault, reused && nothing_came && x.txn.hedged == Hedged::No))
        }
    }
}
