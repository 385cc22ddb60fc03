//! Soft stop (management manual, chapter 4). After `grace`, new connections are directed to the successor, and this process accepts
//! the queued ones. Then the listeners close (at once if the successor took the sockets over). Connections end with their current
//! request, and idle ones without one, all of them spread over `close-spread-time`. Driven by `signals`, which polls it until the
//! last connection has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;
use diag::Severity;
use proxy::Shared;
use state::proxy::Admission;
use state::sessions::{self, Activity, Kill};
use state::transition::{self, WARNING};
use state::{EventTopic, journal};

use crate::hand_over::Exposed;
use crate::messages::MessageFormat;
use crate::peers::PeersSections;
use crate::{caches, checks};

/// The interval at which a stopping process checks whether its connections have ended.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long connections in the kernel's queues are still accepted while new ones are directed to the successor.
const DRAIN: Duration = Duration::from_millis(200);

/// On a connection that has been idle for less than this, the next request may be on its way. The response to that request then
/// announces the close.
const SETTLED: Duration = Duration::from_millis(500);

/// A soft stop in progress.
#[derive(Debug)]
pub(crate) struct SoftStop {
    close_at: u64,
    turns_away: bool,
    hard_stop_at: Option<u64>,
    closing: bool,
    /// The ids of frontends that wait for one more request on idle connections (`option idle-close-on-response`).
    spared: Arc<[u32]>,
}

/// The state of a soft stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopProgress {
    /// The process waits for connections, clients after a Retry, unprocessed datagrams, peers that receive entries, or the grace time.
    Waiting,
    /// All connections have ended.
    Over,
    /// `hard-stop-after` has passed.
    TooLong,
}

impl SoftStop {
    /// Starts the stop and marks the process as stopping.
    pub(crate) fn begin(shared: &Shared) -> Self {
        let global = &shared.plan.global;
        if !shared.process.stopping.swap(true, Relaxed) {
            journal::record(
                EventTopic::Reloads,
                "-",
                "Soft stop: the process closes its listeners and connections.",
            );
        }
        let after = |time: Duration| now_ms().saturating_add(time.as_millis() as u64);
        let spared = shared.plan.proxies.iter().filter(|proxy| proxy.options.idle_close_on_response);
        Self {
            close_at: after(global.grace.unwrap_or_default()),
            hard_stop_at: global.hard_stop_after.map(after),
            turns_away: false,
            closing: false,
            spared: spared.map(|proxy| proxy.state.id).collect(),
        }
    }

    /// Performs the steps that are due now.
    pub(crate) fn proceed(
        &mut self,
        shared: &Shared,
        exposed: &Exposed,
        peers: &Arc<PeersSections>,
        messages: MessageFormat,
    ) -> StopProgress {
        let now = now_ms();
        if !self.closing {
            if now < self.close_at {
                return StopProgress::Waiting;
            }
            // If the successor has taken the sockets over, it accepts the connections in their queues itself.
            if !exposed.is_handed_over() && !std::mem::replace(&mut self.turns_away, true) {
                exposed.turn_away();
                self.close_at = now.saturating_add(DRAIN.as_millis() as u64);
                return StopProgress::Waiting;
            }
            self.closing = true;
            exposed.close();
            close_listeners(shared, messages);
            caches::let_go(&shared.plan, None);
            peers.stop();
        }
        let is_active = proxy::serve::datagrams::is_active() || proxy::serve::quic::is_active();
        if shared.process.connections.load(Relaxed) == 0 && !is_active {
            peers.drained();
            if peers.have_stopped() {
                return StopProgress::Over;
            }
        }
        if self.hard_stop_at.is_some_and(|at| now >= at) {
            messages.say(Severity::Warning, "soft-stop running for too long, performing a hard-stop.");
            return StopProgress::TooLong;
        }
        self.end_idle(shared, now);
        StopProgress::Waiting
    }

    /// Closes idle connections: as many as are due, given the remaining time.
    fn end_idle(&self, shared: &Shared, now: u64) {
        let until = shared.process.close_until.load(Relaxed);
        if until == u64::MAX {
            return;
        }
        let left = until.saturating_sub(now);
        let share = if left == 0 { 1.0 } else { LOOK.as_millis() as f64 / left as f64 };
        let settled = now.saturating_sub(SETTLED.as_millis() as u64);
        for worker in 0..runtime::shard::workers() {
            let spared = self.spared.clone();
            runtime::worker::post(worker, move || {
                sessions::kill(Kill::Operator, |entry| {
                    // A connection that has had no request so far will have one.
                    entry.activity == Activity::Waiting
                        && entry.requests > 0
                        && entry.active_ms <= settled
                        && !spared.contains(&entry.frontend.id)
                        && (share >= 1.0 || fastrand::f64() < share)
                });
            });
        }
    }
}

/// Stops listening. From this call on, responses announce that the connection is closed.
fn close_listeners(shared: &Shared, messages: MessageFormat) {
    let process = &shared.process;
    let window = shared.plan.global.close_spread_time.unwrap_or_default();
    let until = now_ms().saturating_add(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
    process.close_window.store(u64::try_from(window.as_millis()).unwrap_or(u64::MAX), Relaxed);
    process.close_until.store(until, Relaxed);
    process.closing.store(true, Relaxed);
    for proxy in shared.plan.proxies.iter() {
        let state = &proxy.state;
        let before = state.admission();
        if state.is_frontend {
            state.set_admission(Admission::Stopped);
        }
        // The shutdown of a frontend was reported when it happened.
        if !proxy.is_hidden() && !proxy.disabled && before != Admission::Stopped {
            checks::notify(shared, messages, state, WARNING, &transition::stopped(state));
        }
    }
    for worker in 0..runtime::shard::workers() {
        runtime::worker::post(worker, proxy::serve::log::ring_feed::stop);
        runtime::worker::post(worker, proxy::serve::shutdown_wakers::stop);
    }
    for socket in &shared.plan.global.stats_sockets {
        socket.listener.wake();
    }
}
