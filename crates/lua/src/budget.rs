//! The limits of a running script: instructions per turn, time per turn, total time of the call.
//!
//! The interpreter calls the hook at least every [`STEP`] instructions. A script that has used up the instructions of its turn
//! yields; a script that has used up its time is abandoned. It then yields once more, and its stack is not unwound, because a
//! script that catches errors at each of its calls would need time for each of them. If Lua cannot yield, for example within a
//! comparison for `table.sort`, each further instruction gets an error until it can.
//!
//! Lua disables the hook inside finalizers and inside the message handler of an error that the hook raised, and a coroutine counts
//! its own instructions. `prelude/bounds.lua` and `prelude/scheduling.lua` therefore call [`is_over`] in such places, and so do
//! loops of the host.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use mlua::debug::HookTriggers;
use mlua::{Error, Lua, VmState};

/// The error of a script that exceeds its time limit.
pub(crate) const TIMEOUT: &str = "execution timeout";

/// The maximum number of instructions between two checks of the clock. A single instruction can take milliseconds, because it may
/// copy a long string.
const STEP: u32 = 1000;

/// The limits of one turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TurnLimits {
    /// The time limit; `None` for no limit.
    pub(crate) allowed: Option<Duration>,
    /// Whether the script yields after the configured number of instructions.
    pub(crate) yields: bool,
    /// Whether this is the first turn of its call.
    pub(crate) is_first: bool,
}

/// The turn running on this thread.
#[derive(Debug, Default)]
struct ScriptTurn {
    /// Whether a turn is running. Files that are being loaded have no limits.
    is_running: bool,
    limits: TurnLimits,
    /// When the turn began, or when the clock was first read in it.
    since: Option<Instant>,
    /// How often the hook was called.
    steps: u32,
    /// The position of the script when it was found to have exceeded its time.
    expired: Option<ScriptPosition>,
    /// How often the hook was called after the script had exceeded its time.
    late_steps: u32,
}

/// A position in the running code.
#[derive(Debug, Clone)]
struct ScriptPosition {
    /// File and line.
    text: String,
    /// Whether the position is in a script and not in the prelude.
    is_script: bool,
}

impl ScriptTurn {
    /// Returns the remaining time, if it is limited.
    fn left(&mut self) -> Option<Duration> {
        let allowed = self.limits.allowed.filter(|_| self.is_running)?;
        if self.expired.is_some() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        Some(allowed.saturating_sub(now - *self.since.get_or_insert(now)))
    }
}

thread_local! {
    static TURN: RefCell<ScriptTurn> = RefCell::default();
}

/// The outcome of a turn.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// The time that the turn took, if it was measured.
    pub(crate) time: Duration,
    /// The position of the script when it exceeded its time.
    pub(crate) expired: Option<String>,
}

/// Runs a turn. A call within a turn of another script, such as a fetch, is also limited by the remaining time of the outer turn.
pub(crate) fn within<R>(mut limits: TurnLimits, run: impl FnOnce() -> R) -> (R, Used) {
    let outer = TURN.with_borrow_mut(ScriptTurn::left);
    limits.allowed = match (limits.allowed, outer) {
        (Some(own), Some(outer)) => Some(own.min(outer)),
        (own, outer) => own.or(outer),
    };
    // Most calls end within their first turn, so the clock is not read before the hook runs.
    let since = if limits.is_first && outer.is_none() { None } else { Some(Instant::now()) };
    let outer = TURN.replace(ScriptTurn { is_running: true, limits, since, ..ScriptTurn::default() });
    let result = run();
    let ScriptTurn { since, expired, .. } = TURN.replace(outer);
    let expired = expired.map(|place| place.text);
    (result, Used { time: since.map_or(Duration::ZERO, |since| since.elapsed()), expired })
}

/// Runs `run`, within which scripts that are loaded or called have this much time together. Then the running one fails.
pub fn limit_time<R>(allowed: Duration, run: impl FnOnce() -> R) -> R {
    within(TurnLimits { allowed: Some(allowed), ..TurnLimits::default() }, run).0
}

/// Installs the hook: a turn has this number of instructions. Must be repeated after a turn that exceeded its time, because that
/// turn replaced the hook.
pub(crate) fn watch(lua: &Lua, instructions: u32) -> mlua::Result<()> {
    let step = instructions.clamp(1, STEP);
    let triggers = HookTriggers::new().every_nth_instruction(step);
    let steps = instructions.max(1).div_ceil(step);
    lua.set_global_hook(triggers, move |lua, _| {
        if is_over(lua) {
            return abandon();
        }
        let ends_turn = TURN.with_borrow_mut(|turn| {
            turn.steps += 1;
            let ends = turn.is_running && turn.limits.yields && turn.steps >= steps;
            if ends {
                turn.steps = 0;
            }
            ends
        });
        Ok(if ends_turn { VmState::Yield } else { VmState::Continue })
    })
}

/// Whether the current turn has exceeded its time. If it has, the calling coroutine gets an error at each further instruction.
pub(crate) fn is_over(lua: &Lua) -> bool {
    if !is_late() {
        return false;
    }
    // If all calls of a coroutine are in the prelude, the position is that of the script that resumed it.
    if !TURN.with_borrow(|turn| turn.expired.as_ref().is_some_and(|place| place.is_script)) {
        let place = place(lua);
        TURN.with_borrow_mut(|turn| {
            if turn.expired.is_none() || place.is_script {
                turn.expired = Some(place);
            }
        });
    }
    // Setting the global hook needs neither memory nor stack space. `watch` restores the hook.
    let every = HookTriggers::new().every_nth_instruction(1);
    let _ = lua.set_global_hook(every, |lua, _| match is_over(lua) {
        true => abandon(),
        false => Ok(VmState::Continue),
    });
    true
}

/// Once a turn has exceeded its time, one in this many instructions yields, or is executed if the coroutine cannot yield; the
/// others get an error. A loop has more instructions than that.
const ERRORS: u32 = 4;

/// Decides about an instruction of a turn that has exceeded its time.
fn abandon() -> mlua::Result<VmState> {
    let steps = TURN.with_borrow_mut(|turn| {
        turn.late_steps = turn.late_steps.wrapping_add(1);
        turn.late_steps
    });
    if steps % ERRORS == 1 { Ok(VmState::Yield) } else { Err(timeout()) }
}

/// Whether the current turn has exceeded its time.
pub(crate) fn is_late() -> bool {
    TURN.with_borrow_mut(ScriptTurn::left) == Some(Duration::ZERO)
}

/// Returns the error of the turn that has exceeded its time.
pub(crate) fn timeout() -> Error {
    let place = TURN.with_borrow(|turn| turn.expired.as_ref().map(|place| place.text.clone()));
    let place = place.unwrap_or_default();
    Error::runtime(format!("{place}: {TIMEOUT}"))
}

/// How many call levels are searched for a script.
const MOST_LEVELS: usize = 1024;

/// Returns the position in the running script, or in the prelude if no script is found.
fn place(lua: &Lua) -> ScriptPosition {
    let mut first = None;
    for level in 0..MOST_LEVELS {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_script = source.source.as_deref().is_some_and(|name| name.starts_with('@'));
            let (name, line) = (source.short_src?, debug.current_line()?);
            Some(ScriptPosition { text: format!("{name}:{line}"), is_script })
        });
        match found {
            Some(Some(place)) if place.is_script => return place,
            Some(Some(place)) => first = first.or(Some(place)),
            Some(None) => {}
            None => break,
        }
    }
    first.unwrap_or_else(|| ScriptPosition { text: "?".to_owned(), is_script: false })
}
