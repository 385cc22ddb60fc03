//! How long requests take at a frontend, a backend or a server: histograms of their queue, connect, response and total times.
//!
//! Each worker has its own counts ([`DurationCounts`], 256 bytes), which it updates with plain stores. They exist for an object from
//! its first request on. A second part of the same size, for all workers together ([`Base`]), is written once a minute: it extends
//! the 32-bit counts to 64 bits, and keeps the quantiles of the last minute. [`Spread`](crate::Spread) has finer buckets, but
//! would take 1.4 kB for each worker and object.
//!
//! With `latency-histograms native`, which cannot change while the process runs, the counts are those of finer [`cells`] instead.

mod bounds;
mod cells;
mod exemplars;

use std::array;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::race::OnceBox;
use runtime::{Count, LazySharded};

use bounds::COUNTS;
pub use bounds::{BOUNDS_US, BUCKETS, BucketedTimes, MeasuredTime, RequestTimes};
use cells::CELL_COUNTS;
pub use cells::{CellTimes, NativeHistogram, SCHEMA, ZERO_THRESHOLD};
use exemplars::Exemplars;
pub use exemplars::{BucketExemplars, Exemplar};

use crate::http_durations::HttpDurations;

/// One worker's counts. They wrap around.
#[derive(Debug)]
struct DurationCounts<const N: usize> {
    counts: [AtomicU32; N],
    /// The sums of the times, in µs.
    sums: [Count; 4],
}

impl<const N: usize> Default for DurationCounts<N> {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU32::new(0)), sums: Default::default() }
    }
}

/// The times of an object's requests.
#[derive(Debug, Default)]
pub struct Durations {
    classic: OnceBox<Kept<COUNTS>>,
    /// Exists instead of the classic counts.
    native: OnceBox<Kept<CELL_COUNTS>>,
    exemplars: OnceBox<Exemplars>,
}

#[derive(Debug, Default)]
struct Kept<const N: usize> {
    workers: LazySharded<DurationCounts<N>>,
    base: Mutex<Base<N>>,
}

/// The state at the start of the current minute.
#[derive(Debug)]
struct Base<const N: usize> {
    /// The lower halves of the counts.
    counts: [u32; N],
    /// The upper halves, once a count has exceeded 32 bits.
    carries: Option<Box<[u32; N]>>,
    minute: LastMinute,
}

impl<const N: usize> Default for Base<N> {
    fn default() -> Self {
        Self { counts: [0; N], carries: None, minute: LastMinute::default() }
    }
}

/// The quantiles of the last complete minute, in the order of [`MeasuredTime::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastMinute {
    /// The medians, in µs. `None` without requests.
    pub p50_us: [Option<u32>; 4],
    /// The 99th percentiles, in µs. `None` without requests.
    pub p99_us: [Option<u32>; 4],
}

/// The histogram of one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DurationHistogram {
    /// The number of requests in each bucket, not cumulative. The last bucket is for times beyond the last bound.
    pub counts: [u64; BUCKETS],
    /// The sum of the times, in µs.
    pub sum_us: u64,
}

impl DurationHistogram {
    /// Returns the number of requests.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the time in µs below which a share of `quantile` (0 to 1) of the times lies, or `None` without requests.
    ///
    /// The result is in the same bucket as the exact value, and interpolated like `histogram_quantile` in PromQL. It therefore
    /// differs from the exact value by a factor of at most 2.5, or 4 between 2.5 s and 10 s. Times up to 0.5 ms are not
    /// distinguished, and beyond 10 s the result is 10 s.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        self::quantile(&self.counts, |bucket| BOUNDS_US.get(bucket).copied(), quantile)
    }
}

/// Returns the time below which a share of the times lies. `end` returns the upper end of a bucket in µs, `None` without an end.
fn quantile(counts: &[u64], end: impl Fn(usize) -> Option<u64>, quantile: f64) -> Option<u64> {
    let total = counts.iter().sum::<u64>();
    let wanted = quantile.clamp(0.0, 1.0) * total as f64;
    let (mut below, mut begin) = (0.0, 0);
    for (bucket, count) in counts.iter().enumerate() {
        let Some(end) = end(bucket).filter(|end| *end < u64::MAX) else { break };
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let share = (wanted - below) / count;
            return Some(begin + ((end - begin) as f64 * share) as u64);
        }
        below += count;
        begin = end;
    }
    (total > 0).then_some(begin)
}

impl Durations {
    /// Counts a request. Only workers may call this.
    #[inline]
    pub fn add(&self, times: &BucketedTimes) {
        self.classic.get_or_init(Box::default).add(&times.0);
    }

    /// Counts a request in native histograms. Only workers may call this, and only instead of [`add`](Self::add).
    pub fn add_native(&self, times: &CellTimes) {
        self.native.get_or_init(Box::default).add(&times.0);
    }

    /// Stores a request as the exemplar of its buckets. The time in `request` is ignored. Only workers may call this.
    pub fn note_exemplar(&self, times: &BucketedTimes, request: &Exemplar) {
        self.exemplars.get_or_init(Box::default).note(times, request);
    }

    /// Returns the histograms since the start, in the order of [`MeasuredTime::ALL`], or `None` if nothing was counted yet.
    pub fn read(&self) -> Option<[DurationHistogram; 4]> {
        if let Some(native) = self.read_native() {
            return Some(native.map(|own| DurationHistogram { counts: own.classic(), sum_us: own.sum_us }));
        }
        let kept = self.classic.get()?;
        let (count, sums) = kept.read();
        Some(array::from_fn(|time| DurationHistogram {
            counts: array::from_fn(|bucket| count(time * BUCKETS + bucket)),
            sum_us: sums[time],
        }))
    }

    /// Returns the native histograms since the start, in the order of [`MeasuredTime::ALL`], or `None` without any.
    pub fn read_native(&self) -> Option<[NativeHistogram; 4]> {
        let kept = self.native.get()?;
        let (count, sums) = kept.read();
        Some(array::from_fn(|time| NativeHistogram::new(&count, time, sums[time])))
    }

    /// Returns the exemplars of the classic buckets, in the order of [`MeasuredTime::ALL`], or `None` without any.
    pub fn exemplars(&self) -> Option<[BucketExemplars; 4]> {
        self.exemplars.get().map(|own| own.read())
    }

    /// Returns the quantiles of the last complete minute. All are `None` if nothing was counted.
    pub fn last_minute(&self) -> LastMinute {
        let native = self.native.get().map(|kept| kept.base().minute);
        native.or_else(|| self.classic.get().map(|kept| kept.base().minute)).unwrap_or_default()
    }

    /// Ends a minute. Called once a minute; at least once for every 2³² requests.
    pub fn end_minute(&self) {
        if let Some(kept) = self.classic.get() {
            kept.end_minute(|count, time, quantile| {
                let counts: [u64; BUCKETS] = array::from_fn(|bucket| count(time * BUCKETS + bucket));
                DurationHistogram { counts, sum_us: 0 }.quantile(quantile)
            });
        }
        if let Some(kept) = self.native.get() {
            kept.end_minute(|count, time, quantile| NativeHistogram::new(count, time, 0).quantile(quantile));
        }
    }

    /// Resets everything (`clear counters all`). A request counted at the same time may survive.
    pub(crate) fn clear(&self) {
        if let Some(kept) = self.classic.get() {
            kept.clear();
        }
        if let Some(kept) = self.native.get() {
            kept.clear();
        }
        if let Some(exemplars) = self.exemplars.get() {
            exemplars.clear();
        }
    }
}

impl<const N: usize> Kept<N> {
    /// Counts a request. The positions of missing times are out of range.
    #[inline]
    fn add(&self, times: &[(usize, u64); 4]) {
        let own = self.workers.mine();
        for ((at, us), sum) in times.iter().zip(&own.sums) {
            if let Some(count) = own.counts.get(*at) {
                count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
                sum.add(*us);
            }
        }
    }

    fn base(&self) -> MutexGuard<'_, Base<N>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sums of the workers' counts, modulo 2³².
    fn counts(&self) -> [u32; N] {
        let mut sums = [0_u32; N];
        for own in self.workers.all() {
            sums.iter_mut()
                .zip(&own.counts)
                .for_each(|(sum, count)| *sum = sum.wrapping_add(count.load(Relaxed)));
        }
        sums
    }

    /// A function that returns a count since the start, and the sums in µs.
    fn read(&self) -> (impl Fn(usize) -> u64 + '_, [u64; 4]) {
        let base = self.base();
        let now = self.counts();
        let count = move |at: usize| base.before(at) + u64::from(now[at].wrapping_sub(base.counts[at]));
        (count, array::from_fn(|time| self.workers.all().map(|own| own.sums[time].get()).sum()))
    }

    /// Ends a minute. `quantile` returns a quantile of a time, from a function that returns the counts of the minute.
    fn end_minute(&self, quantile: impl Fn(&dyn Fn(usize) -> u64, usize, f64) -> Option<u64>) {
        let mut base = self.base();
        let now = self.counts();
        let count = |at: usize| u64::from(now[at].wrapping_sub(base.counts[at]));
        let quantiles = |share| array::from_fn(|time| quantile(&count, time, share).map(|us: u64| us as u32));
        let minute = LastMinute { p50_us: quantiles(0.5), p99_us: quantiles(0.99) };
        for at in (0..N).filter(|at| now[*at] < base.counts[*at]).collect::<Vec<_>>() {
            let carries = base.carries.get_or_insert_with(|| Box::new([0; N]));
            carries[at] = carries[at].wrapping_add(1);
        }
        base.counts = now;
        base.minute = minute;
    }

    fn clear(&self) {
        let mut base = self.base();
        for own in self.workers.all() {
            own.counts.iter().for_each(|count| count.store(0, Relaxed));
            own.sums.iter().for_each(Count::clear);
        }
        *base = Base::default();
    }
}

impl<const N: usize> Base<N> {
    /// The count at the start of the minute.
    fn before(&self, at: usize) -> u64 {
        let carry = self.carries.as_ref().map_or(0, |carries| carries[at]);
        u64::from(carry) << 32 | u64::from(self.counts[at])
    }
}

/// The times of a proxy's requests, on each side.
#[derive(Debug, Default)]
pub struct ProxyDurations {
    /// All requests of the frontend, with those that no server answered.
    pub frontend: Durations,
    /// Requests routed to the backend, with those that no server answered.
    pub backend: Durations,
    /// HTTP requests of the frontend by their attributes.
    pub by_attributes: HttpDurations,
}

#[cfg(test)]
mod tests {
    use super::bounds::bucket;
    use super::*;

    fn total(us: u64) -> BucketedTimes {
        BucketedTimes::new(&[None, None, None, Some(us)])
    }

    #[test]
    fn a_workers_counts_take_256_bytes_or_3_kb() {
        assert_eq!(size_of::<runtime::shard::Padded<DurationCounts<COUNTS>>>(), 256);
        assert_eq!(size_of::<runtime::shard::Padded<DurationCounts<CELL_COUNTS>>>(), 2944);
    }

    #[test]
    fn quantiles_are_in_the_bucket_of_the_exact_value() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut times: Vec<u64> = (0..10_000).map(|_| (random.f64().powi(4) * 9e6) as u64).collect();
        let durations = Durations::default();
        times.iter().for_each(|us| durations.add(&total(*us)));
        times.sort_unstable();
        let histogram = durations.read().unwrap()[MeasuredTime::Total as usize].clone();
        assert_eq!((histogram.total(), histogram.sum_us), (10_000, times.iter().sum()));
        for quantile in [0.3, 0.5, 0.9, 0.95, 0.99] {
            let right = times[(times.len() as f64 * quantile) as usize - 1];
            assert_eq!(bucket(histogram.quantile(quantile).unwrap()), bucket(right), "{quantile}");
        }
        assert_eq!(durations.read().unwrap()[0].quantile(0.5), None);
    }

    #[test]
    fn the_last_minute_is_forgotten_a_minute_later() {
        let durations = Durations::default();
        assert_eq!((durations.read(), durations.last_minute()), (None, LastMinute::default()));
        durations.add(&BucketedTimes::new(&[Some(0), Some(300), Some(40_000), Some(60_000_000)]));
        durations.end_minute();
        let minute = durations.last_minute();
        assert_eq!(minute.p99_us[2].map(|us| bucket(us.into())), Some(bucket(40_000)));
        assert_eq!(minute.p50_us[3], Some(10_000_000), "beyond the last bound");
        durations.end_minute();
        assert_eq!(durations.last_minute(), LastMinute::default());
        assert_eq!(durations.read().unwrap()[3].total(), 1);
        durations.clear();
        assert_eq!(durations.read().unwrap()[3], DurationHistogram::default());
    }

    #[test]
    fn counts_exceed_32_bits() {
        let durations = Durations::default();
        let set = |value: u32| {
            durations.classic.get().unwrap().workers.mine().counts[COUNTS - 1].store(value, Relaxed)
        };
        durations.add(&total(60_000_000));
        set(u32::MAX);
        durations.end_minute();
        durations.add(&total(60_000_000));
        durations.add(&total(60_000_000));
        let read = || durations.read().unwrap()[3].total();
        assert_eq!(read(), (1 << 32) + 1, "before the minute ends");
        durations.end_minute();
        assert_eq!(read(), (1 << 32) + 1);
        set(u32::MAX);
        durations.end_minute();
        durations.add(&total(60_000_000));
        assert_eq!(read(), 2 << 32);
    }

    #[test]
    fn native_histograms_and_classic_ones_have_the_same_counts() {
        let mut random = fastrand::Rng::with_seed(2);
        let (classic, native) = (Durations::default(), Durations::default());
        let mut times: Vec<u64> = (0..10_000).map(|_| (random.f64().powi(6) * 2e8) as u64).collect();
        for us in &times {
            classic.add(&total(*us));
            native.add_native(&CellTimes::new(&[None, None, None, Some(*us)]));
        }
        assert_eq!(classic.read(), native.read());
        times.sort_unstable();
        let own = &native.read_native().unwrap()[3];
        let counted = own.zero_count() + own.buckets().map(|(_, count)| count).sum::<u64>();
        assert_eq!((counted, own.sum_us), (10_000, times.iter().sum()));
        for quantile in [0.5, 0.9] {
            let right = times[(times.len() as f64 * quantile) as usize - 1] as f64;
            let found = own.quantile(quantile).unwrap() as f64;
            assert!((found / right - 1.0).abs() < 0.095, "{quantile}: {found}, not {right}");
        }
        native.end_minute();
        assert!(native.last_minute().p50_us[3].is_some() && classic.read_native().is_none());
        assert_eq!(classic.read(), native.read(), "a minute later");
        native.clear();
        assert_eq!(native.read().unwrap()[3].total(), 0);
    }
}
