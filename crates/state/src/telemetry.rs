//! Records for OpenTelemetry collectors (`opentelemetry` sections): a bounded queue for each worker and signal, and counters.
//!
//! A worker appends encoded records to its own queue; the exporter takes whole buffers. If a queue is full, the record is dropped
//! and counted, so a slow collector never delays a request. The state survives a reload in place.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use runtime::{Count, Sharded};

/// A signal with queues. Metrics have none: they are read when they are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuedSignal {
    /// Spans.
    Spans = 0,
    /// Log records.
    Logs = 1,
}

/// Wakes the exporter.
type WakeExporter = Box<dyn Fn() + Send + Sync>;

/// The state of an `opentelemetry` section.
pub struct Collector {
    /// The name of the section.
    pub name: Box<str>,
    /// The number of bytes that each queue can hold before it refuses records.
    room: AtomicUsize,
    /// The number of bytes at which a queue wakes the exporter.
    wakes_at: AtomicUsize,
    queues: [Sharded<Mutex<RecordQueue>>; 2],
    wake: OnceLock<WakeExporter>,
    /// Counters of spans.
    pub spans: ExportCounters,
    /// Counters of metrics.
    pub metrics: ExportCounters,
    /// Counters of log records.
    pub logs: ExportCounters,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collector({})", self.name)
    }
}

/// Encoded records that wait for their export.
#[derive(Debug, Default)]
struct RecordQueue {
    bytes: Vec<u8>,
    waiting: u64,
    queued: u64,
    dropped: u64,
}

/// The outcome of exports. Only the exporter writes these counters.
#[derive(Debug, Default)]
pub struct ExportCounters {
    /// Records that the collector accepted.
    pub exported: Count,
    /// Records that the collector refused, or that were given up after retries.
    pub failed: Count,
    /// Repeated requests.
    pub retries: Count,
    /// Records that were taken from the queues and are being sent.
    pub in_flight: Count,
}

/// The smallest room of a queue, in bytes.
const LEAST_ROOM: usize = 64 << 10;

impl Collector {
    /// Creates the state of a section with these limits ([`set_limits`](Self::set_limits)).
    pub fn new(name: &str, queue_size: usize, batch_size: usize) -> Self {
        let collector = Self {
            name: name.into(),
            room: AtomicUsize::new(0),
            wakes_at: AtomicUsize::new(0),
            queues: Default::default(),
            wake: OnceLock::new(),
            spans: ExportCounters::default(),
            metrics: ExportCounters::default(),
            logs: ExportCounters::default(),
        };
        collector.set_limits(queue_size, batch_size);
        collector
    }

    /// Sets the memory for each signal in bytes, which the workers share equally, and the size of a batch in bytes.
    pub fn set_limits(&self, queue_size: usize, batch_size: usize) {
        let room = (queue_size / runtime::shard::workers()).max(LEAST_ROOM);
        self.room.store(room, Relaxed);
        self.wakes_at.store(batch_size.min(room / 2), Relaxed);
    }

    /// Sets the function that wakes the exporter. Later calls have no effect.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Appends `count` records, which `write` encodes, to the queue of the calling worker. Returns `false` if the queue is full; the
    /// records are then dropped and counted.
    pub fn push(&self, signal: QueuedSignal, count: u64, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let wakes_at = self.wakes_at.load(Relaxed);
        let crossed = {
            let mut queue = lock(self.queues[signal as usize].mine());
            if queue.bytes.len() >= self.room.load(Relaxed) {
                queue.dropped += count;
                return false;
            }
            let before = queue.bytes.len();
            write(&mut queue.bytes);
            queue.queued += count;
            queue.waiting += count;
            before < wakes_at && queue.bytes.len() >= wakes_at
        };
        if crossed && let Some(wake) = self.wake.get() {
            wake();
        }
        true
    }

    /// Takes all records of a signal: one buffer from each worker that has any, with the number of records in it. `spare` provides
    /// empty buffers for the queues.
    pub fn take(&self, signal: QueuedSignal, spare: &mut Vec<Vec<u8>>) -> Vec<(Vec<u8>, u64)> {
        let mut taken = Vec::new();
        for queue in self.queues[signal as usize].all() {
            let mut queue = lock(queue);
            if queue.waiting > 0 {
                let bytes = std::mem::replace(&mut queue.bytes, spare.pop().unwrap_or_default());
                taken.push((bytes, std::mem::take(&mut queue.waiting)));
            }
        }
        taken
    }

    /// The numbers of a signal's queues: records waiting, bytes waiting, records queued so far and records dropped so far.
    pub fn queue_totals(&self, signal: QueuedSignal) -> QueueTotals {
        let mut totals = QueueTotals::default();
        for queue in self.queues[signal as usize].all() {
            let queue = lock(queue);
            totals.waiting += queue.waiting;
            totals.bytes += queue.bytes.len() as u64;
            totals.queued += queue.queued;
            totals.dropped += queue.dropped;
        }
        totals
    }

    /// Whether nothing waits or is being sent.
    pub fn is_idle(&self) -> bool {
        [QueuedSignal::Spans, QueuedSignal::Logs].iter().all(|signal| self.queue_totals(*signal).waiting == 0)
            && [&self.spans, &self.metrics, &self.logs].iter().all(|own| own.in_flight.get() == 0)
    }
}

/// The sums over the queues of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotals {
    /// Records that wait.
    pub waiting: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Records accepted so far.
    pub queued: u64,
    /// Records dropped so far because a queue was full.
    pub dropped: u64,
}

/// Locks a queue. Only the worker that owns the queue and, briefly, the exporter lock it.
fn lock(queue: &Mutex<RecordQueue>) -> MutexGuard<'_, RecordQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_full_queue_drops_and_counts() {
        let collector = Collector::new("c", 0, 100);
        let woken = Arc::new(AtomicU32::new(0));
        let counted = woken.clone();
        collector.wake_by(move || {
            counted.fetch_add(1, Relaxed);
        });
        let record = vec![0; 50_000];
        let outcomes: Vec<bool> =
            (0..3).map(|_| collector.push(QueuedSignal::Spans, 1, |out| out.extend(&record))).collect();
        assert_eq!(outcomes, [true, true, false], "the room is 64 KiB");
        assert_eq!(woken.load(Relaxed), 1, "once for each crossing");
        let totals = collector.queue_totals(QueuedSignal::Spans);
        assert_eq!(totals, QueueTotals { waiting: 2, bytes: 100_000, queued: 2, dropped: 1 });
        let taken = collector.take(QueuedSignal::Spans, &mut Vec::new());
        assert_eq!(
            taken.iter().map(|(bytes, count)| (bytes.len(), *count)).collect::<Vec<_>>(),
            [(100_000, 2)]
        );
        assert!(collector.is_idle() && collector.take(QueuedSignal::Spans, &mut Vec::new()).is_empty());
        assert!(collector.push(QueuedSignal::Spans, 1, |out| out.push(1)));
        assert!(collector.take(QueuedSignal::Logs, &mut Vec::new()).is_empty(), "signals are separate");
    }
}
