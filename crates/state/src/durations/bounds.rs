//! The measured times and the buckets in which they are counted.

use std::array;

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

/// The number of buckets per measured time.
pub const BUCKETS: usize = BOUNDS_US.len() + 1;

/// The number of counters: one per bucket of each measured time.
pub(super) const COUNTS: usize = BUCKETS * MeasuredTime::ALL.len();

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
pub(super) fn bucket(us: u64) -> usize {
    let us = us.min(u32::MAX.into());
    let first = usize::from(FIRST[(u64::BITS - us.leading_zeros()) as usize]);
    first + usize::from(BOUNDS_US.get(first).is_some_and(|end| us > *end))
}

/// The times of one request in µs, in the order of [`MeasuredTime::ALL`], or `None` for steps that were not completed.
pub type RequestTimes = [Option<u64>; 4];

/// The times of one request with their buckets. Frontend, backend and server have the same buckets.
#[derive(Debug, Clone, Copy)]
pub struct BucketedTimes(pub(super) [(usize, u64); 4]);

impl BucketedTimes {
    /// Finds the buckets of the histograms that `latency-histograms on` keeps.
    #[inline]
    pub fn new(times: &RequestTimes) -> Self {
        // If a time is missing, its position is out of range, and nothing is counted.
        Self(array::from_fn(|at| times[at].map_or((COUNTS, 0), |us| (at * BUCKETS + bucket(us), us))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_include_their_upper_end() {
        for (at, end) in BOUNDS_US.iter().enumerate() {
            assert_eq!((bucket(end - 1), bucket(*end), bucket(end + 1)), (at, at, at + 1), "{end}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BOUNDS_US.len()));
    }
}
