//! Answers made here: errors, and what rules reply. The connection stays where that is safe.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::BodyLength;
use rules::Reply;
use runtime::timer::{self, now_us};
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::connection::Connection;
use crate::envs;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::rules_step;
use crate::service;
use crate::session::Next;
use crate::upload;

/// How long a connection that is closed with unread bytes is still read, so that its client sees the answer
/// instead of a reset.
const LINGER: Duration = Duration::from_secs(1);

/// The most that is read and thrown away then.
const LINGER_BYTES: usize = 1 << 20;

/// Ends a request that did not go the usual way: answers if nobody has, notes why.
pub(crate) async fn after(client: &mut Connection, x: &mut Exchange, stop: Stop) -> Next {
    match stop {
        Stop::Silent => {
            x.txn.log_level = Some(None);
            Next::Close
        }
        // An upgrade ends no request of HTTP.
        Stop::Close | Stop::Upgrade(_) => Next::Close,
        Stop::Reply => {
            x.phase = Phase::Last;
            send(client, x).await
        }
        Stop::Fault(fault) => {
            let (cause, phase) = fault.termination(x.phase);
            x.txn.termination.set(cause, phase);
            count(client, x, fault);
            if x.answered {
                // Too late for words: the client must not take what it has for the whole.
                // What its framing does not tell, a reset does.
                if fault == Fault::Truncated && x.download.is_until_close() {
                    client.stream.reset_on_close();
                }
                return Next::Close;
            }
            let Some(status) = fault.status() else {
                if let Some(untold) = fault.untold_status()
                    && x.txn.status == 0
                {
                    x.txn.status = untold;
                }
                return Next::Close;
            };
            error(client, x, status);
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

fn count(client: &Connection, x: &Exchange, fault: Fault) {
    let backend = x.backend.as_ref().map(|backend| backend.state.backend.mine());
    match fault {
        Fault::BadRequest(_)
        | Fault::RequestTimeout
        | Fault::RequestAborted
        | Fault::RequestCut
        | Fault::BadRequestBody => client.count(|traffic| traffic.request_errors.add(1)),
        // Errors of connecting that no server is to blame for.
        Fault::NoServer | Fault::QueueFull | Fault::QueueTimeout => {
            if let Some(counters) = backend {
                counters.connection_errors.add(1);
            }
        }
        Fault::Internal => client.count(|traffic| traffic.internal_errors.add(1)),
        // Who leaves the queue, or while a server is being reached, has aborted no transfer yet.
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
            if let Some(counters) = backend {
                counters.server_aborts.add(1);
                counters.response_errors.add(1);
            }
            if let Some(server) = &x.txn.server {
                server.counters.mine().server_aborts.add(1);
                server.counters.mine().response_errors.add(1);
            }
        }
        _ => {}
    }
}

/// Makes the answer for `status`: the backend's or the frontend's own page, or the built-in one.
pub(crate) fn error(client: &Connection, x: &mut Exchange, status: u16) {
    x.txn.response.clear();
    x.reply_body.clear();
    x.error_status = status;
    let custom = find_error(client, x, status);
    match custom {
        Some(reply) if reply.bare_status().is_none() => render(client, x, &reply),
        _ => {
            let message = http::status::error_message(status)
                .or_else(|| http::status::error_message(if status >= 500 { 500 } else { 400 }));
            if let Some(message) = message {
                message.response(&mut x.txn.response, &mut x.reply_body);
            }
        }
    }
}

/// The page that the configuration gives for `status`.
pub(crate) fn find_error(client: &Connection, x: &Exchange, status: u16) -> Option<Arc<Reply>> {
    let of = |proxy: &config::plan::Proxy| {
        proxy.errors.iter().find(|(code, _)| *code == status).map(|(_, reply)| reply.clone())
    };
    x.backend.as_ref().and_then(|backend| of(backend)).or_else(|| of(&client.frontend))
}

/// Renders a rule's reply into the transaction's response and `reply_body`.
pub(crate) fn render(client: &Connection, x: &mut Exchange, reply: &Reply) {
    let mut head = std::mem::take(&mut x.txn.response);
    let mut body = std::mem::take(&mut x.reply_body);
    head.clear();
    body.clear();
    // Its formats know what they are part of.
    x.txn.status = if x.error_status > 0 { x.error_status } else { reply.status };
    envs::with(client, x, |env| reply.render(env, &mut head, &mut body));
    x.txn.response = head;
    x.reply_body = body;
}

/// Sends the answer that lies in the transaction.
pub(crate) async fn send(client: &mut Connection, x: &mut Exchange) -> Next {
    x.txn.has_response = true;
    let made = x.txn.response.status();
    x.txn.status = if x.error_status > 0 { x.error_status } else { made };
    if made == 0 {
        // An empty error file: nothing is said.
        x.txn.times.closed = now_us();
        return Next::Close;
    }
    x.is_tunnel = false;
    x.txn.response.watch_framing();
    if let Err(fault) = rules_step::after_response(client, x, 0) {
        // The rules do not see the answer to their own failure.
        let (cause, phase) = fault.termination(x.phase);
        if x.txn.termination.cause != cause {
            count(client, x, fault);
        }
        x.txn.termination.set(cause, phase);
        error(client, x, 500);
    }
    // A rule's word counts more than what the page stands for.
    if x.txn.response.status() != made || x.error_status == 0 {
        x.txn.status = x.txn.response.status();
    }
    if matches!(
        x.txn.response.settle_framing(BodyLength::Length(x.reply_body.len() as u64)),
        Err(_) | Ok(false)
    ) && x.pieces.is_none()
    {
        x.txn.response.set_content_length(x.reply_body.len() as u64);
    }
    let whole = upload_is_over(client, x);
    x.keep_alive = x.keep_alive && whole && !x.txn.response.has_close();
    if let Some(pieces) = x.pieces.take() {
        let sent = Box::pin(service::stream(client, x, pieces)).await;
        return conclude(client, x, sent, whole).await;
    }
    let head_only = x.head_only || matches!(x.txn.response.status(), 100..=199 | 204 | 304);
    let length = if head_only { BodyLength::None } else { BodyLength::Length(x.reply_body.len() as u64) };
    crate::fields::adapt_connection(client, x, length, true);
    let mut head = std::mem::take(&mut x.body);
    head.clear();
    x.txn.response.write_to(&mut head);
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    client.timer.set_after(timer::now_ms(), allowed);
    let body: &[u8] = if head_only { &[] } else { &x.reply_body };
    let sent = write_both(client, &head, body, !x.keep_alive).await;
    x.txn.bytes_out += (head.len() + body.len()) as u64;
    head.clear();
    x.body = head;
    conclude(client, x, sent, whole).await
}

/// What becomes of the connection after an answer made here.
async fn conclude(client: &mut Connection, x: &mut Exchange, sent: Result<(), Fault>, whole: bool) -> Next {
    x.txn.times.closed = now_us();
    if sent.is_err() {
        x.txn.termination.set(Cause::Client, Phase::Last);
        return Next::Close;
    }
    if x.keep_alive {
        return Next::KeepAlive;
    }
    if !whole || client.input.as_ref().is_some_and(|input| !input.is_empty()) {
        return Next::Linger;
    }
    Next::Close
}

/// Whether the request's body is all here: it is then thrown away, and what follows is the next request.
fn upload_is_over(client: &mut Connection, x: &mut Exchange) -> bool {
    if x.txn.request.is_empty() && x.txn.request.method().is_empty() {
        return false;
    }
    let Some(input) = &mut client.input else { return !upload::has_body(x) };
    if x.upload.sent > 0 {
        return x.upload.is_finished();
    }
    if x.upload.admit(input).is_err() || !x.upload.is_received() {
        return false;
    }
    let ready = x.upload.ready();
    input.consume(ready);
    x.upload.start(BodyLength::None, Default::default());
    true
}

/// Writes head and body in as few system calls as they take.
///
/// With `ends` the end of our side leaves with them: see [`Stream::poll_write_both`](net::Stream::poll_write_both).
pub(crate) async fn write_both(
    client: &mut Connection,
    head: &[u8],
    body: &[u8],
    ends: bool,
) -> Result<(), Fault> {
    let total = head.len() + body.len();
    let mut sent = 0;
    while sent < total {
        let written = poll_fn(|context: &mut Context<'_>| {
            let head = head.get(sent..).unwrap_or_default();
            let body = &body[sent.saturating_sub(total - body.len()).min(body.len())..];
            if let Poll::Ready(written) = client.stream.poll_write_both(context, head, body, ends) {
                return Poll::Ready(written.map_err(|_| Fault::ClientAborted));
            }
            client.timer.poll_expired(context).map(|()| Err(Fault::ClientTimeout))
        })
        .await?;
        sent += written;
    }
    if ends {
        client.stream.shutdown_write();
    }
    Ok(())
}

/// Ends our side and reads on for a while: closing with unread bytes would make the kernel send a reset that
/// can overtake the answer.
pub(crate) async fn linger(client: &mut Connection) {
    client.stream.shutdown_write();
    let deadline = client.frontend.timeouts.client_fin.unwrap_or(LINGER).min(LINGER);
    client.timer.set_after(timer::now_ms(), Some(deadline));
    let mut read = 0;
    while read < LINGER_BYTES {
        let n = poll_fn(|context: &mut Context<'_>| {
            client.input().clear();
            if let Poll::Ready(read) = client.poll_fill(context) {
                return Poll::Ready(read);
            }
            client.timer.poll_expired(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
        })
        .await;
        match n {
            Ok(n) if n > 0 => read += n,
            _ => break,
        }
    }
    client.input().clear();
}
