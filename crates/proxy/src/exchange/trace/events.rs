//! The trace points (`trace` on the runtime socket) for connections, requests and TCP streams. While no trace is active, each
//! costs one comparison.
//!
//! `runtime::trace` contains the sources, their events and their sinks.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::Arc;

use runtime::trace::{
    self, Keys, TraceLevel, TraceSource, Verbosity, fcgi, h1, h2, h3, session, ssl, stream,
};
use sample::{ConnectionError, Endpoint};

use crate::client::Client;
use crate::exchange::trace::debug_lines;
use crate::exchange::{Exchange, Stop, faults};
use crate::fault::Fault;
use crate::points::{self, number, of_session};
use crate::server::Upstream;
use crate::stream::WireProtocol;
use crate::stream::h2::H2Engine;

fn of_exchange(client: &Client, x: &Exchange) -> Keys {
    Keys {
        stream: x.txn.id,
        backend: x.backend.as_ref().map_or(0, |backend| number(&*backend.state)),
        server: x.txn.server.as_ref().map_or(0, |server| number(&**server)),
        ..of_session(&client.session)
    }
}

/// Appends part of a message as text.
fn push(out: &mut String, bytes: &[u8]) {
    out.push_str(&String::from_utf8_lossy(bytes));
}

/// Appends the owner of an event.
fn owner(client: &Client, x: Option<&Exchange>, out: &mut String) {
    let session = &client.session;
    let _ = write!(out, "session={:06x} frontend={}", session.id, session.frontend.name);
    match session.source() {
        Endpoint::Ip(address) => out.push_str(&format!(" src={address}")),
        Endpoint::Local => out.push_str(" src=unix"),
        Endpoint::Absent => {}
    }
    let Some(x) = x else { return };
    let _ = write!(out, " stream={}", x.txn.id);
    if let Some(backend) = &x.backend {
        let _ = write!(out, " backend={}", backend.state.name);
    }
    if let Some(server) = &x.txn.server {
        let _ = write!(out, " server={}", server.name);
    }
}

/// Appends the first line of a head, and its fields if the verbosity includes them.
fn head(head: &http::Head, verbosity: Verbosity, out: &mut String) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
    let mut line = Vec::new();
    head.write_start_line(&mut line);
    push(out, line.trim_ascii_end());
    if verbosity.shows_fields() {
        for (name, value) in head.fields() {
            out.push_str(" | ");
            push(out, name);
            out.push_str(": ");
            push(out, value);
        }
    }
}

/// The trace source of a protocol, with its events for requests and responses.
struct Points {
    source: TraceSource,
    /// A request was received.
    request: u64,
    /// A response is being sent.
    answer: u64,
    /// A connection to a server was opened.
    connection: u64,
    /// A request is being sent to a server.
    sent: u64,
    /// A response was received.
    response: u64,
    /// A request failed.
    error: u64,
}

impl Points {
    fn of(protocol: WireProtocol) -> Self {
        match protocol {
            WireProtocol::Http1 => Self {
                source: TraceSource::H1,
                request: h1::RX_HEADERS | h1::STREAM_NEW,
                answer: h1::TX_HEADERS,
                connection: h1::CONNECTION_NEW,
                sent: h1::TX_HEADERS,
                response: h1::RX_HEADERS,
                error: h1::STREAM_ERROR,
            },
            WireProtocol::Http2 => Self {
                source: TraceSource::H2,
                request: h2::frame(1, false) | h2::STREAM_NEW,
                answer: h2::frame(1, true),
                connection: h2::CONNECTION_NEW,
                sent: h2::STREAM_NEW,
                response: h2::frame(1, false),
                error: h2::STREAM_ERROR,
            },
            WireProtocol::Http3 => Self {
                source: TraceSource::H3,
                request: h3::RX_HEADERS | h3::STREAM_NEW,
                answer: h3::TX_HEADERS,
                connection: h3::CONNECTION_NEW,
                sent: h3::STREAM_NEW,
                response: h3::RX_HEADERS,
                error: h3::STREAM_END,
            },
            WireProtocol::FastCgi => Self {
                source: TraceSource::Fcgi,
                request: fcgi::STREAM_NEW,
                answer: fcgi::RESPONSE_HEADERS,
                connection: fcgi::CONNECTION_NEW,
                sent: fcgi::STREAM_NEW,
                response: fcgi::RESPONSE_HEADERS,
                error: fcgi::STREAM_END,
            },
        }
    }

    /// The points of the client's protocol.
    fn front(client: &Client) -> Self {
        Self::of(client.side.protocol())
    }

    /// The points of the server's protocol.
    fn back(upstream: &Upstream) -> Self {
        Self::of(upstream.protocol())
    }
}

#[track_caller]
fn report(
    client: &Client,
    x: &Exchange,
    (source, events, level): (TraceSource, u64, TraceLevel),
    message: &str,
    shown: Option<&http::Head>,
) {
    if !trace::is_on(source) {
        return;
    }
    trace::report(source, events, level, &of_exchange(client, x), message, &|verbosity, out| {
        if verbosity.names_owner() {
            owner(client, Some(x), out);
        }
        if let Some(shown) = shown.filter(|_| verbosity.shows_message()) {
            head(shown, verbosity, out);
        }
    });
}

/// A session begins.
#[inline]
#[track_caller]
pub(crate) fn session_begins(client: &Client) {
    if trace::is_on(TraceSource::Session) {
        of_connection(client, session::NEW, TraceLevel::State, "new session");
    }
}

/// A session was refused, or failed before its first stream.
#[inline]
#[track_caller]
pub(crate) fn session_fails(client: &Client) {
    if trace::is_on(TraceSource::Session) {
        of_connection(client, session::ERROR, TraceLevel::Error, "session rejected or failed");
    }
}

#[cold]
#[track_caller]
fn of_connection(client: &Client, events: u64, level: TraceLevel, message: &str) {
    trace::report(
        TraceSource::Session,
        events,
        level,
        &of_session(&client.session),
        message,
        &|verbosity, out| {
            if verbosity.names_owner() {
                owner(client, None, out);
            }
            let error = client.session.error.get();
            if error != ConnectionError::default() {
                let _ = write!(out, " error={}", error.message());
            }
        },
    );
}

/// A client's connection uses HTTP/1.
#[inline]
#[track_caller]
pub(crate) fn speaks_h1(client: &Client) {
    if trace::is_on(TraceSource::H1) {
        begins_connection(client, TraceSource::H1, h1::CONNECTION_NEW);
    }
}

/// The trace source of a multiplexed protocol, with its events for connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionPoints {
    source: TraceSource,
    begin: u64,
    end: u64,
    /// Added to `end` if the connection failed.
    error: u64,
    /// The client violated the protocol.
    broken: u64,
}

impl ConnectionPoints {
    pub(crate) const HTTP2: Self = Self {
        source: TraceSource::H2,
        begin: h2::CONNECTION_NEW,
        end: h2::CONNECTION_END,
        error: h2::CONNECTION_ERROR,
        broken: h2::PROTOCOL_ERROR | h2::CONNECTION_ERROR,
    };
    pub(crate) const HTTP3: Self = Self {
        source: TraceSource::H3,
        begin: h3::CONNECTION_NEW,
        end: h3::CONNECTION_END,
        error: 0,
        broken: h3::PROTOCOL_ERROR,
    };
}

/// A client's connection is multiplexed from now on.
#[inline]
#[track_caller]
pub(crate) fn multiplexed_begins(client: &Client, points: ConnectionPoints) {
    if trace::is_on(points.source) {
        begins_connection(client, points.source, points.begin);
    }
}

#[cold]
#[track_caller]
fn begins_connection(client: &Client, source: TraceSource, events: u64) {
    let keys = of_session(&client.session);
    trace::report(source, events, TraceLevel::User, &keys, "new client connection", &|verbosity, out| {
        if verbosity.names_owner() {
            owner(client, None, out);
        }
    });
}

/// A multiplexed client connection has ended because of `why`.
#[inline]
#[track_caller]
pub(crate) fn multiplexed_ends(
    client: &Client,
    points: ConnectionPoints,
    why: &dyn std::fmt::Debug,
    is_error: bool,
) {
    if trace::is_on(points.source) {
        let (events, level) = match is_error {
            true => (points.end | points.error, TraceLevel::Error),
            false => (points.end, TraceLevel::State),
        };
        let keys = of_session(&client.session);
        trace::report(points.source, events, level, &keys, "connection closed", &|verbosity, out| {
            let _ = write!(out, "{why:?}");
            if verbosity.names_owner() {
                out.push(' ');
                owner(client, None, out);
            }
        });
    }
}

/// The TLS handshake with a client is over.
#[inline]
#[track_caller]
pub(crate) fn client_tls(client: &Client, failure: Option<ConnectionError>) {
    if trace::is_on(TraceSource::Ssl) {
        tls_of_client(client, failure);
    }
}

#[cold]
#[track_caller]
fn tls_of_client(client: &Client, failure: Option<ConnectionError>) {
    let Some(details) = client.session.tls() else { return };
    let (events, level, message) = match failure {
        Some(_) => {
            (ssl::NEW | ssl::HANDSHAKE | ssl::ERROR, TraceLevel::Error, "handshake with a client failed")
        }
        None => (ssl::NEW | ssl::HANDSHAKE, TraceLevel::User, "handshake with a client"),
    };
    let keys = of_session(&client.session);
    trace::report(TraceSource::Ssl, events, level, &keys, message, &|verbosity, out| {
        if verbosity.names_owner() {
            owner(client, None, out);
            out.push(' ');
        }
        shake(Some(details), failure, out);
    });
}

/// The TLS handshake with a server is over.
#[inline]
#[track_caller]
pub(crate) fn server_tls(
    client: &Client,
    x: &Exchange,
    details: impl FnOnce() -> Option<Arc<tls::Details>>,
    failure: Option<Fault>,
) {
    if trace::is_on(TraceSource::Ssl) {
        tls_of_server(client, x, details().as_deref(), failure);
    }
}

#[cold]
#[track_caller]
fn tls_of_server(client: &Client, x: &Exchange, details: Option<&tls::Details>, failure: Option<Fault>) {
    let (events, level, message) = match failure {
        Some(_) => {
            (ssl::NEW | ssl::HANDSHAKE | ssl::ERROR, TraceLevel::Error, "handshake with a server failed")
        }
        None => (ssl::NEW | ssl::HANDSHAKE, TraceLevel::User, "handshake with a server"),
    };
    trace::report(TraceSource::Ssl, events, level, &of_exchange(client, x), message, &|verbosity, out| {
        if verbosity.names_owner() {
            owner(client, Some(x), out);
            out.push(' ');
        }
        shake(details, failure.map(Fault::connection_error), out);
    });
}

fn shake(details: Option<&tls::Details>, failure: Option<ConnectionError>, out: &mut String) {
    if let Some(details) = details {
        let _ = write!(out, "resumed={}", u8::from(details.is_resumed));
        if let Some(alpn) = &details.alpn {
            let _ = write!(out, " alpn={}", String::from_utf8_lossy(alpn));
        }
    }
    if let Some(failure) = failure {
        let _ = write!(out, " error={}", failure.message());
    }
}

/// A request was received, and its stream begins.
#[inline]
#[track_caller]
pub(crate) fn request(client: &Client, x: &Exchange) {
    if trace::any() {
        request_came(client, x);
    }
}

#[cold]
#[track_caller]
fn request_came(client: &Client, x: &Exchange) {
    debug_lines::request(client, x);
    let points = Points::front(client);
    let what = (points.source, points.request, TraceLevel::User);
    report(client, x, what, "received a request", Some(&x.txn.request));
    report(
        client,
        x,
        (TraceSource::Stream, stream::NEW | stream::HTTP, TraceLevel::State),
        "new stream",
        None,
    );
}

/// A TCP stream begins.
#[inline]
#[track_caller]
pub(crate) fn tcp_begins(client: &Client, x: &Exchange) {
    if trace::any() {
        report(
            client,
            x,
            (TraceSource::Stream, stream::NEW | stream::TCP, TraceLevel::State),
            "new TCP stream",
            None,
        );
    }
}

/// The server is connected; the request is about to be sent.
#[inline]
#[track_caller]
pub(crate) fn reached(client: &Client, x: &Exchange, upstream: &Upstream) {
    if trace::any() {
        has_server(client, x, upstream);
    }
}

#[cold]
#[track_caller]
fn has_server(client: &Client, x: &Exchange, upstream: &Upstream) {
    let is_new = upstream.uses() <= 1;
    if x.txn.is_http {
        let points = Points::back(upstream);
        if is_new {
            let what = (points.source, points.connection, TraceLevel::User);
            report(client, x, what, "new server connection", None);
        }
        let what = (points.source, points.sent, TraceLevel::User);
        report(client, x, what, "sending a request", Some(&x.txn.request));
    }
    let message = if is_new { "connected to the server" } else { "server connection reused" };
    report(
        client,
        x,
        (TraceSource::Stream, stream::SERVER_STATE | step(x), TraceLevel::State),
        message,
        None,
    );
}

/// An attempt on a server has failed.
#[inline]
#[track_caller]
pub(crate) fn attempt_failed(client: &Client, x: &Exchange, fault: Fault) {
    if trace::is_on(TraceSource::Stream) {
        failed(client, x, stream::SERVER_STATE | stream::ERROR, "attempt failed", fault);
    }
}

#[cold]
#[track_caller]
fn failed(client: &Client, x: &Exchange, events: u64, message: &str, fault: Fault) {
    let keys = of_exchange(client, x);
    trace::report(TraceSource::Stream, events, TraceLevel::Error, &keys, message, &|verbosity, out| {
        let cause = faults::of_fault(x, fault).name();
        let _ = write!(out, "{fault:?} phase={:?} fault={cause}", x.phase);
        if verbosity.names_owner() {
            out.push(' ');
            owner(client, Some(x), out);
        }
    });
}

/// Returns the event bit of a step.
fn step(x: &Exchange) -> u64 {
    if x.txn.is_http { stream::HTTP } else { stream::TCP }
}

/// The head of the response was received.
#[inline]
#[track_caller]
pub(crate) fn response(client: &Client, x: &Exchange, upstream: &Upstream) {
    if trace::any() {
        response_came(client, x, upstream);
    }
}

#[cold]
#[track_caller]
fn response_came(client: &Client, x: &Exchange, upstream: &Upstream) {
    debug_lines::response(client, x);
    let points = Points::back(upstream);
    let what = (points.source, points.response, TraceLevel::User);
    report(client, x, what, "received a response", Some(&x.txn.response));
    report(client, x, (TraceSource::Stream, stream::HTTP, TraceLevel::State), "response received", None);
}

/// The head of a response (the server's or a generated one) is about to be sent to the client.
#[inline]
#[track_caller]
pub(crate) fn answer(client: &Client, x: &Exchange) {
    if trace::any() {
        answer_goes(client, x);
    }
}

#[cold]
#[track_caller]
fn answer_goes(client: &Client, x: &Exchange) {
    let points = Points::front(client);
    let what = (points.source, points.answer, TraceLevel::User);
    report(client, x, what, "sending a response", Some(&x.txn.response));
}

/// The stream is aborted.
#[cold]
#[track_caller]
pub(crate) fn stopped(client: &Client, x: &Exchange, stop: Stop) {
    let Stop::Fault(fault) = stop else { return };
    let is_request = matches!(fault, Fault::BadRequest(_) | Fault::BadRequestBody);
    if trace::is_on(TraceSource::Stream) {
        let kind = match (x.txn.is_http, is_request) {
            (true, _) => stream::HTTP_ERROR,
            (false, _) => stream::TCP_ERROR,
        };
        failed(client, x, stream::ERROR | kind, "stream ended with an error", fault);
    }
    if x.txn.is_http {
        let message = match client.side.protocol() {
            WireProtocol::Http1 if is_request => "no request",
            WireProtocol::Http1 | WireProtocol::Http2 | WireProtocol::Http3 | WireProtocol::FastCgi => {
                "request failed"
            }
        };
        let points = Points::front(client);
        report(client, x, (points.source, points.error, TraceLevel::Error), message, None);
    }
}

/// The stream is over.
#[inline]
#[track_caller]
pub(crate) fn over(client: &Client, x: &Exchange) {
    if trace::any() {
        is_over(client, x);
    }
}

#[cold]
#[track_caller]
fn is_over(client: &Client, x: &Exchange) {
    if x.txn.id == 0 && x.txn.status == 0 {
        // No request was received.
        return;
    }
    debug_lines::over(client, x);
    let moved = |verbosity: Verbosity, out: &mut String| {
        let _ = write!(out, "in={} out={} status={}", x.txn.bytes_in, x.txn.bytes_out, x.txn.status);
        if verbosity.names_owner() {
            out.push(' ');
            owner(client, Some(x), out);
        }
    };
    let keys = of_exchange(client, x);
    let report = |source: TraceSource, events: u64, level: TraceLevel, message: &str| {
        if trace::is_on(source) {
            trace::report(source, events, level, &keys, message, &moved);
        }
    };
    if x.txn.is_http {
        match client.side.protocol() {
            WireProtocol::Http3 => report(TraceSource::H3, h3::STREAM_END, TraceLevel::State, "stream ended"),
            WireProtocol::Http2 => report(TraceSource::H2, h2::STREAM_END, TraceLevel::State, "stream ended"),
            WireProtocol::FastCgi => {
                report(TraceSource::Fcgi, fcgi::STREAM_END, TraceLevel::State, "stream ended")
            }
            WireProtocol::Http1 => {
                report(
                    TraceSource::H1,
                    h1::RX_DATA | h1::TX_DATA,
                    TraceLevel::Data,
                    "bytes of a request and its response",
                );
                report(TraceSource::H1, h1::STREAM_END, TraceLevel::State, "request ended");
            }
        }
        if x.txn.server.as_ref().is_some() && x.backend.as_ref().is_some_and(|backend| backend.fcgi.is_some())
        {
            report(TraceSource::Fcgi, fcgi::STREAM_END, TraceLevel::State, "request ended");
        }
    }
    report(TraceSource::Stream, stream::FREE | step(x), TraceLevel::State, "stream ended");
}

/// Reports the frames received and sent on a client's connection since the last call.
#[inline]
#[track_caller]
pub(crate) fn frames_of_client(client: &Client, engine: &RefCell<H2Engine>) {
    if trace::is_on(TraceSource::H2) {
        let taken = engine.borrow_mut().take_frames();
        points::frames(&of_session(&client.session), taken, &|out| owner(client, None, out));
    }
}

/// The client violated the protocol.
#[inline]
#[track_caller]
pub(crate) fn protocol_broken(client: &Client, points: ConnectionPoints, why: &dyn std::fmt::Debug) {
    if trace::is_on(points.source) {
        let keys = of_session(&client.session);
        trace::report(points.source, points.broken, TraceLevel::Error, &keys, "protocol error", &|_, out| {
            let _ = write!(out, "{why:?}");
        });
    }
}
