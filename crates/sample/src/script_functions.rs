//! What scripts and the tables of this crate have of each other: functions that scripts registered
//! stand in expressions as `lua.name`, and scripts call fetches and converters by their names.

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

/// A function as the first argument of the rows below.
#[derive(Debug)]
pub(crate) struct ScriptFunction(pub(crate) Arc<dyn Function>);

impl Prepared for ScriptFunction {}

/// How many arguments a function in an expression may have.
const MOST: [args::Spec; 8] = [opt(args::ArgKind::Str); 8];

/// The arguments behind the function.
fn texts<'t, 'a>(args: &'a Args, room: &'t mut [&'a [u8]; 8]) -> &'t [&'a [u8]] {
    let given = args.0.get(1..).unwrap_or_default();
    for (text, arg) in room.iter_mut().zip(given) {
        *text = text_of(arg);
    }
    &room[..given.len().min(room.len())]
}

/// The fetch of functions of scripts; its first argument is the function. They are matched as text where
/// nothing else is said, whatever they give, as in HAProxy.
pub(crate) static FETCH: Fetch =
    fetch::row("lua.", &MOST, Type::Str, Columns(u32::MAX), "a value that a script gives", |env, args, _| {
        let function: &ScriptFunction = args.prepared(0)?;
        function.0.fetch(env, texts(args, &mut [&[]; 8]))
    });

/// The converter of functions of scripts.
pub(crate) static CONVERT: Convert = convert::row(
    "lua.",
    &MOST,
    Type::Str,
    Type::Str,
    "what a script makes of a value",
    |value, args, env| {
        let function: &ScriptFunction = args.prepared(0)?;
        function.0.convert(&value, env, texts(args, &mut [&[]; 8]))
    },
);

/// The name of a script's function, if `name` is one.
pub(crate) fn name(name: &str) -> Option<&str> {
    name.strip_prefix("lua.")
}

/// How scripts write the names of the tables: letters, digits and `_`.
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
    /// Whether there is a fetch of that name, as scripts write it.
    pub fn exists(name: &str) -> bool {
        FETCHES.contains_key(name)
    }

    /// The fetch of that name, with these arguments.
    ///
    /// # Errors
    /// There is none, or it does not take these.
    pub fn new(name: &str, texts: &[String], scope: &Scope<'_>) -> Result<Self, String> {
        let row = *FETCHES.get(name).ok_or_else(|| format!("there is no fetch `{name}`"))?;
        let mut args = args::resolve(texts, row.args, scope).map_err(|error| format!("`{name}` {error}"))?;
        if let Some(prepare) = row.prepare {
            prepare(&mut args, scope).map_err(|error| format!("`{name}`: {error}"))?;
        }
        Ok(Self { row, args: Args::new(args) })
    }

    /// Its value.
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
    /// Whether there is a converter of that name, as scripts write it.
    pub fn exists(name: &str) -> bool {
        CONVERTS.contains_key(name)
    }

    /// The converter of that name, with these arguments.
    ///
    /// # Errors
    /// There is none, or it does not take these.
    pub fn new(name: &str, texts: &[String], scope: &Scope<'_>) -> Result<Self, String> {
        let row = *CONVERTS.get(name).ok_or_else(|| format!("there is no converter `{name}`"))?;
        let mut args = args::resolve(texts, row.args, scope).map_err(|error| format!("`{name}` {error}"))?;
        if let Some(prepare) = row.prepare {
            prepare(&mut args, scope).map_err(|error| format!("`{name}`: {error}"))?;
        }
        Ok(Self { row, args: Args::new(args) })
    }

    /// What it makes of `value`, which is cast to what it takes.
    pub fn apply<'a>(&'a self, value: Value<'a>, env: &'a Env<'a>) -> Option<Value<'a>> {
        self.row.apply(value.cast(self.row.takes)?, &self.args, env)
    }
}
