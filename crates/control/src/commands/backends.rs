//! Backends added and removed at run time: `add backend`, `del backend`, `show defaults` (management manual, 9.3). The binary
//! builds backends ([`crate::Keeper`]); this module decides whether a change is allowed.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use state::{Mode, Proxy, counters};
use statistics::ConfigView;

use crate::invocation::{Call, CommandReply, error, info};
use crate::runtime_edit::NewBackend;

const USAGE: &str = "Usage: add backend <name> from <defproxy> [mode <px_mode>] [guid <val>].";

pub(crate) fn add(call: &mut Call<'_>) -> CommandReply {
    let Some(keeper) = call.runtime.keeper() else { return error("Backends cannot be added here.") };
    let name = call.arg(0);
    if name.is_empty() {
        return error("Require backend name.");
    }
    if let Some(wrong) =
        name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')))
    {
        return error(format!("Invalid character '{wrong}' in backend name."));
    }
    let defaults = call.arg(2);
    if call.arg(1) != "from" || defaults.is_empty() {
        return error("Usage: add backend <name> from <defproxy>.");
    }
    let (mode, guid) = match options(&call.args[3..]) {
        Ok(parsed) => parsed,
        Err(text) => return error(text),
    };
    let Some((_, has_mode)) = keeper.defaults().into_iter().find(|(own, _)| **own == *defaults) else {
        return error(format!("Cannot find default proxy '{defaults}'."));
    };
    if mode.is_none() && !has_mode {
        let text = format!("Mode is required as '{defaults}' default proxy does not explicitly defines it.");
        return error(text);
    }
    if mode.is_some_and(|mode| !matches!(mode, Mode::Tcp | Mode::Http)) {
        return error("Dynamic backends are compatible with only TCP or HTTP mode.");
    }
    match keeper.add_backend(&NewBackend { name, defaults, mode, guid }) {
        Ok(()) => info("New backend registered."),
        Err(text) => error(format!("Error during backend creation : {text}")),
    }
}

/// `[mode <mode>] [guid <guid>]`.
fn options(words: &[String]) -> Result<(Option<Mode>, Option<&str>), &'static str> {
    let (mut mode, mut guid) = (None, None);
    for pair in words.chunks(2) {
        match pair {
            [word, value] if word == "mode" => {
                let modes = [Mode::Tcp, Mode::Http, Mode::Log, Mode::Spop];
                mode =
                    Some(modes.into_iter().find(|mode| mode.name() == value).ok_or("Unknown proxy mode.")?);
            }
            [word, value] if word == "guid" => guid = Some(value.as_str()),
            _ => return Err(USAGE),
        }
    }
    Ok((mode, guid))
}

pub(crate) fn show_defaults(call: &mut Call<'_>) -> CommandReply {
    let mut out = String::new();
    for (name, _) in call.runtime.keeper().map(|keeper| keeper.defaults()).unwrap_or_default() {
        let _ = writeln!(out, "{name}");
    }
    CommandReply::Text(out)
}

/// Returns the reason why a backend can never be removed, or success if it can be removed once its streams have ended.
pub(crate) fn obstacle(view: &ConfigView, name: &str) -> Result<(), &'static str> {
    let Some(proxy) =
        view.proxies.iter().map(|proxy| &proxy.state).find(|proxy| proxy.is_backend && *proxy.name == *name)
    else {
        return Err("No such backend.");
    };
    if proxy.is_frontend {
        return Err("Cannot delete a listen section.");
    }
    if !matches!(proxy.mode, Mode::Tcp | Mode::Http) {
        return Err("Only TCP and HTTP backends can be deleted.");
    }
    if view.tables.iter().any(|table| table.name() == name) {
        return Err("Cannot remove a backend with stick-table.");
    }
    if proxy.referenced.load(Relaxed) {
        return Err(
            "This proxy cannot be removed at runtime due to other configuration elements pointing to it.",
        );
    }
    if !proxy.unpublished.load(Relaxed) {
        return Err("Backend must be unpublished prior to its deletion.");
    }
    if !proxy.servers.load().is_empty() {
        return Err("Only a backend without server can be deleted.");
    }
    Ok(())
}

/// Whether the backend has streams.
pub(crate) fn is_busy(proxy: &Proxy) -> bool {
    counters::current(&proxy.backend, |shard| shard.traffic.sessions.get()) > 0 || !proxy.queue.is_empty()
}

pub(crate) fn del(call: &mut Call<'_>) -> CommandReply {
    let Some(keeper) = call.runtime.keeper() else { return error("Backends cannot be removed here.") };
    let (view, name) = (call.runtime.view(), call.arg(0));
    if let Err(text) = obstacle(&view, name) {
        return error(text);
    }
    let Some(proxy) = view.backend(name) else { return error("No such backend.") };
    if is_busy(&proxy.state) {
        return error("Backend still has attached streams on it.");
    }
    // Of two concurrent requests, only one removes the backend.
    if proxy.state.removed.swap(true, Relaxed) {
        return error("No such backend.");
    }
    keeper.remove_backend(name);
    info("Backend deleted.")
}
