//! The functions behind the most used methods of request objects. Their arguments are read from the interpreter's stack and their
//! result is pushed onto it, without handles or lists of values in between. There is one function for each fetch, converter or
//! variable that scripts use, so that a call looks nothing up.
//!
//! Called by `prelude/classes.lua` only. A conversion error of mlua's own would reach the script as an object instead of a text, so
//! the types of arguments accept every value (`Either<…, Value>`) or are those of values that the prelude itself passes.

use std::sync::Arc;

use mlua::{BString, Either, FromLua, FromLuaMulti, Function, IntoLua, Lua, LuaString, Table, Value};
use rules::{Edit, Side};
use sample::vars::Var;

use crate::bridge;
use crate::convert;
use crate::failure::message_of;
use crate::name_cache::Called;
use crate::settings::LuaSettings;

/// The number of a call: the `[0]` of an object, which a script can replace.
type CallNumber = Either<i64, Value>;
/// A text, or any other value of a script.
type TextArgument = Either<BString, Value>;
/// A value for a script: a text that can be pushed directly, or any other.
type Shown = Either<String, Value>;

/// Creates a host function with one result. An error is returned as nil and a text.
fn direct<A: FromLuaMulti, R: IntoLua>(
    lua: &Lua,
    run: impl Fn(&Lua, A) -> mlua::Result<R> + Send + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, args: A| match run(lua, args) {
        Err(error @ mlua::Error::MemoryError(_)) => Err(error),
        done => Ok(done.map_err(|error| message_of(&error))),
    })
}

/// Creates the table of these functions.
pub(super) fn table(lua: &Lua, settings: &Arc<LuaSettings>, called: &Arc<Called>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    looking(lua, &table, settings, called)?;
    variables(lua, &table, settings, called)?;
    table.set("header_editor", direct(lua, header_editor)?)?;
    Ok(table)
}

#[inline]
fn call_number(lua: &Lua, call: CallNumber) -> mlua::Result<u64> {
    match call {
        Either::Left(number) => Ok(number as u64),
        Either::Right(other) => u64::from_lua(other, lua),
    }
}

fn text(lua: &Lua, text: TextArgument) -> mlua::Result<BString> {
    match text {
        Either::Left(text) => Ok(text),
        Either::Right(other) => Ok(LuaString::from_lua(other, lua)?.as_bytes().to_vec().into()),
    }
}

/// Adds the functions that create the functions for a fetch or converter: `nil` once the cache of names is full.
fn looking(lua: &Lua, table: &Table, settings: &Arc<LuaSettings>, called: &Arc<Called>) -> mlua::Result<()> {
    type Named = (String, Option<BString>, bool);
    let (own, keeps) = (called.clone(), settings.keeps_booleans);
    let fetcher = move |lua: &Lua, (name, argument, as_text): Named| {
        let found = own.cached_fetch(words(name, argument)).map_err(mlua::Error::runtime)?;
        let Some(fetch) = found else { return Ok(None) };
        let run = move |lua: &Lua, call: CallNumber| {
            let found =
                bridge::view(call_number(lua, call)?, |env| shown(lua, fetch.get(env), as_text, keeps))?;
            found.unwrap_or(Ok(Either::Right(Value::Nil)))
        };
        direct(lua, run).map(Some)
    };
    table.set("fetcher", direct(lua, fetcher)?)?;
    let own = called.clone();
    let text_converter = move |lua: &Lua, (name, argument, as_text): Named| {
        let found = own.cached_convert(words(name, argument)).map_err(mlua::Error::runtime)?;
        let Some(convert) = found else { return Ok(None) };
        let run = move |lua: &Lua, (call, text): (CallNumber, BString)| {
            let value = sample::Value::Str((&**text).into());
            let found = bridge::view(call_number(lua, call)?, |env| {
                shown(lua, convert.apply(value, env), as_text, keeps)
            })?;
            found.unwrap_or(Ok(Either::Right(Value::Nil)))
        };
        direct(lua, run).map(Some)
    };
    table.set("text_converter", direct(lua, text_converter)?)
}

/// A value of a fetch or converter for scripts.
#[inline]
fn shown(
    lua: &Lua,
    value: Option<sample::Value<'_>>,
    as_text: bool,
    keeps_booleans: bool,
) -> mlua::Result<Shown> {
    use sample::Value::{Bin, Method, Str};
    match value {
        Some(Str(bytes) | Bin(bytes) | Method(bytes)) => match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Either::Left(text.to_owned())),
            Err(_) => lua.create_string(&*bytes).map(|text| Either::Right(Value::String(text))),
        },
        None if as_text => Ok(Either::Left(String::new())),
        value if as_text => convert::to_text(lua, value).map(Either::Right),
        value => convert::to_lua(lua, value, keeps_booleans).map(Either::Right),
    }
}

fn words(name: String, argument: Option<BString>) -> Vec<String> {
    let argument = argument.map(|argument| base::raw::text_of(&argument).into_owned());
    [Some(name), argument].into_iter().flatten().collect()
}

/// Sets a variable of the request with the given number; returns whether that was possible.
pub(super) fn set_variable(call: u64, var: &Var, value: &sample::Value<'_>) -> mlua::Result<bool> {
    Ok(bridge::view(call, |env| var.set(env, value))?.unwrap_or(false))
}

/// Adds the functions that create the functions for a variable.
fn variables(
    lua: &Lua,
    table: &Table,
    settings: &Arc<LuaSettings>,
    called: &Arc<Called>,
) -> mlua::Result<()> {
    let own = called.clone();
    let text_setter = move |lua: &Lua, name: String| {
        let Some(var) = own.cached_variable(&name, true) else { return Ok(None) };
        let set = move |lua: &Lua, (call, text): (CallNumber, BString)| {
            set_variable(call_number(lua, call)?, &var, &sample::Value::Str((&**text).into()))
        };
        direct(lua, set).map(Some)
    };
    table.set("text_setter", direct(lua, text_setter)?)?;
    let own = called.clone();
    let setter = move |lua: &Lua, name: String| {
        let Some(var) = own.cached_variable(&name, true) else { return Ok(None) };
        let set = move |lua: &Lua, (call, value): (CallNumber, Value)| {
            set_variable(call_number(lua, call)?, &var, &convert::from_lua(&value))
        };
        direct(lua, set).map(Some)
    };
    table.set("setter", direct(lua, setter)?)?;
    let (own, keeps) = (called.clone(), settings.keeps_booleans);
    let getter = move |lua: &Lua, name: String| {
        let Some(var) = own.cached_variable(&name, false) else { return Ok(None) };
        let get = move |lua: &Lua, call: CallNumber| {
            let found = bridge::view(call_number(lua, call)?, |env| shown(lua, var.get(env), false, keeps))?;
            found.unwrap_or(Ok(Either::Right(Value::Nil)))
        };
        direct(lua, get).map(Some)
    };
    table.set("getter", direct(lua, getter)?)
}

/// The kinds of changes, by their numbers in the prelude.
const ADD: i64 = 0;
const SET: i64 = 1;

/// Creates a function that changes the headers of a message: adds one, replaces those with a name, or deletes them.
fn header_editor(lua: &Lua, (kind, of_response): (i64, bool)) -> mlua::Result<Function> {
    let side = if of_response { Side::Response } else { Side::Request };
    let edit = move |lua: &Lua, (call, name, value): (CallNumber, TextArgument, TextArgument)| {
        let name = text(lua, name)?;
        let value = match value {
            Either::Right(Value::Nil) if matches!(kind, ADD | SET) => {
                return Err(mlua::Error::runtime("missing value"));
            }
            Either::Right(Value::Nil) => BString::default(),
            value => text(lua, value)?,
        };
        let edit = match kind {
            ADD => Edit::Add(side, &name, &value),
            SET => Edit::Set(side, &name, &value),
            _ => Edit::Remove(side, &name),
        };
        let done = bridge::with(call_number(lua, call)?, |bridge| bridge.edit(&edit))?;
        done.ok_or_else(|| cannot_change(side))
    };
    direct(lua, edit)
}

/// The error of a change to a message that is not accessible in this place.
pub(super) fn cannot_change(side: Side) -> mlua::Error {
    mlua::Error::runtime(match side {
        Side::Request => "the request cannot be changed here",
        Side::Response => "the response cannot be changed here",
    })
}
