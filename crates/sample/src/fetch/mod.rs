//! Fetches (manual, 7.3.2 to 7.3.7): keywords that give values. A family is a file with a table; a
//! row is a keyword.

// Every preparing function has the signature of `Prepare`, whatever it does with its arguments.
#![allow(clippy::ptr_arg)]

mod capture;
mod certificate;
mod connection;
mod constant;
mod cookie;
mod distcc;
mod dump;
mod header;
mod hello;
mod htx;
mod internal;
mod message;
mod payload;
mod proxy;
mod request;
mod secret;
mod socket;
mod stream;
mod table;
mod timer;
mod tls;

use base::keyword_support::Support;
use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use capture::request_line;
pub(crate) use connection::{destination, source};
pub use internal::hostname;
pub(crate) use proxy::{backend, backend_connections};
pub(crate) use table::an_element;
pub(crate) use timer::{Timers, accepted, requested};

use crate::args::{Arg, Args, Spec};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Type, Value};

/// Where a fetch that has several values stands among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Whether all values are wanted, one after another (ACLs), and not the one the fetch takes by
    /// itself.
    pub all: bool,
    /// How many were given so far. The evaluation counts.
    pub given: u32,
    /// Set by the fetch: another value follows.
    pub more: bool,
}

impl Cursor {
    /// For one value.
    pub fn once() -> Self {
        Self::default()
    }

    /// For all values.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Takes the value that is next from `values`, or the last where only one is wanted.
    fn pick<T>(&mut self, mut values: impl Iterator<Item = T>) -> Option<T> {
        if !self.all {
            return values.last();
        }
        let value = values.nth(self.given as usize)?;
        self.given += 1;
        self.more = values.next().is_some();
        Some(value)
    }
}

/// Gives a value.
pub type Run = for<'a> fn(&'a Env<'a>, &'a Args, &mut Cursor) -> Option<Value<'a>>;

/// Shows its values one after the other until one is liked; says whether one was.
pub type Any = for<'a> fn(&'a Env<'a>, &'a Args, &mut dyn FnMut(&'a [u8]) -> bool) -> bool;

/// Checks arguments beyond their types, and prepares them.
pub type Prepare = fn(&mut Vec<Arg>, &Scope<'_>) -> Result<(), String>;

/// A keyword.
pub struct Fetch {
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub args: &'static [Spec],
    /// What it gives.
    pub gives: Type,
    /// Where it may be used.
    pub columns: Columns,
    /// What it is, in one line.
    pub doc: &'static str,
    /// The function.
    pub run: Run,
    /// The further check of its arguments.
    pub prepare: Option<Prepare>,
    /// The short way for conditions, which look for one of all values; what has none is asked for
    /// each by `run`.
    pub any: Option<Any>,
    /// Whether it is known only once the transfer is over: a log line that has one waits for that.
    pub late: bool,
    /// How much of it works.
    pub support: Support,
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A row of a table.
pub(crate) const fn row(
    name: &'static str,
    args: &'static [Spec],
    gives: Type,
    columns: Columns,
    doc: &'static str,
    run: Run,
) -> Fetch {
    Fetch {
        name,
        args,
        gives,
        columns,
        doc,
        run,
        prepare: None,
        any: None,
        late: false,
        support: Support::Full,
    }
}

impl Fetch {
    /// With a further check of the arguments.
    const fn prepared(self, prepare: Prepare) -> Self {
        Self { prepare: Some(prepare), ..self }
    }

    /// With a short way for conditions.
    const fn any(self, any: Any) -> Self {
        Self { any: Some(any), ..self }
    }

    /// Works but for what the text says.
    const fn partial(self, reason: &'static str) -> Self {
        Self { support: Support::Partial(reason), ..self }
    }

    /// Known only once the transfer is over.
    const fn late(self) -> Self {
        Self { late: true, ..self }
    }
}

/// What stands for the fetch of an expression that begins with a log line; no name that a
/// configuration could write.
pub(crate) static MESSAGE: Fetch = row("", &[], Type::Str, Columns(u32::MAX), "the log line", |env, _, _| {
    Some(Value::str(env.request_bytes))
});

static TABLES: &[&[Fetch]] = &[
    constant::FETCHES,
    internal::FETCHES,
    proxy::FETCHES,
    connection::FETCHES,
    tls::FETCHES,
    certificate::FETCHES,
    hello::FETCHES,
    secret::FETCHES,
    timer::FETCHES,
    request::FETCHES,
    header::FETCHES,
    cookie::FETCHES,
    message::FETCHES,
    payload::FETCHES,
    capture::FETCHES,
    socket::FETCHES,
    stream::FETCHES,
    distcc::FETCHES,
    dump::FETCHES,
    htx::FETCHES,
    table::FETCHES,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Fetch>> =
    LazyLock::new(|| all().map(|fetch| (fetch.name, fetch)).collect());

/// Every fetch, by family.
pub fn all() -> impl Iterator<Item = &'static Fetch> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// The fetch of that name.
pub fn find(name: &str) -> Option<&'static Fetch> {
    BY_NAME.get(name).copied()
}

/// The fetch whose name is near to `name`.
pub fn suggest(name: &str) -> Option<&'static str> {
    diag::suggest(name, all().map(|fetch| fetch.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_in_one_table_only() {
        assert_eq!(BY_NAME.len(), all().count(), "a name occurs twice");
    }
}
