//! Functions registered by scripts, by their names in the configuration. `calling` calls them.

use std::sync::Arc;

use runtime::shard::current_worker;
use sample::script::Use;

use crate::state::State;

/// The kind of a registered function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionKind {
    /// An action for these rule sets, with this many arguments after its name.
    Action {
        /// The rule sets, such as `tcp-req`.
        sets: Vec<String>,
        /// The number of arguments.
        words: usize,
    },
    /// A fetch.
    Fetch,
    /// A converter.
    Converter,
    /// A service that answers HTTP requests.
    HttpService,
    /// A service that handles a TCP connection.
    TcpService,
}

impl FunctionKind {
    /// Returns the name for lookups. For an action, it is prefixed with the rule set.
    pub(crate) fn key(&self, name: &str) -> Box<str> {
        match self {
            Self::Action { sets, .. } => format!("{}/{name}", sets.first().map_or("", |set| set)).into(),
            _ => name.into(),
        }
    }

    /// Returns where the function is used.
    pub fn used(&self) -> Use {
        match self {
            Self::Action { .. } => Use::Action,
            Self::Fetch => Use::Fetch,
            Self::Converter => Use::Converter,
            Self::HttpService | Self::TcpService => Use::Service,
        }
    }
}

/// A registered function.
#[derive(Debug)]
pub struct Function {
    /// The name, without `lua.`.
    pub name: Box<str>,
    /// The kind of function.
    pub kind: FunctionKind,
    /// The function in the shared state, or in each worker's own state.
    pub(crate) homes: Vec<(Arc<State>, mlua::Function)>,
}

impl Function {
    /// Returns the function for the calling worker's state.
    pub(crate) fn home(&self) -> &(Arc<State>, mlua::Function) {
        match &*self.homes {
            [only] => only,
            homes => {
                let number = current_worker() + 1;
                homes.iter().find(|(state, _)| state.number == number).unwrap_or(&homes[0])
            }
        }
    }
}
