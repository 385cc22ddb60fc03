//! The measurements of a run, as one line. Called by `engine`.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Counts and times of one run.
pub(crate) struct Report {
    /// Complete successful responses.
    pub(crate) requests: u64,
    /// Responses with an error status, broken or refused connections.
    pub(crate) errors: u64,
    /// From the first byte sent to the last received, in nanoseconds.
    latency: Histogram<u64>,
}

/// Which percentiles are printed.
const PERCENTILES: [&str; 7] = ["50", "90", "99", "99.9", "99.99", "99.999", "99.9999"];

impl Report {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("valid bounds");
        Self { requests: 0, errors: 0, latency }
    }

    pub(crate) fn answered(&mut self, after: Duration) {
        self.requests += 1;
        self.latency.saturating_record(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns `requests=… seconds=… rate=… errors=… p50=… … max=…`, times in µs.
    pub(crate) fn line(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64();
        let mut line = format!(
            "requests={} seconds={seconds:.3} rate={:.0} errors={}",
            self.requests,
            self.requests as f64 / seconds,
            self.errors
        );
        for percentile in PERCENTILES {
            let share: f64 = percentile.parse().unwrap_or(100.0);
            let us = self.latency.value_at_percentile(share) as f64 / 1e3;
            line.push_str(&format!(" p{percentile}={us:.1}"));
        }
        line.push_str(&format!(" max={:.1}", self.latency.max() as f64 / 1e3));
        line
    }
}
