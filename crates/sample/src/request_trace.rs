//! The trace context of a request, and the record from which its spans are made when it ends (`trace-to`).

use otlp::{SpanId, TraceId, TraceParent};
use runtime::Local;
use smallvec::SmallVec;
use state::Server;

/// The trace context of a request.
#[derive(Debug)]
pub struct RequestTrace {
    /// The trace.
    pub trace: TraceId,
    /// The span of the request.
    pub span: SpanId,
    /// The sender's span, or `None` if the request begins a trace.
    pub parent: Option<SpanId>,
    /// Whether the trace is sampled, which is passed on to servers.
    pub sampled: bool,
    /// Whether the spans are exported: because the trace is sampled, or because of how the request ended.
    pub kept: bool,
    /// Whether attempts and steps are recorded, because the spans are or may be exported.
    pub records: bool,
    /// The host that the client requested, as a range of [`Transaction::kept`](crate::Transaction::kept).
    pub host: Option<(u32, u32)>,
    /// The span of the current attempt, or of the first one.
    pub next_span: SpanId,
    /// The `tracestate` of the sender; empty for none.
    pub state: Vec<u8>,
    /// The attempts to reach a server, in order.
    pub attempts: SmallVec<[AttemptRecord; 1]>,
    /// Other steps that take time, in order.
    pub steps: Vec<StepRecord>,
    /// The number of attempts and steps that were not recorded because there were too many.
    pub left_out: u32,
}

/// An attempt to reach a server. All times are in µs of the monotonic clock.
#[derive(Debug)]
pub struct AttemptRecord {
    /// The span.
    pub span: SpanId,
    /// The server.
    pub server: Local<Server>,
    /// When the attempt began.
    pub started: u64,
    /// When the connection was available; 0 if it was not.
    pub connected: u64,
    /// When the attempt failed or was cancelled; 0 if it has the response.
    pub ended: u64,
    /// The type of the error, if the attempt failed before it had a status.
    pub error: Option<&'static str>,
    /// The status of the response that was discarded; 0 for none.
    pub status: u16,
}

/// A step of a request that takes time. All times are in µs of the monotonic clock.
#[derive(Debug)]
pub struct StepRecord {
    /// The kind of step: `queue`, `spoe`, `lua` or `cache`.
    pub kind: &'static str,
    /// The name of the engine, function or cache; empty for none.
    pub name: Box<str>,
    /// The begin.
    pub started: u64,
    /// The end.
    pub ended: u64,
    /// Whether the step failed.
    pub failed: bool,
}

/// The number of attempts, and of other steps, that are recorded for a request.
const MOST: usize = 32;

impl RequestTrace {
    /// Begins with the context of the sender, or with a new trace. `sampled` decides for a given trace and the parent.
    pub fn begin(
        parent: Option<TraceParent>,
        sampled: impl FnOnce(&TraceId, Option<&TraceParent>) -> bool,
    ) -> Self {
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        let sampled = sampled(&trace, parent.as_ref());
        Self {
            trace,
            span: SpanId::random(),
            parent: parent.map(|parent| parent.span),
            sampled,
            kept: sampled,
            records: sampled,
            host: None,
            next_span: SpanId::random(),
            state: Vec::new(),
            attempts: SmallVec::new(),
            steps: Vec::new(),
            left_out: 0,
        }
    }

    /// The `traceparent` for servers: the span of the next attempt is the parent.
    pub fn onward(&self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.next_span, sampled: self.sampled }
    }

    /// Chooses the span of an attempt after the first.
    pub fn renew_span(&mut self) {
        self.next_span = SpanId::random();
    }

    /// Records the begin of an attempt, with [`next_span`](Self::next_span).
    pub fn attempt(&mut self, server: Local<Server>, now_us: u64) {
        let span = self.next_span;
        if !self.records || self.attempts.len() >= MOST {
            self.left_out += u32::from(self.records);
            return;
        }
        self.attempts.push(AttemptRecord {
            span,
            server,
            started: now_us,
            connected: 0,
            ended: 0,
            error: None,
            status: 0,
        });
    }

    /// Records a step that has ended.
    pub fn step(&mut self, step: StepRecord) {
        if self.steps.len() >= MOST {
            self.left_out += 1;
            return;
        }
        self.steps.push(step);
    }
}
