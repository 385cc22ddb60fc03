//! Copies of requests that other backends send to this backend (`http-request mirror`).
//!
//! Request tasks write the counters, but only if a rule names the backend. The runtime socket reads them.

use runtime::{Count, LazySharded};

use crate::counters::{self, Clear};

/// One worker's counters of the copies sent to a backend.
#[derive(Debug, Default)]
pub struct MirrorCounters {
    /// Copies sent.
    pub begun: Count,
    /// Copies that a server answered, with any status.
    pub answered: Count,
    /// Copies that failed: no server, no connection, no response.
    pub failed: Count,
    /// Copies that were not made because the limit of concurrent copies was reached.
    pub dropped: Count,
    /// Copies whose body was truncated, because the backend was too slow or the original request ended.
    pub cut: Count,
}

impl Clear for MirrorCounters {
    fn clear(&self, all: bool) {
        if all {
            let counts = [&self.begun, &self.answered, &self.failed, &self.dropped, &self.cut];
            counts.into_iter().for_each(Count::clear);
        }
    }
}

/// The copies for a backend.
#[derive(Debug, Default)]
pub struct Mirror {
    /// The workers' counters.
    pub counters: LazySharded<MirrorCounters>,
}

impl Mirror {
    /// Sums one counter over all workers.
    pub fn sum(&self, of: impl Fn(&MirrorCounters) -> &Count) -> u64 {
        counters::total(&self.counters, |own| of(own).get())
    }
}
