//! The wait for a server that is being reached: what ends it beside the server's answer. Called by
//! [`super::connect`] and [`super::server_tls`] for each of their steps.

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

/// Takes `step` after step towards a server until the last is done, at most until
/// `connect_by`. Where a client is to be watched (`option abortonclose`), its leaving ends the
/// attempt; one that owes the rest of its request, or that never said a word in TCP, and sends
/// nothing for `timeout client` does so too.
pub(super) async fn reach<T>(
    client: &mut Client,
    x: &mut Exchange,
    watch: bool,
    step: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Fault>>,
) -> Result<T, Fault> {
    // A stream of TCP may have said all it had to say.
    let looks = watch || x.txn.is_http;
    wait(client, x, watch, looks, step).await
}

/// Waits before the next attempt, ended by the same.
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
                // As in HAProxy, who has sent more is waited for until there is a server.
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
            // Of TCP it may not have been read, as there was nobody to send it to, and the reactor
            // may know nothing of the socket.
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

/// Until when a client may be silent that owes the rest of its request, or any byte in TCP:
/// [`NEVER`] for others.
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
