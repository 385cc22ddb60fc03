//! The functions for filters: the payload of a direction, the first line of a message, and requests about the stream.

use mlua::{Lua, LuaString, Table, Value};

use super::function;
use crate::bridge::{self, FilterRequest, Setting};
use crate::payload::Payload;

/// `filter.FLT_CFG_FL_HTX`: the filter can filter HTTP streams.
pub(crate) const FOR_HTTP: i64 = 1;

/// Selects a payload: the number of the call, whether the payload is the response's, and whether it is that of a message.
type Which = (u64, bool, bool);

/// Calls `look` with the payload that a filter may change.
fn with<R>((call, of_response, of_message): Which, look: impl FnOnce(&mut Payload) -> R) -> mlua::Result<R> {
    let mut result = None;
    bridge::with(call, |bridge| {
        let mut look = Some(look);
        bridge.payload(of_response, of_message, &mut |payload| {
            result = look.take().map(|look| look(payload));
        });
    })?;
    result.ok_or_else(|| {
        mlua::Error::runtime(match of_message {
            true => "the payload of this message is not available here",
            false => "the bytes of this channel can only be changed by TCP filters and actions in the same direction",
        })
    })
}

fn behind_end(offset: i64) -> mlua::Error {
    mlua::Error::runtime(format!("offset {offset} is out of range"))
}

/// Returns a number of bytes; all bytes if it is absent or -1.
fn length(given: Option<i64>) -> mlua::Result<Option<usize>> {
    match given {
        None | Some(-1) => Ok(None),
        Some(length) => usize::try_from(length)
            .map(Some)
            .map_err(|_| mlua::Error::runtime(format!("{length} is not a valid length: use -1 for all"))),
    }
}

/// Adds the functions to the prelude's table, and the class `filter`.
pub(super) fn fill(lua: &Lua, native: &Table) -> mlua::Result<()> {
    let filter = lua.create_table()?;
    for (name, number) in [("CONTINUE", 1), ("WAIT", 0), ("ERROR", -1), ("FLT_CFG_FL_HTX", FOR_HTTP)] {
        filter.set(name, number)?;
    }
    lua.globals().set("filter", filter)?;
    looking(lua, native)?;
    changing(lua, native)?;
    native.set("start_line", function(lua, start_line)?)?;
    native.set(
        "watch_data",
        function(lua, |_, (call, of_response, on): (u64, bool, bool)| {
            want(call, FilterRequest::Data { of_response, on })
        })?,
    )?;
    native.set(
        "wake_in",
        function(lua, |_, ms: f64| want(bridge::current(), FilterRequest::Wake(milliseconds(ms))))?,
    )?;
    native.set(
        "wake_action_in",
        function(lua, |_, ms: f64| {
            bridge::with(bridge::current(), |bridge| bridge.set(Setting::WakeIn(milliseconds(ms))))
        })?,
    )?;
    native.set(
        "set_body_length",
        function(lua, |_, (call, of_response, length): (u64, bool, Value)| {
            let length = match &length {
                Value::String(text) if text.as_bytes() == *b"chunked" => None,
                length => Some(length.as_u64().ok_or_else(|| {
                    mlua::Error::runtime("the length of a body must be a number, or \"chunked\"")
                })?),
            };
            bridge::with(call, |bridge| bridge.want(FilterRequest::Length { of_response, length }))
        })?,
    )
}

fn milliseconds(ms: f64) -> u64 {
    ms.clamp(0.0, 1e12).ceil() as u64
}

fn want(call: u64, wanted: FilterRequest) -> mlua::Result<()> {
    match bridge::with(call, |bridge| bridge.want(wanted))? {
        true => Ok(()),
        false => Err(mlua::Error::runtime("only available in filter functions")),
    }
}

fn looking(lua: &Lua, native: &Table) -> mlua::Result<()> {
    type Part = (u64, bool, bool, Option<i64>, Option<i64>, bool);
    native.set(
        "payload",
        function(lua, |lua, (call, of_response, of_message, offset, given, is_line): Part| {
            let given = length(given)?;
            with((call, of_response, of_message), |payload| {
                if payload.input.is_empty() && !payload.may_receive() {
                    return Ok(Value::Nil);
                }
                let offset = offset.unwrap_or(0);
                let part = payload.part(offset, given).ok_or_else(|| behind_end(offset))?;
                let bytes = &payload.input[part];
                let end = if is_line { bytes.iter().position(|byte| *byte == b'\n') } else { None };
                lua.create_string(&bytes[..end.map_or(bytes.len(), |end| end + 1)]).map(Value::String)
            })?
        })?,
    )?;
    type Asked = (u64, bool, bool, String);
    native.set(
        "payload_fact",
        function(lua, |_, (call, of_response, of_message, what): Asked| {
            with((call, of_response, of_message), |payload| match &*what {
                "input" => Value::Integer(payload.input.len() as i64),
                "output" => Value::Integer(payload.output.len() as i64),
                "full" => Value::Boolean(payload.is_full()),
                "ended" => Value::Boolean(payload.is_ended || payload.is_cut),
                _ => Value::Boolean(payload.may_receive()),
            })
        })?,
    )
}

fn changing(lua: &Lua, native: &Table) -> mlua::Result<()> {
    type Insert = (u64, bool, bool, LuaString, Option<i64>);
    native.set(
        "payload_insert",
        function(lua, |_, (call, of_response, of_message, text, offset): Insert| {
            let (text, offset) = (text.as_bytes(), offset.unwrap_or(0));
            with((call, of_response, of_message), |payload| {
                let fits = payload.insert(&text, offset).ok_or_else(|| behind_end(offset))?;
                Ok(if fits { text.len() as i64 } else { -1 })
            })?
        })?,
    )?;
    native.set(
        "payload_append",
        function(lua, |_, (call, of_response, of_message, text): (u64, bool, bool, LuaString)| {
            let text = text.as_bytes();
            with((call, of_response, of_message), |payload| {
                let end = payload.input.len();
                if payload.splice(end..end, &text) { text.len() as i64 } else { -1 }
            })
        })?,
    )?;
    type Remove = (u64, bool, bool, Option<i64>, Option<i64>);
    native.set(
        "payload_remove",
        function(lua, |_, (call, of_response, of_message, offset, given): Remove| {
            let (offset, given) = (offset.unwrap_or(0), length(given)?);
            with((call, of_response, of_message), |payload| {
                let part = payload.part(offset, given).ok_or_else(|| behind_end(offset))?;
                let count = part.len();
                payload.splice(part, &[]);
                Ok(count)
            })?
        })?,
    )?;
    type Set = (u64, bool, bool, LuaString, Option<i64>, Option<i64>);
    native.set(
        "payload_set",
        function(lua, |_, (call, of_response, of_message, text, offset, given): Set| {
            let (text, offset, given) = (text.as_bytes(), offset.unwrap_or(0), length(given)?);
            with((call, of_response, of_message), |payload| {
                let part = payload.part(offset, given).ok_or_else(|| behind_end(offset))?;
                Ok(if payload.splice(part, &text) { text.len() as i64 } else { -1 })
            })?
        })?,
    )?;
    native.set(
        "payload_send",
        function(lua, |_, (call, of_response, of_message, text): (u64, bool, bool, LuaString)| {
            let text = text.as_bytes();
            with(
                (call, of_response, of_message),
                |payload| {
                    if payload.send(&text) { text.len() as i64 } else { -1 }
                },
            )
        })?,
    )?;
    native.set(
        "payload_forward",
        function(lua, |_, (call, of_response, of_message, count): (u64, bool, bool, i64)| {
            let count =
                usize::try_from(count).map_err(|_| mlua::Error::runtime("a length cannot be negative"))?;
            with((call, of_response, of_message), |payload| payload.forward(count))
        })?,
    )?;
    native.set(
        "payload_end",
        function(lua, |_, (call, of_response, is_end): (u64, bool, bool)| {
            with((call, of_response, true), |payload| {
                payload.is_cut |= is_end && !payload.is_ended;
                payload.is_open = !is_end;
            })
        })?,
    )
}

/// Returns the first line of a message.
fn start_line(lua: &Lua, (call, of_response): (u64, bool)) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let filled = bridge::view(call, |env| {
        let Some(transaction) = env.transaction else { return Ok(()) };
        let head = if of_response { &transaction.response } else { &transaction.request };
        let (major, minor) = head.version().numbers();
        table.raw_set("version", format!("HTTP/{major}.{minor}"))?;
        if of_response {
            table.raw_set("code", head.status().to_string())?;
            table.raw_set("reason", lua.create_string(head.reason())?)
        } else {
            table.raw_set("method", lua.create_string(head.method())?)?;
            table.raw_set("uri", lua.create_string(head.target())?)
        }
    })?;
    filled.unwrap_or(Ok(()))?;
    Ok(table)
}
