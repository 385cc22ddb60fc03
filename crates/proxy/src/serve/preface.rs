//! HTTP/2 in clear text with prior knowledge (RFC 9113, 3.3). The first bytes of the connection distinguish it from HTTP/1.

use std::future::poll_fn;
use std::task::{Context, Poll};

use runtime::timer;

use crate::client::{Client, Watch, handshake};
use crate::exchange::Arrival;
use crate::fault::Fault;

/// The preface that an HTTP/2 client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Checks the client's first bytes. Returns `None` if they are the preface, otherwise how the first request arrived.
#[inline]
pub(super) async fn look(client: &mut Client) -> Option<Arrival> {
    if client.side.is_drained() {
        // An error will occur again when the request is received.
        poll_fn(|context| Poll::Ready(client.poll_fill(context).is_ready())).await;
    }
    let received = client.side.received();
    let length = received.len().min(3);
    if length == 0 || received[..length] != PREFACE[..length] {
        return Some(Arrival::Ready);
    }
    let since = timer::now_us();
    // Boxed because only HTTP/2 clients, and clients that send their first bytes one by one, get here.
    match Box::pin(await_it(client)).await {
        PrefaceKind::Preface => None,
        PrefaceKind::Else => Some(Arrival::Begun { since, late: false }),
        PrefaceKind::Late => Some(Arrival::Begun { since, late: true }),
    }
}

/// The kind of the first bytes.
enum PrefaceKind {
    Preface,
    Else,
    /// Still undecided when the time limit expired.
    Late,
}

/// Waits for the rest of the preface. The time limit is the same as for the head of a request.
async fn await_it(client: &mut Client) -> PrefaceKind {
    let http1_alone = handshake::bind(client).is_some_and(|bind| bind.http1_alone);
    if client.frontend.options.disable_h2_upgrade || http1_alone {
        return PrefaceKind::Else;
    }
    let timeouts = &client.frontend.timeouts;
    client.timer.set_after(timer::now_ms(), timeouts.http_request.or(timeouts.client));
    loop {
        let received = client.side.received();
        let length = received.len().min(PREFACE.len());
        if received[..length] != PREFACE[..length] {
            return PrefaceKind::Else;
        }
        if length == PREFACE.len() {
            return PrefaceKind::Preface;
        }
        let watch = Watch { leaving: false, late: Fault::RequestTimeout };
        let more = |client: &mut Client, context: &mut Context<'_>| -> Poll<_> { client.poll_fill(context) };
        match client.wait(watch, more).await {
            Ok(Ok(1..)) => {}
            Err(Fault::RequestTimeout) => return PrefaceKind::Late,
            // An error will occur again when the request is received.
            _ => return PrefaceKind::Else,
        }
    }
}
