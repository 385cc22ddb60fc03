//! How long requests take at a frontend, a backend or a server: histograms of their queue, connect, response and total times.
//!
//! Each worker has its own counts ([`DurationCounts`], 256 bytes), which it updates with plain stores. They exist for an object from
//! its first request on. A second part of the same size, for all workers together ([`Base`]), is written once a minute: it extends
//! the 32-bit counts to 64 bits, and keeps the quantiles of the last minute. [`Spread`](crate::Spread) has finer buckets, but
//! would take 1.4 kB for each worker and object.

use std::array;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use runtime::{Count, Sharded};

/// The measured times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasuredTime {
    /// Waiting for a free slot of a server (`%Tw`).
    Queue,
    /// Connecting to the server (`%Tc`), almost 0 on a reused connection.
    Connect,
    /// From the connection to the end of the response head (`%Tr`). TCP streams have none.
    Response,
    /// From the first byte of the request to the last byte of the response, or the whole TCP stream (`%Ta`, `%Tt`).
    Total,
}

impl MeasuredTime {
    /// All times, in the order of the counts.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Connect, Self::Response, Self::Total];

    /// The name in metrics: `queue`, `connect`, `response` or `total`.
    pub fn name(self) -> &'static str {
        ["queue", "connect", "response", "total"][self as usize]
    }
}

/// The inclusive upper ends of the buckets, in µs. The last bucket has no upper end. No two of these lie in the same octave.
pub const BOUNDS_US: [u64; 13] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// The number of buckets of each time.
pub const BUCKETS: usize = BOUNDS_US.len() + 1;

/// The number of counts: the buckets of all times.
const COUNTS: usize = BUCKETS * MeasuredTime::ALL.len();

/// The first bucket that can hold a number of this length in bits.
const FIRST: [u8; 33] = {
    let mut first = [0; 33];
    let mut bits = 1;
    while bits < first.len() {
        let least = 1 << (bits - 1);
        let mut bucket = 0;
        while bucket < BOUNDS_US.len() && BOUNDS_US[bucket] < least {
            bucket += 1;
        }
        first[bits] = bucket as u8;
        bits += 1;
    }
    first
};

/// Returns the bucket for `us`.
#[inline]
fn bucket(us: u64) -> usize {
    let us = us.min(u32::MAX.into());
    let first = usize::from(FIRST[(u64::BITS - us.leading_zeros()) as usize]);
    first + usize::from(BOUNDS_US.get(first).is_some_and(|end| us > *end))
}

/// The times of one request in µs, in the order of [`MeasuredTime::ALL`]; `None` for steps that were not completed.
pub type RequestTimes = [Option<u64>; 4];

/// The times of one request with their buckets, which are the same for its frontend, backend and server.
#[derive(Debug, Clone, Copy)]
pub struct BucketedTimes([(usize, u64); 4]);

impl BucketedTimes {
    /// Finds the buckets.
    #[inline]
    pub fn new(times: &RequestTimes) -> Self {
        // Without a time, the position is out of range, and nothing is counted.
        Self(array::from_fn(|at| times[at].map_or((COUNTS, 0), |us| (at * BUCKETS + bucket(us), us))))
    }
}

/// One worker's counts. They wrap around.
#[derive(Debug)]
struct DurationCounts {
    counts: [AtomicU32; COUNTS],
    /// The sums of the times, in µs.
    sums: [Count; 4],
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU32::new(0)), sums: Default::default() }
    }
}

/// The times of an object's requests.
#[derive(Debug, Default)]
pub struct Durations(OnceLock<Box<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    workers: Sharded<DurationCounts>,
    base: Mutex<Base>,
}

/// The state at the start of the current minute.
#[derive(Debug)]
struct Base {
    /// The lower halves of the counts.
    counts: [u32; COUNTS],
    /// The upper halves, once a count has exceeded 32 bits.
    carries: Option<Box<[u32; COUNTS]>>,
    minute: LastMinute,
}

impl Default for Base {
    fn default() -> Self {
        Self { counts: [0; COUNTS], carries: None, minute: LastMinute::default() }
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

    /// Returns the time in µs below which a share of `quantile` (0 to 1) of the times lies; `None` without requests.
    ///
    /// The result is in the same bucket as the exact value, interpolated like `histogram_quantile` in PromQL. So it differs from
    /// the exact value by at most a factor of 2.5, or 4 between 2.5 s and 10 s. Times up to 0.5 ms are not distinguished, and beyond
    /// 10 s the result is 10 s.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let wanted = quantile.clamp(0.0, 1.0) * self.total() as f64;
        let (mut below, mut begin) = (0.0, 0);
        for (bucket, count) in self.counts.iter().enumerate() {
            let Some(end) = BOUNDS_US.get(bucket) else { break };
            let count = *count as f64;
            if count > 0.0 && below + count >= wanted {
                let share = (wanted - below) / count;
                return Some(begin + ((end - begin) as f64 * share) as u64);
            }
            below += count;
            begin = *end;
        }
        (self.total() > 0).then_some(begin)
    }
}

impl Durations {
    /// Counts a request. Only workers may call this.
    #[inline]
    pub fn add(&self, times: &BucketedTimes) {
        let own = self.0.get_or_init(Box::default).workers.mine();
        for ((at, us), sum) in times.0.iter().zip(&own.sums) {
            if let Some(count) = own.counts.get(*at) {
                count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
                sum.add(*us);
            }
        }
    }

    /// Returns the histograms since the start, in the order of [`MeasuredTime::ALL`]; `None` if nothing was counted yet.
    pub fn read(&self) -> Option<[DurationHistogram; 4]> {
        let kept = self.0.get()?;
        let base = kept.base();
        let now = kept.counts();
        let count = |at: usize| base.before(at) + u64::from(now[at].wrapping_sub(base.counts[at]));
        Some(array::from_fn(|time| DurationHistogram {
            counts: array::from_fn(|bucket| count(time * BUCKETS + bucket)),
            sum_us: kept.workers.all().map(|own| own.sums[time].get()).sum(),
        }))
    }

    /// Returns the quantiles of the last complete minute. All are `None` if there were no requests.
    pub fn last_minute(&self) -> LastMinute {
        self.0.get().map_or_else(LastMinute::default, |kept| kept.base().minute)
    }

    /// Ends a minute. Called once a minute; at least once for every 2³² requests.
    pub fn end_minute(&self) {
        let Some(kept) = self.0.get() else { return };
        let mut base = kept.base();
        let now = kept.counts();
        let minute: [DurationHistogram; 4] = array::from_fn(|time| DurationHistogram {
            counts: array::from_fn(|bucket| {
                let at = time * BUCKETS + bucket;
                now[at].wrapping_sub(base.counts[at]).into()
            }),
            sum_us: 0,
        });
        for at in (0..COUNTS).filter(|at| now[*at] < base.counts[*at]).collect::<Vec<_>>() {
            let carries = base.carries.get_or_insert_with(|| Box::new([0; COUNTS]));
            carries[at] = carries[at].wrapping_add(1);
        }
        base.counts = now;
        let quantiles =
            |quantile| array::from_fn(|time: usize| minute[time].quantile(quantile).map(|us: u64| us as u32));
        base.minute = LastMinute { p50_us: quantiles(0.5), p99_us: quantiles(0.99) };
    }

    /// Resets everything (`clear counters all`). A request counted at the same time may survive.
    pub(crate) fn clear(&self) {
        let Some(kept) = self.0.get() else { return };
        let mut base = kept.base();
        for own in kept.workers.all() {
            own.counts.iter().for_each(|count| count.store(0, Relaxed));
            own.sums.iter().for_each(Count::clear);
        }
        *base = Base::default();
    }
}

impl Kept {
    fn base(&self) -> MutexGuard<'_, Base> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sums of the workers' counts, modulo 2³².
    fn counts(&self) -> [u32; COUNTS] {
        let mut sums = [0_u32; COUNTS];
        for own in self.workers.all() {
            sums.iter_mut()
                .zip(&own.counts)
                .for_each(|(sum, count)| *sum = sum.wrapping_add(count.load(Relaxed)));
        }
        sums
    }
}

impl Base {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(us: u64) -> BucketedTimes {
        BucketedTimes::new(&[None, None, None, Some(us)])
    }

    #[test]
    fn a_workers_counts_take_256_bytes() {
        assert_eq!(size_of::<runtime::shard::Padded<DurationCounts>>(), 256);
    }

    #[test]
    fn buckets_include_their_upper_end() {
        for (at, end) in BOUNDS_US.iter().enumerate() {
            assert_eq!((bucket(end - 1), bucket(*end), bucket(end + 1)), (at, at, at + 1), "{end}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BOUNDS_US.len()));
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
        let set =
            |value: u32| durations.0.get().unwrap().workers.mine().counts[COUNTS - 1].store(value, Relaxed);
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
}
