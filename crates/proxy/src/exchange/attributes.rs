//! Counts the times of HTTP requests by the attributes that OpenTelemetry's conventions define, for sections with
//! `metrics-interval`.

use http::Method;
use runtime::timer::now_us;
use state::Server;
use state::http_durations::HttpAttributes;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::tracing::failure_type;
use crate::fault::Fault;

/// Counts a finished request at its frontend, and its last attempt at the server.
pub(super) fn count(client: &Client, x: &Exchange) {
    let times = &x.txn.times;
    let failure = failure_type(x.txn.termination.cause).map_or("", |(failure, _)| failure);
    let status = x.txn.status;
    let attributes = HttpAttributes {
        method: method(x),
        status,
        version: match x.txn.client_stream.map(|stream| stream.major) {
            Some(2) => "2",
            Some(_) => "3",
            None => match x.txn.request.version().numbers() {
                (1, 0) => "1.0",
                _ => "1.1",
            },
        },
        is_tls: client.session.tls().is_some(),
        error: if status >= 500 { "" } else { failure },
    };
    let us = times.closed.saturating_sub(times.started);
    client.frontend.state.durations.by_attributes.add(&attributes, us);
    if let Some(server) = &x.txn.server
        && times.queued > 0
    {
        let status = x.txn.server_status;
        let error = if status >= 400 { "" } else { failure };
        attempt(x, server, times.closed, status, error);
    }
}

/// Counts an attempt that failed and is followed by another one.
#[cold]
pub(crate) fn attempt_failed(client: &Client, x: &mut Exchange, server: &Server, fault: Fault) {
    let global = &client.worker.shared.plan.global;
    if !global.counts_by_attributes || !x.txn.is_http {
        return;
    }
    let (status, error) = match fault {
        Fault::RetryStatus(status) => (status, ""),
        fault => (0, fault.error_type()),
    };
    let now = now_us();
    attempt(x, server, now, status, error);
    x.failed_at = now;
}

/// Counts an attempt that ended at `ended` µs.
fn attempt(x: &Exchange, server: &Server, ended: u64, status: u16, error: &'static str) {
    let is_tls = x.txn.server_tls.is_some();
    let attributes = HttpAttributes { method: method(x), status, version: "", is_tls, error };
    let begun = if x.txn.retries == 0 { x.txn.times.queued } else { x.failed_at };
    server.durations_by_attributes.add(&attributes, ended.saturating_sub(begun));
}

/// Returns the method under the name that the conventions define.
fn method(x: &Exchange) -> &'static str {
    let method = x.txn.request.method();
    match Method::from_bytes(method) {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Other => match method {
            b"PATCH" => "PATCH",
            b"QUERY" => "QUERY",
            _ => "_OTHER",
        },
    }
}
