//! Host functions for the prelude and scripts.
//!
//! Functions about a request take the number of their call first ([`crate::bridge`]), except for those in [`methods`].

mod core;
mod debug;
mod events;
mod filters;
mod methods;
mod objects;
mod patterns;
mod process;
mod request;
mod servers;
mod service;
mod strings;
mod tables;
mod tasks;

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use base::raw::bytes_of;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::failure::message_of;
use crate::name_cache::Called;
use crate::settings::LuaSettings;

pub(crate) use self::core::{ScriptRegistry, core};
pub(crate) use self::debug::debug;
pub(crate) use self::filters::FOR_HTTP;

/// Creates a host function. An error is returned as a mark and a text, which the prelude raises as a Lua error, because scripts
/// expect texts.
fn function<A: FromLuaMulti, R: IntoLuaMulti>(
    lua: &Lua,
    run: impl Fn(&Lua, A) -> mlua::Result<R> + Send + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, args: MultiValue| {
        let done = A::from_lua_multi(args, lua).and_then(|args| run(lua, args));
        match done.and_then(|values| values.into_lua_multi(lua)) {
            Err(mlua::Error::MemoryError(text)) => Err(mlua::Error::MemoryError(text)),
            Err(error) => (Value::NULL, message_of(&error)).into_lua_multi(lua),
            done => done,
        }
    })
}

/// Returns the text of an error that a host function raised, and any other value unchanged.
fn error_text(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match error {
        Value::Error(error) => lua.create_string(message_of(&error)).map(Value::String),
        other => Ok(other),
    }
}

/// Returns the file and line of the script that called the current function, if there is one.
fn place(lua: &Lua) -> String {
    for level in 0..MOST_LEVELS {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_script = source.source.as_deref().is_some_and(|name| name.starts_with('@'));
            let (name, line) = (source.short_src?, debug.current_line()?);
            is_script.then(|| format!("{name}:{line}: "))
        });
        match found {
            Some(Some(place)) => return place,
            Some(None) => {}
            None => break,
        }
    }
    String::new()
}

/// How many call levels are searched for a script.
const MOST_LEVELS: usize = 16;

/// Returns the shell commands that set the configured environment before a program runs.
fn exports(environment: &[(String, String)]) -> String {
    let is_own = |name: &str, value: &str| {
        std::env::var_os(name).is_some_and(|own| own.as_bytes() == &*bytes_of(value))
    };
    // With other names, a shell fails.
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let changed = environment.iter().filter(|(name, value)| is_name(name) && !is_own(name, value));
    let set = changed.map(|(name, value)| format!("export {name}='{}'; ", value.replace('\'', "'\\''")));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let gone = names.filter(|name| is_name(name) && environment.iter().all(|(known, _)| known != name));
    set.chain(gone.map(|name| format!("unset {name}; "))).collect()
}

/// Creates the prelude's functions.
pub(crate) fn table(lua: &Lua, settings: &Arc<LuaSettings>, called: &Arc<Called>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    request::fill(lua, &table, settings, called)?;
    table.set("methods", methods::table(lua, settings, called)?)?;
    service::fill(lua, &table)?;
    objects::fill(lua, &table)?;
    process::fill(lua, settings, called)?;
    servers::fill(lua, &table, called)?;
    tasks::fill(lua, &table, called)?;
    events::fill(lua, &table, called)?;
    patterns::fill(lua, &table, called)?;
    tables::fill(lua, &table, called)?;
    filters::fill(lua, &table)?;
    strings::fill(lua, &table)?;
    table.set("place", function(lua, |lua, ()| Ok(place(lua)))?)?;
    table.set("error_text", lua.create_function(error_text)?)?;
    table.set("classes", lua.create_table()?)?;
    table.set("failed", Value::NULL)?;
    table.set("may_fork", settings.may_fork)?;
    let own = settings.clone();
    table.set(
        "getenv",
        function(lua, move |lua, name: String| {
            let found = own.environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| lua.create_string(&*bytes_of(value))).transpose()
        })?,
    )?;
    table.set("exports", lua.create_string(&*bytes_of(&exports(&settings.environment)))?)?;
    Ok(table)
}
