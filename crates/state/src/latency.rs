//! How long a server's answers take: an average that follows peaks at once and forgets them with time.
//!
//! Fed by request tasks when an answer begins or an attempt fails, read by the balancer (`balance peak-ewma`) on
//! every pick. One relaxed atomic: of two updates in the same instant one may be lost, which an average bears.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The average and when it was last written, in one word: the instant in units of 64 µs in the upper half (it
/// goes round after 76 hours, which at worst makes one old average count too much), µs as a float in the lower. 0
/// when nothing was ever measured.
#[derive(Debug, Default)]
pub struct Latency(AtomicU64);

/// How an attempt at a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answered.
    Good,
    /// It failed, or answered with an error of its own.
    Bad,
}

/// The largest average kept: a quarter of an hour.
const MOST_US: f32 = 900e6;

impl Latency {
    fn unpack(word: u64) -> Option<(u32, f32)> {
        (word != 0).then(|| ((word >> 32) as u32, f32::from_bits(word as u32)))
    }

    /// What is left at `now` of what was written `then`, both in units of 64 µs.
    fn share_left(then: u32, now: u32, decay_us: u32) -> f32 {
        // Another thread may have read its clock a little later than this one.
        let elapsed = (now.wrapping_sub(then) as i32).max(0);
        if elapsed == 0 {
            return 1.0;
        }
        (-(elapsed as f32 * 64.0) / decay_us.max(1) as f32).exp()
    }

    /// Takes an answer into account that took `taken_us`. A peak counts whole at once; what is faster pulls the
    /// average down in proportion to the time since the last answer, over `decay_us`. A failure counts like an
    /// answer that took `decay_us`, in the same proportion, so that the average grows by the rate of failures:
    /// a server that fails fast looks slow.
    pub fn record(&self, now_us: u64, taken_us: u64, answer: Answer, decay_us: u32) {
        let sample = match answer {
            Answer::Good => taken_us as f32,
            Answer::Bad => taken_us.max(decay_us.into()) as f32,
        };
        let now = (now_us >> 6) as u32;
        let average = match Self::unpack(self.0.load(Relaxed)) {
            None => sample,
            Some((_, average)) if sample > average && answer == Answer::Good => sample,
            Some((then, average)) => {
                let left = Self::share_left(then, now, decay_us);
                average * left + sample * (1.0 - left)
            }
        };
        // Not zero even for an answer that took no measurable time: zero says that nothing was measured.
        let average = average.clamp(1.0, MOST_US);
        self.0.store(u64::from(now) << 32 | u64::from(average.to_bits()), Relaxed);
    }

    /// The average at `now_us`, in µs: what was seen long ago counts less, so that a server that was slow is tried
    /// again. `None` before the first answer.
    #[inline]
    pub fn read(&self, now_us: u64, decay_us: u32) -> Option<f32> {
        let (then, average) = Self::unpack(self.0.load(Relaxed))?;
        Some(average * Self::share_left(then, (now_us >> 6) as u32, decay_us))
    }

    /// Forgets everything: the server came up again and is another one now, as far as anyone knows.
    pub fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_peak_counts_at_once_and_fades_by_the_decay() {
        let latency = Latency::default();
        assert_eq!(latency.read(SECOND, 1_000_000), None);
        latency.record(SECOND, 1_000, Answer::Good, 1_000_000);
        latency.record(SECOND, 100_000, Answer::Good, 1_000_000);
        assert_eq!(latency.read(SECOND, 1_000_000), Some(100_000.0));
        let later = latency.read(2 * SECOND, 1_000_000).unwrap();
        assert!((36_000.0..37_500.0).contains(&later), "{later}");
    }

    #[test]
    fn faster_answers_pull_it_down_in_proportion_to_time() {
        let latency = Latency::default();
        latency.record(SECOND, 100_000, Answer::Good, 1_000_000);
        latency.record(SECOND, 1_000, Answer::Good, 1_000_000);
        assert_eq!(latency.read(SECOND, 1_000_000), Some(100_000.0));
        latency.record(3 * SECOND, 1_000, Answer::Good, 1_000_000);
        let later = latency.read(3 * SECOND, 1_000_000).unwrap();
        assert!((14_000.0..15_000.0).contains(&later), "{later}");
    }

    #[test]
    fn failing_fast_makes_a_server_look_slow_in_proportion_to_the_rate_of_failures() {
        let average_with_failures_of = |one_in: u64| {
            let latency = Latency::default();
            for number in 0..20_000u64 {
                let answer = if number % one_in == 0 { Answer::Bad } else { Answer::Good };
                latency.record(SECOND + number * 1_000, 500, answer, 1_000_000);
            }
            latency.read(21 * SECOND, 1_000_000).unwrap()
        };
        let (all, tenth, none) =
            (average_with_failures_of(1), average_with_failures_of(10), average_with_failures_of(u64::MAX));
        assert!(all > 950_000.0, "{all}");
        assert!((70_000.0..130_000.0).contains(&tenth), "{tenth}");
        assert!(none < 1_000.0, "{none}");
    }

    #[test]
    fn what_is_forgotten_is_as_if_never_measured() {
        let latency = Latency::default();
        latency.record(SECOND, 0, Answer::Good, 1_000_000);
        assert_eq!(latency.read(SECOND, 1_000_000), Some(1.0));
        latency.forget();
        assert_eq!(latency.read(SECOND, 1_000_000), None);
    }
}
