//! `outlier-ejection`: which servers of a backend serve much worse than their peers, and for how long
//! they are left out.
//!
//! Pure: what is known of the servers goes in, with the time, and what is remembered of each is
//! changed. A server is ejected where it fails so often in a row, fails a share of its requests, or is
//! slower than its peers by a factor for two intervals in a row. What most servers do is no reason: then it is not the server
//! that is to blame. Never more than a share of the servers is ejected, nor the last one, and where
//! others went down meanwhile so that more would be, nobody is. Who is ejected comes back when its time
//! is over, with more of its weight step by step; the next ejection is longer, unless it behaved in
//! between. Called by [`crate::ejection`].

use state::performance::{EjectionCause, EjectionRecord, OutlierState, Totals};

/// What `outlier-ejection` says. Times are in ms.
#[derive(Debug, Clone, PartialEq)]
pub struct Outliers {
    /// `errors`: so many failures in a row.
    pub errors: Option<u32>,
    /// `error-rate`, in percent.
    pub error_rate: Option<u32>,
    /// `latency`.
    pub latency: Option<Latency>,
    /// `min-requests`: rates and latencies of fewer say nothing.
    pub min_requests: u32,
    /// `interval`: over which rates and latencies are taken.
    pub interval: u64,
    /// `ejection-time`.
    pub ejection_time: u64,
    /// `max-ejection-time`.
    pub max_ejection_time: u64,
    /// `max-ejected`, in percent of the servers.
    pub max_ejected: u32,
    /// `recover`: how long the weight takes to come back.
    pub recover: u64,
}

/// `latency`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// How many times the median of the peers is too much.
    pub factor: f64,
    /// Which quantile of a server's times counts, 0 to 1.
    pub quantile: f64,
    /// Times up to this are never too long, in µs.
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

/// What is known of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerObservation {
    /// Whether it may get requests, but for what is decided here.
    pub usable: bool,
    /// Whether it is a backup: a peer of the other backups alone.
    pub backup: bool,
    /// How many attempts failed in a row.
    pub failed_in_a_row: u32,
    /// What attempts came to within the last interval.
    pub totals: Totals,
}

/// The steps in which the weight comes back.
const STEPS: u64 = 10;

/// For so many intervals in a row a server has to be too slow: where all get slower or faster at once,
/// some are so sooner than others.
const SLOW_INTERVALS: u32 = 2;

/// How many of so many servers may be ejected.
pub fn allowed(servers: usize, share: u32) -> usize {
    (servers * share as usize / 100).min(servers.saturating_sub(1))
}

/// The share of the weight that counts at `now`, in percent.
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

/// Lets time pass: who was ejected comes back, who is back and behaves is forgiven, who is down or
/// held back is nobody's outlier.
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

/// Whether `server`, which has just failed once more, is to be ejected for that; changes its record if
/// so.
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
    // The last attempt at most of them failed too: it is not this server that is wrong.
    if failing * 2 > others().count() || room(settings, server, seen, records) == 0 {
        return false;
    }
    eject(settings, &mut records[server], EjectionCause::Errors, now);
    true
}

/// Looks at an interval that is over: ejects who stands out by failures or by latency, the worst
/// first. Gives those servers.
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

/// How much too often it fails: its own share of failures is too large, and twice that of its peers.
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

/// How many times slower than the median of its peers it is, if that is too slow.
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

/// The other servers that could serve instead of it.
fn peers(server: usize, seen: &[ServerObservation]) -> impl Iterator<Item = usize> + '_ {
    let backup = seen[server].backup;
    let is_peer = move |at: &usize| *at != server && seen[*at].usable && seen[*at].backup == backup;
    (0..seen.len()).filter(is_peer)
}

/// How many more of the servers of its kind may be ejected.
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
