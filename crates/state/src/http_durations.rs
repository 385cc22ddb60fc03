//! How long HTTP requests take, by method, status and so on: the histograms that OpenTelemetry's conventions define, kept only if they
//! are exported (`metrics-interval`). [`Durations`](crate::Durations) has no such attributes.

use std::array;
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::race::OnceBox;
use runtime::LazySharded;

/// The inclusive upper ends of the buckets, in µs, as the conventions advise. The last bucket has no upper end.
pub const HTTP_BOUNDS_US: [u64; 14] = [
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000, 2_500_000,
    5_000_000, 7_500_000, 10_000_000,
];

/// The number of buckets.
pub const HTTP_BUCKETS: usize = HTTP_BOUNDS_US.len() + 1;

/// The most combinations of attributes that a worker keeps for an object, 144 bytes each. Requests beyond it are counted together.
const MOST: usize = 64;

/// The attributes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpAttributes {
    /// The method, `_OTHER` for unknown ones.
    pub method: &'static str,
    /// The status of the response; 0 without one.
    pub status: u16,
    /// The version of the protocol; empty if it is not known.
    pub version: &'static str,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
    /// The type of a failure that is not a status; empty for none.
    pub error: &'static str,
}

impl HttpAttributes {
    /// The attributes of requests beyond the most combinations: none.
    pub const OVERFLOW: Self = Self { method: "", status: 0, version: "", is_tls: false, error: "" };
}

/// The histogram of requests with the same attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HttpHistogram {
    /// The number of requests in each bucket, not cumulative.
    pub counts: [u64; HTTP_BUCKETS],
    /// The sum of the times, in µs.
    pub sum_us: u64,
}

type WorkerSeries = Vec<(HttpAttributes, HttpHistogram)>;

/// The times of an object's requests by attributes.
#[derive(Debug, Default)]
pub struct HttpDurations(OnceBox<LazySharded<Mutex<WorkerSeries>>>);

impl HttpDurations {
    /// Counts a request that took `us`. Only workers may call this.
    pub fn add(&self, attributes: &HttpAttributes, us: u64) {
        let mut series = lock(self.0.get_or_init(Box::default).mine());
        let found = series.iter().position(|(own, _)| own == attributes);
        let at = found.unwrap_or_else(|| {
            let attributes = if series.len() < MOST { *attributes } else { HttpAttributes::OVERFLOW };
            let overflow = series.iter().position(|(own, _)| *own == attributes);
            overflow.unwrap_or_else(|| {
                series.push((attributes, HttpHistogram::default()));
                series.len() - 1
            })
        });
        let histogram = &mut series[at].1;
        histogram.counts[HTTP_BOUNDS_US.partition_point(|end| *end < us)] += 1;
        histogram.sum_us += us;
    }

    /// Returns the histograms, in the order of their attributes.
    pub fn read(&self) -> WorkerSeries {
        let mut all: WorkerSeries = Vec::new();
        for own in self.0.get().into_iter().flat_map(|own| own.all()) {
            for (attributes, histogram) in lock(own).iter() {
                match all.binary_search_by_key(attributes, |(own, _)| *own) {
                    Ok(at) => {
                        let sum = &mut all[at].1;
                        sum.counts = array::from_fn(|bucket| sum.counts[bucket] + histogram.counts[bucket]);
                        sum.sum_us += histogram.sum_us;
                    }
                    Err(at) => all.insert(at, (*attributes, *histogram)),
                }
            }
        }
        all
    }

    /// Removes all histograms.
    pub(crate) fn clear(&self) {
        self.0.get().into_iter().flat_map(|own| own.all()).for_each(|own| lock(own).clear());
    }
}

/// Locks the series of a worker. Only the worker and, briefly, the exporter lock them.
fn lock(series: &Mutex<WorkerSeries>) -> MutexGuard<'_, WorkerSeries> {
    series.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(status: u16) -> HttpAttributes {
        HttpAttributes { method: "GET", status, version: "1.1", is_tls: false, error: "" }
    }

    #[test]
    fn requests_are_counted_by_their_attributes() {
        let durations = HttpDurations::default();
        for (status, us) in [(404, 5_000), (200, 5_001), (200, 75_000), (200, 10_000_001)] {
            durations.add(&attributes(status), us);
        }
        let [(of_200, many), (of_404, one)] = &durations.read()[..] else { panic!("two combinations") };
        assert_eq!((of_200.status, of_404.status), (200, 404));
        assert_eq!((one.counts[0], one.sum_us), (1, 5_000));
        assert_eq!((many.counts[1], many.counts[4], many.counts[14], many.sum_us), (1, 1, 1, 10_080_002));
        durations.clear();
        assert!(durations.read().is_empty());
    }

    #[test]
    fn combinations_beyond_the_limit_are_counted_together() {
        let durations = HttpDurations::default();
        (0..1000).for_each(|status| durations.add(&attributes(status), 1));
        let all = durations.read();
        assert_eq!(all.len(), MOST + 1);
        let count = |wanted: &HttpAttributes| {
            all.iter().find(|(own, _)| own == wanted).map_or(0, |(_, own)| own.counts[0])
        };
        assert_eq!((count(&HttpAttributes::OVERFLOW), count(&attributes(0))), (1000 - MOST as u64, 1));
        (0..10).for_each(|status| durations.add(&attributes(status), 1));
        assert_eq!(durations.read().len(), MOST + 1);
    }
}
