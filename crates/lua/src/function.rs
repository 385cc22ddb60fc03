//! Functions that scripts registered, as the configuration names them.

use std::sync::Arc;

use runtime::shard::current_worker;
use sample::script::{Facts, Use};
use sample::{Env, Value};

use crate::bridge::EnvBridge;
use crate::convert;
use crate::running::{Running, Step};
use crate::state::State;

/// What a function was registered as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
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
    pub kind: Kind,
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

    /// A call that is to run.
    pub fn call(&self) -> Running {
        let (state, _) = self.home();
        let allowed = match self.kind {
            Kind::HttpService | Kind::TcpService => state.settings.service,
            _ => state.settings.session,
        };
        Running::new(state.clone(), allowed)
    }

    /// Runs it to its end, which takes no waiting.
    fn run(&self, env: &Env<'_>, value: Option<&Value<'_>>, args: &[&[u8]]) -> Option<Value<'static>> {
        let mut running = self.call();
        let bridge = EnvBridge(env);
        match running.begin_looking(&bridge, self, value, args.iter().copied()) {
            Step::Done(values) => values.into_iter().next().map(|value| convert::from_lua(&value)),
            Step::Failed(failure) => {
                let what = if self.kind == Kind::Fetch { "sample-fetch" } else { "converter" };
                running.tell(&bridge, &format!("Lua {what} '{}': {}.", self.name, failure.text()));
                None
            }
            Step::Wait(_) => {
                let text = format!("Lua {} '{}': yield not allowed.", self.what(), self.name);
                running.tell(&bridge, &text);
                None
            }
        }
    }

    fn what(&self) -> &'static str {
        match self.kind {
            Kind::Action { .. } => "function",
            Kind::Fetch => "sample-fetch",
            Kind::Converter => "converter",
            Kind::HttpService => "applet http",
            Kind::TcpService => "applet tcp",
        }
    }
}

impl sample::script::Function for Function {
    fn facts(&self) -> Facts<'_> {
        let (sets, words) = match &self.kind {
            Kind::Action { sets, words } => (&sets[..], *words),
            _ => (&[][..], 0),
        };
        Facts { sets, words, is_http: self.kind == Kind::HttpService }
    }

    fn fetch(&self, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>> {
        self.run(env, None, args)
    }

    fn convert(&self, value: &Value<'_>, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>> {
        self.run(env, Some(value), args)
    }
}
