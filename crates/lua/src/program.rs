//! The scripts of a configuration: their states and registrations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sample::pattern::PatternSets;
use sample::script::Use;
use sample::vars::Var;

use crate::bridge::{Bridge, Nobody};
use crate::filter::FilterClass;
use crate::function::{Function, FunctionKind};
use crate::host::{ScriptCommand, ScriptHost, ScriptTask};
use crate::loading::{self, Loading};
use crate::name_cache::{KnownNames, SharedNames};
use crate::native::ScriptRegistry;
use crate::running::{CallStep, RunningCall};
use crate::settings::LuaSettings;
use crate::state::{self, State};

/// The scripts of a configuration.
#[derive(Debug)]
pub struct Program {
    settings: Arc<LuaSettings>,
    shared: Arc<SharedNames>,
    states: Vec<Arc<State>>,
    loading: HashMap<(Use, Box<str>), Function>,
    functions: HashMap<(Use, Box<str>), Arc<Function>>,
    filters: HashMap<Box<str>, FilterClass>,
    inits: Vec<(Arc<State>, mlua::Function)>,
    tasks: Mutex<Vec<ScriptTask>>,
    commands: Vec<ScriptCommand>,
}

impl Program {
    pub(crate) fn new(settings: Arc<LuaSettings>, shared: Arc<SharedNames>) -> Self {
        Self {
            settings,
            shared,
            states: Vec::new(),
            loading: HashMap::new(),
            functions: HashMap::new(),
            filters: HashMap::new(),
            inits: Vec::new(),
            tasks: Mutex::default(),
            commands: Vec::new(),
        }
    }

    /// Adds a state and the registrations of its files.
    pub(crate) fn add(&mut self, state: &Arc<State>, registered: ScriptRegistry) {
        merge(&mut self.loading, state, registered.functions);
        for (name, class, make) in registered.filters {
            let known = self.filters.entry(name.clone());
            let homes = &mut known.or_insert_with(|| FilterClass { name, homes: Vec::new() }).homes;
            // If two filters have the same name, the first is used, as for functions.
            if !homes.iter().any(|(home, ..)| home.number == 0 || home.number == state.number) {
                homes.push((state.clone(), class, make));
            }
        }
        self.inits.extend(registered.inits.into_iter().map(|run| (state.clone(), run)));
        self.keep_tasks(state, registered.tasks);
        // If two commands have the same words, the first is used, because each worker's state has one.
        for command in registered.commands {
            if !self.commands.iter().any(|own| own.path == command.0) {
                self.commands.push(ScriptCommand::new(state, command));
            }
        }
        self.states.push(state.clone());
    }

    fn keep_tasks(&self, state: &Arc<State>, registered: Vec<(mlua::Function, Vec<mlua::Value>)>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tasks.extend(registered.into_iter().map(|(run, args)| ScriptTask::new(state, run, args)));
    }

    /// Ends loading.
    pub(crate) fn seal(&mut self) {
        let loading = std::mem::take(&mut self.loading);
        self.functions = loading.into_iter().map(|(key, function)| (key, Arc::new(function))).collect();
    }

    /// Returns the settings.
    pub fn settings(&self) -> &LuaSettings {
        &self.settings
    }

    /// Returns the function with that name.
    pub fn function(&self, used: Use, name: &str) -> Option<Arc<Function>> {
        self.functions.get(&(used, Box::from(name))).cloned()
    }

    /// Returns the filter with that name, as registered by scripts.
    pub fn filter(&self, name: &str) -> Option<&FilterClass> {
        self.filters.get(name)
    }

    /// Returns the names of all filters.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        self.filters.keys().map(|name| &**name)
    }

    /// Returns the names of all functions for that use.
    pub fn names(&self, used: Use) -> Vec<Box<str>> {
        self.functions.keys().filter(|(of, _)| *of == used).map(|(_, name)| name.clone()).collect()
    }

    /// Sets the known names, once the configuration is read.
    pub fn know(&self, known: KnownNames) {
        self.shared.know(known);
    }

    /// Replaces the pattern lists.
    pub fn know_lists(&self, lists: Arc<PatternSets>) {
        self.shared.know_lists(lists);
    }

    /// Runs the functions that are registered to run before the first connection (`core.register_init`), which may load maps
    /// through `names`.
    ///
    /// # Errors
    /// The message of a script error.
    pub fn init(&self, names: &dyn Loading) -> Result<(), String> {
        loading::lend(names, || self.run_inits())
    }

    fn run_inits(&self) -> Result<(), String> {
        for (state, run) in &self.inits {
            let registering = |is_starting: bool| {
                let mut own = state.lua.app_data_mut::<ScriptRegistry>();
                own.as_mut().map(|own| {
                    own.is_starting = is_starting;
                    std::mem::take(&mut own.tasks)
                })
            };
            registering(true);
            let mut running = RunningCall::unlimited(state.clone());
            let step = running.begin_alone(&Nobody, run, &[]);
            self.keep_tasks(state, registering(false).unwrap_or_default());
            match step {
                CallStep::Done(_) => {}
                CallStep::Failed(failure) => return Err(failure.text()),
                CallStep::Wait(_) => {
                    return Err("waiting is not possible before the workers start".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Called when another program replaces this one: ends all subscriptions of its scripts.
    pub fn retire(&self) {
        self.shared.close_inboxes();
    }

    /// Whether scripts send the emails about servers.
    pub fn sends_mail(&self) -> bool {
        self.shared.sends_mail()
    }

    /// Returns the variable with that name, which includes its scope, for agents that set script variables. With `adds`, an unknown
    /// one is added as long as there is room.
    pub fn variable(&self, name: &str, adds: bool) -> Option<Var> {
        self.shared.variable(name, adds)
    }

    /// Sets the process's services when the workers start.
    pub fn serve(&self, host: Box<dyn ScriptHost>) {
        self.shared.serve(host);
    }

    /// Returns the tasks that start on the worker with this number.
    pub fn tasks(&self, worker: usize) -> Vec<ScriptTask> {
        let is_its = |task: &&ScriptTask| match task.state.number {
            0 => worker == 0,
            number => number == worker + 1,
        };
        let tasks = self.tasks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tasks.iter().filter(is_its).cloned().collect()
    }

    /// Returns the command that starts with these words. All words are passed to its function.
    pub fn command(&self, words: &[String]) -> Option<&ScriptCommand> {
        let fits = |command: &&ScriptCommand| words.starts_with(&command.path);
        self.commands.iter().filter(fits).max_by_key(|command| command.path.len())
    }

    /// Returns the words of each command, and its help text.
    pub fn usages(&self) -> Vec<(String, String)> {
        self.commands.iter().map(|command| (command.path.join(" "), command.usage.clone())).collect()
    }

    /// Logs a message about a script.
    pub fn log(&self, bridge: &dyn Bridge, level: u8, text: &str) {
        state::log(&self.settings, bridge, level, text.as_bytes());
    }
}

/// Splits an action for several rule sets into one for each, because another action may have the same name in another rule set.
fn by_set(
    (kind, name, run): (FunctionKind, Box<str>, mlua::Function),
) -> Vec<(FunctionKind, Box<str>, mlua::Function)> {
    let FunctionKind::Action { sets, words } = kind else { return vec![(kind, name, run)] };
    let one = |set: String| (FunctionKind::Action { sets: vec![set], words }, name.clone(), run.clone());
    sets.into_iter().map(one).collect()
}

/// Merges functions that several states registered under the same name.
fn merge(
    functions: &mut HashMap<(Use, Box<str>), Function>,
    state: &Arc<State>,
    registered: Vec<(FunctionKind, Box<str>, mlua::Function)>,
) {
    for (kind, name, run) in registered.into_iter().flat_map(by_set) {
        let key = kind.key(&name);
        let function =
            functions.entry((kind.used(), key)).or_insert_with(|| Function { name, kind, homes: Vec::new() });
        // If two functions have the same name, the first is used: the shared state's, or the first of one state.
        if !function.homes.iter().any(|(home, _)| home.number == 0 || home.number == state.number) {
            function.homes.push((state.clone(), run));
        }
    }
}
