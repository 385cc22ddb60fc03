//! One state of the interpreter: the one that all workers share, or one of a worker's own. `fresh`
//! makes it.

use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, Table, Thread};

use crate::bridge::Bridge;
use crate::settings::{LuaSettings, Stderr};

/// So many coroutines that have ended are kept for calls to come.
const SPARE: usize = 32;

/// A state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// 0 for the one that all workers share, else 1 and more for that of a worker.
    pub(crate) number: usize,
    pub(crate) settings: Arc<LuaSettings>,
    /// Instructions of a turn.
    pub(crate) turn: u32,
    /// What a coroutine runs: one call after the other.
    pub(crate) run: Function,
    /// What runs a function that gets a transaction.
    pub(crate) act: Function,
    /// What run services.
    pub(crate) serve_http: Function,
    pub(crate) serve_tcp: Function,
    pub(crate) serve_command: Function,
    /// What makes filters and calls their functions.
    pub(crate) filters: Table,
    /// The members of each class, by its name, for the reference.
    #[cfg(test)]
    pub(crate) classes: Table,
    /// Coroutines that wait for a call.
    pub(crate) spare: Mutex<Vec<Thread>>,
}

/// The state that a function of the host was called in.
pub(crate) struct StateHome(pub(crate) std::sync::Weak<State>);

impl State {
    /// A coroutine for a call.
    pub(crate) fn thread(&self) -> mlua::Result<Thread> {
        let spare = self.spare.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        spare.map_or_else(|| self.lua.create_thread(self.run.clone()), Ok)
    }

    /// Keeps one whose call has ended.
    pub(crate) fn keep(&self, thread: Thread) {
        let mut spare = self.spare.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if spare.len() < SPARE {
            spare.push(thread);
        }
    }

    /// Logs a message, where the settings say.
    pub(crate) fn tell(&self, bridge: &dyn Bridge, level: u8, text: &[u8]) {
        tell(&self.settings, bridge, level, text);
    }
}

/// Logs a message of a script, or about one, where the settings say.
pub(crate) fn tell(settings: &LuaSettings, bridge: &dyn Bridge, level: u8, text: &[u8]) {
    let taken = settings.to_loggers && bridge.log(level, text);
    if settings.to_stderr == Stderr::On || settings.to_stderr == Stderr::Auto && !taken {
        print(level, text);
    }
}

/// Writes a message to standard error.
pub(crate) fn print(level: u8, text: &[u8]) {
    const NAMES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
    let name = NAMES[usize::from(level.min(7))];
    let mut line = format!("[{}]    ({}) : ", name.to_uppercase(), std::process::id()).into_bytes();
    line.extend_from_slice(text);
    line.push(b'\n');
    // Standard error is the last place to report to.
    let _ = base::output::Standard::Error.write(&line);
}
