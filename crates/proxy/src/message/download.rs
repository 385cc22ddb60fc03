//! Forwards the response's body to the client, and the rest of the request to the server. Afterwards,
//! [`conclude`](crate::message::conclude) decides about the connections.

use std::future::poll_fn;
use std::task::{Context, Poll};

use http::BodyLength;
use net::splice::Pipe;
use plan::Proxy;
use runtime::timer::{now_ms, now_us};
use sample::Phase;
use sample::transaction::TimeoutSlot;

use crate::client::{Client, Presence};
use crate::exchange::filters;
use crate::exchange::finish::{self, Moved};
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::{FlowError, Sink};
use crate::message::deadlines::{Deadlines, Expired, client_owes};
use crate::message::lua;
use crate::message::splice::splice_pipe;
use crate::message::upload::poll_upload;
use crate::server::Upstream;

/// Forwards the response to the client, and the rest of the request to the server. `ASIDE` creates a separate copy of this code
/// for rare callers, so that the copy for the usual caller stays inlined.
pub(crate) async fn forward<const ASIDE: bool>(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    x.phase = Phase::Data;
    x.answered = true;
    let mut deadlines = Deadlines::new(client, x, backend);
    // A client that has closed its write side may still wait for a response that ends when the connection is closed.
    let endless = x.response_body.length == BodyLength::UntilClose;
    let watch = x.aborts_on_close(client, backend) && !endless;
    let (mut upload_failed, mut client_left) = (false, false);
    let mut armed = false;
    x.txn.times.closed = if x.response_body.waited { now_us() } else { x.txn.times.response };
    fit_out(client, x, backend);
    begin(client, x, upstream).map_err(|fault| unsent(x, backend, upstream, fault))?;
    let outcome = poll_fn(|context: &mut Context<'_>| {
        x.download.moved = false;
        if !upload_failed && !x.upload.is_finished() {
            match poll_upload(client, x, upstream, context) {
                Ok(moved) => x.download.moved |= moved,
                // The server reads no more of the request, but its response is still valid.
                Err(Fault::SendFailed) => upload_failed = true,
                Err(fault) => return Poll::Ready(Err(fault)),
            }
        }
        if !x.download.is_finished() {
            // In the same turn, `conclude::after_response` then keeps or closes the server's connection.
            x.download.ends = !x.keep_alive && x.upload.is_finished();
            match poll_download(client, x, upstream, context) {
                // Such a body ends with the connection, so only a clean close distinguishes its end from a broken connection.
                Poll::Ready(Ok(())) if endless && upstream.is_cut_off() => {
                    return Poll::Ready(Err(Fault::Truncated));
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
            }
        }
        // An early response is complete, but the request must also be complete before the connections can be reused.
        if x.download.is_finished() && (upload_failed || x.upload.is_finished()) {
            return Poll::Ready(Ok(()));
        }
        if x.download.moved || !armed {
            armed = true;
            let (received, sent) = (x.txn.bytes_in, x.txn.bytes_out + x.download.sent);
            finish::count_moved(client, Moved::of(x), received, sent);
            // The end time must be read from the clock, because the response took more than one turn.
            x.txn.times.closed = 0;
            let blocked = x.download.is_blocked();
            let client_waits = blocked || client_owes(x);
            // If the server has sent everything, it only has to read the rest of the request.
            let server_waits = !blocked && (!x.download.is_received() || x.upload.is_blocked());
            deadlines.moved(client, x, client_waits, server_waits);
        }
        if !client_left && x.upload.is_finished() {
            match client.poll_presence(context) {
                Presence::Here => {}
                Presence::Closed if !watch => client_left = true,
                Presence::Closed | Presence::Broken => return Poll::Ready(Err(Fault::ClientAborted)),
            }
        }
        if let Poll::Ready(fault) = client.poll_killed(context) {
            return Poll::Ready(Err(fault));
        }
        client.timer.poll_expired(context).map(|()| {
            Err(match deadlines.expired() {
                Expired::Client => Fault::ClientTimeout,
                // If the client has left, the server's timeout is not the cause.
                Expired::Server if client_left && !endless => Fault::ClientAborted,
                Expired::Server => Fault::ServerTimeout,
            })
        })
    })
    .await;
    x.txn.bytes_out += x.download.sent;
    if matches!(outcome, Err(Fault::ClientAborted | Fault::ClientTimeout)) && x.filtering.is_none() {
        Box::pin(feed_others(client, x, backend, upstream)).await;
    }
    if outcome.is_err() {
        x.txn.server_stream = upstream.stream_facts();
        upstream.reset();
        if x.download.is_received() {
            // The server's response is complete, so the failure is between the client and Weir.
            x.phase = Phase::Last;
        }
    }
    outcome.map_err(|fault| unsent(x, backend, upstream, fault).into())
}

/// Fetches the rest of a response for its other readers (`collapsed-forwarding`) after the original client has left. `timeout
/// server` applies to each piece.
#[cold]
async fn feed_others(client: &mut Client, x: &mut Exchange, backend: &Proxy, upstream: &mut Upstream) {
    let is_read = poll_fn(|context| Poll::Ready(x.download.feeds_others(context).is_some())).await;
    if !is_read {
        return;
    }
    x.download.discard_for_receiver();
    let silent = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
    client.timer.set_after(now_ms(), silent);
    poll_fn(|context: &mut Context<'_>| {
        if client.poll_killed(context).is_ready() {
            return Poll::Ready(());
        }
        match x.download.feeds_others(context) {
            None => return Poll::Ready(()),
            Some(false) => {
                // From here on, the readers are the slow side.
                client.timer.set_after(now_ms(), silent);
                return Poll::Pending;
            }
            Some(true) => {}
        }
        x.download.moved = false;
        match x.download.poll_pump(context, upstream.source(), &mut Sink::Gone) {
            Poll::Ready(ended) => {
                if ended.is_ok()
                    && !upstream.is_cut_off()
                    && let Some(filters) = &mut x.download.filters
                {
                    filters.keep();
                }
                return Poll::Ready(());
            }
            Poll::Pending if x.download.moved => client.timer.set_after(now_ms(), silent),
            Poll::Pending => {}
        }
        client.timer.poll_expired(context)
    })
    .await;
}

/// Sends the head, after validating the received part of the body. Only for heads that are not sent as text together with the
/// body.
///
/// # Errors
/// The body is malformed. Nothing was sent.
#[inline]
pub(crate) fn begin(client: &mut Client, x: &mut Exchange, upstream: &mut Upstream) -> Result<(), Fault> {
    if client.side.stages_heads() {
        return Ok(());
    }
    upstream.admit(&mut x.download).map_err(|error| download_fault(client, x, &error))?;
    x.txn.bytes_out += client.side.send_head(&x.txn.response, &mut x.download);
    Ok(())
}

/// Installs the gates and pipes of both directions.
fn fit_out(client: &Client, x: &mut Exchange, backend: &Proxy) {
    // Response rules may have requested filters in either direction.
    filters::install(client, x, true);
    filters::install(client, x, false);
    if x.upload.gate.is_some() && x.upload.pipe.as_ref().is_some_and(Pipe::is_empty) {
        x.upload.pipe = None;
    }
    x.download.pipe = splice_pipe(client, backend, &x.download, |o| o.splice_response || o.splice_auto);
}

/// A malformed body that is found before any of the response was sent counts as a bad response, so the client gets an error page.
fn unsent(x: &mut Exchange, backend: &Proxy, upstream: &Upstream, fault: Fault) -> Fault {
    if fault != Fault::BadResponseBody || x.download.sent > 0 {
        return fault;
    }
    x.answered = false;
    x.txn.times.response = 0;
    for counters in [backend.state.backend.mine(), upstream.server().state.counters.mine()] {
        counters.response_errors.add(1);
    }
    Fault::BadResponse(http::ErrorKind::TransferEncoding)
}

#[inline]
fn poll_download(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), Fault>> {
    lua::pump::poll_download(client, x, upstream, context).map_err(|error| download_fault(client, x, &error))
}

#[cold]
fn download_fault(client: &mut Client, x: &mut Exchange, error: &FlowError) -> Fault {
    match *error {
        FlowError::Write(error) => {
            client.session.error.set(error);
            Fault::ClientAborted
        }
        // A body that ends with the close is complete, unless the connection was reset.
        FlowError::Read(error) => {
            x.txn.server_error = error;
            Fault::Truncated
        }
        FlowError::Filter => Fault::BadResponseBody,
        FlowError::Coding if x.phase == Phase::Data => Fault::BadResponseBody,
        FlowError::Coding => Fault::BadResponse(http::ErrorKind::TransferEncoding),
    }
}
