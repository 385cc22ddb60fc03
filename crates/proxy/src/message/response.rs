//! The head of the response: waits for it while the request is still being sent, and accepts it.
//! [`download`](crate::message::download) handles the body.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use base::event_counter;
use base::event_counter::EventCounter;
use http::BodyLength;
use plan::Proxy;
use plan::server::Observe;
use runtime::timer::{self, now_us};
use sample::ConnectionError;
use state::server::Trouble;

use crate::client::{Client, Presence};
use crate::exchange::{Exchange, finish};
use crate::fault::Fault;
use crate::message::deadlines::{Deadlines, Expired, client_owes, server_owes};
use crate::message::upload::{self, poll_upload};
use crate::message::websocket;
use crate::routing::attempt::observe;
use crate::routing::retry;
use crate::server::{NoHead, NotExpressible, Upstream};

pub(crate) static LET_PASS: EventCounter =
    event_counter!(Glitch, "note_glitch()", "malformed response accepted because of an option");

/// How many interim responses are forwarded before the task yields.
const INTERIM_A_TURN: u32 = 16;

/// The wait for a response head while the request is still being sent.
pub(crate) struct HeadWait {
    deadlines: Deadlines,
    /// `option abortonclose`: whether the request ends when the client closes its connection.
    watch: bool,
    /// `option independent-streams`: bytes sent to the server do not extend its deadline.
    independent: bool,
    /// Whether the request was incomplete when the wait began.
    waits: bool,
    first: bool,
    /// The number of interim responses so far.
    interim: u32,
    /// Whether the request's head is waiting for room on a shared connection.
    is_held: bool,
    send_failed: bool,
    client_left: bool,
}

impl HeadWait {
    /// Starts the wait when the request is about to be sent.
    #[inline(always)]
    pub(crate) fn new(client: &Client, x: &Exchange, backend: &Proxy) -> Self {
        let mut own = Self {
            deadlines: Deadlines::new(client, x, backend),
            watch: x.aborts_on_close(client, backend),
            independent: backend.options.independent_streams,
            waits: !x.upload.is_received(),
            first: true,
            interim: 0,
            is_held: false,
            send_failed: false,
            client_left: false,
        };
        let now_ms = x.txn.times.connected.max(x.txn.times.queued) / 1000;
        own.deadlines.restart(client, now_ms, own.waits, own.owes(x));
        own
    }

    /// Continues after waiting for something else.
    pub(crate) fn resume(&self, client: &Client) {
        client.timer.set(self.deadlines.client_at.min(self.deadlines.server_at));
    }

    fn owes(&self, x: &Exchange) -> bool {
        server_owes(x) || self.independent
    }

    /// Sends the available part of the request, and receives a head, possibly an interim one, into the transaction.
    // Instantiated twice: for the usual wait, and for the wait with a hedge.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        upstream: &mut Upstream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        if upstream.holds_head() && self.poll_open(client, x, upstream, context).is_pending() {
            return self.poll_end(client, x, context);
        }
        if !self.send_failed && !x.upload.is_finished() {
            match poll_upload(client, x, upstream, context) {
                Ok(moved) => {
                    // If the request was sent immediately, the deadlines have only just been set.
                    let is_set = std::mem::take(&mut self.first) && !self.waits && x.upload.is_finished();
                    if moved && !is_set {
                        let owes = self.owes(x);
                        self.deadlines.moved(client, x, client_owes(x), owes);
                    }
                }
                Err(Fault::SendFailed) => self.send_failed = true,
                Err(Fault::ClientAborted) => return Poll::Ready(Err(Fault::ClientCut)),
                Err(fault) => return Poll::Ready(Err(fault)),
            }
        }
        match poll_head(client, x, upstream, context) {
            Poll::Ready(Err(Fault::EmptyResponse)) if self.send_failed => {
                return Poll::Ready(Err(Fault::SendFailed));
            }
            Poll::Ready(outcome) => return Poll::Ready(outcome),
            Poll::Pending => {}
        }
        self.poll_end(client, x, context)
    }

    /// Forwards an interim response.
    pub(crate) async fn pass_on(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        upstream: &Upstream,
    ) -> Result<(), Fault> {
        count_response(upstream, x.txn.response.status());
        self.interim += 1;
        if self.interim.is_multiple_of(INTERIM_A_TURN) {
            tokio::task::yield_now().await;
        }
        interim(client, x).await?;
        // The server is working, so its timeout restarts (manual, 4.2 `timeout server`).
        let (waits, owes) = (client_owes(x), self.owes(x));
        self.deadlines.restart(client, timer::now_ms(), waits, owes);
        Ok(())
    }

    /// Sends a head that had to wait. The wait counts towards the server's timeout.
    #[cold]
    fn poll_open(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        upstream: &mut Upstream,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let opened = upload::poll_open(client, x, upstream, context);
        if opened.is_pending() != self.is_held {
            self.is_held = opened.is_pending();
            let owes = self.is_held || self.owes(x);
            let waits = !self.is_held && client_owes(x);
            self.deadlines.restart(client, timer::now_ms(), waits, owes);
        }
        opened
    }

    /// Whether the wait ends without a head.
    #[inline(always)]
    fn poll_end(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        let is_watched = x.upload.is_finished() || (self.is_held && client.side.is_bare());
        if !self.client_left && is_watched {
            match client.poll_presence(context) {
                Presence::Here => {}
                Presence::Closed if self.watch => return Poll::Ready(Err(Fault::ClientLeft)),
                // The client may have closed only its write side.
                Presence::Closed => self.client_left = true,
                Presence::Broken => return Poll::Ready(Err(Fault::ClientReset)),
            }
        }
        if let Poll::Ready(fault) = client.poll_killed(context) {
            return Poll::Ready(Err(fault));
        }
        client.timer.poll_expired(context).map(|()| {
            Err(if self.deadlines.expired() == Expired::Client {
                Fault::ClientTimeout
            } else {
                Fault::ResponseTimeout
            })
        })
    }
}

/// Sends the request and receives the head of the final response into the transaction.
pub(crate) async fn await_head(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Fault> {
    let mut waiting = HeadWait::new(client, x, backend);
    loop {
        poll_fn(|context| waiting.poll(client, x, upstream, context)).await?;
        if is_final(x) {
            return accept(client, x, backend, upstream);
        }
        waiting.pass_on(client, x, upstream).await?;
    }
}

/// Whether the received head is the final one of its response.
pub(crate) fn is_final(x: &Exchange) -> bool {
    let status = x.txn.response.status();
    status >= 200 || status == 101
}

/// Accepts the head of a final response, unless its status causes a retry of the request.
#[inline(always)]
pub(crate) fn accept(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &Upstream,
) -> Result<(), Fault> {
    // The server switched to a protocol that the request did not offer, or switched before the request was complete (RFC 9110,
    // section 7.8). It would interpret the rest of the body as the other protocol.
    let request = &x.txn.request;
    let is_asked = || request.has_upgrade() && x.txn.response.switches_as_asked(request);
    let is_too_early = || x.has_body() && !x.upload.is_finished();
    if x.txn.response.status() == 101 && (!is_asked() || is_too_early()) {
        count_response(upstream, 101);
        return Err(Fault::BadResponse(http::ErrorKind::StatusCode));
    }
    note_head(x, upstream);
    if !client.frontend.response_captures.is_empty() {
        capture(client, x);
    }
    let status = x.txn.server_status;
    let again = if backend.retry_on.grpc_unavailable && is_unavailable(x) {
        Fault::Unavailable
    } else {
        Fault::RetryStatus(status)
    };
    if x.txn.retries < retry::most(x, backend)
        && retry::may_retry(x, backend, again)
        && retry::is_affordable(x, backend)
    {
        return Err(again);
    }
    count_response(upstream, status);
    upstream.server().state.counters.mine().request_rate.tick(x.txn.times.response / 1000);
    Ok(())
}

/// Counts the head of a response at its server, including interim responses.
fn count_response(upstream: &Upstream, status: u16) {
    let counters = upstream.server().state.counters.mine();
    counters.traffic.responses.add(status);
    counters.requests_total.add(1);
}

/// Receives the head of a response into the transaction.
#[inline]
fn poll_head(
    client: &Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), Fault>> {
    let options = &client.worker.proxy(upstream.server().backend).response_options;
    let length = match ready!(upstream.poll_head(context, &mut x.txn.response, options)) {
        Ok(length) => length,
        Err(none) => return Poll::Ready(Err(head_fault(client, x, upstream, none))),
    };
    Poll::Ready(take_head(client, x, upstream, length))
}

/// Consumes a head of `length` bytes that has been parsed into the transaction.
#[inline]
pub(crate) fn take_head(
    client: &Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    length: usize,
) -> Result<(), Fault> {
    if let Some(breach) = x.txn.response.violation() {
        note_glitch(client, upstream, &breach);
    }
    x.txn.server_glitches = upstream.glitches();
    if let Err(error) = upstream.check_body(&x.txn.response, x.txn.request.method_id(), length) {
        return Err(head_fault(client, x, upstream, NoHead::Malformed(error)));
    }
    upstream.consume_head(length);
    if upstream.can_upgrade() && x.txn.response.status() >= 101 && (upstream.is_bare() || x.choice.gave_key) {
        websocket::of_response(x, upstream.is_bare())?;
    }
    if x.choice.is_early {
        // The handshake is complete at this point, so its details are available.
        x.txn.server_tls = upstream.tls().cloned();
    }
    Ok(())
}

/// Returns the fault for a response without a head.
#[cold]
pub(crate) fn head_fault(client: &Client, x: &mut Exchange, upstream: &Upstream, none: NoHead) -> Fault {
    if upstream.refused_early() {
        x.txn.server_error = ConnectionError::TLS_EARLY_FAILED;
        return Fault::EarlyRefused;
    }
    let (fault, error) = match none {
        NoHead::Nothing(error) => (Fault::EmptyResponse, error),
        NoHead::Refused => (Fault::Unprocessed, None),
        NoHead::Unspeakable(NotExpressible::Head) => return Fault::Internal,
        NoHead::Unspeakable(NotExpressible::Body) => return Fault::BadRequestBody,
        NoHead::Cut(error) => (Fault::ResponseCut, error),
        NoHead::Malformed(error) => {
            let server = upstream.server();
            finish::note_malformed(
                client,
                Some((server.backend, &server.state)),
                upstream.received(),
                &error,
            );
            return Fault::BadResponse(error.kind);
        }
    };
    if let Some(error) = error {
        x.txn.server_error = ConnectionError::of_kernel(&error);
    }
    fault
}

/// Records a tolerated protocol violation in a response for `show errors`.
#[cold]
fn note_glitch(client: &Client, upstream: &mut Upstream, breach: &http::ParseError) {
    LET_PASS.note();
    upstream.note_glitch();
    let server = upstream.server();
    finish::note_malformed(client, Some((server.backend, &server.state)), upstream.received(), breach);
}

/// Forwards an interim response (1xx) unchanged if the client supports it.
async fn interim(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    if x.txn.response.status() == 100 {
        x.request_body.expects_continue = false;
    }
    if x.txn.request.version().is_11_or_above() {
        let mut bytes = std::mem::take(&mut x.reply.bytes);
        // An interim response has no body, and must not have a length (RFC 9110, 8.6; RFC 9112, 6.1).
        x.txn.response.remove_body_length();
        let written = client.send_interim(&x.txn.response, &mut bytes).await;
        x.txn.bytes_out += bytes.len() as u64;
        bytes.clear();
        x.reply.bytes = bytes;
        written?;
    }
    x.txn.response.clear();
    Ok(())
}

/// `capture response header`: captures the values that the server sent, before any rule runs. Rules may replace them.
fn capture(client: &Client, x: &mut Exchange) {
    for (index, capture) in client.frontend.response_captures.iter().enumerate() {
        let Some(name) = &capture.header else { continue };
        if let Some(value) = x.txn.response.nth_line(name, -1) {
            let value = value[..value.len().min(capture.length)].to_vec();
            x.txn.response_captures[index] = x.txn.keep(&value);
        }
    }
}

/// Whether the server reported that it could not serve a gRPC call (status 14) in the head of a response without a body (gRPC
/// over HTTP/2, "Trailers-Only").
fn is_unavailable(x: &Exchange) -> bool {
    let is_over = matches!(x.response_body.length, BodyLength::None | BodyLength::Length(0));
    let status = http::Name::new(b"grpc-status");
    is_over && x.txn.response.status() == 200 && x.txn.response.get(&status) == Some(b"14")
}

fn note_head(x: &mut Exchange, upstream: &Upstream) {
    x.txn.times.response = now_us();
    x.txn.has_response = true;
    // Fields that concern only the connection between the server and Weir are hidden from rules.
    x.txn.response.clean_connection();
    x.txn.response.watch_framing();
    let method = x.txn.request.method_id();
    x.response_body.length = upstream.body_length(&x.txn.response, method);
    x.response_body.is_bare = upstream.is_bare();
    x.is_tunnel = x.txn.response.is_tunnel(method);
    let status = x.txn.response.status();
    x.txn.server_status = status;
    x.txn.status = status;
    // A server that rejects a client's request has not failed (manual, `observe`). 501 and 505 are such rejections.
    let failed = matches!(status, 500..=599) && !matches!(status, 501 | 505);
    let failed = failed && upstream.server().observe == Observe::Layer7;
    observe(upstream.server(), if failed { Err(Trouble::Status) } else { Ok(()) });
}
