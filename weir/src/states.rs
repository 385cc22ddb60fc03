//! States of servers that an earlier process left in files (`load-server-state-from-file`): put back before traffic.

use std::path::{Path, PathBuf};

use config::Plan;
use config::plan::proxy::StateFile;
use control::view::View;
use diag::Severity;

use crate::messages::Messages;

/// Puts back the states of every backend that asks for it. A file that is missing or wrong is a warning, no more.
pub(crate) fn restore(plan: &Plan, view: &View, messages: Messages) {
    let mut all: Option<Option<String>> = None;
    for proxy in plan.proxies.iter() {
        let text = match &proxy.server_state {
            StateFile::None => continue,
            StateFile::Global => {
                all.get_or_insert_with(|| read(global_file(plan).as_deref(), messages)).clone()
            }
            StateFile::Local(path) => read(Some(path), messages),
        };
        let Some(text) = text else { continue };
        if let Err(error) = control::state_file::load(&text, view, Some(&proxy.state.name)) {
            messages.say(Severity::Warning, &format!("backend '{}': {error}.", proxy.state.name));
        }
    }
}

/// Puts back what an earlier process counted (`stats-file`). A file that is missing or wrong is a warning, no more.
pub(crate) fn preload_counters(plan: &Plan, view: &View, messages: Messages) {
    let Some(path) = &plan.global.stats_file else { return };
    let shown = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("config: Can't load stats-file '{shown}': cannot open file: {error}.");
            return messages.say(Severity::Warning, &text);
        }
    };
    for line in control::stats_file::load(&text, view).err().unwrap_or_default() {
        messages
            .say(Severity::Warning, &format!("config: Ignored stats-file line {line} in file '{shown}'."));
    }
}

fn global_file(plan: &Plan) -> Option<PathBuf> {
    let file = plan.global.server_state_file.as_ref()?;
    Some(plan.global.server_state_base.clone().unwrap_or_default().join(file))
}

fn read(path: Option<&Path>, messages: Messages) -> Option<String> {
    let path = path?;
    std::fs::read_to_string(path)
        .map_err(|error| {
            let shown = path.display();
            messages.say(Severity::Warning, &format!("Can't open server state file '{shown}': {error}"));
        })
        .ok()
}
