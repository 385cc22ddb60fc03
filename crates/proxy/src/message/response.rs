//! The response: waiting for its head while the request is still on its way, and forwarding its
//! body. What becomes of the connections afterwards is the matter of
//! [`conclude`](crate::message::conclude).

use state::server::Trouble;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::BodyLength;
use net::splice::Pipe;
use plan::Proxy;
use plan::server::Observe;
use runtime::timer::{self, NEVER, now_us};
use sample::transaction::TimeoutSlot;
use sample::{ConnectionError, Phase};

use crate::client::{Client, Presence};
use crate::exchange::filters;
use crate::exchange::finish::{self, Moved};
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::{Flow, FlowError};
use crate::message::websocket;
use crate::routing::attempt::tell;
use crate::routing::retry;
use crate::server::{NoHead, Refused, Upstream};

/// Deadlines of both sides while bytes flow: only the earlier one is given to the timer.
struct Deadlines {
    client: Option<Duration>,
    server: Option<Duration>,
    client_at: u64,
    server_at: u64,
    /// `option independent-streams` of the frontend and of the backend.
    independent: (bool, bool),
    /// Bytes received from each side when its time was last counted anew.
    seen: (u64, u64),
}

impl Deadlines {
    fn new(client: &Client, x: &Exchange, backend: &Proxy) -> Self {
        Self {
            client: x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client),
            server: server_limit(x, backend),
            client_at: NEVER,
            server_at: NEVER,
            independent: (client.frontend.options.independent_streams, backend.options.independent_streams),
            seen: (u64::MAX, u64::MAX),
        }
    }

    /// Counts anew from `now`: for the client where `client` is waited for, for the server where
    /// `server` is.
    fn restart(&mut self, connection: &Client, now: u64, client: bool, server: bool) {
        let at = |waited: bool, timeout: Option<Duration>| match timeout {
            Some(timeout) if waited => now.saturating_add(timeout.as_millis() as u64),
            _ => NEVER,
        };
        self.client_at = at(client, self.client);
        self.server_at = at(server, self.server);
        connection.timer.set(self.client_at.min(self.server_at));
    }

    /// As [`restart`](Self::restart) after something moved. Where `option independent-streams` says
    /// so, bytes sent to a side do not count as its activity: only those received from it do, or
    /// its taking what had to wait.
    fn moved(&mut self, connection: &Client, x: &Exchange, client: bool, server: bool) {
        let before = (self.client_at, self.server_at);
        self.restart(connection, timer::now_ms(), client, server);
        if self.independent == (false, false) {
            return;
        }
        let seen = (x.upload.received, x.download.received);
        if self.independent.0 && seen.0 == self.seen.0 && !x.download.is_blocked() {
            self.client_at = self.client_at.min(before.0);
        }
        if self.independent.1 && seen.1 == self.seen.1 && !x.upload.is_blocked() {
            self.server_at = self.server_at.min(before.1);
        }
        self.seen = seen;
        connection.timer.set(self.client_at.min(self.server_at));
    }

    /// Whose deadline passed.
    fn expired(&self) -> Expired {
        if self.server_at < self.client_at { Expired::Server } else { Expired::Client }
    }
}

#[derive(PartialEq, Eq)]
enum Expired {
    Client,
    Server,
}

/// How long the server may be silent: no longer, where it was for its whole time while rules looked
/// at what there is of its response.
fn server_limit(x: &Exchange, backend: &Proxy) -> Option<Duration> {
    let whole = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
    if x.response_body.is_silent { Some(Duration::ZERO) } else { whole }
}

/// Whether it is the server that is waited for: for its response once it has the whole request,
/// before that for its taking what is here of it. A client that is slow to send its body is nothing
/// to blame a server for.
fn server_owes(x: &Exchange) -> bool {
    x.upload.is_received() || x.upload.is_blocked()
}

/// Whether more of the request is waited for: not while the server does not take what there is.
fn client_owes(x: &Exchange) -> bool {
    !x.upload.is_received() && !x.upload.is_blocked()
}

/// The wait for the head of a response, while the request is still on its way.
pub(crate) struct Waiting {
    deadlines: Deadlines,
    /// `option abortonclose`: whether the client's ending its side ends the request.
    watch: bool,
    /// With `option independent-streams` the server's time runs whatever it is sent.
    independent: bool,
    /// Whether more of the request was to come when the wait began.
    waits: bool,
    first: bool,
    send_failed: bool,
    client_left: bool,
}

impl Waiting {
    /// The wait begins: the request is about to be sent.
    #[inline]
    pub(crate) fn new(client: &Client, x: &Exchange, backend: &Proxy) -> Self {
        let mut own = Self {
            deadlines: Deadlines::new(client, x, backend),
            watch: x.aborts_on_close(client, backend),
            independent: backend.options.independent_streams,
            waits: !x.upload.is_received(),
            first: true,
            send_failed: false,
            client_left: false,
        };
        let now_ms = x.txn.times.connected.max(x.txn.times.queued) / 1000;
        own.deadlines.restart(client, now_ms, own.waits, own.owes(x));
        own
    }

    /// It goes on, after something else was waited for.
    pub(crate) fn resume(&self, client: &Client) {
        client.timer.set(self.deadlines.client_at.min(self.deadlines.server_at));
    }

    fn owes(&self, x: &Exchange) -> bool {
        server_owes(x) || self.independent
    }

    /// Sends what there is of the request, and receives a head into the transaction, an interim one
    /// too.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        client: &mut Client,
        x: &mut Exchange,
        upstream: &mut Upstream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        if !self.send_failed && !x.upload.is_finished() {
            match poll_upload(client, x, upstream, context) {
                Ok(moved) => {
                    // The deadlines were just set when the request leaves at once.
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
        if !self.client_left && x.upload.is_finished() {
            match client.poll_presence(context) {
                Presence::Here => {}
                Presence::Closed if self.watch => return Poll::Ready(Err(Fault::ClientLeft)),
                // It may be waiting for its response.
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
    let mut waiting = Waiting::new(client, x, backend);
    loop {
        poll_fn(|context| waiting.poll(client, x, upstream, context)).await?;
        if is_final(x) {
            return accept(client, x, backend, upstream);
        }
        pass_on(client, x, upstream).await?;
    }
}

/// Whether the head that was received is the last one of its response.
pub(crate) fn is_final(x: &Exchange) -> bool {
    let status = x.txn.response.status();
    status >= 200 || status == 101
}

/// Passes on an interim response.
pub(crate) async fn pass_on(client: &mut Client, x: &mut Exchange, upstream: &Upstream) -> Result<(), Fault> {
    count_response(upstream, x.txn.response.status());
    interim(client, x).await
}

/// Takes the head of a final response for what it is, unless the request is to be tried again for it.
pub(crate) fn accept(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &Upstream,
) -> Result<(), Fault> {
    // Nobody asked for another protocol, or what is asked in this one is not over yet (RFC 9110
    // section 7.8): the rest of the body would be read as the other protocol.
    let is_too_early = || x.has_body() && !x.upload.is_finished();
    if x.txn.response.status() == 101 && (!x.txn.request.has_upgrade() || is_too_early()) {
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

/// Counts the head of a response at its server, an interim one too.
fn count_response(upstream: &Upstream, status: u16) {
    let counters = upstream.server().state.counters.mine();
    counters.traffic.responses.add(status);
    counters.requests_total.add(1);
}

/// Moves the request on; says whether anything moved.
#[inline]
fn poll_upload(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Result<bool, Fault> {
    x.upload.moved = false;
    let before = x.upload.received;
    let pumped = x.upload.poll_pump(context, client.side.source(), &mut upstream.sink());
    x.txn.bytes_in += x.upload.received - before;
    match pumped {
        Poll::Ready(Ok(())) | Poll::Pending => Ok(x.upload.moved),
        Poll::Ready(Err(error)) => Err(upload_fault(client, x, upstream, &error)),
    }
}

#[cold]
fn upload_fault(client: &Client, x: &mut Exchange, upstream: &Upstream, error: &FlowError) -> Fault {
    match *error {
        FlowError::Write(_) if upstream.refused_early() => {
            x.txn.server_error = ConnectionError::TLS_EARLY_FAILED;
            Fault::EarlyRefused
        }
        FlowError::Write(error) => {
            x.txn.server_error = error;
            Fault::SendFailed
        }
        FlowError::Read(error) => {
            client.session.error.set(error);
            Fault::ClientAborted
        }
        FlowError::Coding => Fault::BadRequestBody,
    }
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

/// Takes a head of so many bytes, which is in the transaction by now, out of what was received.
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
    let may_agree = !matches!(upstream, Upstream::Fcgi(_));
    if may_agree && x.txn.response.status() >= 101 && (upstream.is_bare() || x.choice.gave_key) {
        websocket::of_response(x, upstream.is_bare())?;
    }
    if x.choice.is_early {
        // Now that the handshake is over, what it came to is known.
        x.txn.server_tls = upstream.tls().cloned();
    }
    Ok(())
}

/// What it means that no head comes.
#[cold]
pub(crate) fn head_fault(client: &Client, x: &mut Exchange, upstream: &Upstream, none: NoHead) -> Fault {
    if upstream.refused_early() {
        x.txn.server_error = ConnectionError::TLS_EARLY_FAILED;
        return Fault::EarlyRefused;
    }
    let (fault, error) = match none {
        NoHead::Nothing(error) => (Fault::EmptyResponse, error),
        NoHead::Refused => (Fault::Unprocessed, None),
        NoHead::Unspeakable(Refused::Head) => return Fault::Internal,
        NoHead::Unspeakable(Refused::Body) => return Fault::BadRequestBody,
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

/// A response with a breach of the rules that is let pass: kept for `show errors` all the same.
#[cold]
fn note_glitch(client: &Client, upstream: &mut Upstream, breach: &http::ParseError) {
    upstream.note_glitch();
    let server = upstream.server();
    finish::note_malformed(client, Some((server.backend, &server.state)), upstream.received(), breach);
}

/// Forwards an interim response (1xx) as it is, to clients that know of them.
async fn interim(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    if x.txn.response.status() == 100 {
        x.request_body.expects_continue = false;
    }
    if x.txn.request.version().is_11_or_above() {
        let mut bytes = std::mem::take(&mut x.reply.bytes);
        // It has no body, and must not name a length (RFC 9110, 8.6; RFC 9112, 6.1).
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

/// `capture response header`: what the server said, before any rule; rules may put something else
/// in the place of it.
fn capture(client: &Client, x: &mut Exchange) {
    for (index, capture) in client.frontend.response_captures.iter().enumerate() {
        let Some(name) = &capture.header else { continue };
        if let Some(value) = x.txn.response.nth_line(name, -1) {
            let value = value[..value.len().min(capture.length)].to_vec();
            x.txn.response_captures[index] = x.txn.keep(&value);
        }
    }
}

/// Whether the server could not serve a call of gRPC, as it says at once: a response without a body
/// whose head has the status of the call (gRPC over HTTP/2, "Trailers-Only"), 14.
fn is_unavailable(x: &Exchange) -> bool {
    let is_over = matches!(x.response_body.length, BodyLength::None | BodyLength::Length(0));
    let status = http::Name::new(b"grpc-status");
    is_over && x.txn.response.status() == 200 && x.txn.response.get(&status) == Some(b"14")
}

fn note_head(x: &mut Exchange, upstream: &Upstream) {
    x.txn.times.response = now_us();
    x.txn.has_response = true;
    // Rules do not see what is between the server and us.
    x.txn.response.clean_connection();
    x.txn.response.watch_framing();
    let method = x.txn.request.method_id();
    x.response_body.length = upstream.body_length(&x.txn.response, method);
    x.response_body.is_bare = upstream.is_bare();
    x.is_tunnel = x.txn.response.is_tunnel(method);
    let status = x.txn.response.status();
    x.txn.server_status = status;
    x.txn.status = status;
    // A refusal to do what a client asked for is no failure (manual, `observe`): 501 and 505 are
    // such.
    let failed = matches!(status, 500..=599) && !matches!(status, 501 | 505);
    let failed = failed && upstream.server().observe == Observe::Layer7;
    tell(upstream.server(), if failed { Err(Trouble::Status) } else { Ok(()) });
}

/// Forwards the response to the client, and what is left of the request to the server.
pub(crate) async fn forward(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: &mut Upstream,
) -> Result<(), Stop> {
    x.phase = Phase::Data;
    x.answered = true;
    let mut deadlines = Deadlines::new(client, x, backend);
    // A client that ended its side may well wait for a response that only ends with its connection.
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
                // The server no longer listens; what it says still counts.
                Err(Fault::SendFailed) => upload_failed = true,
                Err(fault) => return Poll::Ready(Err(fault)),
            }
        }
        if !x.download.is_finished() {
            // What `conclude::after_response` does then, in the same turn.
            x.download.ends = !x.keep_alive && x.upload.is_finished();
            match poll_download(client, x, upstream, context) {
                // Only the sender's word tells the end of such a body from a connection cut off.
                Poll::Ready(Ok(())) if endless && upstream.is_cut_off() => {
                    return Poll::Ready(Err(Fault::Truncated));
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
            }
        }
        // An answer that came early is complete; the request still has to be, for the connections
        // to go on.
        if x.download.is_finished() && (upload_failed || x.upload.is_finished()) {
            return Poll::Ready(Ok(()));
        }
        if x.download.moved || !armed {
            armed = true;
            let (received, sent) = (x.txn.bytes_in, x.txn.bytes_out + x.download.sent);
            finish::count_moved(client, Moved::of(x), received, sent);
            // Not in one go: the end is to be told by the clock.
            x.txn.times.closed = 0;
            let blocked = x.download.is_blocked();
            let client_waits = blocked || client_owes(x);
            // A server that has said all owes nothing but to take what is left of the request.
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
                // Whoever has left can no longer complain of the server.
                Expired::Server if client_left && !endless => Fault::ClientAborted,
                Expired::Server => Fault::ServerTimeout,
            })
        })
    })
    .await;
    x.txn.bytes_out += x.download.sent;
    if outcome.is_err() {
        x.txn.server_stream = upstream.stream_facts();
        upstream.reset();
        if x.download.is_received() {
            // The server has said all that it had to say: what went wrong is between the client and
            // us.
            x.phase = Phase::Last;
        }
    }
    outcome.map_err(|fault| unsent(x, backend, upstream, fault).into())
}

/// Sends the head where it does not leave as text together with the body, once what is here of the
/// body is known to be good.
///
/// # Errors
/// It is badly coded: nothing was sent.
#[inline]
pub(crate) fn begin(client: &mut Client, x: &mut Exchange, upstream: &mut Upstream) -> Result<(), Fault> {
    if client.side.stages_heads() {
        return Ok(());
    }
    upstream.admit(&mut x.download).map_err(|error| download_fault(client, x, &error))?;
    x.txn.bytes_out += client.side.send_head(&x.txn.response, &mut x.download);
    Ok(())
}

/// The gates and pipes that both directions go through from here on.
fn fit_out(client: &Client, x: &mut Exchange, backend: &Proxy) {
    // Rules on the response may have asked for either direction.
    filters::install(x, true);
    filters::install(x, false);
    if x.upload.gate.is_some() && x.upload.pipe.as_ref().is_some_and(Pipe::is_empty) {
        x.upload.pipe = None;
    }
    x.download.pipe = splice_pipe(client, backend, &x.download, |o| o.splice_response || o.splice_auto);
}

/// A body found to be badly coded before any of the response has left makes the whole a bad
/// response: the client is told.
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
    let pumped = x.download.poll_pump(context, upstream.source(), &mut client.side.sink());
    pumped.map_err(|error| download_fault(client, x, &error))
}

#[cold]
fn download_fault(client: &mut Client, x: &mut Exchange, error: &FlowError) -> Fault {
    match *error {
        FlowError::Write(error) => {
            client.session.error.set(error);
            Fault::ClientAborted
        }
        // A body that only the close ends is complete for what anybody can tell, unless it was a
        // reset.
        FlowError::Read(error) => {
            x.txn.server_error = error;
            Fault::Truncated
        }
        FlowError::Coding if x.phase == Phase::Data => Fault::BadResponseBody,
        FlowError::Coding => Fault::BadResponse(http::ErrorKind::TransferEncoding),
    }
}

/// A pipe for one direction, where the options of either proxy ask for one and the body is worth
/// it.
pub(crate) fn splice_pipe(
    client: &Client,
    backend: &Proxy,
    flow: &Flow,
    wanted: impl Fn(&plan::Options) -> bool,
) -> Option<Pipe> {
    let global = &client.worker.shared.plan.global;
    if flow.gate.is_some()
        || global.no_splice
        || !(wanted(&backend.options) || wanted(&client.frontend.options))
        || !flow.is_long()
    {
        return None;
    }
    Pipe::take(global.tune.pipesize).ok()
}
