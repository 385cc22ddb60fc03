//! `trace`, `show trace`, `debug counters` (management manual, 9.3).
//! What can be traced is in `runtime::trace`. No rare events are counted: `debug counters` answers
//! so in its shape.

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
