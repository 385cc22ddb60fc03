//! Functions registered by scripts, as the configuration uses them.
//!
//! `script_functions` makes them available in expressions, and the crate `lua` runs them.

use std::any::Any;
use std::fmt::Debug;

use crate::env::Env;
use crate::value::Value;

/// The kind of a registered function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Use {
    Action,
    Fetch,
    Converter,
    Service,
}

/// The properties of a function that the configuration needs.
#[derive(Debug, Clone, Copy)]
pub struct FunctionFacts<'a> {
    /// The rule sets in which an action may be used, by their script names.
    pub sets: &'a [String],
    /// The number of words an action takes.
    pub words: usize,
    /// Whether the function is an HTTP service.
    pub is_http: bool,
}

/// A function that a script registered.
pub trait Function: Any + Debug + Send + Sync {
    /// The properties that the configuration needs.
    fn facts(&self) -> FunctionFacts<'_>;
    /// Produces a value, as a fetch.
    fn fetch(&self, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>>;
    /// Converts a value, as a converter.
    fn convert(&self, value: &Value<'_>, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>>;
}
