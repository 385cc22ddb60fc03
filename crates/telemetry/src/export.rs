//! The tasks of a section: batches, retries and counters of one signal.

use std::rc::Rc;
use std::time::Duration;

use base::clock::WallTime;
use compress::{Algorithm, CoderSettings, Encoder};
use otlp::{Backoff, ExportOutcome, RecordBatch, Signal};
use runtime::timer::now_ms;
use state::telemetry::{Collector, ExportCounters, QueueRound, QueuedSignal};

use crate::client::CollectorLink;
use crate::conventions;
use crate::{ExportTarget, SharedTarget, WARNING};

/// How long a batch is sent again. Newer records wait in the queues during this time.
const PATIENCE_MS: u64 = 60_000;

/// The interval at which a section without `metrics-interval` checks whether it has one after a reload.
const UNUSED: Duration = Duration::from_secs(3600);

/// The time in ns since the UNIX epoch.
pub(crate) fn now_ns() -> u64 {
    let now = WallTime::now();
    now.seconds.max(0) as u64 * 1_000_000_000 + u64::from(now.nanos)
}

fn counters(collector: &Collector, signal: Signal) -> &ExportCounters {
    match signal {
        Signal::Traces => &collector.spans,
        Signal::Metrics => &collector.metrics,
        Signal::Logs => &collector.logs,
    }
}

/// Records that were taken from the queues.
#[derive(Default)]
struct HeldRecords {
    bytes: Vec<u8>,
    /// How many bytes have been sent.
    sent: usize,
}

impl HeldRecords {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Appends the records of `more`, and returns the emptied buffer.
    fn append(&mut self, more: Vec<u8>) -> Vec<u8> {
        if self.rest().is_empty() {
            self.sent = 0;
            return std::mem::replace(&mut self.bytes, more);
        }
        self.bytes.drain(..std::mem::take(&mut self.sent));
        self.bytes.reserve_exact(more.len());
        self.bytes.extend_from_slice(&more);
        more
    }
}

/// Exports the records of a queue until the section ends.
pub(crate) async fn queued(shared: Rc<SharedTarget>, queue: QueuedSignal) {
    let signal = match queue {
        QueuedSignal::Spans => Signal::Traces,
        QueuedSignal::Logs => Signal::Logs,
    };
    let (mut round, mut held) = (QueueRound::default(), HeldRecords::default());
    let mut link = CollectorLink::default();
    loop {
        let is_last = shared.is_ending.get();
        let collector = shared.target().section.collector.clone();
        let counters = counters(&collector, signal);
        loop {
            // Records stay in the queues until they are needed, because the memory is limited.
            while held.rest().len() < collector.batch_size()
                && let Some((bytes, count)) = collector.take(queue, &mut round)
            {
                counters.in_flight.add(count);
                let emptied = held.append(bytes);
                collector.keep_spare(&mut round, emptied);
            }
            counters.held_bytes.put(held.bytes.len() as u64);
            let Some((batch, left)) = RecordBatch::split(held.rest(), collector.batch_size()) else { break };
            let left = left.len();
            // A reload may have changed the settings since the batch before.
            export(&shared, &shared.target(), signal, &batch, &mut link).await;
            held.sent = held.bytes.len() - left;
        }
        let emptied = std::mem::take(&mut held).bytes;
        collector.keep_spare(&mut round, emptied);
        counters.held_bytes.put(0);
        if is_last {
            break;
        }
        if collector.queue_totals(queue).bytes < collector.batch_size() as u64 {
            let interval = shared.target().section.interval;
            shared.wait(interval).await;
        }
    }
    shared.task_ended();
}

/// Exports the metrics at their interval until the section ends.
pub(crate) async fn metrics(shared: Rc<SharedTarget>) {
    let mut due = now_ms();
    let mut link = CollectorLink::default();
    loop {
        let is_last = shared.is_ending.get();
        let target = shared.target();
        let interval = target.section.metrics_interval;
        // The last export has the final values.
        if interval.is_some() && (is_last || now_ms() >= due) {
            let mut records = Vec::new();
            let text = (shared.callbacks.metrics)();
            let now_ns = now_ns();
            otlp::write_metrics(&mut records, &text, shared.start_ns, now_ns);
            conventions::write(&mut records, &(shared.callbacks.proxies)(), shared.start_ns, now_ns);
            let counters = counters(&target.section.collector, Signal::Metrics);
            let count = RecordBatch::split(&records, usize::MAX).map_or(0, |(all, _)| all.count);
            counters.in_flight.add(count);
            counters.held_bytes.put(records.len() as u64);
            let mut rest = &records[..];
            while let Some((batch, left)) = RecordBatch::split(rest, target.section.batch_size) {
                rest = left;
                export(&shared, &target, Signal::Metrics, &batch, &mut link).await;
            }
            counters.held_bytes.put(0);
        }
        if is_last {
            break;
        }
        let interval = interval.unwrap_or(UNUSED);
        let now = now_ms();
        if now >= due {
            due = now + interval.as_millis() as u64;
        }
        // The interval may have become shorter by a reload.
        due = due.min(now + interval.as_millis() as u64);
        shared.wait(Duration::from_millis(due - now)).await;
    }
    shared.task_ended();
}

/// Exports a batch, and counts its records.
async fn export(
    shared: &SharedTarget,
    target: &Rc<ExportTarget>,
    signal: Signal,
    batch: &RecordBatch<'_>,
    link: &mut CollectorLink,
) {
    let section = &target.section;
    let counters = counters(&section.collector, signal);
    let mut message = batch.request(&section.resource);
    if section.gzip {
        message = gzip(&message);
    }
    let exported = export_batch(shared, target, signal, message, batch.count, link).await;
    counters.exported.add(exported);
    counters.failed.add(batch.count - exported);
    counters.in_flight.put(counters.in_flight.get().saturating_sub(batch.count));
}

/// Sends one batch of `count` records, with retries. Returns how many of them were accepted.
async fn export_batch(
    shared: &SharedTarget,
    target: &Rc<ExportTarget>,
    signal: Signal,
    message: Vec<u8>,
    count: u64,
    link: &mut CollectorLink,
) -> u64 {
    let counters = counters(&target.section.collector, signal);
    let mut backoff = Backoff::new(now_ms() + PATIENCE_MS);
    loop {
        let (outcome, reason) = link.send(target, signal, &message).await;
        let demanded = match outcome {
            ExportOutcome::Accepted(rejection) => {
                shared.report_back(target);
                let Some(rejection) = rejection else { return count };
                if !shared.said_partial.replace(true) {
                    let (name, said) = (&target.section.collector.name, rejection.message);
                    let (what, rejected) = (signal.name(), rejection.rejected);
                    let text = format!(
                        "opentelemetry {name}: the collector rejected {rejected} records of {what}: {said}"
                    );
                    (shared.callbacks.notify)(WARNING, &text);
                }
                return count.saturating_sub(rejection.rejected);
            }
            ExportOutcome::Refused => {
                shared.report_away(target, &reason);
                return 0;
            }
            ExportOutcome::Retry(demanded) => demanded,
        };
        shared.report_away(target, &reason);
        let Some(delay) = backoff.delay(demanded, now_ms()) else { return 0 };
        if !shared.pause(delay).await {
            return 0;
        }
        counters.retries.add(1);
    }
}

/// A fast coding without a memory limit.
const GZIP: CoderSettings = CoderSettings { level: 1, window_bits: 15, memory_level: 8, most_memory: 0 };

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() / 4 + 64);
    // Without a limit for its memory, an encoder can always be made.
    if let Some(encoder) = Encoder::new(Algorithm::Gzip, &GZIP) {
        encoder.finish(message, &mut out);
    }
    out
}
