//! The parts of messages that rules inspect after the head, and the wait for them: the body of an HTTP response, and the first
//! bytes from both sides of a TCP stream. Called by [`crate::evaluate`].

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

/// Makes the received part of the response's body visible to rules, without waiting for more.
pub(crate) fn look(x: &mut Exchange, upstream: &Upstream) {
    // Errors are reported when the body is forwarded.
    let _ = upstream.beginning().decode(x.response_body.length, &mut x.response_body.seen);
}

/// Waits until the response's body is complete, `wanted` bytes of it have arrived or the buffer is full, and decodes the bytes
/// for rules (`wait-for-body`). They are still forwarded with their original coding.
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

/// Sends the received beginning of a TCP stream, even if rules later refuse the server's answer.
pub(crate) async fn send_first(client: &mut Client, x: &mut Exchange, upstream: &mut Upstream) {
    poll_fn(|context: &mut Context<'_>| {
        forward(client, x, upstream, context);
        Poll::Ready(())
    })
    .await;
}

/// Forwards the client's bytes while rules inspect those of the server, and the end of the stream. Returns whether any were
/// forwarded.
fn forward(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> bool {
    if x.request_body.ended_ms > 0 {
        return false;
    }
    x.upload.moved = false;
    let pumped = lua::pump::poll_upload(client, x, upstream, context);
    let is_reset_later = x.backend.as_ref().is_some_and(|backend| backend.options.nolinger_backend);
    // An error will occur again when the stream continues.
    let has_ended = matches!(pumped, Poll::Ready(Ok(()))) && !is_reset_later;
    if has_ended {
        upstream.sink().finish();
        x.request_body.ended_ms = timer::now_ms();
    } else if x.upload.moved {
        x.request_body.heard_ms = timer::now_ms();
    }
    has_ended || x.upload.moved
}

/// Waits for more of the response's body until the instant `until`, for `tcp-response content` rules. If no more can arrive,
/// waits for that instant anyway. If the server times out, the wait ends immediately, and the server is blamed when the response
/// is forwarded.
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
                // An error will occur again when the body is forwarded.
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

/// Returns how many bytes of a stream rules can wait for: the buffer size minus `tune.maxrewrite`.
fn most(client: &Client) -> usize {
    let tune = &client.worker.shared.plan.global.tune;
    tune.bufsize.saturating_sub(tune.maxrewrite)
}

/// Returns when the server times out if it stays silent from now on, in ms of the worker's clock.
fn server_silent_at(x: &Exchange, backend: &Proxy) -> u64 {
    let allowed = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
    allowed.map_or(NEVER, |allowed| timer::now_ms().saturating_add(allowed.as_millis() as u64))
}

/// When the sides of a TCP stream time out if they stay silent while rules inspect the server's bytes, in ms of the worker's clock.
#[derive(Clone, Copy)]
struct SilenceLimits {
    client: u64,
    server: u64,
}

impl SilenceLimits {
    fn of(client: &Client, x: &mut Exchange, backend: &Proxy, server: u64) -> Self {
        let ended = x.request_body.ended_ms;
        if ended == 0 {
            return Self { client: client_silent_at(client, x), server };
        }
        let limit = backend.timeouts.server_fin.map(|limit| ended.saturating_add(limit.as_millis() as u64));
        Self { client: NEVER, server: limit.unwrap_or(server) }
    }

    fn first(self) -> u64 {
        self.client.min(self.server)
    }
}

/// Waits for more bytes from the server of a TCP stream, for rules that inspect them. The client's bytes are forwarded during the
/// wait. Returns whether there are new bytes. Timeouts are only recorded: the stream ends with them when it continues.
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
    let server = server_silent_at(x, backend);
    if x.response_body.heard_ms == 0 {
        x.response_body.heard_ms = timer::now_ms();
    }
    let mut limits = SilenceLimits::of(client, x, backend, server);
    client.timer.set(until_ms.min(limits.first()));
    let more = |client: &mut Client, context: &mut Context<'_>| {
        if forward(client, x, upstream, context) {
            limits = SilenceLimits::of(client, x, backend, server);
            client.timer.set(until_ms.min(limits.first()));
        }
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
            // The kernel reports this error only once.
            x.txn.server_error = ConnectionError::of_kernel(&error);
            x.response_body.is_broken = true;
        }
        None => x.response_body.is_silent = limits.server <= until_ms && limits.server < limits.client,
    }
    Ok(false)
}

/// Waits for more bytes from the client of a TCP stream, for rules that inspect them. Returns whether there are any. A broken
/// connection or a timeout is only recorded, because the rules run first.
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

/// Returns when the client times out if it sends nothing more while rules wait, in ms of the worker's clock.
pub(crate) fn client_silent_at(client: &Client, x: &mut Exchange) -> u64 {
    let heard = &mut x.request_body.heard_ms;
    *heard = u64::max(*heard, x.txn.times.started / 1000);
    let heard = *heard;
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    allowed.map_or(NEVER, |allowed| heard.saturating_add(allowed.as_millis() as u64))
}
