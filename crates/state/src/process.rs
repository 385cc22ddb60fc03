//! Facts and limits of the process that the runtime socket shows and changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use runtime::shard::Padded;
use runtime::shared::Shared as _;
use runtime::{Count, Gauge, Rate, Sharded};

use crate::errors::Errors;
use crate::statuses::CountedStatuses;

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
    /// TLS connections of clients a second (`SslRate`).
    pub tls_rate: Rate,
    /// Those that needed a new key (`SslFrontendKeyRate`).
    pub client_key_rate: Rate,
    /// TLS connections to servers a second that needed a new key (`SslBackendKeyRate`).
    pub server_key_rate: Rate,
    /// Accepted connections that took the last place (`MaxconnReached`).
    pub maxconn_reached: Count,
    /// Log messages that could not be sent (`DroppedLogs`).
    pub dropped_logs: Count,
    /// Messages that `log-forward` sections received (`CumRecvLogs`).
    pub received_logs: Count,
    /// Bytes sent (`TotalBytesOut`).
    pub bytes_out: Count,
    /// They in a second (`BytesOutRate`), in the units of [`ProcessCounters::rate_units`].
    pub bytes_out_rate: Rate,
    /// Bytes compressed in a second (`CompressBpsIn`), in the same units.
    pub compressed_in_rate: Rate,
    /// Bytes that compression gave (`CompressBpsOut`).
    pub compressed_out_rate: Rate,
    /// Streams that ended in a panic; each ended alone.
    pub panics: Count,
    /// Accepts refused because descriptors ran out.
    pub accept_failures: Count,
}

impl ProcessCounters {
    /// Bytes that `bytes_out_rate` counts as one, so that a second of them fits into its number.
    const RATE_UNIT: u64 = 32;

    /// So many bytes, for `bytes_out_rate`.
    #[inline]
    pub fn rate_units(bytes: u64) -> u32 {
        u32::try_from((bytes + Self::RATE_UNIT / 2) / Self::RATE_UNIT).unwrap_or(u32::MAX)
    }

    /// What `bytes_out_rate` counted, in bytes.
    pub fn bytes_of_units(units: u32) -> u64 {
        u64::from(units) * Self::RATE_UNIT
    }
}

/// One worker's counts of health checks and agents (`show activity`).
#[derive(Debug, Default)]
pub struct CheckCounters {
    /// Those that wait or run on this worker. Written by any worker: one that hands a check over
    /// counts it here at once. On a line of its own, which hardly changes: every check that wakes
    /// reads those of all workers.
    present: Padded<AtomicU32>,
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
        self.present.0.load(Relaxed)
    }

    /// Counts one that comes.
    pub fn enter(&self) {
        self.present.add(1);
    }

    /// Counts one that comes if there are fewer than `limit`; says whether it did.
    pub fn enter_below(&self, limit: u32) -> bool {
        self.present.0.take_below(limit).is_ok()
    }

    /// Counts one that leaves or ends.
    pub fn leave(&self) {
        self.present.sub(1);
    }
}

/// One process.
#[derive(Debug, Default)]
pub struct Process {
    /// Counters.
    pub counters: Sharded<ProcessCounters>,
    /// Health checks and agents.
    pub checks: Sharded<CheckCounters>,
    /// Connections now, of all frontends (`CurrConns`). Written at accept and close; apart from the
    /// limits, which every request reads.
    pub connections: Padded<AtomicU32>,
    /// Connections to servers now, used and idle. Written when one is opened and when it is closed;
    /// apart from the limits too.
    pub server_connections: Padded<AtomicU32>,
    /// Streams that connections of clients may have now beyond one each; counted with
    /// `tune.streams-elasticity`, where such a connection begins and ends.
    pub extra_streams: Padded<AtomicU64>,
    /// Connections with peers now (`ConnectedPeers`). Written by the workers of `peers` sections.
    pub connected_peers: AtomicU32,
    /// Those of them that both sides have agreed on (`ActivePeers`).
    pub active_peers: AtomicU32,
    /// From so many descriptors in use on no connection is kept idle (`tune.pool-low-fd-ratio`); 0
    /// for no limit.
    pub idle_from_fds: AtomicU32,
    /// From so many on idle connections are closed to make room (`tune.pool-high-fd-ratio`); 0 for
    /// no limit.
    pub crowded_from_fds: AtomicU32,
    /// The limit on connections of clients (`Maxconn`); `set maxconn global` writes it.
    pub maxconn: AtomicU32,
    /// The limit as booted (`Hard_maxconn`).
    pub hard_maxconn: AtomicU32,
    /// The limit on connections of clients after memory reached its limit, 0 for none: it rises
    /// again slowly. Written by the thread that watches for shortages.
    pub accepted_in_shortage: AtomicU32,
    /// `maxconnrate`, 0 for none.
    pub connection_limit: AtomicU32,
    /// `maxsessrate`, 0 for none.
    pub session_limit: AtomicU32,
    /// `maxsslrate`, 0 for none.
    pub tls_limit: AtomicU32,
    /// `maxcomprate`, in bytes a second, 0 for none.
    pub compression_limit: AtomicU64,
    /// How often a worker was held up by one task (`BlockedTrafficWarnings`). Written by the
    /// watchdog.
    pub held_up: AtomicU32,
    /// Whether a soft stop has begun (`Stopping`).
    pub stopping: AtomicBool,
    /// Whether connections are being closed: a soft stop after its time of grace.
    pub closing: AtomicBool,
    /// Over how many ms they are (`close-spread-time`).
    pub close_window: AtomicU64,
    /// Until when they are, in ms of the monotonic clock; the highest value stands for never.
    pub close_until: AtomicU64,
    /// Sequence of streams (`%rt`), where something reads it. Written by every worker with each
    /// request then, and with each connection of the runtime socket.
    pub streams: AtomicU64,
    /// Connections of the runtime socket so far. Written by whoever takes one.
    pub commanded: AtomicU64,
    /// The last malformed messages.
    pub errors: Errors,
    /// Statuses that stick tables count. Set before workers start.
    pub counted: CountedStatuses,
}

impl Process {
    /// Descriptors that connections take now.
    #[inline]
    pub fn descriptors(&self) -> u32 {
        self.connections.load(Relaxed) + self.server_connections.load(Relaxed)
    }

    /// Whether `limit` descriptors (0: no limit) are in use.
    #[inline]
    pub fn uses(&self, limit: &AtomicU32) -> bool {
        let limit = limit.load(Relaxed);
        limit > 0 && self.descriptors() >= limit
    }
}
