//! Copies of requests that a backend gets from rules of others (`http-request mirror`).
//!
//! Request tasks write, and none of it unless a rule names the backend; the runtime socket reads.

use runtime::{Count, Sharded};

use crate::counters::{self, Clear};

/// What one worker counts of copies for a backend.
#[derive(Debug, Default)]
pub struct MirrorCounters {
    /// Copies sent on their way.
    pub begun: Count,
    /// Copies that a server answered, whatever it said.
    pub answered: Count,
    /// Copies that came to nothing: no server, no connection, no answer.
    pub failed: Count,
    /// Copies not made because as many were on their way as may be.
    pub dropped: Count,
    /// Copies that lost their body on the way: the backend was too slow for it, or the request
    /// itself ended.
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

/// What is counted of copies for a backend.
#[derive(Debug, Default)]
pub struct Mirror {
    /// What workers count.
    pub counters: Sharded<MirrorCounters>,
}

impl Mirror {
    /// The sum of one counter.
    pub fn sum(&self, of: impl Fn(&MirrorCounters) -> &Count) -> u64 {
        counters::total(&self.counters, |own| of(own).get())
    }
}
