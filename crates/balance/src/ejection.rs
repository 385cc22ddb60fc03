//! Ejection of outliers from a backend's load balancing: counts the outcomes of attempts, and applies the decisions of
//! [`crate::outliers`].
//!
//! An ejected server is not down: checks, statistics and persistence treat it as usual. It is only missing in the picker's table
//! ([`crate::table`]). [`crate::Picker`] reports each response, and a task of `proxy` calls [`Picker::judge`](crate::Picker::judge)
//! periodically.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use state::performance::{EjectionCause, EjectionRecord, OutlierState, Totals};
use state::{AttemptOutcome, Server};

use crate::outliers::{self, Outliers, ServerObservation};

/// A server's ejection or return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EjectionEvent {
    /// The server's index.
    pub server: usize,
    /// The change.
    pub what: EjectionChange,
}

/// A change of a server's ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EjectionChange {
    /// Ejected for this number of ms.
    Ejected(EjectionCause, u64),
    /// In rotation again.
    Back,
}

/// The outlier state of a picker.
#[derive(Debug)]
pub(crate) struct Ejection {
    pub(crate) settings: Outliers,
    /// Locked for an evaluation. A request that detects too many failures skips the evaluation if another thread holds the lock;
    /// the next failure is detected as well.
    rounds: Mutex<Rounds>,
    /// When the last evaluation took place, in ms. Written by the evaluating thread.
    judged: AtomicU64,
}

/// Without an evaluation for this time, requests perform it.
const LATE_MS: u64 = 2_500;

/// The maximum number of unreported events.
const UNTOLD: usize = 256;

#[derive(Debug)]
struct Rounds {
    /// The totals at the start of the interval, by server.
    before: Vec<Totals>,
    /// The end of the interval, in ms; 0 before the first interval.
    ends: u64,
    /// Events not reported yet.
    events: Vec<EjectionEvent>,
}

impl Ejection {
    pub(crate) fn new(settings: &Outliers, servers: &[Arc<Server>]) -> Self {
        let before = servers.iter().map(|server| server.measure().totals()).collect();
        let rounds = Mutex::new(Rounds { before, ends: 0, events: Vec::new() });
        Self { settings: settings.clone(), rounds, judged: AtomicU64::new(0) }
    }

    /// Records the outcome of an attempt at `index`.
    pub(crate) fn record(
        &self,
        servers: &[Arc<Server>],
        index: usize,
        now_us: u64,
        taken_us: u64,
        answer: AttemptOutcome,
    ) {
        let performance = servers[index].measure();
        match answer {
            AttemptOutcome::Good => performance.answered(taken_us),
            AttemptOutcome::Bad => {
                let in_a_row = performance.failed();
                let now_ms = now_us / 1000;
                if self.settings.errors.is_some_and(|most| in_a_row >= most) && performance.trust() > 0 {
                    self.failed(servers, index, now_ms);
                }
            }
        }
        if now_us / 1000 >= self.judged.load(Relaxed) + LATE_MS
            && let Ok(mut rounds) = self.rounds.try_lock()
        {
            self.look(servers, &mut rounds, now_us / 1000);
        }
    }

    /// Ejects a server after too many consecutive failures, if permitted.
    #[cold]
    fn failed(&self, servers: &[Arc<Server>], index: usize, now_ms: u64) {
        let Ok(mut rounds) = self.rounds.try_lock() else { return };
        let seen: Vec<ServerObservation> =
            servers.iter().map(|server| seen(server, Totals::default())).collect();
        let mut records = records(servers);
        if outliers::fail(&self.settings, index, &seen, &mut records, now_ms) {
            rounds.events.extend(event(index, &records[index], now_ms));
            self.apply(servers, &records, now_ms);
        }
    }

    /// Advances time, evaluates the interval if it is over, and returns the events since the last call.
    pub(crate) fn judge(&self, servers: &[Arc<Server>], now_ms: u64) -> Vec<EjectionEvent> {
        let mut rounds = self.rounds.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.look(servers, &mut rounds, now_ms);
        std::mem::take(&mut rounds.events)
    }

    fn look(&self, servers: &[Arc<Server>], rounds: &mut Rounds, now_ms: u64) {
        self.judged.store(now_ms, Relaxed);
        let mut records = records(servers);
        for (index, (server, record)) in servers.iter().zip(&mut records).enumerate() {
            let before = *record;
            outliers::advance(&self.settings, server.effective_weight() > 0, record, now_ms);
            let was_ejected = matches!(before.standing, OutlierState::Ejected { .. });
            if was_ejected && !matches!(record.standing, OutlierState::Ejected { .. }) {
                server.measure().forgive();
                rounds.events.push(EjectionEvent { server: index, what: EjectionChange::Back });
            }
        }
        if rounds.ends == 0 {
            rounds.ends = now_ms + self.settings.interval;
        } else if now_ms >= rounds.ends {
            rounds.ends = now_ms + self.settings.interval;
            let totals: Vec<Totals> = servers.iter().map(|server| server.measure().totals()).collect();
            let since = totals.iter().zip(&rounds.before).map(|(now, before)| now.since(before));
            let seen: Vec<ServerObservation> =
                servers.iter().zip(since).map(|(server, of)| seen(server, of)).collect();
            rounds.before = totals;
            for index in outliers::judge(&self.settings, &seen, &mut records, now_ms) {
                rounds.events.extend(event(index, &records[index], now_ms));
            }
        }
        self.apply(servers, &records, now_ms);
        let too_many = rounds.events.len().saturating_sub(UNTOLD);
        rounds.events.drain(..too_many);
    }

    fn apply(&self, servers: &[Arc<Server>], records: &[EjectionRecord], now_ms: u64) {
        for (server, record) in servers.iter().zip(records) {
            *server.measure().record() = *record;
            server.set_trust(outliers::trust(&self.settings, record, now_ms));
        }
    }
}

fn records(servers: &[Arc<Server>]) -> Vec<EjectionRecord> {
    servers.iter().map(|server| *server.measure().record()).collect()
}

fn seen(server: &Server, totals: Totals) -> ServerObservation {
    ServerObservation {
        usable: server.effective_weight() > 0 && !server.removed.load(Relaxed),
        backup: server.backup,
        failed_in_a_row: server.measure().failed_in_a_row(),
        totals,
    }
}

fn event(server: usize, record: &EjectionRecord, now_ms: u64) -> Option<EjectionEvent> {
    let OutlierState::Ejected { until } = record.standing else { return None };
    Some(EjectionEvent { server, what: EjectionChange::Ejected(record.cause?, until.saturating_sub(now_ms)) })
}
