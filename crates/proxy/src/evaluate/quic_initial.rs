//! `quic-initial` rules, which run on the first packet of a QUIC connection, before anything is allocated for it.

use std::net::SocketAddr;

use base::clock::WallTime;
use rules::{Final, Hold, RuleOutcome, Stage};
use runtime::timer::{now_ms, now_us};
use sample::{Accepted, Endpoint, Ends, Env, LogOrigin, LogProfile, Session};

use crate::log::{Maker, Report};
use crate::server::per_worker::LocalProxy;
use crate::worker::Worker;

const INFO: u8 = 6;

/// The decision about a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialVerdict {
    /// It is accepted.
    Accept,
    /// The datagram is dropped.
    Drop,
    /// The connection is refused (CONNECTION_REFUSED).
    Refuse,
    /// The client must validate its address, unless it already has.
    Retry,
}

/// Decides about a connection from `source` to `destination` that arrives at the frontend's `bind` line number `bind`.
#[inline]
pub(crate) fn quic_initial(
    worker: &Worker,
    frontend: &LocalProxy,
    bind: usize,
    source: SocketAddr,
    destination: Option<SocketAddr>,
) -> InitialVerdict {
    if frontend.quic_initial.is_empty() {
        return InitialVerdict::Accept;
    }
    let end = |address: Option<SocketAddr>| address.map_or(Endpoint::Local, Endpoint::Ip);
    let session = Session::new(Accepted {
        ends: Ends { source: end(Some(source)), destination: end(destination) },
        wall_us: WallTime::now().since_1970_us(),
        us: now_us(),
        frontend: frontend.held.clone(),
        listener: frontend.listener(bind),
        id: worker.session_id(),
    });
    run(worker, frontend, &session)
}

fn run(worker: &Worker, frontend: &LocalProxy, session: &Session) -> InitialVerdict {
    let mut stage = Stage::of_session(&worker.shared.process, session, now_ms());
    let mut start = 0;
    loop {
        let (outcome, next) = frontend.quic_initial.run(&mut stage, start);
        start = next;
        match outcome {
            // No data will follow.
            RuleOutcome::Done | RuleOutcome::Accept | RuleOutcome::Wait => return InitialVerdict::Accept,
            RuleOutcome::Hold(Hold::Log { origin, profile }) => {
                log(worker, frontend, session, origin, profile.as_deref());
            }
            // None of the other actions that these rules can use waits.
            RuleOutcome::Hold(_) => {}
            RuleOutcome::Final(Final::SilentDrop { .. }) => return InitialVerdict::Drop,
            RuleOutcome::Final(Final::SendRetry) => return InitialVerdict::Retry,
            RuleOutcome::Final(_) => return InitialVerdict::Refuse,
        }
    }
}

/// `do-log`.
pub(crate) fn log(
    worker: &Worker,
    frontend: &LocalProxy,
    session: &Session,
    origin: LogOrigin,
    profile: Option<&LogProfile>,
) {
    if !frontend.prepared().logs {
        return;
    }
    let env =
        Env { session: Some(session), log_origin: origin, ..Env::new(&worker.shared.process, now_ms()) };
    let report = Report { format: frontend.log_format.as_ref(), level: INFO, profile };
    worker.outbox.borrow_mut().write(&worker.shared, &Maker::of(frontend), &env, &report);
    frontend.state.frontend.mine().log_lines.add(1);
}
