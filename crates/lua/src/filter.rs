//! Filters registered by scripts (`core.register_filter`): as a configuration line declares them, and those created for a stream,
//! with functions called during the stream.
//!
//! Their functions cannot wait: each runs to its end at once, within the time of a turn.

use std::sync::Arc;
use std::time::Duration;

use mlua::{Function, IntoLuaMulti, Table, Value};

use crate::bridge::{Bridge, Nobody};
use crate::failure::CallFailure;
use crate::native::FOR_HTTP;
use crate::running::{CallStep, RunningCall};
use crate::state::State;

/// A filter registered by scripts, for each of their states: its class, and the function that creates one from a configuration
/// line.
#[derive(Debug)]
pub struct FilterClass {
    pub(crate) name: Box<str>,
    pub(crate) homes: Vec<(Arc<State>, Table, Function)>,
}

/// A filter declared by a configuration line.
#[derive(Debug)]
pub struct FilterDeclared {
    name: Box<str>,
    /// Whether it can filter HTTP streams.
    pub is_for_http: bool,
    homes: Vec<(Arc<State>, Table)>,
}

/// The callback functions of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Callback {
    /// A direction begins.
    Start = 0,
    /// A direction has ended.
    End = 1,
    /// The head of a message is about to be sent.
    Headers = 2,
    /// Payload of a message was received.
    Payload = 3,
    /// The payload of a message has ended.
    MessageEnd = 4,
    /// Bytes of a stream were received.
    Bytes = 5,
}

impl Callback {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start_analyze",
            Self::End => "end_analyze",
            Self::Headers => "http_headers",
            Self::Payload => "http_payload",
            Self::MessageEnd => "http_end",
            Self::Bytes => "tcp_payload",
        }
    }

    /// Whether the callback is for an HTTP message rather than a channel.
    fn is_of_message(self) -> bool {
        matches!(self, Self::Headers | Self::Payload | Self::MessageEnd)
    }
}

impl FilterClass {
    /// Creates a filter from a line with these words; returns `None` if the script does not want one.
    ///
    /// # Errors
    /// The script's error.
    pub fn declare(&self, words: &[String]) -> Result<Option<FilterDeclared>, String> {
        let mut declared = FilterDeclared { name: self.name.clone(), is_for_http: false, homes: Vec::new() };
        for (state, class, make) in &self.homes {
            let mut running = RunningCall::unlimited(state.clone());
            let declare: Function = state.filters.get("declare").map_err(|error| error.to_string())?;
            let args = || {
                let args = state.lua.create_sequence_from(words.iter().map(|word| &**word))?;
                Ok::<_, mlua::Error>([
                    Value::Table(class.clone()),
                    Value::Function(make.clone()),
                    Value::Table(args),
                ])
            };
            let args = args().map_err(|error| error.to_string())?;
            let values = match running.begin_alone(&Nobody, &declare, &args) {
                CallStep::Done(values) => values,
                CallStep::Failed(failure) => return Err(failure.text()),
                CallStep::Wait(_) => return Err("waiting is not possible here".to_owned()),
            };
            match (values.front(), values.get(1)) {
                (Some(Value::Table(own)), flags) => {
                    declared.is_for_http = flags.and_then(Value::as_integer).unwrap_or(0) & FOR_HTTP != 0;
                    declared.homes.push((state.clone(), own.clone()));
                }
                (_, Some(Value::String(why))) => return Err(why.to_string_lossy()),
                _ => return Ok(None),
            }
        }
        Ok(Some(declared))
    }
}

impl FilterDeclared {
    /// Returns its name, without `lua.`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates the filter of a stream; returns `None` if the filter does not apply to it.
    ///
    /// # Errors
    /// The function failed, which has been logged.
    pub fn start(self: &Arc<Self>, bridge: &dyn Bridge) -> Result<Option<ScriptFilter>, CallFailure> {
        let state = match &*self.homes {
            [(only, _)] => only,
            homes => {
                let number = runtime::shard::current_worker() + 1;
                &homes.iter().find(|(state, _)| state.number == number).unwrap_or(&homes[0]).0
            }
        };
        let Some((_, own)) = self.homes.iter().find(|(home, _)| Arc::ptr_eq(home, state)) else {
            return Ok(None);
        };
        let mut running = RunningCall::new(state.clone(), allowed(state));
        let step = match state.filters.get::<Function>("begin") {
            Ok(begin) => running.begin_alone(bridge, &begin, &[Value::Table(own.clone())]),
            Err(error) => CallStep::Failed(CallFailure::Error(error.to_string())),
        };
        let values = self.done(&running, bridge, step)?;
        let (Some(object @ Value::Table(_)), Some(has)) =
            (values.front().cloned(), values.get(1).and_then(Value::as_integer))
        else {
            return Ok(None);
        };
        Ok(Some(ScriptFilter { declared: self.clone(), state: state.clone(), object, has: has as u8 }))
    }

    /// Returns the result of a function, which must have completed.
    fn done(
        &self,
        running: &RunningCall,
        bridge: &dyn Bridge,
        step: CallStep,
    ) -> Result<mlua::MultiValue, CallFailure> {
        let (failure, why) = match step {
            CallStep::Done(values) => return Ok(values),
            CallStep::Failed(failure) => (failure.clone(), failure.text()),
            CallStep::Wait(_) => (CallFailure::Error(NO_WAITING.to_owned()), NO_WAITING.to_owned()),
        };
        running.log(bridge, &format!("Lua filter '{}': {why}.", self.name));
        Err(failure)
    }
}

/// The error if a filter function waits.
const NO_WAITING: &str = "yield not allowed";

/// Returns the time limit of a filter function. It blocks its worker, so it gets no more than one turn.
fn allowed(state: &State) -> Option<Duration> {
    let settings = &state.settings;
    settings.session.into_iter().chain(settings.burst).min()
}

/// The filter of a stream.
#[derive(Debug, Clone)]
pub struct ScriptFilter {
    declared: Arc<FilterDeclared>,
    state: Arc<State>,
    object: Value,
    /// A bit mask of the filter's functions.
    has: u8,
}

impl ScriptFilter {
    /// Whether the filter has that function.
    pub fn has(&self, callback: Callback) -> bool {
        self.has & (1 << callback as u8) != 0
    }

    /// Calls a function for one direction; returns its numeric result, if there is one.
    ///
    /// # Errors
    /// The function failed, which has been logged.
    pub fn call(
        &self,
        bridge: &dyn Bridge,
        callback: Callback,
        of_response: bool,
    ) -> Result<Option<i64>, CallFailure> {
        let mut running = RunningCall::new(self.state.clone(), allowed(&self.state));
        let number = running.number();
        let made = (|| {
            let call: Function = self.state.filters.get("call")?;
            let about = (number, self.object.clone(), callback.name(), callback.is_of_message(), of_response);
            let args = about.into_lua_multi(&self.state.lua)?;
            Ok::<_, mlua::Error>((call, args.into_iter().collect::<Vec<Value>>()))
        })();
        let step = match made {
            Ok((call, args)) => running.begin_alone(bridge, &call, &args),
            Err(error) => CallStep::Failed(CallFailure::Error(error.to_string())),
        };
        let values = self.declared.done(&running, bridge, step)?;
        Ok(values.front().and_then(Value::as_integer))
    }
}
