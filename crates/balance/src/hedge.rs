//! `hedge`: when a request that a server is slow to answer is sent to a second one too, and how often.
//!
//! A request waits for a quantile of the times that recent ones took, or for a time; the second server
//! is then asked as well, and whoever answers first is heard. No more than a share of the requests are
//! doubled: each request allows for a hundredth part of `max` of a hedge, and no more than a few are
//! saved up. Called by `proxy` for each request of a backend that hedges.

use std::sync::atomic::Ordering::Relaxed;

use state::{ExtraAttempts, Histogram};

/// What `hedge` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hedge {
    /// When.
    pub after: After,
    /// The most hedges, in percent of the requests.
    pub share: u32,
}

/// How long a request waits for its answer before it is sent once more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum After {
    /// So many ms.
    Time(u32),
    /// As long as this share (0 to 1) of recent requests took at most.
    Quantile(f64),
}

/// How many hedges are saved up at most.
const SAVED: u64 = 10;

/// How often the quantile is worked out again, in ms.
const PERIOD_MS: u64 = 1000;

/// How many of the times that a quantile is worked out of must lie beyond it.
const BEYOND: f64 = 5.0;

/// No hedge is made sooner, in µs: a timer's grain.
const LEAST_US: u64 = 1000;

impl Hedge {
    /// How long to wait at `now_ms`, in µs; `None` as long as too little is known of how long requests
    /// take.
    pub fn delay_us(&self, extra: &ExtraAttempts, now_ms: u64) -> Option<u64> {
        let quantile = match self.after {
            After::Time(ms) => return Some(u64::from(ms) * 1000),
            After::Quantile(quantile) => quantile,
        };
        if now_ms >= extra.due_ms.load(Relaxed) {
            look_again(extra, quantile, now_ms);
        }
        Some(extra.delay_us.load(Relaxed)).filter(|delay| *delay > 0)
    }

    /// Whether one more hedge is within the share, of so many `requests` in all so far. Who has it
    /// makes it.
    pub fn take(&self, extra: &ExtraAttempts, requests: u64) -> bool {
        // Another decides at this moment: one hedge less does no harm.
        let Ok(mut pace) = extra.pace.try_lock() else { return false };
        let came = requests.saturating_sub(pace.requests);
        pace.requests = requests;
        pace.allowance = (pace.allowance + came * u64::from(self.share)).min(SAVED * 100);
        if pace.allowance < 100 {
            return false;
        }
        pace.allowance -= 100;
        true
    }
}

/// Works the quantile out of the times of late.
#[cold]
fn look_again(extra: &ExtraAttempts, quantile: f64, now_ms: u64) {
    let Ok(mut pace) = extra.pace.try_lock() else { return };
    extra.due_ms.store(now_ms + PERIOD_MS, Relaxed);
    let now = Histogram::of(extra.counters.all().map(|own| &own.times));
    let came = now.since(&pace.before);
    let enough = (BEYOND / (1.0 - quantile).max(1e-4)) as u64;
    if pace.recent.total() >= enough && came.total() > 0 {
        pace.recent.fade();
    }
    pace.recent.add(&came);
    pace.before = now;
    let known = pace.recent.total() >= enough;
    let delay = pace.recent.quantile(quantile).filter(|_| known);
    extra.delay_us.store(delay.map_or(0, |us| (us as u64).max(LEAST_US)), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_quantile_of_the_times_of_late_once_there_are_enough() {
        let (hedge, extra) = (Hedge { after: After::Quantile(0.9), share: 10 }, ExtraAttempts::default());
        let times = &extra.counters.mine().times;
        assert_eq!(hedge.delay_us(&extra, 1_000), None);
        (0..40).for_each(|_| times.add(10_000));
        assert_eq!(hedge.delay_us(&extra, 2_000), None, "too few");
        (0..200).for_each(|at| times.add(if at % 5 == 0 { 80_000 } else { 10_000 }));
        let delay = hedge.delay_us(&extra, 3_000).unwrap_or_default();
        assert!((60_000..90_000).contains(&delay), "{delay}");
        assert_eq!(hedge.delay_us(&extra, 3_500), Some(delay), "worked out once a second");
        for second in 4..14 {
            (0..200).for_each(|_| times.add(2_000));
            hedge.delay_us(&extra, second * 1_000);
        }
        let delay = hedge.delay_us(&extra, 14_000).unwrap_or_default();
        assert!((1_700..2_300).contains(&delay), "what is old is forgotten: {delay}");
    }

    #[test]
    fn hedges_are_no_more_than_their_share_and_what_is_saved_up() {
        let (hedge, extra) = (Hedge { after: After::Time(5), share: 5 }, ExtraAttempts::default());
        let (mut random, mut requests, mut made) = (fastrand::Rng::with_seed(5), 0u64, 0u64);
        for round in 0..20_000 {
            requests += 1;
            // For a while all are slow, for a while none.
            if round / 1_000 % 2 == 0 && random.bool() && hedge.take(&extra, requests) {
                made += 1;
            }
            assert!(made * 100 <= requests * 5 + SAVED * 100, "{made} of {requests}");
        }
        assert!(made > 400, "{made}");
    }
}
