//! A server's performance, if its backend ejects outliers (`outlier-ejection`): the outcomes of attempts, and the resulting trust
//! in the server.
//!
//! This module only holds the state: `balance::outliers` decides. The backend's picker writes the outcomes, the judging task writes
//! the rest; the runtime socket reads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use runtime::shared::Shared as _;
use runtime::{Count, Sharded};

use crate::counters::{Clear, clear_shards};
use crate::histogram::{Histogram, Spread};

/// One worker's outcomes for a server.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Attempts that failed.
    failed: Count,
    /// How long successful attempts took.
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

/// The sum over all workers at one time, or between two times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Attempts that failed.
    pub failed: u64,
    /// How long successful attempts took.
    pub answered: Histogram,
}

impl Totals {
    /// Returns the difference from an earlier sum.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            failed: self.failed.saturating_sub(before.failed),
            answered: self.answered.since(&before.answered),
        }
    }

    /// Returns the number of attempts.
    pub fn attempts(&self) -> u64 {
        self.failed + self.answered.total()
    }
}

/// Why a server was ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EjectionCause {
    /// Too many consecutive failures.
    Errors,
    /// Too high a failure rate.
    ErrorRate,
    /// Its responses take much longer than those of its peers.
    Latency,
}

impl EjectionCause {
    /// All causes, by number.
    pub const ALL: [Self; 3] = [Self::Errors, Self::ErrorRate, Self::Latency];

    /// Returns the configuration keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::ErrorRate => "error-rate",
            Self::Latency => "latency",
        }
    }
}

/// A server's ejection state. Times are in ms of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutlierState {
    /// It gets its full share.
    #[default]
    Full,
    /// It gets no requests as long as other servers are available.
    Ejected {
        /// The end of the ejection.
        until: u64,
    },
    /// Its share grows step by step.
    Recovering {
        /// The start of the recovery.
        since: u64,
    },
}

/// The history of a server's ejections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EjectionRecord {
    /// Its current state.
    pub standing: OutlierState,
    /// Ejections in quick succession: each makes the next one longer.
    pub in_a_row: u32,
    /// Since when it has been back without being rewarded for it.
    pub calm_since: u64,
    /// Consecutive intervals in which it was too slow.
    pub slow: u32,
    /// The last cause.
    pub cause: Option<EjectionCause>,
    /// Number of ejections, by cause.
    pub ejections: [u32; 3],
}

/// A server's performance.
#[derive(Debug)]
pub struct Performance {
    outcomes: Sharded<Outcomes>,
    /// Consecutive failed attempts. Written by every worker with a failure, and with the first success after one.
    failed_in_a_row: AtomicU32,
    /// The effective share of its weight, in percent. Written by the judging task.
    trust: AtomicU32,
    /// Locked briefly by the judging task and by the runtime socket.
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
    /// Records an attempt that was answered within `us`.
    #[inline]
    pub fn answered(&self, us: u64) {
        self.outcomes.mine().answered.add(us);
        self.failed_in_a_row.put(0);
    }

    /// Records the duration of an abandoned attempt: its response would have taken longer.
    pub fn given_up(&self, us: u64) {
        self.outcomes.mine().answered.add(us);
    }

    /// Records a failed attempt; returns the number of consecutive failures.
    pub fn failed(&self) -> u32 {
        self.outcomes.mine().failed.add(1);
        self.failed_in_a_row.add(1).saturating_add(1)
    }

    /// Returns the number of consecutive failures.
    pub fn failed_in_a_row(&self) -> u32 {
        self.failed_in_a_row.load(Relaxed)
    }

    /// Resets that number.
    pub fn forgive(&self) {
        self.failed_in_a_row.put(0);
    }

    /// Returns the outcomes of all attempts so far.
    pub fn totals(&self) -> Totals {
        Totals {
            failed: self.outcomes.all().map(|own| own.failed.get()).sum(),
            answered: Histogram::of(self.outcomes.all().map(|own| &own.answered)),
        }
    }

    /// Resets the counters of attempts and ejections (`clear counters all`); the ejection state is kept. The current interval
    /// misses the earlier attempts.
    pub(crate) fn clear(&self) {
        clear_shards(&self.outcomes, true);
        self.record().ejections = [0; 3];
    }

    /// Returns the effective share of its weight, in percent: 0 while it is ejected.
    #[inline]
    pub fn trust(&self) -> u32 {
        self.trust.load(Relaxed)
    }

    /// Sets that share; returns whether it changed.
    pub(crate) fn set_trust(&self, percent: u32) -> bool {
        self.trust.swap(percent.min(100), Relaxed) != percent.min(100)
    }

    /// Returns the history of its ejections.
    pub fn record(&self) -> MutexGuard<'_, EjectionRecord> {
        self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
