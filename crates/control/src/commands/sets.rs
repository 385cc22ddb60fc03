//! Commands that change servers, frontends, limits, counters, and the settings of the connection itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::now_ms;
use base::units::{DefaultUnit, parse_duration};
use state::proxy::Admission;
use state::{Admin, Server};
use statistics::{ConfigView, ProxyView};

use crate::access::{AccessLevel, SeverityOutput};
use crate::admin;
use crate::commands::server_address;
use crate::invocation::{Call, CommandReply, Severity, denied, error, info};
use crate::process::Runtime;

/// The server named `backend/server`, or the error.
pub(crate) fn server(view: &ConfigView, name: &str) -> Result<(ProxyView, Arc<Server>), CommandReply> {
    let Some((backend, server)) = name.split_once('/').filter(|(_, server)| !server.is_empty()) else {
        return Err(error("Require 'backend/server'."));
    };
    let proxy = view.backend(backend).ok_or_else(|| error("No such backend."))?;
    let server = proxy.state.server(server).ok_or_else(|| error("No such server."))?;
    Ok((proxy.clone(), server))
}

/// Runs `change` on the server named by the first argument.
fn with_server(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Call<'_>, &ProxyView, &Arc<Server>) -> CommandReply,
) -> CommandReply {
    match server(&call.runtime.view(), call.arg(0)) {
        Ok((proxy, server)) => change(call, &proxy, &server),
        Err(reply) => reply,
    }
}

pub(crate) fn disable_server(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, proxy, server| {
        admin::set_state(call.runtime, server, "maint");
        close_idle(call, proxy, server)
    })
}

/// Closes the idle connections to a server in maintenance, and to those that track it.
fn close_idle(call: &Call<'_>, proxy: &ProxyView, server: &Arc<Server>) -> CommandReply {
    if !server.admin().in_maintenance() {
        return CommandReply::Done;
    }
    let mut servers = vec![(proxy.state.clone(), server.clone())];
    let mut seen = 0;
    while let Some((proxy, server)) = servers.get(seen) {
        servers.extend(proxy.trackers(server));
        seen += 1;
    }
    let runtime = call.runtime.clone();
    CommandReply::Later(Box::pin(async move {
        if let Some(keeper) = runtime.keeper() {
            for (proxy, server) in servers {
                keeper.close_idle(&proxy.name, &server).await;
            }
        }
        CommandReply::Done
    }))
}

pub(crate) fn enable_server(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, _, server| {
        admin::set_state(call.runtime, server, "ready");
        CommandReply::Done
    })
}

pub(crate) fn disable_health(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, _, server| {
        admin::disable_checks(call.runtime, server, call.settings.origin);
        CommandReply::Done
    })
}

pub(crate) fn enable_health(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, _, server| {
        if !server.health.configured.load(Relaxed) {
            return error("Health check was not configured on this server, cannot enable.");
        }
        admin::enable_checks(call.runtime, server, call.settings.origin);
        CommandReply::Done
    })
}

pub(crate) fn disable_agent(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |_, _, server| {
        server.agent_checked.store(false, Relaxed);
        CommandReply::Done
    })
}

pub(crate) fn enable_agent(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |_, _, server| {
        if !server.agent.is_configured() {
            return error("Agent was not configured on this server, cannot enable.");
        }
        server.agent_checked.store(true, Relaxed);
        CommandReply::Done
    })
}

const NO_AGENT: &str = "agent checks are not enabled on this server.";

const SET_SERVER_USAGE: &str = "usage: set server <backend>/<server> addr | agent | agent-addr | agent-port | \
agent-send | check-addr | check-port | fqdn | health | name | ssl | state | weight";

pub(crate) fn set_server(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, proxy, server| match call.arg(1) {
        "state" if admin::set_state(call.runtime, server, call.arg(2)) => close_idle(call, proxy, server),
        "state" => error("'set server <srv> state' expects 'ready', 'drain' and 'maint'."),
        "weight" => change_weight(call.runtime, proxy, server, call.arg(2)),
        "health" if server.tracked().is_some() => error("cannot change health on a tracking server."),
        "health" if admin::set_health(call.runtime, server, call.arg(2), call.settings.origin) => {
            CommandReply::Done
        }
        "health" => error("'set server <srv> health' expects 'up', 'stopping', or 'down'."),
        "addr" => server_address::of_server(call, server),
        "fqdn" if call.arg(2).is_empty() => error("set server <b>/<s> fqdn requires a FQDN."),
        "fqdn" => change_fqdn(call, server),
        "agent" if !server.agent_checked.load(Relaxed) => error(NO_AGENT),
        "agent" if admin::set_agent(call.runtime, server, call.arg(2), call.settings.origin) => {
            CommandReply::Done
        }
        "agent" => error("'set server <srv> agent' expects 'up' or 'down'."),
        "name" => rename(proxy, server, call.arg(2)),
        "agent-addr" | "agent-port" => server_address::of_agent(call, server),
        "agent-send" if !server.agent_checked.load(Relaxed) => error(NO_AGENT),
        "agent-send" => {
            server.agent.send.store(Some(Arc::new(base::raw::bytes_of(call.arg(2)).into())));
            CommandReply::Done
        }
        "check-addr" | "check-port" => server_address::of_check(call, server),
        "ssl" => set_ssl(server, call.arg(2)),
        _ => error(SET_SERVER_USAGE),
    })
}

/// Turns TLS on or off for requests to the server. Health checks are not affected.
fn set_ssl(server: &Server, how: &str) -> CommandReply {
    let on = match how {
        "on" => true,
        "off" => false,
        _ => return error("'set server <srv> ssl' expects 'on' or 'off'."),
    };
    if !server.switch_secured(on) {
        return error("'set server <srv> ssl' cannot be set.  default-server should define ssl settings");
    }
    CommandReply::Message(Severity::Notice, "server ssl setting updated.".into())
}

/// Renames a server. This is only allowed for a server in maintenance that the configuration does not refer to.
fn rename(proxy: &ProxyView, server: &Server, name: &str) -> CommandReply {
    if name.is_empty() {
        return error("set server <b>/<s> name requires a new name.");
    }
    if !server.admin().in_maintenance() {
        return error("Server must be in maintenance mode to be renamed (set server <b>/<s> state maint).");
    }
    if name.chars().any(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':'))) {
        return error("Server name contains invalid characters.");
    }
    if proxy.state.refers_to(server) {
        return error(
            "Cannot rename: server's name is statically referenced (use-server, track, or sample argument).",
        );
    }
    let servers = proxy.state.servers.load();
    if servers.iter().any(|other| other.id != server.id && *other.name == *name) {
        return error("A server with the same name already exists in this backend.");
    }
    server.name.set(name);
    CommandReply::Message(Severity::Notice, "Server name updated.".into())
}

fn change_fqdn(call: &Call<'_>, server: &Arc<Server>) -> CommandReply {
    let failed = |why: &str| error(format!("set server <b>/<s> fqdn failed because {why}."));
    if !server.resolved.load(Relaxed) {
        return failed("no resolution is configured");
    }
    if server.srv_record.get().is_some() {
        return failed("SRV resolution is configured");
    }
    let (name, by) = (call.arg(2), "by 'stats socket command'");
    let old = server.fqdn.load();
    if old.as_ref().is_some_and(|old| ***old == *name) {
        return CommandReply::Message(Severity::Notice, format!("no need to change the FDQN {by}"));
    }
    let Some(keeper) = call.runtime.keeper() else { return failed("names cannot be changed here") };
    let shown = old.as_ref().map_or("(null)", |old| old);
    let text = format!("{}/{} changed its FQDN from {shown} to {name} {by}", server.proxy, server.name);
    // The name is shown immediately; its resolution starts in the background.
    server.set_fqdn(Some(name));
    server.change_admin(Admin::FQDN_SET, 0, now_ms());
    keeper.rename_host(&server.proxy, server, name);
    CommandReply::Message(Severity::Notice, text)
}

/// The number at the start of a text, and the rest, or `None` if the text does not start with a number.
fn leading_number(text: &str) -> Option<(i64, &str)> {
    let digits = text.trim_start_matches(['-', '+']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (number, rest) = text.split_at(text.len() - digits.len() + end);
    number.parse().ok().map(|number| (number, rest))
}

/// Sets an absolute weight from 0 to 256, or a percentage of the initial one. Static algorithms only allow 0 and 100 %.
fn change_weight(runtime: &Runtime, proxy: &ProxyView, server: &Server, text: &str) -> CommandReply {
    if text.is_empty() {
        return error("Require <weight> or <weight%>.");
    }
    let (digits, relative) = match text.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let number = match leading_number(digits) {
        None => return error("Empty weight string empty or preceded by garbage"),
        Some((_, rest)) if !rest.is_empty() => return error("Trailing garbage in weight string"),
        Some((number, _)) => number,
    };
    if relative && number < 0 {
        return error("Relative weight must be positive.");
    }
    // Larger values are clamped to the maximum weight.
    let number = if relative { number.min(u32::MAX.into()) } else { number };
    let Some(number) = u32::try_from(number).ok().filter(|number| relative || *number <= 256) else {
        return error("Absolute weight can only be between 0 and 256 inclusive.");
    };
    let initial = u64::from(server.initial_weight());
    let weight = if relative { (initial * u64::from(number) / 100).min(256) as u32 } else { number };
    if !proxy.dynamic_weights && weight != 0 && weight != server.initial_weight() {
        return error("Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.");
    }
    server.set_weight(weight);
    admin::refresh(runtime, &proxy.state);
    CommandReply::Done
}

pub(crate) fn weight(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, proxy, server| change_weight(call.runtime, proxy, server, call.arg(1)))
}

pub(crate) fn get_weight(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |_, _, server| {
        CommandReply::Text(format!("{} (initial {})", server.user_weight(), server.initial_weight()))
    })
}

/// Runs `change` on the frontend named by the first argument.
fn with_frontend(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Call<'_>, &state::Proxy) -> CommandReply,
) -> CommandReply {
    if call.arg(0).is_empty() {
        return error("A frontend name is expected.");
    }
    match call.runtime.view().frontend(call.arg(0)) {
        Some(proxy) => change(call, &proxy.state),
        None => error("No such frontend."),
    }
}

const SHUT_DOWN: &str = "Frontend was previously shut down, cannot ";

pub(crate) fn publish_backend(call: &mut Call<'_>) -> CommandReply {
    set_published(call, true)
}

pub(crate) fn unpublish_backend(call: &mut Call<'_>) -> CommandReply {
    set_published(call, false)
}

fn set_published(call: &mut Call<'_>, published: bool) -> CommandReply {
    let view = call.runtime.view();
    let disabled = view.disabled_backends.iter().any(|name| name == call.arg(0));
    let Some(proxy) = view.backend(call.arg(0)) else {
        return error(if disabled { "No effect on a disabled backend." } else { "No such backend." });
    };
    if proxy.state.admission() == Admission::Stopped {
        return error("No effect on a disabled backend.");
    }
    proxy.state.unpublished.store(!published, Relaxed);
    let done = if published { "Backend published." } else { "Backend unpublished." };
    info(done)
}

/// Runs `change` on the backend named by the first argument.
fn with_backend(call: &Call<'_>, change: impl FnOnce(&state::Proxy) -> CommandReply) -> CommandReply {
    if call.arg(0).is_empty() {
        return error("A backend name is expected.");
    }
    match call.runtime.view().backend(call.arg(0)) {
        Some(proxy) => change(&proxy.state),
        None => error("No such backend."),
    }
}

pub(crate) fn enable_dynamic_cookie(call: &mut Call<'_>) -> CommandReply {
    with_backend(call, |proxy| {
        proxy.dynamic_cookies.store(true, Relaxed);
        CommandReply::Done
    })
}

pub(crate) fn disable_dynamic_cookie(call: &mut Call<'_>) -> CommandReply {
    with_backend(call, |proxy| {
        proxy.dynamic_cookies.store(false, Relaxed);
        CommandReply::Done
    })
}

pub(crate) fn dynamic_cookie_key(call: &mut Call<'_>) -> CommandReply {
    let key = call.arg(1);
    if key.is_empty() {
        return error("String value expected.");
    }
    with_backend(call, |proxy| {
        proxy.dynamic_key.store(Some(Arc::new(key.into())));
        CommandReply::Done
    })
}

pub(crate) fn disable_frontend(call: &mut Call<'_>) -> CommandReply {
    with_frontend(call, |call, proxy| match proxy.admission() {
        Admission::Stopped => CommandReply::Message(Severity::Notice, format!("{SHUT_DOWN}disable.")),
        Admission::Paused => {
            CommandReply::Message(Severity::Notice, "All sockets are already disabled.".into())
        }
        // Listeners that open connections themselves (`bind rhttp@`) cannot be paused.
        Admission::Open if proxy.listeners.load().iter().any(|listener| &*listener.address == "rev") => {
            error("Failed to pause frontend, check logs for precise cause.")
        }
        Admission::Open => {
            admin::admit(call.runtime, proxy, Admission::Paused);
            CommandReply::Done
        }
    })
}

pub(crate) fn enable_frontend(call: &mut Call<'_>) -> CommandReply {
    with_frontend(call, |call, proxy| match proxy.admission() {
        Admission::Stopped => error(format!("{SHUT_DOWN}enable.")),
        Admission::Open => CommandReply::Message(Severity::Notice, "All sockets are already enabled.".into()),
        Admission::Paused => {
            admin::admit(call.runtime, proxy, Admission::Open);
            CommandReply::Done
        }
    })
}

pub(crate) fn shutdown_frontend(call: &mut Call<'_>) -> CommandReply {
    with_frontend(call, |call, proxy| {
        if proxy.admission() == Admission::Stopped {
            return error("Frontend was already shut down.");
        }
        admin::admit(call.runtime, proxy, Admission::Stopped);
        CommandReply::Done
    })
}

pub(crate) fn maxconn_frontend(call: &mut Call<'_>) -> CommandReply {
    with_frontend(call, |call, proxy| match call.arg(1).parse::<u32>() {
        Ok(limit) => {
            proxy.maxconn.store(limit, Relaxed);
            for listener in proxy.listeners.load().iter() {
                listener.wake();
            }
            CommandReply::Done
        }
        Err(_) if call.arg(1).is_empty() => error("Integer value expected."),
        Err(_) => error("Value out of range."),
    })
}

pub(crate) fn maxconn_server(call: &mut Call<'_>) -> CommandReply {
    with_server(call, |call, proxy, server| match leading_number(call.arg(1)) {
        _ if call.arg(1).is_empty() => error("Require <maxconn>."),
        None => error("maxconn string empty or preceded by garbage"),
        Some((_, rest)) if !rest.is_empty() => error("Trailing garbage in maxconn string"),
        Some((limit, _)) => match u32::try_from(limit) {
            Ok(limit) => {
                server.set_maxconn(limit);
                admin::refresh(call.runtime, &proxy.state);
                CommandReply::Done
            }
            Err(_) => error("Value out of range."),
        },
    })
}

pub(crate) fn maxconn_global(call: &mut Call<'_>) -> CommandReply {
    let process = &call.runtime.statistics.process;
    let hard = process.hard_maxconn.load(Relaxed);
    match call.arg(0).parse::<u32>() {
        Ok(limit) if limit <= hard => {
            process.maxconn.store(if limit == 0 { hard } else { limit }, Relaxed);
            for proxy in call.runtime.view().proxies.iter() {
                proxy.state.listeners.load().iter().for_each(|listener| listener.wake());
            }
            CommandReply::Done
        }
        Err(_) if call.arg(0).is_empty() => error("Expects an integer value."),
        _ => error("Value out of range."),
    }
}

const RATE_LIMIT_USAGE: &str = concat!(
    "'set rate-limit' only supports :\n",
    "   - 'connections global' to set the per-process maximum connection rate\n",
    "   - 'sessions global' to set the per-process maximum session rate\n",
    "   - 'ssl-sessions global' to set the per-process maximum SSL session rate\n",
    "   - 'http-compression global' to set the per-process maximum compression speed in kB/s\n",
);

pub(crate) fn rate_limit(call: &mut Call<'_>) -> CommandReply {
    let process = &call.runtime.statistics.process;
    let limit = match (call.arg(0), call.arg(1)) {
        ("connections", "global") => &process.connection_limit,
        ("sessions", "global") => &process.session_limit,
        ("ssl-sessions", "global") => &process.tls_limit,
        ("http-compression", "global") => return compression_limit(call),
        _ => return error(RATE_LIMIT_USAGE),
    };
    match call.arg(2).parse::<u32>() {
        Ok(value) => {
            limit.store(value, Relaxed);
            CommandReply::Done
        }
        Err(_) => error("Expects an integer value."),
    }
}

/// In kilobytes per second.
fn compression_limit(call: &Call<'_>) -> CommandReply {
    match call.arg(2).parse::<u32>() {
        Ok(value) => {
            call.runtime.statistics.process.compression_limit.store(u64::from(value) * 1024, Relaxed);
            CommandReply::Done
        }
        Err(_) => error("Expects an integer value."),
    }
}

pub(crate) fn timeout(call: &mut Call<'_>) -> CommandReply {
    if call.arg(0) != "cli" {
        return error("'set timeout' only supports 'cli'.");
    }
    match parse_duration(call.arg(1), DefaultUnit::Seconds) {
        Ok(delay) if delay > Duration::ZERO => {
            call.settings.timeout = delay;
            CommandReply::Done
        }
        _ if call.arg(1).is_empty() => error("Expects an integer value."),
        _ => error("Invalid timeout value."),
    }
}

pub(crate) fn severity_output(call: &mut Call<'_>) -> CommandReply {
    call.settings.severity = match call.arg(0) {
        "none" => SeverityOutput::None,
        "number" => SeverityOutput::Number,
        "string" => SeverityOutput::String,
        _ => return error("one of 'none', 'number', 'string' is a required argument\n"),
    };
    CommandReply::Done
}

pub(crate) fn operator(call: &mut Call<'_>) -> CommandReply {
    lower(call, AccessLevel::Operator)
}

pub(crate) fn user(call: &mut Call<'_>) -> CommandReply {
    lower(call, AccessLevel::User)
}

/// Lowers the level; it cannot be raised. This turns expert and experimental mode off.
fn lower(call: &mut Call<'_>, level: AccessLevel) -> CommandReply {
    if call.settings.level < level {
        return denied();
    }
    call.settings.level = level;
    call.settings.expert = false;
    call.settings.experimental = false;
    CommandReply::Done
}

pub(crate) fn expert_mode(call: &mut Call<'_>) -> CommandReply {
    let (word, name) = (call.arg(0).to_owned(), "expert-mode");
    switch(&word, name, &mut call.settings.expert)
}

pub(crate) fn experimental_mode(call: &mut Call<'_>) -> CommandReply {
    let (word, name) = (call.arg(0).to_owned(), "experimental-mode");
    switch(&word, name, &mut call.settings.experimental)
}

fn switch(word: &str, name: &str, mode: &mut bool) -> CommandReply {
    match word {
        "" => return info(format!("{name} is {}", if *mode { "ON" } else { "OFF" })),
        "on" => *mode = true,
        "off" => *mode = false,
        _ => return error(format!("'{name}' expects 'on' or 'off'.")),
    }
    CommandReply::Done
}

const PROMPT_USAGE: &str = "Usage: prompt [help | n | i | p | timed]*\n\
Changes the default prompt and interactive mode. Without argument, alternates between prompt and\n\
non-interactive modes. Options:\n  help   : display this help\n  n      : set to non-interactive mode\n  \
i      : set to interactive mode\n  p      : set to prompt mode\n  timed  : toggle the display of the time in the prompt\n";

pub(crate) fn prompt(call: &mut Call<'_>) -> CommandReply {
    let words: Vec<String> = call.args.to_vec();
    let settings = &mut *call.settings;
    if words.is_empty() {
        let on = !settings.prompt;
        (settings.interactive, settings.prompt) = (on, on);
    }
    for word in &words {
        (settings.interactive, settings.prompt) = match word.as_str() {
            "n" => (false, false),
            "i" => (true, false),
            "p" => (true, true),
            "timed" => {
                settings.timed = !settings.timed;
                (true, true)
            }
            _ => return CommandReply::Text(PROMPT_USAGE.into()),
        };
    }
    CommandReply::Done
}

pub(crate) fn quit(_: &mut Call<'_>) -> CommandReply {
    CommandReply::Quit
}
