//! OpenTelemetry's protocol (OTLP) without sockets, clock or threads: trace contexts, spans, log records and metrics in their
//! protobuf encoding, the requests that carry them, and the evaluation of the responses.
//!
//! Records are appended to a buffer as fields of the message that will contain them ([`write_span`], [`write_log`],
//! [`write_metrics`]). [`RecordBatch`] cuts such a buffer into requests. [`ExportOutcome`] and [`Backoff`] decide about retries.
//! The encoding is written by hand because only a few messages are needed; the tests decode it with the official definitions.

#![forbid(unsafe_code)]

mod attribute;
mod batch;
mod context;
mod log;
mod metric;
mod outcome;
mod span;

pub use attribute::Attributes;
pub use batch::{RecordBatch, ResourceAttributes, Signal};
pub use context::{SampleRatio, SpanId, TRACEPARENT_LENGTH, TraceId, TraceParent, read_tracestate};
pub use log::{LogRecord, write_log};
pub use metric::{DurationMetric, HistogramPoints, write_durations, write_metrics};
pub use outcome::{Backoff, ExportOutcome, GrpcStatus, Rejection};
pub use span::{SpanKind, SpanRecord, write_span};
