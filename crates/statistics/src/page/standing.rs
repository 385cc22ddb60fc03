//! How proxies and servers are doing at the moment: the condition of each server, and the load of each line of the table.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use runtime::LazySharded;
use state::counters::{self, Traffic};
use state::durations::{BUCKETS, DurationHistogram};
use state::history::{History, INTERVAL_MS, Series};
use state::server::Operational;
use state::{Mode, Proxy, Server};

use crate::sampling;
use crate::stat;

/// The number of samples of which the shown rate is the average: six seconds.
const RATE_SAMPLES: usize = 3;

/// The number of samples of which the share of failures is computed: half a minute.
const SHARE_SAMPLES: usize = 15;

/// With fewer requests, the share of failures is computed over the whole history.
const ENOUGH: u64 = 10;

/// With fewer requests in the whole history, a server is not called failing.
const FEW: u64 = 5;

/// A server that fails this share of its requests is failing, in percent.
const FAILING: f64 = 20.0;

/// How urgent something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Level {
    /// Nothing to do.
    #[default]
    Fine,
    /// Worth knowing.
    Notice,
    /// Needs attention soon.
    Warning,
    /// Requests fail.
    Critical,
}

impl Level {
    /// The class of elements with this level.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Critical => "d",
            Self::Warning => "w",
            Self::Notice => "o",
            Self::Fine => "",
        }
    }
}

/// The condition of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    Down,
    /// Up, but many of its requests fail.
    Failing,
    /// Down, with checks that succeed again, or up with checks that fail.
    Changing,
    Maintenance,
    Draining,
    Up,
    /// Up, and only used if no other server is.
    Spare,
}

impl Condition {
    pub(super) fn of(server: &Server, recent: bool) -> Self {
        let admin = server.admin();
        if admin.in_maintenance() {
            // A name without an address is not the operator's intention.
            let unresolved = admin.0 & state::Admin::RESOLUTION_MAINT != 0;
            return if unresolved { Self::Down } else { Self::Maintenance };
        }
        if server.operational() == Operational::Stopped {
            return Self::Down;
        }
        if recent && failing(server).is_some() {
            return Self::Failing;
        }
        if admin.draining() || server.effective_weight() == 0 {
            return Self::Draining;
        }
        let watched = server.watched();
        let health = &watched.as_deref().unwrap_or(server).health;
        let full = health.rise.load(Relaxed) + health.fall.load(Relaxed);
        if server.checked.load(Relaxed) && health.level.load(Relaxed) + 1 < full {
            return Self::Changing;
        }
        if server.backup { Self::Spare } else { Self::Up }
    }

    /// The class and the text of its square.
    pub(super) fn square(self) -> (&'static str, &'static str) {
        match self {
            Self::Down => ("d", "✕"),
            Self::Failing => ("f", "!"),
            Self::Changing => ("w", "~"),
            Self::Maintenance => ("m", "‖"),
            Self::Draining => ("g", "↓"),
            Self::Up => ("", ""),
            Self::Spare => ("b", ""),
        }
    }

    /// In words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Failing => "failing",
            Self::Changing => "changing",
            Self::Maintenance => "in maintenance",
            Self::Draining => "draining",
            Self::Up => "up",
            Self::Spare => "backup",
        }
    }

    /// Whether an operator should look at it.
    pub(super) fn is_problem(self) -> bool {
        matches!(self, Self::Down | Self::Failing | Self::Changing)
    }
}

/// The number of servers in each condition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Census(pub(super) [usize; 7]);

impl Census {
    pub(super) fn add(&mut self, condition: Condition) {
        self.0[condition as usize] += 1;
    }

    pub(super) fn of(&self, condition: Condition) -> usize {
        self.0[condition as usize]
    }

    pub(super) fn total(&self) -> usize {
        self.0.iter().sum()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }

    /// `1 down, 5 up`, worst first.
    pub(super) fn text(&self) -> String {
        const ALL: [Condition; 7] = [
            Condition::Down,
            Condition::Failing,
            Condition::Changing,
            Condition::Maintenance,
            Condition::Draining,
            Condition::Up,
            Condition::Spare,
        ];
        let parts = ALL.iter().filter(|own| self.of(**own) > 0);
        parts.map(|own| format!("{} {}", self.of(*own), own.name())).collect::<Vec<_>>().join(", ")
    }
}

/// The share of failed requests in percent, if a server fails enough of them to be noticed.
pub(super) fn failing(server: &Server) -> Option<f64> {
    let history = server.history.get()?;
    let (requests, share) = recent_failures(history);
    (requests >= FEW && share >= FAILING).then_some(share)
}

/// The number of recent requests, and the share in percent of those that failed.
pub(super) fn recent_failures<const N: usize>(history: &History<N>) -> (u64, f64) {
    let sums = |most| (history.sum(Series::Requests, most), history.sum(Series::Failures, most));
    let (requests, failures) = match sums(SHARE_SAMPLES) {
        // No recent requests: earlier failures no longer count.
        (0, _) => (0, 0),
        (requests, _) if requests < ENOUGH => sums(usize::MAX),
        recent => recent,
    };
    (requests, share(failures, requests))
}

/// A share in percent. Failures are counted when a request ends and requests when they begin, so that there may be more failures.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 * 100.0 / whole as f64).min(100.0) }
}

/// How long responses take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ResponseTime {
    /// The average of the last 1,024 requests, in units of 10 µs.
    pub(super) average: u64,
    /// The median and the 99th percentile of the last minute, in µs, if they are known.
    pub(super) quantiles: Option<[u64; 2]>,
}

/// The number of samples of which quantiles are computed: a minute.
pub(super) const QUANTILE_SAMPLES: usize = 30;

/// The median and the 99th percentile of the sum of samples, in µs.
pub(super) fn quantiles<'a>(samples: impl Iterator<Item = &'a [u64; BUCKETS]>) -> Option<[u64; 2]> {
    let mut sum = DurationHistogram::default();
    for sample in samples {
        sum.counts.iter_mut().zip(sample).for_each(|(sum, count)| *sum += count);
    }
    Some([sum.quantile(0.5)?, sum.quantile(0.99)?])
}

/// The load of one table line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Requests per second.
    pub(super) rate: f64,
    /// The share of failed requests, in percent.
    pub(super) failed: f64,
    /// How long responses take; `None` for frontends.
    pub(super) response: Option<ResponseTime>,
    pub(super) queued: u32,
    pub(super) current: u32,
    /// The limit of `current`; 0 for none.
    pub(super) limit: u32,
}

fn live_rate<T>(shards: &LazySharded<T>, of: impl Fn(&T) -> &Traffic, now: u64) -> f64 {
    shards.all().map(|shard| of(shard).session_rate.per_second(now)).sum::<u32>().into()
}

/// The rate from the last samples, which is smoother than a second.
fn smooth_rate<const N: usize>(history: Option<&History<N>>) -> Option<f64> {
    let history = history?;
    let held = history.samples(Series::Requests).len().min(RATE_SAMPLES);
    let seconds = (held as u64 * INTERVAL_MS) as f64 / 1000.0;
    (held > 0).then(|| history.sum(Series::Requests, held) as f64 / seconds)
}

impl Load {
    pub(super) fn of_server(server: &Server, http: bool, now: u64, recent: bool) -> Self {
        let history = server.history.get().filter(|_| recent);
        let failed = history.map_or_else(
            || {
                let total = |of: fn(&state::ServerCounters) -> u64| counters::total(&server.counters, of);
                let failures = total(|s| {
                    s.traffic.responses.0[4].get() + s.connection_errors.get() + s.response_errors.get()
                });
                share(failures, total(|s| s.traffic.sessions_total.get()))
            },
            |history| recent_failures(history).1,
        );
        let measured = sampling::measured(if http { Mode::Http } else { Mode::Tcp }) as usize;
        let minute = server.durations.last_minute();
        let quantiles = minute.p50_us[measured].zip(minute.p99_us[measured]);
        let response = ResponseTime {
            average: sampling::response_time(&server.counters, http),
            quantiles: quantiles.map(|(p50, p99)| [p50.into(), p99.into()]),
        };
        let limit = server.maxconn.load(Relaxed);
        Self {
            rate: smooth_rate(history).unwrap_or_else(|| live_rate(&server.counters, |s| &s.traffic, now)),
            failed,
            response: Some(response),
            queued: server.queue.len(),
            current: server.serving(),
            limit,
        }
    }

    pub(super) fn of_backend(proxy: &Proxy, now: u64, recent: bool) -> Self {
        let http = proxy.mode == Mode::Http;
        let history = proxy.backend_history.get().filter(|_| recent);
        let failed = history.map_or_else(
            || {
                let total = |of: fn(&state::BackendCounters) -> u64| counters::total(&proxy.backend, of);
                share(total(|b| b.traffic.responses.0[4].get()), total(|b| b.traffic.sessions_total.get()))
            },
            |history| recent_failures(history).1,
        );
        let servers: u32 = proxy.servers.load().iter().map(|server| server.queue.len()).sum();
        Self {
            rate: smooth_rate(history).unwrap_or_else(|| live_rate(&proxy.backend, |b| &b.traffic, now)),
            failed,
            response: Some(ResponseTime {
                average: sampling::response_time(&proxy.backend, http),
                quantiles: proxy.response_times.get().filter(|_| recent).and_then(|times| {
                    let recent: Vec<_> = times.recent().take(QUANTILE_SAMPLES).collect();
                    quantiles(recent.iter())
                }),
            }),
            queued: proxy.queue.len() + servers,
            current: counters::current(&proxy.backend, |b| b.traffic.sessions.get()) as u32,
            limit: 0,
        }
    }

    pub(super) fn of_frontend(proxy: &Proxy, now: u64, recent: bool, maxconn: u32) -> Self {
        let history = proxy.frontend_history.get().filter(|_| recent);
        let total = |of: fn(&state::FrontendCounters) -> u64| counters::total(&proxy.frontend, of);
        let http = proxy.mode == Mode::Http;
        let failed = history.map_or_else(
            || share(total(|f| f.traffic.responses.0[4].get()), total(|f| f.requests_total.get())),
            |history| recent_failures(history).1,
        );
        let live = || match http {
            true => proxy.frontend.all().map(|f| f.request_rate.per_second(now)).sum::<u32>().into(),
            false => live_rate(&proxy.frontend, |f| &f.traffic, now),
        };
        let limit = proxy.maxconn.load(Relaxed);
        Self {
            rate: smooth_rate(history).unwrap_or_else(live),
            failed,
            response: None,
            queued: 0,
            current: proxy.connections.load(Relaxed),
            limit: if limit == 0 { maxconn } else { limit },
        }
    }
}

/// The last check of a server in a few words: `L7STS/500`.
pub(super) fn check_text(server: &Server) -> String {
    let health = if server.agent_says_down() { &server.agent } else { &server.health };
    if !server.checked.load(Relaxed) && !server.agent_says_down() {
        return String::new();
    }
    let last = health.last.load();
    let (status, ..) = *last.meaning();
    last.code.map_or_else(|| status.to_owned(), |code| format!("{status}/{code}"))
}

/// Why a server is down: the name of the check's result, and its description.
pub(super) fn reason(server: &Server) -> String {
    let admin = server.admin();
    if admin.0 & state::Admin::RESOLUTION_MAINT != 0 {
        return "its name has no address".to_owned();
    }
    if let Some(tracked) = server.tracked() {
        return format!("tracks {}/{}", tracked.proxy, tracked.name);
    }
    let health = if server.agent_says_down() { &server.agent } else { &server.health };
    let last = health.last.load();
    let (_, meaning, ..) = *last.meaning();
    let text = check_text(server);
    let detail = if last.description.is_empty() { meaning } else { &last.description };
    match (server.agent_says_down(), text.is_empty()) {
        (true, _) => format!("agent: {detail}"),
        (false, true) => "set by an operator".to_owned(),
        (false, false) => format!("{text}: {detail}"),
    }
}

/// The status of a server as on HAProxy's page, or `FAILING`.
pub(super) fn status_text(server: &Server, condition: Condition) -> String {
    if condition == Condition::Failing { "FAILING".to_owned() } else { stat::server_status(server) }
}

/// The servers of a backend in the order of the page, worst first, with their conditions.
pub(super) fn ordered(servers: &[Arc<Server>], recent: bool) -> Vec<(Condition, Arc<Server>)> {
    let mut all: Vec<_> =
        servers.iter().map(|server| (Condition::of(server, recent), server.clone())).collect();
    // Servers that are fine keep the order of the configuration.
    all.sort_by_key(|(condition, _)| if condition.is_problem() { *condition as u8 } else { u8::MAX });
    all
}
