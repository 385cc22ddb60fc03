//! A log record in its encoding (`opentelemetry.proto.logs.v1.LogRecord`).

use crate::attribute::Attributes;
use crate::context::{SpanId, TraceId};
use base::protobuf as wire;

/// A log message.
#[derive(Debug, Clone, Copy)]
pub struct LogRecord<'a> {
    /// The time, in ns since the UNIX epoch.
    pub time_ns: u64,
    /// The syslog level, 0 (emerg) to 7 (debug).
    pub level: u8,
    /// The text.
    pub body: &'a [u8],
    /// The request that the message is about: its trace, its span and whether it is sampled.
    pub context: Option<(TraceId, SpanId, bool)>,
}

/// OpenTelemetry's severity and its name for each syslog level, as in the specification's appendix.
const SEVERITIES: [(u64, &str); 8] = [
    (21, "emerg"),
    (19, "alert"),
    (18, "crit"),
    (17, "err"),
    (13, "warning"),
    (10, "notice"),
    (9, "info"),
    (5, "debug"),
];

/// Appends a log record with its attributes to `out`.
pub fn write_log(out: &mut Vec<u8>, record: &LogRecord<'_>, attributes: impl FnOnce(&mut Attributes<'_>)) {
    let (severity, name) = SEVERITIES[usize::from(record.level.min(7))];
    wire::message(out, 2, |out| {
        wire::fixed64(out, 1, record.time_ns);
        wire::number(out, 2, severity);
        wire::bytes(out, 3, name.as_bytes());
        wire::message(out, 5, |out| wire::text(out, 1, record.body));
        attributes(&mut Attributes::new(out, 6));
        if let Some((trace, span, sampled)) = &record.context {
            wire::fixed32(out, 8, u32::from(*sampled));
            wire::bytes(out, 9, trace.bytes());
            wire::bytes(out, 10, span.bytes());
        }
        wire::fixed64(out, 11, record.time_ns);
    });
}
