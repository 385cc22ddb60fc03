//! Copies of other backends' requests for a backend (`http-request mirror`).
//!
//! Written by request tasks, and only if a rule names the backend; read by the runtime socket.

use runtime::{Count, Sharded};

use crate::counters::{self, Clear};

/// One worker's counters of the copies for a backend.
#[derive(Debug, Default)]
pub struct MirrorCounters {
    /// Copies sent.
    pub begun: Count,
    /// Copies that a server answered, with any status.
    pub answered: Count,
    /// Copies that failed: no server, no connection, no response.
    pub failed: Count,
    /// Copies not made because the limit of concurrent ones was reached.
    pub dropped: Count,
    /// Copies with a truncated body: the backend was too slow, or the request itself ended.
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
    pub counters: Sharded<MirrorCounters>,
}

impl Mirror {
    /// Sums one counter over all workers.
    pub fn sum(&self, of: impl Fn(&MirrorCounters) -> &Count) -> u64 {
        counters::total(&self.counters, |own| of(own).get())
    }
}
