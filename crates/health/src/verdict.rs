//! The effects of a check's outcome on the server: its level and state, the servers that track it, sessions, and messages.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use plan::check::InitState;
use state::server::{CheckResult, Demand, Health, Operational};
use state::transition::{self, NOTICE};
use state::{Proxy, Server, events};

use crate::outcome::{CheckOutcome, CheckVerdict};
use crate::request::level;
use crate::{CheckContext, CheckedServer, on_marked};

/// Counts the outcome of a health check and applies its consequences.
pub(crate) fn apply(peer: &CheckedServer, outcome: &CheckOutcome, context: &Arc<CheckContext>) {
    let server = peer.server();
    let before = keep(&server.health, outcome);
    // A server that has neither an earlier result nor a configured initial state did not fail: it only turned out to be down.
    let has_initial_state = peer.own().check.as_ref().is_some_and(|check| check.initial != InitState::None);
    let moved = count(server, outcome.verdict, !before.is_empty() || has_initial_state);
    if moved || before != outcome.status {
        report_check(peer, outcome, Prober::Server, context);
    }
    if outcome.status == "L4TOUT" {
        server.doubt_address();
    }
    let why = if logs(peer) { String::new() } else { reason(outcome) };
    settle(peer, outcome.verdict, &why, context);
}

/// `option log-health-checks`.
pub(crate) fn logs(peer: &CheckedServer) -> bool {
    peer.backend.options.log_health_checks
}

/// Stores a result for the statistics. Returns the previous status.
pub(crate) fn keep(health: &Health, outcome: &CheckOutcome) -> &'static str {
    let result = CheckResult {
        status: outcome.status,
        code: outcome.code,
        duration_ms: outcome.duration.as_millis() as u64,
        description: outcome.info.clone(),
    };
    let last = health.last.load();
    let before = last.status;
    // Most results equal the last one, and replacing it requires a scan of all threads' references.
    if **last != result {
        drop(last);
        health.last.store(Arc::new(result));
    }
    before
}

/// Updates the level. Returns whether it changed. A failure is counted (`chkfail`) only if the previous state is `known`. If the
/// level falls below `rise`, it drops to 0; if it reaches `rise`, it goes to the maximum.
fn count(server: &Server, verdict: CheckVerdict, known: bool) -> bool {
    let health = &server.health;
    let (level, rise, fall) =
        (health.level.load(Relaxed), health.rise.load(Relaxed), health.fall.load(Relaxed));
    let top = rise + fall - 1;
    if verdict == CheckVerdict::Failed {
        if level == 0 {
            return false;
        }
        if known {
            health.failed.fetch_add(1, Relaxed);
        }
        health.level.store(if level > rise { level - 1 } else { 0 }, Relaxed);
        return true;
    }
    health.errors.store(0, Relaxed);
    if level >= top {
        return false;
    }
    health.level.store(if level + 1 >= rise { top } else { level + 1 }, Relaxed);
    true
}

/// Returns the reason for messages, such as `, reason: Layer7 wrong status, code: 503, info: "x", check duration: 1ms`.
pub(crate) fn reason(outcome: &CheckOutcome) -> String {
    let mut out = cause(outcome.status, outcome.code, &outcome.info);
    let _ = write!(out, ", check duration: {}ms", outcome.duration.as_millis());
    out
}

fn cause(status: &'static str, code: Option<i32>, info: &str) -> String {
    let result = CheckResult { status, ..CheckResult::default() };
    let mut out = format!(", reason: {}", result.meaning().1);
    if let Some(code) = code {
        let _ = write!(out, ", code: {code}");
    }
    if !info.is_empty() {
        out.push_str(", info: \"");
        for byte in info.bytes() {
            match byte {
                b' '..=b'~' if !matches!(byte, b'<' | b'>' | b'"') => out.push(char::from(byte)),
                _ => {
                    let _ = write!(out, "<{byte:02X}>");
                }
            }
        }
        out.push('"');
    }
    out
}

/// The source of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prober {
    /// The server.
    Server,
    /// The agent of the server.
    Agent,
}

/// Reports a check with a result that differs from the one before, to event subscribers, and with `option log-health-checks` also
/// to the logs.
pub(crate) fn report_check(
    peer: &CheckedServer,
    outcome: &CheckOutcome,
    asked: Prober,
    context: &CheckContext,
) {
    events::checked(&peer.backend.state, peer.server(), asked == Prober::Agent);
    if !logs(peer) {
        return;
    }
    let text = format!("{}.", check_line(peer, outcome.verdict, asked, &reason(outcome)));
    (context.notify)(&peer.backend.state, NOTICE, &text);
}

fn check_line(peer: &CheckedServer, verdict: CheckVerdict, asked: Prober, why: &str) -> String {
    let server = peer.server();
    let done = match verdict {
        CheckVerdict::Passed => "succeeded",
        CheckVerdict::Conditional => "conditionally succeeded",
        CheckVerdict::Failed => "failed",
    };
    let (kind, (word, level, of)) = match asked {
        Prober::Server => ("Health", level(server)),
        Prober::Agent => {
            ("Agent", if server.agent.level.load(Relaxed) > 0 { ("UP", 1, 1) } else { ("DOWN", 0, 1) })
        }
    };
    let word = match word {
        "DOWN" => "DOWN",
        _ if server.user_weight() == 0 => "DRAIN",
        _ => "UP",
    };
    format!(
        "{kind} check for {}server {}/{} {done}{why}, status: {level}/{of} {word}",
        if server.backup { "backup " } else { "" },
        server.proxy,
        server.name,
    )
}

/// Updates the server's state from its level.
fn settle(peer: &CheckedServer, verdict: CheckVerdict, why: &str, context: &Arc<CheckContext>) {
    let server = peer.server();
    let level = server.health.level.load(Relaxed);
    let up = level >= server.health.rise.load(Relaxed);
    // A check does not bring up a server that its agent reports as down.
    if up && verdict != CheckVerdict::Failed && server.agent_says_down() {
        return;
    }
    let wanted = match (server.operational(), verdict) {
        (Operational::Stopped, _) if !up => return,
        (_, CheckVerdict::Failed) if up => return,
        (_, CheckVerdict::Failed) => Operational::Stopped,
        (Operational::Stopping, CheckVerdict::Conditional) => return,
        (_, CheckVerdict::Conditional) => Operational::Stopping,
        (Operational::Running | Operational::Starting, CheckVerdict::Passed) => return,
        (_, CheckVerdict::Passed) => Operational::Running,
    };
    go(peer, wanted, why, Prober::Server, context);
}

/// Changes the server's state, with all configured consequences.
pub(crate) fn go(
    peer: &CheckedServer,
    wanted: Operational,
    why: &str,
    asked: Prober,
    context: &Arc<CheckContext>,
) {
    let server = peer.server();
    let was = server.operational();
    let change = VerdictChange { wanted, why, asked, via: None };
    transit(&peer.backend.state, server, &change, context);
    // A server that was only stopping has not been down, but accepts requests again.
    if wanted == Operational::Running && was == Operational::Stopping {
        on_marked::came_up(peer);
    }
}

/// A state change to be made and reported.
struct VerdictChange<'a> {
    wanted: Operational,
    why: &'a str,
    /// The source of the result.
    asked: Prober,
    /// The origin, if a tracked server caused the change: ` via be/s1`.
    via: Option<&'a str>,
}

/// Sets the state, reports it, and repeats this for the tracking servers.
fn transit(
    proxy: &Arc<Proxy>,
    server: &Arc<Server>,
    change: &VerdictChange<'_>,
    context: &Arc<CheckContext>,
) {
    let was = server.operational();
    let now = now_ms();
    let (shown, requeued) = (events::shown(server), server.queue.len());
    let changed = match (was, change.wanted) {
        (Operational::Stopped, Operational::Running) => server.come_up(now),
        (Operational::Starting, Operational::Running) => false,
        (_, wanted) => {
            server.set_ramp(100);
            server.set_operational(wanted, now)
        }
    };
    if !changed {
        return;
    }
    events::moved(proxy, server, shown, requeued, || match change.via {
        None => events::StateCause::Check(events::Checked::last(server, change.asked == Prober::Agent)),
        Some(_) => events::StateCause::Other(String::new()),
    });
    if change.wanted == Operational::Stopped {
        // Requests in the server's queue choose a server again.
        server.queue.wake_all();
    }
    let via = change.via.unwrap_or_default();
    let (level, text) = match change.wanted {
        Operational::Stopped => {
            let level = transition::down_level(server, was);
            (level, transition::left(proxy, server, &format!("is DOWN{via}"), change.why, requeued))
        }
        Operational::Stopping => {
            (NOTICE, transition::joined(proxy, server, &format!("is stopping{via}"), change.why, requeued))
        }
        _ => (NOTICE, transition::joined(proxy, server, &format!("is UP{via}"), change.why, 0)),
    };
    server.record_change(&text);
    (context.notify)(proxy, level, &text);
    if let Some((level, text)) = transition::refresh_backend(proxy, now) {
        (context.notify)(proxy, level, &text);
    }
    let via = format!(" via {}/{}", server.proxy, server.name);
    for follower in &context.followers(server) {
        let change = VerdictChange { via: Some(&via), why: "", ..*change };
        transit(&follower.backend.state, follower.server(), &change, context);
    }
}

/// Handles a demand from real traffic (`observe`, `on-error`).
pub(crate) fn meet(peer: &CheckedServer, demand: Demand, context: &Arc<CheckContext>) {
    let health = &peer.server().health;
    let (errors, trouble) = health.take_errors();
    let rise = health.rise.load(Relaxed);
    match demand {
        Demand::FastInter | Demand::End => return,
        Demand::FailCheck => {}
        Demand::SuddenDeath => {
            let _ = health.level.fetch_update(Relaxed, Relaxed, |level| (level > rise).then_some(rise + 1));
        }
        Demand::MarkDown => {
            let _ = health.level.fetch_update(Relaxed, Relaxed, |level| (level > rise).then_some(rise));
        }
    }
    let info = format!("Detected {errors} consecutive errors, last one was: {}", trouble.text());
    let outcome = CheckOutcome::new("HANA", 0, info);
    let before = keep(health, &outcome);
    let why = cause(outcome.status, outcome.code, &outcome.info);
    let moved = count(peer.server(), CheckVerdict::Failed, true);
    if moved || before != outcome.status {
        events::checked(&peer.backend.state, peer.server(), false);
        if logs(peer) {
            let text = format!("{}.", check_line(peer, CheckVerdict::Failed, Prober::Server, &why));
            (context.notify)(&peer.backend.state, NOTICE, &text);
        }
    }
    if moved {
        settle(peer, CheckVerdict::Failed, if logs(peer) { "" } else { &why }, context);
    }
}
