//! `hedge`: when and how often a request is also sent to a second server because the first one is slow.
//!
//! A request waits for a quantile of recent response times, or for a fixed time. Then a second server is tried as well, and the
//! first response is used. The share of hedged requests is limited: each request earns `max` hundredths of a hedge, and only a few
//! hedges can be saved up. Called by `proxy` for each request of a backend with hedging.

use std::sync::atomic::Ordering::Relaxed;

use state::{ExtraAttempts, Histogram};

/// The settings of `hedge`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hedge {
    /// The delay.
    pub after: After,
    /// The maximum share of hedges, in percent of the requests.
    pub share: u32,
}

/// How long a request waits for a response before it is hedged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum After {
    /// A number of ms.
    Time(u32),
    /// The time within which this share (0 to 1) of recent requests completed.
    Quantile(f64),
}

/// The maximum number of hedges saved up.
const SAVED: u64 = 10;

/// How often the quantile is recomputed, in ms.
const PERIOD_MS: u64 = 1000;

/// The number of samples above the quantile that are required.
const BEYOND: f64 = 5.0;

/// The minimum delay in µs, which is the resolution of timers.
const LEAST_US: u64 = 1000;

impl Hedge {
    /// The delay at `now_ms`, in µs; `None` while too few response times are known.
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

    /// Takes one more hedge if the share permits it, given the total number of `requests` so far. The caller must then make the
    /// hedge.
    pub fn take(&self, extra: &ExtraAttempts, requests: u64) -> bool {
        // Another thread is deciding at this moment. Skipping one hedge does no harm.
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

/// Recomputes the quantile from recent response times.
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
    fn the_delay_is_a_quantile_of_enough_recent_times() {
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
    fn hedges_are_limited_to_the_share_plus_savings() {
        let (hedge, extra) = (Hedge { after: After::Time(5), share: 5 }, ExtraAttempts::default());
        let (mut random, mut requests, mut made) = (fastrand::Rng::with_seed(5), 0u64, 0u64);
        for round in 0..20_000 {
            requests += 1;
            // Alternates between slow and fast phases.
            if round / 1_000 % 2 == 0 && random.bool() && hedge.take(&extra, requests) {
                made += 1;
            }
            assert!(made * 100 <= requests * 5 + SAVED * 100, "{made} of {requests}");
        }
        assert!(made > 400, "{made}");
    }
}
