//! The functions for proxies, their servers and their listeners.
//!
//! Changes that the runtime socket supports are made through its commands, which the host runs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::raw::{bytes_of, text_of};
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value, Variadic};
use state::server::{Admin, ServerAddress};
use state::statistic::{Statistic, StatisticOwner};
use state::{Proxy, Server, transition};

use super::function;
use crate::convert;
use crate::host::ScriptHost;
use crate::name_cache::Called;

/// Adds the functions to the prelude's table.
pub(super) fn fill(lua: &Lua, native: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let own = called.clone();
    type Whom = (bool, String, Option<String>, Option<bool>);
    native.set(
        "statistics",
        function(lua, move |lua, (backend, name, part, is_listener): Whom| {
            let whose = match &part {
                Some(listener) if is_listener.unwrap_or(false) => StatisticOwner::Listener(&name, listener),
                Some(server) => StatisticOwner::Server(&name, server),
                None if backend => StatisticOwner::Backend(&name),
                None => StatisticOwner::Frontend(&name),
            };
            statistics(lua, &own, whose)
        })?,
    )?;
    let own = called.clone();
    native.set(
        "command",
        function(lua, move |lua, words: Variadic<LuaString>| {
            let host =
                own.shared.host().ok_or_else(|| mlua::Error::runtime("the workers have not started yet"))?;
            let words: Vec<String> =
                words.iter().map(|word| text_of(&word.as_bytes()).into_owned()).collect();
            done(lua, host.command(&words))
        })?,
    )?;
    let own = called.clone();
    native.set(
        "use_mailers",
        function(lua, move |_, ()| {
            own.shared.use_mailers();
            Ok(())
        })?,
    )?;
    proxies(lua, native, called)
}

/// Returns the outcome of a command: nil and its output if it succeeded, otherwise its error.
fn done(lua: &Lua, outcome: Result<String, String>) -> mlua::Result<MultiValue> {
    match outcome {
        Ok(answer) if answer.is_empty() => Ok(MultiValue::new()),
        Ok(answer) => (Value::Nil, lua.create_string(&*bytes_of(&answer))?).into_lua_multi(lua),
        Err(why) => lua.create_string(&*bytes_of(why.trim_end()))?.into_lua_multi(lua),
    }
}

/// Returns statistics by name.
pub(super) fn statistics(lua: &Lua, called: &Called, whose: StatisticOwner<'_>) -> mlua::Result<Table> {
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

/// Adds the functions for `core.proxies`: names and numbers, and functions by both.
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
            match &*what {
                "mailers" => mailers(lua, &own, &name),
                what => of_proxy(lua, &proxy, what),
            }
        })?,
    )?;
    let own = called.clone();
    type Arguments = (String, String, String, Option<Value>);
    native.set(
        "server",
        function(lua, move |lua, (backend, name, what, value): Arguments| {
            let proxy = find(&own, true, &backend)?;
            match proxy.server(&name) {
                Some(server) => of_server(lua, own.shared.host(), (&proxy, &server), &what, value),
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
        "listeners" => {
            let names = lua.create_table()?;
            for listener in proxy.listeners.load().iter() {
                names.raw_push(lua.create_string(listener.name.as_bytes())?)?;
            }
            Ok(Value::Table(names))
        }
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
    host: Option<&dyn ScriptHost>,
    (proxy, server): (&Proxy, &Server),
    what: &str,
    value: Option<Value>,
) -> mlua::Result<Value> {
    let text = |text: &str| lua.create_string(text).map(Value::String);
    let number = |number: u32| Ok(Value::Integer(number.into()));
    let now_ms = base::clock::now_ms();
    let report = |proxy: &Proxy, level: u8, text: &str| {
        if let Some(host) = host {
            host.report(proxy, level, text);
        }
    };
    let administer = |set: u32, clear: u32| {
        transition::administer(proxy, server, set, clear, "", now_ms, &report);
        Ok(Value::Nil)
    };
    match what {
        "puid" => text(&server.id.to_string()),
        "rid" => number(server.revision.load(Relaxed)),
        "dynamic" => Ok(Value::Boolean(server.dynamic.load(Relaxed))),
        "tracked" => match server.tracked() {
            Some(tracked) => pair(lua, &tracked).map(Value::Table),
            None => Ok(Value::Nil),
        },
        "trackers" => {
            let all = lua.create_table()?;
            for (_, follower) in proxy.trackers(server) {
                all.raw_push(pair(lua, &follower)?)?;
            }
            Ok(Value::Table(all))
        }
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
                if let Some((level, text)) = transition::refresh_backend(proxy, now_ms) {
                    report(proxy, level, &text);
                }
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

/// Returns a server's backend and name.
fn pair(lua: &Lua, server: &Server) -> mlua::Result<Table> {
    lua.create_sequence_from([
        lua.create_string(server.proxy.as_bytes())?,
        lua.create_string(server.name.as_bytes())?,
    ])
}

/// Returns a proxy's email settings, if it has any and a script has taken over sending.
fn mailers(lua: &Lua, called: &Called, proxy: &str) -> mlua::Result<Value> {
    let Some(mailing) = called.shared.mailing(proxy) else { return Ok(Value::Nil) };
    let machine = || called.shared.host().map(|host| host.machine()).unwrap_or_default();
    let hello = mailing.hello.as_deref().map_or_else(machine, str::to_owned);
    let (table, servers) = (lua.create_table()?, lua.create_table()?);
    for (name, address) in &mailing.servers {
        servers.set(&**name, address.to_string())?;
    }
    table.set("track_server_health", mailing.tells_checks)?;
    table.set("log_level", mailing.level)?;
    table.set("mailservers", servers)?;
    table.set("mailservers_timeout", mailing.limit.as_millis() as u64)?;
    table.set("smtp_hostname", hello)?;
    table.set("smtp_from", &*mailing.from)?;
    table.set("smtp_to", &*mailing.to)?;
    Ok(Value::Table(table))
}

/// Parses a weight, or a share of the initial one (`50%`).
fn weight(value: &Value, initial: u32) -> mlua::Result<u32> {
    let wrong =
        || mlua::Error::runtime("a weight must be a number up to 256, or a percentage of the initial weight");
    let text = convert::argument(value).ok_or_else(wrong)?;
    let weight = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<u32>().ok().map(|percent| initial * percent.min(100) / 100),
        None => text.parse().ok(),
    };
    weight.filter(|weight| *weight <= 256).ok_or_else(wrong)
}
