//! Functions that scripts registered, as the configuration knows them.
//!
//! How they stand in expressions is told in `called`; how they run is the matter of the crate `lua`.

use std::any::Any;
use std::fmt::Debug;

use crate::env::Env;
use crate::value::Value;

/// What a script registered a function as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Use {
    Action,
    Fetch,
    Converter,
    Service,
}

/// What the configuration must know of a function.
#[derive(Debug, Clone, Copy)]
pub struct FunctionFacts<'a> {
    /// The rule sets that an action is for, as scripts name them.
    pub sets: &'a [String],
    /// How many words an action takes.
    pub words: usize,
    /// Whether a service speaks HTTP.
    pub is_http: bool,
}

/// A function that a script registered.
pub trait Function: Any + Debug + Send + Sync {
    /// What the configuration must know of it.
    fn facts(&self) -> FunctionFacts<'_>;
    /// Gives a value, as a fetch.
    fn fetch(&self, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>>;
    /// Changes a value, as a converter.
    fn convert(&self, value: &Value<'_>, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>>;
}
