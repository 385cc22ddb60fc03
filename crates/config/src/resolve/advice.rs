//! Advice about statements that are allowed but suspicious (`-dD`; management manual, chapter 3). Advice affects neither the plan
//! nor the exit code.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use diag::{Diagnostic, Severity};
use plan::bind::{Bind, BindAddress};
use state::server::ServerAddress;

use crate::draft::{Draft, SectionKind, Statement};
use crate::resolve::servers::MadeServer;
use crate::resolve::{PendingProxy, ResolveContext, unused};

/// Checks the order and the names of the sections.
pub(crate) fn sections(draft: &Draft, context: &mut ResolveContext<'_>) {
    if !context.setting.diagnostics {
        return;
    }
    // A refused line may have been the one that uses a name.
    if !context.diagnostics.has_errors() {
        unused::names(draft, context);
    }
    let mut has_other = false;
    for section in &draft.sections {
        if section.kind != SectionKind::Global {
            has_other = true;
        } else if has_other {
            let text = "global section detected after a non-global one, the prevalence of their statements is unspecified";
            context.diagnostics.push(
                Diagnostic::new(Severity::Diag, "`global` section after other sections")
                    .at(section.keyword.span())
                    .haproxy(text),
            );
        }
    }
}

/// Checks the servers of a backend.
pub(crate) fn servers(
    proxy: &PendingProxy<'_>,
    servers: &[MadeServer<'_>],
    context: &mut ResolveContext<'_>,
) {
    if !context.setting.diagnostics {
        return;
    }
    same_addresses(proxy, servers, context);
    let backend = proxy.settings.name;
    let mut cookies: Vec<&str> = Vec::new();
    for MadeServer { statement, draft, state, .. } in servers {
        let name = &state.name;
        let mut advise = |message: String, text: String| {
            let advice = Diagnostic::new(Severity::Diag, message).at(statement.keyword_span());
            context.diagnostics.push(advice.haproxy(text));
        };
        if draft.weight == 0 {
            advise(
                format!("server `{backend}/{name}` has weight 0 and is never selected by load balancing"),
                format!(
                    "'server {backend}/{name}' : configured with weight of 0 will never be selected by load balancing \
                     algorithms"
                ),
            );
        }
        // Backup servers may share the cookie of the server they replace.
        let Some(cookie) = draft.cookie.filter(|_| !draft.backup) else { continue };
        if cookies.contains(&cookie) {
            advise(
                format!("server `{backend}/{name}` has the same cookie value as an earlier server"),
                format!(
                    "'server {name}' : same cookie value is set for a previous non-backup server in the same backend, it \
                     may break connection persistence"
                ),
            );
        } else {
            cookies.push(cookie);
        }
    }
}

/// Parameters with which two servers at one address are distinct.
const DISTINCT: &[&str] = &["backup", "disabled", "namespace", "proto", "sni", "socks4", "source", "track"];

/// Reports servers of a backend that have the same address and port, usually a copied line.
fn same_addresses(proxy: &PendingProxy<'_>, servers: &[MadeServer<'_>], context: &mut ResolveContext<'_>) {
    let mut seen: HashMap<SocketAddr, &MadeServer<'_>> = HashMap::new();
    for server in servers.iter().filter(|server| server.statement.keyword.name == "server") {
        let ServerAddress::Ip(address) = **server.state.address.load() else { continue };
        let is_distinct = |server: &MadeServer<'_>| {
            server.statement.arguments().iter().any(|word| DISTINCT.contains(&word.as_str()))
        };
        let Some(first) = seen.get(&address) else {
            seen.insert(address, server);
            continue;
        };
        if is_distinct(server) || is_distinct(first) {
            continue;
        }
        let (backend, name, other) = (proxy.settings.name, &server.state.name, &first.state.name);
        let advice = Diagnostic::new(
            Severity::Diag,
            format!("server `{backend}/{name}` has the same address as server `{other}`"),
        )
        .at(server.statement.keyword_span())
        .related(first.statement.keyword_span(), "the first one is here")
        .haproxy(format!("'server {backend}/{name}' : same address and port as server '{other}'"));
        context.diagnostics.push(advice);
    }
}

/// Where an address is bound: the socket's address, interface and namespace.
pub(crate) type BoundAddress = (String, Option<Box<str>>, Option<Box<str>>);

/// Reports addresses that an earlier line also binds, in which case the kernel spreads the connections over both. Lines for
/// different threads share addresses intentionally.
pub(crate) fn binds(
    proxy: &PendingProxy<'_>,
    statement: &Statement,
    binds: &[Bind],
    context: &mut ResolveContext<'_>,
) {
    let is_for_threads = statement.arguments().iter().any(|word| word == "thread");
    if !context.setting.diagnostics || is_for_threads || proxy.settings.disabled {
        return;
    }
    let mut first = None;
    for bind in binds {
        // A port of 0 lets the kernel choose, and inherited descriptors have no address yet.
        let address = match &bind.address {
            BindAddress::Ip(address) | BindAddress::Quic(address) if address.port() > 0 => {
                bind.address.to_string()
            }
            BindAddress::Unix(_) | BindAddress::Abstract { .. } => bind.address.to_string(),
            _ => continue,
        };
        let key = (address, bind.interface.clone(), bind.namespace.clone());
        match context.bound.entry(key) {
            Entry::Occupied(other) => first = first.or(Some(*other.get())),
            Entry::Vacant(entry) => drop(entry.insert(statement.span)),
        }
    }
    if let Some((other, address)) = first.zip(statement.arguments().first()) {
        let (kind, name) = (proxy.settings.kind_name(), proxy.settings.name);
        let advice = Diagnostic::new(Severity::Diag, format!("`{address}` is bound twice"))
            .at(statement.span)
            .related(other, "the first line is here")
            .help("the kernel spreads the connections over both lines; remove one of them")
            .haproxy(format!(
                "'bind {address}' in {kind} '{name}' : address is already bound by another line."
            ));
        context.diagnostics.push(advice);
    }
}
