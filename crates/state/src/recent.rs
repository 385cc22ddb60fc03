//! The number of events in about the last second, in one word that any thread may write.
//!
//! This is less precise than [`runtime::count::Rate`], because several threads write it: if two events occur simultaneously, one
//! may be lost. If the loads of two servers are equal, the balancer compares these numbers (`balance random`). They are not shown
//! anywhere.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Up to this many events per second are counted individually. Beyond that, about this many are sampled.
const EXACT: u64 = 64;

/// The current second, the number of events in it, and the number in the previous second; both at most 65,535.
#[derive(Debug, Default)]
pub struct Recent(AtomicU64);

impl Recent {
    /// Returns the counts at `second`: of this second, and of the previous one.
    fn counts(&self, second: u32) -> (u64, u64) {
        let word = self.0.load(Relaxed);
        match second.wrapping_sub((word >> 32) as u32) {
            0 => (word & 0xffff, word >> 16 & 0xffff),
            1 => (0, word & 0xffff),
            _ => (0, 0),
        }
    }

    /// Counts one event. Above the limit, a random sample represents all events. Readers on other cores then keep the cache line,
    /// and two servers can still be compared.
    #[inline]
    pub fn tick(&self, now_us: u64) {
        let second = (now_us / 1_000_000) as u32;
        let (current, previous) = self.counts(second);
        let step = (current.max(previous) / EXACT).next_power_of_two();
        if step > 1 && fastrand::u64(..) & (step - 1) != 0 {
            return;
        }
        let current = (current + step).min(0xffff);
        runtime::shared::note_write();
        self.0.store(u64::from(second) << 32 | previous << 16 | current, Relaxed);
    }

    /// Returns the number of events in the second that ends at `now_us`: the events of the current second, plus a proportional
    /// share of the previous one.
    #[inline]
    pub fn per_second(&self, now_us: u64) -> u64 {
        let (current, previous) = self.counts((now_us / 1_000_000) as u32);
        current + previous * (1_000_000 - now_us % 1_000_000) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_fade_within_two_seconds() {
        let recent = Recent::default();
        (0..100).for_each(|_| recent.tick(5_500_000));
        let rates = [5_900_000, 6_000_000, 6_750_000, 7_000_000].map(|now| recent.per_second(now));
        assert_eq!(rates, [100, 100, 25, 0]);
        recent.tick(6_750_000);
        assert_eq!(recent.per_second(6_750_000), 26);
    }

    #[test]
    fn sampled_rates_are_accurate_within_a_fifth() {
        fastrand::seed(1);
        let recent = Recent::default();
        let mut writes = 0;
        for event in 0..40_000u64 {
            let before = recent.0.load(Relaxed);
            recent.tick(5_000_000 + event * 100);
            writes += usize::from(recent.0.load(Relaxed) != before);
        }
        let rate = recent.per_second(8_999_999);
        assert!((8_000..12_000).contains(&rate), "{rate}");
        assert!(writes < 4 * 256, "{writes}");
    }
}
