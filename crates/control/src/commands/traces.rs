//! `trace`, `show trace` (management manual, 9.3). What can be traced is in `runtime::trace`.

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
