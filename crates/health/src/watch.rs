//! The scheduling of one server's checks.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use base::clock::now_ms;
use plan::check::InitState;
use runtime::timer::Timer;
use state::server::{Demand, Operational};

use crate::{CheckContext, Subject, verdict};

/// Checks the server once and applies the consequences.
pub(crate) async fn check(subject: &Subject, context: &Arc<CheckContext>) {
    let server = subject.server();
    server.health.running.store(true, Relaxed);
    let settle = |outcome| {
        server.health.running.store(false, Relaxed);
        // A result from before the maintenance of the server is ignored.
        if is_due(server) {
            verdict::apply(&subject.peer, &outcome, context);
        }
    };
    subject.check(context, settle).await;
}

/// Whether a server must be checked at this time: it is not in maintenance, and its checks are not disabled.
pub(crate) fn is_due(server: &state::Server) -> bool {
    server.checked.load(Relaxed) && !server.admin().in_maintenance()
}

/// Sets the initial check state of a server. A server that was checked before a reload keeps its level, within the new bounds.
pub(crate) fn prepare(subject: &Subject) {
    let (server, settings) = (subject.server(), &subject.settings);
    let health = &server.health;
    let (rise, fall) = (settings.rise.max(1), settings.fall.max(1));
    let known = !health.last.load().status.is_empty();
    health.configured.store(true, Relaxed);
    health.rise.store(rise, Relaxed);
    health.fall.store(fall, Relaxed);
    let initial = match settings.initial {
        InitState::None => None,
        InitState::FullyUp => Some(rise + fall - 1),
        InitState::Up => Some(rise),
        InitState::Down => Some(rise - 1),
        InitState::FullyDown => Some(0),
    };
    health.set_initial(initial);
    let level = match known {
        true if server.operational() == Operational::Stopped => health.level.load(Relaxed).min(rise - 1),
        true => health.level.load(Relaxed).clamp(rise, rise + fall - 1),
        // The server is up, but the first failure takes it down.
        false => initial.unwrap_or(rise),
    };
    health.level.store(level, Relaxed);
    if level < rise {
        begin_down(&subject.backend().state, server);
    }
}

/// Sets a server and the servers that track it to an initial down state, which does not count as going down.
fn begin_down(backend: &state::Proxy, server: &state::Server) {
    let downs = server.downs.load(Relaxed);
    server.set_operational(Operational::Stopped, now_ms());
    server.downs.store(downs, Relaxed);
    backend.trackers(server).iter().for_each(|(backend, tracker)| begin_down(backend, tracker));
}

/// Waits for the time of the next check, and in the meantime handles checks that real traffic demands. Ends early if the server is
/// removed.
pub(crate) async fn pause(subject: &Subject, context: &Arc<CheckContext>, timer: &Timer) {
    while let Some(demand) = expired_or(timer, |task| subject.server().health.poll_demand(task)).await {
        if demand == Demand::End {
            return;
        }
        verdict::meet(&subject.peer, demand, context);
        if demand != Demand::MarkDown {
            let fast = subject.settings.fastinter.unwrap_or(subject.settings.inter);
            timer.set(timer.deadline().min(now_ms() + fast.as_millis() as u64));
        }
    }
}

/// Waits for the time of the next agent query, or until one is demanded.
pub(crate) async fn pause_agent(server: &state::Server, timer: &Timer) {
    while let Some(demand) = expired_or(timer, |task| server.agent.poll_demand(task)).await {
        if demand == Demand::End {
            return;
        }
    }
}

/// Returns the interval: `inter` if the server is stably up, `downinter` if it is stably down, `fastinter` in between.
pub(crate) fn interval(subject: &Subject) -> Duration {
    let (settings, health) = (&subject.settings, &subject.server().health);
    let level = health.level.load(Relaxed);
    let top = health.rise.load(Relaxed) + health.fall.load(Relaxed) - 1;
    if level == top {
        settings.inter
    } else if level == 0 {
        settings.downinter.unwrap_or(settings.inter)
    } else {
        settings.fastinter.unwrap_or(settings.inter)
    }
}

/// Ready with `None` when `timer` expires, or with the result of `other`.
async fn expired_or<T>(
    timer: &Timer,
    mut other: impl FnMut(&mut std::task::Context<'_>) -> Poll<T>,
) -> Option<T> {
    poll_fn(|context| match timer.poll_expired(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => other(context).map(Some),
    })
    .await
}
