//! The process-wide functions for scripts: pattern lists, process variables, dates, networks.

use std::sync::Arc;

use base::clock::WallTime;
use base::network::Network;
use mlua::{Lua, LuaString, Table, UserData, Value};
use state::statistic::StatisticOwner;

use super::function;
use super::servers::statistics;
use crate::convert;
use crate::name_cache::Called;
use crate::settings::LuaSettings;

/// A network, as scripts compare it.
struct Address(Network);

impl UserData for Address {}

/// Adds the functions of `core`.
pub(super) fn fill(lua: &Lua, settings: &Arc<LuaSettings>, called: &Arc<Called>) -> mlua::Result<()> {
    let core: Table = lua.globals().get("core")?;
    dates(lua, &core)?;
    lists(lua, &core, called)?;
    core.set("tokenize", function(lua, tokenize)?)?;
    core.set(
        "parse_addr",
        function(lua, |lua, text: String| {
            Network::parse(&text).ok().map(|network| lua.create_userdata(Address(network))).transpose()
        })?,
    )?;
    core.set(
        "match_addr",
        function(lua, |_, (one, other): (mlua::AnyUserData, mlua::AnyUserData)| {
            Ok(meet(&one.borrow::<Address>()?.0, &other.borrow::<Address>()?.0))
        })?,
    )?;
    let (own, keeps) = (called.clone(), settings.keeps_booleans);
    core.set(
        "get_var",
        function(lua, move |lua, name: String| match own.variable(&name, false) {
            Some((sample::vars::Var::Process(variable), _)) => convert::to_lua(lua, variable.get(), keeps),
            _ => Ok(Value::Nil),
        })?,
    )?;
    let own = called.clone();
    core.set("get_info", function(lua, move |lua, ()| statistics(lua, &own, StatisticOwner::Process))?)
}

fn dates(lua: &Lua, core: &Table) -> mlua::Result<()> {
    core.set(
        "now",
        function(lua, |lua, ()| {
            let (now, table) = (WallTime::now(), lua.create_table()?);
            table.set("sec", now.seconds)?;
            table.set("usec", now.micros())?;
            Ok(table)
        })?,
    )?;
    for name in ["http_date", "imf_date", "rfc850_date", "asctime_date"] {
        core.set(name, function(lua, |_, text: LuaString| Ok(http::date::parse(&text.as_bytes())))?)?;
    }
    Ok(())
}

/// Splits a text at each of these characters.
fn tokenize(
    lua: &Lua,
    (text, separators, no_blank): (LuaString, LuaString, Option<bool>),
) -> mlua::Result<Table> {
    let (text, separators, table) = (text.as_bytes(), separators.as_bytes(), lua.create_table()?);
    for part in text.split(|byte| separators.contains(byte)) {
        if !(part.is_empty() && no_blank.unwrap_or(false)) {
            table.raw_push(lua.create_string(part)?)?;
        }
    }
    Ok(table)
}

/// Whether one of two networks contains the other.
fn meet(one: &Network, other: &Network) -> bool {
    match (one, other) {
        (Network::V4 { address, mask }, Network::V4 { address: other, mask: of_other }) => {
            let mask = mask & of_other;
            address & mask == other & mask
        }
        (Network::V6 { address, length }, Network::V6 { address: other, length: of_other }) => {
            let length = (*length).min(*of_other);
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            address & mask == other & mask
        }
        _ => false,
    }
}

/// Adds the functions that change pattern lists.
fn lists(lua: &Lua, core: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    for name in ["add_acl", "del_acl", "del_map", "set_map"] {
        let own = called.clone();
        core.set(
            name,
            function(lua, move |_, (file, key, value): (String, LuaString, Option<LuaString>)| {
                let known = own
                    .shared
                    .known()
                    .ok_or_else(|| mlua::Error::runtime("the configuration has not been read yet"))?;
                let list = known
                    .list(&file)
                    .ok_or_else(|| mlua::Error::runtime(format!("core.{name}: `{file}` is not in use")))?;
                let key = key.as_bytes();
                match (name, value) {
                    ("add_acl", _) => list.add_once(&key),
                    ("set_map", Some(value)) => {
                        list.set_or_add(&key, &value.as_bytes());
                    }
                    ("set_map", None) => {
                        return Err(mlua::Error::runtime("core.set_map: missing value"));
                    }
                    _ => {
                        list.remove(&key);
                    }
                }
                Ok(())
            })?,
        )?;
    }
    Ok(())
}
