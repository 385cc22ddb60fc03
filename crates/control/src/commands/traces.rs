//! `trace`, `show trace`, `debug counters`, `debug dev log|delay|loop` (management manual, 9.3).
//! Nothing here can be traced that way yet, and no rare events are counted: the commands answer so
//! in the shapes that they have. What a stream goes through is shown by `filter trace`.

use std::time::{Duration, Instant};

use crate::call::{Call, Reply, denied, error};
use crate::view::Level;

const SOURCES: &str = "Supported trace sources and states (.=stopped, w=waiting, R=running) :\n";

pub(crate) fn trace(call: &mut Call<'_>) -> Reply {
    match call.arg(0) {
        "" => Reply::Text(format!(
            "{SOURCES} [.] 0          : not a source, will immediately stop all traces\n"
        )),
        "0" => Reply::Text("All traces now stopped\n".to_owned()),
        source => error(format!("No such trace source '{source}'\n")),
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> Reply {
    match call.arg(0) {
        "" => Reply::Text(SOURCES.to_owned()),
        _ if call.settings.level < Level::Operator => denied(),
        _ => error("No such trace source\n"),
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
