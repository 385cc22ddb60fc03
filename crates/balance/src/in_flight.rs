//! The number of requests in flight to all servers of a backend, which `hash-balance-factor` divides into shares.
//!
//! With a single counter, all workers would write it for every request. Instead, each worker counts its own requests and reads the
//! counts of the others at most once per millisecond. With one worker the sum is exact; with several, it may be a millisecond old.
//! [`crate::picker`] has one for backends that need it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use runtime::{Gauge, Sharded};

/// Requests by worker.
#[derive(Debug, Default)]
pub struct InFlight(Sharded<WorkerLoad>);

/// The count of one worker, which only that worker writes.
#[derive(Debug)]
struct WorkerLoad {
    requests: Gauge,
    /// The total of the other workers, and the millisecond at which it was read.
    others: AtomicI64,
    seen_in: AtomicU64,
}

impl Default for WorkerLoad {
    fn default() -> Self {
        Self { requests: Gauge::default(), others: AtomicI64::new(0), seen_in: AtomicU64::new(u64::MAX) }
    }
}

impl InFlight {
    /// Counts a request of the calling worker.
    #[inline]
    pub fn enter(&self) {
        self.0.mine().requests.up();
    }

    /// Ends a request that was counted by the same worker.
    #[inline]
    pub fn leave(&self) {
        self.0.mine().requests.down();
    }

    /// The total at about `now_us`, according to the calling worker.
    #[inline]
    pub fn total(&self, now_us: u64) -> u32 {
        let own = self.0.mine();
        let now = now_us >> 10;
        if own.seen_in.load(Relaxed) != now {
            self.look(own, now);
        }
        (own.requests.get() + own.others.load(Relaxed)).max(0) as u32
    }

    #[cold]
    fn look(&self, own: &WorkerLoad, now: u64) {
        let all: i64 = self.0.all().map(|one| one.requests.get()).sum();
        own.others.store(all - own.requests.get(), Relaxed);
        own.seen_in.store(now, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_requests_count_at_once_and_others_within_a_millisecond() {
        runtime::shard::set_workers(2);
        let requests = InFlight::default();
        runtime::shard::set_workers(1);
        let of_other = |work: fn(&InFlight)| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    runtime::shard::enter_worker(1);
                    work(&requests);
                });
            });
        };
        requests.enter();
        assert_eq!(requests.total(5_000), 1);
        of_other(InFlight::enter);
        requests.enter();
        assert_eq!(requests.total(5_100), 2, "not looked at again so soon");
        assert_eq!(requests.total(7_000), 3);
        of_other(InFlight::leave);
        requests.leave();
        assert_eq!((requests.total(7_000), requests.total(9_000)), (2, 1));
    }
}
