//! The formats in which metrics are exposed to a scrape, and their negotiation. The metrics are written in the text format; the other
//! formats are converted from it ([`convert`]), except histograms, which have more details in them.

mod accept;
mod convert;

pub(crate) use accept::choose;
pub(crate) use convert::{MessageFamily, convert, write_header, write_label};

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// The text format of OpenMetrics, version 1.0.
    OpenMetrics,
    /// Messages `io.prometheus.client.MetricFamily`, each preceded by its length.
    Protobuf,
}

impl ExpositionFormat {
    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// The unit of a metric of this name, as a suffix of its name.
pub(crate) fn unit(name: &str) -> Option<&'static str> {
    ["seconds", "bytes"]
        .into_iter()
        .find(|unit| name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
}
