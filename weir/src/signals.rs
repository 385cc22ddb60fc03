//! Signal handling of a running process (management manual, chapter 4), and its orderly end.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use diag::Severity;
use proxy::Shared;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use state::proxy::Admission;
use state::transition::{self, NOTICE, WARNING};

use crate::checks;
use crate::generation::InUse;
use crate::hand_over::Exposed;
use crate::messages::MessageFormat;
use crate::peers::PeersSections;
use crate::reload::Reloader;
use crate::soft_stop::{self, SoftStop, StopProgress};
use crate::system;

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All connections ended.
    Clean,
    /// A signal ended the process immediately.
    Signal(i32),
    /// The process ended with this exit code, which a master reports for its worker.
    Code(u8),
}

/// Installs the signal handlers. Signals that arrive before [`wait`] is called are handled there.
pub(crate) fn watch() -> Result<Signals, String> {
    let numbers = [SIGHUP, SIGINT, SIGQUIT, SIGALRM, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2];
    Signals::new(numbers).map_err(|error| format!("cannot watch signals: {error}"))
}

/// Handles signals until one of them ends the process, or the last connection of a soft stop does.
pub(crate) fn wait(
    mut signals: Signals,
    in_use: &InUse,
    exposed: &Exposed,
    reloader: &Reloader,
    peers: &Arc<PeersSections>,
    master: Option<UnixStream>,
    messages: MessageFormat,
) -> Ending {
    // These signals have been blocked since before this process, or its master, listened.
    process::hold_signals(false);
    let mut stop: Option<SoftStop> = None;
    let mut master = master;
    let has_master = master.is_some();
    loop {
        let pending: Vec<i32> = if stop.is_some() {
            std::thread::sleep(soft_stop::LOOK);
            signals.pending().collect()
        } else {
            signals.wait().collect()
        };
        let shared = &*in_use.shared();
        for signal in pending {
            match signal {
                SIGUSR1 => {
                    stop.get_or_insert_with(|| {
                        if !has_master {
                            system::notify_stopping(messages);
                        }
                        SoftStop::begin(shared)
                    });
                }
                SIGTTOU => pause(shared, messages, true),
                SIGTTIN => pause(shared, messages, false),
                SIGHUP => show_state(shared, messages),
                SIGQUIT => flush(messages),
                SIGUSR2 if shared.plan.global.reloads_in_place && stop.is_none() => reloader.report_reload(),
                SIGUSR2 | SIGALRM => {}
                _ => {
                    if !has_master && stop.is_none() {
                        system::notify_stopping(messages);
                    }
                    return Ending::Signal(signal);
                }
            }
        }
        if let Some(stop) = &mut stop {
            if stop.proceed(shared, exposed, peers, messages) != StopProgress::Waiting {
                return Ending::Clean;
            }
            // The answer to a reload waits for this report. If the master has ended, it does not matter.
            if let Some(mut master) = master.take() {
                await_turns();
                let _ = master.write_all(system::STOPPED);
            }
        }
    }
}

/// Waits until each worker has run a message. A worker that was about to accept a connection has then accepted it.
fn await_turns() {
    let (took_turn, turns) = std::sync::mpsc::channel();
    let workers = 0..runtime::shard::workers();
    for worker in workers.clone() {
        let took_turn = took_turn.clone();
        runtime::worker::post(worker, move || {
            // The receiver may no longer wait.
            let _ = took_turn.send(());
        });
    }
    let until = Instant::now() + LONGEST_TURN;
    for _ in workers {
        if turns.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
            return;
        }
    }
}

/// The maximum time for this wait.
const LONGEST_TURN: Duration = Duration::from_secs(2);

fn pause(shared: &Shared, messages: MessageFormat, pause: bool) {
    for proxy in shared.plan.proxies.iter().filter(|proxy| proxy.state.is_frontend) {
        let (from, to) =
            if pause { (Admission::Open, Admission::Paused) } else { (Admission::Paused, Admission::Open) };
        if proxy.state.admission() == from {
            proxy.state.set_admission(to);
            if let Some(text) = transition::admitted(&proxy.state, from) {
                checks::notify(shared, messages, &proxy.state, WARNING, &text);
            }
        }
    }
}

/// `SIGQUIT`: returns free buffers to the system.
fn flush(messages: MessageFormat) {
    for index in 0..runtime::shard::workers() {
        runtime::worker::post(index, runtime::buffer::flush);
    }
    messages.say(Severity::Notice, "SIGQUIT: freed unused buffers; `show pools` shows the remaining memory.");
}

/// `SIGHUP`: prints the state of all servers and proxies in HAProxy's format.
fn show_state(shared: &Shared, messages: MessageFormat) {
    let received = "SIGHUP received, dumping servers states";
    messages.say(Severity::Warning, &format!("{received}."));
    for proxy in shared.plan.proxies.iter().filter(|proxy| !proxy.is_hidden()) {
        let say = |text: &str| checks::notify(shared, messages, &proxy.state, NOTICE, text);
        checks::log(shared, &proxy.state, NOTICE, &format!("{received} for proxy {}.", proxy.state.name));
        let (mut serving, mut waiting) = (0, 0);
        let servers = proxy.state.servers.load();
        for server in servers.iter() {
            let state = if server.is_up() { "UP" } else { "DOWN" };
            let total: u64 = server.counters.all().map(|shard| shard.traffic.sessions_total.get()).sum();
            let (served, queued) = (server.serving(), server.queue.len());
            serving += served;
            waiting += queued;
            let name = format!("{}/{}", proxy.state.name, server.name);
            say(&format!(
                "SIGHUP: Server {name} is {state}. Conn: {served} act, {queued} pend, {total} tot."
            ));
        }
        let how = match proxy.state.usable() {
            _ if servers.is_empty() => "has no servers.".to_owned(),
            (0, 0) => "has no server available !".to_owned(),
            (0, _) => "is running on backup servers !".to_owned(),
            (active, backup) => {
                format!("has {active} active servers and {backup} backup servers available.")
            }
        };
        let accepted: u64 = proxy.state.frontend.all().map(|shard| shard.traffic.sessions_total.get()).sum();
        let passed: u64 = proxy.state.backend.all().map(|shard| shard.traffic.sessions_total.get()).sum();
        let unassigned = proxy.state.queue.len();
        say(&format!(
            "SIGHUP: Proxy {} {how} Conn: act(FE+BE): {}+{serving}, {} pend ({unassigned} unass), tot(FE+BE): {accepted}+{passed}.",
            proxy.state.name,
            proxy.state.connections.load(Relaxed),
            waiting + unassigned,
        ));
    }
}
