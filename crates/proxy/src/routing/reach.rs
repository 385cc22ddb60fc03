//! The wait for a server that is being reached: what ends it beside the server's answer. Called by
//! [`super::connect`] and [`super::secure`] for each of their steps.

use std::future::poll_fn;
use std::task::{Context, Poll};

use http::BodyLength;
use runtime::timer::NEVER;
use sample::transaction::TimeoutSlot;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::routing::assign;

/// Takes `step` after step towards a server until the last is done, at most until
/// `connect_by`. Where a client is to be watched (`option abortonclose`), its leaving ends the
/// attempt; one that owes the rest of its request and sends nothing of it for `timeout client` does
/// so too.
pub(super) async fn reach<T>(
    client: &mut Client,
    x: &mut Exchange,
    watch: bool,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut silent_until = silent_until(client, x);
    client.timer.set(x.choice.connect_by.min(silent_until));
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(outcome) = step(context) {
            return Poll::Ready(outcome);
        }
        // A stream of TCP may have said all it had to say.
        if watch || x.txn.is_http {
            let before = client.side.received().len();
            if let Some(fault) = assign::left(client, x, context, watch) {
                return Poll::Ready(Err(fault));
            }
            if client.side.received().len() > before {
                // As in HAProxy, who has sent more is waited for until there is a server.
                x.choice.heard_late = true;
                silent_until = NEVER;
                client.timer.set(x.choice.connect_by);
            }
        }
        if let Poll::Ready(killed) = client.poll_killed(context) {
            return Poll::Ready(Err(killed));
        }
        let is_slow = silent_until < x.choice.connect_by;
        let late = if is_slow { Fault::ClientTimeout } else { Fault::ConnectTimeout };
        client.timer.poll_expired(context).map(|()| Err(late))
    })
    .await
}

/// Until when a client may be silent that owes the rest of its request: [`NEVER`] for others.
fn silent_until(client: &mut Client, x: &Exchange) -> u64 {
    let received = client.side.received();
    let owes = match x.request_body.length {
        BodyLength::Length(length) => (received.len() as u64) < length,
        BodyLength::Chunked => client.side.decode(BodyLength::Chunked, &mut Vec::new()) == Ok(false),
        BodyLength::None | BodyLength::UntilClose => false,
    };
    if !x.txn.is_http || x.choice.heard_late || !owes || !client.side.has_room() {
        return NEVER;
    }
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    allowed.map_or(NEVER, |allowed| x.txn.times.request / 1000 + allowed.as_millis() as u64)
}
