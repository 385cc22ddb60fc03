//! `bind` and `stats socket` lines: one socket per address and port.

use std::collections::HashMap;
use std::sync::Arc;

use diag::Diagnostic;
use plan::bind::{Bind, BindAddress};
use plan::quic::QmuxUse;
use state::Mode;
use syntax::Word;

use crate::draft::Statement;
use crate::draft::args::Args;
use crate::resolve::advice;
use crate::resolve::crt_list::{self, Listed};
use crate::resolve::tls::{self, LineOwner};
use crate::resolve::{PendingProxy, ResolveContext, carry_over, lines, qmux, quic, reverse};
use crate::tables::bind;

/// The sockets of a proxy.
pub(crate) fn binds(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Vec<Bind> {
    let former = proxy.state.listeners.load_full();
    let mut binds: Vec<Bind> = Vec::new();
    let mut ids: HashMap<u32, (&Word, u32)> = HashMap::new();
    let certificates = crt_list::of_frontend(&proxy.settings.certificates, context);
    for statement in &proxy.settings.binds {
        match bind_line(statement, proxy, &certificates, binds.len() as u32 + 1, &mut ids, context) {
            Ok(mut made) => {
                advice::binds(proxy, statement, &made, context);
                binds.append(&mut made);
            }
            Err(error) => context.diagnostics.push(error),
        }
    }
    if proxy.settings.options.socket_stats {
        binds.iter().for_each(|bind| bind.listener.count());
    }
    binds.iter_mut().for_each(|bind| carry_over::listener(&mut bind.listener, &former));
    proxy.state.listeners.store(Arc::new(binds.iter().map(|bind| bind.listener.clone()).collect()));
    binds
}

fn bind_line<'a>(
    statement: &'a Statement,
    proxy: &PendingProxy<'_>,
    certificates: &[Listed],
    first_id: u32,
    ids: &mut HashMap<u32, (&'a Word, u32)>,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<Bind>, Diagnostic> {
    let section = proxy.section.keyword.as_str();
    let unix = context.global.unix_bind.clone();
    let reversed = match statement.arguments().first() {
        Some(address) => reverse::listeners(address, context)?,
        None => None,
    };
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let address = args.next().ok_or_else(|| {
        Diagnostic::alert("`bind` expects an address")
            .at(statement.end())
            .label("usage: bind [<address>]:<port_range> [, ...] [param*]")
            .haproxy("'bind' expects {<path>|[addr1]:port1[-end1]}{,[addr]:port[-end]}... as arguments.")
    })?;
    let mut addresses = match reversed {
        Some(addresses) => addresses,
        None => bind::parse_addresses(address, &args, &unix)?,
    };
    args.warn_of_mptcp(address);
    let title = format!("bind {address}");
    let mut draft = bind::parse_params(&mut args, &title, section)?;
    reverse::finish(&draft, &mut addresses, &title, section, address.span(), context)?;
    if let Some(id) = draft.id
        && let Some((other, line)) = ids.insert(id, (address, statement.line))
    {
        let file = context.sources.file(statement.span.file).name();
        return Err(Diagnostic::alert(format!("id {id} is already in use"))
            .at(address.span())
            .related(other.span(), "first used here")
            .haproxy(format!(
                "'{title}' in section '{section}': 'id' : custom id {id} already used at {file}:{line} ('bind {other}')"
            )));
    }
    if draft.id.is_some() && addresses.len() > 1 {
        return Err(Diagnostic::alert("`id` cannot be set on a line with several sockets")
            .at(address.span())
            .haproxy(format!(
                "'{title}' in section '{section}' : 'id' can only be used with a single socket"
            )));
    }
    let line = quic::QuicLine { draft: &mut draft, addresses: &addresses, word: address, title: &title };
    let quic = quic::settings(line, proxy, context)?;
    let qmux = match quic {
        Some(_) => QmuxUse::Never,
        None => qmux::of_bind(&mut draft, (&title, address.span()), proxy, statement, context)?,
    };
    let is_http = proxy.settings.mode == Mode::Http;
    if draft.speaks_h2 && !is_http && !proxy.settings.disabled {
        return Err(Diagnostic::alert("`proto h2` is only supported on HTTP frontends")
            .at(address.span())
            .help("use `mode http` for the frontend, or `switch-mode http proto h2` for a connection")
            .haproxy(format!(
                "proxy '{}' : MUX protocol 'h2' is not usable for 'bind {address}'",
                proxy.settings.name
            )));
    }
    let owner = LineOwner { frontend: proxy.settings.name, is_http, is_quic: quic.is_some(), certificates };
    let acceptor = tls::acceptor(&draft.tls, &title, &owner, statement, context)
        .map_err(|error| error.wrap_line(&format!("'{title}' in section '{section}' : "), ""))?;
    let numbered = addresses.into_iter().enumerate();
    let make = |(at, (address, shown)): (usize, _)| {
        let id = draft.id.unwrap_or(first_id + at as u32);
        let mut bind = bind::make(&draft, address, shown, id, &unix, &context.placement, acceptor.clone())
            .map_err(|message| Diagnostic::alert(message).at(statement.span))?;
        bind.place = lines::shown(context, statement.span).into();
        bind.quic = quic.clone().map(Box::new);
        bind.qmux = qmux;
        if let Some(prefix) = draft.guid_prefix {
            context.guids.name(format!("{prefix}-{at}"), &bind.listener.guid, prefix, context.diagnostics);
        }
        Ok(bind)
    };
    numbered.map(make).collect()
}

/// `stats socket` of `global`.
pub(crate) fn stats_socket(
    statement: &Statement,
    id: u32,
    context: &mut ResolveContext<'_>,
) -> Result<Bind, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.next().ok_or_else(|| {
        Diagnostic::alert("`stats socket` expects an address or a path")
            .at(statement.end())
            .haproxy("'stats socket' in section 'global' expects an address or a path to a UNIX socket.")
    })?;
    // On this line, a bare word is a path.
    let unix = Default::default();
    let addresses = if word.contains([':', '/', '@']) || word.parse::<std::net::Ipv4Addr>().is_ok() {
        args.warn_of_mptcp(word);
        let addresses = bind::parse_addresses(word, &args, &unix)?;
        quic::refuse(&addresses, word)?;
        addresses
    } else {
        vec![(BindAddress::Unix(base::raw::path_of(word.as_str()).into()), format!("unix@{word}"))]
    };
    let draft = bind::parse_params(&mut args, &format!("stats socket {word}"), "global")?;
    qmux::refuse(&draft)?;
    let owner = LineOwner { frontend: "GLOBAL", is_http: false, is_quic: false, certificates: &[] };
    let acceptor = tls::acceptor(&draft.tls, &format!("stats socket {word}"), &owner, statement, context)?;
    let (address, shown) =
        addresses.into_iter().next().ok_or_else(|| Diagnostic::alert("not an address").at(word.span()))?;
    let id = draft.id.unwrap_or(id);
    let mut bind = bind::make(&draft, address, shown, id, &unix, &context.placement, acceptor)
        .map_err(|message| Diagnostic::alert(message).at(statement.span))?;
    bind.place = lines::shown(context, statement.span).into();
    Ok(bind)
}
