//! The most used methods of request objects: fetches, converters, variables and header changes.
//!
//! Scripts call these host functions directly, without a Lua function in between, because the interpreter's hook makes each
//! instruction expensive. They apply to the running request, so that they need not read their object: mlua creates a handle for each
//! table, text or function that it passes as a `Value`, which takes several times as long as reading a number or copying a short text.
//!
//! An error that mlua raises for an argument would have no position in the script. The types of arguments therefore accept every value.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use mlua::{BString, Either, FromLua, FromLuaMulti, Function, IntoLua, Lua, LuaString, Table, Value};
use rules::{Edit, Side};
use sample::script_functions::{CalledConvert, CalledFetch};
use sample::vars::Var;

use super::place;
use crate::bridge::{self, RUNNING};
use crate::convert;
use crate::failure::message_of;
use crate::name_cache::Called;
use crate::settings::LuaSettings;

/// A text, or any other value of a script.
type TextArgument = Either<BString, Value>;
/// A value for a script: a text that can be pushed directly, or any other.
type Shown = Either<String, Value>;
type TextMap<V> = HashMap<Box<[u8]>, V, foldhash::fast::RandomState>;

/// Creates a method. Its first argument is the object, and its errors have the position of the script.
fn method<A: FromLuaMulti, R: IntoLua>(
    lua: &Lua,
    run: impl Fn(&Lua, A) -> mlua::Result<R> + Send + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, args: A| run(lua, args).map_err(|error| located(lua, error)))
}

#[cold]
fn located(lua: &Lua, error: mlua::Error) -> mlua::Error {
    match error {
        mlua::Error::MemoryError(_) => error,
        error => mlua::Error::runtime(place(lua) + &message_of(&error)),
    }
}

/// Creates the table of functions that create methods.
pub(super) fn table(lua: &Lua, settings: &Arc<LuaSettings>, called: &Arc<Called>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let keeps = settings.keeps_booleans;
    let own = called.clone();
    let fetch = move |lua: &Lua, (name, as_text): (String, bool)| {
        fetch(lua, own.clone(), name, ResultForm { as_text, keeps_booleans: keeps })
    };
    table.set("fetch", lua.create_function(fetch)?)?;
    let own = called.clone();
    let converter = move |lua: &Lua, (name, as_text): (String, bool)| {
        converter(lua, own.clone(), name, ResultForm { as_text, keeps_booleans: keeps })
    };
    table.set("converter", lua.create_function(converter)?)?;
    table.set("set_var", variable_setter(lua, called.clone())?)?;
    table.set("get_var", variable_getter(lua, called.clone(), keeps)?)?;
    table.set("header_editor", lua.create_function(header_editor)?)?;
    Ok(table)
}

/// The object of a method: whether it is neither nil nor false.
type MethodObject = bool;

fn check(object: MethodObject) -> mlua::Result<()> {
    let text = "there is no object before the method's name: call methods with `:`";
    if object { Ok(()) } else { Err(mlua::Error::runtime(text)) }
}

/// Calls `look` with the view of the running request.
#[inline]
fn view<R>(object: MethodObject, look: impl FnOnce(&sample::Env<'_>) -> mlua::Result<R>) -> mlua::Result<R> {
    check(object)?;
    let missing = || Err(mlua::Error::runtime("there is no request here"));
    bridge::view(RUNNING, look)?.unwrap_or_else(missing)
}

fn text(lua: &Lua, text: TextArgument) -> mlua::Result<BString> {
    match text {
        Either::Left(text) => Ok(text),
        Either::Right(other) => Ok(LuaString::from_lua(other, lua)?.as_bytes().to_vec().into()),
    }
}

/// The form of a fetch's or converter's result in scripts.
#[derive(Clone, Copy)]
struct ResultForm {
    /// Whether everything is a text, and an absent value the empty one.
    as_text: bool,
    keeps_booleans: bool,
}

impl ResultForm {
    #[inline]
    fn show(self, lua: &Lua, value: Option<sample::Value<'_>>) -> mlua::Result<Shown> {
        use sample::Value::{Bin, Method, Str};
        match value {
            Some(Str(bytes) | Bin(bytes) | Method(bytes)) => match std::str::from_utf8(&bytes) {
                Ok(text) => Ok(Either::Left(text.to_owned())),
                Err(_) => lua.create_string(&*bytes).map(|text| Either::Right(Value::String(text))),
            },
            None if self.as_text => Ok(Either::Left(String::new())),
            value if self.as_text => convert::to_text(lua, value).map(Either::Right),
            value => convert::to_lua(lua, value, self.keeps_booleans).map(Either::Right),
        }
    }
}

/// A fetch or converter with each list of arguments that scripts use, as long as the cache of names has room for it.
struct Uses<T> {
    without_arguments: OnceCell<Arc<T>>,
    /// By the only argument.
    with_text: RefCell<TextMap<Arc<T>>>,
    name: String,
}

impl<T> Uses<T> {
    fn new(name: String) -> Self {
        Self { without_arguments: OnceCell::new(), with_text: RefCell::default(), name }
    }

    /// Calls `run` with the use for these arguments. `find` prepares one, and returns whether to keep it.
    #[inline]
    fn with<R>(
        &self,
        arguments: &[Option<Value>],
        find: impl Fn(Vec<String>) -> Result<(Arc<T>, bool), String>,
        run: impl FnOnce(&T) -> R,
    ) -> mlua::Result<R> {
        match (arguments, self.without_arguments.get()) {
            ([None, ..], Some(known)) => Ok(run(known)),
            _ => Ok(run(&*self.look_up(arguments, find)?)),
        }
    }

    fn look_up(
        &self,
        arguments: &[Option<Value>],
        find: impl Fn(Vec<String>) -> Result<(Arc<T>, bool), String>,
    ) -> mlua::Result<Arc<T>> {
        let only = match arguments {
            [Some(Value::String(text)), None, ..] => Some(text.as_bytes()),
            _ => None,
        };
        if let Some(text) = &only
            && let Some(known) = self.with_text.borrow().get(&**text)
        {
            return Ok(known.clone());
        }
        let words = words(&self.name, arguments.iter().map_while(Option::as_ref))?;
        let has_arguments = words.len() > 1;
        let (made, is_kept) = find(words).map_err(mlua::Error::runtime)?;
        if is_kept {
            if !has_arguments {
                let _ = self.without_arguments.set(made.clone());
            } else if let Some(text) = only {
                self.with_text.borrow_mut().insert((*text).into(), made.clone());
            }
        }
        Ok(made)
    }
}

/// Returns a name and its arguments as words.
fn words<'v>(name: &str, arguments: impl Iterator<Item = &'v Value>) -> mlua::Result<Vec<String>> {
    let mut words = vec![name.to_owned()];
    for (index, argument) in arguments.enumerate() {
        let word = convert::argument(argument).ok_or_else(|| {
            let (number, kind) = (index + 1, argument.type_name());
            mlua::Error::runtime(format!("argument {number} of `{name}` is a {kind}, not a string or number"))
        })?;
        words.push(word);
    }
    Ok(words)
}

/// An argument of a fetch or converter. Arguments after an absent one do not count.
type Argument = Option<Value>;

/// Creates the method of a fetch. Most fetches have at most one argument, and each further parameter takes time. For a variable
/// number, mlua creates a list.
fn fetch(lua: &Lua, called: Arc<Called>, name: String, form: ResultForm) -> mlua::Result<Function> {
    type A = Argument;
    let has_few = CalledFetch::most_arguments(&name) <= 1;
    let uses = Uses::new(name);
    let run = move |lua: &Lua, object: MethodObject, arguments: &[Argument]| {
        let run = |fetch: &CalledFetch| view(object, |env| form.show(lua, fetch.get(env)));
        uses.with(arguments, |words| called.fetch(words), run)?
    };
    if has_few {
        return method(lua, move |lua, (object, a, excess): (MethodObject, A, A)| {
            run(lua, object, &[a, excess])
        });
    }
    type Arguments = (MethodObject, A, A, A, A, A, A, A, A, A, A, A, A);
    method(lua, move |lua, (object, a, b, c, d, e, f, g, h, i, j, k, l): Arguments| {
        run(lua, object, &[a, b, c, d, e, f, g, h, i, j, k, l])
    })
}

/// Creates the method of a converter.
fn converter(lua: &Lua, called: Arc<Called>, name: String, form: ResultForm) -> mlua::Result<Function> {
    type A = Argument;
    let has_few = CalledConvert::most_arguments(&name) <= 1;
    let uses = Uses::new(name);
    let run = move |lua: &Lua, object: MethodObject, value: &Value, arguments: &[Argument]| {
        let run = |converter: &CalledConvert| {
            with_value(value, |value| view(object, |env| form.show(lua, converter.apply(value, env))))
        };
        uses.with(arguments, |words| called.convert(words), run)?
    };
    if has_few {
        type Arguments = (MethodObject, Value, A, A);
        return method(lua, move |lua, (object, value, a, excess): Arguments| {
            run(lua, object, &value, &[a, excess])
        });
    }
    type Arguments = (MethodObject, Value, A, A, A, A, A, A);
    method(lua, move |lua, (object, value, a, b, c, d, e, f): Arguments| {
        run(lua, object, &value, &[a, b, c, d, e, f])
    })
}

/// Calls `run` with a script's value. A text is not copied.
#[inline]
fn with_value<R>(value: &Value, run: impl FnOnce(sample::Value<'_>) -> R) -> R {
    match value {
        Value::String(text) => run(sample::Value::Str((&*text.as_bytes()).into())),
        value => run(convert::from_lua(value)),
    }
}

/// The variables that scripts use, by name.
struct UsedVariables {
    called: Arc<Called>,
    known: RefCell<TextMap<Var>>,
}

impl UsedVariables {
    fn new(called: Arc<Called>) -> Self {
        Self { called, known: RefCell::default() }
    }

    /// Returns the variable with that name. If `adds`, an unknown one is added, as long as there is room.
    #[inline]
    fn get(&self, lua: &Lua, name: TextArgument, adds: bool) -> mlua::Result<Option<Var>> {
        let name = text(lua, name)?;
        if let Some(known) = self.known.borrow().get(&**name) {
            return Ok(Some(known.clone()));
        }
        let shown = String::from_utf8(name.to_vec()).map_err(mlua::Error::runtime)?;
        let Some((found, is_kept)) = self.called.variable(&shown, adds) else { return Ok(None) };
        if is_kept {
            self.known.borrow_mut().insert((&**name).into(), found.clone());
        }
        Ok(Some(found))
    }
}

fn variable_setter(lua: &Lua, called: Arc<Called>) -> mlua::Result<Function> {
    let variables = UsedVariables::new(called);
    method(lua, move |lua, (object, name, value, if_exists): (MethodObject, TextArgument, Value, bool)| {
        check(object)?;
        // Only process variables persist. For others it does not matter who uses them.
        let adds = !if_exists || !matches!(&name, Either::Left(name) if name.starts_with(b"proc."));
        let Some(var) = variables.get(lua, name, adds)? else { return Ok(false) };
        with_value(&value, |value| Ok(bridge::view(RUNNING, |env| var.set(env, &value))?.unwrap_or(false)))
    })
}

fn variable_getter(lua: &Lua, called: Arc<Called>, keeps_booleans: bool) -> mlua::Result<Function> {
    let variables = UsedVariables::new(called);
    let form = ResultForm { as_text: false, keeps_booleans };
    method(lua, move |lua, (object, name): (MethodObject, TextArgument)| {
        check(object)?;
        let Some(var) = variables.get(lua, name, false)? else { return Ok(Either::Right(Value::Nil)) };
        let shown = bridge::view(RUNNING, |env| form.show(lua, var.get(env)))?;
        shown.unwrap_or(Ok(Either::Right(Value::Nil)))
    })
}

/// The kinds of changes, by their numbers in the prelude.
const ADD: i64 = 0;
const SET: i64 = 1;

/// Creates a method that changes the headers of a message: adds one, replaces those with a name, or deletes them.
fn header_editor(lua: &Lua, (kind, of_response): (i64, bool)) -> mlua::Result<Function> {
    let side = if of_response { Side::Response } else { Side::Request };
    method(lua, move |lua, (object, name, value): (MethodObject, TextArgument, Option<TextArgument>)| {
        check(object)?;
        let name = text(lua, name)?;
        let value = match value {
            None if matches!(kind, ADD | SET) => return Err(mlua::Error::runtime("missing value")),
            None => BString::default(),
            Some(value) => text(lua, value)?,
        };
        let edit = match kind {
            ADD => Edit::Add(side, &name, &value),
            SET => Edit::Set(side, &name, &value),
            _ => Edit::Remove(side, &name),
        };
        bridge::with(RUNNING, |bridge| bridge.edit(&edit))?.ok_or_else(|| cannot_change(side))
    })
}

/// The error of a change to a message that is not accessible in this place.
pub(super) fn cannot_change(side: Side) -> mlua::Error {
    mlua::Error::runtime(match side {
        Side::Request => "the request cannot be changed here",
        Side::Response => "the response cannot be changed here",
    })
}
