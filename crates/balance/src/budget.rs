//! `retry-budget`: how many attempts beyond the first the requests of a backend may make.
//!
//! Where most requests fail, each of them tried again is load on servers that have too much of it. So
//! of the requests that a backend serves only a share may be tried again: of those that it serves at
//! this moment, and of those that it had within the last second. What is refused ends as it failed.
//! Called by `proxy` before a retry and before a hedge.

use runtime::shared::Shared as _;
use state::ExtraAttempts;
use state::extra_attempts::BackendLoad;

/// What `retry-budget` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The share of the requests, in percent.
    pub share: u32,
    /// So many may always be tried again, at once and within a second.
    pub min: u32,
}

impl Budget {
    /// How many of so many requests may be tried again.
    pub fn of(self, requests: u64) -> u64 {
        (requests * u64::from(self.share) / 100).max(self.min.into())
    }

    /// Takes one attempt out of the budget at `now_ms`, if that allows it. It is given back by
    /// [`ExtraAttempts::end`].
    pub fn take(self, extra: &ExtraAttempts, load: BackendLoad, now_ms: u64) -> bool {
        // All requests that there were within the last second are at least as many as the larger of
        // the two.
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

/// Takes one attempt that nothing limits.
pub fn take_unlimited(extra: &ExtraAttempts, now_ms: u64) {
    extra.in_flight.add(1);
    extra.recent.take(now_ms, u64::MAX);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_share_of_the_requests_and_never_less_than_the_minimum() {
        let budget = Budget { share: 20, min: 3 };
        assert_eq!([0, 10, 15, 20, 1000].map(|requests| budget.of(requests)), [3, 3, 3, 4, 200]);
        assert_eq!(Budget { share: 0, min: 0 }.of(1000), 0);
    }

    #[test]
    fn neither_at_once_nor_within_a_second_more_than_the_share() {
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
