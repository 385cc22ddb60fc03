//! Fetches (manual, 7.3.2 to 7.3.7): keywords that produce values. Each family is a file with a table; a row is a keyword.

// Every preparing function has the signature of `Prepare`, even if it does not resize its arguments.
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
pub(crate) use connection::{destination, server_end, source};
pub use internal::hostname;
pub(crate) use proxy::{backend, backend_connections};
pub(crate) use table::an_element;
pub(crate) use timer::{Timers, accepted, requested};

use crate::args::{Arg, Args, Spec};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Type, Value};

/// The position among the values of a fetch that has several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Whether to return all values, one after the other (for ACLs), instead of the fetch's default value.
    pub all: bool,
    /// The number of values returned so far, maintained by the evaluation.
    pub given: u32,
    /// Set by the fetch if another value follows.
    pub more: bool,
}

impl Cursor {
    /// A cursor for a single value.
    pub fn once() -> Self {
        Self::default()
    }

    /// A cursor for all values.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Returns the next of `values`. If only one value is wanted, returns the last one.
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

/// Produces a value.
pub type Run = for<'a> fn(&'a Env<'a>, &'a Args, &mut Cursor) -> Option<Value<'a>>;

/// Passes the values to a predicate until it accepts one. Returns whether it accepted a value.
pub type Any = for<'a> fn(&'a Env<'a>, &'a Args, &mut dyn FnMut(&'a [u8]) -> bool) -> bool;

/// Checks arguments in addition to their types, and prepares them.
pub type Prepare = fn(&mut Vec<Arg>, &Scope<'_>) -> Result<(), String>;

/// A fetch keyword.
pub struct Fetch {
    /// The keyword's name.
    pub name: &'static str,
    /// The arguments of the fetch.
    pub args: &'static [Spec],
    /// The output type.
    pub gives: Type,
    /// The places at which the fetch may be used.
    pub columns: Columns,
    /// A one-line description.
    pub doc: &'static str,
    /// The function that produces the value.
    pub run: Run,
    /// An additional check of the arguments.
    pub prepare: Option<Prepare>,
    /// A shortcut for conditions that hold if any value matches. Without it, `run` is called once per value.
    pub any: Option<Any>,
    /// Whether the value is only known after the transfer. Log lines that use it are then delayed.
    pub late: bool,
    /// How completely the fetch is supported.
    pub support: Support,
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Builds a table row.
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
    /// Adds a further check of the arguments.
    const fn prepared(self, prepare: Prepare) -> Self {
        Self { prepare: Some(prepare), ..self }
    }

    /// Adds a shortcut for conditions.
    const fn any(self, any: Any) -> Self {
        Self { any: Some(any), ..self }
    }

    /// Marks the keyword as partially supported, with the reason.
    const fn partial(self, reason: &'static str) -> Self {
        Self { support: Support::Partial(reason), ..self }
    }

    /// Marks the value as only known after the transfer.
    const fn late(self) -> Self {
        Self { late: true, ..self }
    }
}

/// Placeholder fetch for expressions that start from a log line. The name cannot occur in a configuration.
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

/// All fetches, by family.
pub fn all() -> impl Iterator<Item = &'static Fetch> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// Looks up a fetch by name.
pub fn find(name: &str) -> Option<&'static Fetch> {
    BY_NAME.get(name).copied()
}

/// The known name most similar to `name`.
pub fn suggest(name: &str) -> Option<&'static str> {
    diag::suggest(name, all().map(|fetch| fetch.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_unique() {
        assert_eq!(BY_NAME.len(), all().count(), "a name occurs twice");
    }
}
