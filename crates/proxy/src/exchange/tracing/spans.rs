//! Creates the spans of a finished request from the same record as its log line (docs/opentelemetry.md lists the attributes).

use std::borrow::Cow;
use std::net::IpAddr;

use http::Method;
use otlp::{Attributes, SpanId, SpanKind, SpanRecord};
use plan::telemetry::TelemetrySection;
use sample::Endpoint;
use sample::request_trace::{AttemptRecord, RequestTrace};
use state::server::ServerAddress;
use state::telemetry::QueuedSignal;

use super::failure_type;
use crate::client::Client;
use crate::exchange::{Exchange, view};

/// The attribute that contains the route. The name of the span includes it.
const ROUTE: &str = "http.route";

/// The names and values of `attribute` lines.
type OwnAttributes<'a> = Vec<(&'a str, Vec<u8>)>;

/// The request for which spans are created.
struct Finished<'a> {
    client: &'a Client,
    x: &'a Exchange,
    trace: &'a RequestTrace,
    section: &'a TelemetrySection,
    method: &'a [u8],
    target: &'a [u8],
}

/// Queues the spans of a request. Returns `false` if the queue is full.
pub(super) fn queue(client: &Client, x: &Exchange, section: &TelemetrySection) -> bool {
    let Some(trace) = x.txn.trace.as_deref() else { return false };
    let (method, target) = request_line(x);
    let finished = Finished { client, x, trace, section, method, target };
    let mut own = OwnAttributes::new();
    for (name, format) in &section.tracing.attributes {
        let mut value = Vec::new();
        view::with(client, x, |env| format.render(env, &mut value));
        if !value.is_empty() {
            own.push((name, value));
        }
    }
    let connects = trace.attempts.iter().filter(|attempt| finished.connect_time(attempt).is_some()).count();
    let count = 1 + trace.attempts.len() + trace.steps.len() + connects;
    section.collector.push(QueuedSignal::Spans, count as u64, |out| {
        finished.server_span(&own, out);
        for (index, attempt) in trace.attempts.iter().enumerate() {
            finished.attempt_spans(index, attempt, out);
        }
        for step in &trace.steps {
            let record = SpanRecord {
                span: SpanId::random(),
                parent: Some(trace.span),
                name: step.kind.as_bytes(),
                start_ns: finished.wall_ns(step.started),
                end_ns: finished.wall_ns(step.ended),
                is_error: step.failed,
                ..finished.record()
            };
            otlp::write_span(out, &record, |attributes| {
                if !step.name.is_empty() {
                    attributes.text("weir.name", step.name.as_bytes());
                }
            });
        }
    })
}

/// Returns the method and the target that the client sent, before rules changed them.
fn request_line(x: &Exchange) -> (&[u8], &[u8]) {
    let Some(line) = x.txn.kept(x.txn.request_line) else {
        return (x.txn.request.method(), x.txn.request.target());
    };
    let mut words = line.splitn(3, |byte| *byte == b' ');
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// Returns the method if it may appear in attributes. Other methods are reported as `_OTHER`.
fn known_method(method: &[u8]) -> &[u8] {
    match Method::from_bytes(method) {
        Method::Get
        | Method::Head
        | Method::Post
        | Method::Put
        | Method::Delete
        | Method::Connect
        | Method::Options
        | Method::Trace => method,
        _ if method == b"PATCH" || method == b"QUERY" => method,
        _ => b"_OTHER",
    }
}

impl Finished<'_> {
    /// Returns the fields that all spans of the request share.
    fn record(&self) -> SpanRecord<'_> {
        SpanRecord {
            trace: self.trace.trace,
            span: self.trace.span,
            parent: None,
            is_parent_remote: false,
            sampled: self.trace.sampled,
            state: &self.trace.state,
            name: b"",
            kind: SpanKind::Internal,
            start_ns: 0,
            end_ns: 0,
            is_error: false,
        }
    }

    /// Converts µs of the monotonic clock to ns since the UNIX epoch.
    fn wall_ns(&self, us: u64) -> u64 {
        let times = &self.x.txn.times;
        (times.started_wall.saturating_add(us)).saturating_sub(times.started).saturating_mul(1000)
    }

    fn server_span(&self, own: &OwnAttributes<'_>, out: &mut Vec<u8>) {
        let (x, trace) = (self.x, self.trace);
        let failure = failure_type(x.txn.termination.cause);
        let is_client_fault = failure.is_some_and(|(_, is_client)| is_client);
        let is_error = x.txn.status >= 500 || failure.is_some() && !(is_client_fault && x.txn.is_http);
        let name = self.name(own);
        let record = SpanRecord {
            parent: trace.parent,
            is_parent_remote: trace.parent.is_some(),
            name: &name,
            kind: SpanKind::Server,
            start_ns: self.wall_ns(x.txn.times.started),
            end_ns: self.wall_ns(x.txn.times.closed),
            is_error,
            ..self.record()
        };
        otlp::write_span(out, &record, |attributes| {
            if x.txn.is_http {
                self.http_attributes(attributes);
            } else {
                attributes.text("network.transport", "tcp");
                attributes.number("weir.bytes_in", x.txn.bytes_in.cast_signed());
                attributes.number("weir.bytes_out", x.txn.bytes_out.cast_signed());
            }
            self.ends(attributes);
            if x.txn.status >= 500 {
                write_number(attributes, "error.type", x.txn.status);
            } else if let Some((failure, _)) = failure {
                attributes.text("error.type", failure);
            }
            attributes.text("weir.frontend", self.client.frontend.state.name.as_bytes());
            if let Some(backend) = &x.backend {
                attributes.text("weir.backend", backend.state.name.as_bytes());
            }
            let end = &x.txn.termination;
            attributes.text("weir.termination_state", [end.cause as u8, end.phase as u8]);
            if let Some(cause) = x.txn.fault {
                attributes.text("weir.fault", cause.name());
            }
            if trace.kept && !trace.sampled {
                attributes.text("weir.kept", if x.txn.status >= 500 || is_error { "error" } else { "slow" });
            }
            if x.txn.cache.is_some() {
                attributes.text("weir.cache", "hit");
            }
            if trace.left_out > 0 {
                attributes.number("weir.spans_left_out", trace.left_out.into());
            }
            for (name, value) in own {
                attributes.text(name, value);
            }
        });
    }

    /// Returns the name of the span: the method, and the route if an `attribute` line sets one.
    fn name<'n>(&'n self, own: &'n OwnAttributes<'_>) -> Cow<'n, [u8]> {
        if !self.x.txn.is_http {
            return Cow::Borrowed(b"tcp");
        }
        let method = match known_method(self.method) {
            b"_OTHER" => b"HTTP",
            known => known,
        };
        match own.iter().find(|(name, _)| *name == ROUTE) {
            Some((_, route)) => Cow::Owned([method, b" ", route].concat()),
            None => Cow::Borrowed(method),
        }
    }

    fn http_attributes(&self, attributes: &mut Attributes<'_>) {
        let (client, x) = (self.client, self.x);
        self.method(attributes);
        let scheme = if client.session.tls().is_some() { "https" } else { "http" };
        attributes.text("url.scheme", scheme);
        let split = http::uri::split(self.target);
        attributes.text("url.path", split.path().unwrap_or_default());
        if let Some(query) = split.query().filter(|_| self.section.tracing.has_query) {
            attributes.text("url.query", query);
        }
        if x.txn.status > 0 {
            attributes.number("http.response.status_code", x.txn.status.into());
        }
        if let Some(host) = x.txn.kept(self.trace.host) {
            let (name, port) = http::uri::split_port(host);
            attributes.text("server.address", name);
            if let Some(port) = port.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()) {
                attributes.number("server.port", port);
            }
        }
        match x.txn.client_stream.map(|stream| stream.major) {
            Some(major @ 2..) => write_number(attributes, "network.protocol.version", major.into()),
            _ => {
                let (major, minor) = x.txn.request.version().numbers();
                attributes.text("network.protocol.version", [b'0' + major % 10, b'.', b'0' + minor % 10]);
            }
        }
        if let Some(agent) = x.txn.request.get_known(http::KnownName::UserAgent) {
            attributes.text("user_agent.original", agent);
        }
    }

    fn method(&self, attributes: &mut Attributes<'_>) {
        let known = known_method(self.method);
        attributes.text("http.request.method", known);
        if known != self.method && !self.method.is_empty() {
            attributes.text("http.request.method_original", self.method);
        }
    }

    /// Adds the addresses of the client.
    fn ends(&self, attributes: &mut Attributes<'_>) {
        if let Endpoint::Ip(source) = self.x.source(self.client) {
            attributes.text("client.address", AddressText::new(source.ip()));
        }
        if let Endpoint::Ip(peer) = self.client.session.connection_source() {
            attributes.text("network.peer.address", AddressText::new(peer.ip()));
            attributes.number("network.peer.port", peer.port().into());
        }
    }

    /// Returns when the connection for an attempt was established, if a new one was used.
    fn connect_time(&self, attempt: &AttemptRecord) -> Option<u64> {
        let connected = match attempt.ended {
            0 if self.x.txn.server_uses > 1 => 0,
            0 => self.x.txn.times.connected,
            _ => attempt.connected,
        };
        (connected > attempt.started).then_some(connected)
    }

    /// Appends the span of an attempt, and that of its connection.
    fn attempt_spans(&self, index: usize, attempt: &AttemptRecord, out: &mut Vec<u8>) {
        let x = self.x;
        let is_last = attempt.ended == 0;
        let status = if is_last { x.txn.server_status } else { attempt.status };
        let failure = failure_type(x.txn.termination.cause).map(|(failure, _)| failure);
        let error = if is_last { failure } else { attempt.error };
        let method = match known_method(self.method) {
            b"_OTHER" => &b"HTTP"[..],
            known => known,
        };
        let record = SpanRecord {
            span: attempt.span,
            parent: Some(self.trace.span),
            name: if x.txn.is_http { method } else { b"tcp" },
            kind: SpanKind::Client,
            start_ns: self.wall_ns(attempt.started),
            end_ns: self.wall_ns(if is_last { x.txn.times.closed } else { attempt.ended }),
            is_error: status >= 400 || error.is_some_and(|error| error != "cancelled"),
            ..self.record()
        };
        otlp::write_span(out, &record, |attributes| {
            self.server_ends(attempt, is_last, attributes);
            if x.txn.is_http {
                self.method(attributes);
                if index > 0 {
                    attributes.number("http.request.resend_count", index as i64);
                }
            }
            if status > 0 {
                attributes.number("http.response.status_code", status.into());
            }
            match error {
                Some(error) => attributes.text("error.type", error),
                None if status >= 400 => write_number(attributes, "error.type", status),
                None => {}
            }
            if let Some(backend) = &x.backend {
                attributes.text("weir.backend", backend.state.name.as_bytes());
            }
            attributes.text("weir.server", attempt.server.name.to_string());
        });
        if let Some(connected) = self.connect_time(attempt) {
            let record = SpanRecord {
                span: SpanId::random(),
                parent: Some(attempt.span),
                name: b"connect",
                start_ns: self.wall_ns(attempt.started),
                end_ns: self.wall_ns(connected),
                ..self.record()
            };
            otlp::write_span(out, &record, |_| {});
        }
    }

    /// Adds the address of the server of an attempt, and the URL there.
    fn server_ends(&self, attempt: &AttemptRecord, is_last: bool, attributes: &mut Attributes<'_>) {
        let x = self.x;
        let peer = match (x.txn.server_ends, &**attempt.server.address.load()) {
            (Some((_, Endpoint::Ip(peer))), _) if is_last => Some(peer),
            (_, ServerAddress::Ip(address)) => Some(*address),
            (_, ServerAddress::Unix(path)) => {
                attributes.text("server.address", path.as_os_str().as_encoded_bytes());
                None
            }
            _ => None,
        };
        let Some(peer) = peer else { return };
        let text = AddressText::new(peer.ip());
        attributes.text("server.address", &text);
        attributes.number("server.port", peer.port().into());
        attributes.text("network.peer.address", &text);
        attributes.number("network.peer.port", peer.port().into());
        if x.txn.is_http {
            let scheme = if x.txn.server_tls.is_some() { "https" } else { "http" };
            let is_v6 = peer.ip().to_canonical().is_ipv6();
            let (open, close) = if is_v6 { ("[", "]:") } else { ("", ":") };
            let mut port = AddressText::default();
            port.decimal(peer.port());
            let split = http::uri::split(x.txn.request.target());
            let path = match self.section.tracing.has_query {
                true => split.pathq(),
                false => split.path(),
            };
            let parts = [
                scheme.as_bytes(),
                b"://",
                open.as_bytes(),
                text.as_ref(),
                close.as_bytes(),
                port.as_ref(),
                path.unwrap_or_default(),
            ];
            attributes.text("url.full", parts.concat());
        }
    }
}

/// Writes a number as text.
fn write_number(attributes: &mut Attributes<'_>, name: &str, number: u16) {
    let mut text = AddressText::default();
    text.decimal(number);
    attributes.text(name, &text);
}

/// The text of an address or a number, formatted without an allocation.
struct AddressText {
    /// An IPv6 address has at most 39 characters.
    bytes: [u8; 46],
    length: usize,
}

impl Default for AddressText {
    fn default() -> Self {
        Self { bytes: [0; 46], length: 0 }
    }
}

impl AddressText {
    fn new(ip: IpAddr) -> Self {
        let mut text = Self::default();
        match ip.to_canonical() {
            // The generic formatting takes many times as long.
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                text.decimal(a.into());
                for part in [b, c, d] {
                    text.push(b'.');
                    text.decimal(part.into());
                }
            }
            IpAddr::V6(ip) => ip.to_string().bytes().for_each(|byte| text.push(byte)),
        }
        text
    }

    fn push(&mut self, byte: u8) {
        if let Some(room) = self.bytes.get_mut(self.length) {
            *room = byte;
            self.length += 1;
        }
    }

    /// Appends a number.
    fn decimal(&mut self, number: u16) {
        let digit = |divisor: u16| b'0' + (number / divisor % 10) as u8;
        if number >= 10_000 {
            self.push(digit(10_000));
        }
        if number >= 1_000 {
            self.push(digit(1_000));
        }
        if number >= 100 {
            self.push(digit(100));
        }
        if number >= 10 {
            self.push(digit(10));
        }
        self.push(digit(1));
    }
}

impl AsRef<[u8]> for AddressText {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_numbers_are_written_as_usual() {
        for ip in ["0.0.0.0", "127.0.0.1", "255.10.100.9", "2001:db8::1", "::ffff:1.2.3.4"] {
            let ip: IpAddr = ip.parse().expect("an address");
            assert_eq!(AddressText::new(ip).as_ref(), ip.to_canonical().to_string().as_bytes());
        }
        for number in [0, 9, 10, 99, 100, 503, 9999, 10_000, 65_535] {
            let mut text = AddressText::default();
            text.decimal(number);
            assert_eq!(text.as_ref(), number.to_string().as_bytes());
        }
    }
}
