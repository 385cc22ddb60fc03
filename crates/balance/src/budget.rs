//! `retry-budget`: limits the attempts beyond the first for a backend's requests.
//!
//! If most requests fail, retrying each of them puts more load on servers that are already overloaded. Therefore only a share of a
//! backend's requests may be retried, both of those in flight and of those within the last second. If a retry is refused, the
//! request has failed. Called by `proxy` before a retry and before a hedge.

use runtime::shared::Shared as _;
use state::ExtraAttempts;
use state::extra_attempts::BackendLoad;

/// The settings of `retry-budget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The share of requests, in percent.
    pub share: u32,
    /// The number of retries that are always allowed, both at once and per second.
    pub min: u32,
}

impl Budget {
    /// How many of `requests` may be retried.
    pub fn of(self, requests: u64) -> u64 {
        (requests * u64::from(self.share) / 100).max(self.min.into())
    }

    /// Takes one attempt out of the budget at `now_ms`, if permitted. [`ExtraAttempts::end`] returns it to the budget.
    pub fn take(self, extra: &ExtraAttempts, load: BackendLoad, now_ms: u64) -> bool {
        // The number of requests within the last second is at least the larger of the two.
        let within = self.of(load.live.max(load.recent));
        let at_once = self.of(load.live).min(u32::MAX.into()) as u32;
        if extra.in_flight.take_below(at_once).is_err() {
            return false;
        }
        if extra.recent.take(now_ms, within) {
            return true;
        }
        extra.end();
        false
    }
}

/// Takes one attempt without a limit.
pub fn take_unlimited(extra: &ExtraAttempts, now_ms: u64) {
    extra.in_flight.add(1);
    extra.recent.take(now_ms, u64::MAX);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn the_budget_is_a_share_with_a_minimum() {
        let budget = Budget { share: 20, min: 3 };
        assert_eq!([0, 10, 15, 20, 1000].map(|requests| budget.of(requests)), [3, 3, 3, 4, 200]);
        assert_eq!(Budget { share: 0, min: 0 }.of(1000), 0);
    }

    #[test]
    fn the_share_limits_concurrency_and_rate() {
        let (budget, extra) = (Budget { share: 10, min: 0 }, ExtraAttempts::default());
        let load = BackendLoad { live: 50, recent: 200 };
        let take = |count| (0..count).filter(|_| budget.take(&extra, load, 5_000)).count();
        assert_eq!(take(10), 5, "a tenth of those being served");
        (0..5).for_each(|_| extra.end());
        assert_eq!(take(10), 5);
        (0..5).for_each(|_| extra.end());
        (0..10).for_each(|_| {
            if budget.take(&extra, load, 5_000) {
                extra.end();
            }
        });
        assert_eq!(
            (take(10), extra.in_flight.load(Relaxed)),
            (0, 0),
            "a tenth of those of the second are used up"
        );
    }
}
