//! `show peers` (management manual, 9.3): each section responds from its own worker.

use crate::invocation::{Call, CommandReply, error};

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let (with_names, section) = match call.arg(0) {
        "dict" => (true, call.arg(1)),
        "-" => (false, call.arg(1)),
        section => (false, section),
    };
    let section = Some(section).filter(|name| !name.is_empty());
    let shown = call.runtime.peers.get().and_then(|show| show(section, with_names));
    match (shown, section) {
        (Some(text), _) => CommandReply::Later(Box::pin(async { CommandReply::Text(text.await) })),
        (None, Some(_)) => error("No such peers\n"),
        (None, None) => CommandReply::Text(String::new()),
    }
}
