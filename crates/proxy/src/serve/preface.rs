//! HTTP/2 in clear text, by prior knowledge (RFC 9113, 3.3): the first bytes of the connection tell
//! it from HTTP/1.

use std::future::poll_fn;
use std::task::{Context, Poll};

use runtime::timer;

use crate::client::{Client, Watch, handshake};
use crate::fault::Fault;

/// What a client that speaks HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether what the client sends first may be the beginning of the preface, as far as it is here.
#[inline]
pub(super) async fn may_be(client: &mut Client) -> bool {
    if client.side.is_drained() {
        // What goes wrong here shows again when the request is received.
        poll_fn(|context| Poll::Ready(client.poll_fill(context).is_ready())).await;
    }
    let received = client.side.received();
    let length = received.len().min(3);
    length > 0 && received[..length] == PREFACE[..length]
}

/// Whether it is: waits for the rest of it, as long as a request's head may take.
pub(super) async fn await_it(client: &mut Client) -> bool {
    let http1_alone = handshake::bind(client).is_some_and(|bind| bind.http1_alone);
    if client.frontend.options.disable_h2_upgrade || http1_alone {
        return false;
    }
    let timeouts = &client.frontend.timeouts;
    client.timer.set_after(timer::now_ms(), timeouts.http_request.or(timeouts.client));
    loop {
        let received = client.side.received();
        let length = received.len().min(PREFACE.len());
        if received[..length] != PREFACE[..length] {
            return false;
        }
        if length == PREFACE.len() {
            return true;
        }
        let watch = Watch { leaving: false, late: Fault::RequestTimeout };
        let more = |client: &mut Client, context: &mut Context<'_>| -> Poll<_> { client.poll_fill(context) };
        // What goes wrong here shows again when the request is received.
        if !matches!(client.wait(watch, more).await, Ok(Ok(1..))) {
            return false;
        }
    }
}
