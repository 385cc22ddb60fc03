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

use mlua::{Lua, Table};

use crate::called::Called;
use crate::settings::Settings;

pub(crate) use self::core::{Registered, core};
pub(crate) use self::debug::debug;

/// The functions of the prelude.
pub(crate) fn table(lua: &Lua, settings: &Arc<Settings>, called: &Arc<Called>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    request::fill(lua, &table, settings, called)?;
    service::fill(lua, &table)?;
    objects::fill(lua, &table)?;
    process::fill(lua, &table, settings, called)?;
    tasks::fill(lua, &table, called)?;
    Ok(table)
}
