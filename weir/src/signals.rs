//! Signals of a running process (management manual, chapter 4), and its orderly end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use diag::Severity;
use proxy::Shared;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use state::proxy::Admission;

use crate::hand_over::Exposed;
use crate::messages::Messages;
use crate::soft_stop::{self, Progress, SoftStop};

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All connections ended.
    Clean,
    /// A signal ended it at once.
    Signal(i32),
    /// With this exit code: what a master tells of its worker.
    Code(u8),
}

/// Obeys signals until one of them, or the last connection of a soft stop, ends the process.
pub(crate) fn wait(shared: &Arc<Shared>, exposed: &Exposed, messages: Messages) -> Ending {
    let numbers = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2];
    let mut signals = match Signals::new(numbers) {
        Ok(signals) => signals,
        Err(error) => {
            messages.say(Severity::Alert, &format!("signals cannot be watched: {error}"));
            return Ending::Signal(SIGTERM);
        }
    };
    // Held back since before this process listened, or since it was split off its master.
    net::sys::hold_signals(false);
    let mut stop: Option<SoftStop> = None;
    loop {
        let pending: Vec<i32> = if stop.is_some() {
            std::thread::sleep(soft_stop::LOOK);
            signals.pending().collect()
        } else {
            signals.wait().collect()
        };
        for signal in pending {
            match signal {
                SIGUSR1 => {
                    stop.get_or_insert_with(|| SoftStop::begin(shared));
                }
                SIGTTOU => pause(shared, messages, true),
                SIGTTIN => pause(shared, messages, false),
                SIGHUP => show_state(shared, messages),
                SIGQUIT => flush(messages),
                SIGUSR2 => {}
                _ => return Ending::Signal(signal),
            }
        }
        if let Some(stop) = &mut stop
            && stop.proceed(shared, exposed, messages) != Progress::Waiting
        {
            return Ending::Clean;
        }
    }
}

fn pause(shared: &Shared, messages: Messages, pause: bool) {
    for proxy in shared.plan.proxies.iter().filter(|proxy| proxy.state.is_frontend) {
        let (from, to, word) = if pause {
            (Admission::Open, Admission::Paused, "Paused")
        } else {
            (Admission::Paused, Admission::Open, "Resumed")
        };
        if proxy.state.admission() == from {
            proxy.state.set_admission(to);
            messages.say(Severity::Warning, &format!("{word} frontend {}.", proxy.state.name));
        }
    }
}

/// `SIGQUIT`: free buffers are given back to the system.
fn flush(messages: Messages) {
    for index in 0..runtime::shard::workers() {
        runtime::worker::post(index, runtime::buffer::flush);
    }
    messages.say(Severity::Notice, "SIGQUIT: free buffers are given back; `show pools` tells what is held.");
}

/// `SIGHUP`: the state of all servers and proxies.
fn show_state(shared: &Shared, messages: Messages) {
    for proxy in shared.plan.proxies.iter().filter(|proxy| !proxy.is_hidden()) {
        for server in proxy.state.servers.load().iter() {
            let state = if server.is_up() { "UP" } else { "DOWN" };
            let text = format!(
                "SIGHUP: Server {}/{} is {state}. Conn: {} act, {} pend.",
                proxy.state.name,
                server.name,
                server.serving(),
                server.queue.len()
            );
            messages.say(Severity::Warning, &text);
        }
        let (active, backup) = proxy.state.usable();
        let text = format!(
            "SIGHUP: Proxy {} has {active} active and {backup} backup servers. Conn: act(FE): {}.",
            proxy.state.name,
            proxy.state.connections.load(Relaxed)
        );
        messages.say(Severity::Warning, &text);
    }
}
