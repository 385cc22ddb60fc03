//! What scripts ask of the process around them: to run beside requests, to speak over sockets, to
//! make requests, to log. The binary does it.

use std::sync::Arc;

use mlua::Value;
use state::statistic::{Statistic, Whose};

use crate::bridge::Bridge;
use crate::running::{CallStep, RunningCall};
use crate::signal::Signal;
use crate::state::State;

/// Who does for scripts what they cannot.
pub trait ScriptHost: Send + Sync {
    /// Logs a message that is of no request; says whether a logger took it.
    fn log(&self, level: u8, text: &[u8]) -> bool;
    /// The statistics of something, as `show stat` and `show info` have them; none where there is no
    /// such thing.
    fn statistics(&self, whose: Whose<'_>) -> Vec<(&'static str, Statistic)>;
    /// The machine's name.
    fn machine(&self) -> String;
    /// Runs a task on the calling worker.
    fn spawn(&self, task: ScriptTask);
    /// Runs a command of the runtime socket; what it answers. One that takes its time goes on after
    /// this.
    ///
    /// # Errors
    /// What it says.
    fn command(&self, words: &[String]) -> Result<String, String>;
}

/// A function that runs beside requests.
#[derive(Debug, Clone)]
pub struct ScriptTask {
    pub(crate) state: Arc<State>,
    run: mlua::Function,
    args: Vec<Value>,
    /// Given when it is over.
    over: Option<Signal>,
}

impl ScriptTask {
    pub(crate) fn new(state: &Arc<State>, run: mlua::Function, args: Vec<Value>) -> Self {
        Self { state: state.clone(), run, args, over: None }
    }

    /// Has this signal given when it is over.
    pub(crate) fn tell(self, over: Signal) -> Self {
        Self { over: Some(over), ..self }
    }

    /// It is over, whatever came of it.
    pub fn end(&self) {
        if let Some(over) = &self.over {
            over.notify();
        }
    }

    /// Begins it.
    pub fn begin(&self, bridge: &dyn Bridge) -> (RunningCall, CallStep) {
        let mut running = RunningCall::new(self.state.clone(), self.state.settings.task);
        let step = running.begin_task(bridge, &self.run, &self.args);
        (running, step)
    }
}

/// A command of the runtime socket that a script registered.
#[derive(Debug, Clone)]
pub struct ScriptCommand {
    state: Arc<State>,
    /// The words that it begins with.
    pub(crate) path: Vec<String>,
    /// What is said of it.
    pub(crate) usage: String,
    run: mlua::Function,
}

impl ScriptCommand {
    pub(crate) fn new(state: &Arc<State>, (path, usage, run): (Vec<String>, String, mlua::Function)) -> Self {
        Self { state: state.clone(), path, usage, run }
    }

    /// Begins it with the words behind its own.
    pub fn begin(&self, bridge: &dyn Bridge, args: &[String]) -> (RunningCall, CallStep) {
        let mut running = RunningCall::new(self.state.clone(), self.state.settings.service);
        let step = running.begin_command(bridge, &self.run, args);
        (running, step)
    }
}
