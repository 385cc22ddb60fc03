//! The cells of native histograms (`latency-histograms native`): exponential buckets of schema 3, which divide an octave into eight,
//! cut at the bounds of the classic buckets.
//!
//! Each cell lies in exactly one bucket of either kind, so both histograms are exact sums of the same counts. The exponential
//! buckets end at powers of 2^(1/8) seconds, from 2^-14 s (61 µs) to 2^7 s (128 s).

use std::array;

use super::bounds::{BOUNDS_US, BUCKETS, MeasuredTime, RequestTimes};

/// The schema: 2³ buckets for each power of two.
pub const SCHEMA: i32 = 3;

/// The number of exponential buckets for each power of two.
const PER_OCTAVE: i32 = 1 << SCHEMA;

/// The indexes of the first and the last exponential bucket. Bucket `i` ends at 2^(i/8) s.
const FIRST_INDEX: i32 = -13 * PER_OCTAVE - (PER_OCTAVE - 1);
const LAST_INDEX: i32 = 7 * PER_OCTAVE;

/// The index of the bucket for longer times. Its upper end is infinite.
const OVERFLOW_INDEX: i32 = (1024 << SCHEMA) + 1;

/// Times up to this one, in seconds, are in the zero bucket.
pub const ZERO_THRESHOLD: f64 = 1.0 / (1 << 14) as f64;

/// 2^(k/8) for k from 0 to 7.
const RATIOS: [f64; PER_OCTAVE as usize] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

/// The inclusive upper end of an exponential bucket in whole µs.
const fn end_us(index: i32) -> u64 {
    let octave = index.div_euclid(PER_OCTAVE);
    let us = RATIOS[index.rem_euclid(PER_OCTAVE) as usize] * 1e6;
    if octave < 0 { (us / (1_u64 << -octave) as f64) as u64 } else { (us * (1_u64 << octave) as f64) as u64 }
}

/// A cell: its inclusive upper end in µs, its exponential bucket, and its classic bucket.
#[derive(Clone, Copy)]
struct Cell {
    end_us: u64,
    index: i32,
    bucket: usize,
}

/// The number of cells of each time: a cell for each exponential bucket and each bound of a classic bucket, except those at 0.25, 0.5
/// and 1 s, which end both, the zero bucket, and the bucket for longer times.
const CELLS: usize = (LAST_INDEX - FIRST_INDEX + 1) as usize + BOUNDS_US.len() - 3 + 2;

/// The index of the zero bucket in [`TABLE`].
const ZERO: i32 = FIRST_INDEX - 1;

const TABLE: [Cell; CELLS] = {
    let mut table = [Cell { end_us: u64::MAX, index: OVERFLOW_INDEX, bucket: BOUNDS_US.len() }; CELLS];
    let (mut at, mut index, mut bucket) = (0, ZERO, 0);
    while index <= LAST_INDEX {
        let end = end_us(index);
        // A classic bound that is also the end of an exponential bucket needs no other cell.
        while bucket < BOUNDS_US.len() && BOUNDS_US[bucket] < end {
            table[at] = Cell { end_us: BOUNDS_US[bucket], index, bucket };
            (at, bucket) = (at + 1, bucket + 1);
        }
        table[at] = Cell { end_us: end, index, bucket };
        if bucket < BOUNDS_US.len() && BOUNDS_US[bucket] == end {
            bucket += 1;
        }
        (at, index) = (at + 1, index + 1);
    }
    assert!(at + 1 == CELLS && bucket == BOUNDS_US.len());
    table
};

/// The number of counters: one per cell of each measured time.
pub(super) const CELL_COUNTS: usize = CELLS * MeasuredTime::ALL.len();

/// The times of one request with their cells.
#[derive(Debug, Clone, Copy)]
pub struct CellTimes(pub(super) [(usize, u64); 4]);

impl CellTimes {
    /// Finds the cells of the histograms that `latency-histograms native` keeps.
    pub fn new(times: &RequestTimes) -> Self {
        let cell = |us: u64| TABLE.partition_point(|cell| cell.end_us < us);
        Self(array::from_fn(|at| times[at].map_or((CELL_COUNTS, 0), |us| (at * CELLS + cell(us), us))))
    }
}

/// The native histogram of one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeHistogram {
    /// The counts of the cells.
    cells: [u64; CELLS],
    /// The sum of the times, in µs.
    pub sum_us: u64,
}

impl NativeHistogram {
    /// Creates the histogram of measured time number `time`. `count` returns a counter by its index among those of
    /// all times.
    pub(super) fn new(count: impl Fn(usize) -> u64, time: usize, sum_us: u64) -> Self {
        Self { cells: array::from_fn(|cell| count(time * CELLS + cell)), sum_us }
    }

    /// The number of times up to [`ZERO_THRESHOLD`].
    pub fn zero_count(&self) -> u64 {
        self.cells[0]
    }

    /// The exponential buckets that have counts, in order: the index `i` of a bucket that ends at 2^(i/8) s, and its count. Times beyond
    /// 128 s are in a bucket without an upper end.
    pub fn buckets(&self) -> impl Iterator<Item = (i32, u64)> {
        let mut at = 1;
        std::iter::from_fn(move || {
            while at < CELLS {
                let index = TABLE[at].index;
                let end = (at..CELLS).find(|end| TABLE[*end].index != index).unwrap_or(CELLS);
                let count = self.cells[at..end].iter().sum();
                at = end;
                if count > 0 {
                    return Some((index, count));
                }
            }
            None
        })
    }

    /// The counts of the classic buckets.
    pub fn classic(&self) -> [u64; BUCKETS] {
        let mut counts = [0; BUCKETS];
        for (cell, count) in TABLE.iter().zip(&self.cells) {
            counts[cell.bucket] += count;
        }
        counts
    }

    /// Returns the time in µs below which a share of `quantile` (0 to 1) of the times lies, or `None` without requests. The error
    /// is at most 9 %, except below 61 µs. Beyond 128 s, the result is 128 s.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        super::quantile(&self.cells, |cell| TABLE.get(cell).map(|cell| cell.end_us), quantile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_in_order_and_in_one_bucket_of_each_kind() {
        assert!(TABLE.is_sorted_by(|one, next| one.end_us < next.end_us));
        for (at, cell) in TABLE.iter().enumerate().take(CELLS - 1) {
            let begin = if at == 0 { 0 } else { TABLE[at - 1].end_us + 1 };
            for us in [begin, cell.end_us] {
                assert_eq!(super::super::bounds::bucket(us), cell.bucket, "{us}");
                let seconds = us as f64 / 1e6;
                if cell.index == ZERO {
                    assert!(seconds <= ZERO_THRESHOLD);
                    continue;
                }
                let end = 2_f64.powf(f64::from(cell.index) / 8.0);
                let start = 2_f64.powf(f64::from(cell.index - 1) / 8.0);
                assert!(start < seconds && seconds <= end, "{us} in {start}..={end}");
            }
        }
    }
}
