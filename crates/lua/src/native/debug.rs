//! The harmless part of Lua's `debug` library: inspecting the stack.
//!
//! Functions that change functions and metatables from outside are left out, because they could change the host's own.

use mlua::{Lua, Table, Value};

use crate::budget;

/// Creates the library.
pub(crate) fn debug(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set("traceback", lua.create_function(traceback)?)?;
    table.set("getinfo", lua.create_function(info)?)?;
    Ok(table)
}

fn traceback(lua: &Lua, (message, level): (Value, Option<usize>)) -> mlua::Result<Value> {
    // Inspecting a deep stack takes time.
    budget::is_over(lua);
    let text = match &message {
        Value::Nil => None,
        Value::String(text) => Some(text.to_string_lossy()),
        Value::Integer(_) | Value::Number(_) => Some(message.to_string()?),
        // As in Lua, values other than text are returned unchanged.
        _ => return Ok(message),
    };
    lua.traceback(text.as_deref(), level.unwrap_or(1)).map(Value::String)
}

fn info(lua: &Lua, level: Value) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    match level {
        Value::Function(function) => {
            let info = function.info();
            table.set("short_src", info.short_src)?;
            table.set("source", info.source)?;
            table.set("what", info.what)?;
            table.set("linedefined", info.line_defined)?;
            table.set("lastlinedefined", info.last_line_defined)?;
        }
        level => {
            budget::is_over(lua);
            let level = level.as_usize().unwrap_or(1);
            let found = lua.inspect_stack(level, |debug| {
                let source = debug.source();
                table.set("short_src", source.short_src.as_deref())?;
                table.set("source", source.source.as_deref())?;
                table.set("what", source.what)?;
                table.set("linedefined", source.line_defined)?;
                table.set("currentline", debug.current_line())?;
                table.set("name", debug.names().name.as_deref())
            });
            match found {
                Some(filled) => filled?,
                None => return Ok(Value::Nil),
            }
        }
    }
    Ok(Value::Table(table))
}
