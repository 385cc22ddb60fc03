//! The end of a request or stream: updates counters and averages. `report` writes the log line.

use base::clock::WallTime;
use base::event_counter;
use base::event_counter::EventCounter;
use http::ParseError;
use plan::Proxy;
use plan::global::LatencyHistograms;
use runtime::timer::{self, now_us};
use sample::track::{self, CountedEvent, Trackers};
use sample::{Cause, LogOrigin, Phase};
use state::durations::{BucketedTimes, CellTimes, Durations, Exemplar, RequestTimes};
use state::errors::Captured;
use state::process::ProcessCounters;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::attributes;
use crate::exchange::compression;
use crate::exchange::report;
use crate::exchange::trace;
use crate::exchange::tracing;

pub(crate) static MALFORMED: EventCounter =
    event_counter!(Glitch, "note_malformed()", "malformed HTTP/1 message kept for `show errors`");

/// Updates the counters for the request and writes its log line.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
pub(crate) fn finish(client: &mut Client, x: &mut Exchange) {
    trace::filter::end(x);
    if x.txn.times.closed == 0 {
        x.txn.times.closed = now_us();
    }
    let (bytes_in, bytes_out) = (x.txn.bytes_in, x.txn.bytes_out);
    let now_ms = x.txn.times.closed / 1000;
    count_bytes(client, Moved::of(x), bytes_in, bytes_out, now_ms);
    let frontend = client.frontend.state.frontend.mine();
    let (from_client, from_server) = (x.upload.spliced, x.download.spliced);
    if from_client + from_server > 0 {
        frontend.traffic.spliced_in.add(from_client);
        frontend.traffic.spliced_out.add(from_server);
        let backend = x.backend.as_ref().map(|backend| &backend.state.backend.mine().traffic);
        let server = x.txn.server.as_ref().map(|server| &server.counters.mine().traffic);
        for traffic in backend.into_iter().chain(server) {
            traffic.spliced_in.add(from_server);
            traffic.spliced_out.add(from_client);
        }
    }
    // A request without an answer is counted under "other" codes. A connection that was closed without sending anything made no
    // request.
    let counts = x.txn.is_http && (x.txn.status > 0 || !x.txn.request.method().is_empty());
    if counts {
        frontend.traffic.responses.add(x.txn.status);
    }
    // This includes requests that were answered without a server.
    let was_request = !x.txn.is_http || !x.txn.request.method().is_empty();
    let times = step_durations(x);
    let has_histograms = was_request && client.worker.shared.plan.global.counts_only_classic;
    let bucketed = has_histograms.then(|| BucketedTimes::new(&times));
    if let Some(times) = &bucketed {
        client.frontend.state.durations.frontend.add(times);
    } else if was_request {
        count_otherwise(client, x, &times);
    }
    let termination = &x.txn.termination;
    let by_frontend = x.backend.as_ref().is_none_or(|backend| backend.index == client.frontend.index);
    if by_frontend && termination.cause == Cause::Local && termination.phase == Phase::Request {
        frontend.intercepted.add(1);
    }
    if let Some(backend) = &x.backend {
        let of_backend = backend.state.backend.mine();
        of_backend.traffic.sessions.down();
        if counts {
            of_backend.traffic.responses.add(x.txn.status);
        }
        if let Some(times) = &bucketed {
            backend.state.durations.backend.add(times);
        }
        if let Some(server) = &x.txn.server {
            // As in HAProxy, this counts only answered requests, because the duration of failures would distort the average.
            let answered = if x.txn.is_http { x.txn.times.response } else { x.txn.times.connected };
            if answered > 0 {
                let times = times.map(|us| us.unwrap_or(0) / 1000);
                of_backend.times.add(times);
                server.counters.mine().times.add(times);
            }
            if let Some(times) = &bucketed {
                server.durations.add(times);
            }
        }
    }
    compression::count(client, x);
    report::close_cookie_states(client, x);
    if was_request {
        crate::exchange::unique_id::make(client, x);
    } else {
        report::no_request(client, x);
    }
    if client.frontend.trace_to.is_some() && was_request && tracing::end(client, x) {
        note_exemplars(client, x);
    }
    if was_request && !x.txn.logged_early {
        report::step(client, x, LogOrigin::Close);
    }
}

/// Counts the times in the histograms that exist, unless these are only the classic ones.
#[inline(never)]
fn count_otherwise(client: &Client, x: &Exchange, times: &RequestTimes) {
    let global = &client.worker.shared.plan.global;
    let count: &dyn Fn(&Durations) = match global.latency_histograms {
        LatencyHistograms::Off => return,
        LatencyHistograms::On => {
            let times = BucketedTimes::new(times);
            &move |durations| durations.add(&times)
        }
        LatencyHistograms::Native => {
            let times = CellTimes::new(times);
            &move |durations| durations.add_native(&times)
        }
    };
    count(&client.frontend.state.durations.frontend);
    if let Some(backend) = &x.backend {
        count(&backend.state.durations.backend);
        if let Some(server) = &x.txn.server {
            count(&server.durations);
        }
    }
    if global.counts_by_attributes && x.txn.is_http {
        attributes::count(client, x);
    }
}

/// Makes a request the exemplar of its buckets if its spans are exported.
#[inline(never)]
fn note_exemplars(client: &Client, x: &Exchange) {
    let Some(trace) = &x.txn.trace else { return };
    if client.worker.shared.plan.global.latency_histograms == LatencyHistograms::Off {
        return;
    }
    let times = BucketedTimes::new(&step_durations(x));
    let took = x.txn.times.closed.saturating_sub(x.txn.times.started);
    let request = Exemplar {
        trace: *trace.trace.bytes(),
        span: *trace.span.bytes(),
        us: 0,
        ended_ms: (x.txn.times.started_wall + took) / 1000,
    };
    client.frontend.state.durations.frontend.note_exemplar(&times, &request);
    if let Some(backend) = &x.backend {
        backend.state.durations.backend.note_exemplar(&times, &request);
        if let Some(server) = &x.txn.server {
            server.durations.note_exemplar(&times, &request);
        }
    }
}

/// The counters to update with transferred bytes, and the bytes that were already counted.
pub(crate) struct Moved<'a> {
    pub(crate) counted: &'a mut (u64, u64),
    pub(crate) backend: Option<&'a Proxy>,
    pub(crate) server: Option<&'a state::Server>,
    /// The table entries tracked by the request.
    pub(crate) trackers: Option<&'a Trackers>,
    /// Whether a server answers the stream.
    pub(crate) answered: bool,
}

impl<'a> Moved<'a> {
    pub(crate) fn of(x: &'a mut Exchange) -> Self {
        Self {
            counted: &mut x.counted,
            backend: x.backend.as_ref().map(|backend| &***backend),
            server: x.txn.server.as_deref(),
            trackers: Some(&x.txn.trackers),
            answered: !x.txn.is_http || x.txn.server_status > 0,
        }
    }
}

/// Counts the bytes that the stream transferred until `now_ms` and that were not counted yet. `bytes_in` and `bytes_out` are
/// totals.
fn count_bytes(client: &Client, moved: Moved<'_>, bytes_in: u64, bytes_out: u64, now_ms: u64) {
    let new_in = bytes_in.saturating_sub(moved.counted.0);
    let new_out = bytes_out.saturating_sub(moved.counted.1);
    *moved.counted = (bytes_in, bytes_out);
    let process = client.worker.shared.process.counters.mine();
    process.bytes_out.add(new_out);
    process.bytes_out_rate.tick_by(now_ms, ProcessCounters::rate_units(new_out));
    let frontend = client.frontend.state.frontend.mine();
    let backend = moved.backend.map(|backend| &backend.state.backend.mine().traffic);
    let server = moved.server.map(|server| &server.counters.mine().traffic);
    // Without a backend, no server was reached.
    let server = backend.and(server);
    let listener = client.session.listener.mine();
    if let Some(trackers) = moved.trackers {
        track::note(&client.session, trackers, CountedEvent::BytesIn(new_in), now_ms);
        // The bytes of a generated response do not come from a server.
        if moved.answered {
            track::note(&client.session, trackers, CountedEvent::BytesOut(new_out), now_ms);
        }
    }
    let of_listener = listener.map(|listener| &listener.traffic);
    for traffic in [Some(&frontend.traffic), of_listener, backend, server].into_iter().flatten() {
        traffic.bytes_in.add(new_in);
        traffic.bytes_out.add(new_out);
    }
    if server.is_none() || !moved.answered {
        let of_listener = listener.map(|listener| &listener.unrelayed);
        for unrelayed in [Some(&frontend.unrelayed), of_listener].into_iter().flatten() {
            unrelayed.bytes_in.add(if server.is_none() { new_in } else { 0 });
            unrelayed.bytes_out.add(new_out);
        }
    }
}

/// `option contstats`: counts the bytes that a running stream has transferred so far.
pub(crate) fn count_moved(client: &Client, moved: Moved<'_>, bytes_in: u64, bytes_out: u64) {
    let entry = &client.entry;
    entry.bytes_in.set(bytes_in);
    entry.bytes_out.set(bytes_out);
    entry.active_ms.set(timer::now_ms());
    if client.frontend.options.contstats {
        count_bytes(client, moved, bytes_in, bytes_out, timer::now_ms());
    }
}

/// Returns the queue, connect, response and total times in µs. Steps that were not completed are `None`.
#[inline(always)]
fn step_durations(x: &Exchange) -> RequestTimes {
    let times = &x.txn.times;
    // The time that a TCP stream waited for its rules counts as queue time.
    let ready = if x.txn.is_http { times.request } else { times.idle_from };
    let between = |from: u64, to: u64| (from > 0 && to > 0).then(|| to.saturating_sub(from));
    let total = between(times.started, times.closed);
    if x.txn.server.is_none() {
        return [None, None, None, total];
    }
    [
        between(ready, times.queued),
        between(times.queued, times.connected),
        between(times.connected, times.response),
        total,
    ]
}

/// Stores a malformed message from the client, or from `sender`, for `show errors`.
pub(crate) fn note_malformed(
    client: &Client,
    sender: Option<(usize, &state::Server)>,
    bytes: &[u8],
    error: &ParseError,
) {
    MALFORMED.note();
    let shared = &client.worker.shared;
    let backend = sender.map(|(backend, _)| backend);
    let proxy = backend.map_or(&**client.frontend, |index| &*shared.proxies[index].plan);
    let named = |proxy: &state::Proxy| (proxy.name.clone(), proxy.id);
    let captured = Captured {
        when: WallTime::now(),
        reason: error.kind.text(),
        frontend: named(&client.frontend.state),
        backend: backend.map(|index| named(&shared.proxies[index].plan.state)),
        server: sender.map(|(_, server)| (server.name.to_string().into(), server.id)),
        source: client.session.source().address(),
        session: client.session.id,
        position: error.offset,
        bytes: bytes.to_vec(),
        ..Captured::default()
    };
    shared.process.errors.capture(proxy.state.id, backend.is_some(), captured);
}
