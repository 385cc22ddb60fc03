//! Converts values between the proxy and scripts.

use mlua::{Lua, Value as LuaValue};
use sample::{Scratch, Value};

/// Converts a value for scripts: numbers and, if `keeps_booleans`, booleans keep their type; everything else becomes text.
pub(crate) fn to_lua(lua: &Lua, value: Option<Value<'_>>, keeps_booleans: bool) -> mlua::Result<LuaValue> {
    Ok(match value {
        None => LuaValue::Nil,
        Some(Value::Int(number)) => LuaValue::Integer(number),
        Some(Value::Bool(value)) if keeps_booleans => LuaValue::Boolean(value),
        Some(Value::Bool(value)) => LuaValue::Integer(value.into()),
        Some(Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes)) => {
            LuaValue::String(lua.create_string(&*bytes)?)
        }
        Some(address) => text(lua, &address)?,
    })
}

/// Converts a value to text; an absent one to the empty text.
pub(crate) fn to_text(lua: &Lua, value: Option<Value<'_>>) -> mlua::Result<LuaValue> {
    match value {
        Some(Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes)) => {
            lua.create_string(&*bytes).map(LuaValue::String)
        }
        Some(value) => text(lua, &value),
        None => lua.create_string(b"").map(LuaValue::String),
    }
}

fn text(lua: &Lua, value: &Value<'_>) -> mlua::Result<LuaValue> {
    let mut text = Scratch::new();
    value.write_text(&mut text);
    lua.create_string(&**text).map(LuaValue::String)
}

/// Converts a value from a script: numbers become integers, and anything but a number, text or boolean becomes false.
pub(crate) fn from_lua(value: &LuaValue) -> Value<'static> {
    match value {
        LuaValue::Integer(number) => Value::Int(*number),
        // As in Lua's own conversion, a number with a fraction is not an integer.
        LuaValue::Number(number) if number.fract() == 0.0 && number.abs() < 9e18 => {
            Value::Int(*number as i64)
        }
        LuaValue::Number(_) => Value::Int(0),
        LuaValue::Boolean(value) => Value::Bool(*value),
        LuaValue::String(text) => Value::made(Scratch::copy(&text.as_bytes())),
        _ => Value::Bool(false),
    }
}

/// Converts an argument of a fetch or converter to its form in the configuration.
pub(crate) fn argument(value: &LuaValue) -> Option<String> {
    Some(match value {
        LuaValue::String(text) => base::raw::text_of(&text.as_bytes()).into_owned(),
        LuaValue::Integer(number) => number.to_string(),
        LuaValue::Number(number) if number.fract() == 0.0 => (*number as i64).to_string(),
        LuaValue::Number(number) => number.to_string(),
        LuaValue::Boolean(value) => i64::from(*value).to_string(),
        _ => return None,
    })
}

/// Returns a number, integer or not.
pub(crate) fn number(value: &mlua::Value) -> Option<f64> {
    match value {
        mlua::Value::Integer(number) => Some(*number as f64),
        mlua::Value::Number(number) => Some(*number),
        _ => None,
    }
}
