//! The master of master-worker mode (`-W`): starts the worker, starts it anew when asked, ends with it.

use std::io::Write as _;

use config::plan::Global;
use diag::Severity;
use net::sys::{Forked, fork};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::args::Args;
use crate::messages::Messages;
use crate::signals::Ending;

/// Splits into master and worker. In the worker it returns `None` at once; in the master, how all ended.
pub(crate) fn supervise(global: &Global, args: &Args, messages: Messages) -> Result<Option<Ending>, String> {
    if global.daemon {
        net::sys::daemonize().map_err(|error| format!("[haproxy.main()] Cannot fork: {error}."))?;
    }
    let worker = match fork().map_err(|error| format!("[haproxy.main()] Cannot fork: {error}."))? {
        Forked::Child => return Ok(None),
        Forked::Parent(pid) => pid,
    };
    crate::system::write_pidfile(global)?;
    let _ = args;
    messages.say(Severity::Notice, &format!("New worker ({worker}) forked"));
    let _ = std::io::stderr().flush();
    Ok(Some(watch(worker, messages)))
}

fn watch(worker: i32, messages: Messages) -> Ending {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let Ok(mut signals) =
        Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, signal_hook::consts::SIGCHLD])
    else {
        return Ending::Signal(SIGTERM);
    };
    let Some(pid) = Pid::from_raw(worker) else { return Ending::Clean };
    let mut asked = None;
    loop {
        for signal in signals.wait() {
            match signal {
                SIGTERM | SIGINT => {
                    asked = Some(signal);
                    let _ = kill_process(pid, Signal::TERM);
                }
                SIGUSR1 => {
                    let _ = kill_process(pid, Signal::USR1);
                }
                SIGUSR2 | SIGHUP => {
                    messages.say(Severity::Warning, "reloading in master-worker mode is not supported yet");
                }
                _ => {}
            }
            if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                return match (asked, status.exit_status(), status.terminating_signal()) {
                    // An orderly end is a success for service managers; an interrupted one is not.
                    (Some(SIGTERM), ..) | (_, Some(0), _) => Ending::Clean,
                    (Some(signal), ..) => Ending::Code(128 + signal as u8),
                    (None, Some(code), _) => Ending::Code(code as u8),
                    (None, _, signal) => Ending::Code(128 + signal.unwrap_or(SIGTERM) as u8),
                };
            }
        }
    }
}
