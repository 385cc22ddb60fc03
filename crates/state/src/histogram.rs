//! Histograms of durations: one counter per quarter of an octave, from 64 µs to more than a minute.
//!
//! A [`Spread`] has a single writer, which is a worker, and grows until it is reset. Readers add the spreads of all workers to a
//! [`Histogram`], and subtract an earlier histogram. Written if a backend uses outlier ejection or hedging; `balance` and the
//! runtime socket read them.

use std::array;

use runtime::Count;

/// The number of counters: four for each of 21 octaves, and one for longer durations.
const BUCKETS: usize = 85;

/// The upper end of the first bucket, in µs.
const FIRST_US: u64 = 64;

/// One worker's counts.
#[derive(Debug)]
pub struct Spread([Count; BUCKETS]);

impl Default for Spread {
    fn default() -> Self {
        Self(array::from_fn(|_| Count::default()))
    }
}

impl Spread {
    /// Counts a duration of `us`. Only the owning worker may call this.
    #[inline]
    pub fn add(&self, us: u64) {
        self.0[bucket(us)].add(1);
    }

    /// Resets all counters.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(Count::clear);
    }
}

/// Returns the index of the counter for `us`.
#[inline]
fn bucket(us: u64) -> usize {
    let us = us.min(1 << 40);
    let scaled = us * 4 / FIRST_US;
    let Some(octave) = (scaled / 4).checked_ilog2() else { return scaled as usize };
    let quarter = ((us << 2) >> octave) / FIRST_US - 4;
    (4 + octave as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// Returns the lower bound of counter `bucket`, in µs.
fn begin(bucket: usize) -> f64 {
    if bucket < 4 {
        return (FIRST_US * bucket as u64) as f64 / 4.0;
    }
    let (octave, quarter) = ((bucket - 4) / 4, (bucket - 4) % 4);
    (FIRST_US << octave) as f64 * (1.0 + quarter as f64 / 4.0)
}

/// Counts at one time, or between two times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Sums the workers' counts.
    pub fn of<'a>(spreads: impl Iterator<Item = &'a Spread>) -> Self {
        let mut sum = Self::default();
        for spread in spreads {
            sum.0.iter_mut().zip(&spread.0).for_each(|(sum, count)| *sum += count.get());
        }
        sum
    }

    /// Returns the difference from an earlier histogram.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own += other);
    }

    /// Halves all counts, so that older durations have less weight.
    pub fn fade(&mut self) {
        self.0.iter_mut().for_each(|count| *count /= 2);
    }

    /// Returns the total count.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the duration in µs below which a share of `quantile` (0 to 1) of the durations lies. The error is at most an eighth.
    /// `None` if the histogram is empty.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let total = self.total();
        let wanted = quantile.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let (begin, end) = (begin(bucket), begin(bucket + 1));
                return Some(begin + (end - begin) * ((wanted - below) / count));
            }
            below += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous() {
        for at in 0..BUCKETS - 1 {
            assert!(begin(at) < begin(at + 1));
            assert_eq!(bucket(begin(at).ceil() as u64), at, "{at}");
            assert_eq!(bucket(begin(at + 1).ceil() as u64 - 1), at, "{at}");
        }
        assert_eq!(bucket(u64::MAX >> 8), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_right_within_an_eighth() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut times: Vec<u64> = (0..10_000).map(|_| (random.f64().powi(4) * 5e6) as u64).collect();
        let spread = Spread::default();
        times.iter().for_each(|us| spread.add(*us));
        times.sort_unstable();
        let seen = Histogram::of([&spread].into_iter());
        for quantile in [0.3, 0.5, 0.9, 0.95, 0.99] {
            let right = times[(times.len() as f64 * quantile) as usize] as f64;
            let found = seen.quantile(quantile).unwrap_or_default();
            assert!((found - right).abs() <= right / 8.0, "{quantile}: {found} instead of {right}");
        }
        assert_eq!(seen.since(&seen).quantile(0.5), None);
    }
}
