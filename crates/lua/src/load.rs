//! Loading the files of a configuration.

use std::collections::HashMap;
use std::sync::Arc;

use mlua::{MultiValue, Value};
use sample::pattern::{Method, View};
use scoped_tls_hkt::scoped_thread_local;

use crate::called::Shared;
use crate::function::{Function, Kind};
use crate::native::Registered;
use crate::program::Program;
use crate::running::message_of;
use crate::settings::{Script, Settings};
use crate::state::{Home, State};

/// What files may ask of the configuration while they are loaded.
pub trait Loading {
    /// The map in that file, to be looked into in this way.
    ///
    /// # Errors
    /// It cannot be read.
    fn map(&self, file: &str, method: Method) -> Result<View, String>;
}

scoped_thread_local!(static LOADING: for<'a> &'a (dyn Loading + 'a));

/// Asks the configuration that is being loaded, if one is.
pub(crate) fn loading<R>(ask: impl FnOnce(&dyn Loading) -> R) -> Option<R> {
    LOADING.is_set().then(|| LOADING.with(|loading| ask(loading)))
}

/// Why a file could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Which of the scripts it was; `None` where the interpreter itself would not start.
    pub script: Option<usize>,
    /// What is wrong, with file and line.
    pub message: String,
}

/// Loads all files, the shared state's first and then each worker's, in the order in which they were
/// said.
///
/// # Errors
/// The first file of each state that does not load.
pub fn load(
    settings: Settings,
    scripts: &[Script],
    workers: usize,
    names: &dyn Loading,
) -> Result<Program, Vec<Failed>> {
    LOADING.set(names, || load_all(settings, scripts, workers))
}

fn load_all(settings: Settings, scripts: &[Script], workers: usize) -> Result<Program, Vec<Failed>> {
    let settings = Arc::new(settings);
    let shared = Arc::new(Shared::new(&settings));
    let has = |per_thread: bool| scripts.iter().any(|script| script.per_thread == per_thread);
    let numbers: Vec<usize> =
        has(false).then_some(0).into_iter().chain(1..=if has(true) { workers } else { 0 }).collect();
    let mut program = Program::new(settings.clone(), shared.clone());
    let mut failed = Vec::new();
    // What is allowed is allowed to all of them together.
    let each = settings.max_memory / numbers.len().max(1);
    for number in numbers {
        match load_state(number, &settings, &shared, (each, workers), scripts) {
            Ok((state, registered)) => program.add(&state, registered),
            Err(failure) => {
                failed.push(failure);
                // Those of other workers fail in the same way.
                break;
            }
        }
    }
    program.seal();
    if failed.is_empty() { Ok(program) } else { Err(failed) }
}

fn load_state(
    number: usize,
    settings: &Arc<Settings>,
    shared: &Arc<Shared>,
    (memory, workers): (usize, usize),
    scripts: &[Script],
) -> Result<(Arc<State>, Registered), Failed> {
    let failed = |script: Option<usize>, message: String| Failed { script, message };
    let state = State::new(number, settings, shared, memory, workers)
        .map_err(|error| failed(None, message_of(&error)))?;
    let mine = |script: &&(usize, &Script)| script.1.per_thread == (number > 0);
    if let Some(mut registered) = state.lua.app_data_mut::<Registered>() {
        registered.is_open = true;
    }
    for (index, script) in scripts.iter().enumerate().collect::<Vec<_>>().iter().filter(mine) {
        run(&state, script).map_err(|message| failed(Some(*index), message))?;
    }
    let registered = state.lua.app_data_mut::<Registered>().map(|mut own| std::mem::take(&mut *own));
    let state = Arc::new(state);
    state.lua.set_app_data(Home(Arc::downgrade(&state)));
    Ok((state, registered.unwrap_or_default()))
}

fn run(state: &State, script: &Script) -> Result<(), String> {
    let shown = script.path.display();
    let text = std::fs::read(&script.path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let run = || {
        let arguments: MultiValue = script
            .arguments
            .iter()
            .map(|text| state.lua.create_string(&*base::raw::bytes_of(text)).map(Value::String))
            .collect::<mlua::Result<_>>()?;
        // A first line that names an interpreter is none of Lua's.
        let text = if text.starts_with(b"#") { [b"--", &text[..]].concat() } else { text };
        state.lua.load(text).set_name(format!("@{shown}")).call::<()>(arguments)
    };
    run().map_err(|error| message_of(&error))
}

/// An action for several rule sets as one for each: others may have the same name elsewhere.
fn by_set((kind, name, run): (Kind, Box<str>, mlua::Function)) -> Vec<(Kind, Box<str>, mlua::Function)> {
    let Kind::Action { sets, words } = kind else { return vec![(kind, name, run)] };
    let one = |set: String| (Kind::Action { sets: vec![set], words }, name.clone(), run.clone());
    sets.into_iter().map(one).collect()
}

/// Puts together what one state and another registered by the same name.
pub(crate) fn merge(
    functions: &mut HashMap<(sample::script::Use, Box<str>), Function>,
    state: &Arc<State>,
    registered: Vec<(Kind, Box<str>, mlua::Function)>,
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
