//! The statistics of frontends, listeners, backends and servers as rows of typed values. Used by `show stat`, the statistics page,
//! its CSV and JSON, and the metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use runtime::{Count, Gauge, LazySharded};
use state::counters::{self, BackendCounters, Cached, Compressed, Multiplexed, Traffic, Unrelayed};
use state::proxy::Admission;
use state::server::{Operational, ServerAddress};
use state::{Admin, Listener, Proxy, Server};

use crate::column::{C, ObjectKind, ObjectRow};
use crate::config_view::ProxyView;
use crate::process::Statistics;
use crate::quic_columns;

/// Display settings of a row.
#[derive(Debug, Clone, Copy)]
pub struct Show {
    /// Addresses, cookies, algorithms: levels operator and admin, or `stats show-legends`.
    pub legends: bool,
    /// The current time in ms of the monotonic clock.
    pub(crate) now: u64,
    /// The connection limit of the process, shown for proxies that have none.
    pub(crate) maxconn: u32,
    /// Whether servers may be hidden, so that the state of a backend includes their number.
    pub(crate) counts_servers: bool,
}

impl Show {
    /// The settings for rows that are read now. Refreshes counters shared by other processes.
    pub fn now(statistics: &Statistics, legends: bool) -> Self {
        statistics.refresh_counters();
        Self {
            legends,
            now: now_ms(),
            maxconn: statistics.process.maxconn.load(Relaxed),
            counts_servers: false,
        }
    }
}

/// The selected rows.
#[derive(Debug, Clone, Default)]
pub struct RowFilter {
    /// Only this proxy.
    pub proxy: Option<u32>,
    /// 1 for frontends, 2 for backends, 4 for servers, 8 for listeners, added.
    pub kinds: Option<u32>,
    /// Only this server.
    pub server: Option<u32>,
    /// Leave out servers that are down or in maintenance.
    pub up: bool,
    /// Leave out servers in maintenance.
    pub no_maintenance: bool,
    /// Only proxies with this in their name (`scope=` of the page).
    pub scope: Option<String>,
    /// Only these proxies (`stats scope`).
    pub names: Vec<Box<str>>,
}

impl RowFilter {
    /// Whether any row of this proxy is selected.
    pub(crate) fn wants(&self, proxy: &Proxy) -> bool {
        self.proxy.is_none_or(|id| id == proxy.id)
            && self.scope.as_ref().is_none_or(|scope| contains_ignoring_case(&proxy.name, scope))
            && (self.names.is_empty() || self.names.contains(&proxy.name))
    }

    /// Whether the server is selected.
    pub(crate) fn wants_server(&self, server: &Server) -> bool {
        let hidden = (self.up && !server.is_up()) || (self.no_maintenance && server.admin().in_maintenance());
        !hidden && self.server.is_none_or(|id| id == server.id)
    }

    pub(crate) fn wants_kind(&self, bit: u32) -> bool {
        self.kinds.is_none_or(|kinds| kinds & bit != 0)
    }
}

fn contains_ignoring_case(name: &str, part: &str) -> bool {
    name.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

fn sum<T>(shards: &LazySharded<T>, of: impl Fn(&T) -> u64) -> u64 {
    counters::total_of_all(shards, of)
}

/// The counters common to all kinds of objects.
fn traffic<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Traffic) {
    let total = |field: fn(&Traffic) -> u64| sum(shards, |shard| field(of(shard)));
    row.put(C::stot, total(|t| t.sessions_total.get()));
    let (bytes_in, bytes_out) = (total(|t| t.bytes_in.get()), total(|t| t.bytes_out.get()));
    row.put(C::bin, bytes_in);
    row.put(C::bout, bytes_out);
    row.put(C::reqbin, bytes_in);
    row.put(C::reqbout, bytes_in);
    row.put(C::resbin, bytes_out);
    row.put(C::resbout, bytes_out);
    row.put(C::dresp, total(|t| t.denied_responses.get()));
    row.put(C::wrew, total(|t| t.failed_rewrites.get()));
    row.put(C::eint, total(|t| t.internal_errors.get()));
}

/// The bytes of a frontend or listener that servers received and sent.
fn relayed<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> (&Traffic, &Unrelayed)) {
    let total = |field: fn((&Traffic, &Unrelayed)) -> [u64; 2]| {
        let [all, others] = [0, 1].map(|at| sum(shards, |shard| field(of(shard))[at]));
        all.saturating_sub(others)
    };
    row.put(C::reqbout, total(|(traffic, others)| [traffic.bytes_in.get(), others.bytes_in.get()]));
    row.put(C::resbin, total(|(traffic, others)| [traffic.bytes_out.get(), others.bytes_out.get()]));
}

fn compression<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Compressed) {
    let total = |field: fn(&Compressed) -> &Count| sum(shards, |shard| field(of(shard)).get());
    row.put(C::comp_in, total(|own| &own.taken));
    row.put(C::comp_out, total(|own| &own.given));
    row.put(C::comp_byp, total(|own| &own.passed_by));
    row.put(C::comp_rsp, total(|own| &own.responses));
}

fn cached<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Cached) {
    let total = |field: fn(&Cached) -> &Count| sum(shards, |shard| field(of(shard)).get());
    row.put(C::cache_lookups, total(|own| &own.lookups));
    row.put(C::cache_hits, total(|own| &own.hits));
    row.put(C::cache_hint_hits, total(|own| &own.hint_hits));
}

fn spliced<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Traffic) {
    row.put(C::h1_spliced_bytes_in, sum(shards, |shard| of(shard).spliced_in.get()));
    row.put(C::h1_spliced_bytes_out, sum(shards, |shard| of(shard).spliced_out.get()));
}

/// Fills the HTTP/2 columns of a frontend or backend; returns the counts of open connections, total connections and
/// streams.
fn multiplexed<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Multiplexed) -> [u64; 3] {
    let total = |field: fn(&Multiplexed) -> &Count| sum(shards, |shard| field(of(shard)).get());
    row.put(C::h2_headers_rcvd, total(|h2| &h2.headers));
    row.put(C::h2_data_rcvd, total(|h2| &h2.data));
    row.put(C::h2_settings_rcvd, total(|h2| &h2.settings));
    row.put(C::h2_rst_stream_rcvd, total(|h2| &h2.resets));
    row.put(C::h2_goaway_rcvd, total(|h2| &h2.goaways));
    row.put(C::h2_detected_conn_protocol_errors, total(|h2| &h2.connection_errors));
    row.put(C::h2_detected_strm_protocol_errors, total(|h2| &h2.stream_errors));
    row.put(C::h2_rst_stream_resp, total(|h2| &h2.resets_answered));
    row.put(C::h2_goaway_resp, total(|h2| &h2.goaways_answered));
    let now = |field: fn(&Multiplexed) -> &Gauge| counters::current(shards, |shard| field(of(shard)).get());
    let (open, opened) = (now(|h2| &h2.connections), total(|h2| &h2.connections_total));
    let streams = total(|h2| &h2.streams_total);
    row.put(C::h2_open_connections, open);
    row.put(C::h2_backend_open_streams, now(|h2| &h2.streams));
    row.put(C::h2_total_connections, opened);
    row.put(C::h2_backend_total_streams, streams);
    [open, opened, streams]
}

/// The HTTP/1 columns of frontends and backends. The counts of open and total connections and of streams include those of HTTP/2,
/// which are subtracted.
fn protocols(row: &mut ObjectRow, http: bool, counted: [u64; 3], others: [u64; 3], bytes: (u64, u64)) {
    let [open, opened, streams] = if http { counted } else { [0; 3] };
    row.put(C::h1_open_connections, open.saturating_sub(others[0]));
    row.put(C::h1_total_connections, opened.saturating_sub(others[1]));
    row.put(C::h1_total_streams, streams.saturating_sub(others[2]));
    let bytes = if http { bytes } else { (0, 0) };
    row.put(C::h1_bytes_in, bytes.0);
    row.put(C::h1_bytes_out, bytes.1);
}

fn responses<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Traffic) {
    const CLASSES: [C; 6] = [C::hrsp_1xx, C::hrsp_2xx, C::hrsp_3xx, C::hrsp_4xx, C::hrsp_5xx, C::hrsp_other];
    for (class, column) in CLASSES.into_iter().enumerate() {
        row.put(column, sum(shards, |shard| of(shard).responses.0[class].get()));
    }
}

fn rates<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> &Traffic, now: u64) {
    let rate: u32 = shards.all().map(|shard| of(shard).session_rate.per_second(now)).sum();
    let max: u32 = shards.all().map(|shard| of(shard).session_rate.max()).sum();
    row.put(C::rate, rate);
    row.put(C::rate_max, max.max(rate));
}

/// The status of a frontend. Whether it is full is shown by its listeners.
pub(crate) fn frontend_status(proxy: &Proxy) -> &'static str {
    match proxy.admission() {
        Admission::Open => "OPEN",
        Admission::Paused => "PAUSED",
        Admission::Stopped => "STOP",
    }
}

/// The status of a listener. It is also full if its frontend is full.
fn listener_status(proxy: &Proxy, listener: &Listener) -> &'static str {
    let reached = |limit: u32, count: u32| limit > 0 && count >= limit;
    let full = reached(proxy.maxconn.load(Relaxed), proxy.connections.load(Relaxed))
        || reached(listener.maxconn, listener.connections.load(Relaxed));
    // A paused frontend shows this in its own status.
    if full && proxy.admission() == Admission::Open { "FULL" } else { "OPEN" }
}

pub(crate) fn frontend_row(view: &ProxyView, show: Show) -> ObjectRow {
    let proxy = &view.state;
    let shards = &proxy.frontend;
    let mut row = ObjectRow::new(ObjectKind::Frontend, proxy, 0, "FRONTEND".to_owned());
    let current = proxy.connections.load(Relaxed);
    row.put(C::scur, current);
    row.put(C::smax, proxy.connections_max.load(Relaxed).max(current));
    let limit = proxy.maxconn.load(Relaxed);
    row.put(C::slim, if limit == 0 { show.maxconn } else { limit });
    traffic(&mut row, shards, |f| &f.traffic);
    relayed(&mut row, shards, |f| (&f.traffic, &f.unrelayed));
    row.put(C::dreq, sum(shards, |f| f.traffic.denied_requests.get()));
    row.put(C::ereq, sum(shards, |f| f.traffic.request_errors.get()));
    row.put(C::dcon, sum(shards, |f| f.denied_connections.get()));
    row.put(C::dses, sum(shards, |f| f.denied_sessions.get()));
    row.put(C::status, frontend_status(proxy));
    rates(&mut row, shards, |f| &f.traffic, show.now);
    row.put(C::rate_lim, proxy.session_limit.load(Relaxed));
    if proxy.mode == state::Mode::Http {
        responses(&mut row, shards, |f| &f.traffic);
        let rate: u32 = shards.all().map(|f| f.request_rate.per_second(show.now)).sum();
        let max: u32 = shards.all().map(|f| f.request_rate.max()).sum();
        row.put(C::req_rate, rate);
        row.put(C::req_rate_max, max.max(rate));
        let requests = sum(shards, |f| f.requests_total.get());
        row.put(C::req_tot, requests);
        let h3_requests = sum(shards, |f| f.h3.streams_total.get());
        let h3_sessions = sum(shards, |f| f.h3.connections_total.get());
        row.put(C::h3req, h3_requests);
        row.put(C::h3sess, h3_sessions);
        row.put(C::h1req, requests.saturating_sub(h3_requests));
        row.put(C::h1sess, sum(shards, |f| f.traffic.sessions_total.get()).saturating_sub(h3_sessions));
        for column in [C::h2sess, C::sess_other, C::h2req, C::req_other] {
            row.put(column, 0u64);
        }
        row.put(C::intercepted, sum(shards, |f| f.intercepted.get()));
        compression(&mut row, shards, |f| &f.compression);
        cached(&mut row, shards, |f| &f.cached);
    } else {
        let switched = sum(shards, |f| f.switched.get());
        row.put(C::sess_other, sum(shards, |f| f.traffic.sessions_total.get()).saturating_sub(switched));
        // In TCP mode only `switch-mode` rules create HTTP sessions.
        let requests = if switched > 0 { sum(shards, |f| f.requests_total.get()) } else { 0 };
        row.put(C::h1sess, switched);
        row.put(C::req_tot, requests);
        row.put(C::h1req, requests.saturating_sub(sum(shards, |f| f.h2.streams_total.get())));
        let others = [C::h2req, C::h3req, C::req_other, C::h2sess, C::h3sess];
        for column in others.into_iter().chain([C::comp_in, C::comp_out, C::comp_byp, C::comp_rsp]) {
            row.put(column, 0u64);
        }
        row.put(C::req_rate, 0u32);
        row.put(C::req_rate_max, 0u32);
    }
    let rate: u32 = shards.all().map(|f| f.connection_rate.per_second(show.now)).sum();
    let max: u32 = shards.all().map(|f| f.connection_rate.max()).sum();
    row.put(C::conn_rate, rate);
    row.put(C::conn_rate_max, max.max(rate));
    let connections = sum(shards, |f| f.connections_total.get());
    row.put(C::conn_tot, connections);
    let requests = sum(shards, |f| f.requests_total.get());
    let bytes = (sum(shards, |f| f.traffic.bytes_in.get()), sum(shards, |f| f.traffic.bytes_out.get()));
    let of_h2 = multiplexed(&mut row, shards, |f| &f.h2);
    let of_h3 = [
        counters::current(shards, |f| f.h3.connections.get()),
        sum(shards, |f| f.h3.connections_total.get()),
        sum(shards, |f| f.h3.streams_total.get()),
    ];
    quic_columns::put(&mut row, shards, |f| Some(&f.quic));
    let others = [0, 1, 2].map(|of| of_h2[of] + of_h3[of]);
    let counted = [current.into(), connections, requests];
    protocols(&mut row, proxy.mode == state::Mode::Http, counted, others, bytes);
    spliced(&mut row, shards, |f| &f.traffic);
    row
}

pub(crate) fn listener_row(view: &ProxyView, listener: &Listener, show: Show) -> ObjectRow {
    let mut row = ObjectRow::new(ObjectKind::Listener, &view.state, listener.id, listener.name.to_string());
    let uncounted = LazySharded::default();
    let shards = listener.counters.get().unwrap_or(&uncounted);
    let current = listener.connections.load(Relaxed);
    row.put(C::scur, current);
    row.put(C::smax, peak(shards, |l| &l.traffic, current, [show.maxconn, listener.maxconn]));
    row.put(C::slim, listener.maxconn);
    traffic(&mut row, shards, |l| &l.traffic);
    relayed(&mut row, shards, |l| (&l.traffic, &l.unrelayed));
    row.put(C::dreq, sum(shards, |l| l.traffic.denied_requests.get()));
    row.put(C::ereq, sum(shards, |l| l.traffic.request_errors.get()));
    row.put(C::dcon, sum(shards, |l| l.denied_connections.get()));
    row.put(C::dses, sum(shards, |l| l.denied_sessions.get()));
    let refused = sum(shards, |l| l.denied_connections.get() + l.denied_sessions.get());
    row.put(C::conn_tot, sum(shards, |l| l.traffic.sessions_total.get()) + refused);
    row.put(C::status, listener_status(&view.state, listener));
    row.put(C::proto, protocol(&listener.address));
    if show.legends {
        row.put(C::addr, listener.address.to_string());
    }
    row
}

/// HAProxy's name for the address family of a listener.
fn protocol(address: &str) -> &'static str {
    match address.parse::<SocketAddr>() {
        Ok(SocketAddr::V4(_)) => "tcpv4",
        Ok(SocketAddr::V6(_)) => "tcpv6",
        Err(_) if address.starts_with("abns") => "abns_stream",
        Err(_) if address.starts_with("unix@") => "unix_stream",
        // The address of an inherited descriptor does not reveal its family.
        Err(_) => "tcpv4",
    }
}

/// Columns common to backends and servers.
fn backend_side(row: &mut ObjectRow, shards: &LazySharded<BackendCounters>, http: bool, show: Show) {
    traffic(row, shards, |b| &b.traffic);
    row.put(C::econ, sum(shards, |b| b.connection_errors.get()));
    row.put(C::eresp, sum(shards, |b| b.response_errors.get()));
    row.put(C::wretr, sum(shards, |b| b.retries.get()));
    row.put(C::wredis, sum(shards, |b| b.redispatches.get()));
    row.put(C::cli_abrt, sum(shards, |b| b.client_aborts.get()));
    row.put(C::srv_abrt, sum(shards, |b| b.server_aborts.get()));
    row.put(C::lbtot, sum(shards, |b| b.chosen.get()));
    row.put(C::connect, sum(shards, |b| b.connects.get()));
    row.put(C::reuse, sum(shards, |b| b.reuses.get()));
    rates(row, shards, |b| &b.traffic, show.now);
    if http {
        responses(row, shards, |b| &b.traffic);
        row.put(C::req_tot, sum(shards, |b| b.requests_total.get()));
    }
    // Unweighted averages of the workers that saw requests; of the maxima, the highest.
    let busy: Vec<[u64; 4]> =
        shards.all().map(|b| b.times.averages()).filter(|times| times.iter().any(|&t| t > 0)).collect();
    for (i, column) in [C::qtime, C::ctime, C::rtime, C::ttime].into_iter().enumerate() {
        let total: u64 = busy.iter().map(|times| times[i]).sum();
        row.put(column, (total / busy.len().max(1) as u64) as u32);
    }
    for (i, column) in [C::qtime_max, C::ctime_max, C::rtime_max, C::ttime_max].into_iter().enumerate() {
        row.put(column, shards.all().map(|b| b.times.max[i].get()).max().unwrap_or(0) as u32);
    }
}

/// The seconds since the last session; -1 before the first one.
fn age(last: &state::LastSession, now: u64) -> i32 {
    last.age(now).map_or(-1, |seconds| i32::try_from(seconds).unwrap_or(i32::MAX))
}

/// Whether a backend can serve: its servers have weight, or it has no servers at all.
pub(crate) fn backend_is_up(proxy: &Proxy) -> bool {
    proxy.total_weight() > 0 || proxy.servers.load().is_empty()
}

/// The maximum of concurrent sessions. Each worker has its own peak at a different time, so their sum is an upper bound of the true
/// peak. The true peak does not exceed the connection `limits` either, of which 0 means none.
fn peak<T>(shards: &LazySharded<T>, of: impl Fn(&T) -> &Traffic, current: u32, limits: [u32; 2]) -> u32 {
    let sum: i64 = shards.all().map(|shard| of(shard).sessions.max()).sum();
    let limit = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(u32::MAX);
    u32::try_from(sum.max(0)).unwrap_or(u32::MAX).min(limit).max(current)
}

pub(crate) fn backend_row(view: &ProxyView, show: Show) -> ObjectRow {
    let proxy = &view.state;
    let shards = &proxy.backend;
    let http = proxy.mode == state::Mode::Http;
    let mut row = ObjectRow::new(ObjectKind::Backend, proxy, 0, "BACKEND".to_owned());
    backend_side(&mut row, shards, http, show);
    let current = counters::current(shards, |b| b.traffic.sessions.get()) as u32;
    row.put(C::qcur, proxy.queue.len());
    row.put(C::qmax, proxy.queue.longest());
    row.put(C::scur, current);
    row.put(C::smax, peak(shards, |b| &b.traffic, current, [show.maxconn, 0]));
    row.put(C::slim, proxy.fullconn.load(Relaxed));
    row.put(C::dreq, sum(shards, |b| b.traffic.denied_requests.get()));
    let servers = proxy.servers.load();
    let usable = |backup| servers.iter().filter(|s| s.backup == backup && s.effective_weight() > 0).count();
    let up = backend_is_up(proxy);
    let unpublished = proxy.unpublished.load(Relaxed);
    let status = match (up, unpublished) {
        (true, false) => "UP",
        (true, true) => "UP (UNPUB)",
        (false, false) => "DOWN",
        (false, true) => "DOWN (UNPUB)",
    };
    if show.counts_servers {
        row.put(C::status, format!("{status} ({}/{})", usable(false) + usable(true), servers.len()));
    } else {
        row.put(C::status, status);
    }
    row.put(C::weight, proxy.total_weight());
    // The servers in use: backups count if no active server is left.
    let (active, spare) = (usable(false) as u32, usable(true) as u32);
    let used = servers.iter().filter(|s| s.backup == (active == 0) && s.effective_weight() > 0);
    row.put(C::uweight, used.map(|s| s.user_weight()).sum::<u32>());
    row.put(C::act, active);
    row.put(C::bck, spare);
    row.put(C::chkdown, u64::from(proxy.downs.load(Relaxed)));
    let changed = proxy.changed_at.load(Relaxed);
    row.put(C::lastchg, (show.now.saturating_sub(changed) / 1000) as u32);
    if !servers.is_empty() {
        row.put(C::downtime, if up { 0u32 } else { (show.now.saturating_sub(changed) / 1000) as u32 });
    }
    row.put(C::lastsess, age(&proxy.last_session, show.now));
    compression(&mut row, shards, |b| &b.compression);
    if http {
        cached(&mut row, shards, |b| &b.cached);
    }
    for column in [C::agg_server_status, C::agg_server_check_status, C::agg_check_status] {
        row.put(column, 0u32);
    }
    of_servers(&mut row, &servers, shards, http);
    spliced(&mut row, shards, |b| &b.traffic);
    if show.legends {
        row.put(C::cookie, view.cookie.as_ref().map(ToString::to_string));
        row.put(C::algo, view.algorithm);
    }
    row
}

/// The part of a backend's bytes, connections and streams that its servers have. The backend itself answered the rest.
fn of_servers(
    row: &mut ObjectRow,
    servers: &[Arc<Server>],
    backend: &LazySharded<BackendCounters>,
    http: bool,
) {
    let total = |of: fn(&BackendCounters) -> u64| servers.iter().map(|s| sum(&s.counters, of)).sum::<u64>();
    let (sent, received) = (total(|s| s.traffic.bytes_in.get()), total(|s| s.traffic.bytes_out.get()));
    row.put(C::reqbout, sent);
    row.put(C::resbin, received);
    let idle = |server: &Arc<Server>| counters::current(&server.counters, |s| s.idle.get()) as u32;
    let serving: u32 = servers.iter().map(|server| server.serving()).sum();
    let open = serving + servers.iter().map(idle).sum::<u32>();
    let (opened, streams) = (total(|s| s.connects.get()), total(|s| s.traffic.sessions_total.get()));
    let of_h2 = multiplexed(row, backend, |b| &b.h2);
    quic_columns::put(row, backend, |b| b.quic.get().map(|quic| &**quic));
    protocols(row, http, [open.into(), opened, streams], of_h2, (received, sent));
    row.put(C::h1_open_streams, u64::from(if http { serving } else { 0 }));
}

/// `address:port` in the format of the statistics.
pub fn address_text(address: &ServerAddress) -> String {
    match address {
        ServerAddress::Ip(address) => address.to_string(),
        ServerAddress::Unix(_) | ServerAddress::Abstract { .. } => "unix".to_owned(),
        ServerAddress::Unresolved | ServerAddress::Reverse => "-".to_owned(),
    }
}

/// The status of a server: UP, DOWN, NOLB, MAINT, DRAIN, with the check level during a transition.
pub(crate) fn server_status(server: &Server) -> String {
    let admin = server.admin();
    let followed = server.watched();
    let watched = followed.as_deref().unwrap_or(server);
    if admin.in_maintenance() {
        return match server.tracked() {
            Some(of) if admin.0 & Admin::INHERITED_MAINT != 0 => {
                format!("MAINT (via {}/{})", of.proxy, of.name)
            }
            _ if admin.0 & Admin::RESOLUTION_MAINT != 0 => "MAINT (resolution)".to_owned(),
            _ => "MAINT".to_owned(),
        };
    }
    let health = &watched.health;
    let (level, rise, fall) =
        (health.level.load(Relaxed), health.rise.load(Relaxed), health.fall.load(Relaxed));
    let checked = watched.checked.load(Relaxed);
    let asked = watched.agent_checked.load(Relaxed);
    let falling = checked && level + 1 < rise + fall;
    let falls = level.saturating_sub(rise) + 1;
    match server.operational() {
        Operational::Stopped if watched.agent_says_down() => "DOWN (agent)".to_owned(),
        Operational::Stopped if (checked || asked) && level > 0 => format!("DOWN {level}/{rise}"),
        Operational::Stopped => "DOWN".to_owned(),
        Operational::Stopping if falling => format!("NOLB {falls}/{fall}"),
        Operational::Stopping => "NOLB".to_owned(),
        _ if admin.draining() && asked => "DRAIN (agent)".to_owned(),
        _ if admin.draining() && falling => format!("DRAIN {falls}/{fall}"),
        _ if admin.draining() => "DRAIN".to_owned(),
        _ if !checked => "no check".to_owned(),
        _ if falling => format!("UP {falls}/{fall}"),
        _ => "UP".to_owned(),
    }
}

pub(crate) fn server_row(proxy: &ProxyView, server: &Server, show: Show) -> ObjectRow {
    let view = proxy.server(server.id);
    let http = proxy.state.mode == state::Mode::Http;
    let mut row = ObjectRow::new(ObjectKind::Server, &proxy.state, server.id, server.name.to_string());
    backend_side(&mut row, &server.counters, http, show);
    row.put(C::qcur, server.queue.len());
    row.put(C::qmax, server.queue.longest());
    let served = server.serving();
    row.put(C::scur, served);
    row.put(C::smax, server.served_max.load(Relaxed).max(served));
    let limit = server.maxconn.load(Relaxed);
    row.put(C::slim, (limit > 0).then_some(limit));
    row.put(C::qlimit, (server.maxqueue > 0).then_some(server.maxqueue));
    row.put(C::status, server_status(server));
    row.put(C::weight, server.shown_weight());
    row.put(C::uweight, server.user_weight());
    row.put(C::act, u32::from(!server.backup));
    row.put(C::bck, u32::from(server.backup));
    let since = server.changed.age(show.now);
    row.put(C::lastchg, (since / 1000) as u32);
    row.put(C::throttle, server.throttle());
    row.put(C::lastsess, age(&server.last_session, show.now));
    row.put(C::tracked, server.tracked().map(|of| format!("{}/{}", of.proxy, of.name)));
    let idle = counters::current(&server.counters, |s| s.idle.get()) as u32;
    row.put(C::srv_icur, idle);
    row.put(C::src_ilim, view.filter(|view| view.pool_max >= 0).map(|view| view.pool_max as u32));
    let unproven = (counters::current(&server.counters, |s| s.idle_unproven.get()) as u32).min(idle);
    row.put(C::idle_conn_cur, unproven);
    row.put(C::safe_conn_cur, idle - unproven);
    row.put(C::used_conn_cur, served);
    row.put(C::need_conn_est, server.counters.all().map(|s| s.needed.get()).max().unwrap_or_default());
    row.put(C::priv_idle_cur, counters::current(&server.counters, |s| s.private_idle.get()) as u32);
    row.put(C::srid, 0u32);
    // Checks have no result in maintenance; agents are still queried.
    let rests = server.admin().in_maintenance();
    if server.checked.load(Relaxed) {
        let down = server.down_ms.load(Relaxed) + if server.is_up() { 0 } else { since };
        row.put(C::downtime, (down / 1000) as u32);
        row.put(C::chkdown, u64::from(server.downs.load(Relaxed)));
        row.put(C::chkfail, u64::from(server.health.failed.load(Relaxed)));
        let observed = server.health.observes.load(Relaxed).then(|| server.health.observed.load(Relaxed));
        row.put(C::hanafail, observed.map(u64::from));
        if !rests {
            check_columns(&mut row, server);
        }
    }
    if server.agent_checked.load(Relaxed) {
        agent_columns(&mut row, server);
    }
    if show.legends {
        row.put(C::addr, address_text(&server.address.load()));
        let own = view.and_then(|view| view.cookie.as_ref()).map(ToString::to_string);
        let dynamic = || proxy.state.cookie_key().and_then(|key| server.dynamic_cookie(&key));
        row.put(C::cookie, own.or_else(dynamic));
    }
    row
}

fn check_columns(row: &mut ObjectRow, server: &Server) {
    let health = &server.health;
    let last = health.last.load();
    let (status, description, ..) = *last.meaning();
    let running = if health.running.load(Relaxed) { "* " } else { "" };
    row.put(C::check_status, format!("{running}{status}"));
    row.put(C::check_code, last.code);
    row.put(C::check_duration, (!last.status.is_empty()).then_some(last.duration_ms));
    row.put(C::check_desc, description);
    row.put(C::last_chk, last.description.clone());
    row.put(C::check_rise, health.rise.load(Relaxed));
    row.put(C::check_fall, health.fall.load(Relaxed));
    row.put(C::check_health, health.level.load(Relaxed));
}

fn agent_columns(row: &mut ObjectRow, server: &Server) {
    let agent = &server.agent;
    let last = agent.last.load();
    let (status, description, ..) = *last.meaning();
    let running = if agent.running.load(Relaxed) { "* " } else { "" };
    row.put(C::agent_status, format!("{running}{status}"));
    row.put(C::agent_code, last.code);
    row.put(C::agent_duration, (!last.status.is_empty()).then_some(last.duration_ms));
    row.put(C::agent_desc, description);
    row.put(C::last_agt, last.description.clone());
    row.put(C::agent_rise, agent.rise.load(Relaxed));
    row.put(C::agent_fall, agent.fall.load(Relaxed));
    row.put(C::agent_health, agent.level.load(Relaxed));
}
