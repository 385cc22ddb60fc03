//! `udp-lb` sections: their sockets and settings.

use std::sync::Arc;

use base::address::{Accepts, Destination as AddressPlace, PortRule, Transport};
use diag::{Diagnostic, Span};
use plan::bind::{Bind, BindAddress};
use plan::udp::{DEFAULT_IDLE, DEFAULT_PAYLOAD, UdpLb};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::settings::ProxySettings;
use crate::draft::{SectionKind, Statement};
use crate::resolve::{PendingProxy, ResolveContext, carry_over, lines};
use crate::system::resolve_host;
use crate::tables::bind;

/// The parameters that have a meaning for datagrams.
const PARAMETERS: &[&str] = &[
    "guid-prefix",
    "id",
    "interface",
    "maxconn",
    "name",
    "namespace",
    "nice",
    "shards",
    "thread",
    "transparent",
    "v4v6",
    "v6only",
];

/// The settings of a `udp-lb` section, or `None` for any other proxy.
pub(crate) fn settings(settings: &ProxySettings<'_>) -> Option<Box<UdpLb>> {
    if settings.kind != SectionKind::UdpLb {
        return None;
    }
    let (own, timeouts) = (&settings.udp, &settings.timeouts);
    let idle = |first, second| own.session.or(first).or(second).unwrap_or(DEFAULT_IDLE);
    Some(Box::new(UdpLb {
        after_request: idle(timeouts.server, timeouts.client),
        after_response: idle(timeouts.client, timeouts.server),
        requests: own.requests,
        responses: own.responses,
        quic_id: own.quic_id,
        payload_size: own.payload_size.unwrap_or(DEFAULT_PAYLOAD),
    }))
}

/// The sockets of a `udp-lb` section.
pub(crate) fn binds(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Vec<Bind> {
    let former = proxy.state.listeners.load_full();
    let mut binds: Vec<Bind> = Vec::new();
    for statement in &proxy.settings.binds {
        match line(statement, binds.len() as u32 + 1, context) {
            Ok(mut made) => binds.append(&mut made),
            Err(error) => context.diagnostics.push(error),
        }
    }
    if proxy.settings.binds.is_empty() {
        context.diagnostics.push(
            Diagnostic::warning(format!("udp-lb `{}` has no address to listen on", proxy.settings.name))
                .at(proxy.section.name.span())
                .help("add a `dgram-bind` line"),
        );
    }
    if proxy.settings.options.socket_stats {
        binds.iter().for_each(|bind| bind.listener.count());
    }
    binds.iter_mut().for_each(|bind| carry_over::listener(&mut bind.listener, &former));
    proxy.state.listeners.store(Arc::new(binds.iter().map(|bind| bind.listener.clone()).collect()));
    binds
}

fn line(
    statement: &Statement,
    first_id: u32,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<Bind>, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.required("an address and a port")?;
    let addresses = addresses(word, &args)?;
    let title = format!("dgram-bind {word}");
    if let Some(wrong) = statement.arguments()[1..]
        .iter()
        .find(|word| bind::rows().any(|row| **word == *row.name) && !PARAMETERS.contains(&word.as_str()))
    {
        return Err(Diagnostic::alert(format!("`{wrong}` has no meaning for datagrams"))
            .at(wrong.span())
            .help(format!("`dgram-bind` takes: {}", PARAMETERS.join(", "))));
    }
    let draft = bind::parse_params(&mut args, &title, "udp-lb")?;
    if draft.id.is_some() && addresses.len() > 1 {
        return Err(Diagnostic::alert("`id` cannot be set on a line with several sockets").at(word.span()));
    }
    let place = lines::shown(context, statement.span);
    let mut made = Vec::with_capacity(addresses.len());
    for (at, address) in addresses.into_iter().enumerate() {
        let id = draft.id.unwrap_or(first_id + at as u32);
        let shown = match &address {
            BindAddress::Udp(address) => address.to_string(),
            other => other.to_string(),
        };
        let mut bind = bind::make(&draft, address, shown, id, &Default::default(), &context.placement, None)
            .map_err(|message| Diagnostic::alert(message).at(statement.span))?;
        bind.place = place.as_str().into();
        if let Some(prefix) = draft.guid_prefix {
            context.guids.name(format!("{prefix}-{at}"), &bind.listener.guid, prefix, context.diagnostics);
        }
        made.push(bind);
    }
    Ok(made)
}

/// Parameters of servers that have no meaning for datagrams, and their replacement.
const OF_STREAMS: &[(&str, &str)] = &[
    ("ssl", "remove it: datagrams are forwarded as they are, encrypted or not"),
    ("send-proxy", "use `send-proxy-v2`"),
    ("send-proxy-v2-ssl", "use `send-proxy-v2`"),
    ("send-proxy-v2-ssl-cn", "use `send-proxy-v2`"),
    ("proxy-v2-options", "remove it: the header only has the addresses"),
    ("set-proxy-v2-tlv-fmt", "remove it: the header only has the addresses"),
    ("socks4", "remove it: SOCKS4 has no datagrams"),
    ("cookie", "use `balance source` for clients that should keep their server"),
    ("redir", "remove it: there is no request that could be redirected"),
    ("proto", "remove it: datagrams are forwarded without knowledge of their protocol"),
    ("maxqueue", "remove it: sessions do not wait for a server"),
    ("tfo", STREAM),
    ("tcp-md5sig", STREAM),
    ("tcp-ut", STREAM),
    ("cc", STREAM),
    ("ws", STREAM),
    ("idle-ping", STREAM),
    ("pool-conn-name", STREAM),
    ("pool-low-conn", STREAM),
    ("pool-max-conn", STREAM),
    ("pool-purge-delay", STREAM),
    ("max-reuse", STREAM),
    ("log-proto", STREAM),
];

const STREAM: &str = "remove it: it is a setting of connections";

/// Refuses parameters on the lines for servers of a `udp-lb` section, or of the backend that it names, if they have no meaning for
/// datagrams.
pub(crate) fn check_servers(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    for line in &proxy.section.statements {
        let skipped = match line.keyword.name {
            "server" => 2,
            "server-template" => 3,
            "servers from" => 1,
            "default-server" => 0,
            _ => continue,
        };
        for word in line.arguments().iter().skip(skipped) {
            let Some((name, help)) = OF_STREAMS.iter().find(|(name, _)| word == name) else { continue };
            context.diagnostics.push(
                Diagnostic::alert(format!("`{name}` of a server has no meaning for datagrams"))
                    .at(word.span())
                    .help(*help),
            );
        }
    }
}

/// Parses a comma-separated list of addresses into one entry per port.
fn addresses(word: &Word, args: &Args<'_, '_>) -> Result<Vec<BindAddress>, Diagnostic> {
    let mut all = Vec::new();
    let mut offset = 0;
    for part in word.split(',') {
        one(word, offset, part, args, &mut all)?;
        offset += part.len() + 1;
    }
    Ok(all)
}

/// Parses one address of a `dgram-bind` line, which may have a range of ports.
pub(crate) fn one(
    word: &Word,
    offset: usize,
    part: &str,
    args: &Args<'_, '_>,
    all: &mut Vec<BindAddress>,
) -> Result<(), Diagnostic> {
    let span: Span = word.part(offset, offset + part.len());
    let accepts = Accepts { port: PortRule::Required, range: true, offset: false };
    let address = args.address_in(word, offset, part, accepts)?;
    let AddressPlace::Ip { host, ports } = &address.place else {
        return Err(Diagnostic::alert("`dgram-bind` needs an IP address and a port")
            .at(span)
            .haproxy(format!("'dgram-bind' : invalid address '{part}': only IPv4 and IPv6 are accepted.")));
    };
    if !matches!(address.transport, Transport::Default | Transport::Datagram) {
        return Err(Diagnostic::alert("`dgram-bind` needs a datagram socket")
            .at(span)
            .help("use `bind` in a `frontend` for stream sockets and QUIC")
            .haproxy(format!("'dgram-bind' : invalid address '{part}': not a datagram address.")));
    }
    let ip = resolve_host(host)
        .map_err(|error| Diagnostic::alert(format!("cannot resolve `{part}`: {error}")).at(span))?;
    all.extend(ports.iter().map(|port| BindAddress::Udp(std::net::SocketAddr::new(ip, port))));
    Ok(())
}
