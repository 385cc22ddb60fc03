//! The functions for background work: tasks, sockets, requests.

use std::sync::Arc;

use mlua::{Function, Lua, LuaString, Table, Value, Variadic};

use super::core::ScriptRegistry;
use super::function;
use crate::host::ScriptTask;
use crate::host_calls::Handle;
use crate::name_cache::{Called, SharedNames};
use crate::signal::Signal;
use crate::state::{State, StateHome};

/// Adds the functions to the prelude's table.
pub(super) fn fill(lua: &Lua, table: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let shared = called.shared.clone();
    let register = move |lua: &Lua, (run, args): (Function, Variadic<Value>)| {
        let args = args.into_iter().collect();
        if let Some(mut registered) = lua.app_data_mut::<ScriptRegistry>()
            && (registered.is_open || registered.is_starting)
        {
            registered.tasks.push((run, args));
            return Ok(());
        }
        spawn(lua, &shared, |state| ScriptTask::new(state, run, args))
    };
    table.set("register_task", function(lua, register)?)?;
    let shared = called.shared.clone();
    type Following = (mlua::UserDataRef<Signal>, Function, Variadic<Value>);
    table.set(
        "run_task",
        function(lua, move |lua, (over, run, args): Following| {
            spawn(lua, &shared, |state| {
                ScriptTask::new(state, run, args.into_iter().collect()).signal_when_over(over.clone())
            })
        })?,
    )?;
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

/// Runs a task on the calling worker.
fn spawn(lua: &Lua, shared: &SharedNames, make: impl FnOnce(&Arc<State>) -> ScriptTask) -> mlua::Result<()> {
    let state = lua.app_data_ref::<StateHome>().and_then(|home| home.0.upgrade());
    match (state, shared.host()) {
        (Some(state), Some(host)) => {
            host.spawn(make(&state));
            Ok(())
        }
        _ => Err(mlua::Error::runtime("core.register_task: the workers have not started yet")),
    }
}
