//! The trace contexts of requests (`trace-to`). The hooks, in the order in which a request reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | begin | [`begin`] reads the context of the sender, decides about sampling, and sets `traceparent` for the server |
//! | rules | [`clock`], [`step`], [`cache`] and [`extend`] record queries to agents, scripts and cache lookups |
//! | queue | [`step`] |
//! | each attempt | [`attempt`], [`attempt_failed`]; [`hedge_won`] and [`hedge_lost`] for a second server |
//! | end | [`end`] decides about requests that failed or were slow, and passes the spans to the collector's queue ([`spans`]) |
//!
//! Without `trace-to`, each hook costs one comparison.

mod spans;

use std::sync::LazyLock;

use base::clock::WallTime;
use http::{KnownName, Name};
use otlp::{TraceId, TraceParent};
use plan::telemetry::{ParentUse, TelemetrySection};
use runtime::timer::now_us;
use sample::Cause;
use sample::request_trace::{RequestTrace, StepRecord};

use crate::client::Client;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::server::per_worker::LocalServer;

static TRACEPARENT: LazyLock<Name> = LazyLock::new(|| Name::new(b"traceparent"));
static TRACESTATE: LazyLock<Name> = LazyLock::new(|| Name::new(b"tracestate"));

/// Begins the trace of a request or a TCP stream, for a frontend with `trace-to`.
#[inline(never)]
pub(crate) fn begin(client: &Client, x: &mut Exchange) {
    let Some(section) = &client.frontend.trace_to else { return };
    let settings = &section.tracing;
    let received = if x.txn.is_http { received(x) } else { (false, None) };
    let parent = received.1.filter(|_| settings.parent != ParentUse::Ignore);
    let sampled = |trace: &TraceId, parent: Option<&TraceParent>| match (settings.parent, parent) {
        (ParentUse::Follow, Some(parent)) => parent.sampled,
        _ => settings.ratio.takes(trace),
    };
    let mut trace = RequestTrace::begin(parent, sampled);
    trace.records |= settings.keeps_any();
    if x.txn.is_http {
        let head = &mut x.txn.request;
        // Without a valid `traceparent`, `tracestate` has no meaning (W3C Trace Context, 4.2).
        let (has_parent, received) = received;
        let has_state = parent.is_some() && {
            let states = head.indices(&TRACESTATE).filter_map(|index| head.value_at(index));
            otlp::read_tracestate(states, &mut trace.state)
        };
        if !has_state {
            head.remove_all(&TRACESTATE);
        }
        let onward = trace.onward().write();
        if received.is_some() {
            head.set(&TRACEPARENT, &onward);
        } else {
            if has_parent {
                // The field is malformed, or there are several.
                head.remove_all(&TRACEPARENT);
            }
            head.append_named(&TRACEPARENT, &onward);
        }
    }
    if trace.records {
        note_request(client, x, &mut trace);
    }
    x.txn.trace = Some(Box::new(trace));
}

/// Records the parts of the request that rules may change, and the wall-clock time.
fn note_request(client: &Client, x: &mut Exchange, trace: &mut RequestTrace) {
    note_wall_time(x);
    if !x.txn.is_http {
        return;
    }
    let (head, kept) = (&x.txn.request, &mut x.txn.kept);
    if let Some(host) = head.get_known(KnownName::Host) {
        let start = kept.len() as u32;
        kept.extend_from_slice(host);
        trace.host = Some((start, kept.len() as u32));
    }
    if x.txn.request_line.is_none() {
        let start = kept.len();
        head.write_start_line(kept);
        let longest = client.worker.shared.plan.global.tune.log_uri_length;
        kept.truncate((kept.len() - 2).min(start + longest));
        x.txn.request_line = Some((start as u32, kept.len() as u32));
    }
}

/// Returns whether the request has a context, and the context if there is exactly one and it is valid.
fn received(x: &Exchange) -> (bool, Option<TraceParent>) {
    let head = &x.txn.request;
    let mut found = head.indices(&TRACEPARENT);
    let Some(first) = found.next() else { return (false, None) };
    let is_single = found.next().is_none();
    (true, head.value_at(first).filter(|_| is_single).and_then(TraceParent::parse))
}

/// Returns the time in µs if the steps of the request are recorded, otherwise 0.
#[inline]
pub(crate) fn clock(x: &Exchange) -> u64 {
    match &x.txn.trace {
        Some(trace) if trace.records => now_us(),
        _ => 0,
    }
}

/// Records a step that began at `begun` and ends now.
#[inline]
pub(crate) fn step(x: &mut Exchange, kind: &'static str, name: &str, begun: u64, failed: bool) {
    if let Some(trace) = &mut x.txn.trace
        && trace.records
    {
        trace.step(StepRecord { kind, name: name.into(), started: begun, ended: now_us(), failed });
    }
}

/// Records a cache lookup that began at `begun`.
#[cold]
pub(crate) fn cache(x: &mut Exchange, begun: u64) {
    let name: Box<str> = x.caching.as_ref().map_or_else(Box::default, |own| own.store.settings.name.clone());
    step(x, "cache", &name, begun, false);
}

/// Extends the latest step of this kind to the present, because the step had to wait.
#[cold]
pub(crate) fn extend(x: &mut Exchange, kind: &'static str, failed: bool) {
    if let Some(trace) = &mut x.txn.trace
        && let Some(step) = trace.steps.last_mut().filter(|step| step.kind == kind)
    {
        (step.ended, step.failed) = (now_us(), failed);
    }
}

/// Records the beginning of an attempt to reach `server`. Each attempt has its own span, and `traceparent` names that span.
#[inline]
pub(crate) fn attempt(x: &mut Exchange, server: &LocalServer) {
    if x.txn.trace.is_some() {
        begin_attempt(x, server);
    }
}

fn begin_attempt(x: &mut Exchange, server: &LocalServer) {
    let Some(trace) = &mut x.txn.trace else { return };
    let is_further = !trace.attempts.is_empty() || x.txn.retries > 0;
    if is_further {
        trace.renew_span();
    }
    let onward = trace.onward();
    let begun = if is_further { now_us() } else { x.txn.times.queued };
    trace.attempt(server.held.clone(), begun);
    let head = &mut x.txn.request;
    // A rule may have removed the header.
    if is_further && x.txn.is_http && head.indices(&TRACEPARENT).next().is_some() {
        head.set(&TRACEPARENT, &onward.write());
    }
}

/// Records the failure of all running attempts.
#[cold]
pub(crate) fn attempt_failed(x: &mut Exchange, fault: Fault) {
    let connected = x.txn.times.connected;
    let Some(trace) = &mut x.txn.trace else { return };
    for attempt in trace.attempts.iter_mut().filter(|attempt| attempt.ended == 0) {
        attempt.ended = now_us();
        attempt.connected = if connected >= attempt.started { connected } else { 0 };
        match fault {
            Fault::RetryStatus(status) => attempt.status = status,
            fault => attempt.error = Some(fault.error_type()),
        }
    }
}

/// Records that the second of two simultaneous attempts has the response.
#[cold]
pub(crate) fn hedge_won(x: &mut Exchange) {
    let Some(trace) = &mut x.txn.trace else { return };
    if let [.., first, _] = &mut trace.attempts[..] {
        first.ended = now_us();
        first.error.get_or_insert("cancelled");
    }
}

/// Records that the second of two simultaneous attempts has failed or is not needed.
#[cold]
pub(crate) fn hedge_lost(x: &mut Exchange, error: &'static str) {
    let Some(trace) = &mut x.txn.trace else { return };
    if let Some(second) = trace.attempts.last_mut() {
        second.ended = now_us();
        second.error = Some(error);
    }
}

/// Decides whether the spans of a request are exported, and queues them. Returns whether they were queued.
#[inline(never)]
pub(crate) fn end(client: &Client, x: &mut Exchange) -> bool {
    let Some(section) = &client.frontend.trace_to else { return false };
    if x.txn.trace.is_none() {
        // A malformed request has no context, but its failure may still be of interest.
        begin_without_head(section, x);
    }
    let Some(mut trace) = x.txn.trace.take() else { return false };
    let settings = &section.tracing;
    let took = x.txn.times.closed.saturating_sub(x.txn.times.started);
    let is_slow = settings.keeps_slower_than.is_some_and(|limit| took >= limit);
    trace.kept = trace.sampled || is_slow || settings.keeps_errors && is_failure(x);
    x.txn.trace = Some(trace);
    if !x.txn.trace.as_ref().is_some_and(|trace| trace.kept) {
        return false;
    }
    note_wall_time(x);
    spans::queue(client, x, section)
}

/// Records the wall-clock time at which the request began. Otherwise, this time is read only for logs.
fn note_wall_time(x: &mut Exchange) {
    let times = &mut x.txn.times;
    if times.started_wall == 0 {
        let since = now_us().saturating_sub(times.started);
        times.started_wall = WallTime::now().since_1970_us().saturating_sub(since);
    }
}

#[cold]
fn begin_without_head(section: &TelemetrySection, x: &mut Exchange) {
    let sampled = |trace: &TraceId, _: Option<&TraceParent>| section.tracing.ratio.takes(trace);
    x.txn.trace = Some(Box::new(RequestTrace::begin(None, sampled)));
}

/// Whether the request failed because of the server or the proxy.
fn is_failure(x: &Exchange) -> bool {
    x.txn.status >= 500 || failure_type(x.txn.termination.cause).is_some_and(|(_, is_client)| !is_client)
}

/// Returns the type of an abnormal end, and whether the client caused it.
pub(crate) fn failure_type(cause: Cause) -> Option<(&'static str, bool)> {
    Some(match cause {
        Cause::Client => ("client_aborted", true),
        Cause::ClientTimeout => ("client_timeout", true),
        Cause::Server => ("server_aborted", false),
        Cause::ServerTimeout => ("server_timeout", false),
        Cause::Resource => ("resource_exhausted", false),
        Cause::Internal => ("internal_error", false),
        Cause::Down => ("server_down", false),
        Cause::Up => ("server_up", false),
        Cause::Killed => ("killed", false),
        Cause::None | Cause::Local | Cause::Proxy => return None,
    })
}
