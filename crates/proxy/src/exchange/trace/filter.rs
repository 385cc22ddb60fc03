//! `filter trace`: reports the steps of an exchange or a TCP stream to [`Trace`]. Without such a filter, each step costs one
//! comparison.

use std::rc::Rc;
use std::sync::Arc;

use plan::Proxy;
use plan::filter::TraceFilter;

use crate::exchange::Exchange;
use crate::flow::{Analyser, Trace, Watcher, bit};

fn watchers(proxy: &Proxy, of_backend: bool) -> Vec<Watcher> {
    let watcher = |filter: &Arc<TraceFilter>| Watcher {
        filter: filter.clone(),
        proxy: proxy.state.name.clone(),
        of_backend,
        heads: [None, None],
    };
    proxy.traces.iter().map(watcher).collect()
}

/// Combines the bits for which the condition is true.
fn bits(all: &[(bool, u32)]) -> u32 {
    all.iter().filter(|(holds, _)| *holds).map(|(_, bits)| bits).sum()
}

/// A stream begins: for TCP when its connection was accepted, for HTTP when its request is complete.
#[inline]
pub(crate) fn begin(x: &mut Exchange, frontend: &Proxy) {
    if !frontend.traces.is_empty() {
        start(x, frontend);
    }
}

#[cold]
fn start(x: &mut Exchange, frontend: &Proxy) {
    // The trace of the TCP stream ends when the stream becomes HTTP.
    end(x);
    let http = x.txn.is_http;
    let steps = bits(&[
        (true, bit::START_FRONTEND | bit::REQUEST_DATA | bit::REQUEST_END | Analyser::Switch.bit()),
        (!frontend.tcp_request.is_empty(), Analyser::InspectFrontend.bit()),
        (http, Analyser::WaitRequest.bit() | Analyser::ProcessFrontend.bit()),
    ]);
    let trace = Trace::begin(x.txn.id, http, watchers(frontend, false), steps);
    x.trace = Some(Rc::new(trace));
}

/// The request's head was received. `waits_for_body` indicates whether rules wait for its body.
#[inline]
pub(crate) fn received(x: &Exchange, waits_for_body: bool) {
    if let Some(trace) = &x.trace {
        if waits_for_body {
            trace.expect(Analyser::RequestBody.bit());
        }
        trace.leave(Analyser::WaitRequest);
        trace.enter(Analyser::RequestBody);
    }
}

/// The backend is known.
#[inline]
pub(crate) fn backend(x: &mut Exchange, frontend: &Proxy, backend: &Proxy) {
    if x.trace.is_some() || !backend.traces.is_empty() {
        join(x, frontend, backend);
    }
}

#[cold]
fn join(x: &mut Exchange, frontend: &Proxy, backend: &Proxy) {
    let http = x.txn.is_http;
    let is_other = backend.index != frontend.index;
    let joining = if is_other { watchers(backend, true) } else { Vec::new() };
    if x.trace.is_none() {
        x.trace = Some(Rc::new(Trace::begin(x.txn.id, http, Vec::new(), 0)));
    }
    let steps = bits(&[
        (true, bit::REQUEST_DATA | bit::REQUEST_END),
        (!joining.is_empty(), bit::START_BACKEND),
        (is_other && !backend.tcp_request.is_empty(), Analyser::InspectBackend.bit()),
        (http && is_other, Analyser::ProcessBackend.bit()),
        (http, Analyser::Inner.bit()),
        (!backend.use_servers.is_empty(), Analyser::ServerRules.bit()),
        (!http && backend.rdp_persistence.is_some(), Analyser::RdpCookie.bit()),
    ]);
    if let Some(trace) = &x.trace {
        trace.backend(&backend.state.name, joining, steps);
    }
}

/// A step begins.
#[inline]
pub(crate) fn enter(x: &Exchange, step: Analyser) {
    if let Some(trace) = &x.trace {
        trace.enter(step);
    }
}

/// A step has ended.
#[inline]
pub(crate) fn leave(x: &Exchange, step: Analyser) {
    if let Some(trace) = &x.trace {
        trace.leave(step);
    }
}

/// A server was chosen, and the request is sent.
#[inline]
pub(crate) fn forwards_request(x: &Exchange) {
    if let Some(trace) = &x.trace {
        trace.pass(&[Analyser::ServerRules]);
        trace.forwards_request();
        trace.pass(&[Analyser::RdpCookie]);
    }
}

/// The first bytes or the response head were received from the server.
#[inline]
pub(crate) fn response(x: &mut Exchange, backend: &Proxy) {
    if let Some(trace) = &x.trace {
        if x.upload.is_finished() {
            // The end of the upload has already been traced.
            x.upload.remove_gates();
        }
        trace.response(bits(&[
            (!backend.traces.is_empty(), bit::RESPONSE_START_BACKEND),
            (!backend.tcp_response.is_empty(), Analyser::InspectResponse.bit()),
            (x.txn.is_http, Analyser::WaitResponse.bit() | Analyser::ProcessResponse.bit()),
        ]));
    }
}

/// The response's head was received, and the HTTP rules run next.
#[inline]
pub(crate) fn process_response(x: &Exchange) {
    if let Some(trace) = &x.trace {
        trace.pass(&[Analyser::WaitResponse]);
        trace.enter(Analyser::ProcessResponse);
    }
}

/// The response is forwarded to the client.
#[inline]
pub(crate) fn forwards_response(x: &Exchange) {
    if let Some(trace) = &x.trace {
        trace.forwards_response();
    }
}

/// The stream is over.
#[inline]
pub(crate) fn end(x: &mut Exchange) {
    if let Some(trace) = x.trace.take() {
        x.upload.remove_gates();
        x.download.remove_gates();
        trace.end();
    }
}
