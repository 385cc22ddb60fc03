//! Servers: converts their lines to states and settings (manual, section 5.2 and 4.2 `server-template`).

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::address::{Destination, Host, Ports};
use base::raw::{bytes_of, path_of};
use diag::Diagnostic;
use plan::proxy::StateFile;
use plan::server::Observe;
use state::server::{ServerAddress, ServerSeed};

use crate::draft::server::{InitAddr, ServerDraft};
use crate::draft::settings::ProxySettings;
use crate::draft::{SectionKind, Statement};
use crate::resolve::discovered::{self, DiscoveredDraft};
use crate::resolve::server_line::{self, ServerLine};
use crate::resolve::{PendingProxy, ResolveContext, carry_over, lines, peers, reverse};
use crate::system::resolve_host;
use crate::tables::server_address::host_name;

/// A server with its state, but without the settings that refer to names.
pub(crate) struct MadeServer<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) draft: ServerDraft<'a>,
    pub(crate) state: Arc<state::Server>,
    pub(crate) is_datagram: bool,
    /// The fingerprint of everything that the server's connections depend on.
    pub(crate) print: u64,
    /// The rest of the line, if the server is the prototype of discovered servers. Prototypes follow the servers.
    pub(crate) discovered: Option<DiscoveredDraft>,
}

/// Creates the servers of every backend, and registers their states by name.
pub(crate) fn make<'a>(
    pending: &[PendingProxy<'a>],
    context: &mut ResolveContext<'_>,
) -> Vec<Vec<MadeServer<'a>>> {
    pending.iter().map(|proxy| make_backend(proxy, context)).collect()
}

fn make_backend<'a>(proxy: &PendingProxy<'a>, context: &mut ResolveContext<'_>) -> Vec<MadeServer<'a>> {
    let mut lines = Vec::new();
    let mut prototypes = Vec::new();
    for (statement, defaults) in &proxy.settings.servers {
        if statement.keyword.name == "servers from" {
            match discovered::line(proxy, statement, defaults, context) {
                Ok(made) => prototypes.extend(made),
                Err(error) => context.diagnostics.push(error),
            }
            continue;
        }
        let parsed = if proxy.settings.kind == SectionKind::Peers {
            peers::server(proxy, statement, defaults, context)
        } else if statement.keyword.name == "server" {
            server_line::single(proxy, statement, defaults, context)
        } else {
            server_line::template(proxy, statement, defaults, context)
        };
        match parsed {
            Ok(mut parsed) => lines.append(&mut parsed),
            Err(error) => {
                if let Some(name) = statement.arguments().first() {
                    context.refused.insert(format!("{}/{name}", proxy.settings.name));
                }
                context.diagnostics.push(error);
            }
        }
    }
    check_unique(proxy, &lines, context);
    let mut made = Vec::with_capacity(lines.len());
    let former = carry_over::servers(proxy, context.previous);
    let number_of = |line: &ServerLine<'_>| {
        let own = former.iter().find(|own| *own.name == *line.name)?;
        Some(own.id).filter(|_| line.draft.id.is_none() && !own.forced_id.load(Relaxed))
    };
    let mut taken: HashSet<u32> = lines.iter().filter_map(|line| line.draft.id).collect();
    let known: Vec<Option<u32>> =
        lines.iter().map(|line| number_of(line).filter(|id| taken.insert(*id))).collect();
    // Every server advances the counter, even one with an explicit ID. The ID is the position in the list if possible, because
    // consistent hashing depends on it.
    let mut last = 0;
    for (line, known) in lines.into_iter().zip(known) {
        last += 1;
        while line.draft.id.or(known).is_none() && taken.contains(&last) {
            last += 1;
        }
        let id = line.draft.id.or(known).unwrap_or(last);
        made.push(make_server(proxy, line, id, &former, context));
    }
    let mut states: Vec<_> = made.iter().map(|server| server.state.clone()).collect();
    if !prototypes.is_empty() {
        // They remain visible until the new plan's own servers are made of the last list.
        states.extend(carry_over::discovered(proxy, context.previous));
    }
    proxy.state.servers.store(Arc::new(states));
    if context.previous.is_none() {
        state::transition::begin_backend(&proxy.state);
    }
    for (line, draft) in prototypes {
        let server = make_server(proxy, line, 0, &[], context);
        made.push(MadeServer { discovered: Some(draft), ..server });
    }
    made
}

fn check_unique(proxy: &PendingProxy<'_>, lines: &[ServerLine<'_>], context: &mut ResolveContext<'_>) {
    // Most backends have few servers, for which comparing all pairs is cheaper than a map.
    if lines.len() > 16 {
        let mut names: HashMap<&str, &ServerLine<'_>> = HashMap::new();
        for line in lines {
            if let Some(other) = names.insert(&line.name, line) {
                same_name(proxy, line, other, context);
            }
        }
    } else {
        for (index, line) in lines.iter().enumerate() {
            if let Some(other) = lines[..index].iter().find(|other| other.name == line.name) {
                same_name(proxy, line, other, context);
            }
        }
    }
    let mut ids: Vec<(u32, &ServerLine<'_>)> =
        lines.iter().filter_map(|line| Some((line.draft.id?, line))).collect();
    ids.sort_by_key(|(id, line)| (*id, line.statement.line));
    for pair in ids.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let ((id, other), (_, line)) = (pair[0], pair[1]);
        let place = format!("{}:{}", context.sources.file(proxy.section.file).name(), other.statement.line);
        let (backend, name, other_name) = (proxy.settings.name, &line.name, &other.name);
        context.diagnostics.push(
            Diagnostic::alert(format!("servers `{other_name}` and `{name}` have the same id {id}"))
                .at(line.name_word.span())
                .related(other.name_word.span(), "the first one is here")
                .haproxy(format!("'server {backend}/{name}' : 'id' : custom id {id} already used at {place} ('server {other_name}').")),
        );
    }
}

fn same_name(
    proxy: &PendingProxy<'_>,
    line: &ServerLine<'_>,
    other: &ServerLine<'_>,
    context: &mut ResolveContext<'_>,
) {
    let (backend, name) = (proxy.settings.name, &line.name);
    let place = format!("{}:{}", context.sources.file(proxy.section.file).name(), other.statement.line);
    context.diagnostics.push(
        Diagnostic::alert(format!("backend `{backend}` has two servers named `{name}`"))
            .at(line.name_word.span())
            .related(other.name_word.span(), "the first one is here")
            .haproxy(format!(
                "{} '{backend}', another server named '{name}' was already defined at line {place}, please use distinct names.",
                proxy.settings.kind_name()
            )),
    );
}

fn make_server<'a>(
    proxy: &PendingProxy<'a>,
    line: ServerLine<'a>,
    id: u32,
    former: &[Arc<state::Server>],
    context: &mut ResolveContext<'_>,
) -> MadeServer<'a> {
    let address = address(&line, proxy, context);
    let print = carry_over::print(proxy, &line, &context.tls);
    let ServerLine { statement, name, draft, place, address_word, .. } = line;
    if let Some(track) = draft.track {
        let own = proxy.settings.name;
        let followed = if track.contains('/') { track.to_string() } else { format!("{own}/{track}") };
        context.tracks.insert(format!("{own}/{name}"), followed);
    }
    if address == ServerAddress::Reverse
        && let Err(error) = reverse::server(address_word, &name, proxy, context)
    {
        context.diagnostics.push(error);
    }
    if reverse::is_reversible(&draft) {
        context.reversible.insert(format!("{}/{name}", proxy.settings.name));
    }
    let unresolved = address == ServerAddress::Unresolved;
    let seed = ServerSeed {
        id,
        name: name.into(),
        proxy: proxy.settings.name.into(),
        backup: draft.backup,
        // If `minconn` is not below `maxconn`, or is given alone, it is a fixed limit.
        maxconn: draft.maxconn.max(draft.minconn),
        minconn: match draft.fleet {
            Some(_) => state::server::FLEET_LIMIT,
            None if draft.minconn < draft.maxconn => draft.minconn,
            None => 0,
        },
        maxqueue: draft.maxqueue,
        address,
        weight: draft.weight,
        disabled: draft.disabled,
        checked: draft.check,
    };
    let host = match &place.place {
        Destination::Ip { host: Host::Name { name, .. }, .. } => Some(name.as_str()),
        _ => None,
    };
    let guid = draft.guid.map(|word| word.as_str());
    let (state, is_former) = match carry_over::server(seed, guid, host, former) {
        Ok(state) => (state, true),
        Err(seed) => (state::Server::new(seed), false),
    };
    // A server with checks goes down at the first failure. For servers without checks, HAProxy shows the level too if a
    // `default-server` line precedes them.
    let shown = !draft.disabled && !proxy.settings.default_server_lines.is_empty();
    let level = if draft.check || shown { draft.rise } else { 0 };
    state.health.rise.store(draft.rise, Relaxed);
    state.health.fall.store(draft.fall, Relaxed);
    // A server carried over keeps its level.
    if !is_former || !draft.check {
        state.health.level.store(level, Relaxed);
    }
    state.forced_id.store(draft.id.is_some(), Relaxed);
    state.names_connections.store(draft.pool_conn_name.is_some() || draft.tls.sni.is_some(), Relaxed);
    if let Some(guid) = draft.guid {
        context.guids.name(guid.as_str().to_owned(), &state.guid, guid, context.diagnostics);
    }
    state.health.configured.store(draft.check, Relaxed);
    state.health.observes.store(draft.observe != Observe::None, Relaxed);
    state.health.address.store(draft.check_address.map(Arc::new));
    state.health.port.store(draft.checked_port().unwrap_or(0).into(), Relaxed);
    set_agent(&state, &draft, is_former);
    state.resolved.store(draft.resolvers.is_some(), Relaxed);
    if let Destination::Ip { host: Host::Name { name, .. }, ports } = &place.place {
        match is_service(name) && draft.resolvers.is_some() {
            // A server that was carried over already has it.
            true => drop(state.srv_record.set(Box::new(name.as_str().into()))),
            false => state.set_fqdn(Some(name)),
        }
        if !is_former {
            state.service_port.store(port(ports).into(), Relaxed);
        }
    }
    if unresolved && !is_former {
        state.change_admin(state::Admin::RESOLUTION_MAINT, 0, 0);
        state.health.level.store(0, Relaxed);
    }
    // The port is provided by SRV records.
    state.set_port_offset(place.port_offset.filter(|_| state.srv_record.get().is_none()));
    MadeServer { statement, draft, state, is_datagram: place.is_datagram, print, discovered: None }
}

/// Sets the state of the agent. A server without an agent has one only if its line sets values that also apply to agents, which
/// `show servers state` reports.
fn set_agent(state: &state::Server, draft: &ServerDraft<'_>, is_former: bool) {
    // `addr` and `port` apply to the agent as well.
    let (address, port) =
        (draft.agent_address.or(draft.check_address), draft.agent_port.or(draft.check_port));
    let is_set = address.is_some() || port.is_some() || !draft.agent_send.is_empty();
    if draft.agent || is_set || state.agent.get().is_some() {
        if !is_former || !draft.agent {
            state.agent.level.store(1, Relaxed);
        }
        state.agent.address.store(address.map(Arc::new));
        state.agent.port.store(port.unwrap_or(0).into(), Relaxed);
        state.agent.send.store((!draft.agent_send.is_empty()).then(|| Arc::new(draft.agent_send.clone())));
    }
    // If the checks are unchanged, a run-time change to their state is kept.
    if !is_former || state.agent.is_configured() != draft.agent {
        state.agent_checked.store(draft.agent, Relaxed);
    }
    if draft.agent || state.agent.get().is_some() {
        state.agent.configured.store(draft.agent, Relaxed);
    }
}

/// Whether a name is for SRV records (manual, 5.3.1).
fn is_service(name: &str) -> bool {
    name.starts_with('_')
}

fn port(ports: &Ports) -> u16 {
    ports.iter().next().unwrap_or(0)
}

fn address(
    line: &ServerLine<'_>,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> ServerAddress {
    match &line.place.place {
        Destination::Unix(path) => ServerAddress::Unix(path_of(path).into()),
        Destination::Abns(name) => {
            ServerAddress::Abstract { name: bytes_of(name).into_owned(), padded: true }
        }
        Destination::Abnsz(name) => {
            ServerAddress::Abstract { name: bytes_of(name).into_owned(), padded: false }
        }
        Destination::Ip { host: Host::Ip(ip), ports } => ServerAddress::Ip(SocketAddr::new(*ip, port(ports))),
        Destination::Ip { ports, .. } => match lookup(line, proxy, context) {
            Some(ip) => ServerAddress::Ip(SocketAddr::new(ip, port(ports))),
            None => ServerAddress::Unresolved,
        },
        Destination::ReverseHttp(_) => ServerAddress::Reverse,
        Destination::Fd(_) | Destination::SockPair(_) => ServerAddress::Unresolved,
    }
}

/// Resolves a server's name by the methods of `init-addr`; the default is `last,libc`, followed by `none` for a server with
/// `resolvers`.
fn lookup(
    line: &ServerLine<'_>,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<IpAddr> {
    let host = host_name(&line.place.place)?;
    let service = matches!(host, Host::Name { name, .. } if is_service(name));
    let methods: &[InitAddr] = match line.draft.init_addr.as_slice() {
        [] if line.draft.resolvers.is_some() => &[InitAddr::Last, InitAddr::Libc, InitAddr::None],
        [] => &[InitAddr::Last, InitAddr::Libc],
        methods => methods,
    };
    if proxy.settings.disabled {
        return None;
    }
    let mut failure = None;
    for method in methods {
        match method {
            InitAddr::Last => {
                let file = state_file(&proxy.settings, context);
                let found = file.and_then(|file| context.last.find(&file, proxy.settings.name, &line.name));
                if found.is_some() {
                    return found;
                }
            }
            InitAddr::None => {
                if let Some(failure) = failure {
                    unresolved_notice(line, proxy, failure, "disabling server", context);
                }
                return None;
            }
            InitAddr::Ip(ip) => {
                if let Some(failure) = failure {
                    unresolved_notice(line, proxy, failure, "falling back to configured address", context);
                }
                return Some(*ip);
            }
            InitAddr::Libc if service => {}
            InitAddr::Libc => {
                let key = format!("{host:?}");
                let found = context.hosts.entry(key).or_insert_with(|| resolve_host(host)).clone();
                match found {
                    Ok(ip) => return Some(ip),
                    Err(error) => failure = Some(error),
                }
            }
        }
    }
    if service && line.draft.resolvers.is_some() {
        // SRV records are looked up at run time; `libc` does not provide them.
        return None;
    }
    let (backend, name, address) = (proxy.settings.name, &line.name, line.address_word);
    let shown = shown_name(line);
    if context.setting.ignore_resolution_failures {
        if let Some(failure) = failure {
            unresolved_notice(line, proxy, failure, "disabling server", context);
        }
        return None;
    }
    let subject = format!("address `{address}` of server `{backend}/{name}`");
    let title = format!("[{}] : 'server {backend}/{name}'", lines::shown(context, address.span()));
    let diagnostic = match failure {
        Some(failure) => Diagnostic::alert(format!("cannot resolve the {subject}: {failure}"))
            .help("use `init-addr none` or `-dr` to start without the address")
            .haproxy_whole(format!("{title} : could not resolve address '{shown}'.")),
        None => Diagnostic::alert(format!("no method of `init-addr` provides the {subject}"))
            .help(if service {
                "SRV records are resolved at run time: use `resolvers <section>` to select the name servers"
            } else {
                "add `libc`, `none` or an address to `init-addr`"
            })
            .haproxy_whole(format!("{title} : no method found to resolve address '{shown}'.")),
    };
    context.diagnostics.push(diagnostic.at(address.span()));
    // Any address is acceptable, because the plan is not used.
    Some(Ipv4Addr::UNSPECIFIED.into())
}

/// The file of a backend's server states. Its name is relative to `server-state-base`.
pub(crate) fn state_file(settings: &ProxySettings<'_>, context: &ResolveContext<'_>) -> Option<PathBuf> {
    let base = context.global.server_state_base.clone().unwrap_or_default();
    match settings.server_state {
        StateFile::None => None,
        StateFile::Global => Some(base.join(context.global.server_state_file.as_ref()?)),
        StateFile::Local(_) => Some(base.join(path_of(settings.server_state_name.unwrap_or(settings.name)))),
    }
}

/// The host name without the port, as in HAProxy's messages.
fn shown_name<'a>(line: &'a ServerLine<'_>) -> &'a str {
    match host_name(&line.place.place) {
        Some(Host::Name { name, .. }) => name,
        _ => line.address_word,
    }
}

/// Reports that a server's name was not resolved, and the consequence (`then`).
fn unresolved_notice(
    line: &ServerLine<'_>,
    proxy: &PendingProxy<'_>,
    failure: String,
    then: &str,
    context: &mut ResolveContext<'_>,
) {
    let (backend, name, address) = (proxy.settings.name, &line.name, line.address_word);
    let shown = shown_name(line);
    context.diagnostics.push(
        Diagnostic::new(
            diag::Severity::Notice,
            format!("cannot resolve the address `{address}` of server `{backend}/{name}`, {then}: {failure}"),
        )
        .at(address.span())
        .haproxy_whole(format!(
            "[{}] : 'server {backend}/{name}' : could not resolve address '{shown}', {then}.",
            lines::shown(context, address.span())
        )),
    );
}
