//! `peers` sections (manual, 11.2): which of them share tables, where they listen and to which peers they connect. A section is an
//! internal proxy: its peers are the servers, and the local peer is its only `bind` line.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use base::address::Host;
use diag::{Diagnostic, Diagnostics};
use plan::bind::{BindAddress, Shards};
use plan::peers::{Peer, Peers};
use plan::{Bind, ServerSettings};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::bind::BindDraft;
use crate::draft::server::{InitAddr, ServerDraft};
use crate::draft::settings::{DefaultServers, ProxySettings};
use crate::draft::{Section, SectionKind, Statement};
use crate::resolve::server_line::{self, ServerLine, template_range};
use crate::resolve::tls::{self, LineOwner};
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext, lines, qmux, quic};
use crate::tables::bind;
use crate::tables::environment::LOCAL_PEER;
use crate::tables::server::parse_params;
use crate::tables::server_address::{host_name, parse_place, refuse_datagrams};

fn local<'c>(context: &'c ResolveContext<'_>) -> &'c str {
    context.environment.get(LOCAL_PEER).unwrap_or_default()
}

/// Returns the lines of peers with fixed names, and the names.
fn peer_lines<'s, 'a>(
    settings: &'s ProxySettings<'a>,
) -> impl Iterator<Item = (&'a Statement, &'a Word)> + 's {
    let lines = settings.servers.iter().filter(|(line, _)| line.keyword.name != "server-template");
    lines.filter_map(|(line, _)| Some((*line, line.arguments().first()?)))
}

/// Returns the names of the servers of `server-template` lines, for peers that DNS provides.
fn template_names(settings: &ProxySettings<'_>) -> impl Iterator<Item = String> {
    let lines = settings.servers.iter().filter(|(line, _)| line.keyword.name == "server-template");
    let ranges = lines.filter_map(|(line, _)| {
        let [prefix, range, ..] = line.arguments() else { return None };
        Some((prefix, template_range(range)?))
    });
    ranges.flat_map(|(prefix, (low, high))| (low..=high).map(move |number| format!("{prefix}{number}")))
}

/// Returns the names of the other peers of a section, in order. Those that DNS provides have the names of their servers.
pub(super) fn others(settings: &ProxySettings<'_>, context: &ResolveContext<'_>) -> Vec<Box<str>> {
    let own = local(context);
    let lines = peer_lines(settings).filter(|(line, name)| ***name != *own && line.arguments().len() > 1);
    lines.map(|(_, name)| name.as_str().into()).chain(template_names(settings).map(String::into)).collect()
}

/// Returns the address on which this process listens: a word and its line.
fn place<'a>(settings: &ProxySettings<'a>, local: &str) -> Option<(&'a Word, &'a Statement)> {
    if let Some(line) = settings.binds.first() {
        return Some((line.arguments().first()?, line));
    }
    let (line, _) =
        peer_lines(settings).find(|(line, name)| ***name == *local && line.keyword.name == "peer")?;
    Some((line.arguments().get(1)?, line))
}

/// Disables sections that cannot share tables, because this process is not one of their peers.
pub(crate) fn check(proxies: &mut [(&Section, Box<ProxySettings<'_>>)], context: &mut ResolveContext<'_>) {
    let mut seen: HashMap<&str, &Section> = HashMap::new();
    for (section, settings) in proxies.iter_mut().filter(|(section, _)| section.kind == SectionKind::Peers) {
        if let Some(other) = seen.insert(&section.name, section) {
            twice(section, other, context);
        }
        both(settings, context);
        let own = local(context).to_owned();
        let is_local = |(line, name): (&Statement, &Word)| {
            **name == *own && (line.keyword.name == "server" || line.arguments().len() > 1)
        };
        if settings.disabled || peer_lines(settings).any(is_local) {
            continue;
        }
        settings.disabled = true;
        // This may be the consequence of another error. A section without peers gets no message.
        if context.diagnostics.has_errors() || settings.servers.is_empty() && settings.binds.is_empty() {
            continue;
        }
        let name = &section.name;
        let names: Vec<&str> = peer_lines(settings).map(|(_, name)| name.as_str()).collect();
        context.diagnostics.push(
            Diagnostic::warning(format!("peers section `{name}` is ignored: no peer is named `{own}`"))
                .at(name.span())
                .did_you_mean(diag::suggest(&own, names))
                .help("set the name of this process with `localpeer` in the global section, or -L")
                .haproxy_whole(format!(
                    "Removing incomplete section 'peers {name}' (no peer named '{own}')."
                )),
        );
    }
}

fn twice(section: &Section, other: &Section, context: &mut ResolveContext<'_>) {
    let haproxy = |name: &str, place: &str| {
        format!("peers section '{name}' has the same name as another peers section declared at {place}.")
    };
    let error = second(section, other, haproxy, context);
    context.diagnostics.push(error);
}

/// Checks that the listener is configured only once, and no peer twice.
fn both(settings: &ProxySettings<'_>, context: &mut ResolveContext<'_>) {
    if let Some(second) = settings.binds.get(1) {
        context.diagnostics.push(
            Diagnostic::alert("a peers section can have only one `bind` line")
                .at(second.keyword_span())
                .related(settings.binds[0].keyword_span(), "the first one is here")
                .haproxy(
                    "One listener per \"peers\" section is authorized but another is already configured.",
                ),
        );
    }
    let first_peer = settings.servers.iter().find(|(line, _)| line.keyword.name == "peer");
    if let (Some(line), Some((peer, _))) = (settings.binds.first(), first_peer) {
        context.diagnostics.push(
            Diagnostic::alert("a peers section with a `bind` line must use `server` lines, not `peer` lines")
                .at(peer.keyword_span())
                .related(line.keyword_span(), "the `bind` line is here")
                .haproxy("mixing \"peer\" and \"bind\" line is forbidden"),
        );
    }
}

/// The socket of a section; empty if the section does not listen.
pub(crate) fn binds(at: usize, proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Vec<Bind> {
    match bind_line(at, proxy, context) {
        Ok(made) => made.into_iter().collect(),
        Err(error) => {
            context.diagnostics.push(error);
            Vec::new()
        }
    }
}

fn bind_line(
    at: usize,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Option<Bind>, Diagnostic> {
    let settings = &proxy.settings;
    let Some((word, statement)) = place(settings, local(context)) else { return Ok(None) };
    let unix = context.global.unix_bind.clone();
    let title = format!("bind {word}");
    let mut draft = BindDraft::default();
    for line in &settings.peers.default_binds {
        let mut args = Args::new(line, context.diagnostics, context.environment);
        bind::parse_more(&mut draft, &mut args, "default-bind", "peers")?;
    }
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    args.warn_of_mptcp(word);
    let addresses = bind::parse_addresses(word, &args, &unix)?;
    quic::refuse(&addresses, word)?;
    if statement.keyword.name == "bind" {
        args.next();
        bind::parse_more(&mut draft, &mut args, &title, "peers")?;
    }
    qmux::refuse(&draft)?;
    let [(address, shown)]: [(BindAddress, String); 1] = addresses.try_into().map_err(|_| {
        Diagnostic::alert("a peers section can listen on only one address").at(word.span()).haproxy(
            "Only one listener per \"peers\" section is authorized. Multiple listening addresses or port range are not supported.",
        )
    })?;
    let owner = LineOwner { frontend: settings.name, is_http: false, is_quic: false, certificates: &[] };
    let acceptor = tls::acceptor(&draft.tls, &title, &owner, statement, context)
        .map_err(|error| error.wrap_line(&format!("'{title}' in section 'peers' : "), ""))?;
    let mut bind = bind::make(&draft, address, shown, 1, &unix, &context.placement, acceptor)
        .map_err(|message| Diagnostic::alert(message).at(statement.span))?;
    // A single worker does all the work of a section.
    bind.workers = match draft.threads.is_empty() {
        true => vec![at % context.placement.workers()],
        false => bind.workers[..1].to_vec(),
    };
    bind.shards = Some(Shards::Count(1));
    bind.place = lines::shown(context, statement.span).into();
    Ok(Some(bind))
}

/// A peer as a server. This includes the process itself at its own address, where its predecessor connects to it.
pub(crate) fn server<'a>(
    proxy: &PendingProxy<'a>,
    statement: &'a Statement,
    defaults: &DefaultServers<'a>,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<ServerLine<'a>>, Diagnostic> {
    let keyword = statement.keyword.name;
    if keyword == "server-template" {
        return template(proxy, statement, defaults, context);
    }
    let own = local(context).to_owned();
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let name = args.next();
    let is_local = name.is_some_and(|name| **name == *own);
    let without_address = is_local && keyword == "server";
    let address = if without_address {
        if let Some(extra) = args.peek().filter(|word| word.contains([':', '/'])) {
            return Err(Diagnostic::alert(format!("`server {own}` is this process, and cannot have an address here"))
                .at(extra.span())
                .help(format!("use `bind {extra}` to set the listening address, or `peer {own} {extra}`"))
                .haproxy(format!(
                    "'server {own}/{own}' : unknown keyword '{extra}'. Hint: no address was expected for this server."
                )));
        }
        place(&proxy.settings, &own).map(|(word, _)| word)
    } else {
        args.next()
    };
    let (Some(name), Some(address)) = (name, address) else {
        if !without_address {
            let shown = name.map_or("", |name| name.as_str());
            args.diagnostics.push(
                Diagnostic::warning(format!("`{keyword} {shown}` is ignored: it has no address"))
                    .at(statement.end())
                    .haproxy(format!(
                        "'{keyword} {shown}' : ignoring invalid peer definition (missing address:port)"
                    )),
            );
        }
        return Ok(Vec::new());
    };
    let title = format!("server {}/{name}", proxy.settings.name);
    args.warn_of_mptcp(address);
    let place = match parse_place(address, &args) {
        Ok(place) => place,
        // The process listens on an address that cannot be connected to.
        Err(_) if is_local => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    refuse_datagrams(&place, address)?;
    if place.is_quic {
        return Err(Diagnostic::alert("QUIC is only supported for servers of HTTP backends")
            .at(address.span())
            .haproxy(format!("'{keyword} {name}' : unusable address '{address}'.")));
    }
    if !is_local && place.port_offset.is_some() {
        return Err(Diagnostic::alert(format!("peer `{name}` requires a port"))
            .at(address.span())
            .haproxy(format!("'{keyword} {name}' : missing port specification in '{address}'")));
    }
    let mut draft = defaults.unnamed.as_ref().clone();
    parse_params(&mut draft, &mut args, &title)?;
    if draft.check || draft.agent || draft.resolvers.is_some() || !draft.init_addr.is_empty() {
        args.diagnostics.push(
            Diagnostic::warning(format!(
                "`init-addr`, `resolvers`, `check` and `agent-check` have no effect on peer `{name}`"
            ))
            .at(statement.keyword_span())
            .haproxy(format!(
                "'{keyword} {name}' : init_addr, resolvers, check and agent are ignored for peers."
            )),
        );
    }
    draft.resolvers = None;
    draft.init_addr.clear();
    what_peers_have_not(&mut draft, statement, name, args.diagnostics);
    let name_text = name.as_str().into();
    Ok(vec![ServerLine {
        statement,
        name: name_text,
        name_word: name,
        address_word: address,
        place: Rc::new(place),
        draft,
    }])
}

/// The peers of a `server-template` line. DNS provides their names and addresses while the process runs.
fn template<'a>(
    proxy: &PendingProxy<'a>,
    statement: &'a Statement,
    defaults: &DefaultServers<'a>,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<ServerLine<'a>>, Diagnostic> {
    let mut lines = server_line::template(proxy, statement, defaults, context)?;
    let Some(first) = lines.first() else { return Ok(lines) };
    let (address, prefix) = (first.address_word, first.name_word);
    let refuse = |text: String| Diagnostic::alert(text).at(address.span());
    let Some(Host::Name { name: host, .. }) = host_name(&first.place.place) else {
        return Err(refuse(format!("`server-template {prefix}` needs a host name, not `{address}`")).help(
            "DNS provides the peers of a template; add a `server` line for each peer with a fixed address",
        ));
    };
    if first.place.is_quic {
        return Err(
            refuse("peers cannot be reached over QUIC".to_owned()).help("remove the prefix of the address")
        );
    }
    if !host.starts_with('_') && first.place.port_offset.is_some() {
        return Err(refuse(format!("`{address}` requires a port")).help(format!(
            "add one, such as `{host}:10000`, or use the name of an SRV record, such as `_peers._tcp.{host}`"
        )));
    }
    let draft = &first.draft;
    let Some(_) = draft.resolvers else {
        return Err(Diagnostic::alert(format!(
            "`server-template {prefix}` needs `resolvers <section>` here"
        ))
        .at(statement.keyword_span())
        .help("add the name of a `resolvers` section, which keeps the list of peers up to date"));
    };
    if draft.shard > 0 {
        return Err(Diagnostic::alert(format!("`shard` cannot be used with `server-template {prefix}`"))
            .at(statement.keyword_span())
            .help("add a `server` line for each peer with a shard"));
    }
    if draft.check || draft.agent {
        context.diagnostics.push(
            Diagnostic::warning(format!(
                "`check` and `agent-check` have no effect on the peers of `server-template {prefix}`"
            ))
            .at(statement.keyword_span()),
        );
    }
    what_peers_have_not(&mut lines[0].draft, statement, prefix, context.diagnostics);
    let mut draft = lines[0].draft.clone();
    draft.init_addr = vec![InitAddr::None];
    (draft.id, draft.guid) = (None, None);
    lines.iter_mut().for_each(|line| line.draft = draft.clone());
    Ok(lines)
}

/// Resets settings that peers do not have, because they are neither checked nor balanced.
fn what_peers_have_not(
    draft: &mut ServerDraft<'_>,
    statement: &Statement,
    name: &Word,
    diagnostics: &mut Diagnostics,
) {
    (draft.check, draft.agent, draft.track) = (false, false, None);
    draft.disabled = false;
    if draft.send_proxy.version_1 || draft.send_proxy.version_2 {
        diagnostics.push(
            Diagnostic::warning(format!("`send-proxy` has no effect on peer `{name}`"))
                .at(statement.keyword_span())
                .haproxy("'send-proxy*' server option is unsupported there, ignoring it"),
        );
    }
    draft.send_proxy = Default::default();
    draft.tfo = false;
}

/// The peers settings of a proxy, or `None` for other proxies and if the section shares nothing.
pub(crate) fn peers(
    at: usize,
    proxy: &PendingProxy<'_>,
    binds: &[Bind],
    servers: &[Arc<ServerSettings>],
    context: &mut ResolveContext<'_>,
) -> Option<Box<Peers>> {
    let settings = &proxy.settings;
    if settings.kind != SectionKind::Peers {
        return None;
    }
    let own = local(context).to_owned();
    let mut peers: Vec<Peer> = Vec::new();
    let mut local = None;
    for (line, name) in peer_lines(settings) {
        let server = servers.iter().find(|server| *server.state.name == **name).cloned();
        let is_local = **name == *own;
        if server.is_none() && !is_local {
            continue;
        }
        if is_local {
            local.get_or_insert(peers.len());
        }
        let shard = server.as_ref().map_or(0, |server| server.shard);
        check_shard(shard, is_local, line, name, proxy, context);
        peers.push(Peer { name: name.as_str().into(), is_from_dns: false, shard, server });
    }
    for name in template_names(settings) {
        let server = servers.iter().find(|server| *server.state.name == *name).cloned();
        if server.is_some() {
            peers.push(Peer { name: name.into(), is_from_dns: true, shard: 0, server });
        }
    }
    Some(Box::new(Peers {
        peers: peers.into(),
        local: local.unwrap_or(0),
        shards: settings.peers.shards,
        tables: context.shared.remove(settings.name).unwrap_or_default().into(),
        worker: binds.first().map_or(at % context.placement.workers(), |bind| bind.workers[0]),
    }))
}

fn check_shard(
    shard: u32,
    is_local: bool,
    line: &Statement,
    name: &Word,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) {
    let (section, shards) = (proxy.settings.name, proxy.settings.peers.shards);
    let (why, haproxy_text) = if shard == 0 {
        return;
    } else if is_local {
        let haproxy_text = format!("Peers section '{section}': shard ignored for '{name}' local peer");
        ("this process holds all keys".to_owned(), haproxy_text)
    } else if shard > shards {
        let haproxy_text = format!(
            "Peers section '{section}': shard ignored for '{name}' local peer because {shard} shard value is greater than the section number of shards"
        );
        (format!("the section's `shards` is {shards}"), haproxy_text)
    } else {
        return;
    };
    context.diagnostics.push(
        Diagnostic::warning(format!("`shard {shard}` of peer `{name}` is ignored: {why}"))
            .at(line.keyword_span())
            .haproxy_whole(haproxy_text),
    );
}
