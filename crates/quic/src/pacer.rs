//! Spreads packets over the round-trip time (RFC 9002, 7.7).

use std::time::{Duration, Instant};

/// The time that one burst may take at the pace of the path. Timers have a granularity of a millisecond.
const BURST: Duration = Duration::from_millis(4);

/// The smallest burst, in packets.
const PACKETS_MIN: u64 = 16;

/// The first burst, in bytes: the window that connections start with.
const INITIAL: i64 = 14_720;

/// A token bucket in bytes.
#[derive(Debug)]
pub(crate) struct Pacer {
    tokens: i64,
    updated: Instant,
}

/// The pace of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Bytes in a second.
    pub(crate) rate: u64,
    pub(crate) mtu: u16,
}

impl Pace {
    /// A quarter more than the window in each round trip, so that the window is used.
    pub(crate) fn of_window(window: u64, rtt: Duration, mtu: u16) -> Self {
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        Self { rate: window.saturating_mul(1_250_000) / micros, mtu }
    }

    fn capacity(&self) -> i64 {
        let burst = self.bytes_in(BURST).max(PACKETS_MIN * u64::from(self.mtu));
        i64::try_from(burst).unwrap_or(i64::MAX)
    }

    fn bytes_in(&self, time: Duration) -> u64 {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.rate.saturating_mul(micros) / 1_000_000
    }
}

impl Pacer {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: INITIAL, updated: now }
    }

    /// Whether packets may be sent without a look at the pace.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens > 0
    }

    /// Returns when packets may be sent; `None` for now.
    pub(crate) fn delay(&mut self, now: Instant, pace: Pace) -> Option<Instant> {
        if self.has_tokens() {
            return None;
        }
        let capacity = pace.capacity();
        let new = pace.bytes_in(now.saturating_duration_since(self.updated));
        if new > 0 {
            self.tokens = self.tokens.saturating_add(i64::try_from(new).unwrap_or(i64::MAX)).min(capacity);
            self.updated = now;
        }
        if self.tokens > 0 {
            return None;
        }
        // Waits for half a burst, so that datagrams leave in batches.
        let missing = u64::try_from(capacity / 2 - self.tokens).unwrap_or(0);
        let micros = missing.saturating_mul(1_000_000) / pace.rate.max(1);
        Some(now + Duration::from_micros(micros.clamp(1, 1_000_000)))
    }

    /// Counts sent bytes.
    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_kept_on_average() {
        let start = Instant::now();
        let pace = Pace::of_window(125_000, Duration::from_millis(100), 1250);
        assert_eq!(pace.rate, 1_562_500);
        let mut pacer = Pacer::new(start);
        let (mut now, mut sent) = (start, 0);
        while now < start + Duration::from_secs(2) {
            match pacer.delay(now, pace) {
                None => {
                    pacer.note_sent(1250);
                    sent += 1250;
                }
                Some(at) => {
                    assert!(at > now && at < now + Duration::from_millis(20));
                    now = at;
                }
            }
        }
        let burst = 16 * 1250;
        assert!((3_125_000 - burst..=3_125_000 + 2 * burst).contains(&sent), "{sent}");
    }

    #[test]
    fn fast_paths_are_hardly_paced() {
        let now = Instant::now();
        let pace = Pace::of_window(500_000, Duration::from_micros(100), 1250);
        let mut pacer = Pacer::new(now);
        assert_eq!(pacer.delay(now, pace), None);
        pacer.note_sent(500_000);
        assert_eq!(pacer.delay(now + Duration::from_micros(100), pace), None);
    }
}
