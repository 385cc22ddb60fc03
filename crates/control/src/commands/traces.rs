//! `trace`, `show trace`, `debug counters`, `debug dev log|delay|loop` (management manual, 9.3).
//! What can be traced is in `runtime::trace`. No rare events are counted: `debug counters` answers
//! so in its shape.

use std::time::{Duration, Instant};

use runtime::trace::command::{self, Command, Outputs as _};

use crate::call::{Call, Reply, denied, error};
use crate::sinks::Sinks;
use crate::view::Level;

pub(crate) fn trace(call: &mut Call<'_>) -> Reply {
    let view = call.runtime.view();
    let sinks = Sinks::new(&view.rings);
    let command = Command::read(call.args.iter().map(String::as_str), |name| sinks.find(name).is_some());
    match command.and_then(|command| command.apply(&sinks)) {
        Ok(text) if text.is_empty() => Reply::Done,
        Ok(text) => Reply::Text(text),
        Err(text) => error(text),
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> Reply {
    let name = call.arg(0);
    if !name.is_empty() && call.settings.level < Level::Operator {
        return denied();
    }
    match command::show(name) {
        Ok(text) => Reply::Text(text),
        Err(text) => error(text),
    }
}

/// `debug dev log`: a line for the logs of the process.
pub(crate) fn log(call: &mut Call<'_>) -> Reply {
    if let Some(keeper) = call.runtime.keeper() {
        keeper.log(&call.args.join(" "));
    }
    Reply::Done
}

/// `debug dev delay`: the calling worker sleeps, and all that it serves waits.
pub(crate) fn delay(call: &mut Call<'_>) -> Reply {
    hold_up(call, "100", std::thread::sleep)
}

/// `debug dev loop`: holds the worker up by computing.
pub(crate) fn busy_loop(call: &mut Call<'_>) -> Reply {
    hold_up(call, "", |time| {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    })
}

/// The longest that a worker may be held up for a trial, in ms.
const LONGEST: u64 = 60_000;

fn hold_up(call: &Call<'_>, usual: &str, how: impl FnOnce(Duration)) -> Reply {
    let asked = match call.arg(0) {
        "" => usual,
        asked => asked,
    };
    match asked.parse() {
        Ok(ms @ 0..=LONGEST) if call.args.len() <= 1 => {
            how(Duration::from_millis(ms));
            Reply::Done
        }
        _ => error(format!("A number of milliseconds is expected, 0 to {LONGEST}.")),
    }
}

const COUNTERS_USAGE: &str = "Usage: debug counters [reset|show|on|off|all|bug|chk|cnt|glt|?]*\n\
No rare events are counted: whatever is asked for, there is nothing to list.\n";

pub(crate) fn counters(call: &mut Call<'_>) -> Reply {
    let known = ["reset", "show", "on", "off", "all", "bug", "chk", "cnt", "glt"];
    match call.args.iter().find(|word| !known.contains(&word.as_str())) {
        Some(_) => Reply::Text(COUNTERS_USAGE.to_owned()),
        None if call.args.iter().any(|word| word == "all") => {
            Reply::Text("Count     Type Location function(): \"condition\" [comment]\n".to_owned())
        }
        None => Reply::Done,
    }
}
