//! The functions for services: the request, its body, the response; and for streams, input and output.

use http::{Version, uri};
use mlua::{Lua, LuaString, Table, Value};

use super::function;
use super::request::fill_headers;
use crate::bridge::{self, ScriptReply, TakenBytes};

/// Adds the functions to the prelude's table.
pub(super) fn fill(lua: &Lua, table: &Table) -> mlua::Result<()> {
    table.set("request", function(lua, request)?)?;
    table.set("respond", function(lua, respond)?)?;
    table.set("take", function(lua, take)?)?;
    table.set("concat", function(lua, concat)?)?;
    table.set(
        "send",
        function(lua, |_, (call, text): (u64, LuaString)| {
            match bridge::with(call, |bridge| bridge.send(&text.as_bytes()))? {
                Some(is_full) => Ok(is_full),
                None => Err(mlua::Error::runtime("there is no client to send to")),
            }
        })?,
    )
}

/// Returns a fact about the request, by its name in services.
fn request(lua: &Lua, (call, what): (u64, String)) -> mlua::Result<Value> {
    let fact = bridge::view(call, |env| {
        let Some(transaction) = env.transaction else { return Ok(Value::Nil) };
        let head = &transaction.request;
        let parts = || uri::split(head.target());
        let text = |text: &[u8]| lua.create_string(text).map(Value::String);
        match &*what {
            "method" => text(head.method()),
            "path" => text(parts().path().unwrap_or_default()),
            "qs" => text(parts().query().unwrap_or_default()),
            "version" => text(version(head.version()).as_bytes()),
            "length" => Ok(Value::Integer(match head.request_body() {
                http::BodyLength::Length(length) => length as i64,
                _ => 0,
            })),
            _ => {
                let headers = lua.create_table()?;
                fill_headers(lua, head, &headers)?;
                Ok(Value::Table(headers))
            }
        }
    })?;
    fact.unwrap_or(Ok(Value::Nil))
}

fn version(version: Version) -> String {
    let (major, minor) = version.numbers();
    format!("HTTP/{major}.{minor}")
}

type Fields = Vec<(LuaString, LuaString)>;

/// Sets the head of the response.
fn respond(
    _: &Lua,
    (call, status, reason, fields): (u64, u16, Option<LuaString>, Table),
) -> mlua::Result<()> {
    if !(200..600).contains(&status) {
        return Err(mlua::Error::runtime(format!("{status} is not a valid response status")));
    }
    let fields: Fields = fields
        .sequence_values::<Table>()
        .map(|pair| pair.and_then(|pair| Ok((pair.get(1)?, pair.get(2)?))))
        .collect::<mlua::Result<_>>()?;
    let bytes = |text: &LuaString| text.as_bytes().to_vec();
    let reply = ScriptReply {
        status,
        reason: reason.as_ref().map(bytes),
        headers: fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        body: Vec::new(),
    };
    bridge::with(call, |bridge| bridge.respond(reply))
}

/// Takes input, up to a number of bytes or a line; returns nil if none has arrived, and the empty text at the end.
fn take(lua: &Lua, (call, most, is_line): (u64, i64, bool)) -> mlua::Result<Value> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match bridge::with(call, |bridge| bridge.take(most, is_line))? {
        TakenBytes::Bytes(bytes) => lua.create_string(bytes).map(Value::String),
        TakenBytes::Nothing => Ok(Value::Nil),
        TakenBytes::End => lua.create_string(b"").map(Value::String),
    }
}

/// Concatenates texts.
fn concat(lua: &Lua, pieces: Table) -> mlua::Result<LuaString> {
    let mut all = Vec::new();
    for piece in pieces.sequence_values::<LuaString>() {
        all.extend_from_slice(&piece?.as_bytes());
    }
    lua.create_string(all)
}
