//! What rules see of messages beyond their heads, and the wait for it: the body of an HTTP response,
//! the first bytes of both sides of a TCP stream. Called by [`crate::evaluate`].

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use http::BodyLength;
use plan::Proxy;
use runtime::timer::{self, NEVER};
use sample::ConnectionError;
use sample::transaction::TimeoutSlot;

use crate::client::{Client, Watch};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::flow::Decoding;
use crate::message::lua;
use crate::message::wanted::BodyWait;
use crate::server::Upstream;

/// Has rules see what of the response's body is there, without waiting for more.
pub(crate) fn look(x: &mut Exchange, upstream: &Upstream) {
    // What is wrong with it shows when it is sent on.
    let _ = upstream.beginning().decode(x.response_body.length, &mut x.response_body.seen);
}

/// Waits until as much as is `wanted` of the response's body, all of it, or a buffer full are there, and
/// decodes them for rules to look at (`wait-for-body`). They are still forwarded as they came.
pub(crate) async fn hold(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
    wanted: BodyWait,
    timeout_ms: u64,
) -> Result<(), Fault> {
    let length = x.response_body.length;
    client.timer.set(timer::now_ms() + timeout_ms);
    let mut decoding = Decoding::default();
    x.response_body.seen.clear();
    loop {
        let decoded = upstream.beginning().decode_more(length, &mut decoding, &mut x.response_body.seen);
        let is_enough =
            decoded.map_err(|_| Fault::BadResponseBody)? || x.response_body.seen.len() >= wanted.bytes;
        if is_enough || !upstream.has_room() && !upstream.enlarge(wanted.large) {
            return Ok(());
        }
        let watch = Watch { leaving: x.aborts_on_close(client, backend), late: Fault::ResponseTimeout };
        let read = client.wait(watch, |_, context| upstream.poll_fill(context)).await?;
        match read.map_err(|_| Fault::Truncated)? {
            0 if length == BodyLength::UntilClose => return Ok(()),
            0 => return Err(Fault::Truncated),
            _ => {}
        }
    }
}

/// Sends what is here of a TCP stream's beginning, whatever rules make of its server's answer.
pub(crate) async fn send_first(client: &mut Client, x: &mut Exchange, upstream: &mut Upstream) {
    poll_fn(|context: &mut Context<'_>| {
        // What goes wrong here shows again when the stream goes on.
        let _ = match x.filtering {
            None => x.upload.poll_pump(context, client.side.source(), &mut upstream.sink()),
            Some(_) => lua::pump::poll_upload(client, x, upstream, context),
        };
        Poll::Ready(())
    })
    .await;
}

/// Waits for more of the response's body, for `tcp-response content` rules that look at it `until`
/// an instant, or for that instant once there is no more to come. A server that keeps silent for its
/// own time moves the instant to now, and is blamed for the rest when it is forwarded.
pub(crate) async fn hold_more(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
    until: &mut u64,
) -> Result<(), Fault> {
    let length = x.response_body.length;
    let leaving = x.aborts_on_close(client, backend);
    let complete =
        upstream.beginning().decode(length, &mut x.response_body.seen).map_err(|_| Fault::BadResponseBody)?;
    let mut ended = complete || !upstream.has_room();
    if !ended {
        let silent_at = server_silent_at(x, backend);
        client.timer.set(silent_at.min(*until));
        let more = |client: &mut Client, context: &mut Context<'_>| {
            if let Poll::Ready(read) = upstream.poll_fill(context) {
                // What goes wrong here shows again when the body is forwarded.
                return Poll::Ready(Some(read.is_ok_and(|n| n > 0)));
            }
            client.timer.poll_expired(context).map(|()| None)
        };
        let read = client.wait(Watch { leaving, ..Watch::KILL }, more).await?;
        ended = read == Some(false);
        if read.is_none() && silent_at < *until {
            x.response_body.is_silent = true;
            *until = 0;
        }
    }
    if ended {
        let left = Duration::from_millis(until.saturating_sub(timer::now_ms()));
        client.pause(left, leaving).await?;
    }
    let _ = upstream.beginning().decode(length, &mut x.response_body.seen);
    Ok(())
}

/// How much of a stream rules wait for: what a buffer takes, but for `tune.maxrewrite`.
fn most(client: &Client) -> usize {
    let tune = &client.worker.shared.plan.global.tune;
    tune.bufsize.saturating_sub(tune.maxrewrite)
}

/// When a server is late that says nothing from now on, in ms of the worker's clock.
fn server_silent_at(x: &Exchange, backend: &Proxy) -> u64 {
    let allowed = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
    allowed.map_or(NEVER, |allowed| timer::now_ms().saturating_add(allowed.as_millis() as u64))
}

/// Waits for more bytes of the server of a TCP stream, for rules that look at them, while the
/// client's go on; says whether there are. A server that keeps silent for its own time is noted.
pub(crate) async fn more(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
    until_ms: u64,
) -> Result<bool, Fault> {
    if !upstream.has_room() || upstream.received().len() >= most(client) {
        return Ok(false);
    }
    let silent_at = server_silent_at(x, backend);
    if x.response_body.heard_ms == 0 {
        x.response_body.heard_ms = timer::now_ms();
    }
    client.timer.set(until_ms.min(silent_at));
    let more = |client: &mut Client, context: &mut Context<'_>| {
        // What goes wrong here shows again when the stream goes on.
        let _ = match x.filtering {
            None => x.upload.poll_pump(context, client.side.source(), &mut upstream.sink()),
            Some(_) => lua::pump::poll_upload(client, x, upstream, context),
        };
        if let Poll::Ready(read) = upstream.poll_fill(context) {
            return Poll::Ready(Some(read));
        }
        client.timer.poll_expired(context).map(|()| None)
    };
    match client.wait(Watch::KILL, more).await? {
        Some(Ok(n)) => {
            x.response_body.heard_ms = timer::now_ms();
            return Ok(n > 0 && x.response_body.heard_ms < until_ms);
        }
        Some(Err(error)) => {
            // The kernel tells of it once.
            x.txn.server_error = ConnectionError::of_kernel(&error);
            x.response_body.is_broken = true;
        }
        None => x.response_body.is_silent = silent_at <= until_ms,
    }
    Ok(false)
}

/// Waits for more bytes of the client of a TCP stream, for rules that look at them; says whether
/// there are. A client that breaks off or keeps silent for its own time is noted: rules have their
/// say first.
///
/// # Errors
/// An operator ended the stream.
pub(crate) async fn more_of_request(
    client: &mut Client,
    x: &mut Exchange,
    until_ms: u64,
) -> Result<bool, Fault> {
    if !client.side.has_room() || client.side.received().len() >= most(client) {
        return Ok(false);
    }
    let silent_at = client_silent_at(client, x);
    client.timer.set(until_ms.min(silent_at));
    let more = |client: &mut Client, context: &mut Context<'_>| {
        if let Poll::Ready(read) = client.poll_fill(context) {
            return Poll::Ready(Some(read));
        }
        client.timer.poll_expired(context).map(|()| None)
    };
    Ok(match client.wait(Watch::KILL, more).await? {
        Some(Ok(n)) => {
            x.request_body.heard_ms = timer::now_ms();
            n > 0 && x.request_body.heard_ms < until_ms
        }
        Some(Err(_)) => {
            x.request_body.is_cut = true;
            false
        }
        None => {
            x.request_body.is_late = silent_at <= until_ms;
            false
        }
    })
}

/// When a client is late from which nothing more comes while rules wait for it, in ms of the
/// worker's clock.
pub(crate) fn client_silent_at(client: &Client, x: &mut Exchange) -> u64 {
    let heard = &mut x.request_body.heard_ms;
    *heard = u64::max(*heard, x.txn.times.started / 1000);
    let heard = *heard;
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    allowed.map_or(NEVER, |allowed| heard.saturating_add(allowed.as_millis() as u64))
}
