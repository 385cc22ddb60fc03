//! Counts attempts to reach a server, and reports their outcome.

use plan::Proxy;
use plan::server::{Observe, ServerSettings};
use runtime::timer::now_us;
use state::AttemptOutcome;
use state::server::Trouble;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::routing::assign::Lease;
use crate::routing::retry;
use crate::server::per_worker::LocalServer;

/// Records the chosen server. If it replaces a failed server, that is `instead`.
pub(crate) fn note_server(
    client: &Client,
    x: &mut Exchange,
    lease: &Lease,
    backend: &Proxy,
    instead: Option<&LocalServer>,
) {
    let server = lease.server();
    client.entry.set_server(&server.held);
    x.txn.server = Some(server.held.clone());
    match instead {
        None => {}
        // There was no other server.
        Some(failed) if failed.is(server) => retry::count_retry(backend, failed),
        Some(failed) => {
            if x.txn.termination.cookie == b'V' {
                // The cookie's server counts as down.
                x.txn.termination.cookie = b'D';
            }
            x.txn.redispatched = true;
            backend.state.backend.mine().redispatches.add(1);
            failed.state.counters.mine().redispatches.add(1);
        }
    }
}

/// Counts a session at the server. Each attempt to reach a server is one session.
pub(crate) fn count_attempt(x: &Exchange, lease: &Lease) {
    let of_server = &lease.server().state.counters.mine().traffic;
    of_server.sessions_total.add(1);
    let mut began = x.txn.times.queued;
    if x.txn.retries > 0 {
        began = now_us();
    } else if let Some(backend) = &x.backend {
        backend.state.last_session.begin(began);
    }
    of_server.session_rate.tick(began / 1000);
    lease.server().state.last_session.begin(began);
}

/// Converts a status to the outcome of the attempt, as `observe layer7` does.
pub(crate) fn answer(status: u16) -> AttemptOutcome {
    if matches!(status, 500..=599) && !matches!(status, 501 | 505) {
        AttemptOutcome::Bad
    } else {
        AttemptOutcome::Good
    }
}

/// Reports a failure to the observer of the server (`observe`), and counts it if this is the request's `last` attempt.
pub(crate) fn count_failure(backend: &Proxy, lease: &Lease, fault: Fault, last: bool) {
    let of_server = lease.server().state.counters.mine();
    let of_backend = backend.state.backend.mine();
    for counters in [of_backend, of_server].into_iter().filter(|_| last) {
        match fault {
            Fault::ConnectFailed(_) | Fault::NoConnection | Fault::ConnectTimeout | Fault::Resource(_) => {
                counters.connection_errors.add(1);
            }
            fault if fault.blames_server() => counters.response_errors.add(1),
            _ => {}
        }
    }
    let connected = match fault {
        Fault::ConnectFailed(_) | Fault::ConnectTimeout => false,
        fault if fault.blames_server() => true,
        // The observer got the status with the head, but the balancer did not.
        Fault::RetryStatus(status) => return lease.answered(answer(status)),
        Fault::Unavailable => return lease.answered(AttemptOutcome::Bad),
        _ => return,
    };
    lease.answered(AttemptOutcome::Bad);
    match lease.server().observe {
        Observe::Layer4 if !connected => observe(lease.server(), Err(Trouble::Connection)),
        Observe::Layer7 => observe(lease.server(), Err(trouble(fault))),
        Observe::None | Observe::Layer4 => {}
    }
}

/// Maps a fault to the kind of trouble that is reported to the health checks.
fn trouble(fault: Fault) -> Trouble {
    match fault {
        Fault::ConnectFailed(_) | Fault::ConnectTimeout => Trouble::Connection,
        Fault::ResponseTimeout | Fault::ServerTimeout => Trouble::Timeout,
        Fault::BadResponse(_) | Fault::ResponseCut | Fault::Truncated => Trouble::Head,
        Fault::BadResponseBody => Trouble::Body,
        _ => Trouble::Read,
    }
}

/// Reports the outcome of a connection or an exchange to the health checks of `server`.
#[inline]
pub(crate) fn observe(server: &ServerSettings, seen: Result<(), Trouble>) {
    if server.observe != Observe::None {
        server.state.health.observe(seen, server.error_limit, server.on_error.demand());
    }
}
