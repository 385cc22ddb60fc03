//! Calls to registered script functions: those that may wait ([`RunningCall`]), and fetches and converters, which
//! expressions run to their end.

use sample::script::FunctionFacts;
use sample::{Env, Value};

use crate::bridge::EnvBridge;
use crate::convert;
use crate::function::{Function, FunctionKind};
use crate::running::{CallStep, RunningCall};

impl Function {
    /// Creates a call.
    pub fn call(&self) -> RunningCall {
        let (state, _) = self.home();
        let allowed = match self.kind {
            FunctionKind::HttpService | FunctionKind::TcpService => state.settings.service,
            _ => state.settings.session,
        };
        RunningCall::new(state.clone(), allowed)
    }

    /// Runs the function to its end; it cannot wait.
    fn run(&self, env: &Env<'_>, value: Option<&Value<'_>>, args: &[&[u8]]) -> Option<Value<'static>> {
        let mut running = self.call();
        let bridge = EnvBridge(env);
        match running.begin_looking(&bridge, self, value, args.iter().copied()) {
            CallStep::Done(values) => values.into_iter().next().map(|value| convert::from_lua(&value)),
            CallStep::Failed(failure) => {
                let what = if self.kind == FunctionKind::Fetch { "sample-fetch" } else { "converter" };
                running.log(&bridge, &format!("Lua {what} '{}': {}.", self.name, failure.text()));
                None
            }
            CallStep::Wait(_) => {
                let text = format!("Lua {} '{}': yield not allowed.", self.what(), self.name);
                running.log(&bridge, &text);
                None
            }
        }
    }

    fn what(&self) -> &'static str {
        match self.kind {
            FunctionKind::Action { .. } => "function",
            FunctionKind::Fetch => "sample-fetch",
            FunctionKind::Converter => "converter",
            FunctionKind::HttpService => "applet http",
            FunctionKind::TcpService => "applet tcp",
        }
    }
}

impl sample::script::Function for Function {
    fn facts(&self) -> FunctionFacts<'_> {
        let (sets, words) = match &self.kind {
            FunctionKind::Action { sets, words } => (&sets[..], *words),
            _ => (&[][..], 0),
        };
        FunctionFacts { sets, words, is_http: self.kind == FunctionKind::HttpService }
    }

    fn fetch(&self, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>> {
        self.run(env, None, args)
    }

    fn convert(&self, value: &Value<'_>, env: &Env<'_>, args: &[&[u8]]) -> Option<Value<'static>> {
        self.run(env, Some(value), args)
    }
}
