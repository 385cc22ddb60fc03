//! An OpenTelemetry collector that decodes requests with the official protobuf definitions.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::client::field;
use crate::multiplexed::{DATA, END_STREAM, Frames, HEADERS};
use crate::{Origin, eventually};

/// A received span.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenSpan {
    /// The name.
    pub name: String,
    /// 1 for internal, 2 for server, 3 for client.
    pub kind: i32,
    /// The trace, in hexadecimal.
    pub trace: String,
    /// The span, in hexadecimal.
    pub id: String,
    /// The parent; empty for none.
    pub parent: String,
    /// The `tracestate`.
    pub state: String,
    /// Whether its status is an error.
    pub is_error: bool,
    /// The flags.
    pub flags: u32,
    /// Begin and end, in ns.
    pub times: (u64, u64),
    /// The attributes as text.
    pub attributes: BTreeMap<String, String>,
}

impl SeenSpan {
    /// Returns an attribute; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// A received log record.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenLog {
    /// The text.
    pub body: String,
    /// The severity number and its text.
    pub severity: (i32, String),
    /// The trace, in hexadecimal.
    pub trace: String,
    /// The span, in hexadecimal.
    pub span: String,
    /// The attributes as text.
    pub attributes: BTreeMap<String, String>,
}

/// Everything received so far.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// Spans of accepted requests.
    pub spans: Vec<SeenSpan>,
    /// Log records of accepted requests.
    pub logs: Vec<SeenLog>,
    /// Metrics of accepted requests.
    pub metrics: Vec<Metric>,
    /// Attributes of the resource of the latest request.
    pub resource: BTreeMap<String, String>,
    /// The heads of all requests, also refused ones, with the path in the first line.
    pub heads: Vec<String>,
}

/// A response over HTTP: the status with its reason, further header lines, and the body. `None` accepts the request.
pub type Refusal = Option<(&'static str, &'static str, Vec<u8>)>;

/// A listening collector.
#[derive(Debug)]
pub struct OtlpCollector {
    origin: Origin,
    received: Arc<Mutex<Received>>,
}

impl OtlpCollector {
    /// Starts a collector over HTTP that accepts everything.
    pub fn http() -> Self {
        Self::http_with(|_| None)
    }

    /// Starts a collector over HTTP. `answer` gets the number of the request, from 0.
    pub fn http_with(answer: impl Fn(usize) -> Refusal + Send + Sync + 'static) -> Self {
        let received = Arc::new(Mutex::new(Received::default()));
        let (store, count) = (received.clone(), AtomicUsize::new(0));
        let origin = Origin::start(move |head, body| {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let is_gzip = field(head, "content-encoding") == Some("gzip");
            lock(&store).heads.push(head.to_owned());
            let (status, fields, body) = match answer(count.fetch_add(1, Ordering::SeqCst)) {
                Some((status, fields, body)) if !status.starts_with('2') => (status, fields, body),
                accepted => {
                    keep(&store, &path, &message(body, is_gzip));
                    accepted.unwrap_or(("200 OK", "", Vec::new()))
                }
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{fields}Content-Type: application/x-protobuf\r\nContent-Length: {length}\r\n\r\n"
            );
            [head.as_bytes(), &body].concat()
        });
        Self { origin, received }
    }

    /// Starts a collector over gRPC. `answer` gets the number of the call, from 0, and returns the status and further trailers.
    pub fn grpc_with(
        answer: impl Fn(usize) -> (&'static str, Vec<(&'static str, String)>) + Send + Sync + 'static,
    ) -> Self {
        let received = Arc::new(Mutex::new(Received::default()));
        let (store, count) = (received.clone(), AtomicUsize::new(0));
        let origin = Origin::raw(move |stream| {
            let mut frames = Frames::take(stream);
            while let Some(head) = frames.find(|frame| frame.kind == HEADERS) {
                let fields = frames.fields(&head);
                let path = fields
                    .iter()
                    .find_map(|line| line.strip_prefix(":path: "))
                    .unwrap_or_default()
                    .to_owned();
                let mut body = Vec::new();
                while let Some(data) = frames.find(|frame| frame.kind == DATA) {
                    body.extend_from_slice(&data.payload);
                    if data.flags & END_STREAM != 0 {
                        break;
                    }
                }
                lock(&store).heads.push(fields.join("\r\n"));
                let (status, trailers) = answer(count.fetch_add(1, Ordering::SeqCst));
                let fixed = [(":status", "200"), ("content-type", "application/grpc")];
                if status == "0" {
                    let (prefix, coded) = body.split_at_checked(5).expect("a message has a prefix");
                    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
                    assert_eq!(length as usize, coded.len(), "the length of the message");
                    keep(&store, &path, &message(coded, prefix[0] == 1));
                    frames.head(head.stream, 0, &fixed);
                    frames.send(DATA, 0, head.stream, b"\0\0\0\0\0");
                    frames.head(head.stream, END_STREAM, &[("grpc-status", "0")]);
                } else {
                    let own = trailers.iter().map(|(name, value)| (*name, value.as_str()));
                    let fields: Vec<_> =
                        fixed.into_iter().chain([("grpc-status", status)]).chain(own).collect();
                    frames.head(head.stream, END_STREAM, &fields);
                }
            }
        });
        Self { origin, received }
    }

    /// The port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.origin.connections()
    }

    /// Everything received so far.
    pub fn received(&self) -> Received {
        lock(&self.received).clone()
    }

    /// Waits until `wanted` holds for the received data, and returns that data.
    ///
    /// # Panics
    /// It does not hold in time.
    pub fn await_all(&self, wanted: impl Fn(&Received) -> bool) -> Received {
        let done = eventually(|| wanted(&lock(&self.received)));
        let received = self.received();
        assert!(done, "{received:#?}");
        received
    }

    /// Waits for at least `count` spans, and returns all of them.
    pub fn await_spans(&self, count: usize) -> Vec<SeenSpan> {
        self.await_all(|received| received.spans.len() >= count).spans
    }
}

fn lock(received: &Mutex<Received>) -> std::sync::MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message(body: &[u8], is_gzip: bool) -> Vec<u8> {
    if !is_gzip {
        return body.to_vec();
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut out).expect("the body is gzip");
    out
}

fn keep(store: &Mutex<Received>, path: &str, body: &[u8]) {
    let mut store = lock(store);
    let resource = |resource: Option<&opentelemetry_proto::tonic::resource::v1::Resource>| {
        resource.map_or_else(BTreeMap::new, |resource| attributes(&resource.attributes))
    };
    if path.ends_with("/v1/traces") || path.contains("TraceService") {
        let request = ExportTraceServiceRequest::decode(body).expect("a request of the protocol");
        for one in request.resource_spans {
            store.resource = resource(one.resource.as_ref());
            store.spans.extend(one.scope_spans.iter().flat_map(|scope| &scope.spans).map(span));
        }
    } else if path.ends_with("/v1/logs") || path.contains("LogsService") {
        let request = ExportLogsServiceRequest::decode(body).expect("a request of the protocol");
        for one in request.resource_logs {
            store.resource = resource(one.resource.as_ref());
            for record in one.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
                store.logs.push(SeenLog {
                    body: record.body.as_ref().map(text).unwrap_or_default(),
                    severity: (record.severity_number, record.severity_text),
                    trace: hex(&record.trace_id),
                    span: hex(&record.span_id),
                    attributes: attributes(&record.attributes),
                });
            }
        }
    } else {
        let request = ExportMetricsServiceRequest::decode(body).expect("a request of the protocol");
        for one in request.resource_metrics {
            store.metrics.extend(one.scope_metrics.into_iter().flat_map(|scope| scope.metrics));
        }
    }
}

fn span(span: &Span) -> SeenSpan {
    SeenSpan {
        name: span.name.clone(),
        kind: span.kind,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state.clone(),
        is_error: span.status.as_ref().is_some_and(|status| status.code == 2),
        flags: span.flags,
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
        attributes: attributes(&span.attributes),
    }
}

/// Attributes as text.
pub fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let one = |attribute: &KeyValue| {
        (attribute.key.clone(), attribute.value.as_ref().map(text).unwrap_or_default())
    };
    attributes.iter().map(one).collect()
}

fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
