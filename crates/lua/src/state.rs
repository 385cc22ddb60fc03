//! One state of the interpreter: the one that all workers share, or one of a worker's own.

use std::io::Write;
use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Thread};

use crate::bridge::Bridge;
use crate::budget;
use crate::called::{Called, Shared};
use crate::native;
use crate::settings::{Libraries, Settings, Stderr};

/// So many coroutines that have ended are kept for calls to come.
const SPARE: usize = 32;

/// A state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// 0 for the one that all workers share, else 1 and more for that of a worker.
    pub(crate) number: usize,
    pub(crate) settings: Arc<Settings>,
    /// What a coroutine runs: one call after the other.
    run: Function,
    /// What runs a function that gets a transaction.
    pub(crate) act: Function,
    /// What run services.
    pub(crate) serve_http: Function,
    pub(crate) serve_tcp: Function,
    pub(crate) serve_command: Function,
    /// The members of each class, by its name, for the reference.
    #[cfg(test)]
    pub(crate) classes: Table,
    /// Coroutines that wait for a call.
    spare: Mutex<Vec<Thread>>,
}

/// The state that a function of the host was called in.
pub(crate) struct Home(pub(crate) std::sync::Weak<State>);

impl State {
    /// A state without scripts; `number` is what they see as `core.thread`.
    pub(crate) fn new(
        number: usize,
        settings: &Arc<Settings>,
        shared: &Arc<Shared>,
        max_memory: usize,
        workers: usize,
    ) -> mlua::Result<Self> {
        let lua = Lua::new_with(libraries(settings.libraries), LuaOptions::default())?;
        if max_memory > 0 {
            lua.set_memory_limit(max_memory)?;
        }
        prepare_libraries(&lua, settings)?;
        let called = Arc::new(Called::new(shared.clone()));
        native::core(&lua, number, &called)?;
        let native = native::table(&lua, settings, &called)?;
        lua.load(include_str!("prelude/guard.lua")).set_name("=guard").call::<()>(&native)?;
        let scheduling: Table = part(&lua, "scheduling", include_str!("prelude/scheduling.lua"), (&native,))?;
        let classes: Table =
            part(&lua, "classes", include_str!("prelude/classes.lua"), (&native, &scheduling))?;
        let services: Table =
            part(&lua, "services", include_str!("prelude/services.lua"), (&native, &scheduling, &classes))?;
        lua.load(include_str!("prelude/process.lua"))
            .set_name("=process")
            .call::<()>((&native, &scheduling))?;
        let default = if number == 0 { (10_000 / workers.max(1) as u32).max(500) } else { 10_000 };
        budget::watch(&lua, settings.forced_yield.unwrap_or(default))?;
        Ok(Self {
            #[cfg(test)]
            classes: native.get("classes")?,
            run: scheduling.get("loop")?,
            act: classes.get("act")?,
            serve_http: services.get("serve_http")?,
            serve_tcp: services.get("serve_tcp")?,
            serve_command: services.get("serve_command")?,
            lua,
            number,
            settings: settings.clone(),
            spare: Mutex::default(),
        })
    }

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
pub(crate) fn tell(settings: &Settings, bridge: &dyn Bridge, level: u8, text: &[u8]) {
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
    // There is nobody to tell that nobody listens.
    let _ = std::io::stderr().write_all(&line);
}

fn part(lua: &Lua, name: &str, text: &str, args: impl mlua::IntoLuaMulti) -> mlua::Result<Table> {
    lua.load(text).set_name(format!("={name}")).call(args)
}

fn libraries(wanted: Libraries) -> StdLib {
    let all = [
        (wanted.table, StdLib::TABLE),
        (wanted.io, StdLib::IO),
        (wanted.os, StdLib::OS),
        (wanted.string, StdLib::STRING),
        (wanted.math, StdLib::MATH),
        (wanted.utf8, StdLib::UTF8),
        (wanted.package, StdLib::PACKAGE),
    ];
    all.iter().filter(|(is_wanted, _)| *is_wanted).fold(StdLib::COROUTINE, |all, (_, one)| all | *one)
}

/// Adds paths. Libraries in C are not loaded: nothing would
/// bound what they do.
fn prepare_libraries(lua: &Lua, settings: &Settings) -> mlua::Result<()> {
    let globals = lua.globals();
    if let Ok(package) = globals.get::<Table>("package")
        && !settings.paths.is_empty()
    {
        let old: String = package.get("path")?;
        package.set("path", format!("{};{old}", settings.paths.join(";")))?;
    }
    if settings.libraries.debug {
        globals.set("debug", native::debug(lua)?)?;
    }
    Ok(())
}
