//! Servers added and removed at run time: `add server`, `del server`, `wait`, `show default-server` (management manual, 9.3). The
//! binary builds servers ([`Keeper`]); this module decides whether a change is allowed.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use base::units::{DefaultUnit, parse_duration};
use runtime::timer::sleep;
use state::{Proxy, Server};
use statistics::ProxyView;

use crate::commands::backends;
use crate::commands::sets;
use crate::invocation::{Call, CommandReply, error, info};
use crate::process::Runtime;

pub(crate) fn add(call: &mut Call<'_>) -> CommandReply {
    let Some(keeper) = call.runtime.keeper() else { return error("Servers cannot be added here.") };
    if call.arg(0) == "help" {
        let mut out = "List of keywords supported for dynamic servers:\n".to_owned();
        for name in keeper.parameters() {
            let _ = writeln!(out, "  {name}");
        }
        return CommandReply::Text(out);
    }
    let Some((backend, name)) = call.arg(0).split_once('/').filter(|(_, name)| !name.is_empty()) else {
        return error("Require 'backend/server'.");
    };
    if let Some(wrong) =
        name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')))
    {
        return error(format!("character '{wrong}' is not permitted in server name '{name}'."));
    }
    let Some(view) = call.runtime.view().backend(backend).cloned() else { return error("No such backend.") };
    if view.state.server(name).is_some() {
        return error("Already exists a server with the same name in backend.");
    }
    if call.args.len() < 2 {
        return error("'server' expects <name> and <addr>[:<port>] as arguments.");
    }
    match keeper.add(&view.state.name, name, &call.args[1..]) {
        Ok(()) => info("New server registered."),
        Err(text) => error(text),
    }
}

/// The reason why a server can never be removed.
fn obstacle(backend: &Proxy, server: &Server) -> Option<&'static str> {
    if backend.refers_to(server) {
        return Some(
            "This server cannot be removed at runtime due to other configuration elements pointing to it.",
        );
    }
    if !server.admin().in_maintenance() {
        return Some("Only servers in maintenance mode can be deleted.");
    }
    None
}

/// Whether requests, connections or queues still use the server.
fn is_busy(server: &Server) -> bool {
    server.serving() > 0 || server.open().load(Relaxed) > 0 || !server.queue.is_empty()
}

const BUSY: &str = "Server still has connections attached to it, cannot remove it.";

pub(crate) fn del(call: &mut Call<'_>) -> CommandReply {
    let (view, server) = match sets::server(&call.runtime.view(), call.arg(0)) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    if let Some(text) = obstacle(&view.state, &server) {
        return error(text);
    }
    let runtime = call.runtime.clone();
    CommandReply::Later(Box::pin(async move {
        let Some(keeper) = runtime.keeper() else { return error("Servers cannot be removed here.") };
        let backend = view.state.name.clone();
        keeper.close_idle(&backend, &server).await;
        if let Some(text) = obstacle(&view.state, &server) {
            return error(text);
        }
        if is_busy(&server) {
            return error(BUSY);
        }
        // Of two concurrent requests, only one removes the server.
        if server.removed.swap(true, Relaxed) {
            return error("No such server.");
        }
        keeper.remove(&backend, &server);
        info("Server deleted.")
    }))
}

pub(crate) fn show_defaults(call: &mut Call<'_>) -> CommandReply {
    let Some(keeper) = call.runtime.keeper() else { return CommandReply::Done };
    let view = call.runtime.view();
    let wanted = call.arg(0);
    if !wanted.is_empty() && view.backend(wanted).is_none() {
        return error("No such backend.");
    }
    let mut out = String::new();
    let backends = view.proxies.iter().filter(|proxy| proxy.state.is_backend);
    for proxy in backends.filter(|proxy| wanted.is_empty() || *proxy.state.name == *wanted) {
        for name in keeper.default_servers(&proxy.state.name) {
            let backend = &proxy.state.name;
            let _ = if name.is_empty() {
                writeln!(out, "* {backend}")
            } else {
                writeln!(out, "  {backend}/{name}")
            };
        }
    }
    CommandReply::Text(out)
}

const WAIT_USAGE: &str = concat!(
    "Usage: wait {-h|<duration>} [condition [args...]]\n",
    "  - '-h' displays this help\n",
    "  - <duration> is the maximum time to wait, in milliseconds or with a unit:\n",
    "    'us', 'ms', 's', 'm', 'h', or 'd'.\n",
    "  - <condition> is a condition to wait for. Supported conditions are:\n",
    "    - <none> : waits for the whole duration.\n",
    "    - be-removable <px> : waits until this backend can be removed.\n",
    "    - srv-removable <px>/<sv> : waits until this server can be removed.\n",
);

/// The interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn wait(call: &mut Call<'_>) -> CommandReply {
    if call.arg(0) == "-h" || call.arg(1) == "-h" {
        return CommandReply::Text(WAIT_USAGE.to_owned());
    }
    if call.arg(0).is_empty() {
        return error("Expects a duration in milliseconds.");
    }
    let delay = parse_duration(call.arg(0), DefaultUnit::Milliseconds);
    let Some(delay) = delay.ok().filter(|delay| !delay.is_zero()) else {
        return error("Invalid duration.");
    };
    let (runtime, name) = (call.runtime.clone(), call.arg(2).to_owned());
    match call.arg(1) {
        "" => CommandReply::Later(Box::pin(async move {
            sleep(delay).await;
            info("Done.")
        })),
        "srv-removable" if name.is_empty() => error("Missing server name (<backend>/<server>)."),
        "srv-removable" => CommandReply::Later(Box::pin(await_removable(runtime, name, delay))),
        "be-removable" if name.is_empty() => error("Missing backend name."),
        "be-removable" => CommandReply::Later(Box::pin(await_backend_removable(runtime, name, delay))),
        _ => error(WAIT_USAGE),
    }
}

async fn await_backend_removable(runtime: Arc<Runtime>, name: String, delay: Duration) -> CommandReply {
    let deadline = Instant::now() + delay;
    loop {
        let view = runtime.view();
        if let Err(text) = backends::obstacle(&view, &name) {
            return error(format!("Failed. {text}"));
        }
        if view.backend(&name).is_none_or(|proxy| !backends::is_busy(&proxy.state)) {
            return info("Done.");
        }
        if Instant::now() >= deadline {
            return error("Wait delay expired.");
        }
        sleep(LOOK).await;
    }
}

async fn await_removable(runtime: Arc<Runtime>, name: String, delay: Duration) -> CommandReply {
    let deadline = Instant::now() + delay;
    loop {
        let (view, server): (ProxyView, Arc<Server>) = match sets::server(&runtime.view(), &name) {
            Ok(found) => found,
            // The server may have been removed during the wait.
            Err(CommandReply::Message(_, text)) if name.contains('/') => {
                return error(format!("Failed. {text}"));
            }
            Err(reply) => return reply,
        };
        if let Some(text) = obstacle(&view.state, &server) {
            return error(format!("Failed. {text}"));
        }
        if let Some(keeper) = runtime.keeper() {
            keeper.close_idle(&view.state.name, &server).await;
        }
        if !is_busy(&server) {
            return info("Done.");
        }
        if Instant::now() >= deadline {
            return error("Wait delay expired.");
        }
        sleep(LOOK).await;
    }
}
