//! A server's performance, for backends that eject outliers (`outlier-ejection`): the outcomes of attempts, and the resulting
//! trust in the server.
//!
//! This module only stores the state; `balance::outliers` makes the decisions. The backend's picker writes the outcomes, and the
//! task that judges servers writes everything else. The runtime socket reads both.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use runtime::shared::Shared as _;
use runtime::{Count, LazySharded};

use crate::counters::{Clear, clear_shards};
use crate::histogram::{Histogram, Spread};

/// One worker's outcomes for a server.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Attempts that failed.
    failed: Count,
    /// The duration of successful attempts.
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
    /// The duration of successful attempts.
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
    /// The server responds much more slowly than its peers.
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
    /// The server gets its full share.
    #[default]
    Full,
    /// The server gets no requests as long as other servers are available.
    Ejected {
        /// The end of the ejection.
        until: u64,
    },
    /// The server's share grows step by step.
    Recovering {
        /// The start of the recovery.
        since: u64,
    },
}

/// The history of a server's ejections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EjectionRecord {
    /// The current state of the server.
    pub standing: OutlierState,
    /// The number of ejections in quick succession. Each one makes the next ejection longer.
    pub in_a_row: u32,
    /// Since when the server has been back in service without a reduction of `in_a_row`.
    pub calm_since: u64,
    /// The number of consecutive intervals in which the server was too slow.
    pub slow: u32,
    /// The last cause.
    pub cause: Option<EjectionCause>,
    /// Number of ejections, by cause.
    pub ejections: [u32; 3],
}

/// A server's performance.
#[derive(Debug)]
pub struct Performance {
    outcomes: LazySharded<Outcomes>,
    /// Consecutive failed attempts. Any worker writes it on a failure, and on the first success after a failure.
    failed_in_a_row: AtomicU32,
    /// The effective share of the server's weight, in percent. Written by the task that judges servers.
    trust: AtomicU32,
    /// Locked briefly by the judging task and by the runtime socket.
    record: Mutex<EjectionRecord>,
}

impl Default for Performance {
    fn default() -> Self {
        Self {
            outcomes: LazySharded::default(),
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

    /// Records the duration of an abandoned attempt, whose response would have taken longer.
    pub fn given_up(&self, us: u64) {
        self.outcomes.mine().answered.add(us);
    }

    /// Records a failed attempt. Returns the number of consecutive failures.
    pub fn failed(&self) -> u32 {
        self.outcomes.mine().failed.add(1);
        self.failed_in_a_row.add(1).saturating_add(1)
    }

    /// Returns the number of consecutive failures.
    pub fn failed_in_a_row(&self) -> u32 {
        self.failed_in_a_row.load(Relaxed)
    }

    /// Resets the number of consecutive failures.
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

    /// Resets the counters of attempts and ejections (`clear counters all`), but not the ejection state. The current interval then
    /// misses the earlier attempts.
    pub(crate) fn clear(&self) {
        clear_shards(&self.outcomes, true);
        self.record().ejections = [0; 3];
    }

    /// Returns the effective share of the server's weight, in percent; 0 while the server is ejected.
    #[inline]
    pub fn trust(&self) -> u32 {
        self.trust.load(Relaxed)
    }

    /// Sets the effective share of the weight. Returns whether it changed.
    pub(crate) fn set_trust(&self, percent: u32) -> bool {
        self.trust.swap(percent.min(100), Relaxed) != percent.min(100)
    }

    /// Returns the history of the server's ejections.
    pub fn record(&self) -> MutexGuard<'_, EjectionRecord> {
        self.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
