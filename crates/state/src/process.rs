//! Facts and limits of the process that the runtime socket shows and changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use runtime::{Count, Gauge, Rate, Sharded};

use crate::errors::Errors;

/// What one worker counts for the whole process.
#[derive(Debug, Default)]
pub struct ProcessCounters {
    /// Connections accepted (`CumConns`).
    pub connections: Count,
    /// Requests (`CumReq`).
    pub requests: Count,
    /// Connections a second (`ConnRate`).
    pub connection_rate: Rate,
    /// Sessions a second (`SessRate`).
    pub session_rate: Rate,
    /// Log messages that could not be sent (`DroppedLogs`).
    pub dropped_logs: Count,
    /// Bytes sent (`TotalBytesOut`).
    pub bytes_out: Count,
    /// Streams that ended in a panic; each ended alone.
    pub panics: Count,
    /// Accepts refused because descriptors ran out.
    pub accept_failures: Count,
}

/// One worker's counts of health checks and agents (`show activity`).
#[derive(Debug, Default)]
pub struct CheckCounters {
    /// Those that wait or run on this worker. Written by any worker: one that hands a check over counts it here at once.
    present: AtomicU32,
    /// Checks begun (`check_started`).
    pub started: Count,
    /// Those that came from another worker (`check_adopted`).
    pub adopted: Count,
    /// Those under way (`check_running`).
    pub running: Gauge,
}

impl CheckCounters {
    /// How many are on this worker.
    pub fn present(&self) -> u32 {
        self.present.load(Relaxed)
    }

    /// Counts one that comes.
    pub fn enter(&self) {
        self.present.fetch_add(1, Relaxed);
    }

    /// Counts one that leaves or ends.
    pub fn leave(&self) {
        self.present.fetch_sub(1, Relaxed);
    }
}

/// One process.
#[derive(Debug, Default)]
pub struct Process {
    /// Counters.
    pub counters: Sharded<ProcessCounters>,
    /// Health checks and agents.
    pub checks: Sharded<CheckCounters>,
    /// Connections now, of all frontends (`CurrConns`). Written at accept and close.
    pub connections: AtomicU32,
    /// The limit on them (`Maxconn`); `set maxconn global` writes it.
    pub maxconn: AtomicU32,
    /// The limit as booted (`Hard_maxconn`).
    pub hard_maxconn: AtomicU32,
    /// `maxconnrate`, 0 for none.
    pub connection_limit: AtomicU32,
    /// `maxsessrate`, 0 for none.
    pub session_limit: AtomicU32,
    /// Whether a soft stop has begun (`Stopping`).
    pub stopping: AtomicBool,
    /// Sequence of stream ids (`%rt`): a worker takes them in blocks.
    pub streams: AtomicU64,
    /// The last malformed messages.
    pub errors: Errors,
}
