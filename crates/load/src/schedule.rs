//! When requests are due with `-R`.
//!
//! The due times are fixed in advance and do not depend on the server. If the server stalls, requests become overdue. Their latency
//! is measured from the due time, so the result includes the wait of all requests that the stall delayed, not only of those that
//! were in flight (no coordinated omission).

use crate::clock::{Nanos, SECOND};

/// The due times of one thread.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    /// Requests per second of all threads.
    rate: f64,
    /// The time until the full rate is reached, in seconds.
    ramp: f64,
    /// This thread has every `threads`th request, beginning with `next`.
    next: u64,
    threads: u64,
    start: Nanos,
    /// No request is due at this time or later.
    end: Nanos,
}

impl Schedule {
    /// The schedule of thread `index` of `threads`, from `start` to `end`. The rate grows during `ramp`.
    pub(crate) fn new(
        rate: f64,
        ramp: Nanos,
        index: usize,
        threads: usize,
        start: Nanos,
        end: Nanos,
    ) -> Self {
        let ramp = ramp as f64 / SECOND as f64;
        Self { rate, ramp, next: index as u64, threads: threads as u64, start, end }
    }

    /// When the next request is due.
    pub(crate) fn due(&self) -> Nanos {
        let number = self.next as f64;
        // During the ramp, rate · t² / (2 · ramp) requests are due up to the time t.
        let in_ramp = self.rate * self.ramp / 2.0;
        let seconds = if number < in_ramp {
            (2.0 * self.ramp * number / self.rate).sqrt()
        } else {
            self.ramp + (number - in_ramp) / self.rate
        };
        self.start.saturating_add((seconds * SECOND as f64) as Nanos)
    }

    /// Takes the next request if it is due; returns when it was due.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.due();
        (due <= now && due < self.end).then(|| {
            self.next += self.threads;
            due
        })
    }

    /// The number of requests that are due before `at` and were not taken.
    pub(crate) fn overdue(&self, at: Nanos) -> u64 {
        let mut rest = self.clone();
        let elapsed = at.saturating_sub(self.start) as f64 / SECOND as f64;
        let in_ramp = self.rate * self.ramp / 2.0;
        let due = if elapsed < self.ramp {
            self.rate * elapsed * elapsed / (2.0 * self.ramp)
        } else {
            in_ramp + (elapsed - self.ramp) * self.rate
        };
        let mut count = (due as u64).saturating_sub(rest.next) / rest.threads;
        rest.next += count * rest.threads;
        while rest.due() < at {
            (rest.next, count) = (rest.next + rest.threads, count + 1);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MS;
    use crate::histogram::Latencies;

    #[test]
    fn requests_are_evenly_spaced_and_divided_among_the_threads() {
        let mut all: Vec<Nanos> = Vec::new();
        for index in 0..3 {
            let mut schedule = Schedule::new(100.0, 0, index, 3, 5 * SECOND, 6 * SECOND);
            while let Some(due) = schedule.take(u64::MAX) {
                all.push(due);
            }
        }
        all.sort_unstable();
        let expected: Vec<Nanos> = (0..100).map(|number| 5 * SECOND + number * 10 * MS).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn the_rate_grows_during_the_soft_start() {
        let mut schedule = Schedule::new(1000.0, 2 * SECOND, 0, 1, 0, u64::MAX);
        let mut taken = |until| std::iter::from_fn(|| schedule.take(until)).count();
        // A quarter of the requests of the ramp are due in its first half.
        assert_eq!(taken(SECOND - MS / 10), 250);
        assert_eq!(taken(2 * SECOND - MS / 10), 750);
        assert_eq!(taken(3 * SECOND - MS / 10), 1000);
    }

    #[test]
    fn requests_that_were_not_taken_are_counted() {
        for (ramp, until) in [(0, SECOND), (2 * SECOND, SECOND), (2 * SECOND, 3 * SECOND)] {
            for taken in [0, 7] {
                let mut schedule = Schedule::new(1000.0, ramp, 1, 4, 0, u64::MAX);
                let before = (0..taken).filter_map(|_| schedule.take(u64::MAX)).count();
                assert_eq!(before, taken);
                let count = schedule.overdue(until);
                let left = std::iter::from_fn(|| schedule.take(until - 1)).count() as u64;
                assert_eq!(count, left, "{ramp} {until} {taken}");
                assert!(left > 0);
            }
        }
    }

    /// A server that answers within a millisecond, except that it stalls once for a second; one user; 100 requests per second.
    fn latencies(from_due_time: bool) -> Latencies {
        let mut schedule = Schedule::new(100.0, 0, 0, 1, 0, u64::MAX);
        let (mut now, mut latencies) = (0, Latencies::new());
        loop {
            now = now.max(schedule.due());
            if now >= 10 * SECOND {
                return latencies;
            }
            let due = schedule.take(now).unwrap();
            let begun = now;
            let stalls = (4 * SECOND..5 * SECOND).contains(&now);
            now = if stalls { 5 * SECOND } else { now + MS };
            latencies.record(now - if from_due_time { due } else { begun });
        }
    }

    #[test]
    fn a_stall_counts_for_all_requests_that_it_delays() {
        let (corrected, naive) = (latencies(true), latencies(false));
        assert_eq!((corrected.count(), naive.count()), (1000, 1000));
        // 100 of 1000 requests were due during the stall.
        assert!(corrected.percentile(95.0) > 400 * MS, "{}", corrected.percentile(95.0));
        assert!(corrected.percentile(99.0) > 850 * MS);
        assert!(naive.percentile(99.0) < 2 * MS, "one request alone was in flight");
        assert_eq!(corrected.max() / MS, naive.max() / MS);
    }
}
