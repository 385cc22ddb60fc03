//! Reloading in the running process: `reload`, `reload dry-run`, and the run-time changes as a configuration: `show config`, `save
//! config`. HAProxy does not have these commands.

use std::sync::Arc;

use crate::invocation::{Call, CommandReply, error};
use crate::offload::{CommandAnswer, aside};
use crate::runtime_edit::{DifferenceFormat, Reloader};

/// Runs a slow operation.
fn ask(
    call: &Call<'_>,
    work: impl FnOnce(&dyn Reloader) -> Result<String, String> + Send + 'static,
) -> CommandReply {
    let Some(reloader) = call.runtime.reloader.get().cloned() else {
        return error("The configuration cannot be reloaded here.\n");
    };
    let reloader: Arc<dyn Reloader> = reloader;
    aside(move || match work(&*reloader) {
        Ok(text) => CommandAnswer::Text(text),
        Err(text) => CommandAnswer::Error(text),
    })
}

/// The output format requested by the words after the command.
fn shown(call: &Call<'_>) -> Result<DifferenceFormat, CommandReply> {
    match call.args {
        [] => Ok(DifferenceFormat::Text),
        [word] if word == "colour" || word == "color" => Ok(DifferenceFormat::Colours),
        [word] if word == "json" => Ok(DifferenceFormat::Json),
        _ => Err(error("Expected 'colour', 'json' or nothing.\n")),
    }
}

/// `reload`.
pub(crate) fn reload(call: &mut Call<'_>) -> CommandReply {
    match shown(call) {
        Ok(shown) => ask(call, move |reloader| reloader.reload(shown)),
        Err(reply) => reply,
    }
}

/// `reload dry-run`. With a payload, the payload is used as the configuration.
pub(crate) fn dry_run(call: &mut Call<'_>) -> CommandReply {
    let text = call.payload.map(str::to_owned);
    match shown(call) {
        Ok(shown) => ask(call, move |reloader| reloader.difference(text.as_deref(), shown)),
        Err(reply) => reply,
    }
}

/// `show config`.
pub(crate) fn show_config(call: &mut Call<'_>) -> CommandReply {
    ask(call, |reloader| Ok(reloader.configuration()))
}

/// `save config`.
pub(crate) fn save_config(call: &mut Call<'_>) -> CommandReply {
    let path = call.arg(0).to_owned();
    if path.is_empty() || call.args.len() > 1 {
        return error("Expects a file name.\n");
    }
    ask(call, move |reloader| reloader.save(&path).map(|()| String::new()))
}
