//! An `opentelemetry` section that is still being parsed.

use std::time::Duration;

use plan::telemetry::ParentUse;
use syntax::Word;

use crate::draft::tls::TlsValue;

/// An `opentelemetry` section that is still being parsed.
#[derive(Debug)]
pub struct TelemetryDraft<'a> {
    /// `endpoint`.
    pub endpoint: Option<&'a Word>,
    /// `header`.
    pub headers: Vec<(&'a Word, &'a Word)>,
    /// `compression gzip`.
    pub gzip: bool,
    /// `timeout connect`.
    pub connect_timeout: Duration,
    /// `timeout server`.
    pub server_timeout: Duration,
    /// `resolve-with`.
    pub resolvers: Option<&'a Word>,
    /// `ca-file`.
    pub ca_file: Option<TlsValue<'a>>,
    /// `crt`.
    pub certificate: Option<TlsValue<'a>>,
    /// `verify`, with its location.
    pub verify: Option<(bool, &'a Word)>,
    /// `resource`.
    pub resource: Vec<(&'a Word, &'a Word)>,
    /// `attribute`: names and formats.
    pub attributes: Vec<(&'a Word, &'a Word)>,
    /// `sampling`: the ratio, from 0 to 1.
    pub ratio: f64,
    /// `parent`.
    pub parent: ParentUse,
    /// `keep errors`.
    pub keeps_errors: bool,
    /// `keep slower-than`.
    pub keeps_slower_than: Option<Duration>,
    /// `url-query`.
    pub has_query: bool,
    /// `queue-size`.
    pub queue_size: usize,
    /// `batch-size`.
    pub batch_size: usize,
    /// `interval`.
    pub interval: Duration,
    /// `metrics-interval`.
    pub metrics_interval: Option<Duration>,
}

impl Default for TelemetryDraft<'_> {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: Vec::new(),
            gzip: false,
            connect_timeout: Duration::from_secs(5),
            server_timeout: Duration::from_secs(10),
            resolvers: None,
            ca_file: None,
            certificate: None,
            verify: None,
            resource: Vec::new(),
            attributes: Vec::new(),
            ratio: 1.0,
            parent: ParentUse::Follow,
            keeps_errors: false,
            keeps_slower_than: None,
            has_query: true,
            queue_size: 16 << 20,
            batch_size: 512 << 10,
            interval: Duration::from_secs(1),
            metrics_interval: None,
        }
    }
}
