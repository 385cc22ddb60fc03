//! What the prelude and scripts call of the host.
//!
//! Functions about a request take the number of their call first ([`crate::bridge`]).

mod core;
mod debug;
mod objects;
mod process;
mod request;
mod service;
mod tasks;

use std::sync::Arc;

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::called::Called;
use crate::failure::message_of;
use crate::settings::Settings;

pub(crate) use self::core::{Registered, core};
pub(crate) use self::debug::debug;

/// A function of the host. Its error comes back as a mark and a text, of which the prelude makes an
/// error of Lua: scripts expect texts.
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

/// The functions of the prelude.
pub(crate) fn table(lua: &Lua, settings: &Arc<Settings>, called: &Arc<Called>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    request::fill(lua, &table, settings, called)?;
    service::fill(lua, &table)?;
    objects::fill(lua, &table)?;
    process::fill(lua, &table, settings, called)?;
    tasks::fill(lua, &table, called)?;
    table.set("classes", lua.create_table()?)?;
    table.set("failed", Value::NULL)?;
    table.set("may_fork", settings.may_fork)?;
    Ok(table)
}
