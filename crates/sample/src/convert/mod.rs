//! Converters (manual, 7.3.1): functions that transform a value. Each family is a file with a table; a row is a keyword.

// All preparing functions have the signature of `Prepare`, even if they do not resize their arguments.
#![allow(clippy::ptr_arg)]

mod address;
mod capture;
mod cipher;
mod date;
mod debug;
mod digest;
mod directory;
mod encode;
mod fix;
mod forwarded;
mod gcm;
mod hash;
mod json;
mod json_path;
pub mod jwe;
mod jwt;
mod map;
mod mqtt;
mod number;
mod packet;
mod protobuf;
mod strftime;
mod table;
mod text;
mod variable;
mod x509;

use base::keyword_support::Support;
use std::collections::HashMap;
use std::sync::LazyLock;

use crate::args::{Args, Spec};
use crate::env::Env;
use crate::fetch::Prepare;
use crate::value::{Type, Value};

/// Transforms a value, which has the input type of the row.
type ConvertFn = for<'a> fn(Value<'a>, &'a Args, &'a Env<'a>) -> Option<Value<'a>>;

/// Maps a number to a number.
pub(crate) type Calculate = fn(i64, &Args, &Env<'_>) -> Option<i64>;

/// The function of a converter.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// For any value.
    Change(ConvertFn),
    /// A function for numbers. They stay in registers from one converter to the next.
    Calculate(Calculate),
}

/// A converter keyword.
pub struct Convert {
    /// The keyword's name.
    pub name: &'static str,
    /// The arguments of the converter.
    pub args: &'static [Spec],
    /// The input type.
    pub takes: Type,
    /// The output type.
    pub gives: Type,
    /// A one-line description.
    pub doc: &'static str,
    /// The conversion.
    pub(crate) run: Run,
    /// An additional check of the arguments.
    pub prepare: Option<Prepare>,
    /// How completely the converter is supported.
    pub support: Support,
}

impl std::fmt::Debug for Convert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Builds a table row.
pub(crate) const fn row(
    name: &'static str,
    args: &'static [Spec],
    takes: Type,
    gives: Type,
    doc: &'static str,
    change: ConvertFn,
) -> Convert {
    let run = Run::Change(change);
    Convert { name, args, takes, gives, doc, run, prepare: None, support: Support::Full }
}

/// Builds a table row of an arithmetic converter.
const fn calculation(
    name: &'static str,
    args: &'static [Spec],
    doc: &'static str,
    calculate: Calculate,
) -> Convert {
    let run = Run::Calculate(calculate);
    let (takes, gives) = (Type::Int, Type::Int);
    Convert { name, args, takes, gives, doc, run, prepare: None, support: Support::Full }
}

impl Convert {
    /// Converts `value`, which has the input type of the row.
    pub fn apply<'a>(&self, value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
        match (self.run, value) {
            (Run::Change(change), value) => change(value, args, env),
            (Run::Calculate(calculate), Value::Int(number)) => calculate(number, args, env).map(Value::Int),
            (Run::Calculate(_), _) => None,
        }
    }

    /// Adds a further check of the arguments.
    const fn prepared(self, prepare: Prepare) -> Self {
        Self { prepare: Some(prepare), ..self }
    }
}

static TABLES: &[&[Convert]] = &[
    number::CONVERTS,
    text::CONVERTS,
    encode::CONVERTS,
    hash::CONVERTS,
    date::CONVERTS,
    address::CONVERTS,
    map::CONVERTS,
    json::CONVERTS,
    jwt::CONVERTS,
    jwe::CONVERTS,
    forwarded::CONVERTS,
    fix::CONVERTS,
    packet::CONVERTS,
    mqtt::CONVERTS,
    protobuf::CONVERTS,
    cipher::CONVERTS,
    directory::CONVERTS,
    variable::CONVERTS,
    capture::CONVERTS,
    debug::CONVERTS,
    x509::CONVERTS,
    table::CONVERTS,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Convert>> =
    LazyLock::new(|| all().map(|convert| (convert.name, convert)).collect());

/// All converters, by family.
pub fn all() -> impl Iterator<Item = &'static Convert> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// Looks up a converter by name.
pub fn find(name: &str) -> Option<&'static Convert> {
    BY_NAME.get(name).copied()
}

/// The known name most similar to `name`.
pub fn suggest(name: &str) -> Option<&'static str> {
    diag::suggest(name, all().map(|convert| convert.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_unique() {
        assert_eq!(BY_NAME.len(), all().count(), "a name occurs twice");
    }
}
