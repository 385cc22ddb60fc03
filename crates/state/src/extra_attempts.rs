//! Attempts beyond the first of a backend's requests: retries and hedges, as far as `retry-budget`
//! limits them or `hedge` makes them.
//!
//! Nothing is decided here: `balance::budget` and `balance::hedge` do. Request tasks write, and none
//! of it unless a backend has one of the two; the runtime socket reads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use runtime::shared::{Shared as _, note_write};
use runtime::{Count, Sharded};

use crate::counters::{self, BackendCounters, Clear};
use crate::histogram::{Histogram, Spread};

/// What one worker counts.
#[derive(Debug, Default)]
pub struct ExtraCounters {
    /// Retries within the budget.
    pub retries: Count,
    /// Retries that the budget refused.
    pub retries_refused: Count,
    /// Hedges made.
    pub hedges: Count,
    /// Hedges whose answer came first.
    pub hedges_won: Count,
    /// Hedges that the share of `hedge` refused.
    pub hedges_refused: Count,
    /// Hedges that the budget refused.
    pub hedges_over_budget: Count,
    /// Hedges for which no other server had room.
    pub hedges_without_server: Count,
    /// How long first attempts take to be answered.
    pub times: Spread,
}

impl Clear for ExtraCounters {
    /// The times stay: `hedge` goes by them.
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

/// What is known of a backend's.
#[derive(Debug, Default)]
pub struct ExtraAttempts {
    /// What workers count.
    pub counters: Sharded<ExtraCounters>,
    /// Extra attempts being made. Written when one begins and when its request ends.
    pub in_flight: AtomicU32,
    /// Those that began within the last second.
    pub recent: Window,
    /// When `hedge` waits, and what it may do. Locked by who is about to hedge, who does without
    /// where another has it.
    pub pace: Mutex<Pace>,
    /// How long to wait before a hedge, in µs; 0 while too little is known. Written by who worked it
    /// out last.
    pub delay_us: AtomicU64,
    /// When that is to be worked out again, in ms of the monotonic clock. Written by who does it.
    pub due_ms: AtomicU64,
}

/// How much a backend has to do.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackendLoad {
    /// Requests that it serves now.
    pub live: u64,
    /// Requests that came within the last second.
    pub recent: u64,
}

impl BackendLoad {
    /// That of a backend with these counters at `now_ms`.
    pub fn of(counters: &Sharded<BackendCounters>, now_ms: u64) -> Self {
        Self {
            live: counters::current(counters, |own| own.traffic.sessions.get()),
            recent: counters::total(counters, |own| own.traffic.session_rate.per_second(now_ms).into()),
        }
    }
}

/// What `hedge` goes by.
#[derive(Debug, Default)]
pub struct Pace {
    /// Recent times, older ones faded.
    pub recent: Histogram,
    /// All times when they were last looked at.
    pub before: Histogram,
    /// Hedges that may be made, in hundredths.
    pub allowance: u64,
    /// Requests when that was last filled up.
    pub requests: u64,
}

/// The second, and the events of it and of the one before.
#[derive(Debug, Default)]
pub struct Window(AtomicU64);

/// The largest count that a [`Window`] has.
const MOST: u64 = (1 << 20) - 1;

impl Window {
    /// The second of `now_ms`, the events of the one before, and its own so far.
    fn unpack(word: u64, now_ms: u64) -> (u64, u64, u64) {
        let second = (now_ms / 1000) & 0xff_ffff;
        let (then, previous, current) = (word >> 40, (word >> 20) & MOST, word & MOST);
        match second.wrapping_sub(then) & 0xff_ffff {
            0 => (second, previous, current),
            1 => (second, current, 0),
            _ => (second, 0, 0),
        }
    }

    /// Events within the second that ends at `now_ms`: those of the running second, and of the one
    /// before the share that still lies within.
    pub fn count(&self, now_ms: u64) -> u64 {
        let (_, previous, current) = Self::unpack(self.0.load(Relaxed), now_ms);
        Self::within(previous, current, now_ms)
    }

    fn within(previous: u64, current: u64, now_ms: u64) -> u64 {
        current + (previous * (1000 - now_ms % 1000)).div_ceil(1000)
    }

    /// Counts one more at `now_ms`, unless there were `limit` or more.
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
    /// The sum of what workers count.
    pub fn sum(&self, of: impl Fn(&ExtraCounters) -> &Count) -> u64 {
        counters::total(&self.counters, |own| of(own).get())
    }

    /// An extra attempt is over.
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
        // Of the second before, those count that would lie in the window if they had come evenly:
        // twice as many is the most that any second has.
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
