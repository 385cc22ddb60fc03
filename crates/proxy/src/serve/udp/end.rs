//! The end of a session: counters and the log line.

use base::clock::WallTime;
use plan::global::LatencyHistograms;
use runtime::timer::{now_ms, now_us};
use sample::track::{self, CountedEvent, Trackers};
use sample::{Accepted, Cause, Endpoint, Ends, Env, LogOrigin, Phase, Session};
use state::durations::{BucketedTimes, CellTimes};
use state::server::Tally;
use state::sessions;
use udplb::{SessionId, SessionKey};

use super::flow::UdpFlow;
use super::place::ShardPlace;
use super::shard::Shard;
use super::slots;
use crate::exchange::Exchange;
use crate::log::{Maker, Report};
use crate::server::per_worker::{LocalProxy, LocalServer};

const INFO: u8 = 6;
const ERROR: u8 = 3;

impl Shard {
    /// Ends a session.
    pub(super) fn end(&self, id: SessionId, cause: Cause, phase: Phase) {
        let Some(session) = self.table.borrow_mut().remove(id) else { return };
        let place = self.place();
        let flow = session.data;
        let took_us = now_us().saturating_sub(flow.began_us);
        count_times(&place, &flow, took_us);
        if let Some(kept) = &flow.kept {
            let none = Trackers::default();
            track::note(kept, &none, CountedEvent::BytesIn(session.bytes_in), now_ms());
            track::note(kept, &none, CountedEvent::BytesOut(session.bytes_out), now_ms());
        }
        if cause == Cause::ServerTimeout {
            flow.server.state.counters.mine().server_aborts.add(1);
            if let Some(backend) = &flow.backend {
                backend.state.backend.mine().server_aborts.add(1);
            }
        }
        if place.frontend.prepared().logs {
            let made;
            let shown = match &flow.kept {
                Some(kept) => kept,
                None => {
                    made =
                        self.logged(&place, &session.key, (flow.began_us, flow.began_wall_us), flow.entry.id);
                    &made
                }
            };
            let ending = LoggedEnd { cause, phase, bytes: (session.bytes_in, session.bytes_out) };
            log(&place, shown, Some(&flow), &ending);
        }
        give_back(&place, flow.backend.as_deref(), &flow.server, flow.tally);
    }

    /// Logs a session of the former process that cannot continue, because its server is not configured any more or has no free slot.
    pub(super) fn log_discontinued(
        &self,
        place: &ShardPlace,
        key: &SessionKey,
        age_us: u64,
        bytes: (u64, u64),
    ) {
        if place.frontend.prepared().logs {
            let began = (now_us(), WallTime::now().since_1970_us());
            let began = (began.0.saturating_sub(age_us), began.1.saturating_sub(age_us));
            let local = Some(self.local(key.destination));
            let entry = sessions::register(&place.frontend.held, Some(key.source), local, now_ms());
            let session = self.logged(place, key, began, entry.id);
            let ending = LoggedEnd { cause: Cause::Killed, phase: Phase::Data, bytes };
            log(place, &session, None, &ending);
        }
    }

    /// Returns a session for its log line. It began at this time, in µs of the monotonic and of the wall clock.
    fn logged(&self, place: &ShardPlace, key: &SessionKey, (us, wall_us): (u64, u64), id: u64) -> Session {
        let end = Endpoint::Ip;
        Session::new(Accepted {
            ends: Ends { source: end(key.source), destination: end(self.local(key.destination)) },
            wall_us,
            us,
            frontend: place.frontend.held.clone(),
            listener: place.frontend.listener(place.bind),
            id,
        })
    }
}

/// Returns all slots of a session.
pub(super) fn give_back(
    place: &ShardPlace,
    backend: Option<&LocalProxy>,
    server: &LocalServer,
    tally: Tally,
) {
    match backend {
        Some(backend) => slots::leave(backend, server, tally),
        None => server.state.leave(tally),
    }
    slots::release_slots(place);
}

/// Counts the duration of a session in the histograms, if there are any.
fn count_times(place: &ShardPlace, flow: &UdpFlow, took_us: u64) {
    let times = [Some(0), Some(0), None, Some(took_us)];
    let of_backend = flow.backend.as_ref().map(|backend| &backend.state.durations.backend);
    let all =
        [Some(&place.frontend.state.durations.frontend), of_backend, Some(&flow.server.state.durations)];
    match place.worker.shared.plan.global.latency_histograms {
        LatencyHistograms::Off => {}
        LatencyHistograms::On => {
            let times = BucketedTimes::new(&times);
            all.into_iter().flatten().for_each(|durations| durations.add(&times));
        }
        LatencyHistograms::Native => {
            let times = CellTimes::new(&times);
            all.into_iter().flatten().for_each(|durations| durations.add_native(&times));
        }
    }
}

/// The end of a session as its log line shows it.
struct LoggedEnd {
    cause: Cause,
    phase: Phase,
    /// Bytes from the client, and to it.
    bytes: (u64, u64),
}

/// Logs a client that no server can take.
pub(super) fn log_unserved(place: &ShardPlace, session: &Session, bytes_in: u64, cause: Cause) {
    if place.frontend.prepared().logs {
        let ending = LoggedEnd { cause, phase: Phase::Connect, bytes: (bytes_in, 0) };
        log(place, session, None, &ending);
    }
}

fn log(place: &ShardPlace, session: &Session, flow: Option<&UdpFlow>, ending: &LoggedEnd) {
    let (worker, frontend) = (&place.worker, &place.frontend);
    let is_erroneous = ending.cause != Cause::None;
    if frontend.options.dontlog_normal && !is_erroneous {
        return;
    }
    let usual = if is_erroneous && frontend.options.log_separate_errors { ERROR } else { INFO };
    let Some(level) = session.log_level.get().unwrap_or(Some(usual)) else { return };
    let mut x = Exchange::take();
    let times = &mut x.txn.times;
    times.idle_from = session.accepted_us;
    times.started = session.accepted_us;
    times.started_wall = session.accepted_wall_us;
    times.request = session.accepted_us;
    times.closed = now_us();
    let backend = flow.map_or(Some(&place.backend), |flow| flow.backend.as_ref());
    x.txn.backend = backend.map(|backend| backend.held.clone());
    if let Some(flow) = flow {
        x.txn.times.queued = session.accepted_us;
        x.txn.times.connected = session.accepted_us;
        x.txn.server = Some(flow.server.held.clone());
    }
    (x.txn.bytes_in, x.txn.bytes_out) = ending.bytes;
    x.txn.termination.set(ending.cause, ending.phase);
    let process = &worker.shared.process;
    let env = Env { log_origin: LogOrigin::Close, ..Env::of(process, session, &x.txn, now_ms()) };
    let report = Report { format: frontend.log_format.as_ref(), level, profile: None };
    worker.outbox.borrow_mut().write(&worker.shared, &Maker::of(frontend), &env, &report);
    frontend.state.frontend.mine().log_lines.add(1);
    x.give();
}
