//! An interpreter state: the shared one, or a worker's own. Created by `fresh`.

use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, Table, Thread};

use crate::bridge::Bridge;
use crate::settings::{LuaSettings, Stderr};

/// The maximum number of finished coroutines kept for reuse.
const SPARE: usize = 32;

/// A state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// 0 for the shared state, otherwise the worker's number from 1.
    pub(crate) number: usize,
    pub(crate) settings: Arc<LuaSettings>,
    /// Maximum number of instructions per turn.
    pub(crate) turn: u32,
    /// The main function of a coroutine: runs one call after the other.
    pub(crate) run: Function,
    /// Runs a function with a transaction as its argument.
    pub(crate) act: Function,
    /// Run services.
    pub(crate) serve_http: Function,
    pub(crate) serve_tcp: Function,
    pub(crate) serve_command: Function,
    /// Creates filters and calls their functions.
    pub(crate) filters: Table,
    /// The members of each class, by its name, for checking the reference documentation.
    #[cfg(test)]
    pub(crate) classes: Table,
    /// Idle coroutines.
    pub(crate) spare: Mutex<Vec<Thread>>,
}

/// The state in which a host function was called.
pub(crate) struct StateHome(pub(crate) std::sync::Weak<State>);

impl State {
    /// Returns a coroutine for a call.
    pub(crate) fn thread(&self) -> mlua::Result<Thread> {
        let spare = self.spare.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        spare.map_or_else(|| self.lua.create_thread(self.run.clone()), Ok)
    }

    /// Keeps the coroutine of a finished call.
    pub(crate) fn keep(&self, thread: Thread) {
        let mut spare = self.spare.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if spare.len() < SPARE {
            spare.push(thread);
        }
    }

    /// Logs a message, according to the settings.
    pub(crate) fn log(&self, bridge: &dyn Bridge, level: u8, text: &[u8]) {
        log(&self.settings, bridge, level, text);
    }
}

/// Logs a message of a script, or about a script, according to the settings.
pub(crate) fn log(settings: &LuaSettings, bridge: &dyn Bridge, level: u8, text: &[u8]) {
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
    // If this also fails, there is nothing left to report to.
    let _ = base::output::Standard::Error.write(&line);
}
