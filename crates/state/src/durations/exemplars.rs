//! Exemplars: for each bucket of a histogram, a recent request with an exported trace (`trace-to`).
//!
//! They exist for an object from its first exported request on, and take 2.5 kB for each worker. A worker replaces the exemplar
//! of a bucket at most once per second, so most requests only compare the time.

use std::array;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime::LazySharded;

use super::bounds::{BUCKETS, BucketedTimes, COUNTS};

/// A request in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exemplar {
    /// The trace.
    pub trace: [u8; 16],
    /// The span of the request.
    pub span: [u8; 8],
    /// The measured time in µs.
    pub us: u64,
    /// When the request ended, in ms since the UNIX epoch; 0 if the bucket has no exemplar.
    pub ended_ms: u64,
}

/// The exemplars of the buckets of one time.
pub type BucketExemplars = [Exemplar; BUCKETS];

/// The exemplars of an object.
#[derive(Debug, Default)]
pub(super) struct Exemplars(LazySharded<WorkerExemplars>);

#[derive(Debug)]
struct WorkerExemplars {
    /// The second in which each exemplar was stored, modulo 2³².
    seconds: [AtomicU32; COUNTS],
    kept: Mutex<[Exemplar; COUNTS]>,
}

impl Default for WorkerExemplars {
    fn default() -> Self {
        Self {
            seconds: array::from_fn(|_| AtomicU32::new(0)),
            kept: Mutex::new([Exemplar::default(); COUNTS]),
        }
    }
}

impl WorkerExemplars {
    /// Only the worker and, briefly, a scrape lock it.
    fn kept(&self) -> MutexGuard<'_, [Exemplar; COUNTS]> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exemplars {
    /// Stores a request in the buckets of its times, unless they have an exemplar of the same second.
    pub(super) fn note(&self, times: &BucketedTimes, request: &Exemplar) {
        let own = self.0.mine();
        let second = (request.ended_ms / 1000) as u32;
        for (at, us) in times.0 {
            if let Some(stored) = own.seconds.get(at)
                && stored.load(Relaxed) != second
            {
                stored.store(second, Relaxed);
                own.kept()[at] = Exemplar { us, ..*request };
            }
        }
    }

    /// Returns the latest exemplar of each bucket.
    pub(super) fn read(&self) -> [BucketExemplars; 4] {
        let mut latest = [Exemplar::default(); COUNTS];
        for own in self.0.all() {
            for (latest, own) in latest.iter_mut().zip(own.kept().iter()) {
                if own.ended_ms > latest.ended_ms {
                    *latest = *own;
                }
            }
        }
        array::from_fn(|time| array::from_fn(|bucket| latest[time * BUCKETS + bucket]))
    }

    /// Removes all exemplars.
    pub(super) fn clear(&self) {
        for own in self.0.all() {
            *own.kept() = [Exemplar::default(); COUNTS];
            own.seconds.iter().for_each(|second| second.store(0, Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_the_first_request_of_the_latest_second() {
        let exemplars = Exemplars::default();
        let note = |us: u64, ended_ms: u64, trace: u8| {
            let request = Exemplar { trace: [trace; 16], span: [1; 8], us: 0, ended_ms };
            exemplars.note(&BucketedTimes::new(&[None, None, Some(7), Some(us)]), &request);
        };
        note(600, 5_000, 1);
        note(700, 5_900, 2);
        note(30_000, 5_900, 3);
        let [queue, _, response, total] = exemplars.read();
        assert_eq!((queue, response[0].us), (BucketExemplars::default(), 7));
        assert_eq!((total[1].us, total[1].trace[0], total[6].trace[0]), (600, 1, 3));
        note(800, 6_000, 4);
        let total = exemplars.read()[3];
        assert_eq!((total[1].us, total[1].ended_ms, total[1].trace[0], total[6].us), (800, 6_000, 4, 30_000));
        exemplars.clear();
        assert_eq!(exemplars.read(), [BucketExemplars::default(); 4]);
        note(800, 6_000, 4);
        assert_eq!(exemplars.read()[3][1].us, 800, "in the same second");
    }
}
