//! A call to a script function: a coroutine from its first instruction to its last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mlua::{IntoLuaMulti, MultiValue, Thread, Value as LuaValue};
use sample::Value;

use crate::bridge::{self, Bridge};
use crate::budget::{self, TurnLimits};
use crate::convert;
use crate::failure::{CallFailure, message_of};
use crate::function::{Function, FunctionKind};
use crate::state::State;
use crate::wait::{Wait, WaitAnswer, code};

/// The progress of a call.
#[derive(Debug)]
pub enum CallStep {
    /// The call has ended, with these results.
    Done(MultiValue),
    /// The call waits.
    Wait(Wait),
    /// The call failed.
    Failed(CallFailure),
}

/// A call.
#[derive(Debug)]
pub struct RunningCall {
    state: Arc<State>,
    thread: Option<Thread>,
    /// The number of the call. Objects of its request are only valid during this call.
    number: u64,
    /// The remaining computing time.
    left: Option<Duration>,
    /// The time limit of one turn.
    burst: Option<Duration>,
    /// Whether the call yields after a number of instructions.
    yields: bool,
    /// Number of turns so far.
    turns: u64,
}

/// Number of calls so far.
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Numbers reserved for this thread, to reduce contention.
    static NUMBERS: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
}

fn next_number() -> u64 {
    NUMBERS.with(|numbers| {
        let (mut next, mut end) = numbers.get();
        if next == end {
            next = CALLS.fetch_add(1 << 16, Relaxed) + 1;
            end = next + (1 << 16);
        }
        numbers.set((next + 1, end));
        next
    })
}

/// Returns the shorter of two times, each of which may be unlimited.
fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Returns a function followed by its arguments, as coroutines expect them.
fn call_of(run: &mlua::Function, args: &[LuaValue]) -> MultiValue {
    let mut all: MultiValue = args.iter().cloned().collect();
    all.push_front(LuaValue::Function(run.clone()));
    all
}

impl RunningCall {
    pub(crate) fn new(state: Arc<State>, allowed: Option<Duration>) -> Self {
        let burst = state.settings.burst;
        Self { state, thread: None, number: next_number(), left: allowed, burst, yields: true, turns: 0 }
    }

    /// Creates a call before the workers start, without time limits.
    pub(crate) fn unlimited(state: Arc<State>) -> Self {
        Self { burst: None, ..Self::new(state, None) }
    }

    /// Returns the number of the call.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Starts an action.
    pub fn begin_action(&mut self, bridge: &dyn Bridge, function: &Function, words: &[Box<str>]) -> CallStep {
        let state = self.state.clone();
        let (_, own) = function.home();
        let number = self.number as i64;
        if words.is_empty() {
            return self.resume_with(bridge, (&state.act, own, number));
        }
        let made = (&state.act, own, number).into_lua_multi(&state.lua).and_then(|mut all| {
            for word in words {
                all.push_back(LuaValue::String(state.lua.create_string(&*base::raw::bytes_of(word))?));
            }
            Ok(all)
        });
        match made {
            Ok(all) => self.resume_with(bridge, all),
            Err(error) => CallStep::Failed(CallFailure::Error(message_of(&error))),
        }
    }

    /// Starts a service.
    pub fn begin_service(&mut self, bridge: &dyn Bridge, function: &Function) -> CallStep {
        let state = self.state.clone();
        let (_, own) = function.home();
        let serve =
            if function.kind == FunctionKind::HttpService { &state.serve_http } else { &state.serve_tcp };
        self.resume_with(bridge, (serve, own, self.number as i64))
    }

    /// Starts a function with only these arguments, which may yield.
    pub(crate) fn begin_task(
        &mut self,
        bridge: &dyn Bridge,
        run: &mlua::Function,
        args: &[LuaValue],
    ) -> CallStep {
        self.resume_with(bridge, call_of(run, args))
    }

    /// Runs a function with only these arguments, without yielding.
    pub(crate) fn begin_alone(
        &mut self,
        bridge: &dyn Bridge,
        run: &mlua::Function,
        args: &[LuaValue],
    ) -> CallStep {
        self.look(bridge, call_of(run, args))
    }

    /// Starts a runtime socket command.
    pub(crate) fn begin_command(
        &mut self,
        bridge: &dyn Bridge,
        run: &mlua::Function,
        args: &[String],
    ) -> CallStep {
        let state = self.state.clone();
        let made =
            (&state.serve_command, run, self.number as i64).into_lua_multi(&state.lua).and_then(|mut all| {
                for word in args {
                    all.push_back(LuaValue::String(state.lua.create_string(&*base::raw::bytes_of(word))?));
                }
                Ok(all)
            });
        match made {
            Ok(all) => self.resume_with(bridge, all),
            Err(error) => CallStep::Failed(CallFailure::Error(message_of(&error))),
        }
    }

    /// Starts a fetch, or a converter of `value`.
    pub(crate) fn begin_looking<'t>(
        &mut self,
        bridge: &dyn Bridge,
        function: &Function,
        value: Option<&Value<'_>>,
        texts: impl Iterator<Item = &'t [u8]>,
    ) -> CallStep {
        let state = self.state.clone();
        let (_, own) = function.home();
        let lua = &state.lua;
        let made = (|| {
            let mut all = match value {
                None => (&state.act, own, self.number as i64).into_lua_multi(lua)?,
                Some(value) => {
                    let value = convert::to_text(lua, Some(value.clone()))?;
                    (own, value).into_lua_multi(lua)?
                }
            };
            for text in texts {
                all.push_back(LuaValue::String(lua.create_string(text)?));
            }
            Ok(all)
        })();
        match made {
            Ok(all) => self.look(bridge, all),
            Err(error) => CallStep::Failed(CallFailure::Error(message_of(&error))),
        }
    }

    /// Runs in one turn, until the call ends or waits.
    fn look(&mut self, bridge: &dyn Bridge, args: MultiValue) -> CallStep {
        self.yields = false;
        self.left = shorter(self.left, self.burst);
        let mut step = self.resume_with(bridge, args);
        // A value that the script yields does not end the call.
        while let CallStep::Wait(Wait::Turn) = step {
            step = self.resume_with(bridge, ());
        }
        step
    }

    /// Continues with the result of a wait.
    pub fn resume(&mut self, bridge: &dyn Bridge, answer: WaitAnswer) -> CallStep {
        match answer {
            WaitAnswer::Nothing => self.resume_with(bridge, ()),
            answer => self.resume_with(bridge, answer),
        }
    }

    fn resume_with(&mut self, bridge: &dyn Bridge, args: impl IntoLuaMulti) -> CallStep {
        let thread = match self.thread.take().map_or_else(|| self.state.thread(), Ok) {
            Ok(thread) => thread,
            Err(error) => return CallStep::Failed(CallFailure::Error(message_of(&error))),
        };
        let is_first = self.turns == 0;
        self.turns += 1;
        let allowed = shorter(self.burst, self.left);
        let limits = TurnLimits { allowed, yields: self.yields, is_first };
        let (resumed, used) = budget::within(limits, || {
            bridge::lend(self.number, bridge, || thread.resume::<(LuaValue, MultiValue)>(args))
        });
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(used.time);
        }
        if let Some(place) = used.expired {
            // Setting a hook cannot fail.
            let _ = budget::watch(&self.state.lua, self.state.turn);
            return CallStep::Failed(CallFailure::Late(place));
        }
        match resumed {
            Err(error) => CallStep::Failed(CallFailure::Error(message_of(&error))),
            Ok((LuaValue::Integer(code::DONE), values)) => {
                self.state.keep(thread);
                CallStep::Done(values)
            }
            // The call ended explicitly, and its coroutine cannot be reused.
            Ok((LuaValue::Integer(code::FINISH), values)) => CallStep::Done(values),
            Ok((LuaValue::Integer(number), values)) => {
                self.thread = Some(thread);
                CallStep::Wait(Wait::read(number, &values))
            }
            // The hook ended a turn, or the script yielded without a reason.
            Ok(_) => {
                self.thread = Some(thread);
                CallStep::Wait(Wait::Turn)
            }
        }
    }

    /// Logs that the call failed.
    pub fn log(&self, bridge: &dyn Bridge, text: &str) {
        self.state.log(bridge, 1, text.as_bytes());
    }
}

/// Returns the number that an action returned; 0 for any other result.
pub fn number(values: &MultiValue) -> i64 {
    values.front().and_then(LuaValue::as_integer).unwrap_or(0)
}
