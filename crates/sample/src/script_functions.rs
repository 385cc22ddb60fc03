//! The bridge between scripts and the keyword tables: functions registered by scripts are available in expressions as `lua.name`,
//! and scripts call fetches and converters by name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::args::{self, Args, Prepared, opt, text_of};
use crate::convert::{self, Convert};
use crate::env::Env;
use crate::fetch::{self, Cursor, Fetch};
use crate::place::Columns;
use crate::scope::Scope;
use crate::script::Function;
use crate::value::{Type, Value};

/// The function, which is the first argument of the rows below.
#[derive(Debug)]
pub(crate) struct ScriptFunction(pub(crate) Arc<dyn Function>);

impl Prepared for ScriptFunction {}

/// The maximum number of arguments of a function in an expression.
const MOST: [args::Spec; 8] = [opt(args::ArgKind::Str); 8];

/// The arguments after the function.
fn texts<'t, 'a>(args: &'a Args, room: &'t mut [&'a [u8]; 8]) -> &'t [&'a [u8]] {
    let given = args.0.get(1..).unwrap_or_default();
    for (text, arg) in room.iter_mut().zip(given) {
        *text = text_of(arg);
    }
    &room[..given.len().min(room.len())]
}

/// The fetch for script functions. Its first argument is the function. As in HAProxy, its values are matched as strings if no
/// method is specified, regardless of their type.
pub(crate) static FETCH: Fetch = fetch::row(
    "lua.",
    &MOST,
    Type::Str,
    Columns(u32::MAX),
    "value returned by a Lua function",
    |env, args, _| {
        let function: &ScriptFunction = args.prepared(0)?;
        function.0.fetch(env, texts(args, &mut [&[]; 8]))
    },
);

/// The converter for script functions.
pub(crate) static CONVERT: Convert = convert::row(
    "lua.",
    &MOST,
    Type::Str,
    Type::Str,
    "converts the value with a Lua function",
    |value, args, env| {
        let function: &ScriptFunction = args.prepared(0)?;
        function.0.convert(&value, env, texts(args, &mut [&[]; 8]))
    },
);

/// The name of the script function, if `name` refers to one.
pub(crate) fn name(name: &str) -> Option<&str> {
    name.strip_prefix("lua.")
}

/// The form of keyword names in scripts: letters, digits and `_`.
fn written(name: &str) -> String {
    name.replace(['.', '-'], "_")
}

static FETCHES: LazyLock<HashMap<String, &'static Fetch>> =
    LazyLock::new(|| fetch::all().map(|row| (written(row.name), row)).collect());
static CONVERTS: LazyLock<HashMap<String, &'static Convert>> =
    LazyLock::new(|| convert::all().map(|row| (written(row.name), row)).collect());

/// A fetch that a script calls.
#[derive(Debug)]
pub struct CalledFetch {
    row: &'static Fetch,
    args: Args,
}

impl CalledFetch {
    /// Whether a fetch with that script name exists.
    pub fn exists(name: &str) -> bool {
        FETCHES.contains_key(name)
    }

    /// Returns the maximum number of arguments of the fetch with that script name.
    pub fn most_arguments(name: &str) -> usize {
        FETCHES.get(name).map_or(0, |row| row.args.len())
    }

    /// Prepares a call to the fetch with these arguments.
    ///
    /// # Errors
    /// The fetch does not exist or does not accept the arguments.
    pub fn new(name: &str, texts: &[String], scope: &Scope<'_>) -> Result<Self, String> {
        let row = *FETCHES.get(name).ok_or_else(|| format!("there is no fetch `{name}`"))?;
        let mut args = args::resolve(texts, row.args, scope).map_err(|error| format!("`{name}` {error}"))?;
        if let Some(prepare) = row.prepare {
            prepare(&mut args, scope).map_err(|error| format!("`{name}`: {error}"))?;
        }
        Ok(Self { row, args: Args::new(args) })
    }

    /// Evaluates the fetch.
    pub fn get<'a>(&'a self, env: &'a Env<'a>) -> Option<Value<'a>> {
        (self.row.run)(env, &self.args, &mut Cursor::once())
    }
}

/// A converter that a script calls.
#[derive(Debug)]
pub struct CalledConvert {
    row: &'static Convert,
    args: Args,
}

impl CalledConvert {
    /// Whether a converter with that script name exists.
    pub fn exists(name: &str) -> bool {
        CONVERTS.contains_key(name)
    }

    /// Returns the maximum number of arguments of the converter with that script name.
    pub fn most_arguments(name: &str) -> usize {
        CONVERTS.get(name).map_or(0, |row| row.args.len())
    }

    /// Prepares a call to the converter with these arguments.
    ///
    /// # Errors
    /// The converter does not exist or does not accept the arguments.
    pub fn new(name: &str, texts: &[String], scope: &Scope<'_>) -> Result<Self, String> {
        let row = *CONVERTS.get(name).ok_or_else(|| format!("there is no converter `{name}`"))?;
        let mut args = args::resolve(texts, row.args, scope).map_err(|error| format!("`{name}` {error}"))?;
        if let Some(prepare) = row.prepare {
            prepare(&mut args, scope).map_err(|error| format!("`{name}`: {error}"))?;
        }
        Ok(Self { row, args: Args::new(args) })
    }

    /// Converts `value`, which is first cast to the input type.
    pub fn apply<'a>(&'a self, value: Value<'a>, env: &'a Env<'a>) -> Option<Value<'a>> {
        self.row.apply(value.cast(self.row.takes)?, &self.args, env)
    }
}
