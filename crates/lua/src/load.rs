//! Loads the script files of a configuration.

use std::sync::Arc;

use mlua::{MultiValue, Value};

use crate::failure::message_of;
use crate::fresh;
use crate::loading::{self, Loading};
use crate::name_cache::SharedNames;
use crate::native::ScriptRegistry;
use crate::program::Program;
use crate::settings::{LuaSettings, Script};
use crate::state::{State, StateHome};

/// Why a file could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailed {
    /// The index of the script; `None` if the interpreter itself could not be started.
    pub script: Option<usize>,
    /// The error, with file and line.
    pub message: String,
}

/// Loads all files, the shared state's first and then each worker's, in configuration order.
///
/// # Errors
/// The first file of each state that cannot be loaded.
pub fn load(
    settings: LuaSettings,
    scripts: &[Script],
    workers: usize,
    names: &dyn Loading,
) -> Result<Program, Vec<LoadFailed>> {
    loading::lend(names, || load_all(settings, scripts, workers))
}

fn load_all(settings: LuaSettings, scripts: &[Script], workers: usize) -> Result<Program, Vec<LoadFailed>> {
    let settings = Arc::new(settings);
    let shared = Arc::new(SharedNames::new(&settings));
    let has = |per_thread: bool| scripts.iter().any(|script| script.per_thread == per_thread);
    let numbers: Vec<usize> =
        has(false).then_some(0).into_iter().chain(1..=if has(true) { workers } else { 0 }).collect();
    let mut program = Program::new(settings.clone(), shared.clone());
    let mut failed = Vec::new();
    // The memory limit applies to all states together.
    let each = settings.max_memory / numbers.len().max(1);
    for number in numbers {
        match load_state(number, &settings, &shared, (each, workers), scripts) {
            Ok((state, registered)) => program.add(&state, registered),
            Err(failure) => {
                failed.push(failure);
                // The files of other workers fail in the same way.
                break;
            }
        }
    }
    program.seal();
    if failed.is_empty() { Ok(program) } else { Err(failed) }
}

fn load_state(
    number: usize,
    settings: &Arc<LuaSettings>,
    shared: &Arc<SharedNames>,
    (memory, workers): (usize, usize),
    scripts: &[Script],
) -> Result<(Arc<State>, ScriptRegistry), LoadFailed> {
    let failed = |script: Option<usize>, message: String| LoadFailed { script, message };
    let state = fresh::state(number, settings, shared, memory, workers)
        .map_err(|error| failed(None, message_of(&error)))?;
    let mine = |script: &&(usize, &Script)| script.1.per_thread == (number > 0);
    if let Some(mut registered) = state.lua.app_data_mut::<ScriptRegistry>() {
        registered.is_open = true;
    }
    for (index, script) in scripts.iter().enumerate().collect::<Vec<_>>().iter().filter(mine) {
        run(&state, script).map_err(|message| failed(Some(*index), message))?;
    }
    let registered = state.lua.app_data_mut::<ScriptRegistry>().map(|mut own| std::mem::take(&mut *own));
    let state = Arc::new(state);
    state.lua.set_app_data(StateHome(Arc::downgrade(&state)));
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
        // A shebang line is not valid Lua.
        let text = if text.starts_with(b"#") { [b"--", &text[..]].concat() } else { text };
        state.lua.load(text).set_name(format!("@{shown}")).call::<()>(arguments)
    };
    run().map_err(|error| message_of(&error))
}
