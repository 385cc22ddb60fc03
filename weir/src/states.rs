//! Server states that an earlier process saved to files (`load-server-state-from-file`), restored before traffic starts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::state_file;
use diag::Severity;
use plan::proxy::StateFile;
use plan::{Plan, Proxy};
use state::saved_state::{self, Broken};
use statistics::{ConfigView, ProxyView};

use crate::messages::MessageFormat;

/// Restores the states of every backend that requests it. Problems with a file are only reported.
pub(crate) fn restore(plan: &Plan, view: &ConfigView, messages: MessageFormat) {
    let say = |text: &str| messages.say(Severity::Warning, text);
    let all = read_global(plan, messages);
    let all = saved_state::by_name(
        all.as_deref().and_then(|text| saved_state::read(text).ok()).unwrap_or_default(),
    );
    let has_states =
        |proxy: &&Arc<Proxy>| proxy.state.is_backend && !matches!(proxy.server_state, StateFile::None);
    let mut wanted = plan.proxies.iter().filter(has_states).peekable();
    if wanted.peek().is_none() {
        return;
    }
    let views: HashMap<_, _> = view.proxies.iter().map(|view| (Arc::as_ptr(&view.state), view)).collect();
    for proxy in wanted {
        let Some(backend) = views.get(&Arc::as_ptr(&proxy.state)) else { continue };
        match &proxy.server_state {
            StateFile::None => {}
            StateFile::Global => state_file::restore(&all, backend, &say),
            StateFile::Local(path) => restore_local(path, backend, messages),
        }
    }
}

/// Restores the states of a backend that has its own file.
fn restore_local(path: &Path, backend: &ProxyView, messages: MessageFormat) {
    let (name, shown) = (&backend.state.name, path.display());
    let say = |severity, text: &str| messages.say(severity, &format!("Proxy '{name}': {text}"));
    let text = match base::file::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("Can't open server state file '{shown}': {}.", reason(&error));
            return say(Severity::Notice, &text);
        }
    };
    if text.is_empty() {
        return say(Severity::Notice, &format!("Empty server state file '{shown}'."));
    }
    match saved_state::read(&text) {
        Ok(rows) => {
            let rows = state_file::of_backend(rows, backend, &|text| say(Severity::Warning, text));
            state_file::restore(&saved_state::by_name(rows), backend, &|text| {
                messages.say(Severity::Warning, text)
            });
        }
        Err(broken) => say(Severity::Warning, &complaint(broken, &format!("server state file '{shown}'"))),
    }
}

/// Reads the file for all backends. Problems with it are reported whether or not a backend uses it.
fn read_global(plan: &Plan, messages: MessageFormat) -> Option<String> {
    let path = global_file(plan)?;
    let shown = path.display();
    let say = |severity, text: &str| messages.say(severity, &format!("config: {text}"));
    match base::file::read_to_string(&path) {
        Ok(text) => {
            // An empty file will be filled later.
            if !text.is_empty()
                && let Err(broken) = saved_state::read(&text)
            {
                let file = format!("global server state file '{shown}'");
                say(Severity::Warning, &complaint(broken, &file));
            }
            Some(text)
        }
        Err(error) => {
            let text = format!("Can't open global server state file '{shown}': {}", reason(&error));
            say(Severity::Notice, &text);
            None
        }
    }
}

fn complaint(broken: Broken, file: &str) -> String {
    match broken {
        Broken::Version => format!("Can't get version of the {file}."),
        Broken::Line(line) => format!("corrupted {file} at line {line}."),
    }
}

/// Returns the system's message without the error number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Restores the counters of an earlier process (`stats-file`). A missing or invalid file only causes a warning.
pub(crate) fn preload_counters(plan: &Plan, view: &ConfigView, messages: MessageFormat) {
    let Some(path) = &plan.global.stats_file else { return };
    let shown = path.display();
    let text = match base::file::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("config: Can't load stats-file '{shown}': cannot open file: {error}.");
            return messages.say(Severity::Warning, &text);
        }
    };
    for line in statistics::stats_file::load(&text, view).err().unwrap_or_default() {
        messages
            .say(Severity::Warning, &format!("config: Ignored stats-file line {line} in file '{shown}'."));
    }
}

fn global_file(plan: &Plan) -> Option<PathBuf> {
    let file = plan.global.server_state_file.as_ref()?;
    Some(plan.global.server_state_base.clone().unwrap_or_default().join(file))
}
