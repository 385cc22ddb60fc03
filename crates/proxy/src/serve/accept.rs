//! Accepts connections: checks limits, chooses a worker of the group, and starts the session.
//!
//! Each listening socket is watched by one worker. For each new connection, it picks two random workers of its group and passes
//! the connection to the one with fewer connections, as a descriptor that is not registered with any reactor yet.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use base::event_counter;
use base::event_counter::EventCounter;
use net::listen::{AcceptedSocket, Listener};
use plan::global::MultiQueue;
use runtime::timer::{self, now_ms, now_us};
use runtime::worker::{self, ConnectionGuard};
use state::proxy::Admission;
use state::{EventTopic, RepeatedEvent};

use crate::serve::gate::{Gate, Reserved};
use crate::serve::handoff::{self, AcceptedConnection, Incoming};
use crate::worker::Worker;

pub(crate) static NOT_ACCEPTED: EventCounter =
    event_counter!(Count, "pause_after()", "connection not accepted for lack of descriptors or memory");

/// [`NOT_ACCEPTED`] as an event for the journal.
static REFUSED: RepeatedEvent = RepeatedEvent::new();

/// How long accepting pauses when descriptors or memory run out, unless a connection ends earlier.
const SHORTAGE: Duration = Duration::from_millis(100);

/// The interval for checking whether there is enough memory for one more connection.
const LOOK_FOR_MEMORY: Duration = Duration::from_millis(5);

/// The interval for checking whether a connection has ended during the pause.
const LOOK: Duration = Duration::from_millis(1);

/// Prepares the calling worker to serve connections, both those that it accepts and those that are passed to it.
pub fn install() {
    handoff::install(crate::serve::session::starter());
}

/// Accepts connections from `listener`, which is bind number `bind` of frontend number `frontend`, until the frontend stops or
/// another plan is in use. If the new plan does not have this socket, the pending connections are accepted first. `workers` serve
/// the connections.
pub async fn serve(
    worker: Rc<Worker>,
    mut listener: Listener,
    frontend: usize,
    bind: usize,
    workers: Arc<[usize]>,
) {
    let proxy = worker.local(frontend);
    let entry = proxy.binds[bind].listener.clone();
    let gate =
        Gate { worker: &worker, proxy: &proxy, listener: &entry, is_tls: proxy.binds[bind].tls.is_some() };
    let global = &worker.shared.plan.global;
    let (tune, refuses_privileged) = (&global.tune, global.reject_privileged_ports);
    let (most, spread) = (tune.maxaccept, tune.multi_queue);
    let mut in_a_row = 0;
    let mut turn = 0;
    let mut registered = None;
    let mut is_drained = false;
    loop {
        if proxy.state.admission() == Admission::Paused && !worker.is_old() {
            sit_out(&worker, &proxy, &entry, &mut listener).await;
        }
        if worker.is_old() && !worker.closes(frontend, bind) {
            return;
        }
        if !gate.admitted().await {
            return;
        }
        if base::memory::is_short() || worker.shared.process.accepted_in_shortage.load(Relaxed) > 0 {
            await_memory(&worker).await;
        }
        // `tune.maxaccept` is reached, so other tasks may run.
        if most > 0 && in_a_row >= most {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
        let accepted = poll_fn(|context| {
            if proxy.state.admission() != Admission::Open
                || (worker.is_old() && !worker.closes(frontend, bind))
            {
                return Poll::Ready(None);
            }
            if !registered.is_some_and(|number| entry.is_registered(number)) {
                registered = Some(entry.wait(context.waker().clone()));
            }
            let polled = listener.poll_accept(context).map(Some);
            in_a_row = if polled.is_pending() { 0 } else { in_a_row + 1 };
            is_drained = polled.is_pending() && worker.is_old();
            if is_drained { Poll::Ready(None) } else { polled }
        });
        match accepted.await {
            None if is_drained => return,
            None => {}
            Some(Ok(accepted)) if refuses_privileged && is_privileged(&accepted) => {
                proxy.state.frontend.mine().denied_connections.add(1);
                if let Some(of_listener) = entry.mine() {
                    of_listener.denied_connections.add(1);
                }
            }
            Some(Ok(accepted)) => {
                let Some(Reserved { tls_place }) = gate.reserve().await else { continue };
                let target = match spread {
                    // Other workers may already have dropped this plan.
                    _ if worker.is_old() => worker.index,
                    MultiQueue::Off => worker.index,
                    MultiQueue::On => choose(worker.index, &workers),
                    MultiQueue::Fair => {
                        turn = (turn + 1) % workers.len();
                        workers[turn]
                    }
                };
                hand_over(&worker, accepted, frontend, bind, tls_place, target);
            }
            Some(Err(error)) => pause_after(&worker, &error).await,
        }
    }
}

/// Pauses while the frontend is disabled (`disable frontend`), or for a successor that cannot share the address. The port is free
/// until the pause ends. If the socket cannot be paused, its clients wait.
async fn sit_out(worker: &Worker, proxy: &plan::Proxy, entry: &state::Listener, listener: &mut Listener) {
    let paused = listener.pause().is_ok();
    poll_fn(|context: &mut Context<'_>| {
        entry.wait(context.waker().clone());
        let waits = proxy.state.admission() == Admission::Paused && !worker.is_old();
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    while paused && proxy.state.admission() == Admission::Open && listener.resume().is_err() {
        // Another process still uses the address.
        timer::sleep(SHORTAGE).await;
    }
}

/// `harden.reject-privileged-ports.tcp`: whether the client's port is a privileged system port (RFC 6335, 6).
fn is_privileged(accepted: &AcceptedSocket) -> bool {
    accepted.peer.is_some_and(|peer| peer.port() < 1024)
}

fn hand_over(
    worker: &Rc<Worker>,
    accepted: AcceptedSocket,
    frontend: usize,
    bind: usize,
    tls_place: Option<tls::ConnectionPermit>,
    target: usize,
) {
    let load = ConnectionGuard::add(target);
    let AcceptedSocket { socket, peer } = accepted;
    let generation = worker.shared.generation;
    let newcomer = AcceptedConnection {
        socket,
        peer,
        generation,
        frontend,
        bind,
        load,
        accepted_us: now_us(),
        tls_place,
    };
    if target == worker.index {
        handoff::start_at(worker.clone(), Incoming::Socket(newcomer));
    } else {
        worker::post(target, move || handoff::start(Incoming::Socket(newcomer)));
    }
}

/// Returns the one of two random workers that has fewer connections.
fn choose(own: usize, workers: &[usize]) -> usize {
    if workers.len() <= 1 {
        return own;
    }
    let draw = || workers[fastrand::usize(..workers.len())];
    let (first, second) = (draw(), draw());
    match worker::connections(first).cmp(&worker::connections(second)) {
        std::cmp::Ordering::Greater => second,
        std::cmp::Ordering::Less => first,
        // On a tie, the connection stays on this worker, which avoids waking another thread.
        std::cmp::Ordering::Equal if second == own => own,
        std::cmp::Ordering::Equal => first,
    }
}

/// Waits while memory is short and the process has more connections than the reduced limit. The count is polled, because
/// connections end on all workers.
async fn await_memory(worker: &Worker) {
    let process = &worker.shared.process;
    let is_full = || {
        let most = process.accepted_in_shortage.load(Relaxed);
        let most = if most == 0 && base::memory::is_short() { 1 } else { most };
        most > 0 && process.connections.load(Relaxed) >= most
    };
    if is_full() {
        NOT_ACCEPTED.note();
    }
    while is_full() {
        timer::sleep(LOOK_FOR_MEMORY).await;
    }
}

async fn pause_after(worker: &Worker, error: &io::Error) {
    match error.raw_os_error() {
        // The client closed the connection before it was accepted.
        Some(libc_code) if libc_code == ECONNABORTED || libc_code == EINTR || libc_code == EPROTO => {}
        _ => {
            NOT_ACCEPTED.note();
            let process = &worker.shared.process;
            process.counters.mine().accept_failures.add(1);
            REFUSED.note(EventTopic::Limits, || {
                let text = format!(
                    "Connections cannot be accepted, because descriptors or memory ran out: {error}."
                );
                ("-".to_owned(), text)
            });
            // Half of the descriptors are reserved for server connections. Without one, an accepted client would only get a 503.
            let few = process.connections.load(Relaxed) / 2;
            let until = now_ms() + SHORTAGE.as_millis() as u64;
            while process.connections.load(Relaxed) > few && now_ms() < until {
                timer::sleep(LOOK).await;
            }
        }
    }
}

const ECONNABORTED: i32 = 103;
const EINTR: i32 = 4;
const EPROTO: i32 = 71;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_one_keeps_its_connections() {
        assert_eq!(choose(3, &[3]), 3);
    }

    #[test]
    fn a_connection_stays_within_its_group() {
        for _ in 0..100 {
            assert!((4..8).contains(&choose(5, &[4, 5, 6, 7])));
        }
    }
}
