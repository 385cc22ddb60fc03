//! The tasks of a section: batches, retries and counters of one signal.

use std::rc::Rc;
use std::time::Duration;

use base::clock::WallTime;
use compress::{Algorithm, CoderSettings, Encoder};
use otlp::{Backoff, ExportOutcome, RecordBatch, Signal};
use runtime::timer::now_ms;
use state::telemetry::{Collector, ExportCounters, QueuedSignal};

use crate::client::send;
use crate::{ExportTarget, SharedTarget, WARNING};

/// How long a batch is sent again. Newer records wait in the queues during this time.
const PATIENCE_MS: u64 = 60_000;

/// The interval at which a section without `metrics-interval` checks whether it has one after a reload.
const UNUSED: Duration = Duration::from_secs(3600);

/// The buffers that are kept for the queues: as many as there are workers, up to this size.
const KEPT_BUFFER: usize = 4 << 20;

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

/// Exports the records of a queue until the section ends.
pub(crate) async fn queued(shared: Rc<SharedTarget>, queue: QueuedSignal) {
    let signal = match queue {
        QueuedSignal::Spans => Signal::Traces,
        QueuedSignal::Logs => Signal::Logs,
    };
    let (mut spare, mut records) = (Vec::new(), Vec::new());
    loop {
        let is_last = shared.is_ending.get();
        let target = shared.target();
        let collector = &target.section.collector;
        for (mut bytes, count) in collector.take(queue, &mut spare) {
            records.extend_from_slice(&bytes);
            counters(collector, signal).in_flight.add(count);
            bytes.clear();
            if bytes.capacity() <= KEPT_BUFFER && spare.len() < runtime::shard::workers() {
                spare.push(bytes);
            }
        }
        export(&shared, &target, signal, &records).await;
        records.clear();
        records.shrink_to(KEPT_BUFFER);
        if is_last {
            break;
        }
        let filled = collector.queue_totals(queue).bytes >= target.section.batch_size as u64;
        if !filled {
            shared.wait(target.section.interval).await;
        }
    }
    shared.task_ended();
}

/// Exports the metrics at their interval until the section ends.
pub(crate) async fn metrics(shared: Rc<SharedTarget>) {
    let mut due = now_ms();
    loop {
        let is_last = shared.is_ending.get();
        let target = shared.target();
        let interval = target.section.metrics_interval;
        // The last export has the final values.
        if interval.is_some() && (is_last || now_ms() >= due) {
            let mut records = Vec::new();
            let text = (shared.callbacks.metrics)();
            otlp::write_metrics(&mut records, &text, shared.start_ns, now_ns());
            let count = RecordBatch::split(&records, usize::MAX).map_or(0, |(all, _)| all.count);
            counters(&target.section.collector, Signal::Metrics).in_flight.add(count);
            export(&shared, &target, Signal::Metrics, &records).await;
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

/// Exports records in batches, one after the other.
async fn export(shared: &SharedTarget, target: &ExportTarget, signal: Signal, records: &[u8]) {
    let section = &target.section;
    let counters = counters(&section.collector, signal);
    let mut rest = records;
    while let Some((batch, left)) = RecordBatch::split(rest, section.batch_size) {
        rest = left;
        let mut message = batch.request(&section.resource);
        if section.gzip {
            message = gzip(&message);
        }
        let exported = export_batch(shared, target, signal, &message, batch.count).await;
        counters.exported.add(exported);
        counters.failed.add(batch.count - exported);
        counters.in_flight.put(counters.in_flight.get().saturating_sub(batch.count));
    }
}

/// Sends one batch of `count` records, with retries. Returns how many of them were accepted.
async fn export_batch(
    shared: &SharedTarget,
    target: &ExportTarget,
    signal: Signal,
    message: &[u8],
    count: u64,
) -> u64 {
    let counters = counters(&target.section.collector, signal);
    let mut backoff = Backoff::new(now_ms() + PATIENCE_MS);
    loop {
        let (outcome, reason) = send(target, signal, message).await;
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
