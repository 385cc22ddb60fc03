//! Serves one TCP stream from its first byte to its log line.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use http::BodyLength;
use runtime::Boxed;
use runtime::timer::{now_ms, now_us};
use sample::transaction::TimeoutSlot;
use sample::{LogOrigin, Phase};
use state::sessions::Activity;
use state::{AttemptOutcome, Mode};

use crate::client::{Client, Presence};
use crate::evaluate;
use crate::exchange::ending;
use crate::exchange::finish;
use crate::exchange::report;
use crate::exchange::sockets;
use crate::exchange::trace;
use crate::exchange::tracing;
use crate::exchange::{Exchange, Stop, Upgrade};
use crate::fault::Fault;
use crate::flow::Path;
use crate::message::lua;
use crate::routing::assign::{self, Lease};
use crate::routing::attempt;
use crate::routing::{connect, retry, route, stick};
use crate::serve::lua::service;
use crate::serve::tunnel;
use crate::server::Upstream;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// Serves a TCP connection until it ends. If the stream is upgraded to HTTP, it is returned with its connection.
pub(crate) async fn relay(mut client: Boxed<Client>) -> Option<(Boxed<Client>, Box<Exchange>)> {
    let mut x = Exchange::take();
    x.phase = Phase::Request;
    client.session.requests.set(1);
    x.txn.id = client.worker.stream_id();
    let times = &mut x.txn.times;
    times.idle_from = client.session.accepted_us;
    times.started = client.session.accepted_us;
    times.started_wall = client.session.accepted_wall_us;
    times.request = now_us();
    let served = serve(&mut client, &mut x).await;
    x.txn.look_away();
    if let Err(stop) = served {
        trace::events::stopped(&client, &x, stop);
        sockets::forget(&client, &mut x);
        ending::note(&client, &mut x, stop);
        match stop {
            Stop::Fault(fault) => {
                let (cause, phase) = fault.termination(x.phase);
                x.txn.termination.set(cause, phase);
                count(&client, &x, fault);
            }
            Stop::Upgrade(upgrade) if may_upgrade(&client) => {
                x.upgrade = upgrade;
                if x.filtering.is_some() {
                    // The stream continues as another kind.
                    lua::steps::end(&client, &mut x);
                }
                let timeouts = &client.frontend.timeouts;
                client.timer.set_after(now_ms(), timeouts.http_request.or(timeouts.client));
                client.session.requests.set(0);
                client.idle_from = client.session.ready_us.get();
                return Some((client, x));
            }
            Stop::Upgrade(_) => x.txn.termination.set(sample::Cause::Proxy, Phase::Request),
            Stop::Script => Box::pin(service::relay(&mut client, &mut x)).await,
            Stop::Reply | Stop::Cached | Stop::Close | Stop::Silent => {}
        }
    }
    x.txn.times.closed = now_us();
    if x.phase != Phase::Data {
        discard(&client, &mut x);
    }
    x.txn.ending.client_closed = true;
    if x.filtering.is_some() {
        lua::steps::end(&client, &mut x);
    }
    trace::events::over(&client, &x);
    finish::finish(&mut client, &mut x);
    x.give();
    None
}

/// Whether the listener allows upgrades to HTTP (`proto none` does not).
fn may_upgrade(client: &Client) -> bool {
    let own = &client.session.listener;
    let mut binds = client.frontend.binds.iter();
    !binds.any(|bind| bind.stays_raw && std::ptr::eq(&*bind.listener, &**own))
}

async fn serve(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    trace::events::tcp_begins(client, x);
    report::accepted(client, x);
    trace::filter::begin(x, &client.frontend);
    if client.frontend.trace_to.is_some() {
        tracing::begin(client, x);
    }
    if client.frontend.script_filters.is_some() {
        let frontend = client.frontend.clone();
        Box::pin(lua::steps::begin(client, x, &frontend)).await?;
    }
    if !client.frontend.engines.is_empty() {
        evaluate::spoe::begin(client, x).await?;
    }
    evaluate::of_tcp_frontend(client, x).await?;
    if client.frontend.options.dontlognull && !has_bytes(client) && client.frontend.tcp_request.is_empty() {
        // Whether the client ever sends anything is known only at the end (see `finish`).
        x.phase = Phase::Request;
    }
    x.txn.times.request = now_us();
    let backend = route::choose(client, x)?;
    if backend.mode == Mode::Http {
        return Err(Stop::Upgrade(Upgrade::ByBackend));
    }
    trace::filter::backend(x, &client.frontend, &backend);
    if backend.script_filters.is_some() && backend.index != client.frontend.index {
        Box::pin(lua::steps::begin(client, x, &backend)).await?;
    }
    evaluate::spoe::join(client, x, &backend);
    evaluate::of_tcp_backend(client, x, &backend).await?;
    if x.request_body.is_cut {
        return Err(Fault::RequestAborted.into());
    }
    if x.request_body.is_late {
        return Err(Fault::RequestTimeout.into());
    }
    if !backend.tcp_request.is_empty() {
        // The time spent in the stream's rules also counts as waiting for a server.
        x.txn.times.request = now_us();
    }
    crate::exchange::unique_id::make(client, x);
    route::bind_server(client, x, &backend);
    stick::of_request(client, x, &backend);
    x.choice.hash = route::hash(client, x, &backend);
    trace::filter::forwards_request(x);
    x.txn.req_vars.clear();
    let (mut upstream, lease) = reach(client, x, &backend).await?;
    x.phase = Phase::Data;
    client.entry.activity.set(Activity::Tunnel);
    x.upload.start(BodyLength::UntilClose, Path::Verbatim);
    x.download.start(BodyLength::UntilClose, Path::Verbatim);
    if x.filtering.is_some() {
        Box::pin(lua::steps::begin_response(client, x)).await?;
        lua::body::begin_stream(x);
    }
    x.upload.staged.append(&mut x.choice.preamble);
    if let Some(scripting) = &mut x.scripting {
        x.upload.staged.append(&mut scripting.forwarded);
    }
    report::early(client, x, LogOrigin::Connect);
    if let Err(stop) = evaluate::of_tcp_response(client, x, &backend, &mut upstream).await {
        x.txn.bytes_in += x.upload.received;
        x.txn.bytes_out += upstream.received().len() as u64;
        return Err(stop);
    }
    stick::of_stream(client, x, &backend, lease.server(), &upstream);
    if x.response_body.is_broken && upstream.received().is_empty() {
        return Err(Fault::Truncated.into());
    }
    let limits = tunnel::TunnelTimeouts::new(client, x, &backend, true);
    let outcome = tunnel::run(client, x, &mut upstream, limits).await;
    sockets::leave(client, x);
    drop(lease);
    outcome.map_err(Stop::from)
}

fn has_bytes(client: &Client) -> bool {
    !client.side.is_drained()
}

/// Whether the client was silent for `timeout client` while rules waited for it. As in HAProxy, this is a timeout. Other limits
/// apply to a client that never sent anything.
async fn was_silent(client: &mut Client, x: &Exchange) -> bool {
    let heard = x.request_body.heard_ms;
    let here = poll_fn(|context| Poll::Ready(client.poll_presence(context))).await == Presence::Here;
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    here && heard > 0
        && allowed.is_some_and(|allowed| now_ms().saturating_sub(heard) >= allowed.as_millis() as u64)
}

/// Connects to a server. Retries if allowed.
async fn reach(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Rc<LocalProxy>,
) -> Result<(Upstream, Lease), Stop> {
    let retries = x.txn.max_retries.unwrap_or(backend.retries);
    let mut avoid: Option<Rc<LocalServer>> = None;
    let mut kept: Option<Lease> = None;
    loop {
        x.phase = Phase::Queue;
        let lease = match kept.take() {
            Some(lease) => lease,
            None => assign::assign(client, x, backend, avoid.as_deref()).await?,
        };
        attempt::note_server(client, x, &lease, backend, avoid.as_deref());
        x.phase = Phase::Connect;
        attempt::count_attempt(x, &lease);
        tracing::attempt(x, lease.server());
        let fault = match connect::obtain(client, x, backend, &lease).await {
            Ok(upstream) => {
                sockets::take(client, x, &upstream);
                trace::events::reached(client, x, &upstream);
                attempt::observe(lease.server(), Ok(()));
                lease.answered(AttemptOutcome::Good);
                return Ok((upstream, lease));
            }
            Err(fault) => fault,
        };
        trace::events::attempt_failed(client, x, fault);
        tracing::attempt_failed(x, fault);
        x.txn.server_error = fault.connection_error();
        let last =
            x.txn.retries >= retries || fault.retry_kind().is_none() || !retry::is_affordable(x, backend);
        attempt::count_failure(backend, &lease, fault, last);
        if last {
            let blames_client = fault.retry_kind().is_some() && was_silent(client, x).await;
            return Err(if blames_client { Fault::ClientTimeout } else { fault }.into());
        }
        (kept, avoid) = retry::before_retry(client, x, backend, lease, fault).await?.parts();
        if avoid.is_some() {
            // Time lost on a failed server counts as time spent waiting for a server (manual, 8.4).
            x.txn.times.queued = now_us();
        }
    }
}

fn count(client: &Client, x: &Exchange, fault: Fault) {
    if matches!(fault, Fault::RequestAborted | Fault::RequestTimeout) {
        client.count(|traffic| traffic.request_errors.add(1));
    }
    let Some(backend) = &x.backend else { return };
    let server = x.txn.server.as_ref().map(|server| server.counters.mine());
    for counters in [Some(backend.state.backend.mine()), server].into_iter().flatten() {
        match fault {
            // A client that leaves while it is queued, or while Weir connects, has not aborted a transfer.
            Fault::ClientAborted if matches!(x.phase, Phase::Queue | Phase::Connect) => {}
            Fault::ClientAborted
            | Fault::ClientReset
            | Fault::ClientTimeout
            | Fault::RequestAborted
            | Fault::RequestTimeout => counters.client_aborts.add(1),
            Fault::ServerTimeout => counters.server_aborts.add(1),
            Fault::Truncated => {
                counters.server_aborts.add(1);
                counters.response_errors.add(1);
            }
            _ => {}
        }
    }
    if matches!(fault, Fault::NoServer | Fault::QueueFull | Fault::QueueTimeout) {
        for counters in [Some(backend.state.backend.mine()), server].into_iter().flatten() {
            counters.connection_errors.add(1);
        }
    }
}

/// Discards the client's unread bytes, so that closing does not reset its connection.
fn discard(client: &Client, x: &mut Exchange) {
    x.txn.bytes_in += client.side.discard_received() as u64;
}
