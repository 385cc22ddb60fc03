//! Sends a request to a server and receives the head of the response, with as many attempts as `retries`, `retry-on` and `option
//! redispatch` allow. Called by `http`, and by `mirror` for copies.

use std::rc::Rc;

use base::event_counter;
use base::event_counter::EventCounter;
use runtime::timer::now_us;
use sample::track::CountedEvent;
use sample::{Cause, Hedged, LogOrigin, Phase};
use state::sessions::Activity;

use super::hedge;
use crate::client::Client;
use crate::exchange::{Exchange, Stop, attributes, report, sockets, trace, tracing};
use crate::fault::Fault;
use crate::message::{response, upload};
use crate::routing::assign::{self, Assigned, Lease};
use crate::routing::attempt::{self, count_attempt, count_failure, note_server};
use crate::routing::{connect, retry};
use crate::server::Upstream;
use crate::server::per_worker::{LocalProxy, LocalServer};

pub(crate) static CLOSED_MEANWHILE: EventCounter =
    event_counter!(Count, "obtain_response()", "server closed an idle connection just as a request was sent");

/// Sends the request to a server and waits for the head of its final response. Retries if allowed (`retries`, `retry-on`, `option
/// redispatch`). `ASIDE` creates a separate copy of this code for rare callers, so that the usual copy stays inlined.
pub(super) async fn obtain_response<const ASIDE: bool>(
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
            None => match assign::at_once(client, x, backend, avoid.as_deref())? {
                Assigned::Place(lease) => lease,
                Assigned::Wait(server) => {
                    Box::pin(assign::wait(client, x, backend, server, avoid.as_deref())).await?
                }
            },
        };
        note_server(client, x, &lease, backend, avoid.as_deref());
        count_attempt(x, &lease);
        tracing::attempt(x, lease.server());
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
                    // The server closed an idle connection just when it was used. This is neither the server's fault nor a retry.
                    CLOSED_MEANWHILE.note();
                    x.choice.fresh = true;
                    x.txn.response.clear();
                    upload::rewind(client, x);
                }
                Err((fault, _)) => break fault,
            }
        };
        trace::events::attempt_failed(client, x, fault);
        tracing::attempt_failed(x, fault);
        // Errors on established connections were recorded when they occurred.
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
        attributes::attempt_failed(client, x, &lease.server().held, fault);
        x.txn.response.clear();
        x.txn.times.response = 0;
        upload::rewind(client, x);
        (kept, avoid) = retry::before_retry(client, x, backend, lease, fault).await?.parts();
        if avoid.is_some() {
            // Time lost on a failed server counts as time spent waiting for a server (manual, 8.4), up to the same connect time.
            x.txn.times.queued = now_us();
        }
    }
}

/// Counts the status as a client error or a server failure, in the table entries that the request tracks.
pub(super) fn note_status(client: &Client, x: &Exchange) {
    let counted = &client.worker.shared.process.counted;
    if counted.errors.holds(x.txn.server_status) {
        x.note(client, CountedEvent::Error);
    }
    if counted.failures.holds(x.txn.server_status) {
        x.note(client, CountedEvent::Failure);
    }
}

/// `redir` of a server: redirects the client to the server itself, for GET and HEAD.
fn to_server_itself(x: &mut Exchange, prefix: &[u8]) -> Result<(), Stop> {
    if !matches!(x.txn.request.method_id(), http::Method::Get | http::Method::Head) {
        return Ok(());
    }
    let Some(path) = http::uri::split(x.txn.request.target()).pathq() else {
        return Err(Fault::BadRequest(http::ErrorKind::Target).into());
    };
    let location = [prefix, path].concat();
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
    let mut upstream = match connect::idle(client, x, backend, lease) {
        Some(upstream) => upstream,
        None => {
            let established = Box::pin(connect::establish(client, x, backend, lease)).await;
            established.map_err(|fault| (fault, false))?
        }
    };
    let reused = upstream.uses() > 1;
    sockets::take(client, x, &upstream);
    report::step(client, x, LogOrigin::Connect);
    x.phase = Phase::Headers;
    client.entry.activity.set(Activity::Response);
    trace::events::reached(client, x, &upstream);
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
            trace::events::response(client, x, &upstream);
            Ok(upstream)
        }
        Err(fault) => {
            if fault == Fault::ResponseTimeout {
                upstream.note_timeout();
            }
            // The request is still outstanding, and the server need not finish it.
            upstream.reset();
            x.txn.server_stream = upstream.stream_facts();
            sockets::leave(client, x);
            // If part of a head arrived, the connection was not stale.
            let nothing_came = upstream.received().is_empty();
            Err((fault, reused && nothing_came && x.txn.hedged == Hedged::No))
        }
    }
}
