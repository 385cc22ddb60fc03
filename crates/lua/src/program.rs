//! All that the scripts of a configuration are: their states and what they registered.

use std::collections::HashMap;
use std::sync::Arc;

use sample::script::Use;

use crate::bridge::Bridge;
use crate::called::{Known, Shared};
use crate::function::Function;
use crate::load::merge;
use crate::native::Registered;
use crate::running::message_of;
use crate::settings::Settings;
use crate::state::{self, State};

/// The scripts of a configuration.
#[derive(Debug)]
pub struct Program {
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    states: Vec<Arc<State>>,
    loading: HashMap<(Use, Box<str>), Function>,
    functions: HashMap<(Use, Box<str>), Arc<Function>>,
    inits: Vec<(Arc<State>, mlua::Function)>,
}

impl Program {
    pub(crate) fn new(settings: Arc<Settings>, shared: Arc<Shared>) -> Self {
        Self {
            settings,
            shared,
            states: Vec::new(),
            loading: HashMap::new(),
            functions: HashMap::new(),
            inits: Vec::new(),
        }
    }

    /// Adds a state and what its files registered.
    pub(crate) fn add(&mut self, state: &Arc<State>, registered: Registered) {
        merge(&mut self.loading, state, registered.functions);
        self.inits.extend(registered.inits.into_iter().map(|run| (state.clone(), run)));
        self.states.push(state.clone());
    }

    /// Ends loading.
    pub(crate) fn seal(&mut self) {
        let loading = std::mem::take(&mut self.loading);
        self.functions = loading.into_iter().map(|(key, function)| (key, Arc::new(function))).collect();
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The function of that name.
    pub fn function(&self, used: Use, name: &str) -> Option<Arc<Function>> {
        self.functions.get(&(used, Box::from(name))).cloned()
    }

    /// The names of all functions of that use.
    pub fn names(&self, used: Use) -> Vec<Box<str>> {
        self.functions.keys().filter(|(of, _)| *of == used).map(|(_, name)| name.clone()).collect()
    }

    /// Tells what names mean, once the configuration is read.
    pub fn know(&self, known: Known) {
        self.shared.know(known);
    }

    /// Runs what files registered to be run before the first connection (`core.register_init`).
    ///
    /// # Errors
    /// What an error of theirs says.
    pub fn init(&self) -> Result<(), String> {
        for (_, run) in &self.inits {
            run.call::<()>(()).map_err(|error| message_of(&error))?;
        }
        Ok(())
    }

    /// Logs a message about a script.
    pub fn tell(&self, bridge: &dyn Bridge, level: u8, text: &str) {
        state::tell(&self.settings, bridge, level, text.as_bytes());
    }
}
