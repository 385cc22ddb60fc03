//! Requests: a batch of records with the resource that produced them.

use crate::attribute::Attributes;
use base::protobuf as wire;

/// A kind of telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Data points.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    /// The name, as in the path of OTLP over HTTP (`/v1/<name>`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    /// The path of the gRPC method that exports the signal.
    pub fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }
}

/// The URL of the semantic conventions that the attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.45.0";

/// The resource and the scope of all records of a process, encoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAttributes {
    resource: Box<[u8]>,
    scope: Box<[u8]>,
}

impl ResourceAttributes {
    /// Encodes the attributes of the resource, and the name and version of the program.
    pub fn new<'a>(
        attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
        (program, version): (&str, &str),
    ) -> Self {
        let (mut resource, mut scope) = (Vec::new(), Vec::new());
        wire::message(&mut resource, 1, |out| {
            let mut written = Attributes::new(out, 1);
            attributes.into_iter().for_each(|(name, value)| written.text(name, value));
        });
        wire::message(&mut scope, 1, |out| {
            wire::text(out, 1, program.as_bytes());
            wire::text(out, 2, version.as_bytes());
        });
        Self { resource: resource.into(), scope: scope.into() }
    }
}

/// Records of one signal that form a request.
#[derive(Debug)]
pub struct RecordBatch<'a> {
    records: &'a [u8],
    /// The number of records.
    pub count: u64,
}

impl<'a> RecordBatch<'a> {
    /// Takes whole records of at most `most` bytes, but at least one, from the start of `records`. Returns the batch and the rest,
    /// or `None` if nothing is left.
    pub fn split(records: &'a [u8], most: usize) -> Option<(Self, &'a [u8])> {
        let (mut end, mut count) = (0, 0);
        while let Some(length) = wire::field_length(&records[end..]) {
            if count > 0 && end + length > most {
                break;
            }
            (end, count) = (end + length, count + 1);
        }
        (count > 0).then(|| (Self { records: &records[..end], count }, &records[end..]))
    }

    /// The request. The messages of all signals have the same structure.
    pub fn request(&self, resource: &ResourceAttributes) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.records.len() + resource.resource.len() + 256);
        wire::message(&mut out, 1, |out| {
            out.extend_from_slice(&resource.resource);
            wire::message(out, 2, |out| {
                out.extend_from_slice(&resource.scope);
                out.extend_from_slice(self.records);
                wire::text(out, 3, SCHEMA.as_bytes());
            });
            wire::text(out, 3, SCHEMA.as_bytes());
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_whole_records_up_to_the_limit() {
        let mut records = Vec::new();
        for length in [10, 20, 300, 5] {
            wire::bytes(&mut records, 2, &vec![b'x'; length]);
        }
        let mut rest = &records[..];
        let mut counts = Vec::new();
        while let Some((batch, left)) = RecordBatch::split(rest, 40) {
            counts.push((batch.count, batch.records.len()));
            rest = left;
        }
        assert_eq!(counts, [(2, 34), (1, 303), (1, 7)]);
        assert!(rest.is_empty());
    }
}
