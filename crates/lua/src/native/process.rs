//! What scripts see and change of the process: proxies and servers, pattern lists, variables of the
//! process, dates, networks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::WallTime;
use base::network::Network;
use mlua::{Lua, LuaString, Table, UserData, Value};
use state::server::{Admin, ServerAddress};
use state::{Proxy, Server, transition};

use super::function;
use crate::called::Called;
use crate::convert;
use crate::settings::Settings;
use ::state::statistic::{Statistic, Whose};

/// A network that scripts compare.
struct Address(Network);

impl UserData for Address {}

/// Adds the functions of `core`, and those of the prelude.
pub(super) fn fill(
    lua: &Lua,
    native: &Table,
    settings: &Arc<Settings>,
    called: &Arc<Called>,
) -> mlua::Result<()> {
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
            Some(sample::vars::Var::Process(variable)) => convert::to_lua(lua, variable.get(), keeps),
            _ => Ok(Value::Nil),
        })?,
    )?;
    let own = called.clone();
    core.set("get_info", function(lua, move |lua, ()| statistics(lua, &own, Whose::Process))?)?;
    let own = called.clone();
    native.set(
        "statistics",
        function(lua, move |lua, (backend, name, server): (bool, String, Option<String>)| {
            let whose = match &server {
                Some(server) => Whose::Server(&name, server),
                None if backend => Whose::Backend(&name),
                None => Whose::Frontend(&name),
            };
            statistics(lua, &own, whose)
        })?,
    )?;
    proxies(lua, native, called)
}

/// Statistics by their names.
fn statistics(lua: &Lua, called: &Called, whose: Whose<'_>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in called.shared.host().map_or_else(Vec::new, |host| host.statistics(whose)) {
        match value {
            Statistic::Integer(number) => table.set(name, number)?,
            Statistic::Number(number) => table.set(name, number)?,
            Statistic::Text(text) => table.set(name, text)?,
        }
    }
    Ok(table)
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

/// Cuts a text at each of these characters.
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

/// Whether one of two networks is within the other.
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

/// Changes of pattern lists.
fn lists(lua: &Lua, core: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    for name in ["add_acl", "del_acl", "del_map", "set_map"] {
        let own = called.clone();
        core.set(
            name,
            function(lua, move |_, (file, key, value): (String, LuaString, Option<LuaString>)| {
                let known = own
                    .shared
                    .known()
                    .ok_or_else(|| mlua::Error::runtime("the configuration is not read yet"))?;
                let list = known
                    .lists
                    .find(&file)
                    .ok_or_else(|| mlua::Error::runtime(format!("core.{name}: `{file}` is used nowhere")))?;
                let key = key.as_bytes();
                match (name, value) {
                    ("add_acl", _) => list.add_once(&key),
                    ("set_map", Some(value)) => {
                        list.set(&key, &value.as_bytes());
                    }
                    ("set_map", None) => {
                        return Err(mlua::Error::runtime("core.set_map: a value is missing"));
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

/// What the prelude makes `core.proxies` of: names and numbers, and functions by both.
fn proxies(lua: &Lua, native: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let own = called.clone();
    native.set(
        "proxies",
        function(lua, move |lua, backends: bool| {
            let table = lua.create_table()?;
            let Some(known) = own.shared.known() else { return Ok(table) };
            let all = if backends { &known.directory.backends } else { &known.directory.frontends };
            for name in all.keys() {
                table.raw_push(&**name)?;
            }
            Ok(table)
        })?,
    )?;
    let own = called.clone();
    native.set(
        "proxy",
        function(lua, move |lua, (backend, name, what): (bool, String, String)| {
            let proxy = find(&own, backend, &name)?;
            of_proxy(lua, &proxy, &what)
        })?,
    )?;
    let own = called.clone();
    type Arguments = (String, String, String, Option<Value>);
    native.set(
        "server",
        function(lua, move |lua, (backend, name, what, value): Arguments| {
            let proxy = find(&own, true, &backend)?;
            match proxy.server(&name) {
                Some(server) => of_server(lua, &proxy, &server, &what, value),
                None => Ok(Value::Nil),
            }
        })?,
    )
}

fn find(called: &Called, backend: bool, name: &str) -> mlua::Result<Arc<Proxy>> {
    let known = called.shared.known().map(|known| &known.directory);
    let all = known.map(|known| if backend { &known.backends } else { &known.frontends });
    let found = all.and_then(|all| all.get(name)).cloned();
    found.ok_or_else(|| mlua::Error::runtime(format!("there is no proxy `{name}`")))
}

fn of_proxy(lua: &Lua, proxy: &Proxy, what: &str) -> mlua::Result<Value> {
    let text = |text: &str| lua.create_string(text).map(Value::String);
    let (active, backup) = proxy.usable();
    match what {
        "uuid" => text(&proxy.configured().id.to_string()),
        "cap" => text(match (proxy.is_frontend, proxy.is_backend) {
            (true, true) => "proxy",
            (true, false) => "frontend",
            _ => "backend",
        }),
        "mode" => text(proxy.mode.name()),
        "act" => Ok(Value::Integer(active.into())),
        "bck" => Ok(Value::Integer(backup.into())),
        _ => {
            let names = lua.create_table()?;
            for server in proxy.servers.load().iter() {
                names.raw_push(lua.create_string(server.name.as_bytes())?)?;
            }
            Ok(Value::Table(names))
        }
    }
}

fn of_server(
    lua: &Lua,
    proxy: &Proxy,
    server: &Server,
    what: &str,
    value: Option<Value>,
) -> mlua::Result<Value> {
    let text = |text: &str| lua.create_string(text).map(Value::String);
    let number = |number: u32| Ok(Value::Integer(number.into()));
    let now_ms = base::clock::now_ms();
    let administer = |set: u32, clear: u32| {
        transition::administer(proxy, server, (set, clear), " by a script", now_ms, &|_, _, _| {});
        Ok(Value::Nil)
    };
    match what {
        "puid" => text(&server.id.to_string()),
        "draining" => Ok(Value::Boolean(server.admin().draining())),
        "backup" => Ok(Value::Boolean(server.backup)),
        "sessions" => number(server.serving()),
        "pending" => number(server.queue.len()),
        "maxconn" => match value.as_ref().and_then(Value::as_u32) {
            Some(limit) => {
                server.set_maxconn(limit);
                Ok(Value::Nil)
            }
            None => number(server.maxconn.load(Relaxed)),
        },
        "weight" => match value {
            Some(value) => {
                let weight = weight(&value, server.initial_weight())?;
                server.set_weight(weight);
                transition::refresh_backend(proxy, now_ms);
                Ok(Value::Nil)
            }
            None => number(server.user_weight()),
        },
        "addr" => match &**server.address.load() {
            ServerAddress::Ip(address) => text(&address.to_string()),
            ServerAddress::Unix(path) => text(&format!("unix:{}", path.display())),
            _ => text("<unknown>"),
        },
        "drain" => administer(Admin::FORCED_DRAIN, Admin::FORCED_MAINT),
        "maint" => administer(Admin::FORCED_MAINT, 0),
        "ready" => administer(0, Admin::FORCED_MAINT | Admin::FORCED_DRAIN),
        _ => Ok(Value::Nil),
    }
}

/// A weight, or a share of the initial one (`50%`).
fn weight(value: &Value, initial: u32) -> mlua::Result<u32> {
    let wrong =
        || mlua::Error::runtime("a weight is a number up to 256, or a share of the initial one in percent");
    let text = convert::argument(value).ok_or_else(wrong)?;
    let weight = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<u32>().ok().map(|percent| initial * percent.min(100) / 100),
        None => text.parse().ok(),
    };
    weight.filter(|weight| *weight <= 256).ok_or_else(wrong)
}
