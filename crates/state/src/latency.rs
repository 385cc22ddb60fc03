//! A server's response latency: an average that follows peaks immediately and decays over time.
//!
//! Request tasks update it when a response begins or an attempt fails, and the balancer (`balance peak-ewma`) reads it on every
//! pick. The atomics are relaxed: one of two simultaneous updates may be lost, which does not matter for an average.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The average latency of a server.
#[derive(Debug, Default)]
pub struct Latency {
    /// The average and the time of its last update, in one word. The upper half is the time in units of 64 µs. It wraps after 76
    /// hours, which can at worst give one old average too much weight. The lower half is the average in µs, as a float: 0 if
    /// nothing was measured yet, negative if the last attempt failed.
    average: AtomicU64,
    /// Start of the period in which the server has had requests continuously, in the same units.
    busy_since: AtomicU32,
}

/// The outcome of an attempt at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The server responded.
    Good,
    /// The attempt failed, or the server responded with an error.
    Bad,
}

/// If the average has hardly changed, it is not written again for this time, in units of 64 µs (about a millisecond). Other workers
/// read the cache line on every pick, and the decay is small over such a short time. Silence counts from the end of this time.
const GRACE: u32 = 16;

/// The factor by which a response time must exceed the average to be recorded immediately.
const PEAK: f32 = 1.0 + 1.0 / 16.0;

/// The maximum average: 15 minutes.
const MOST_US: f32 = 900e6;

impl Latency {
    /// Returns the time, the average, and whether the last attempt was a failure.
    fn unpack(word: u64) -> Option<(u32, f32, bool)> {
        let average = f32::from_bits(word as u32);
        (word != 0).then(|| ((word >> 32) as u32, average.abs(), average < 0.0))
    }

    /// Returns the share that is left at `now` of a value written at `then`, both in units of 64 µs.
    fn share_left(then: u32, now: u32, decay_us: u32) -> f32 {
        let elapsed = since(then, now);
        if elapsed == 0 {
            return 1.0;
        }
        // The inverse of the first terms of the series of e^x. It is within 2 % of e^-x up to x = 1, and costs only a division.
        let x = elapsed as f32 * 64.0 / decay_us.max(1) as f32;
        1.0 / (1.0 + x * (1.0 + x * (0.5 + x / 6.0)))
    }

    /// Records a response time of `taken_us`. A peak replaces the average immediately. A faster response lowers the average in
    /// proportion to the time since the last response, over `decay_us`. A failure counts like a response that took `decay_us`, in
    /// the same proportion, so that the average grows with the failure rate and a server that fails fast appears slow. A second
    /// consecutive failure also doubles the average, up to `decay_us`, so that a server that only fails is detected within a few
    /// requests.
    pub fn record(&self, now_us: u64, taken_us: u64, answer: AttemptOutcome, decay_us: u32) {
        let sample = match answer {
            AttemptOutcome::Good => taken_us as f32,
            AttemptOutcome::Bad => taken_us.max(decay_us.into()) as f32,
        };
        let now = (now_us >> 6) as u32;
        let bad = answer == AttemptOutcome::Bad;
        let (at, average) = match Self::unpack(self.average.load(Relaxed)) {
            None => (now, sample),
            Some((_, average, _)) if !bad && sample > average * PEAK => (now, sample),
            // The first response after the grace period represents the whole period. Of the other responses, only a change between
            // success and failure matters.
            Some((then, average, failed)) if since(then, now) < GRACE && !(bad && failed) => {
                if bad == failed {
                    return;
                }
                (then, average)
            }
            Some((_, average, _)) if !bad && sample > average => (now, sample),
            Some((then, average, failed)) => {
                let left = Self::share_left(then, now, decay_us);
                let blend = average * left + sample * (1.0 - left);
                (now, if bad && failed { blend.max((2.0 * average).min(sample)) } else { blend })
            }
        };
        // Never zero, even for an immeasurably short time, because zero means that nothing was measured.
        let average = average.clamp(1.0, MOST_US);
        let average = if bad { -average } else { average };
        runtime::shared::note_write();
        self.average.store(u64::from(at) << 32 | u64::from(average.to_bits()), Relaxed);
    }

    /// Records that an idle server got a request. From now on, its silence counts.
    #[inline]
    pub fn begin(&self, now_us: u64) {
        let now = (now_us >> 6) as u32;
        let answered = (self.average.load(Relaxed) >> 32) as u32;
        // If silence began within the grace period, the recorded time is accurate enough.
        let lately = |then: u32| now.wrapping_sub(then) < GRACE;
        if !lately(answered) && !lately(self.busy_since.load(Relaxed)) {
            runtime::shared::note_write();
            self.busy_since.store(now, Relaxed);
        }
    }

    /// Returns the expected response time at `now_us`, in µs. `None` before the first response.
    ///
    /// The average of an idle server decays over time, so that a server that was slow is tried again. A busy server may have
    /// stopped responding, so the result is at least the time for which it has been silent.
    #[inline]
    pub fn read(&self, now_us: u64, decay_us: u32, busy: bool) -> Option<f32> {
        let (then, average, _) = Self::unpack(self.average.load(Relaxed))?;
        let now = (now_us >> 6) as u32;
        if !busy {
            return Some(average * Self::share_left(then, now, decay_us));
        }
        let silent = since(then, now).min(since(self.busy_since.load(Relaxed), now));
        // The decay while the server was idle.
        let left = Self::share_left(then, now.wrapping_sub(silent), decay_us);
        Some((average * left).max(silent.saturating_sub(GRACE) as f32 * 64.0))
    }

    /// Resets everything, because the server came up again and may be a different one.
    pub fn forget(&self) {
        self.average.store(0, Relaxed);
    }
}

/// Returns the time from `then` to `now`. It may be negative if another thread has read the clock slightly later.
#[inline]
fn since(then: u32, now: u32) -> u32 {
    (now.wrapping_sub(then) as i32).max(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_peak_counts_at_once_and_fades_by_the_decay() {
        let latency = Latency::default();
        assert_eq!(latency.read(SECOND, 1_000_000, false), None);
        latency.record(SECOND, 1_000, AttemptOutcome::Good, 1_000_000);
        latency.record(SECOND, 100_000, AttemptOutcome::Good, 1_000_000);
        assert_eq!(latency.read(SECOND, 1_000_000, false), Some(100_000.0));
        let later = latency.read(2 * SECOND, 1_000_000, false).unwrap();
        assert!((36_000.0..38_000.0).contains(&later), "{later}");
    }

    #[test]
    fn faster_answers_lower_it_in_proportion_to_time() {
        let latency = Latency::default();
        latency.record(SECOND, 100_000, AttemptOutcome::Good, 1_000_000);
        latency.record(SECOND, 1_000, AttemptOutcome::Good, 1_000_000);
        assert_eq!(latency.read(SECOND, 1_000_000, false), Some(100_000.0));
        latency.record(3 * SECOND, 1_000, AttemptOutcome::Good, 1_000_000);
        let later = latency.read(3 * SECOND, 1_000_000, false).unwrap();
        assert!((14_000.0..18_000.0).contains(&later), "{later}");
    }

    #[test]
    fn fast_failures_look_slow_in_proportion_to_their_rate() {
        let average_with_failures_of = |one_in: u64| {
            let latency = Latency::default();
            for number in 0..20_000u64 {
                let answer = if number % one_in == 0 { AttemptOutcome::Bad } else { AttemptOutcome::Good };
                latency.record(SECOND + number * 1_000, 500, answer, 1_000_000);
            }
            latency.read(21 * SECOND, 1_000_000, false).unwrap()
        };
        let (all, tenth, none) =
            (average_with_failures_of(1), average_with_failures_of(10), average_with_failures_of(u64::MAX));
        assert!(all > 950_000.0, "{all}");
        assert!((70_000.0..130_000.0).contains(&tenth), "{tenth}");
        assert!(none < 1_000.0, "{none}");
    }

    #[test]
    fn silence_makes_only_busy_servers_look_slow() {
        let latency = Latency::default();
        latency.record(SECOND, 1_000, AttemptOutcome::Good, 1_000_000);
        assert_eq!(latency.read(SECOND + 500_000, 1_000_000, true), Some(499_968.0 - 1_024.0));
        latency.begin(9 * SECOND);
        assert!(latency.read(9 * SECOND + 100, 1_000_000, true).unwrap() < 1_000.0);
    }

    #[test]
    fn constant_failure_is_detected_within_a_few_requests() {
        let latency = Latency::default();
        latency.record(SECOND, 1_000, AttemptOutcome::Good, 10_000_000);
        (0..8).for_each(|_| latency.record(SECOND, 50, AttemptOutcome::Bad, 10_000_000));
        assert!(latency.read(SECOND, 10_000_000, false).unwrap() > 100_000.0);
    }

    #[test]
    fn similar_times_are_written_once_a_millisecond_and_peaks_at_once() {
        let latency = Latency::default();
        let read = || latency.average.load(Relaxed);
        latency.record(SECOND, 1_000, AttemptOutcome::Good, 1_000_000);
        let mut writes = 0;
        let mut last = read();
        for number in 1..=10_000 {
            let now = SECOND + number * 10;
            latency.begin(now);
            latency.record(now, 900 + number % 100, AttemptOutcome::Good, 1_000_000);
            writes += usize::from(std::mem::replace(&mut last, read()) != last);
        }
        assert!((80..=110).contains(&writes), "{writes} in a tenth of a second");
        let soon = SECOND + 100_001;
        latency.record(soon, 5_000, AttemptOutcome::Good, 1_000_000);
        assert_eq!(latency.read(soon, 1_000_000, false), Some(5_000.0));
        latency.record(soon, 50, AttemptOutcome::Bad, 1_000_000);
        assert!(f32::from_bits(read() as u32) < 0.0, "the failure is known");
        latency.record(soon, 50, AttemptOutcome::Good, 1_000_000);
        assert!(f32::from_bits(read() as u32) > 0.0, "and that it is over");
    }

    #[test]
    fn a_reset_server_has_no_measurement() {
        let latency = Latency::default();
        latency.record(SECOND, 0, AttemptOutcome::Good, 1_000_000);
        assert_eq!(latency.read(SECOND, 1_000_000, false), Some(1.0));
        latency.forget();
        assert_eq!(latency.read(SECOND, 1_000_000, false), None);
    }
}
