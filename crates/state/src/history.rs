//! The last minutes of a proxy or server: rings of samples for the statistics page.
//!
//! One task, the sampler, takes a sample of every object once per [`INTERVAL_MS`], and is the only writer. Requests never touch a
//! history; they only write the counters that the sampler reads. Each sample is 16 bits wide, so the history of a server takes
//! less than 400 bytes. Histories do not outlive the process.

use std::array;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

use once_cell::race::OnceBox;

use crate::durations::BUCKETS;

/// The time between two samples, in ms.
pub const INTERVAL_MS: u64 = 2_000;

/// The number of samples: two minutes.
pub const SAMPLES: usize = 60;

/// The samples of a server: requests, failures, response time.
pub const OF_SERVER: usize = 3;

/// The samples of one side of a proxy: those of a server, then waiting requests and current sessions.
pub const OF_PROXY: usize = 5;

/// A quantity that is sampled; the number is its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// Requests, or connections in TCP mode, in the interval.
    Requests = 0,
    /// Failed requests in the interval.
    Failures = 1,
    /// The response time in units of 10 µs.
    Response = 2,
    /// Requests waiting in the queue.
    Queued = 3,
    /// Current sessions.
    Sessions = 4,
}

/// The values at the end of an interval.
#[derive(Debug, Clone, Copy, Default)]
pub struct Readings {
    /// The total number of requests so far.
    pub requests: u64,
    /// The total number of failed requests so far.
    pub failures: u64,
    /// The response time in units of 10 µs.
    pub response: u64,
    /// Requests waiting in the queue.
    pub queued: u64,
    /// Current sessions.
    pub sessions: u64,
    /// Whether a limit is reached: sessions, or the length of the queue.
    pub is_full: bool,
}

/// Rings of `N` series.
#[derive(Debug)]
pub struct History<const N: usize> {
    rings: [[AtomicU16; SAMPLES]; N],
    /// The totals at the last sample. They wrap, and only their differences are used.
    totals: [AtomicU32; 2],
    /// The number of the last sample; 0 before the first one.
    last: AtomicU32,
    /// How many samples are valid.
    held: AtomicU32,
    /// How many intervals in a row a limit was reached at their end.
    full: AtomicU32,
}

impl<const N: usize> Default for History<N> {
    fn default() -> Self {
        Self {
            rings: array::from_fn(|_| array::from_fn(|_| AtomicU16::new(0))),
            totals: [AtomicU32::new(0), AtomicU32::new(0)],
            last: AtomicU32::new(0),
            held: AtomicU32::new(0),
            full: AtomicU32::new(0),
        }
    }
}

impl<const N: usize> History<N> {
    /// Adds sample number `tick`, which starts at 1 and grows by one per interval. Only the sampler may call this. The first sample
    /// of an object, and the first one after a pause, only sets the starting point.
    pub fn record(&self, tick: u32, now: Readings) {
        let totals = [now.requests, now.failures].map(|total| total as u32);
        let follows = self.last.swap(tick, Relaxed).wrapping_add(1) == tick && tick > 1;
        let before: [u32; 2] = array::from_fn(|at| self.totals[at].swap(totals[at], Relaxed));
        self.full.store(if now.is_full { self.full.load(Relaxed).saturating_add(1) } else { 0 }, Relaxed);
        if !follows {
            self.held.store(0, Relaxed);
            return;
        }
        let at = tick as usize % SAMPLES;
        let grown = |at: usize| {
            let grown = totals[at].wrapping_sub(before[at]);
            // `clear counters` lets a total start again at zero.
            u64::from(if grown > u32::MAX / 2 { 0 } else { grown })
        };
        let values = [grown(0), grown(1), now.response, now.queued, now.sessions];
        for (ring, value) in self.rings.iter().zip(values) {
            ring[at].store(encode(value), Relaxed);
        }
        self.held.store((self.held.load(Relaxed) + 1).min(SAMPLES as u32), Relaxed);
    }

    /// Prepares the first sample, number `tick`, of an object that was not used before: everything happened in this interval.
    pub fn begin_at_zero(&self, tick: u32) {
        self.last.store(tick.wrapping_sub(1), Relaxed);
    }

    /// Returns the samples of one series, the oldest first; fewer than [`SAMPLES`] for a young object. Empty for a series that the
    /// object does not have.
    pub fn samples(&self, series: Series) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
        let (last, held) = (self.last.load(Relaxed) as usize, self.held.load(Relaxed) as usize);
        let ring = self.rings.get(series as usize);
        let held = if ring.is_some() { held } else { 0 };
        (0..held).map(move |at| {
            let slot = (last + SAMPLES + 1 - held + at) % SAMPLES;
            ring.map_or(0, |ring| decode(ring[slot].load(Relaxed)))
        })
    }

    /// Returns the sum of the last `most` samples.
    pub fn sum(&self, series: Series, most: usize) -> u64 {
        self.samples(series).rev().take(most).sum()
    }

    /// Returns how long a limit has been reached, in ms; 0 if it is not reached.
    pub fn full_ms(&self) -> u64 {
        u64::from(self.full.load(Relaxed)) * INTERVAL_MS
    }
}

/// How long responses took in each interval, in the buckets of [`durations`](crate::durations). Only for backends, because it takes
/// 1.7 kB.
#[derive(Debug)]
pub struct ResponseTimes {
    rings: [[AtomicU16; BUCKETS]; SAMPLES],
    /// The counts at the last sample, which wrap.
    totals: [AtomicU32; BUCKETS],
    last: AtomicU32,
    held: AtomicU32,
}

impl Default for ResponseTimes {
    fn default() -> Self {
        Self {
            rings: array::from_fn(|_| array::from_fn(|_| AtomicU16::new(0))),
            totals: array::from_fn(|_| AtomicU32::new(0)),
            last: AtomicU32::new(0),
            held: AtomicU32::new(0),
        }
    }
}

impl ResponseTimes {
    /// Adds sample number `tick`, like [`History::record`]. `counts` are those since the start.
    pub fn record(&self, tick: u32, counts: &[u64; BUCKETS]) {
        let follows = self.last.swap(tick, Relaxed).wrapping_add(1) == tick && tick > 1;
        let ring = &self.rings[tick as usize % SAMPLES];
        for ((total, count), slot) in self.totals.iter().zip(counts).zip(ring) {
            let grown = (*count as u32).wrapping_sub(total.swap(*count as u32, Relaxed));
            let grown = if grown > u32::MAX / 2 { 0 } else { grown };
            slot.store(encode(grown.into()), Relaxed);
        }
        let held = if follows { (self.held.load(Relaxed) + 1).min(SAMPLES as u32) } else { 0 };
        self.held.store(held, Relaxed);
    }

    /// Returns the samples, the last one first.
    pub fn recent(&self) -> impl Iterator<Item = [u64; BUCKETS]> + '_ {
        let last = self.last.load(Relaxed) as usize;
        (0..self.held.load(Relaxed) as usize).map(move |back| {
            self.rings[(last + SAMPLES - back) % SAMPLES].each_ref().map(|slot| decode(slot.load(Relaxed)))
        })
    }
}

/// A history that is created when the first sample is taken, so that it costs nothing while sampling is off.
pub type OptionalHistory<const N: usize> = OnceBox<History<N>>;

/// The bits of a sample that are the mantissa. The others are the exponent, so values are exact to 1 in 2,048.
const MANTISSA_BITS: u32 = 12;

/// The largest value of a sample.
const MOST: u64 = ((1 << MANTISSA_BITS) - 1) << 15;

/// Rounds a value to a sample.
fn encode(value: u64) -> u16 {
    let value = value.min(MOST);
    let exponent = (u64::BITS - value.leading_zeros()).saturating_sub(MANTISSA_BITS);
    (exponent << MANTISSA_BITS) as u16 | (value >> exponent) as u16
}

fn decode(sample: u16) -> u64 {
    u64::from(sample & ((1 << MANTISSA_BITS) - 1)) << (sample >> MANTISSA_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(requests: u64, failures: u64) -> Readings {
        Readings { requests, failures, ..Readings::default() }
    }

    #[test]
    fn a_server_takes_at_most_400_bytes() {
        let all = size_of::<History<OF_SERVER>>() + size_of::<OptionalHistory<OF_SERVER>>();
        assert!(all <= 400, "{all} bytes");
    }

    #[test]
    fn samples_are_exact_to_1_in_2048() {
        for value in (0..5000).chain((12..28).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 77]))
        {
            let (value, kept) = (u64::min(value, MOST), decode(encode(value)));
            assert!(kept <= value && value - kept <= value / 2048, "{value} became {kept}");
        }
        assert_eq!(decode(encode(u64::MAX)), MOST);
    }

    #[test]
    fn a_history_has_the_differences_of_the_totals() {
        let history = History::<OF_SERVER>::default();
        history.record(1, at(1000, 10));
        assert_eq!(history.samples(Series::Requests).len(), 0, "no difference yet");
        history.record(2, at(1007, 12));
        history.record(3, at(1007, 12));
        history.record(4, at(1107, 112));
        assert_eq!(history.samples(Series::Requests).collect::<Vec<_>>(), [7, 0, 100]);
        assert_eq!(history.samples(Series::Failures).collect::<Vec<_>>(), [2, 0, 100]);
        assert_eq!((history.sum(Series::Requests, 2), history.samples(Series::Sessions).len()), (100, 0));
    }

    #[test]
    fn an_object_that_was_not_used_before_begins_at_zero() {
        let history = History::<OF_SERVER>::default();
        history.begin_at_zero(5);
        history.record(5, at(7, 2));
        assert_eq!(history.samples(Series::Requests).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn old_samples_are_replaced_and_pauses_start_again() {
        let history = History::<OF_PROXY>::default();
        for tick in 1..=200 {
            history.record(tick, Readings { sessions: tick.into(), ..at(u64::from(tick) * 3, 0) });
        }
        let sessions: Vec<u64> = history.samples(Series::Sessions).collect();
        assert_eq!((sessions.len(), sessions[0], sessions[SAMPLES - 1]), (SAMPLES, 141, 200));
        assert!(history.samples(Series::Requests).all(|requests| requests == 3));
        history.record(300, at(5000, 0));
        assert_eq!(history.samples(Series::Requests).len(), 0);
        // `clear counters`
        history.record(301, at(0, 0));
        assert_eq!(history.samples(Series::Requests).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn response_times_are_kept_for_each_interval() {
        let times = ResponseTimes::default();
        let mut counts = [5; BUCKETS];
        times.record(7, &counts);
        assert_eq!(times.recent().count(), 0, "no difference yet");
        for tick in 8..100 {
            counts[3] += u64::from(tick);
            times.record(tick, &counts);
        }
        let recent: Vec<_> = times.recent().collect();
        assert_eq!((recent.len(), recent[0][3], recent[SAMPLES - 1][3], recent[0][2]), (SAMPLES, 99, 40, 0));
    }

    #[test]
    fn the_time_at_a_limit_ends_with_it() {
        let history = History::<OF_SERVER>::default();
        for tick in 1..=20 {
            history.record(tick, Readings { is_full: tick > 5, ..Readings::default() });
        }
        assert_eq!(history.full_ms(), 15 * INTERVAL_MS);
        history.record(21, Readings::default());
        assert_eq!(history.full_ms(), 0);
    }
}
