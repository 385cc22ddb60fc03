//! Servers and backends added at run time (`add server`, `add backend`; management manual, 9.3). A server's words are resolved like
//! a `server` line of its backend, and the backend's settings for its servers are applied to it. A backend is resolved like an
//! empty section `from` its `defaults`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plan::check::{CheckKind, Family};
use plan::proxy::Proxy;
use plan::server::ServerSettings;
use plan::{Plan, ProxyIndex};
use sample::pattern::PatternSets;
use state::Mode;

use crate::draft::section::quoted;
use crate::{Loaded, load_within};

/// Parameters that only servers in the configuration may have.
const NOT_ADDED: &[&str] = &[
    "enabled",
    "init-addr",
    "non-stick",
    "redir",
    "resolve-net",
    "resolve-opts",
    "resolve-prefer",
    "resolvers",
    "stick",
];

/// Parameters allowed for a server added at run time, for `add server help`.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    crate::tables::server::rows().map(|row| row.name).filter(|name| !NOT_ADDED.contains(name))
}

/// A parsed `add server` command.
#[derive(Debug)]
pub struct AddServer<'a> {
    /// The backend's index in the plan.
    pub backend: ProxyIndex,
    /// The server's name.
    pub name: &'a str,
    /// Its address and parameters, without `track` and its argument.
    pub words: &'a [String],
    /// The server's ID, if the words set none.
    pub id: u32,
    /// The server that it tracks.
    pub track: Option<(Arc<state::Proxy>, Arc<state::Server>)>,
}

/// Resolves the command to a server in maintenance without running checks. Its index is not set yet. The error message is for the
/// operator.
pub fn resolve(plan: &Plan, asked: AddServer<'_>) -> Result<ServerSettings, String> {
    let proxy = &plan.proxies[asked.backend];
    // On a configuration line the parameter is ignored with a warning.
    let sends = |word: &String| word.starts_with("send-proxy");
    if matches!(proxy.mode, Mode::Log | Mode::Spop) && asked.words.iter().any(sends) {
        return Err("'send-proxy*' server option is unsupported there, ignoring it".to_owned());
    }
    for word in asked.words {
        let bare = word.split('(').next().unwrap_or(word);
        if NOT_ADDED.contains(&bare) {
            return Err(format!("'{bare}' option is not accepted for dynamic server"));
        }
    }
    let text = text(plan, proxy, &asked);
    let own = load("add server", &text, plan, &plan.patterns)?;
    let server = own.proxies.into_fixed().into_iter().next().and_then(Arc::into_inner);
    let mut server = server
        .and_then(|proxy| proxy.servers.into_only())
        .ok_or_else(|| "the line defines no server.".to_owned())?;
    lend(&mut server, proxy, asked.words);
    server.added = Some(line(&asked).into());
    Arc::make_mut(&mut server.options).track = asked.track;
    Ok(server)
}

/// A parsed `add backend` command.
#[derive(Debug)]
pub struct AskedBackend<'a> {
    /// The backend's name.
    pub name: &'a str,
    /// The `defaults` section from which the backend is made.
    pub defaults: &'a str,
    /// `mode`, if given.
    pub mode: Option<Mode>,
    /// `guid`, if given.
    pub guid: Option<&'a str>,
    /// The ID of the backend.
    pub id: u32,
    /// The current pattern lists, including those of backends added before.
    pub patterns: &'a PatternSets,
}

/// Resolves the command to a backend without servers, which rules do not choose yet. Its index is not set yet. Also returns the
/// resulting pattern lists. The error message is for the operator.
pub fn resolve_backend(plan: &Plan, asked: &AskedBackend<'_>) -> Result<(Proxy, Arc<PatternSets>), String> {
    let AskedBackend { name, defaults, mode, guid, id, patterns } = asked;
    let mut text =
        format!("{}backend {} from {}\n  id {id}\n", plan.kept.text, quoted(name), quoted(defaults));
    if let Some(mode) = mode {
        text.push_str(&format!("  mode {}\n", mode.name()));
    }
    if let Some(guid) = guid {
        text.push_str(&format!("  guid {}\n", quoted(guid)));
    }
    let own = load("add backend", &text, plan, patterns)?;
    if let Some(what) = own.variables.beyond(&plan.variables) {
        return Err(what);
    }
    if !own.ring_servers.is_empty() {
        return Err("it logs to a stream, which must be set up at startup.".to_owned());
    }
    let proxy = own.proxies.into_fixed().into_iter().next().and_then(Arc::into_inner);
    let mut proxy = proxy.ok_or_else(|| "the section defines no backend.".to_owned())?;
    proxy.added = Some(text[plan.kept.text.len()..].into());
    if !matches!(proxy.mode, Mode::Tcp | Mode::Http) {
        return Err("Dynamic backends are compatible with only TCP or HTTP mode.".to_owned());
    }
    proxy.state.unpublished.store(true, Relaxed);
    Ok((proxy, own.patterns))
}

/// Resolves a text that extends a plan; all errors are joined to one text.
fn load(name: &str, text: &str, plan: &Plan, patterns: &PatternSets) -> Result<Plan, String> {
    let Loaded { plan: own, diagnostics, .. } = load_within(name, text, plan, patterns);
    own.ok_or_else(|| {
        let of = |text: &diag::Diagnostic| text.haproxy.clone().unwrap_or_else(|| text.message.clone());
        let errors: Vec<String> =
            diagnostics.iter().filter(|one| one.severity == diag::Severity::Alert).map(of).collect();
        errors.join("\n")
    })
}

/// A configuration with this one line, the `default-server` lines that apply to the backend's own servers, and the sections that
/// these may refer to.
fn text(plan: &Plan, proxy: &Proxy, asked: &AddServer<'_>) -> String {
    let mut text = format!("{}backend {}\n", plan.kept.healthchecks, quoted(&proxy.state.name));
    text.push_str(&format!("  mode {}\n", proxy.mode.name()));
    for line in &proxy.lent.default_server {
        text.push_str(&format!("  default-server {line}\n"));
    }
    let Some((address, parameters)) = asked.words.split_first() else { return text };
    text.push_str(&format!("  server {} {}", quoted(asked.name), quoted(address)));
    // Defaults apply only on request.
    let (from, parameters) = match parameters {
        [first, name, rest @ ..] if first == "from" => (quoted(name), rest),
        _ => ("none".to_owned(), parameters),
    };
    // Placed before the given parameters, so that a missing argument there cannot take these words, and an `id` there takes
    // precedence.
    text.push_str(&format!(" from {from} id {} disabled init-addr none", asked.id));
    for word in parameters {
        text.push(' ');
        text.push_str(&quoted(word));
    }
    text.push('\n');
    text
}

/// The equivalent configuration line. Unlike `add server`, it leaves the server in service by default.
fn line(asked: &AddServer<'_>) -> String {
    let Some((address, parameters)) = asked.words.split_first() else { return String::new() };
    let (from, parameters) = match parameters {
        [first, name, rest @ ..] if first == "from" => (quoted(name), rest),
        _ => ("none".to_owned(), parameters),
    };
    let mut text = format!("server {} {} from {from} id {}", asked.name, quoted(address), asked.id);
    for word in parameters {
        text.push(' ');
        text.push_str(&quoted(word));
    }
    if let Some((backend, server)) = &asked.track {
        text.push_str(&format!(" track {}/{}", backend.name, server.name));
    }
    text
}

/// Applies the backend's settings to the server, as to configured servers.
fn lend(server: &mut ServerSettings, proxy: &Proxy, words: &[String]) {
    let options = Arc::make_mut(&mut server.options);
    if let Some(check) = options.check.as_mut().map(Arc::make_mut) {
        // Unless a `healthcheck` section sets the kind.
        if let Some(kind) = &proxy.lent.check_kind
            && matches!(&*check.kind, CheckKind::Script(script) if script.family == Family::Connect)
        {
            check.kind = kind.clone();
        }
        check.timeout = proxy.timeouts.check;
        check.connect_timeout = proxy.timeouts.connect;
        check.log = proxy.options.log_health_checks;
        // For a server added at run time this must be given explicitly.
        check.send_proxy = words.iter().any(|word| word == "check-send-proxy");
    }
    if let Some(agent) = &mut options.agent {
        agent.timeout = proxy.timeouts.check;
        agent.connect_timeout = proxy.timeouts.connect;
    }
    // For a server added at run time `check-ssl` must be given explicitly.
    let has_check = words.iter().any(|word| word == "check-ssl");
    if let Some(tls) = options.tls.as_mut().and_then(Arc::get_mut).filter(|_| !has_check) {
        tls.check = None;
    }
    if options.source.is_none() {
        options.source = proxy.source.clone();
    }
    server.state.checked.store(false, Relaxed);
    server.state.agent_checked.store(false, Relaxed);
    server.state.dynamic.store(true, Relaxed);
    // The line built above always contains a number.
    let has_id = words.windows(2).enumerate().any(|(at, pair)| {
        let value = at > 0 && words[at - 1] == "hash-key";
        pair[0] == "id" && !value && pair[1].bytes().all(|byte| byte.is_ascii_digit())
    });
    server.state.forced_id.store(has_id, Relaxed);
    // An operator or the server's agent puts the server into service, so its maintenance differs from that of a `disabled` line.
    server.state.change_admin(
        state::Admin::FORCED_MAINT,
        state::Admin::CONFIGURED_MAINT,
        base::clock::now_ms(),
    );
}
