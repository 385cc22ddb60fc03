//! Fills the histories of proxies and servers for the statistics page, and collects facts that are too slow to read for each page:
//! certificates, and the busiest entries of stick tables. The binary calls it once per interval, outside of any request.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use runtime::LazySharded;
use state::counters::{self, AverageTimes, BackendCounters};
use state::durations::MeasuredTime;
use state::history::{OptionalHistory, Readings};
use state::table::{Column, DataType, KeyType, Table, TableCursor, ValueForm};
use state::{Proxy, Server};
use tls::x509::CertificateFields;

use crate::collected::{CertificateTerm, Collected, TableTop};
use crate::config_view::ConfigView;
use crate::process::Statistics;

/// The number of servers sampled per piece of work: about 50 µs.
const SERVERS_A_PIECE: usize = 64;

/// The number of table positions visited per piece of work.
const ENTRIES_A_PIECE: usize = 512;

/// The most table positions visited per interval. Larger tables are only searched in part.
const MOST_ENTRIES: usize = 32 * 1024;

/// How many positions without an entry are skipped at once.
const SKIPPED: usize = 8;

/// How many entries of a table are kept.
const TOP: usize = 5;

/// How many tables are searched.
const MOST_TABLES: usize = 8;

/// The most certificates that are kept.
const MOST_CERTIFICATES: usize = 1_000;

/// Certificates are read again after this time, in ms.
const CERTIFICATES_EVERY: u64 = 30_000;

/// Tables are only searched if a page was shown within this time, in ms.
const WATCHED: u64 = 10_000;

/// One round of the sampler, as an iterator over pieces of work that each take less than about 100 µs. `keeps_history` is whether
/// histories are recorded (`stats history`). Rounds must not overlap.
pub fn round(statistics: &Arc<Statistics>, keeps_history: bool) -> impl Iterator<Item = ()> + use<> {
    let tick = statistics.rounds.fetch_add(1, Relaxed) + 1;
    let kept_before = statistics.keeps_history.swap(keeps_history, Relaxed) && tick > 1;
    let time = SampleTime { tick, kept_before };
    let view = statistics.view();
    let proxies = view.proxies.len();
    let own = view.clone();
    let histories = (0..if keeps_history { proxies } else { 0 }).flat_map(move |at| {
        let proxy = own.proxies[at].state.clone();
        let servers = proxy.servers.load_full();
        let turns = servers.len().div_ceil(SERVERS_A_PIECE).max(1);
        (0..turns).map(move |turn| {
            if turn == 0 {
                record_proxy(&proxy, time);
            }
            let http = proxy.mode == state::Mode::Http;
            for server in servers.iter().skip(turn * SERVERS_A_PIECE).take(SERVERS_A_PIECE) {
                let is_unused = server.counters.is_unused();
                time.record(&server.history, is_unused, || of_server(server, http));
            }
        })
    });
    histories.chain(collect(statistics.clone(), view))
}

/// One interval.
#[derive(Clone, Copy)]
struct SampleTime {
    /// Its number.
    tick: u32,
    /// Whether histories were recorded in the interval before.
    kept_before: bool,
}

impl SampleTime {
    /// Adds a sample. Objects get a history with their first use: most objects of a large configuration are idle.
    fn record<const N: usize>(
        self,
        history: &OptionalHistory<N>,
        is_unused: bool,
        readings: impl FnOnce() -> Readings,
    ) {
        match history.get() {
            Some(history) => history.record(self.tick, readings()),
            None if is_unused => {}
            None => {
                let history = history.get_or_init(Box::default);
                if self.kept_before {
                    history.begin_at_zero(self.tick);
                }
                history.record(self.tick, readings());
            }
        }
    }
}

fn record_proxy(proxy: &Proxy, time: SampleTime) {
    if proxy.is_frontend {
        time.record(&proxy.frontend_history, proxy.frontend.is_unused(), || of_frontend(proxy));
    }
    if proxy.is_backend {
        time.record(&proxy.backend_history, proxy.backend.is_unused(), || of_backend(proxy));
        if let Some(times) = proxy.durations.backend.read() {
            let counts = &times[measured(proxy.mode) as usize].counts;
            proxy.response_times.get_or_init(Box::default).record(time.tick, counts);
        }
    }
}

fn of_frontend(proxy: &Proxy) -> Readings {
    let http = proxy.mode == state::Mode::Http;
    let total = |of: fn(&state::FrontendCounters) -> u64| counters::total(&proxy.frontend, of);
    let (current, limit) = (proxy.connections.load(Relaxed), proxy.maxconn.load(Relaxed));
    Readings {
        requests: if http {
            total(|f| f.requests_total.get())
        } else {
            total(|f| f.traffic.sessions_total.get())
        },
        failures: total(|f| f.traffic.responses.0[4].get()),
        sessions: current.into(),
        is_full: limit > 0 && current >= limit,
        ..Readings::default()
    }
}

fn of_backend(proxy: &Proxy) -> Readings {
    let http = proxy.mode == state::Mode::Http;
    let total = |of: fn(&BackendCounters) -> u64| counters::total(&proxy.backend, of);
    Readings {
        requests: total(|b| b.traffic.sessions_total.get()),
        failures: if http {
            total(|b| b.traffic.responses.0[4].get())
        } else {
            total(|b| b.connection_errors.get() + b.response_errors.get())
        },
        response: response_time(&proxy.backend, http),
        queued: proxy.queue.len().into(),
        sessions: counters::current(&proxy.backend, |b| b.traffic.sessions.get()),
        is_full: false,
    }
}

fn of_server(server: &Server, http: bool) -> Readings {
    let total = |of: fn(&BackendCounters) -> u64| counters::total(&server.counters, of);
    Readings {
        requests: total(|s| s.traffic.sessions_total.get()),
        failures: total(|s| {
            s.traffic.responses.0[4].get() + s.connection_errors.get() + s.response_errors.get()
        }),
        response: response_time(&server.counters, http),
        is_full: queue_is_full(server),
        ..Readings::default()
    }
}

/// The time that is shown as the response time: TCP streams have none, so their time to connect is shown.
pub(crate) fn measured(mode: state::Mode) -> MeasuredTime {
    if mode == state::Mode::Http { MeasuredTime::Response } else { MeasuredTime::Connect }
}

/// Whether the server's queue has reached `maxqueue`.
pub(crate) fn queue_is_full(server: &Server) -> bool {
    server.maxqueue > 0 && server.queue.len() >= server.maxqueue
}

/// The average response time, or of TCP the average time to connect, in units of 10 µs.
pub(crate) fn response_time(shards: &LazySharded<BackendCounters>, http: bool) -> u64 {
    let own = if http { 2 } else { 1 };
    let busy = |times: &AverageTimes| Some(times.averages()).filter(|all| all.iter().any(|time| *time > 0));
    let (count, sum) = shards
        .all()
        .filter_map(|shard| busy(&shard.times))
        .fold((0, 0), |(count, sum), times| (count + 1, sum + times[own]));
    sum * 100 / u64::max(count, 1)
}

/// Reads certificates if that is due, and searches tables while a page is watched.
fn collect(statistics: Arc<Statistics>, view: Arc<ConfigView>) -> impl Iterator<Item = ()> + use<> {
    let now = now_ms();
    let is_watched = now.saturating_sub(statistics.shown_at.load(Relaxed)) < WATCHED;
    let before = statistics.collected.load_full();
    let is_due = before.read_at == 0 || now.saturating_sub(before.read_at) >= CERTIFICATES_EVERY;
    let mut names = if is_due { view.tls.certificates() } else { Vec::new() };
    let mut terms = Vec::new();
    let mut search = is_watched.then(|| TableSearch::new(&view));
    let mut ended = !is_due && !is_watched;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        if let Some(name) = names.pop() {
            terms.extend(term(&view, &name));
            return Some(());
        }
        if search.as_mut().is_some_and(|search| search.step(now)) {
            return Some(());
        }
        ended = true;
        let certificates = if is_due {
            terms.sort_by(|a, b| (a.ends, &a.file).cmp(&(b.ends, &b.file)));
            terms.truncate(MOST_CERTIFICATES);
            std::mem::take(&mut terms).into()
        } else {
            before.certificates.clone()
        };
        let tops = search.take().map(|search| search.tops).unwrap_or_default();
        let read_at = if is_due { now.max(1) } else { before.read_at };
        statistics.collected.store(Arc::new(Collected { certificates, tops, read_at }));
        Some(())
    })
}

fn term(view: &ConfigView, file: &str) -> Option<CertificateTerm> {
    let shown = view.tls.show(file, false)?;
    let fields = CertificateFields::parse(shown.contents.chain.first()?).ok()?;
    let name = view.tls.certificate(file).and_then(|own| own.names.first().cloned()).unwrap_or_default();
    Some(CertificateTerm {
        file: file.into(),
        name,
        ends: fields.validity().1,
        is_used: shown.is_used,
        is_ordered: view.orders.iter().any(|order| *order.certificate == *file),
    })
}

/// A search for the highest values of all tables.
struct TableSearch {
    /// Tables that are left, the next one last.
    left: Vec<(Arc<Table>, Column)>,
    at: TableCursor,
    /// Positions that may still be visited.
    budget: usize,
    found: Vec<(Box<str>, u64)>,
    tops: Vec<TableTop>,
}

impl TableSearch {
    fn new(view: &ConfigView) -> Self {
        let mut left: Vec<_> =
            view.tables.iter().filter_map(|table| Some((table.clone(), interesting(table)?))).collect();
        left.truncate(MOST_TABLES);
        left.reverse();
        Self { left, at: TableCursor::default(), budget: MOST_ENTRIES, found: Vec::new(), tops: Vec::new() }
    }

    /// Visits some entries. Returns whether there is more to do.
    fn step(&mut self, now: u64) -> bool {
        let Some((table, column)) = self.left.last().cloned() else { return false };
        for _ in 0..ENTRIES_A_PIECE {
            self.budget = self.budget.saturating_sub(1);
            let ended = match table.next(self.at, now, SKIPPED) {
                Ok((entry, next)) => {
                    self.at = next;
                    let value = entry.read(&column, 0, now) * factor(&table, &column);
                    let least = self.found.last().map_or(0, |(_, least)| *least);
                    if value > least || (value > 0 && self.found.len() < TOP) {
                        let mut key = Vec::new();
                        entry.key(&mut key);
                        let place = self.found.partition_point(|(_, other)| *other >= value);
                        self.found.insert(place, (key_text(table.settings.kind, &key), value));
                        self.found.truncate(TOP);
                    }
                    false
                }
                Err(Some(next)) => {
                    self.at = next;
                    false
                }
                Err(None) => true,
            };
            if ended || self.budget == 0 {
                let entries = std::mem::take(&mut self.found);
                self.tops.push(TableTop { table, column, entries });
                self.left.pop();
                (self.at, self.budget) = (TableCursor::default(), MOST_ENTRIES);
                return !self.left.is_empty();
            }
        }
        true
    }
}

/// The column by which the entries of a table are ordered: a rate, else a count.
fn interesting(table: &Table) -> Option<Column> {
    const WANTED: [DataType; 4] =
        [DataType::HttpReqRate, DataType::ConnRate, DataType::HttpErrRate, DataType::SessRate];
    let wanted = WANTED.iter().find_map(|data| table.column(*data));
    let of_form = |form| table.columns().find(move |column| column.data.form() == form);
    let counts = |column: &&Column| {
        !matches!(column.data, DataType::ServerId | DataType::ServerKey | DataType::Gpt0 | DataType::Gpt)
    };
    wanted.or_else(|| of_form(ValueForm::Rate)).or_else(|| table.columns().find(counts)).copied()
}

fn factor(table: &Table, column: &Column) -> u64 {
    match column.data {
        DataType::BytesInRate | DataType::BytesOutRate => table.settings.bytes_factor.into(),
        _ => 1,
    }
}

/// The key as text; other bytes than printable ASCII are written as `\x..`.
fn key_text(kind: KeyType, key: &[u8]) -> Box<str> {
    match (kind, key) {
        (KeyType::Ip4, [a, b, c, d]) => format!("{a}.{b}.{c}.{d}").into(),
        (KeyType::Ip6, key) => <[u8; 16]>::try_from(key)
            .map_or_else(|_| String::new(), |octets| std::net::Ipv6Addr::from(octets).to_string())
            .into(),
        (KeyType::Int, [a, b, c, d]) => u32::from_be_bytes([*a, *b, *c, *d]).to_string().into(),
        (KeyType::Bin, key) => key.iter().map(|byte| format!("{byte:02X}")).collect::<String>().into(),
        (_, key) => key.escape_ascii().to_string().into(),
    }
}
