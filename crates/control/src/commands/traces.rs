//! `trace`, `show trace` (management manual, 9.3). The trace sources are in `runtime::trace`.

use runtime::trace::command::{self, Outputs as _, TraceCommand};

use crate::access::AccessLevel;
use crate::invocation::{Call, CommandReply, denied, error};
use crate::sinks::Sinks;

pub(crate) fn trace(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let sinks = Sinks::new(&view.rings);
    let command = TraceCommand::read(call.args.iter().map(String::as_str), |name| sinks.find(name).is_some());
    match command.and_then(|command| command.apply(&sinks)) {
        Ok(text) if text.is_empty() => CommandReply::Done,
        Ok(text) => CommandReply::Text(text),
        Err(text) => error(text),
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    if !name.is_empty() && call.settings.level < AccessLevel::Operator {
        return denied();
    }
    match command::show(name) {
        Ok(text) => CommandReply::Text(text),
        Err(text) => error(text),
    }
}
