//! Sends the request to the server: the head in the server's protocol, then the body. Buffers the part of the body that must
//! arrive first (`option http-buffer-request`, rules that inspect it, retries), and sends the request again for a retry.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fcgi::Parameters;
use http::{BodyLength, Head, KnownName, Method};

use plan::Proxy;
use runtime::timer;
use sample::{ConnectionError, Hedged, StreamFacts};

use crate::client::{Client, Watch};
use crate::exchange::filters;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::{Coding, Decoding, Filters, FlowError, Path};
use crate::message::splice::splice_pipe;
use crate::message::wanted::BodyWait;
use crate::message::{compression, fastcgi, inspect, lua};
use crate::server::{NotExpressible, SharedRequest, Upstream};

/// Delays the request until its body has arrived, if configured.
pub(crate) async fn prepare(client: &mut Client, x: &mut Exchange, backend: &Proxy) -> Result<(), Stop> {
    if !x.has_body() {
        return Ok(());
    }
    let buffered = client.frontend.options.http_buffer_request || backend.options.http_buffer_request;
    let by_parameter = matches!(
        backend.balance.algorithm,
        balance::Algorithm::UrlParam { check_post: true, .. } if x.txn.request.method_id() == Method::Post
    );
    let retry = &backend.retry_on;
    let replays = retry.empty_response
        || retry.junk_response
        || retry.response_timeout
        || retry.zero_rtt_rejected
        || retry.grpc_unavailable
        || !retry.statuses.is_empty()
        || backend.balance.hedge.is_some();
    if !(buffered || by_parameter || replays) {
        return Ok(());
    }
    if buffered || by_parameter {
        let allowed = Allowed::of(client, backend);
        Box::pin(hold(client, x, BodyWait::ALL, allowed)).await?;
    }
    // Retries do not require a wait: a body can be sent again only if it had already arrived as a whole.
    if x.request_body.is_bare {
        // The bytes that arrived with the head are still in the stream's buffer.
        poll_fn(|context| {
            while client.side.has_room() && matches!(client.poll_fill(context), Poll::Ready(Ok(1..))) {}
            Poll::Ready(())
        })
        .await;
    }
    look(client, x);
    if replays && x.request_body.is_complete {
        client.side.keep(x.request_body.length, &mut x.request_body.kept);
    }
    Ok(())
}

/// The time limit for a body.
#[derive(Clone, Copy)]
pub(crate) enum Allowed {
    /// The limit for the whole body.
    InAll(Duration),
    /// The limit for each piece.
    EachPiece(Option<Duration>),
}

impl Allowed {
    /// Returns the configured limit: `timeout http-request`, or `timeout client` if that is not set.
    pub(crate) fn of(client: &Client, proxy: &Proxy) -> Self {
        let timeouts = &client.frontend.timeouts;
        let in_all = timeouts.http_request.or(proxy.timeouts.http_request);
        in_all.map_or(Self::EachPiece(timeouts.client), Self::InAll)
    }

    fn time(self) -> Option<Duration> {
        match self {
            Self::InAll(time) => Some(time),
            Self::EachPiece(time) => time,
        }
    }
}

/// Waits until the body is complete, `wanted` bytes of it have arrived or the buffer is full, and decodes the bytes for rules.
/// They are still forwarded with their original coding.
pub(crate) async fn hold(
    client: &mut Client,
    x: &mut Exchange,
    wanted: BodyWait,
    allowed: Allowed,
) -> Result<(), Stop> {
    if !x.has_body() || x.request_body.is_cut {
        x.request_body.is_complete |= !x.request_body.is_cut;
        return Ok(());
    }
    client.timer.set_after(timer::now_ms(), allowed.time());
    answer_expectation(client, x).await?;
    let held = hold_within(client, x, wanted, allowed).await;
    // The time of this wait belongs to the request. A request that failed never became complete.
    x.txn.times.request = if held.is_err() { 0 } else { timer::now_us() };
    held
}

/// Buffers the whole body if its length is unknown, because FastCGI applications need the length. If the client expects a 100
/// before it sends its body, Weir sends one, as HAProxy does.
#[cold]
pub(crate) async fn hold_for_application(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
) -> Result<(), Stop> {
    if x.request_body.length == BodyLength::Chunked && x.has_body() {
        return hold(client, x, BodyWait::ALL, Allowed::of(client, backend)).await;
    }
    Ok(answer_expectation(client, x).await?)
}

/// Waits up to `time` for more of the body; afterwards, rules use the available part. A client timeout is only recorded, because
/// rules run first.
pub(crate) async fn hold_more(client: &mut Client, x: &mut Exchange, time: Duration) -> Result<(), Stop> {
    let until = timer::now_ms().saturating_add(time.as_millis() as u64);
    let silent_at = inspect::client_silent_at(client, x);
    client.timer.set(until.min(silent_at));
    answer_expectation(client, x).await?;
    if client.side.has_room() {
        let more = |client: &mut Client, context: &mut Context<'_>| {
            if let Poll::Ready(read) = client.poll_fill(context) {
                return Poll::Ready(read.map(Some));
            }
            client.timer.poll_expired(context).map(|()| Ok(None))
        };
        let read = client.wait(Watch::KILL, more).await?;
        x.request_body.is_cut |= matches!(read, Err(_) | Ok(Some(0)));
        let seen = x.request_body.seen.len();
        decode(client, x)?;
        if let Ok(None) = read {
            x.request_body.is_late = silent_at <= until;
        } else if x.request_body.seen.len() > seen {
            // Chunk extensions do not count as progress.
            x.request_body.heard_ms = timer::now_ms();
        }
        return Ok(());
    }
    client.pause(time, false).await?;
    decode(client, x)?;
    Ok(())
}

/// Sends a 100 to a client that waits for one, because the body is about to be read.
pub(crate) async fn answer_expectation(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    if !std::mem::take(&mut x.request_body.expects_continue) {
        return Ok(());
    }
    let mut head = Head::new();
    head.start_response(100, None);
    client.send_interim(&head, &mut Vec::new()).await?;
    // The client got its 100 and sends the body, so the request to the server no longer asks for one.
    x.txn.request.remove_known(KnownName::Expect);
    Ok(())
}

/// Waits until this many bytes of the body have arrived or the timer expires.
async fn hold_within(
    client: &mut Client,
    x: &mut Exchange,
    wanted: BodyWait,
    allowed: Allowed,
) -> Result<(), Stop> {
    let length = decoded_length(x);
    let mut decoding = Decoding::default();
    x.request_body.seen.clear();
    let mut seen = usize::MAX;
    loop {
        x.request_body.is_complete = client
            .side
            .beginning()
            .decode_more(length, &mut decoding, &mut x.request_body.seen)
            .map_err(|_| Fault::BadRequestBody)?;
        if let Allowed::EachPiece(time) = allowed
            && x.request_body.seen.len() > seen
        {
            client.timer.set_after(timer::now_ms(), time);
        }
        seen = x.request_body.seen.len();
        let is_enough = x.request_body.is_complete || seen >= wanted.bytes;
        if is_enough || !client.side.has_room() && !client.side.enlarge(wanted.large) {
            return Ok(());
        }
        let watch = Watch { leaving: false, late: Fault::RequestTimeout };
        let read = client.wait(watch, |client, context| client.poll_fill(context)).await?;
        if matches!(read, Err(_) | Ok(0)) {
            // Rules still see the received part. The request fails later, when it is about to be sent to a server.
            x.request_body.is_cut = true;
            return Ok(());
        }
    }
}

/// Makes the received part of the body visible to rules, without waiting for more. Errors are reported when the body is forwarded.
pub(crate) fn look(client: &Client, x: &mut Exchange) {
    if !x.request_body.is_complete && x.has_body() {
        let _ = decode(client, x);
    }
}

/// Decodes the buffered body from its beginning. Buffered bodies are small and rare, so this need not be incremental.
fn decode(client: &Client, x: &mut Exchange) -> Result<(), Fault> {
    let length = decoded_length(x);
    x.request_body.is_complete = client
        .side
        .beginning()
        .decode(length, &mut x.request_body.seen)
        .map_err(|_| Fault::BadRequestBody)?;
    Ok(())
}

/// Returns the length to use for decoding a body. A request body never ends with its connection.
fn decoded_length(x: &Exchange) -> BodyLength {
    match x.request_body.length {
        BodyLength::UntilClose => BodyLength::None,
        length => length,
    }
}

/// Prepares the head to be sent to the server, ahead of the body.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
pub(crate) fn start(client: &mut Client, x: &mut Exchange, backend: &Proxy, upstream: &mut Upstream) {
    let length = x.request_body.length;
    let path = match length {
        _ if x.request_body.is_dropped => Path::Payload(Coding::Nothing),
        BodyLength::Chunked if backend.options.http_drop_request_trailers => Path::Payload(Coding::Chunked),
        length => client.side.path(length, upstream.is_bare()),
    };
    let framing = client.side.framing(length);
    let coding = compression::filter_of_request(client, &mut x.coded);
    let is_scripted = x.filtering.is_some() && lua::body::sees(x, false) && length != BodyLength::None;
    match coding.filter(|_| !x.request_body.is_dropped) {
        coding if is_scripted && !x.request_body.is_dropped => {
            let shown = lua::body::shown(x, false, length, coding.is_some());
            let path = if upstream.is_bare() { Path::Payload(Coding::Bare) } else { Path::Verbatim };
            let path = lua::body::path(shown, path);
            if let Some(filters) = lua::body::filters(x, false, shown, coding) {
                x.upload.start_filtered(framing, path, filters);
            }
        }
        None => x.upload.start(framing, path),
        Some(coding) => {
            let path = Path::Payload(if upstream.is_bare() { Coding::Bare } else { Coding::Chunked });
            if let Some(filters) = Filters::of([coding]) {
                x.upload.start_filtered(framing, path, filters);
            }
        }
    }
    if x.mirrors.is_some() && !x.request_body.is_dropped {
        tap(x, framing, path);
    }
    x.upload.drops_trailers = backend.options.http_drop_request_trailers;
    let staged = &mut x.upload.staged;
    staged.append(&mut x.choice.preamble);
    if let Some(name) = &backend.send_name_header {
        let server = upstream.server();
        x.txn.request.set(&http::Name::new(name), server.state.name.as_bytes());
    }
    match upstream {
        Upstream::Socket(_) => stage(client, x, backend),
        Upstream::Stream(request) => send(client, x, backend, request),
    }
}

/// Stages the head ahead of the body.
#[inline(always)]
fn stage(client: &mut Client, x: &mut Exchange, backend: &Proxy) {
    let staged = &mut x.upload.staged;
    let adjust = &client.worker.shared.plan.global.h1_case_adjust;
    if backend.options.h1_case_adjust_bogus_server && !adjust.is_empty() {
        x.txn.request.write_adjusted(staged, |name| crate::message::fields::adjusted(adjust, name));
    } else {
        x.txn.request.write_to(staged);
    }
    filters::install(client, x, true);
    // The head must be sent first.
    admit(client, x);
    if !x.upload.is_received() {
        let wanted = |options: &plan::ProxyOptions| options.splice_request || options.splice_auto;
        x.upload.pipe = splice_pipe(client, backend, &x.upload, wanted);
    }
}

/// Sends the head on a stream, separately from the body.
fn send(client: &mut Client, x: &mut Exchange, backend: &Proxy, request: &mut SharedRequest) {
    filters::install(client, x, true);
    if request.prepare(x.txn.request.method_id(), || parameters(client, x, backend)) {
        admit(client, x);
        request.send_head(&x.txn.request, x.request_body.length, x.upload.is_finished());
    }
    note_stream(client, x, request.facts());
}

/// Returns the request in FastCGI.
#[cold]
fn parameters(client: &Client, x: &Exchange, backend: &Proxy) -> Result<Parameters, NotExpressible> {
    match &backend.fcgi {
        Some(app) => fastcgi::parameters(client, x, app),
        // Configurations with such a server but without an application in the backend are rejected.
        None => Err(NotExpressible::Head),
    }
}

/// Attaches the readers that copy the body for other backends (`mirror`).
#[cold]
fn tap(x: &mut Exchange, framing: BodyLength, path: Path) {
    let taps = x.mirrors.as_ref().map(|mirrors| &mirrors.taps[..]).unwrap_or_default();
    if taps.is_empty() {
        return;
    }
    let filters = x.upload.filters.take();
    let is_filtered = filters.is_some();
    let filters = Filters::with_taps(filters, taps);
    if is_filtered {
        x.upload.filters = Some(filters);
        return;
    }
    let path = match path {
        Path::Verbatim if framing != BodyLength::Chunked => Path::Payload(Coding::Bare),
        path => path,
    };
    x.upload.start_filtered(framing, path, filters);
}

/// Sends a delayed head, once the server's connection has room for it.
#[cold]
pub(crate) fn poll_open(
    client: &Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &Context<'_>,
) -> Poll<()> {
    ready!(upstream.poll_open(context));
    if let Some(facts) = upstream.stream_facts() {
        note_stream(client, x, facts);
    }
    Poll::Ready(())
}

/// Records the identity of the stream of an attempt.
fn note_stream(client: &Client, x: &mut Exchange, facts: StreamFacts) {
    client.entry.server_stream.set(facts.id);
    x.txn.server_stream = Some(facts);
}

/// Admits the part of the body that arrived with the head. Counts it, unless it was already sent before.
fn admit(client: &mut Client, x: &mut Exchange) {
    // A malformed coding is reported when the body is forwarded.
    let _ = client.side.admit(&mut x.upload);
    if x.txn.retries == 0 && !x.choice.fresh && x.txn.hedged == Hedged::No {
        x.txn.bytes_in += x.upload.received;
    }
}

/// Undoes an attempt's consumption of the body: the client's buffer begins with the whole body again, and none of it counts as
/// consumed. Valid only if [`Exchange::can_rewind`] returns true. Does nothing if the attempt consumed nothing.
pub(crate) fn rewind(client: &mut Client, x: &mut Exchange) {
    if x.upload.consumed() > 0 {
        client.side.put_back(&x.request_body.kept, &x.upload);
    }
    x.upload.start(client.side.framing(x.request_body.length), Path::Verbatim);
}

/// Advances the request. Returns whether there was progress.
#[inline]
pub(crate) fn poll_upload(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Result<bool, Fault> {
    x.upload.moved = false;
    let before = x.upload.received;
    let pumped = lua::pump::poll_upload(client, x, upstream, context);
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
        FlowError::Coding | FlowError::Filter => Fault::BadRequestBody,
    }
}
