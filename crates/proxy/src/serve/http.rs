//! Serves one HTTP request from its first byte to its log line; read [`serve`] from top to bottom.

use runtime::Boxed;
use runtime::timer::now_us;
use sample::{Cause, LogOrigin, Phase};
use state::sessions::Activity;

use super::obtain::{note_status, obtain_response};
use super::{features, haterm, reply, tunnel};
use crate::client::Client;
use crate::evaluate;
use crate::exchange::{Arrival, Exchange, Next, Stop, Upgrade, ending, finish, report, sockets};
use crate::fault::Fault;
use crate::message::{conclude, download, fastcgi, fields, request, upload};
use crate::routing::{cookie, route, stick};
use crate::serve::cache::checkcache;
use crate::server::per_worker::LocalProxy;

/// Serves one request of `client`. Returns the connection and what to do with it next.
pub(crate) async fn exchange(mut client: Boxed<Client>, arrival: Arrival) -> (Boxed<Client>, Next) {
    let (mut x, arrival) = match arrival {
        Arrival::Upgraded(stream) => (stream, Arrival::Ready),
        Arrival::Stream(x) => (x, Arrival::Received),
        arrival => (Exchange::take(), arrival),
    };
    x.txn.is_http = true;
    x.phase = Phase::Request;
    // The first request's times include the handshakes (`%Th`).
    let is_first = client.idle_from == client.session.ready_us.get();
    x.txn.times.idle_from = if is_first { client.session.accepted_us } else { client.idle_from };
    client.entry.requests.set(client.session.requests.get() + 1);
    let next = match serve(&mut client, &mut x, arrival).await {
        Ok(next) => next,
        Err(stop) => {
            let stop = features::stopped(&mut client, &mut x, stop);
            sockets::forget(&client, &mut x);
            ending::note(&client, &mut x, stop);
            Box::pin(reply::after(&mut client, &mut x, stop)).await
        }
    };
    let mut next = next;
    if client.side.is_early() {
        // Before the next request or the close, the handshake must be complete.
        match Box::pin(client.settle()).await {
            true if next == Next::Close => client.side.finish(),
            true => {}
            false => next = Next::Close,
        }
    }
    x.txn.ending.client_closed = next == Next::Close;
    if x.txn.client_stream.is_some() {
        // Only at this point is it known whether the stream was reset.
        x.txn.client_stream = client.side.stream_facts();
    }
    features::end(&client, &mut x);
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
    if let Some(rest) = features::begin(client, x) {
        rest.await?;
    }
    let backend = match (x.upgrade, x.backend.clone()) {
        (Upgrade::ByBackend, Some(backend)) => {
            x.note_request(client);
            backend
        }
        _ => {
            if let Err(stop) = evaluate::of_frontend(client, x).await {
                let frontend = client.frontend.clone();
                return Err(denied(client, x, &frontend, stop));
            }
            if client.side.is_cancelled() {
                return Err(Fault::ClientAborted.into());
            }
            if client.frontend.is_haterm {
                return Err(match haterm::answer(client, x) {
                    Some(stop) => stop,
                    None => Box::pin(haterm::answer_later(client, x)).await,
                });
            }
            route::choose(client, x)?
        }
    };
    if let Some(rest) = features::routed(client, x, &backend) {
        rest.await?;
    }
    if let Err(stop) = evaluate::of_backend(client, x, &backend).await {
        return Err(denied(client, x, &backend, stop));
    }
    upload::prepare(client, x, &backend).await?;
    x.request_body.check()?;
    if let Some(rest) = features::request_head(client, x) {
        rest.await?;
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
    features::before_connect(x);
    x.txn.req_vars.clear();
    let (mut upstream, mut lease) = obtain_response::<false>(client, x, &backend).await?;
    note_status(client, x);
    if x.caching.is_some() {
        (upstream, lease) = features::response(client, x, &backend, (upstream, lease)).await?;
    }
    stick::of_response(client, x, &backend, lease.server());
    if let Some(rest) = features::response_rules(client, x) {
        rest.await?;
    }
    evaluate::of_response(client, x, &backend, &mut upstream).await?;
    if backend.options.checkcache {
        checkcache::check(client, x, &backend)?;
    }
    cookie::of_response(client, x, &backend, &lease);
    evaluate::after_response(client, x, &upstream).await?;
    if let Some(rest) = features::response_head(client, x) {
        rest.await?;
    }
    fields::of_response(client, x)?;
    features::before_answer(client, x);
    report::early(client, x, LogOrigin::Response);
    if x.is_tunnel {
        upstream.send_at_once();
        client.entry.activity.set(Activity::Tunnel);
        Box::pin(tunnel::upgrade(client, x, &backend, &mut upstream)).await?;
        sockets::leave(client, x);
        return Ok(Next::Close);
    }
    client.entry.activity.set(Activity::Data);
    download::forward::<false>(client, x, &backend, &mut upstream).await?;
    features::body(x);
    let next = conclude::after_response(client, x, &backend, upstream, lease);
    if next == Next::Close && !x.upload.is_finished() {
        return Ok(Next::Linger);
    }
    Ok(next)
}

/// Adds the cookie to the log line of a request that rules of `proxy` denied. Log lines of other requests that failed early have
/// no cookie.
fn denied(client: &Client, x: &mut Exchange, proxy: &LocalProxy, stop: Stop) -> Stop {
    if stop == Stop::Reply && x.txn.termination.cause == Cause::Proxy {
        cookie::of_denied(client, x, proxy);
    }
    stop
}
