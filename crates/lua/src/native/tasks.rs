//! What scripts have run beside requests, and what they ask of others: tasks, sockets.

use std::sync::Arc;

use mlua::{Function, Lua, LuaString, Table, Value, Variadic};

use super::core::Registered;
use super::function;
use crate::asked::Handle;
use crate::called::Called;
use crate::host::Task;
use crate::state::Home;

/// Adds the functions to the prelude's table.
pub(super) fn fill(lua: &Lua, table: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let shared = called.shared.clone();
    let register = move |lua: &Lua, (run, args): (Function, Variadic<Value>)| {
        if let Some(mut registered) = lua.app_data_mut::<Registered>()
            && registered.is_open
        {
            registered.tasks.push((run, args.into_iter().collect()));
            return Ok(());
        }
        let state = lua.app_data_ref::<Home>().and_then(|home| home.0.upgrade());
        match (state, shared.host()) {
            (Some(state), Some(host)) => {
                host.spawn(Task::new(&state, run, args.into_iter().collect()));
                Ok(())
            }
            _ => Err(mlua::Error::runtime("core.register_task: the workers have not started")),
        }
    };
    table.set("register_task", function(lua, register)?)?;
    table.set("socket", function(lua, |_, ()| Ok(Handle::default()))?)?;
    table.set(
        "part",
        function(lua, |lua, (text, first, last): (LuaString, i64, i64)| {
            let text = text.as_bytes();
            let place = |place: i64| if place < 0 { text.len() as i64 + place + 1 } else { place };
            let (first, last) = (place(first).max(1), place(last).min(text.len() as i64));
            let part = if first > last { &[][..] } else { &text[first as usize - 1..last as usize] };
            lua.create_string(part)
        })?,
    )
}
