//! A span in its encoding (`opentelemetry.proto.trace.v1.Span`).

use crate::attribute::Attributes;
use crate::context::{SpanId, TraceId};
use base::protobuf as wire;

/// The role of a span in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// An operation within the process.
    Internal = 1,
    /// A request that the process received.
    Server = 2,
    /// A request that the process sent.
    Client = 3,
}

/// The fixed fields of a span.
#[derive(Debug, Clone, Copy)]
pub struct SpanRecord<'a> {
    /// The trace.
    pub trace: TraceId,
    /// The span itself.
    pub span: SpanId,
    /// The parent; `None` for the root of the trace.
    pub parent: Option<SpanId>,
    /// Whether the parent is a span of another process.
    pub is_parent_remote: bool,
    /// Whether the sampled flag is sent to servers.
    pub sampled: bool,
    /// The `tracestate`; empty for none.
    pub state: &'a [u8],
    /// The name.
    pub name: &'a [u8],
    /// The role.
    pub kind: SpanKind,
    /// The begin, in ns since the UNIX epoch.
    pub start_ns: u64,
    /// The end, in ns since the UNIX epoch.
    pub end_ns: u64,
    /// Whether the operation failed.
    pub is_error: bool,
}

/// Set if [`IS_REMOTE`] is valid.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
const STATUS_ERROR: u64 = 2;

/// Appends a span with its attributes to `out`.
pub fn write_span(out: &mut Vec<u8>, record: &SpanRecord<'_>, attributes: impl FnOnce(&mut Attributes<'_>)) {
    wire::message(out, 2, |out| {
        wire::bytes(out, 1, record.trace.bytes());
        wire::bytes(out, 2, record.span.bytes());
        if !record.state.is_empty() {
            wire::text(out, 3, record.state);
        }
        if let Some(parent) = record.parent {
            wire::bytes(out, 4, parent.bytes());
        }
        wire::text(out, 5, record.name);
        wire::number(out, 6, record.kind as u64);
        wire::fixed64(out, 7, record.start_ns);
        wire::fixed64(out, 8, record.end_ns.max(record.start_ns));
        attributes(&mut Attributes::new(out, 9));
        if record.is_error {
            wire::message(out, 15, |out| wire::number(out, 3, STATUS_ERROR));
        }
        let remote = if record.is_parent_remote { IS_REMOTE } else { 0 };
        wire::fixed32(out, 16, u32::from(record.sampled) | HAS_IS_REMOTE | remote);
    });
}
