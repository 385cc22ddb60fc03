//! Waits until a server is reached, or until an event ends the wait early. Called by [`super::connect`] and [`super::server_tls`]
//! for each of their steps.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use http::BodyLength;
use runtime::timer::{NEVER, now_ms};
use sample::transaction::TimeoutSlot;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::routing::assign;

/// Polls `step` until it completes, but not after `connect_by`. If the client is watched (`option abortonclose`), the attempt
/// ends when the client leaves. It also ends when `timeout client` expires for an HTTP client that has not sent its whole
/// request, or for a TCP client that has sent nothing.
pub(super) async fn reach<T>(
    client: &mut Client,
    x: &mut Exchange,
    watch: bool,
    step: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Fault>>,
) -> Result<T, Fault> {
    // A TCP client may already have sent all its data.
    let looks = watch || x.txn.is_http;
    wait(client, x, watch, looks, step).await
}

/// Waits before the next attempt. The same events as in `reach` end the wait early.
pub(super) async fn pause(
    client: &mut Client,
    x: &mut Exchange,
    pause: Duration,
    watch: bool,
    looks: bool,
) -> Result<(), Fault> {
    x.choice.connect_by = now_ms().saturating_add(pause.as_millis() as u64);
    match wait(client, x, watch, looks, |_| Poll::<Result<(), Fault>>::Pending).await {
        Err(Fault::ConnectTimeout) => Ok(()),
        ended => ended,
    }
}

async fn wait<T>(
    client: &mut Client,
    x: &mut Exchange,
    watch: bool,
    looks: bool,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut silent_until = silent_until(client, x);
    client.timer.set(x.choice.connect_by.min(silent_until));
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(outcome) = step(context) {
            return Poll::Ready(outcome);
        }
        if looks {
            let before = client.side.received().len();
            if let Some(fault) = assign::left(client, x, context, watch) {
                return Poll::Ready(Err(fault));
            }
            if client.side.received().len() > before {
                // As in HAProxy, a client that has sent more data has no timeout until a server is reached.
                x.choice.heard_late = true;
                if x.request_body.heard_ms > 0 {
                    x.request_body.heard_ms = now_ms();
                }
                silent_until = NEVER;
                client.timer.set(x.choice.connect_by);
            }
        }
        if let Poll::Ready(killed) = client.poll_killed(context) {
            return Poll::Ready(Err(killed));
        }
        while client.timer.poll_expired(context).is_ready() {
            if silent_until >= x.choice.connect_by {
                return Poll::Ready(Err(Fault::ConnectTimeout));
            }
            // TCP data may not have been read yet: no server was available to receive it, and the reactor may not have registered
            // the socket.
            if x.txn.is_http || !looks && client.poll_fill(context).is_pending() || client.side.is_drained() {
                return Poll::Ready(Err(Fault::ClientTimeout));
            }
            silent_until = NEVER;
            client.timer.set(x.choice.connect_by);
        }
        Poll::Pending
    })
    .await
}

/// Returns when the client times out: an HTTP client that has not sent its whole request, or a TCP client that has sent nothing.
/// Returns [`NEVER`] for other clients.
fn silent_until(client: &mut Client, x: &Exchange) -> u64 {
    let received = client.side.received();
    let received_none = received.is_empty();
    let owes = match x.request_body.length {
        BodyLength::Length(length) => (received.len() as u64) < length,
        BodyLength::Chunked => {
            client.side.beginning().decode(BodyLength::Chunked, &mut Vec::new()) == Ok(false)
        }
        BodyLength::None | BodyLength::UntilClose => false,
    };
    let owes = if x.txn.is_http { owes && client.side.has_room() } else { received_none };
    if x.choice.heard_late || !owes {
        return NEVER;
    }
    let since = if x.txn.is_http { x.txn.times.request } else { x.txn.times.started };
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    allowed.map_or(NEVER, |allowed| since / 1000 + allowed.as_millis() as u64)
}
