//! Calls of functions that scripts registered: those that may wait ([`Running`]), and fetches and
//! converters, which expressions run to their end.

use sample::script::Facts;
use sample::{Env, Value};

use crate::bridge::EnvBridge;
use crate::convert;
use crate::function::{Function, Kind};
use crate::running::{Running, Step};

impl Function {
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
