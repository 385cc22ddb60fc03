//! Counters of frontends, listeners, backends and servers (management manual, 9.1), one copy per worker.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use runtime::{Count, Gauge, Latest, LazySharded, Rate};

use crate::quic_counters::QuicShard;

/// HTTP responses by status class: 1xx to 5xx, then everything else.
#[derive(Debug, Default)]
pub struct Responses(pub [Count; 6]);

impl Responses {
    /// Counts one response with `status`.
    #[inline]
    pub fn add(&self, status: u16) {
        let class = match status / 100 {
            class @ 1..=5 => class as usize - 1,
            _ => 5,
        };
        self.0[class].add(1);
    }
}

/// Counters common to both sides of a proxy, listeners and servers.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes received from clients (`bin`).
    pub bytes_in: Count,
    /// Bytes sent to clients (`bout`).
    pub bytes_out: Count,
    /// Current and maximum number of sessions (`scur`, `smax`).
    pub sessions: Gauge,
    /// Total number of sessions (`stot`).
    pub sessions_total: Count,
    /// New sessions per second (`rate`, `rate_max`).
    pub session_rate: Rate,
    /// Requests denied by rules (`dreq`).
    pub denied_requests: Count,
    /// Responses denied by rules (`dresp`).
    pub denied_responses: Count,
    /// Request errors (`ereq`).
    pub request_errors: Count,
    /// Rewrites that failed because there was not enough room (`wrew`).
    pub failed_rewrites: Count,
    /// Bytes received without being copied through the process (`h1_spliced_bytes_in`).
    pub spliced_in: Count,
    /// Bytes sent without being copied through the process (`h1_spliced_bytes_out`).
    pub spliced_out: Count,
    /// Internal errors (`eint`).
    pub internal_errors: Count,
    /// HTTP responses by class (`hrsp_*`).
    pub responses: Responses,
}

/// HTTP/2 counters (`h2_*`): of client connections for frontends, of server connections for backends.
#[derive(Debug, Default)]
pub struct Multiplexed {
    /// HEADERS frames received.
    pub headers: Count,
    /// DATA frames received.
    pub data: Count,
    /// SETTINGS frames received.
    pub settings: Count,
    /// RST_STREAM frames received.
    pub resets: Count,
    /// GOAWAY frames received.
    pub goaways: Count,
    /// Protocol violations that ended a connection.
    pub connection_errors: Count,
    /// Protocol violations that ended a stream.
    pub stream_errors: Count,
    /// RST_STREAM frames sent for a protocol violation.
    pub resets_answered: Count,
    /// GOAWAY frames sent for a protocol violation.
    pub goaways_answered: Count,
    /// Current number of connections.
    pub connections: Gauge,
    /// Total number of connections.
    pub connections_total: Count,
    /// Current number of streams.
    pub streams: Gauge,
    /// Total number of streams.
    pub streams_total: Count,
}

/// Compression counters.
#[derive(Debug, Default)]
pub struct Compressed {
    /// Input bytes (`comp_in`).
    pub taken: Count,
    /// Output bytes (`comp_out`).
    pub given: Count,
    /// Bytes not compressed because of the process limits (`comp_byp`).
    pub passed_by: Count,
    /// Compressed responses (`comp_rsp`).
    pub responses: Count,
}

/// Cache counters.
#[derive(Debug, Default)]
pub struct Cached {
    /// Lookups (`cache_lookups`).
    pub lookups: Count,
    /// Hits (`cache_hits`).
    pub hits: Count,
    /// Hits for which hints were sent (`cache_hint_hits`).
    pub hint_hits: Count,
}

/// One worker's counters of a frontend.
#[derive(Debug, Default)]
pub struct FrontendCounters {
    /// The common counters.
    pub traffic: Traffic,
    /// HTTP/2 counters.
    pub h2: Multiplexed,
    /// HTTP/3 connections and streams.
    pub h3: Multiplexed,
    /// QUIC and HTTP/3 counters.
    pub quic: QuicShard,
    /// Log lines of its streams (`%lc`).
    pub log_lines: Count,
    /// Total number of connections (`conn_tot`).
    pub connections_total: Count,
    /// Connections per second (`conn_rate`).
    pub connection_rate: Rate,
    /// Connections refused by `tcp-request connection` rules (`dcon`).
    pub denied_connections: Count,
    /// Sessions refused by `tcp-request session` rules (`dses`).
    pub denied_sessions: Count,
    /// Bytes that were not exchanged with a server (`reqbout`, `resbin`).
    pub unrelayed: Unrelayed,
    /// TCP sessions that rules upgraded to HTTP/1 (`h1sess`).
    pub switched: Count,
    /// Total number of HTTP requests (`req_tot`).
    pub requests_total: Count,
    /// HTTP requests per second (`req_rate`, `req_rate_max`).
    pub request_rate: Rate,
    /// Requests answered by rules or services (`intercepted`).
    pub intercepted: Count,
    /// Compression counters.
    pub compression: Compressed,
    /// Cache counters.
    pub cached: Cached,
}

/// Bytes between clients and this process that were neither received from nor sent to a server.
#[derive(Debug, Default)]
pub struct Unrelayed {
    /// Bytes received.
    pub bytes_in: Count,
    /// Bytes sent.
    pub bytes_out: Count,
}

/// One worker's counters of a listener.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    /// The common counters.
    pub traffic: Traffic,
    /// Connections refused by rules.
    pub denied_connections: Count,
    /// Sessions refused by rules.
    pub denied_sessions: Count,
    /// Bytes that were not exchanged with a server (`reqbout`, `resbin`).
    pub unrelayed: Unrelayed,
}

/// One worker's counters of a backend or a server, which have the same columns.
#[derive(Debug, Default)]
pub struct BackendCounters {
    /// The common counters. For servers, `sessions` only counts the requests in progress that each worker counts separately.
    pub traffic: Traffic,
    /// HTTP/2 counters.
    pub h2: Multiplexed,
    /// QUIC and HTTP/3 counters of a backend, once it has used them.
    pub quic: OnceLock<Box<QuicShard>>,
    /// Total number of HTTP requests (`req_tot`).
    pub requests_total: Count,
    /// HTTP requests per second (`req_rate`).
    pub request_rate: Rate,
    /// Connection errors (`econ`).
    pub connection_errors: Count,
    /// Response errors (`eresp`).
    pub response_errors: Count,
    /// Retries (`wretr`).
    pub retries: Count,
    /// Redispatches to another server (`wredis`).
    pub redispatches: Count,
    /// Transfers that the client aborted (`cli_abrt`).
    pub client_aborts: Count,
    /// Transfers that the server aborted (`srv_abrt`).
    pub server_aborts: Count,
    /// How often a server was chosen (`lbtot`).
    pub chosen: Count,
    /// Compression counters.
    pub compression: Compressed,
    /// Cache counters.
    pub cached: Cached,
    /// Connections opened (`connect`).
    pub connects: Count,
    /// Connections reused (`reuse`).
    pub reuses: Count,
    /// Slots of a server's `maxconn` that the worker keeps for its next requests.
    pub places: LimitPlaces,
    /// This worker's current idle connections (`srv_icur`).
    pub idle: Gauge,
    /// Idle connections that have not served a second request yet (`idle_conn_cur`). Reusing them is riskier, because servers may
    /// close them.
    pub idle_unproven: Gauge,
    /// This worker's current idle connections that are reserved for one client (`priv_idle_cur`).
    pub private_idle: Gauge,
    /// The number of concurrent connections that the worker expects to need (`need_conn_est`). The expectation of all workers is
    /// for the whole server.
    pub needed: Latest,
    /// Sums of the times of the last 1,024 requests, in ms (`qtime`, `ctime`, `rtime`, `ttime`).
    pub times: AverageTimes,
}

/// Slots of a limit that a worker holds for reuse. Only the worker itself adds or takes single slots. Other workers take all of
/// them at once if they find no other slot.
#[derive(Debug, Default)]
pub struct LimitPlaces(AtomicU32);

impl LimitPlaces {
    /// Takes a slot, if there is one.
    #[inline]
    pub fn take(&self) -> bool {
        // Usually there is no slot, or no contention.
        self.0.load(Relaxed) > 0 && self.0.fetch_update(Relaxed, Relaxed, |kept| kept.checked_sub(1)).is_ok()
    }

    /// Adds a slot.
    #[inline]
    pub fn keep(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Takes all slots.
    pub fn take_all(&self) -> u32 {
        if self.0.load(Relaxed) == 0 { 0 } else { self.0.swap(0, Relaxed) }
    }
}

/// One worker's counters of a server.
pub type ServerCounters = BackendCounters;

/// Sliding sums over the last 1,024 requests, computed like HAProxy's averages: each new value replaces one 1,024th of the sum. In
/// milliseconds.
#[derive(Debug, Default)]
pub struct AverageTimes {
    queue: SlidingSum,
    connect: SlidingSum,
    response: SlidingSum,
    total: SlidingSum,
    /// The maximum of each time: queue, connect, response, total (`qtime_max` …).
    pub max: [Count; 4],
}

impl AverageTimes {
    /// Adds the times of one finished request, in ms: queue, connect, response, total.
    #[inline]
    pub fn add(&self, times: [u64; 4]) {
        for (sum, time) in [&self.queue, &self.connect, &self.response, &self.total].into_iter().zip(times) {
            sum.add(time);
        }
        for (max, time) in self.max.iter().zip(times) {
            max.raise(time);
        }
    }

    /// Returns the averages in ms: queue, connect, response, total. All are zero before the first request.
    pub fn averages(&self) -> [u64; 4] {
        [&self.queue, &self.connect, &self.response, &self.total].map(SlidingSum::average)
    }
}

/// All monotonic counters of an object, in a fixed order. Used to reset the counters and to share them with other processes.
pub trait Totals {
    /// Appends the counters to `all`.
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>);

    /// Returns all counters.
    fn totals(&self) -> Vec<&Count> {
        let mut all = Vec::with_capacity(64);
        self.add_to(&mut all);
        all
    }
}

impl Totals for Traffic {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        all.extend([
            &self.bytes_in,
            &self.bytes_out,
            &self.sessions_total,
            &self.denied_requests,
            &self.denied_responses,
            &self.request_errors,
            &self.failed_rewrites,
            &self.internal_errors,
            &self.spliced_in,
            &self.spliced_out,
        ]);
        all.extend(&self.responses.0);
    }
}

impl Totals for Multiplexed {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        all.extend([
            &self.headers,
            &self.data,
            &self.settings,
            &self.resets,
            &self.goaways,
            &self.connection_errors,
            &self.stream_errors,
            &self.resets_answered,
            &self.goaways_answered,
            &self.connections_total,
            &self.streams_total,
        ]);
    }
}

impl Totals for Compressed {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        all.extend([&self.taken, &self.given, &self.passed_by, &self.responses]);
    }
}

impl Totals for Cached {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        all.extend([&self.lookups, &self.hits, &self.hint_hits]);
    }
}

impl Totals for FrontendCounters {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        self.traffic.add_to(all);
        self.h2.add_to(all);
        self.compression.add_to(all);
        self.cached.add_to(all);
        all.extend([
            &self.connections_total,
            &self.denied_connections,
            &self.denied_sessions,
            &self.unrelayed.bytes_in,
            &self.unrelayed.bytes_out,
            &self.switched,
            &self.requests_total,
            &self.intercepted,
        ]);
    }
}

impl Totals for ListenerCounters {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        self.traffic.add_to(all);
        let Unrelayed { bytes_in, bytes_out } = &self.unrelayed;
        all.extend([&self.denied_connections, &self.denied_sessions, bytes_in, bytes_out]);
    }
}

impl Totals for BackendCounters {
    fn add_to<'c>(&'c self, all: &mut Vec<&'c Count>) {
        self.traffic.add_to(all);
        self.h2.add_to(all);
        self.compression.add_to(all);
        self.cached.add_to(all);
        all.extend([
            &self.requests_total,
            &self.connection_errors,
            &self.response_errors,
            &self.retries,
            &self.redispatches,
            &self.client_aborts,
            &self.server_aborts,
            &self.chosen,
            &self.connects,
            &self.reuses,
        ]);
    }
}

/// Resets the counters of one object: only maxima, or everything except gauges.
pub(crate) trait Clear {
    fn clear(&self, all: bool);
}

/// Resets the monotonic counters.
fn clear_totals(counters: &impl Totals) {
    counters.totals().into_iter().for_each(Count::clear);
}

impl Traffic {
    fn clear_highest(&self) {
        self.sessions.clear_max();
        self.session_rate.clear_max();
    }
}

impl Clear for FrontendCounters {
    fn clear(&self, all: bool) {
        self.traffic.clear_highest();
        self.connection_rate.clear_max();
        self.request_rate.clear_max();
        if all {
            clear_totals(self);
            self.quic.clear();
        }
    }
}

impl Clear for ListenerCounters {
    fn clear(&self, all: bool) {
        self.traffic.clear_highest();
        if all {
            clear_totals(self);
        }
    }
}

impl Clear for BackendCounters {
    fn clear(&self, all: bool) {
        self.traffic.clear_highest();
        self.request_rate.clear_max();
        self.idle.clear_max();
        self.times.max.iter().for_each(Count::clear);
        if all {
            clear_totals(self);
            if let Some(quic) = self.quic.get() {
                quic.clear();
            }
        }
    }
}

/// Resets the counters of all workers.
pub(crate) fn clear_shards<T: Clear>(shards: &LazySharded<T>, all: bool) {
    shards.all().for_each(|shard| shard.clear(all));
}

/// The number of values in a sliding sum.
const WINDOW: u64 = 1024;

#[derive(Debug, Default)]
struct SlidingSum {
    sum: Count,
    values: Count,
}

impl SlidingSum {
    #[inline]
    fn add(&self, value: u64) {
        let held = self.values.get();
        if held < WINDOW {
            self.values.add(1);
            self.sum.add(value);
        } else {
            let sum = self.sum.get();
            let next = sum - sum.div_ceil(WINDOW) + value;
            self.sum.add(next.wrapping_sub(sum));
        }
    }

    fn average(&self) -> u64 {
        let held = self.values.get().min(WINDOW);
        if held == 0 { 0 } else { self.sum.get().div_ceil(held) }
    }
}

/// Sums one counter over all workers.
pub fn total<T>(shards: &LazySharded<T>, of: impl Fn(&T) -> u64) -> u64 {
    shards.all().map(of).sum()
}

/// Like [`total`], but includes other processes that share their counters. This is the value to show.
pub fn total_of_all<T>(shards: &LazySharded<T>, of: impl Fn(&T) -> u64) -> u64 {
    shards.with_others().map(of).sum()
}

/// Sums a signed value over all workers. The sum may be negative for a moment because of concurrent updates.
pub fn current<T>(shards: &LazySharded<T>, of: impl Fn(&T) -> i64) -> u64 {
    shards.all().map(of).sum::<i64>().max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_outside_the_five_classes_counts_as_other() {
        let responses = Responses::default();
        for status in [100, 200, 204, 304, 404, 503, 600, 0] {
            responses.add(status);
        }
        assert_eq!(responses.0.each_ref().map(Count::get), [1, 2, 1, 1, 1, 2]);
    }

    #[test]
    fn clearing_all_resets_compression_and_cache_counters() {
        let (frontend, backend) = (FrontendCounters::default(), BackendCounters::default());
        let counts = || {
            let sides = [(&frontend.compression, &frontend.cached), (&backend.compression, &backend.cached)];
            sides.into_iter().flat_map(|(coded, cached)| {
                let coded = [&coded.taken, &coded.given, &coded.passed_by, &coded.responses];
                coded.into_iter().chain([&cached.lookups, &cached.hits, &cached.hint_hits])
            })
        };
        counts().for_each(|count| count.add(1));
        for all in [false, true] {
            frontend.clear(all);
            backend.clear(all);
            assert!(counts().all(|count| count.get() == u64::from(!all)));
        }
    }

    #[test]
    fn clearing_all_resets_quic_counters() {
        let (frontend, backend) = (FrontendCounters::default(), BackendCounters::default());
        backend.clear(true);
        assert!(backend.quic.get().is_none(), "nothing is created");
        let shards = [&frontend.quic, &**backend.quic.get_or_init(Box::default)];
        for shard in shards {
            shard.quic.sent_pkt.add(1);
            shard.h3.headers.add(1);
            shard.half_open.up();
        }
        for all in [false, true] {
            frontend.clear(all);
            backend.clear(all);
            let left = u64::from(!all);
            for shard in shards {
                assert_eq!((shard.quic.sent_pkt.get(), shard.h3.headers.get()), (left, left));
                assert_eq!(shard.half_open.get(), 1);
            }
        }
    }

    #[test]
    fn average_times_follow_the_last_thousand_requests() {
        let times = AverageTimes::default();
        for _ in 0..2000 {
            times.add([0, 1, 10, 10]);
        }
        assert_eq!(times.averages(), [0, 1, 10, 10]);
        for _ in 0..10_000 {
            times.add([0, 1, 50, 50]);
        }
        assert_eq!(times.averages()[2], 50);
        assert_eq!(times.max.each_ref().map(Count::get), [0, 1, 50, 50]);
    }
}
