//! How a server serves, where its backend ejects outliers (`outlier-ejection`): what attempts came to,
//! and how far the server is trusted for that.
//!
//! Nothing is decided here: `balance::outliers` does. The picker of the backend writes what attempts
//! come to, and whoever judges writes the rest; the runtime socket reads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use runtime::shared::Shared as _;
use runtime::{Count, Sharded};

use crate::counters::{Clear, clear_shards};
use crate::histogram::{Histogram, Spread};

/// What one worker saw of a server.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Attempts that failed.
    failed: Count,
    /// How long those took that were answered.
    answered: Spread,
}

impl Clear for Outcomes {
    fn clear(&self, all: bool) {
        if all {
            self.failed.clear();
            self.answered.clear();
        }
    }
}

/// The same of all workers at an instant, or between two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Attempts that failed.
    pub failed: u64,
    /// How long those took that were answered.
    pub answered: Histogram,
}

impl Totals {
    /// What came since `before` was taken.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            failed: self.failed.saturating_sub(before.failed),
            answered: self.answered.since(&before.answered),
        }
    }

    /// All attempts.
    pub fn attempts(&self) -> u64 {
        self.failed + self.answered.total()
    }
}

/// Why a server was ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EjectionCause {
    /// So many attempts in a row failed.
    Errors,
    /// Too large a share of them failed.
    ErrorRate,
    /// Its answers take much longer than its peers'.
    Latency,
}

impl EjectionCause {
    /// All of them, by number.
    pub const ALL: [Self; 3] = [Self::Errors, Self::ErrorRate, Self::Latency];

    /// The word of the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::ErrorRate => "error-rate",
            Self::Latency => "latency",
        }
    }
}

/// Where a server stands among its peers. Instants are in ms of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutlierState {
    /// It gets its share.
    #[default]
    Full,
    /// It gets nothing as long as others are there.
    Ejected {
        /// Until then.
        until: u64,
    },
    /// It gets more with each step.
    Recovering {
        /// Since then.
        since: u64,
    },
}

/// What is remembered of a server's ejections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EjectionRecord {
    /// Where it stands.
    pub standing: OutlierState,
    /// Ejections that followed each other closely: each makes the next one longer.
    pub in_a_row: u32,
    /// Since when it has been back, as far as that was not rewarded yet.
    pub calm_since: u64,
    /// Intervals in a row in which it was too slow.
    pub slow: u32,
    /// The last cause.
    pub cause: Option<EjectionCause>,
    /// Ejections in all, by cause.
    pub ejections: [u32; 3],
}

/// What is known of a server.
#[derive(Debug)]
pub struct Performance {
    outcomes: Sharded<Outcomes>,
    /// Attempts that failed since the last that did not. Written by every worker with a failure, and
    /// with the first success behind one.
    failed_in_a_row: AtomicU32,
    /// The share of its weight that counts, in percent. Written by who judges.
    trust: AtomicU32,
    /// Locked by who judges and by the runtime socket, for a moment.
    record: Mutex<EjectionRecord>,
}

impl Default for Performance {
    fn default() -> Self {
        Self {
            outcomes: Sharded::default(),
            failed_in_a_row: AtomicU32::new(0),
            trust: AtomicU32::new(100),
            record: Mutex::default(),
        }
    }
}

impl Performance {
    /// Counts an attempt that was answered within `us`.
    #[inline]
    pub fn answered(&self, us: u64) {
        self.outcomes.mine().answered.add(us);
        self.failed_in_a_row.put(0);
    }

    /// Counts the time that an attempt took until nobody waited for it any more: its answer would have
    /// taken longer.
    pub fn given_up(&self, us: u64) {
        self.outcomes.mine().answered.add(us);
    }

    /// Counts an attempt that failed; gives how many did in a row.
    pub fn failed(&self) -> u32 {
        self.outcomes.mine().failed.add(1);
        self.failed_in_a_row.add(1).saturating_add(1)
    }

    /// How many attempts failed in a row.
    pub fn failed_in_a_row(&self) -> u32 {
        self.failed_in_a_row.load(Relaxed)
    }

    /// Begins that count anew.
    pub fn forgive(&self) {
        self.failed_in_a_row.put(0);
    }

    /// What all attempts came to so far.
    pub fn totals(&self) -> Totals {
        Totals {
            failed: self.outcomes.all().map(|own| own.failed.get()).sum(),
            answered: Histogram::of(self.outcomes.all().map(|own| &own.answered)),
        }
    }

    /// Counts attempts and ejections anew (`clear counters all`): where the server stands stays as it is.
    /// The interval that is under way sees less than happened in it.
    pub(crate) fn clear(&self) {
        clear_shards(&self.outcomes, true);
        self.record().ejections = [0; 3];
    }

    /// The share of its weight that counts, in percent: 0 while it is ejected.
    #[inline]
    pub fn trust(&self) -> u32 {
        self.trust.load(Relaxed)
    }

    /// Sets that; says whether it changed.
    pub(crate) fn set_trust(&self, percent: u32) -> bool {
        self.trust.swap(percent.min(100), Relaxed) != percent.min(100)
    }

    /// What is remembered of its ejections.
    pub fn record(&self) -> MutexGuard<'_, EjectionRecord> {
        self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
