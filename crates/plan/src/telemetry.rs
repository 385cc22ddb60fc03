//! `opentelemetry` sections: collectors, and the data sent to them (docs/opentelemetry.md).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use otlp::{ResourceAttributes, SampleRatio};
use sample::format::Format;
use state::resolvers::ResolversSection;
use state::telemetry::Collector;

/// An `opentelemetry` section.
#[derive(Debug)]
pub struct TelemetrySection {
    /// The queues and counters, which outlive the plan.
    pub collector: Arc<Collector>,
    /// `endpoint`.
    pub endpoint: OtlpEndpoint,
    /// `header`: names and values.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// `compression gzip`.
    pub gzip: bool,
    /// `timeout connect`, including the TLS handshake.
    pub connect_timeout: Duration,
    /// `timeout server`: the limit for a whole request.
    pub server_timeout: Duration,
    /// `resolve-with`: the section that resolves the endpoint's name; `None` if it was resolved at startup.
    pub resolvers: Option<Arc<ResolversSection>>,
    /// The TLS settings of an endpoint with TLS.
    pub connector: Option<Arc<tls::Connector>>,
    /// Whether the collector's certificate is verified.
    pub verifies: bool,
    /// `resource` and the default attributes.
    pub resource: ResourceAttributes,
    /// `batch-size`: the maximum number of bytes of records in a request, before compression.
    pub batch_size: usize,
    /// `interval`: the time after which records are sent at the latest.
    pub interval: Duration,
    /// `metrics-interval`; `None` if metrics are not exported.
    pub metrics_interval: Option<Duration>,
    /// Sampling, and the contents of spans.
    pub tracing: TraceSettings,
}

/// The URL of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// Whether it uses gRPC, otherwise HTTP.
    pub is_grpc: bool,
    /// Whether it uses TLS.
    pub is_tls: bool,
    /// The host as written, without brackets.
    pub host: Box<str>,
    /// The address of the host; `None` if it is resolved at run time.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The path before `/v1/<signal>`, without a final slash; empty with gRPC.
    pub path: Box<str>,
}

/// The sampling of requests, and the contents of their spans.
#[derive(Debug)]
pub struct TraceSettings {
    /// `sampling`.
    pub ratio: SampleRatio,
    /// `parent`.
    pub parent: ParentUse,
    /// `keep errors`.
    pub keeps_errors: bool,
    /// `keep slower-than`, in µs.
    pub keeps_slower_than: Option<u64>,
    /// `url-query`.
    pub has_query: bool,
    /// `attribute`: names and values.
    pub attributes: Vec<(Box<str>, Format)>,
}

/// `parent`: how the trace context of a request is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParentUse {
    /// The trace continues, sampled if the sender samples it.
    #[default]
    Follow,
    /// The trace continues, but the ratio decides about the sampling.
    Continue,
    /// Each request begins a trace.
    Ignore,
}

impl OtlpEndpoint {
    /// The URL of a path below that of the endpoint.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{scheme}://{open}{}{close}:{}{}{path}", self.host, self.port, self.path)
    }
}

impl std::fmt::Display for OtlpEndpoint {
    /// Writes the URL as configured.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.url("");
        match self.is_grpc {
            true => write!(f, "grpc{}", &url["http".len()..]),
            false => f.write_str(&url),
        }
    }
}

impl TraceSettings {
    /// Whether requests that are not sampled may be kept at their end.
    pub fn keeps_any(&self) -> bool {
        self.keeps_errors || self.keeps_slower_than.is_some()
    }
}
