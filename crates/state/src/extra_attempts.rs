//! Attempts beyond the first of a backend's requests: retries limited by `retry-budget`, and hedges (`hedge`).
//!
//! This module only stores the state; `balance::budget` and `balance::hedge` make the decisions. Request tasks write the state,
//! but only if a backend uses one of these features. The runtime socket reads it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use runtime::shared::{Shared as _, note_write};
use runtime::{Count, LazySharded};

use crate::counters::{self, BackendCounters, Clear};
use crate::histogram::{Histogram, Spread};

/// One worker's counters.
#[derive(Debug, Default)]
pub struct ExtraCounters {
    /// Retries within the budget.
    pub retries: Count,
    /// Retries rejected by the budget.
    pub retries_refused: Count,
    /// Hedges made.
    pub hedges: Count,
    /// Hedges that were answered first.
    pub hedges_won: Count,
    /// Hedges rejected by the share of `hedge`.
    pub hedges_refused: Count,
    /// Hedges rejected by the budget.
    pub hedges_over_budget: Count,
    /// Hedges for which no other server had room.
    pub hedges_without_server: Count,
    /// The time until first attempts are answered.
    pub times: Spread,
}

impl Clear for ExtraCounters {
    /// The times are not cleared, because `hedge` depends on them.
    fn clear(&self, all: bool) {
        if all {
            let counts = [
                &self.retries,
                &self.retries_refused,
                &self.hedges,
                &self.hedges_won,
                &self.hedges_refused,
                &self.hedges_over_budget,
                &self.hedges_without_server,
            ];
            counts.into_iter().for_each(Count::clear);
        }
    }
}

/// A backend's extra attempts.
#[derive(Debug, Default)]
pub struct ExtraAttempts {
    /// The workers' counters.
    pub counters: LazySharded<ExtraCounters>,
    /// The number of current extra attempts. Updated when one begins and when its request ends.
    pub in_flight: AtomicU32,
    /// The extra attempts that started within the last second.
    pub recent: Window,
    /// When `hedge` makes a hedge, and how many it may make. A request that is about to hedge takes the lock. If the lock is not
    /// free, the request does not hedge.
    pub pace: Mutex<Pace>,
    /// The delay before a hedge, in µs; 0 while there is too little data. Written by the request that computes it.
    pub delay_us: AtomicU64,
    /// When to compute the delay again, in ms of the monotonic clock. Written by the request that computes the delay.
    pub due_ms: AtomicU64,
}

/// A backend's load.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackendLoad {
    /// Requests being served.
    pub live: u64,
    /// Requests received within the last second.
    pub recent: u64,
}

impl BackendLoad {
    /// Returns the load of a backend with these counters at `now_ms`.
    pub fn of(counters: &LazySharded<BackendCounters>, now_ms: u64) -> Self {
        Self {
            live: counters::current(counters, |own| own.traffic.sessions.get()),
            recent: counters::total(counters, |own| own.traffic.session_rate.per_second(now_ms).into()),
        }
    }
}

/// The data for `hedge`.
#[derive(Debug, Default)]
pub struct Pace {
    /// Recent times. Older ones have less weight.
    pub recent: Histogram,
    /// All times at the last update.
    pub before: Histogram,
    /// Number of hedges allowed, in hundredths.
    pub allowance: u64,
    /// The number of requests when the allowance was last refilled.
    pub requests: u64,
}

/// The current second, the number of events in it, and the number in the previous second.
#[derive(Debug, Default)]
pub struct Window(AtomicU64);

/// The maximum count of a [`Window`].
const MOST: u64 = (1 << 20) - 1;

impl Window {
    /// Returns the second of `now_ms`, the number of events in the previous second, and the number in this second so far.
    fn unpack(word: u64, now_ms: u64) -> (u64, u64, u64) {
        let second = (now_ms / 1000) & 0xff_ffff;
        let (then, previous, current) = (word >> 40, (word >> 20) & MOST, word & MOST);
        match second.wrapping_sub(then) & 0xff_ffff {
            0 => (second, previous, current),
            1 => (second, current, 0),
            _ => (second, 0, 0),
        }
    }

    /// Returns the number of events in the second that ends at `now_ms`: the events of the current second, plus a proportional
    /// share of the previous one.
    pub fn count(&self, now_ms: u64) -> u64 {
        let (_, previous, current) = Self::unpack(self.0.load(Relaxed), now_ms);
        Self::within(previous, current, now_ms)
    }

    fn within(previous: u64, current: u64, now_ms: u64) -> u64 {
        current + (previous * (1000 - now_ms % 1000)).div_ceil(1000)
    }

    /// Counts one more event at `now_ms`, unless `limit` is reached.
    pub fn take(&self, now_ms: u64, limit: u64) -> bool {
        note_write();
        let taken = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let (second, previous, current) = Self::unpack(word, now_ms);
            (Self::within(previous, current, now_ms) < limit.min(MOST))
                .then_some(second << 40 | previous << 20 | (current + 1))
        });
        taken.is_ok()
    }
}

impl ExtraAttempts {
    /// Sums a counter over all workers.
    pub fn sum(&self, of: impl Fn(&ExtraCounters) -> &Count) -> u64 {
        counters::total(&self.counters, |own| of(own).get())
    }

    /// Ends an extra attempt.
    pub fn end(&self) {
        self.in_flight.sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_no_more_than_its_limit_in_any_second() {
        let window = Window::default();
        let mut random = fastrand::Rng::with_seed(3);
        let (mut now, mut taken) = (7_000u64, Vec::new());
        for _ in 0..50_000 {
            now += random.u64(..4);
            if window.take(now, 100) {
                taken.push(now);
            }
        }
        // Events of the previous second count as if evenly distributed, so any one-second window has at most twice the limit.
        for (at, first) in taken.iter().enumerate() {
            let within = taken[at..].iter().take_while(|now| **now < first + 1000).count();
            assert!(within <= 200, "{within}");
        }
        let seconds = (now - 7_000) as usize / 1000;
        assert!((90 * seconds..=105 * seconds).contains(&taken.len()), "{} in {seconds} s", taken.len());
    }

    #[test]
    fn a_window_is_empty_two_seconds_later() {
        let window = Window::default();
        (0..10).for_each(|_| assert!(window.take(5_500, 10)));
        assert!(!window.take(5_999, 10));
        assert_eq!([5_999, 6_000, 6_500, 7_000].map(|now| window.count(now)), [10, 10, 5, 0]);
    }
}
