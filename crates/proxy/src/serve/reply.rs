//! Sends generated responses: errors, and replies of rules. The connection stays open if that is safe.

use http::{BodyLength, Method};
use runtime::timer::{self, now_us};
use sample::track::CountedEvent;
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::answers::page;
use crate::client::{Client, Watch};
use crate::evaluate;
use crate::exchange::Next;
use crate::exchange::{Exchange, Stop, faults};
use crate::fault::Fault;
use crate::message::{compression, lua};

use super::cache::{answer, stream};
use super::lua::service;
use super::sending::{self, begin_reply, end_reply, pump};

/// Ends a request that did not complete normally: sends a response if none was sent, and records the reason.
pub(crate) async fn after(client: &mut Client, x: &mut Exchange, stop: Stop) -> Next {
    match stop {
        Stop::Silent => {
            x.txn.log_level = Some(None);
            Next::Close
        }
        // An upgrade does not end an HTTP request.
        Stop::Close | Stop::Upgrade(_) => Next::Close,
        Stop::Reply => {
            x.phase = Phase::Last;
            send(client, x).await
        }
        Stop::Script => match Box::pin(service::prepare(client, x)).await {
            Ok(()) => {
                x.phase = Phase::Last;
                send(client, x).await
            }
            Err(stop) => Box::pin(after(client, x, stop)).await,
        },
        Stop::Cached => match Box::pin(answer::prepare(client, x)).await {
            Ok(()) => {
                x.phase = Phase::Last;
                send(client, x).await
            }
            Err(stop) => Box::pin(after(client, x, stop)).await,
        },
        Stop::Fault(fault) => {
            let (cause, phase) = fault.termination(x.phase);
            x.txn.termination.set(cause, phase);
            count(client, x, fault);
            if matches!(
                fault,
                Fault::BadResponse(_) | Fault::ResponseCut | Fault::EmptyResponse | Fault::ResponseTimeout
            ) {
                x.note(client, CountedEvent::Failure);
            }
            if x.answered {
                // It is too late for an error page, and the client must not treat the response as complete. A reset shows this
                // even if the framing cannot. Tunnels end differently.
                if fault == Fault::Truncated && x.download.is_until_close() && !x.is_tunnel {
                    client.side.reset();
                }
                return Next::Close;
            }
            let Some(status) = fault.status() else {
                if let Some(status) = fault.logged_status()
                    && x.txn.status == 0
                {
                    x.txn.status = status;
                }
                return Next::Close;
            };
            page::error(client, x, status);
            if matches!(
                fault,
                Fault::BadRequest(_)
                    | Fault::RequestTimeout
                    | Fault::BadRequestBody
                    | Fault::ClientTimeout
                    | Fault::ClientLeft
            ) {
                x.keep_alive = false;
            }
            send(client, x).await
        }
    }
}

fn count(client: &Client, x: &Exchange, fault: Fault) {
    let backend = x.backend.as_ref().map(|backend| backend.state.backend.mine());
    match fault {
        Fault::BadRequest(_)
        | Fault::RequestTimeout
        | Fault::RequestAborted
        | Fault::RequestCut
        | Fault::BadRequestBody => client.count(|traffic| traffic.request_errors.add(1)),
        // Connection errors for which no server is at fault.
        Fault::NoServer | Fault::QueueFull | Fault::QueueTimeout => {
            if let Some(counters) = backend {
                counters.connection_errors.add(1);
            }
            if let Some(server) = &x.txn.server {
                server.counters.mine().connection_errors.add(1);
            }
        }
        Fault::Internal => client.count(|traffic| traffic.internal_errors.add(1)),
        // A client that leaves while it is queued, or while Weir connects, has not aborted a transfer.
        Fault::ClientAborted if matches!(x.phase, Phase::Queue | Phase::Connect) => {}
        Fault::ClientAborted
        | Fault::ClientLeft
        | Fault::ClientReset
        | Fault::ClientCut
        | Fault::ClientTimeout => {
            if let Some(counters) = backend {
                counters.client_aborts.add(1);
            }
            if let Some(server) = &x.txn.server {
                server.counters.mine().client_aborts.add(1);
            }
        }
        Fault::Truncated | Fault::ServerTimeout | Fault::BadResponseBody => {
            let server = x.txn.server.as_ref().map(|server| server.counters.mine());
            for counters in [backend, server].into_iter().flatten() {
                counters.server_aborts.add(1);
                // A response that stalls is not malformed.
                if fault != Fault::ServerTimeout {
                    counters.response_errors.add(1);
                }
            }
        }
        _ => {}
    }
}

/// Sends the response in the transaction.
pub(crate) async fn send(client: &mut Client, x: &mut Exchange) -> Next {
    x.txn.has_response = true;
    let made = x.txn.response.status();
    x.txn.status = if x.error_status > 0 { x.error_status } else { made };
    if made == 0 {
        // The error file is empty, so nothing is sent.
        x.txn.times.closed = now_us();
        return Next::Close;
    }
    x.is_tunnel = false;
    x.txn.req_vars.clear();
    x.txn.response.watch_framing();
    if client.worker.shared.plan.variables.wants_bodies() && x.reply.object.is_none() {
        x.response_body.seen.clone_from(&x.reply.bytes);
    }
    if let Err(fault) = evaluate::of_reply(client, x).await {
        // The rules do not see the response to their own failure.
        let (cause, phase) = fault.termination(x.phase);
        if x.txn.termination.cause != cause {
            count(client, x, fault);
        }
        faults::note_late(client, x, fault);
        x.txn.termination.set(cause, phase);
        page::error(client, x, 500);
    }
    // A status that a rule sets replaces the status of the page.
    if x.txn.response.status() != made || x.error_status == 0 {
        x.txn.status = x.txn.response.status();
    }
    settle_framing(x);
    if x.reply.is_filtered
        && let Err(stop) = Box::pin(filter(client, x)).await
    {
        let Stop::Fault(fault) = stop else { return Next::Close };
        count(client, x, fault);
        faults::note_late(client, x, fault);
        let (cause, phase) = fault.termination(x.phase);
        x.txn.termination.set(cause, phase);
        let Some(status) = fault.status() else { return Next::Close };
        page::error(client, x, status);
        x.txn.status = status;
        settle_framing(x);
    }
    let begun = !client.side.is_drained();
    let whole = upload_is_over(client, x);
    // The rest of the body is discarded after the response, unless the client may never send it because it expects a 100 and has
    // sent nothing yet, or because it has left.
    let waits = x.request_body.expects_continue && !begun;
    let drains = !waits && !x.request_body.is_cut;
    // A client with an established tunnel sends no further requests (RFC 9110, 9.3.6).
    let opens = x.txn.request.method_id() == Method::Connect && matches!(x.txn.response.status(), 200..=299);
    x.keep_alive = x.keep_alive && (whole || drains) && !opens && !x.txn.response.has_close();
    let sent = match x.reply.is_open() {
        false => send_reply(client, x).await,
        true if x.reply.feed.is_some() => Box::pin(stream::send_body(client, x)).await,
        true => Box::pin(service::send_body(client, x)).await,
    };
    conclude(client, x, sent, whole)
}

/// Sets the framing of a response, even if rules changed its fields.
fn settle_framing(x: &mut Exchange) {
    let length = x.reply.len();
    let body = match x.reply.framing() {
        Some(framing) => framing,
        None if x.reply.is_open() => sending::length(x),
        None => BodyLength::Length(length),
    };
    if x.txn.cache.is_some() && x.txn.response.status() == 304 {
        // The only body that these fields could describe is the one that the client has.
        x.txn.response.remove_body_length();
    } else if matches!(x.txn.response.settle_framing(body), Err(_) | Ok(false)) && x.reply.is_whole() {
        match body {
            BodyLength::Chunked => _ = x.txn.response.append(b"transfer-encoding", b"chunked"),
            BodyLength::UntilClose => {}
            BodyLength::Length(_) | BodyLength::None => x.txn.response.set_content_length(length),
        }
    }
}

/// Calls the response filters for the head of a response from a cache or a service, and the request filters for the request's
/// head if they have not seen it.
///
/// # Errors
/// A filter failed.
async fn filter(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    let backend = x.backend.clone().unwrap_or_else(|| client.frontend.clone());
    x.response_body.length = sending::reply_length(x);
    compression::of_service(client, x, &backend);
    if x.filtering.is_none() {
        return Ok(());
    }
    lua::steps::head_of_answered(client, x).await?;
    lua::steps::begin_response(client, x).await?;
    lua::steps::heads(client, x, true).await
}

/// Sends the head of the transaction's response and, if the response has one, the body in `reply`.
async fn send_reply(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    begin_reply(client, x);
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    let sent = pump(client, x, allowed).await;
    end_reply(client, x, sent)
}

/// Decides what happens to the connection after a generated response.
fn conclude(client: &Client, x: &mut Exchange, sent: Result<(), Fault>, whole: bool) -> Next {
    x.txn.times.closed = now_us();
    if let Err(fault) = sent {
        faults::note_late(client, x, fault);
        if x.reply.repeated.is_some() {
            // Such a body may be long, so the client has missed more than its last bytes.
            (x.txn.termination.cause, x.txn.termination.phase) = fault.termination(Phase::Data);
        }
        x.txn.termination.set(Cause::Client, Phase::Last);
        return Next::Close;
    }
    if x.keep_alive {
        return if whole { Next::KeepAlive } else { Next::Drain };
    }
    if !whole || !client.side.is_drained() {
        return Next::Linger;
    }
    Next::Close
}

/// Whether the whole request body has been received. If so, it is discarded, and the bytes after it are the next request.
fn upload_is_over(client: &mut Client, x: &mut Exchange) -> bool {
    if x.txn.request.is_empty() && x.txn.request.method().is_empty() {
        return false;
    }
    client.side.skip_body(&mut x.upload)
}

/// Discards the rest of a request body, so that the next request can follow. Returns whether the end of the body was reached.
pub(crate) async fn drain(client: &mut Client, x: &mut Exchange) -> bool {
    let allowed = client.frontend.timeouts.client;
    client.timer.set_after(timer::now_ms(), allowed);
    loop {
        x.upload.moved = false;
        if client.side.skip_body(&mut x.upload) {
            return true;
        }
        // Chunk extensions do not count as progress.
        if x.upload.moved {
            client.timer.set_after(timer::now_ms(), allowed);
        }
        let watch = Watch { leaving: false, late: Fault::ClientTimeout };
        match client.wait(watch, |client, context| client.poll_fill(context)).await {
            Ok(Ok(n)) if n > 0 => {}
            _ => return false,
        }
    }
}
