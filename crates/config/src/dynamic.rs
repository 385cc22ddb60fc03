//! Servers and backends added while the process runs (`add server`, `add backend`; management
//! manual, 9.3). A server's words are resolved as a `server` line of its backend would be, and what
//! the backend lends its servers is lent to it. A backend is resolved as an empty section `from`
//! its `defaults` would be.

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

/// Parameters that only servers of the configuration may have.
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

/// Parameters that a server added at run time may have, for `add server help`.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    crate::tables::server::rows().map(|row| row.name).filter(|name| !NOT_ADDED.contains(name))
}

/// What `add server` asks for.
#[derive(Debug)]
pub struct AddServer<'a> {
    /// The backend's place in the plan.
    pub backend: ProxyIndex,
    /// The server's name.
    pub name: &'a str,
    /// Its address and parameters, without `track` and its argument.
    pub words: &'a [String],
    /// Its number, if the words name none.
    pub id: u32,
    /// The server that it follows.
    pub track: Option<(Arc<state::Proxy>, Arc<state::Server>)>,
}

/// Resolves it: in maintenance, its checks not running, its place not known yet. The error is for
/// the operator.
pub fn resolve(plan: &Plan, asked: AddServer<'_>) -> Result<ServerSettings, String> {
    let proxy = &plan.proxies[asked.backend];
    // On a line of the configuration it is left out with a warning.
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
        .ok_or_else(|| "no server came of it.".to_owned())?;
    lend(&mut server, proxy, asked.words);
    server.added = Some(line(&asked).into());
    server.track = asked.track;
    Ok(server)
}

/// What `add backend` asks for.
#[derive(Debug)]
pub struct AskedBackend<'a> {
    /// Its name.
    pub name: &'a str,
    /// The `defaults` section that it is made from.
    pub defaults: &'a str,
    /// `mode`, if it is said.
    pub mode: Option<Mode>,
    /// `guid`, if it is said.
    pub guid: Option<&'a str>,
    /// Its number.
    pub id: u32,
    /// The lists of patterns that there are, those of backends added before included.
    pub patterns: &'a PatternSets,
}

/// A backend without servers that rules do not choose yet; its place is not known. With the lists
/// of patterns that there are then. The error is for the operator.
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
        return Err("its log lines go over a stream, for which everything is made at the start.".to_owned());
    }
    let proxy = own.proxies.into_fixed().into_iter().next().and_then(Arc::into_inner);
    let mut proxy = proxy.ok_or_else(|| "no backend came of it.".to_owned())?;
    proxy.added = Some(text[plan.kept.text.len()..].into());
    if !matches!(proxy.mode, Mode::Tcp | Mode::Http) {
        return Err("Dynamic backends are compatible with only TCP or HTTP mode.".to_owned());
    }
    proxy.state.unpublished.store(true, Relaxed);
    Ok((proxy, own.patterns))
}

/// Resolves a text that adds to a plan; its errors as one text.
fn load(name: &str, text: &str, plan: &Plan, patterns: &PatternSets) -> Result<Plan, String> {
    let Loaded { plan: own, diagnostics, .. } = load_within(name, text, plan, patterns);
    own.ok_or_else(|| {
        let of = |text: &diag::Diagnostic| text.haproxy.clone().unwrap_or_else(|| text.message.clone());
        let errors: Vec<String> =
            diagnostics.iter().filter(|one| one.severity == diag::Severity::Alert).map(of).collect();
        errors.join("\n")
    })
}

/// A configuration of the one line, with the `default-server` lines that stood above the backend's
/// own servers, and with the sections that these may name.
fn text(plan: &Plan, proxy: &Proxy, asked: &AddServer<'_>) -> String {
    let mut text = format!("{}backend {}\n", plan.kept.healthchecks, quoted(&proxy.state.name));
    text.push_str(&format!("  mode {}\n", proxy.mode.name()));
    for line in &proxy.lent.default_server {
        text.push_str(&format!("  default-server {line}\n"));
    }
    let Some((address, parameters)) = asked.words.split_first() else { return text };
    text.push_str(&format!("  server {} {}", quoted(asked.name), quoted(address)));
    // Defaults count only where they are asked for.
    let (from, parameters) = match parameters {
        [first, name, rest @ ..] if first == "from" => (quoted(name), rest),
        _ => ("none".to_owned(), parameters),
    };
    // Before what is asked for: an argument that is missing there is not to be found here, and an
    // `id` said there counts.
    text.push_str(&format!(" from {from} id {} disabled init-addr none", asked.id));
    for word in parameters {
        text.push(' ');
        text.push_str(&quoted(word));
    }
    text.push('\n');
    text
}

/// The line of a configuration that has the server: as it was asked for, but that it is in service
/// unless somebody says otherwise.
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

/// Gives the server what those of the configuration have of their backend.
fn lend(server: &mut ServerSettings, proxy: &Proxy, words: &[String]) {
    if let Some(check) = &mut server.check {
        // Unless a section says what it is.
        if let Some(kind) = &proxy.lent.check_kind
            && matches!(&*check.kind, CheckKind::Script(script) if script.family == Family::Connect)
        {
            check.kind = kind.clone();
        }
        check.timeout = proxy.timeouts.check;
        check.connect_timeout = proxy.timeouts.connect;
        check.log = proxy.options.log_health_checks;
        // Here it has to be said.
        check.send_proxy = words.iter().any(|word| word == "check-send-proxy");
    }
    if let Some(agent) = &mut server.agent {
        agent.timeout = proxy.timeouts.check;
        agent.connect_timeout = proxy.timeouts.connect;
    }
    // Here `check-ssl` has to be said.
    if let Some(tls) = server.tls.as_mut().filter(|_| !words.iter().any(|word| word == "check-ssl")) {
        tls.check = None;
    }
    if server.source.is_none() {
        server.source = proxy.source.clone();
    }
    server.state.checked.store(false, Relaxed);
    server.state.agent_checked.store(false, Relaxed);
    server.state.dynamic.store(true, Relaxed);
    // The line that was made for it always has a number.
    let said = words.windows(2).enumerate().any(|(at, pair)| {
        let value = at > 0 && words[at - 1] == "hash-key";
        pair[0] == "id" && !value && pair[1].bytes().all(|byte| byte.is_ascii_digit())
    });
    server.state.forced_id.store(said, Relaxed);
    // An operator brings it into service, or its agent does: `disabled` of the configuration is not
    // what it is.
    server.state.change_admin(
        state::Admin::FORCED_MAINT,
        state::Admin::CONFIGURED_MAINT,
        base::clock::now_ms(),
    );
}
