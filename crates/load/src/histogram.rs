//! Latencies of a run.

use hdrhistogram::Histogram;

use crate::clock::{Nanos, SECOND};

/// The highest latency that is distinguished.
const MAX: Nanos = 3600 * SECOND;

/// The percentiles of the report.
pub(crate) const PERCENTILES: [(&str, f64); 4] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// A histogram of latencies with three significant digits. Recording takes no memory.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    /// The lowest and the highest latency, which the histogram rounds.
    min: Nanos,
    max: Nanos,
}

impl Latencies {
    /// An empty histogram.
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX, 3).expect("valid bounds");
        Self { histogram, min: Nanos::MAX, max: 0 }
    }

    /// Adds a latency.
    pub(crate) fn record(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency);
        self.min = self.min.min(latency);
        self.max = self.max.max(latency);
    }

    /// Adds the latencies of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("equal bounds");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The number of latencies.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that this share of the requests, in percent, did not exceed. There must be one.
    pub(crate) fn percentile(&self, share: f64) -> Nanos {
        self.histogram.value_at_percentile(share).clamp(self.min, self.max)
    }

    /// The highest latency.
    pub(crate) fn max(&self) -> Nanos {
        self.max
    }

    /// The lowest latency.
    pub(crate) fn min(&self) -> Nanos {
        self.min
    }

    /// The average.
    pub(crate) fn mean(&self) -> Nanos {
        self.histogram.mean() as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MS;

    #[test]
    fn percentiles_of_known_latencies_are_found() {
        let (mut first, mut second) = (Latencies::new(), Latencies::new());
        for number in 1..=1000 {
            if number % 2 == 0 { &mut first } else { &mut second }.record(number * MS);
        }
        first.merge(&second);
        assert_eq!(first.count(), 1000);
        for (share, expected) in [(50.0, 500), (90.0, 900), (99.0, 990), (99.9, 999)] {
            let found = first.percentile(share) as f64 / MS as f64;
            let expected = f64::from(expected);
            // The rank is rounded, and so is the latency.
            assert!((found - expected).abs() <= 1.0 + expected / 1000.0, "{share}: {found}");
        }
        assert_eq!((first.min(), first.max(), first.mean() / MS), (MS, 1000 * MS, 500));
    }

    #[test]
    fn extreme_latencies_are_kept_at_the_bounds() {
        let mut latencies = Latencies::new();
        latencies.record(0);
        latencies.record(u64::MAX);
        assert_eq!(latencies.count(), 2);
        assert_eq!((latencies.min(), latencies.max()), (0, u64::MAX));
        assert_eq!(latencies.percentile(50.0), 0);
    }
}
