//! What a script may still do before it is interrupted or ended: instructions of a turn, time of a
//! turn, time of the whole call.
//!
//! The hook of the interpreter comes here each so many instructions. A script that has used up its
//! turn yields; one that has used up its time gets an error at each further instruction, so that
//! nothing in it that catches errors keeps it alive.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use mlua::debug::{Debug, HookTriggers};
use mlua::{Error, Lua, VmState};

/// What is told where a script's time is over.
pub(crate) const TIMEOUT: &str = "execution timeout";

/// The turn that runs on this thread.
#[derive(Debug, Default)]
struct Turn {
    /// Whether one does; files that are being loaded have no limits.
    is_running: bool,
    /// When it began, or when the hook came first in it.
    since: Option<Instant>,
    /// The longest that it may take.
    allowed: Option<Duration>,
    /// Whether the time is over, and where that was seen.
    expired: Option<String>,
}

thread_local! {
    static TURN: RefCell<Turn> = RefCell::default();
}

/// What a turn came to.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// The time that it took, as far as it was measured.
    pub(crate) time: Duration,
    /// Where the script was when its time was over.
    pub(crate) expired: Option<String>,
}

/// Runs a turn that may take so long, the first of its call or another.
pub(crate) fn within<R>(allowed: Option<Duration>, is_first: bool, run: impl FnOnce() -> R) -> (R, Used) {
    // Most calls end within their first turn: of that the clock is asked only when the hook comes.
    let since = if is_first { None } else { Some(Instant::now()) };
    let turn = Turn { is_running: true, since, allowed, expired: None };
    // A script may be called by another, through a fetch: that one's turn goes on afterwards.
    let outer = TURN.replace(turn);
    let result = run();
    let Turn { since, expired, .. } = TURN.replace(outer);
    (result, Used { time: since.map_or(Duration::ZERO, |since| since.elapsed()), expired })
}

/// Has the interpreter come here each `instructions`.
pub(crate) fn watch(lua: &Lua, instructions: u32) -> mlua::Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(instructions.max(1));
    lua.set_global_hook(triggers, |lua, debug| {
        let Some(place) = look(debug) else { return Ok(VmState::Yield) };
        lua.current_thread().set_hook(HookTriggers::new().every_nth_instruction(1), |_, _| expire())?;
        Err(timeout(&place))
    })
}

/// Where the script is, if its time is over.
fn look(debug: &Debug<'_>) -> Option<String> {
    TURN.with_borrow_mut(|turn| {
        if !turn.is_running {
            return None;
        }
        let now = Instant::now();
        let since = *turn.since.get_or_insert(now);
        if turn.expired.is_none() && turn.allowed.is_none_or(|allowed| now - since < allowed) {
            return None;
        }
        Some(turn.expired.get_or_insert_with(|| place(debug)).clone())
    })
}

/// The end of each further instruction.
fn expire() -> mlua::Result<VmState> {
    let place = TURN.with_borrow(|turn| turn.expired.clone());
    match place {
        Some(place) => Err(timeout(&place)),
        None => Ok(VmState::Continue),
    }
}

fn timeout(place: &str) -> Error {
    Error::runtime(format!("{place}: {TIMEOUT}"))
}

fn place(debug: &Debug<'_>) -> String {
    let source = debug.source();
    let name = source.short_src.as_deref().unwrap_or("?");
    debug.current_line().map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"))
}
