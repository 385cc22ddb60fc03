//! Counters written by one worker and read by any thread: plain loads and stores, no locked instructions.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A monotonic counter with one writer, the owner of its shard. Readers sum the shards.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Only the owning worker may call this, because it is a load and a store.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The last written value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Resets the counter to zero (`clear counters`). A concurrent addition may undo the reset.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Overwrites the value. Only the sole writer may call this.
    pub fn put(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// Raises the value to `n` if it is lower. Only the owning worker may call this.
    #[inline]
    pub fn raise(&self, n: u64) {
        if n > self.0.load(Relaxed) {
            self.0.store(n, Relaxed);
        }
    }
}

/// The latest value of a quantity, with one writer.
#[derive(Debug, Default)]
pub struct Latest(AtomicU32);

impl Latest {
    /// Overwrites the value. Only the owning worker may call this.
    #[inline]
    pub fn put(&self, n: u32) {
        self.0.store(n, Relaxed);
    }

    /// The last written value.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// A value that can rise and fall, with its maximum. It has one writer; readers sum the shards.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicI64,
    max: AtomicI64,
}

impl Gauge {
    /// Increments the value and updates the maximum. Returns whether a new maximum was reached.
    #[inline]
    pub fn up(&self) -> bool {
        let now = self.now.load(Relaxed) + 1;
        self.now.store(now, Relaxed);
        let highest = now > self.max.load(Relaxed);
        if highest {
            self.max.store(now, Relaxed);
        }
        highest
    }

    /// Decrements the value.
    #[inline]
    pub fn down(&self) {
        self.now.store(self.now.load(Relaxed) - 1, Relaxed);
    }

    /// The current value. The value of a single shard may be negative for a moment, but not the sum.
    pub fn get(&self) -> i64 {
        self.now.load(Relaxed)
    }

    /// The maximum since the start or the last [`clear_max`](Self::clear_max).
    pub fn max(&self) -> i64 {
        self.max.load(Relaxed)
    }

    /// Resets the maximum to the current value.
    pub fn clear_max(&self) {
        self.max.store(self.now.load(Relaxed), Relaxed);
    }
}

/// Events per second over a sliding second, like HAProxy's frequency counters: the events of the current second, plus the part of
/// the previous one that lies within the last 1,000 ms. It has one writer.
#[derive(Debug, Default)]
pub struct Rate {
    /// The second (of the monotonic clock) counted by `current`.
    second: AtomicU32,
    current: AtomicU32,
    previous: AtomicU32,
    max: AtomicU32,
}

impl Rate {
    /// Counts one event at `now_ms` of the monotonic clock.
    #[inline]
    pub fn tick(&self, now_ms: u64) {
        self.tick_by(now_ms, 1);
    }

    /// Counts several events at once.
    #[inline]
    pub fn tick_by(&self, now_ms: u64, events: u32) {
        self.rotate(now_ms);
        let current = self.current.load(Relaxed).saturating_add(events);
        self.current.store(current, Relaxed);
        if current > self.max.load(Relaxed) {
            self.max.store(current, Relaxed);
        }
    }

    #[inline]
    fn rotate(&self, now_ms: u64) {
        let second = (now_ms / 1000) as u32;
        let last = self.second.load(Relaxed);
        if second != last {
            let previous = if second == last.wrapping_add(1) { self.current.load(Relaxed) } else { 0 };
            self.previous.store(previous, Relaxed);
            self.current.store(0, Relaxed);
            self.second.store(second, Relaxed);
        }
    }

    /// The number of events in the second that ends at `now_ms`. Any thread may call this.
    pub fn per_second(&self, now_ms: u64) -> u32 {
        let second = (now_ms / 1000) as u32;
        let last = self.second.load(Relaxed);
        let (current, previous) = match second.wrapping_sub(last) {
            0 => (self.current.load(Relaxed), self.previous.load(Relaxed)),
            1 => (0, self.current.load(Relaxed)),
            _ => (0, 0),
        };
        let left = 1000 - (now_ms % 1000);
        current + (u64::from(previous) * left / 1000) as u32
    }

    /// The maximum number of events in a clock second.
    pub fn max(&self) -> u32 {
        self.max.load(Relaxed)
    }

    /// Resets the maximum.
    pub fn clear_max(&self) {
        self.max.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_slides_over_the_second_boundary() {
        let rate = Rate::default();
        for _ in 0..100 {
            rate.tick(5_500);
        }
        assert_eq!(rate.per_second(5_900), 100);
        assert_eq!(rate.per_second(6_000), 100);
        assert_eq!(rate.per_second(6_250), 75);
        assert_eq!(rate.per_second(7_000), 0);
        rate.tick(6_250);
        assert_eq!(rate.per_second(6_250), 76);
        assert_eq!(rate.max(), 100);
        rate.tick_by(6_300, 500);
        rate.tick_by(6_300, u32::MAX);
        assert_eq!(rate.max(), u32::MAX);
    }

    #[test]
    fn a_gauge_keeps_its_highest_value() {
        let gauge = Gauge::default();
        assert!(gauge.up() && gauge.up());
        gauge.down();
        assert!(!gauge.up(), "two were there before");
        gauge.down();
        assert_eq!((gauge.get(), gauge.max()), (1, 2));
        gauge.clear_max();
        assert_eq!(gauge.max(), 1);
    }
}
