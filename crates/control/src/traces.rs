//! `trace`, `show trace`, `debug counters`, `debug dev log` (management manual, 9.3). Nothing here can be traced that way yet, and no rare events are counted: the
//! commands answer so in the shapes that they have. What a stream goes through is shown by `filter trace`.

use crate::command::{Call, Reply, error};

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
        _ => error("No such trace source\n"),
    }
}

/// `debug dev log`: a line for the logs of the process.
pub(crate) fn log(call: &mut Call<'_>) -> Reply {
    if let Some(keeper) = call.runtime.keeper.get() {
        keeper.log(&call.args.join(" "));
    }
    Reply::Done
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
