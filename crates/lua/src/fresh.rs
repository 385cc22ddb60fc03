//! Creates an interpreter state: the Lua libraries that scripts may use, the functions of the host, and the prelude on top of them.

use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};

use crate::budget;
use crate::name_cache::{Called, SharedNames};
use crate::native;
use crate::settings::{Libraries, LuaSettings};
use crate::state::State;

/// Creates a state without scripts. Scripts see `number` as `core.thread`.
pub(crate) fn state(
    number: usize,
    settings: &Arc<LuaSettings>,
    shared: &Arc<SharedNames>,
    max_memory: usize,
    workers: usize,
) -> mlua::Result<State> {
    let lua = Lua::new_with(libraries(settings.libraries), LuaOptions::default())?;
    if max_memory > 0 {
        lua.set_memory_limit(max_memory)?;
    }
    prepare_libraries(&lua, settings)?;
    let called = Arc::new(Called::new(shared.clone()));
    native::core(&lua, number, &called)?;
    let native = native::table(&lua, settings, &called)?;
    lua.load(include_str!("prelude/guard.lua")).set_name("=guard").call::<()>(&native)?;
    native.set("over", lua.create_function(|lua, ()| Ok(budget::is_over(lua)))?)?;
    native.set("is_over", lua.create_function(|_, ()| Ok(budget::is_late()))?)?;
    native.set("is_native", lua.create_function(|_, run: Function| Ok(run.info().what == "C"))?)?;
    let bounds: Table = part(&lua, "bounds", include_str!("prelude/bounds.lua"), (&native,))?;
    let scheduling: Table =
        part(&lua, "scheduling", include_str!("prelude/scheduling.lua"), (&native, &bounds))?;
    let classes: Table = part(&lua, "classes", include_str!("prelude/classes.lua"), (&native, &scheduling))?;
    let services: Table =
        part(&lua, "services", include_str!("prelude/services.lua"), (&native, &scheduling, &classes))?;
    let process: Table = part(&lua, "process", include_str!("prelude/process.lua"), (&native, &scheduling))?;
    lua.load(include_str!("prelude/events.lua")).set_name("=events").call::<()>((
        &native,
        &scheduling,
        &process,
    ))?;
    let filters: Table =
        part(&lua, "filters", include_str!("prelude/filters.lua"), (&native, &scheduling, &classes))?;
    bounds.get::<Function>("install")?.call::<()>(())?;
    let default = if number == 0 { (10_000 / workers.max(1) as u32).max(500) } else { 10_000 };
    let turn = settings.forced_yield.unwrap_or(default);
    budget::watch(&lua, turn)?;
    Ok(State {
        #[cfg(test)]
        classes: native.get("classes")?,
        run: scheduling.get("loop")?,
        act: classes.get("act")?,
        serve_http: services.get("serve_http")?,
        serve_tcp: services.get("serve_tcp")?,
        serve_command: services.get("serve_command")?,
        filters,
        lua,
        turn,
        number,
        settings: settings.clone(),
        spare: Mutex::default(),
    })
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

/// Adds search paths. Libraries in C are not loaded, because nothing could limit them.
fn prepare_libraries(lua: &Lua, settings: &LuaSettings) -> mlua::Result<()> {
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
    globals.set("print", print(lua)?)
}

/// `print` as defined by Lua (reference manual, 6.1), except that it does not wait for the reader of standard output, because that
/// would block the worker.
fn print(lua: &Lua) -> mlua::Result<Function> {
    let to_string: Function = lua.globals().get("tostring")?;
    lua.create_function(move |_, values: Variadic<Value>| {
        let mut line = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                line.push(b'\t');
            }
            line.extend_from_slice(&to_string.call::<mlua::LuaString>(value)?.as_bytes());
        }
        line.push(b'\n');
        // If a line is lost, the script continues.
        let _ = base::output::Standard::Output.write(&line);
        Ok(())
    })
}
