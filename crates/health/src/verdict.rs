//! What a check's outcome does to the server: the level, the state, its followers, its sessions, and the messages.

use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;
use runtime::{shard, timer, worker};
use state::server::{CheckResult, Operational};
use state::sessions::{self, Kill};
use state::transition::{self, ALERT, NOTICE};
use state::{Proxy, Server};

use crate::http_check::level;
use crate::probe::{Outcome, Verdict};
use crate::{Context, Subject};

/// Counts an outcome and carries out what follows.
pub(crate) fn apply(subject: &Subject, outcome: &Outcome, context: &Rc<Context>) {
    let health = &subject.server.health;
    let before = health.last.load_full();
    health.last.store(Arc::new(CheckResult {
        status: outcome.status,
        code: outcome.code,
        duration_ms: outcome.duration.as_millis() as u64,
        description: outcome.info.clone(),
    }));
    let moved = count(&subject.server, outcome.verdict);
    if subject.settings.log && (moved || before.status != outcome.status) {
        tell_check(subject, outcome, context);
    }
    let why = if subject.settings.log { String::new() } else { reason(outcome) };
    settle(subject, outcome.verdict, &why, context);
}

/// Moves the level; whether it moved. A level below `rise` after a failure falls to 0; one that reaches `rise` after a
/// success rises to the top.
fn count(server: &Server, verdict: Verdict) -> bool {
    let health = &server.health;
    let (level, rise, fall) =
        (health.level.load(Relaxed), health.rise.load(Relaxed), health.fall.load(Relaxed));
    let top = rise + fall - 1;
    if verdict == Verdict::Failed {
        if level == 0 {
            return false;
        }
        health.failed.fetch_add(1, Relaxed);
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

/// `, reason: Layer7 wrong status, code: 503, info: "x", check duration: 1ms`.
fn reason(outcome: &Outcome) -> String {
    let result = CheckResult { status: outcome.status, ..CheckResult::default() };
    let mut out = format!(", reason: {}", result.meaning().1);
    if let Some(code) = outcome.code {
        let _ = write!(out, ", code: {code}");
    }
    if !outcome.info.is_empty() {
        let _ = write!(out, ", info: \"{}\"", outcome.info.replace(['\r', '\n', '"'], "."));
    }
    let _ = write!(out, ", check duration: {}ms", outcome.duration.as_millis());
    out
}

/// `option log-health-checks`.
fn tell_check(subject: &Subject, outcome: &Outcome, context: &Context) {
    let server = &subject.server;
    let done = match outcome.verdict {
        Verdict::Passed => "succeeded",
        Verdict::Conditional => "conditionally succeeded",
        Verdict::Failed => "failed",
    };
    let (word, level, of) = level(server);
    let word = match word {
        "DOWN" => "DOWN",
        _ if server.user_weight() == 0 => "DRAIN",
        _ => "UP",
    };
    let text = format!(
        "Health check for {}server {}/{} {done}{}, status: {level}/{of} {word}.",
        if server.backup { "backup " } else { "" },
        server.proxy,
        server.name,
        reason(outcome)
    );
    (context.notify)(&subject.proxy, NOTICE, &text);
}

/// Brings the server's state in line with its level.
fn settle(subject: &Subject, verdict: Verdict, why: &str, context: &Rc<Context>) {
    let server = &subject.server;
    let level = server.health.level.load(Relaxed);
    let up = level >= server.health.rise.load(Relaxed);
    // What the agent holds down, a check does not bring up.
    if up && verdict != Verdict::Failed && server.agent_says_down() {
        return;
    }
    let wanted = match (server.operational(), verdict) {
        (Operational::Stopped, _) if !up => return,
        (_, Verdict::Failed) if up => return,
        (_, Verdict::Failed) => Operational::Stopped,
        (Operational::Stopping, Verdict::Conditional) => return,
        (_, Verdict::Conditional) => Operational::Stopping,
        (Operational::Running | Operational::Starting, Verdict::Passed) => return,
        (_, Verdict::Passed) => Operational::Running,
    };
    go(subject, wanted, why, context);
}

/// Changes the server's state with all that its configuration wants done then.
pub(crate) fn go(subject: &Subject, wanted: Operational, why: &str, context: &Rc<Context>) {
    let server = &subject.server;
    let change = Change { wanted, why, via: None, slow_start: subject.slow_start };
    transit(&subject.proxy, server, &change, context);
    if wanted == Operational::Stopped && subject.shutdown_when_down {
        kill_on_every_worker(Kill::ServerDown, vec![server.clone()]);
    }
    if wanted == Operational::Running && subject.shutdown_backups_when_up && !server.backup {
        let backups = subject.proxy.servers.load().iter().filter(|server| server.backup).cloned().collect();
        kill_on_every_worker(Kill::ServerUp, backups);
    }
}

fn kill_on_every_worker(why: Kill, servers: Vec<Arc<Server>>) {
    let servers = Arc::new(servers);
    for index in 0..shard::workers() {
        let servers = servers.clone();
        let posted = worker::post(index, move || {
            for server in servers.iter() {
                sessions::kill_server(why, server);
            }
        });
        debug_assert!(posted || shard::workers() == 1, "every worker has a mailbox");
    }
}

/// A change of state to be made and told.
struct Change<'a> {
    wanted: Operational,
    why: &'a str,
    /// The server that this one tracks, ` via be/s1`.
    via: Option<&'a str>,
    slow_start: Option<Duration>,
}

/// Sets the state, tells it, and does the same to the servers that follow.
fn transit(proxy: &Arc<Proxy>, server: &Arc<Server>, change: &Change<'_>, context: &Rc<Context>) {
    let was = server.operational();
    let now = now_ms();
    let requeued = server.queue.len();
    let rising = change.wanted == Operational::Running && was == Operational::Stopped;
    let slow = change.slow_start.filter(|_| rising);
    let state = if slow.is_some() { Operational::Starting } else { change.wanted };
    if was == state {
        return;
    }
    // The weight first: not even one request is to see the server up with all of it.
    server.set_ramp(if slow.is_some() { 0 } else { 100 });
    server.set_operational(state, now);
    if let Some(duration) = slow {
        tokio::task::spawn_local(ramp(server.clone(), duration));
    }
    if change.wanted == Operational::Stopped {
        // Those that wait for it choose again.
        server.queue.wake_all();
    }
    let via = change.via.unwrap_or_default();
    let (level, text) = match change.wanted {
        Operational::Stopped => {
            let level = if was == Operational::Stopping { NOTICE } else { ALERT };
            (level, transition::left(proxy, server, &format!("is DOWN{via}"), change.why, requeued))
        }
        Operational::Stopping => {
            (NOTICE, transition::joined(proxy, server, &format!("is stopping{via}"), change.why, requeued))
        }
        _ => (NOTICE, transition::joined(proxy, server, &format!("is UP{via}"), change.why, 0)),
    };
    (context.notify)(proxy, level, &text);
    if let Some((level, text)) = transition::refresh_backend(proxy, now) {
        (context.notify)(proxy, level, &text);
    }
    let via = format!(" via {}/{}", server.proxy, server.name);
    for follower in context.followers.get(&Arc::as_ptr(server)).into_iter().flatten() {
        let change = Change { via: Some(&via), why: "", slow_start: follower.slow_start, ..*change };
        transit(&follower.proxy, &follower.server, &change, context);
    }
    for follower in crate::added_followers(server) {
        let change = Change { via: Some(&via), why: "", slow_start: follower.slow_start, ..*change };
        transit(&follower.proxy, &follower.server, &change, context);
    }
}

/// Raises the weight of a server that came up over `duration` (`slowstart`); ends early if its state changes.
async fn ramp(server: Arc<Server>, duration: Duration) {
    const STEPS: u32 = 100;
    let step = (duration / STEPS).max(Duration::from_millis(10));
    let start = now_ms();
    let total = duration.as_millis().max(1) as u64;
    loop {
        timer::sleep(step).await;
        if server.operational() != Operational::Starting {
            server.set_ramp(100);
            return;
        }
        let percent = (now_ms() - start) * 100 / total;
        if percent >= 100 {
            server.set_ramp(100);
            server.set_operational(Operational::Running, now_ms());
            return;
        }
        server.set_ramp(percent as u32);
    }
}

/// What real traffic asked for (`observe`, `on-error`).
pub(crate) fn meet(subject: &Subject, demand: state::server::Demand, context: &Rc<Context>) {
    use state::server::Demand;
    let health = &subject.server.health;
    let why = ", reason: Health analyze, info: \"Detected errors on real traffic\"";
    let moved = match demand {
        Demand::FastInter => return,
        Demand::FailCheck => count(&subject.server, Verdict::Failed),
        Demand::SuddenDeath => {
            let rise = health.rise.load(Relaxed);
            health.level.fetch_update(Relaxed, Relaxed, |level| (level > rise).then_some(rise + 1)).is_ok()
                && count(&subject.server, Verdict::Failed)
        }
        Demand::MarkDown => health.level.swap(0, Relaxed) > 0,
    };
    if moved {
        settle(subject, Verdict::Failed, why, context);
    }
}
