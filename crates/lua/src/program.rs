//! All that the scripts of a configuration are: their states and what they registered.

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

    /// Adds a state and what its files registered.
    pub(crate) fn add(&mut self, state: &Arc<State>, registered: ScriptRegistry) {
        merge(&mut self.loading, state, registered.functions);
        for (name, class, make) in registered.filters {
            let known = self.filters.entry(name.clone());
            let homes = &mut known.or_insert_with(|| FilterClass { name, homes: Vec::new() }).homes;
            // Of two by one name the first counts, as with functions.
            if !homes.iter().any(|(home, ..)| home.number == 0 || home.number == state.number) {
                homes.push((state.clone(), class, make));
            }
        }
        self.inits.extend(registered.inits.into_iter().map(|run| (state.clone(), run)));
        self.keep_tasks(state, registered.tasks);
        // Of those by the same words the first counts: each worker's state has one.
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

    /// The settings.
    pub fn settings(&self) -> &LuaSettings {
        &self.settings
    }

    /// The function of that name.
    pub fn function(&self, used: Use, name: &str) -> Option<Arc<Function>> {
        self.functions.get(&(used, Box::from(name))).cloned()
    }

    /// The filter of that name, as scripts registered it.
    pub fn filter(&self, name: &str) -> Option<&FilterClass> {
        self.filters.get(name)
    }

    /// The names of all filters.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        self.filters.keys().map(|name| &**name)
    }

    /// The names of all functions of that use.
    pub fn names(&self, used: Use) -> Vec<Box<str>> {
        self.functions.keys().filter(|(of, _)| *of == used).map(|(_, name)| name.clone()).collect()
    }

    /// Tells what names mean, once the configuration is read.
    pub fn know(&self, known: KnownNames) {
        self.shared.know(known);
    }

    /// Tells which pattern lists there are from now on.
    pub fn know_lists(&self, lists: Arc<PatternSets>) {
        self.shared.know_lists(lists);
    }

    /// Runs what files registered to be run before the first connection (`core.register_init`), which
    /// may load maps by `names`.
    ///
    /// # Errors
    /// What an error of theirs says.
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
                    return Err("nothing can be waited for before the workers start".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Another program takes its place: what its scripts subscribed to is told to them no more.
    pub fn retire(&self) {
        self.shared.close_inboxes();
    }

    /// Whether scripts send the e-mails about servers.
    pub fn sends_mail(&self) -> bool {
        self.shared.sends_mail()
    }

    /// The variable of that name, which begins with its scope, for agents that set variables of scripts.
    /// With `adds` an unknown one is added, as long as there is room.
    pub fn variable(&self, name: &str, adds: bool) -> Option<Var> {
        self.shared.variable(name, adds)
    }

    /// Has `host` do what scripts cannot, now that the workers start.
    pub fn serve(&self, host: Box<dyn ScriptHost>) {
        self.shared.serve(host);
    }

    /// The tasks that begin on the worker of this number.
    pub fn tasks(&self, worker: usize) -> Vec<ScriptTask> {
        let is_its = |task: &&ScriptTask| match task.state.number {
            0 => worker == 0,
            number => number == worker + 1,
        };
        let tasks = self.tasks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tasks.iter().filter(is_its).cloned().collect()
    }

    /// The command that begins with these words, all of which its function gets.
    pub fn command(&self, words: &[String]) -> Option<&ScriptCommand> {
        let fits = |command: &&ScriptCommand| words.starts_with(&command.path);
        self.commands.iter().filter(fits).max_by_key(|command| command.path.len())
    }

    /// The words of each command, and its usage.
    pub fn usages(&self) -> Vec<(String, String)> {
        self.commands.iter().map(|command| (command.path.join(" "), command.usage.clone())).collect()
    }

    /// Logs a message about a script.
    pub fn tell(&self, bridge: &dyn Bridge, level: u8, text: &str) {
        state::tell(&self.settings, bridge, level, text.as_bytes());
    }
}

/// An action for several rule sets as one for each: others may have the same name elsewhere.
fn by_set(
    (kind, name, run): (FunctionKind, Box<str>, mlua::Function),
) -> Vec<(FunctionKind, Box<str>, mlua::Function)> {
    let FunctionKind::Action { sets, words } = kind else { return vec![(kind, name, run)] };
    let one = |set: String| (FunctionKind::Action { sets: vec![set], words }, name.clone(), run.clone());
    sets.into_iter().map(one).collect()
}

/// Puts together what one state and another registered by the same name.
fn merge(
    functions: &mut HashMap<(Use, Box<str>), Function>,
    state: &Arc<State>,
    registered: Vec<(FunctionKind, Box<str>, mlua::Function)>,
) {
    for (kind, name, run) in registered.into_iter().flat_map(by_set) {
        let key = kind.key(&name);
        let function =
            functions.entry((kind.used(), key)).or_insert_with(|| Function { name, kind, homes: Vec::new() });
        // Of two by one name the first counts: the shared state's, or the first of one state.
        if !function.homes.iter().any(|(home, _)| home.number == 0 || home.number == state.number) {
            function.homes.push((state.clone(), run));
        }
    }
}
