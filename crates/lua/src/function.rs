//! Functions that scripts registered, as the configuration names them. `calling` calls them.

use std::sync::Arc;

use runtime::shard::current_worker;
use sample::script::Use;

use crate::state::State;

/// What a function was registered as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionKind {
    /// An action for these rule sets, with so many words behind its name.
    Action {
        /// `tcp-req` and so on.
        sets: Vec<String>,
        /// How many words.
        words: usize,
    },
    /// A fetch.
    Fetch,
    /// A converter.
    Converter,
    /// A service that answers requests of HTTP.
    HttpService,
    /// A service that speaks over a connection.
    TcpService,
}

impl FunctionKind {
    /// The name that it is found by: of an action, with its rule set before it.
    pub(crate) fn key(&self, name: &str) -> Box<str> {
        match self {
            Self::Action { sets, .. } => format!("{}/{name}", sets.first().map_or("", |set| set)).into(),
            _ => name.into(),
        }
    }

    /// What it is used as.
    pub fn used(&self) -> Use {
        match self {
            Self::Action { .. } => Use::Action,
            Self::Fetch => Use::Fetch,
            Self::Converter => Use::Converter,
            Self::HttpService | Self::TcpService => Use::Service,
        }
    }
}

/// A function that a script registered.
#[derive(Debug)]
pub struct Function {
    /// Its name, without `lua.`.
    pub name: Box<str>,
    /// What it is for.
    pub kind: FunctionKind,
    /// It in the state that all workers share, or in the one of each worker.
    pub(crate) homes: Vec<(Arc<State>, mlua::Function)>,
}

impl Function {
    /// It in the state that the calling worker uses.
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
