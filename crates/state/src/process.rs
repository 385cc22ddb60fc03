//! Process-wide facts and limits that the runtime socket shows and changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use runtime::shard::Padded;
use runtime::shared::Shared as _;
use runtime::{Count, Gauge, Rate, Sharded};

use crate::errors::Errors;
use crate::journal::{EventTopic, RepeatedEvent};
use crate::statuses::CountedStatuses;

/// One worker's process-wide counters.
#[derive(Debug, Default)]
pub struct ProcessCounters {
    /// Connections accepted (`CumConns`).
    pub connections: Count,
    /// Requests (`CumReq`).
    pub requests: Count,
    /// Connections per second (`ConnRate`).
    pub connection_rate: Rate,
    /// Sessions per second (`SessRate`).
    pub session_rate: Rate,
    /// TLS connections of clients per second (`SslRate`).
    pub tls_rate: Rate,
    /// Accepted TLS connections per second with a full key exchange (`SslFrontendKeyRate`).
    pub client_key_rate: Rate,
    /// TLS connections to servers per second with a full key exchange (`SslBackendKeyRate`).
    pub server_key_rate: Rate,
    /// Accepted connections that used the last free slot (`MaxconnReached`).
    pub maxconn_reached: Count,
    /// Log messages that could not be sent (`DroppedLogs`).
    pub dropped_logs: Count,
    /// Messages that `log-forward` sections received (`CumRecvLogs`).
    pub received_logs: Count,
    /// Bytes sent (`TotalBytesOut`).
    pub bytes_out: Count,
    /// Bytes sent per second (`BytesOutRate`), in the units of [`ProcessCounters::rate_units`].
    pub bytes_out_rate: Rate,
    /// Bytes compressed per second (`CompressBpsIn`), in the same units.
    pub compressed_in_rate: Rate,
    /// Compressed output bytes (`CompressBpsOut`).
    pub compressed_out_rate: Rate,
    /// Streams that ended in a panic; other streams were not affected.
    pub panics: Count,
    /// Accepts that failed because descriptors ran out.
    pub accept_failures: Count,
}

impl ProcessCounters {
    /// The unit of `bytes_out_rate` in bytes, so that the bytes of one second fit into the counter.
    const RATE_UNIT: u64 = 32;

    /// Converts bytes to units of `bytes_out_rate`.
    #[inline]
    pub fn rate_units(bytes: u64) -> u32 {
        u32::try_from((bytes + Self::RATE_UNIT / 2) / Self::RATE_UNIT).unwrap_or(u32::MAX)
    }

    /// Converts units of `bytes_out_rate` to bytes.
    pub fn bytes_of_units(units: u32) -> u64 {
        u64::from(units) * Self::RATE_UNIT
    }
}

/// One worker's counts of health checks and agents (`show activity`).
#[derive(Debug, Default)]
pub struct CheckCounters {
    /// The number of checks that wait or run on this worker. Any worker may write it: a worker that hands over a check counts it
    /// here immediately. The value has a cache line to itself, which rarely changes, because every check that wakes reads the
    /// values of all workers.
    present: Padded<AtomicU32>,
    /// Checks started (`check_started`).
    pub started: Count,
    /// Checks taken over from another worker (`check_adopted`).
    pub adopted: Count,
    /// Checks in progress (`check_running`).
    pub running: Gauge,
}

impl CheckCounters {
    /// Returns the number of checks on this worker.
    pub fn present(&self) -> u32 {
        self.present.0.load(Relaxed)
    }

    /// Counts an arriving check.
    pub fn enter(&self) {
        self.present.add(1);
    }

    /// Counts an arriving check if there are fewer than `limit`. Returns whether it was counted.
    pub fn enter_below(&self, limit: u32) -> bool {
        self.present.0.take_below(limit).is_ok()
    }

    /// Uncounts a check that moves away or ends.
    pub fn leave(&self) {
        self.present.sub(1);
    }
}

/// The process.
#[derive(Debug, Default)]
pub struct Process {
    /// Counters.
    pub counters: Sharded<ProcessCounters>,
    /// Health checks and agents.
    pub checks: Sharded<CheckCounters>,
    /// Current connections of all frontends (`CurrConns`). Written at accept and close, and therefore separate from the limits,
    /// which every request reads.
    pub connections: Padded<AtomicU32>,
    /// Current connections to servers, in use and idle. Written when one is opened or closed, and therefore also separate from the
    /// limits.
    pub server_connections: Padded<AtomicU32>,
    /// The number of additional streams (beyond one each) that client connections may currently have. With
    /// `tune.streams-elasticity`, it is updated when such a connection begins and ends.
    pub extra_streams: Padded<AtomicU64>,
    /// Current connections with peers (`ConnectedPeers`). Written by the workers of `peers` sections.
    pub connected_peers: AtomicU32,
    /// Peer connections with a completed handshake (`ActivePeers`).
    pub active_peers: AtomicU32,
    /// The number of descriptors in use at which no more connections are kept idle (`tune.pool-low-fd-ratio`); 0 for no limit.
    pub idle_from_fds: AtomicU32,
    /// The number of descriptors in use at which idle connections are closed to make room (`tune.pool-high-fd-ratio`); 0 for no
    /// limit.
    pub crowded_from_fds: AtomicU32,
    /// The size of the buffers from which rules see bytes (`tune.bufsize`); 0 for no limit.
    pub buffer: AtomicU32,
    /// The limit on client connections (`Maxconn`). Written by `set maxconn global`.
    pub maxconn: AtomicU32,
    /// The limit was reached.
    pub connections_full: RepeatedEvent,
    /// The limit at startup (`Hard_maxconn`).
    pub hard_maxconn: AtomicU32,
    /// The limit on client connections after a memory shortage, which slowly rises again; 0 for none. Written by the thread that
    /// watches for shortages.
    pub accepted_in_shortage: AtomicU32,
    /// `maxconnrate`, 0 for none.
    pub connection_limit: AtomicU32,
    /// `maxsessrate`, 0 for none.
    pub session_limit: AtomicU32,
    /// `maxsslrate`, 0 for none.
    pub tls_limit: AtomicU32,
    /// `maxcomprate`, in bytes a second, 0 for none.
    pub compression_limit: AtomicU64,
    /// How often a task blocked its worker (`BlockedTrafficWarnings`). Written by the watchdog.
    pub held_up: AtomicU32,
    /// Whether QUIC listeners are bound (`tune.quic.listen`).
    pub quic: AtomicBool,
    /// Whether a soft stop has begun (`Stopping`).
    pub stopping: AtomicBool,
    /// Whether connections are being closed: a soft stop is in progress and its grace period is over.
    pub closing: AtomicBool,
    /// The time in ms over which connections are closed (`close-spread-time`).
    pub close_window: AtomicU64,
    /// When all connections will have been closed, in ms of the monotonic clock. The maximum value means never.
    pub close_until: AtomicU64,
    /// The sequence number of streams (`%rt`), if the configuration uses it. In that case, every worker writes it with each
    /// request; connections of the runtime socket always do.
    pub streams: AtomicU64,
    /// The number of runtime socket connections so far. Written when one is accepted.
    pub commanded: AtomicU64,
    /// The last malformed messages.
    pub errors: Errors,
    /// Statuses counted by stick tables. Set before workers start.
    pub counted: CountedStatuses,
}

impl Process {
    /// Counts that a connection has used the last free slot of `maxconn`.
    pub fn note_maxconn(&self, limit: u32) {
        self.counters.mine().maxconn_reached.add(1);
        self.connections_full.note(EventTopic::Limits, || {
            ("-".to_owned(), format!("maxconn {limit} of the process is reached: new connections wait."))
        });
    }

    /// Returns the number of descriptors used by connections.
    #[inline]
    pub fn descriptors(&self) -> u32 {
        self.connections.load(Relaxed) + self.server_connections.load(Relaxed)
    }

    /// Whether at least `limit` descriptors (0: no limit) are in use.
    #[inline]
    pub fn uses(&self, limit: &AtomicU32) -> bool {
        let limit = limit.load(Relaxed);
        limit > 0 && self.descriptors() >= limit
    }
}
