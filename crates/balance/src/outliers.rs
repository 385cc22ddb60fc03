//! `outlier-ejection`: decides which servers of a backend perform much worse than their peers, and for how long they are ejected.
//! Called by [`crate::ejection`].
//!
//! This module has no side effects: it takes observations of the servers and the time, and updates a record per server. A server is
//! ejected for a number of consecutive failures, for a share of failed requests, or for being slower than its peers by a factor in
//! two consecutive intervals. A problem that most servers share does not count, because then the server is not at fault. At most a
//! share of the servers is ejected, and never the last one. If other servers go down so that the share would be exceeded, all
//! servers are used. An ejected server returns when its time is over, with its weight increasing in steps. The next ejection is
//! longer, unless the server has performed well in between.

use state::performance::{EjectionCause, EjectionRecord, OutlierState, Totals};

/// The settings of `outlier-ejection`. Times are in ms.
#[derive(Debug, Clone, PartialEq)]
pub struct Outliers {
    /// `errors`: the number of consecutive failures.
    pub errors: Option<u32>,
    /// `error-rate`, in percent.
    pub error_rate: Option<u32>,
    /// `latency`.
    pub latency: Option<Latency>,
    /// `min-requests`: with fewer requests, rates and latencies are not significant.
    pub min_requests: u32,
    /// `interval`: the period for rates and latencies.
    pub interval: u64,
    /// `ejection-time`.
    pub ejection_time: u64,
    /// `max-ejection-time`.
    pub max_ejection_time: u64,
    /// `max-ejected`, in percent of the servers.
    pub max_ejected: u32,
    /// `recover`: the time over which the weight is restored.
    pub recover: u64,
}

/// `latency`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// A latency of this multiple of the peers' median is too high.
    pub factor: f64,
    /// The quantile of a server's response times, 0 to 1.
    pub quantile: f64,
    /// Latencies up to this are never too high, in µs.
    pub over_us: u64,
}

impl Default for Outliers {
    fn default() -> Self {
        Self {
            errors: None,
            error_rate: None,
            latency: None,
            min_requests: 20,
            interval: 3_000,
            ejection_time: 30_000,
            max_ejection_time: 300_000,
            max_ejected: 50,
            recover: 10_000,
        }
    }
}

/// The observations of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerObservation {
    /// Whether the server is eligible for requests, apart from ejection.
    pub usable: bool,
    /// Whether the server is a backup, whose peers are only other backups.
    pub backup: bool,
    /// The number of consecutive failed attempts.
    pub failed_in_a_row: u32,
    /// The outcomes of attempts within the last interval.
    pub totals: Totals,
}

/// The number of steps in which the weight is restored.
const STEPS: u64 = 10;

/// The number of consecutive intervals in which a server must be too slow. If all servers become slower or faster, some do so
/// earlier than others.
const SLOW_INTERVALS: u32 = 2;

/// How many of `servers` servers may be ejected.
pub fn allowed(servers: usize, share: u32) -> usize {
    (servers * share as usize / 100).min(servers.saturating_sub(1))
}

/// The effective share of the weight at `now`, in percent.
pub fn trust(settings: &Outliers, record: &EjectionRecord, now: u64) -> u32 {
    match record.standing {
        OutlierState::Full => 100,
        OutlierState::Ejected { .. } => 0,
        OutlierState::Recovering { since } => {
            let step = now.saturating_sub(since) * STEPS / settings.recover.max(1) + 1;
            (step.min(STEPS) * 100 / STEPS) as u32
        }
    }
}

/// Advances time: ejected servers return, and recovered servers that perform well are forgiven. Servers that are down or in
/// maintenance are not outliers.
pub fn advance(settings: &Outliers, usable: bool, record: &mut EjectionRecord, now: u64) {
    if !usable {
        if record.standing != OutlierState::Full {
            record.standing = OutlierState::Full;
            record.calm_since = now;
        }
        return;
    }
    match record.standing {
        OutlierState::Ejected { until } if now >= until => {
            record.standing = match settings.recover {
                0 => OutlierState::Full,
                _ => OutlierState::Recovering { since: now },
            };
            record.calm_since = now;
        }
        OutlierState::Recovering { since } if now >= since + settings.recover => {
            record.standing = OutlierState::Full
        }
        _ => {}
    }
    if record.standing == OutlierState::Full && record.in_a_row > 0 {
        let calm = settings.ejection_time.max(settings.recover).max(1);
        if now >= record.calm_since + calm {
            record.in_a_row -= 1;
            record.calm_since = now;
        }
    }
}

/// Whether `server`, which has just failed again, should be ejected. If so, updates its record.
pub fn fail(
    settings: &Outliers,
    server: usize,
    seen: &[ServerObservation],
    records: &mut [EjectionRecord],
    now: u64,
) -> bool {
    let Some(most) = settings.errors else { return false };
    let too_many = seen.get(server).is_some_and(|own| own.usable && own.failed_in_a_row >= most);
    if !too_many || is_ejected(&records[server]) {
        return false;
    }
    let others = || peers(server, seen).filter(|at| !is_ejected(&records[*at]));
    let failing = others().filter(|at| seen[*at].failed_in_a_row > 0).count();
    // The last attempt at most of the others failed too, so this server is not at fault.
    if failing * 2 > others().count() || room(settings, server, seen, records) == 0 {
        return false;
    }
    eject(settings, &mut records[server], EjectionCause::Errors, now);
    true
}

/// Evaluates a finished interval: ejects servers that stand out by failures or latency, the worst first, and returns them.
pub fn judge(
    settings: &Outliers,
    seen: &[ServerObservation],
    records: &mut [EjectionRecord],
    now: u64,
) -> Vec<usize> {
    let mut found: Vec<(f64, usize, EjectionCause)> = Vec::new();
    for server in 0..seen.len() {
        let enough = |at: usize| {
            let attempts = seen[at].totals.attempts();
            !is_ejected(&records[at]) && attempts >= settings.min_requests.into()
        };
        if !seen[server].usable || !enough(server) {
            continue;
        }
        let others: Vec<usize> = peers(server, seen).filter(|at| enough(*at)).collect();
        let slow = by_latency(settings, server, seen, &others);
        records[server].slow = if slow.is_some() { records[server].slow + 1 } else { 0 };
        if let Some(excess) = by_errors(settings, server, seen, &others) {
            found.push((1e6 + excess, server, EjectionCause::ErrorRate));
        } else if let Some(excess) = slow.filter(|_| records[server].slow >= SLOW_INTERVALS) {
            found.push((excess, server, EjectionCause::Latency));
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut ejected = Vec::new();
    for (_, server, cause) in found {
        if room(settings, server, seen, records) > 0 {
            eject(settings, &mut records[server], cause, now);
            ejected.push(server);
        }
    }
    ejected
}

/// How much the server's failures exceed the limit: its share of failures must be too large, and twice that of its peers.
fn by_errors(
    settings: &Outliers,
    server: usize,
    seen: &[ServerObservation],
    others: &[usize],
) -> Option<f64> {
    let most = f64::from(settings.error_rate?);
    let rate = |at: usize| 100.0 * seen[at].totals.failed as f64 / seen[at].totals.attempts().max(1) as f64;
    let own = rate(server);
    let usual = median(others.iter().map(|at| rate(*at)).collect()).unwrap_or(0.0);
    (own >= most && own >= 2.0 * usual).then_some(own)
}

/// How many times slower the server is than the median of its peers, if that is too slow.
fn by_latency(
    settings: &Outliers,
    server: usize,
    seen: &[ServerObservation],
    others: &[usize],
) -> Option<f64> {
    let latency = settings.latency?;
    let time = |at: usize| {
        let answered = &seen[at].totals.answered;
        let enough = answered.total() >= settings.min_requests.into();
        answered.quantile(latency.quantile).filter(|_| enough)
    };
    let own = time(server)?;
    let usual = median(others.iter().filter_map(|at| time(*at)).collect())?;
    let factor = own / usual.max(1.0);
    (factor > latency.factor && own > latency.over_us as f64).then_some(factor)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

fn is_ejected(record: &EjectionRecord) -> bool {
    matches!(record.standing, OutlierState::Ejected { .. })
}

/// The other servers that could replace the server.
fn peers(server: usize, seen: &[ServerObservation]) -> impl Iterator<Item = usize> + '_ {
    let backup = seen[server].backup;
    let is_peer = move |at: &usize| *at != server && seen[*at].usable && seen[*at].backup == backup;
    (0..seen.len()).filter(is_peer)
}

/// How many more servers of the same kind may be ejected.
fn room(settings: &Outliers, server: usize, seen: &[ServerObservation], records: &[EjectionRecord]) -> usize {
    let others = peers(server, seen).count();
    let ejected = peers(server, seen).filter(|at| is_ejected(&records[*at])).count();
    allowed(others + 1, settings.max_ejected).saturating_sub(ejected)
}

fn eject(settings: &Outliers, record: &mut EjectionRecord, cause: EjectionCause, now: u64) {
    let doubled = 1u64 << record.in_a_row.min(32);
    let time = settings.ejection_time.saturating_mul(doubled);
    let time = time.min(settings.max_ejection_time.max(settings.ejection_time));
    record.standing = OutlierState::Ejected { until: now.saturating_add(time) };
    record.in_a_row += 1;
    record.slow = 0;
    record.cause = Some(cause);
    record.ejections[cause as usize] += 1;
}
