//! The functions behind the most used methods of request objects. Their arguments are read from the interpreter's stack and their
//! result is pushed onto it, without handles or lists of values in between, and fetches, converters and variables are identified by
//! the positions that `name_cache` assigned to them.
//!
//! Called by `prelude/classes.lua` only. A conversion error of mlua's own would reach the script as an object instead of a text, so
//! the types of arguments accept every value (`Either<…, Value>`) or are those of values that the prelude itself passes.

use std::sync::Arc;

use mlua::{BString, Either, FromLua, FromLuaMulti, Function, IntoLua, Lua, LuaString, Table, Value};
use rules::{Edit, Side};

use crate::bridge;
use crate::convert;
use crate::failure::message_of;
use crate::name_cache::Called;
use crate::settings::LuaSettings;

/// The number of a call: the `[0]` of an object, which a script can replace.
type CallNumber = Either<i64, Value>;
/// A text, or any other value of a script.
type TextArgument = Either<BString, Value>;

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
    table.set("edit_header", direct(lua, edit_header)?)?;
    Ok(table)
}

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

/// Adds the functions for fetches and converters.
fn looking(lua: &Lua, table: &Table, settings: &Arc<LuaSettings>, called: &Arc<Called>) -> mlua::Result<()> {
    let own = called.clone();
    table.set(
        "fetch_slot",
        direct(lua, move |_, (name, argument): (String, Option<BString>)| {
            own.fetch_slot(words(name, argument)).map_err(mlua::Error::runtime)
        })?,
    )?;
    let own = called.clone();
    table.set(
        "convert_slot",
        direct(lua, move |_, (name, argument): (String, Option<BString>)| {
            own.convert_slot(words(name, argument)).map_err(mlua::Error::runtime)
        })?,
    )?;
    let (own, keeps) = (called.clone(), settings.keeps_booleans);
    let fetch = move |lua: &Lua, (call, slot, as_text): (CallNumber, usize, bool)| {
        let fetch = own.fetch_at(slot).ok_or_else(unknown)?;
        let found = bridge::view(call_number(lua, call)?, |env| shown(lua, fetch.get(env), as_text, keeps))?;
        found.unwrap_or(Ok(Either::Right(Value::Nil)))
    };
    table.set("fetch", direct(lua, fetch)?)?;
    let own = called.clone();
    let convert = move |lua: &Lua, (call, slot, as_text, value): (CallNumber, usize, bool, Value)| {
        let convert = own.convert_at(slot).ok_or_else(unknown)?;
        let value = convert::from_lua(&value);
        let found = bridge::view(call_number(lua, call)?, |env| {
            shown(lua, convert.apply(value, env), as_text, keeps)
        })?;
        found.unwrap_or(Ok(Either::Right(Value::Nil)))
    };
    table.set("convert", direct(lua, convert)?)
}

/// A value of a fetch or converter for scripts.
fn shown(
    lua: &Lua,
    value: Option<sample::Value<'_>>,
    as_text: bool,
    keeps_booleans: bool,
) -> mlua::Result<TextArgument> {
    use sample::Value::{Bin, Method, Str};
    match value {
        Some(Str(bytes) | Bin(bytes) | Method(bytes)) => Ok(Either::Left((&*bytes).into())),
        None if as_text => Ok(Either::Left(BString::default())),
        value if as_text => convert::to_text(lua, value).map(Either::Right),
        value => convert::to_lua(lua, value, keeps_booleans).map(Either::Right),
    }
}

fn words(name: String, argument: Option<BString>) -> Vec<String> {
    let argument = argument.map(|argument| base::raw::text_of(&argument).into_owned());
    [Some(name), argument].into_iter().flatten().collect()
}

/// The error for a position that was never assigned.
fn unknown() -> mlua::Error {
    mlua::Error::runtime("unknown name")
}

/// Adds the functions for variables.
fn variables(
    lua: &Lua,
    table: &Table,
    settings: &Arc<LuaSettings>,
    called: &Arc<Called>,
) -> mlua::Result<()> {
    let own = called.clone();
    table.set(
        "variable_slot",
        direct(lua, move |_, (name, adds): (String, bool)| Ok(own.variable_slot(&name, adds)))?,
    )?;
    let own = called.clone();
    let set = move |lua: &Lua, (call, slot, value): (CallNumber, usize, Value)| {
        let var = own.variable_at(slot).ok_or_else(unknown)?;
        let value = convert::from_lua(&value);
        Ok(bridge::view(call_number(lua, call)?, |env| var.set(env, &value))?.unwrap_or(false))
    };
    table.set("set_var", direct(lua, set)?)?;
    let own = called.clone();
    let set = move |lua: &Lua, (call, slot, value): (CallNumber, usize, BString)| {
        let var = own.variable_at(slot).ok_or_else(unknown)?;
        let value = sample::Value::Str((&**value).into());
        Ok(bridge::view(call_number(lua, call)?, |env| var.set(env, &value))?.unwrap_or(false))
    };
    table.set("set_text_var", direct(lua, set)?)?;
    let (own, keeps) = (called.clone(), settings.keeps_booleans);
    let get = move |lua: &Lua, (call, slot): (CallNumber, usize)| {
        let var = own.variable_at(slot).ok_or_else(unknown)?;
        let found = bridge::view(call_number(lua, call)?, |env| shown(lua, var.get(env), false, keeps))?;
        found.unwrap_or(Ok(Either::Right(Value::Nil)))
    };
    table.set("get_var", direct(lua, get)?)
}

/// The kinds of changes, by their numbers in the prelude.
const ADD: i64 = 0;
const SET: i64 = 1;

/// Changes the headers of a message: adds one, replaces those with a name, or deletes them.
fn edit_header(
    lua: &Lua,
    (call, kind, of_response, name, value): (CallNumber, i64, bool, TextArgument, TextArgument),
) -> mlua::Result<bool> {
    let side = if of_response { Side::Response } else { Side::Request };
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
    done.ok_or_else(|| super::request::cannot_change(side))
}
