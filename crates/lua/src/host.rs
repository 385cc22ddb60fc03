//! Services of the surrounding process for scripts: background tasks, sockets, requests, logging. Implemented by the binary.

use std::sync::Arc;

use mlua::Value;
use state::statistic::{Statistic, StatisticOwner};

use crate::bridge::Bridge;
use crate::running::{CallStep, RunningCall};
use crate::signal::Signal;
use crate::state::State;

/// The process's services for scripts.
pub trait ScriptHost: Send + Sync {
    /// Logs a message outside of any request; returns whether a logger accepted it.
    fn log(&self, level: u8, text: &[u8]) -> bool;
    /// Reports a change of a server to the loggers of its backend.
    fn report(&self, backend: &state::Proxy, level: u8, text: &str);
    /// Returns the statistics of an object, as in `show stat` and `show info`; empty if it does not exist.
    fn statistics(&self, whose: StatisticOwner<'_>) -> Vec<(&'static str, Statistic)>;
    /// Returns the host name.
    fn machine(&self) -> String;
    /// Runs a task on the calling worker.
    fn spawn(&self, task: ScriptTask);
    /// Runs a command of the runtime socket; returns its output. A slow command continues in the background.
    ///
    /// # Errors
    /// The command's error message.
    fn command(&self, words: &[String]) -> Result<String, String>;
}

/// A background function.
#[derive(Debug, Clone)]
pub struct ScriptTask {
    pub(crate) state: Arc<State>,
    run: mlua::Function,
    args: Vec<Value>,
    /// The signal to give when the task has ended.
    over: Option<Signal>,
}

impl ScriptTask {
    pub(crate) fn new(state: &Arc<State>, run: mlua::Function, args: Vec<Value>) -> Self {
        Self { state: state.clone(), run, args, over: None }
    }

    /// Sets the signal to give when the task has ended.
    pub(crate) fn signal_when_over(self, over: Signal) -> Self {
        Self { over: Some(over), ..self }
    }

    /// Marks the task as finished, whatever its result.
    pub fn end(&self) {
        if let Some(over) = &self.over {
            over.notify();
        }
    }

    /// Starts the task.
    pub fn begin(&self, bridge: &dyn Bridge) -> (RunningCall, CallStep) {
        let mut running = RunningCall::new(self.state.clone(), self.state.settings.task);
        let step = running.begin_task(bridge, &self.run, &self.args);
        (running, step)
    }
}

/// A runtime socket command registered by a script.
#[derive(Debug, Clone)]
pub struct ScriptCommand {
    state: Arc<State>,
    /// The words with which the command starts.
    pub(crate) path: Vec<String>,
    /// The command's help text.
    pub(crate) usage: String,
    run: mlua::Function,
}

impl ScriptCommand {
    pub(crate) fn new(state: &Arc<State>, (path, usage, run): (Vec<String>, String, mlua::Function)) -> Self {
        Self { state: state.clone(), path, usage, run }
    }

    /// Starts the command with the words after its own.
    pub fn begin(&self, bridge: &dyn Bridge, args: &[String]) -> (RunningCall, CallStep) {
        let mut running = RunningCall::new(self.state.clone(), self.state.settings.service);
        let step = running.begin_command(bridge, &self.run, args);
        (running, step)
    }
}
