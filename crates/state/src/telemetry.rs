//! Records for OpenTelemetry collectors (`opentelemetry` sections): a bounded queue for each worker and signal, and counters.
//!
//! A worker appends encoded records to its own queue, and the exporter takes one buffer at a time. If a queue is full, the record
//! is dropped and counted, so a slow collector never delays a request. The state survives an in-place reload.
//!
//! The memory for a signal is limited, including the exporter's buffers. The limit covers the queues of all workers, another
//! buffer of the same size, the rest of the previous buffer (which is smaller than a batch), and a spare buffer.

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
    /// The number of bytes that each queue can hold.
    room: AtomicUsize,
    /// The number of bytes at which a queue wakes the exporter.
    wakes_at: AtomicUsize,
    /// The size of a batch in bytes.
    batch: AtomicUsize,
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
    /// Whether a record did not fit.
    is_full: bool,
    waiting: u64,
    queued: u64,
    dropped: u64,
}

/// The exporter's way through the queues of a signal: each round visits each worker once.
#[derive(Debug, Default)]
pub struct QueueRound {
    /// The worker to visit next.
    next: usize,
    /// An empty buffer for the queue of the next worker.
    spare: Option<Vec<u8>>,
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
    /// The size in bytes of the buffer with these records.
    pub held_bytes: Count,
}

/// The smallest room of a queue, in bytes: several records.
const LEAST_ROOM: usize = 16 << 10;

/// The largest capacity of a buffer that is kept for a queue, in bytes.
const LARGEST_SPARE: usize = 256 << 10;

/// A queue grows to its whole room if less than this is left, in bytes.
const NEARLY_FULL: usize = 4 << 10;

impl Collector {
    /// Creates the state of a section with these limits ([`set_limits`](Self::set_limits)).
    pub fn new(name: &str, queue_size: usize, batch_size: usize) -> Self {
        let collector = Self {
            name: name.into(),
            room: AtomicUsize::new(0),
            wakes_at: AtomicUsize::new(0),
            batch: AtomicUsize::new(0),
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
        let batch = batch_size.min(queue_size / 4);
        let shared = queue_size - batch - LARGEST_SPARE.min(queue_size / 8);
        let room = (shared / (runtime::shard::workers() + 1)).max(LEAST_ROOM);
        self.room.store(room, Relaxed);
        self.batch.store(batch, Relaxed);
        self.wakes_at.store(batch.min(room / 2), Relaxed);
    }

    /// The size of a batch in bytes: the one that was set, but not more than a quarter of the memory.
    pub fn batch_size(&self) -> usize {
        self.batch.load(Relaxed)
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
            if queue.is_full {
                queue.dropped += count;
                return false;
            }
            let room = self.room.load(Relaxed);
            let before = queue.bytes.len();
            if queue.bytes.capacity() - before < NEARLY_FULL && queue.bytes.capacity() > room / 2 {
                // Doubling would exceed the limit.
                queue.bytes.reserve_exact(room.saturating_sub(before));
            }
            write(&mut queue.bytes);
            if queue.bytes.len() > room {
                queue.bytes.truncate(before);
                queue.bytes.shrink_to(room);
                queue.is_full = true;
                queue.dropped += count;
                return false;
            }
            queue.queued += count;
            queue.waiting += count;
            before < wakes_at && queue.bytes.len() >= wakes_at
        };
        if crossed && let Some(wake) = self.wake.get() {
            wake();
        }
        true
    }

    /// Takes the records of the next worker that has any, in its buffer and with their number, or `None` at the end of a round.
    pub fn take(&self, signal: QueuedSignal, round: &mut QueueRound) -> Option<(Vec<u8>, u64)> {
        let queues = &self.queues[signal as usize];
        for (worker, queue) in queues.all().enumerate().skip(round.next) {
            round.next = worker + 1;
            let mut queue = lock(queue);
            queue.is_full = false;
            if queue.waiting > 0 {
                let bytes = std::mem::replace(&mut queue.bytes, round.spare.take().unwrap_or_default());
                return Some((bytes, std::mem::take(&mut queue.waiting)));
            }
        }
        round.next = 0;
        None
    }

    /// Keeps a buffer for a queue if it is not too large.
    pub fn keep_spare(&self, round: &mut QueueRound, mut bytes: Vec<u8>) {
        if bytes.capacity() <= LARGEST_SPARE.min(self.room.load(Relaxed)) {
            bytes.clear();
            round.spare = Some(bytes);
        }
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
        let collector = Collector::new("c", 64 << 10, 20_000);
        let woken = Arc::new(AtomicU32::new(0));
        let counted = woken.clone();
        collector.wake_by(move || {
            counted.fetch_add(1, Relaxed);
        });
        let record = vec![0; 9_000];
        let push = |signal| collector.push(signal, 1, |out| out.extend(&record));
        let outcomes: Vec<bool> = (0..4).map(|_| push(QueuedSignal::Spans)).collect();
        assert_eq!(outcomes, [true, true, false, false], "the room is 20 KiB");
        assert_eq!(woken.load(Relaxed), 1, "once for each crossing");
        let totals = collector.queue_totals(QueuedSignal::Spans);
        assert_eq!(totals, QueueTotals { waiting: 2, bytes: 18_000, queued: 2, dropped: 2 });
        let taken = collector.take(QueuedSignal::Spans, &mut QueueRound::default());
        assert_eq!(taken.map(|(bytes, count)| (bytes.len(), count)), Some((18_000, 2)));
        assert!(
            collector.is_idle() && collector.take(QueuedSignal::Spans, &mut QueueRound::default()).is_none()
        );
        assert!(push(QueuedSignal::Spans));
        assert!(
            collector.take(QueuedSignal::Logs, &mut QueueRound::default()).is_none(),
            "signals are separate"
        );
        assert!(!collector.push(QueuedSignal::Logs, 1, |out| out.resize(100_000, 0)), "too large");
        assert!(
            collector.take(QueuedSignal::Logs, &mut QueueRound::default()).is_none()
                && push(QueuedSignal::Logs)
        );
    }

    #[test]
    fn queues_and_the_exporter_stay_within_the_limit() {
        const LIMIT: usize = 4 << 20;
        let collector = Collector::new("c", LIMIT, 512 << 10);
        let mut round = QueueRound::default();
        let mut random = fastrand::Rng::with_seed(1);
        // The exporter begins a batch with the rest of a buffer, takes another one, and is stuck.
        let rest = collector.batch_size();
        for _ in 0..3 {
            let fill = |most: usize| {
                while collector.push(QueuedSignal::Spans, 1, |out| out.resize(out.len() + most, 1)) {}
            };
            fill(random.usize(200..5_000));
            let (held, _) = collector.take(QueuedSignal::Spans, &mut round).expect("a full buffer");
            assert!(collector.take(QueuedSignal::Spans, &mut round).is_none(), "the end of the round");
            fill(random.usize(200..5_000));
            let capacity = lock(collector.queues[0].mine()).bytes.capacity();
            let used = rest + held.capacity() + capacity + LARGEST_SPARE;
            assert!(used <= LIMIT && used > LIMIT * 9 / 10, "{used}");
            assert!(collector.take(QueuedSignal::Spans, &mut round).is_some());
            assert!(collector.take(QueuedSignal::Spans, &mut round).is_none(), "the end of the round");
            collector.keep_spare(&mut round, Vec::with_capacity(100_000));
            assert!(round.spare.is_some());
            collector.keep_spare(&mut round, held);
            assert!(round.spare.as_ref().is_some_and(|spare| spare.capacity() <= LARGEST_SPARE));
        }
    }
}
