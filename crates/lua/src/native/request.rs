//! The functions for requests: heads, content, private data, and the treatment of the request.

use std::sync::Arc;

use http::Head;
use mlua::{Lua, LuaString, Table, Value};
use rules::{Edit, Side};
use sample::regex::Regex;
use sample::script_functions::{CalledConvert, CalledFetch};

use super::function;
use super::methods::cannot_change;
use crate::bridge::{self, ScriptReply, Setting};
use crate::name_cache::Called;
use crate::payload::Payload;
use crate::settings::LuaSettings;
use crate::state;

/// Adds the functions to the prelude's table.
pub(super) fn fill(
    lua: &Lua,
    table: &Table,
    settings: &Arc<LuaSettings>,
    called: &Arc<Called>,
) -> mlua::Result<()> {
    names(lua, table)?;
    variables(lua, table, called)?;
    table.set("headers", function(lua, headers)?)?;
    table.set("edit", function(lua, edit)?)?;
    table.set("channel", function(lua, channel)?)?;
    table.set("channel_lacks", function(lua, channel_lacks)?)?;
    table.set("channel_fact", function(lua, channel_fact)?)?;
    table.set("done", function(lua, done)?)?;
    table.set("set", function(lua, set)?)?;
    let own = settings.clone();
    table.set(
        "log",
        function(lua, move |_, (call, level, text): (u64, i64, LuaString)| {
            if level >= 0 {
                let level = level.min(7) as u8;
                bridge::with(call, |bridge| state::log(&own, bridge, level, &text.as_bytes()))?;
            }
            Ok(())
        })?,
    )
}

/// Adds the functions for the names of fetches and converters.
fn names(lua: &Lua, table: &Table) -> mlua::Result<()> {
    table.set("has_fetch", function(lua, |_, name: String| Ok(CalledFetch::exists(&name)))?)?;
    table.set("has_convert", function(lua, |_, name: String| Ok(CalledConvert::exists(&name)))?)
}

/// Returns part of a stream's content from an offset (from the end if negative), up to the requested length; or a line.
fn channel(
    lua: &Lua,
    (call, of_response, offset, length, is_line): (u64, bool, Option<i64>, Option<i64>, bool),
) -> mlua::Result<Value> {
    let (offset, length) = (offset.unwrap_or(0), length.and_then(|length| usize::try_from(length).ok()));
    let mut found = None;
    let show = |input: &[u8], part: Option<std::ops::Range<usize>>, may_receive: bool| {
        let Some(part) = part.filter(|_| !input.is_empty() || may_receive) else { return Ok(Value::Nil) };
        let bytes = &input[part];
        let end = if is_line { bytes.iter().position(|byte| *byte == b'\n') } else { None };
        lua.create_string(&bytes[..end.map_or(bytes.len(), |end| end + 1)]).map(Value::String)
    };
    let is_filtered = bridge::with(call, |bridge| {
        bridge.payload(of_response, false, &mut |own| {
            found = Some(show(&own.input, own.part(offset, length), own.may_receive()));
        })
    })?;
    if !is_filtered {
        found = bridge::view(call, |env| {
            let own = Payload { input: bytes_of(env, of_response).to_vec(), ..Payload::default() };
            // For rules, an offset after the end means the end.
            let end = own.input.len()..own.input.len();
            show(&own.input, Some(own.part(offset, length).unwrap_or(end)), true)
        })?;
    }
    found.unwrap_or(Ok(Value::Nil))
}

/// Whether a script must and may wait for more input to get the requested data.
fn channel_lacks(
    _: &Lua,
    (call, of_response, offset, length, is_line): (u64, bool, Option<i64>, Option<i64>, bool),
) -> mlua::Result<bool> {
    let mut lacks = false;
    bridge::with(call, |bridge| {
        bridge.payload(of_response, false, &mut |own| {
            lacks = own.lacks(offset.unwrap_or(0), length, is_line);
        })
    })?;
    Ok(lacks)
}

fn bytes_of<'e>(env: &sample::Env<'e>, of_response: bool) -> &'e [u8] {
    if of_response { env.response_bytes } else { env.request_bytes }
}

/// Returns facts for rules: the number of input or output bytes, whether the buffer is full, and whether more may arrive.
fn channel_fact(_: &Lua, (call, of_response, what): (u64, bool, String)) -> mlua::Result<Value> {
    let mut found = None;
    bridge::with(call, |bridge| {
        bridge.payload(of_response, false, &mut |own| {
            found = Some(match &*what {
                "input" => Value::Integer(own.input.len() as i64),
                "output" => Value::Integer(own.output.len() as i64),
                "full" => Value::Boolean(own.is_full()),
                _ => Value::Boolean(own.may_receive()),
            });
        })
    })?;
    if let Some(found) = found {
        return Ok(found);
    }
    let seen = bridge::view(call, |env| bytes_of(env, of_response).len())?.unwrap_or(0);
    Ok(match &*what {
        "input" => Value::Integer(seen as i64),
        "output" => Value::Integer(0),
        "full" => Value::Boolean(false),
        _ => Value::Boolean(true),
    })
}

/// Adds the functions for private data, and one that unsets variables.
fn variables(lua: &Lua, table: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let own = called.clone();
    let unset = move |_: &Lua, (call, name): (u64, String)| {
        let Some((var, _)) = own.variable(&name, false) else { return Ok(false) };
        bridge::view(call, |env| var.unset(env))?;
        Ok(true)
    };
    table.set("unset_var", function(lua, unset)?)?;
    table.set(
        "set_priv",
        function(lua, |lua, (call, value): (u64, Value)| {
            let place = place_of_state(lua)?;
            let mut value = Some(value);
            bridge::with(call, |bridge| bridge.notes(&mut |notes| notes.kept[place] = value.take()))?;
            Ok(())
        })?,
    )?;
    table.set(
        "get_priv",
        function(lua, |lua, call: u64| {
            let place = place_of_state(lua)?;
            let mut value = None;
            bridge::with(call, |bridge| bridge.notes(&mut |notes| value = notes.kept[place].clone()))?;
            Ok(value.unwrap_or(Value::Nil))
        })?,
    )
}

/// Returns the index of a state: the shared one (0) or a worker's own (1).
fn place_of_state(lua: &Lua) -> mlua::Result<usize> {
    let core: Table = lua.globals().raw_get("core")?;
    Ok(usize::from(core.get::<i64>("thread")? > 0))
}

/// Returns the fields of a head, by name in lower case: `headers[name][0]` is the first.
fn headers(lua: &Lua, (call, of_response): (u64, bool)) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    bridge::view(call, |env| {
        let Some(transaction) = env.transaction else { return Ok(()) };
        let head = if of_response { &transaction.response } else { &transaction.request };
        fill_headers(lua, head, &table)
    })?
    .unwrap_or(Ok(()))?;
    Ok(table)
}

pub(super) fn fill_headers(lua: &Lua, head: &Head, table: &Table) -> mlua::Result<()> {
    for (name, value) in head.fields() {
        let name = lua.create_string(name.to_ascii_lowercase())?;
        let value = lua.create_string(value)?;
        match table.raw_get::<Value>(&name)? {
            Value::Table(values) => values.raw_set(values.raw_len() + 1, value)?,
            _ => {
                let values = lua.create_table()?;
                values.raw_set(0, value)?;
                table.raw_set(name, values)?;
            }
        }
    }
    Ok(())
}

type EditArguments = (u64, LuaString, bool, LuaString, Option<LuaString>, Option<String>, Option<u16>);

/// Changes a head. The arguments are the kind of change, the message, a name or a value, and any others that the change needs.
fn edit(
    _: &Lua,
    (call, kind, of_response, first, second, pattern, status): EditArguments,
) -> mlua::Result<bool> {
    let side = if of_response { Side::Response } else { Side::Request };
    let (first, second) = (first.as_bytes(), second.as_ref().map(|second| second.as_bytes()));
    let second = second.as_deref();
    let missing = || mlua::Error::runtime("missing value");
    let regex;
    let kind = kind.as_bytes();
    let edit = match &*kind {
        b"add" => Edit::Add(side, &first, second.ok_or_else(missing)?),
        b"set" => Edit::Set(side, &first, second.ok_or_else(missing)?),
        b"remove" => Edit::Remove(side, &first),
        b"replace" | b"replace_value" => {
            let pattern = pattern.ok_or_else(missing)?;
            regex = Regex::new(&pattern, false)
                .map_err(|error| mlua::Error::runtime(format!("bad regular expression: {error}")))?;
            let with = second.ok_or_else(missing)?;
            Edit::Replace { side, name: &first, regex: &regex, with, each_value: &*kind == b"replace_value" }
        }
        b"method" => Edit::Method(&first),
        b"path" => Edit::Path(&first),
        b"query" => Edit::Query(&first),
        b"uri" => Edit::Uri(&first),
        _ => {
            let status = status.filter(|status| (100..1000).contains(status)).ok_or_else(missing)?;
            Edit::Status(status, Some(&*first).filter(|reason| !reason.is_empty()))
        }
    };
    bridge::with(call, |bridge| bridge.edit(&edit))?.ok_or_else(|| cannot_change(side))
}

/// Ends the request.
fn done(_: &Lua, (call, answer): (u64, Option<Table>)) -> mlua::Result<()> {
    let reply = answer.map(|answer| reply(&answer)).transpose()?;
    bridge::with(call, |bridge| bridge.end(reply))
}

/// Converts a table to a response.
fn reply(answer: &Table) -> mlua::Result<ScriptReply> {
    let text = |text: LuaString| text.as_bytes().to_vec();
    let mut headers = Vec::new();
    if let Some(all) = answer.get::<Option<Table>>("headers")? {
        for pair in all.pairs::<LuaString, Table>() {
            let (name, values) = pair?;
            for value in values.sequence_values::<LuaString>() {
                headers.push((name.as_bytes().to_vec(), text(value?)));
            }
        }
    }
    Ok(ScriptReply {
        status: answer
            .get::<Option<u16>>("status")?
            .filter(|status| (200..1000).contains(status))
            .unwrap_or(200),
        reason: answer.get::<Option<LuaString>>("reason")?.map(text),
        headers,
        body: answer.get::<Option<LuaString>>("body")?.map(text).unwrap_or_default(),
    })
}

/// Changes the treatment of the request.
fn set(_: &Lua, (call, what, value): (u64, String, i64)) -> mlua::Result<()> {
    let setting = match what.as_str() {
        "loglevel" if value < 0 => Setting::LogLevel(None),
        "loglevel" if value <= 7 => Setting::LogLevel(Some(value as u8)),
        "mark" => Setting::Mark(value as u32),
        "tos" => Setting::Tos(value as u32 & 0xff),
        "class" => Setting::PriorityClass(value.clamp(-2047, 2047) as i32),
        "offset" => Setting::PriorityOffset(value.clamp(-524_287, 524_287) as i32),
        _ => return Err(mlua::Error::runtime(format!("unknown log level {value}"))),
    };
    bridge::with(call, |bridge| bridge.set(setting))
}
