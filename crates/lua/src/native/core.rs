//! The class `core`: registration, logging and process-wide functions.

use std::sync::Arc;

use mlua::{Function, Lua, LuaString, Table, Value};

use super::function;
use crate::function::FunctionKind;
use crate::name_cache::Called;

/// The registrations made by the files of a state.
#[derive(Debug, Default)]
pub(crate) struct ScriptRegistry {
    /// Whether files are being loaded. After that, nothing can be registered.
    pub(crate) is_open: bool,
    /// Whether init functions are running before the first connection, when tasks may still be registered.
    pub(crate) is_starting: bool,
    /// Functions, by kind.
    pub(crate) functions: Vec<(FunctionKind, Box<str>, Function)>,
    /// Filters: their names, their classes, and the functions that create one from a configuration line.
    pub(crate) filters: Vec<(Box<str>, Table, Function)>,
    /// Functions to run once the configuration is read.
    pub(crate) inits: Vec<Function>,
    /// Runtime socket commands: their words, help texts, and functions.
    pub(crate) commands: Vec<(Vec<String>, String, Function)>,
    /// Background tasks, with their arguments.
    pub(crate) tasks: Vec<(Function, Vec<Value>)>,
}

/// Creates `core` and `act`.
pub(crate) fn core(lua: &Lua, number: usize, called: &Arc<Called>) -> mlua::Result<()> {
    lua.set_app_data(ScriptRegistry::default());
    let core = lua.create_table()?;
    let levels = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
    for (level, name) in levels.iter().enumerate() {
        core.set(*name, level)?;
    }
    core.set("silent", -1)?;
    core.set("thread", number)?;
    core.set("register_action", function(lua, register_action)?)?;
    core.set(
        "register_fetches",
        function(lua, |lua, (name, run)| register(lua, FunctionKind::Fetch, name, run))?,
    )?;
    core.set(
        "register_converters",
        function(lua, |lua, (name, run)| register(lua, FunctionKind::Converter, name, run))?,
    )?;
    core.set("register_service", function(lua, register_service)?)?;
    core.set("register_filter", function(lua, register_filter)?)?;
    core.set("register_cli", function(lua, register_cli)?)?;
    core.set("register_init", function(lua, register_init)?)?;
    for (name, level) in [("Debug", 7), ("Info", 6), ("Warning", 4), ("Alert", 1)] {
        let shared = called.shared.clone();
        core.set(
            name,
            function(lua, move |_, text: LuaString| {
                shared.log(level, &text.as_bytes());
                Ok(())
            })?,
        )?;
    }
    let shared = called.shared.clone();
    core.set(
        "log",
        function(lua, move |_, (level, text): (i64, LuaString)| {
            if level >= 0 {
                shared.log(level.min(7) as u8, &text.as_bytes());
            }
            Ok(())
        })?,
    )?;
    lua.globals().set("core", core)?;
    let act = lua.create_table()?;
    let outcomes = ["CONTINUE", "STOP", "YIELD", "ERROR", "DONE", "DENY", "ABORT", "INVALID"];
    for (number, name) in outcomes.iter().enumerate() {
        act.set(*name, number)?;
    }
    lua.globals().set("act", act)
}

/// Calls `with` if functions may be registered at this time.
fn opened<R>(lua: &Lua, name: &str, with: impl FnOnce(&mut ScriptRegistry) -> R) -> mlua::Result<R> {
    let mut registered = lua.app_data_mut::<ScriptRegistry>();
    match registered.as_deref_mut() {
        Some(registered) if registered.is_open => Ok(with(registered)),
        _ => Err(mlua::Error::runtime(format!("`{name}` is only available while a file is loaded"))),
    }
}

fn register(lua: &Lua, kind: FunctionKind, name: String, run: Function) -> mlua::Result<()> {
    let what = match kind {
        FunctionKind::Action { .. } => "core.register_action",
        FunctionKind::Fetch => "core.register_fetches",
        FunctionKind::Converter => "core.register_converters",
        FunctionKind::HttpService | FunctionKind::TcpService => "core.register_service",
    };
    check_name(what, &name)?;
    opened(lua, what, |registered| registered.functions.push((kind, name.into(), run)))
}

fn register_action(
    lua: &Lua,
    (name, sets, run, words): (String, Table, Function, Option<usize>),
) -> mlua::Result<()> {
    const SETS: [&str; 5] = ["tcp-req", "tcp-res", "http-req", "http-res", "http-after-res"];
    let sets: Vec<String> = sets.sequence_values().collect::<mlua::Result<_>>()?;
    if let Some(wrong) = sets.iter().find(|set| !SETS.contains(&set.as_str())) {
        return Err(mlua::Error::runtime(format!(
            "core.register_action: unknown rule set `{wrong}`; use {}",
            SETS.join(", ")
        )));
    }
    register(lua, FunctionKind::Action { sets, words: words.unwrap_or(0) }, name, run)
}

fn register_filter(lua: &Lua, (name, class, make): (String, Table, Function)) -> mlua::Result<()> {
    check_name("core.register_filter", &name)?;
    opened(lua, "core.register_filter", |registered| registered.filters.push((name.into(), class, make)))
}

/// Checks that a registered name can be used in a configuration.
fn check_name(what: &str, name: &str) -> mlua::Result<()> {
    if name.is_empty() || name.contains(|c: char| c.is_ascii_whitespace() || "(),".contains(c)) {
        return Err(mlua::Error::runtime(format!(
            "{what}: the name `{name}` cannot be used in a configuration"
        )));
    }
    Ok(())
}

fn register_service(lua: &Lua, (name, mode, run): (String, String, Function)) -> mlua::Result<()> {
    let kind = match mode.as_str() {
        "http" => FunctionKind::HttpService,
        "tcp" => FunctionKind::TcpService,
        other => {
            return Err(mlua::Error::runtime(format!(
                "core.register_service: unknown mode `{other}`; use http or tcp"
            )));
        }
    };
    register(lua, kind, name, run)
}

fn register_cli(lua: &Lua, (path, usage, run): (Table, String, Function)) -> mlua::Result<()> {
    let path: Vec<String> = path.sequence_values().collect::<mlua::Result<_>>()?;
    if path.is_empty() {
        return Err(mlua::Error::runtime("core.register_cli: a command requires at least one word"));
    }
    opened(lua, "core.register_cli", |registered| registered.commands.push((path, usage, run)))
}

fn register_init(lua: &Lua, run: Function) -> mlua::Result<()> {
    opened(lua, "core.register_init", |registered| registered.inits.push(run))
}
