//! The lines of `resolvers` sections (manual, section 5.3.2) and the server parameters for name resolution (section 5.2).
//! `resolve::resolvers` builds the sections.

use std::net::SocketAddr;
use std::time::Duration;

use base::address::{Accepts, Destination, Family, PortRule, Transport};
use base::network::Network;
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::resolvers::{AcceptFamily, Hold, NameServer, NameServerAddress};

use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword};
use crate::draft::resolvers::{ReadResolvers, ResolversDraft};
use crate::draft::row::{Outcome, Where, not_supported};
use crate::draft::server::ServerDraft;
use crate::draft::settings::GlobalSettings;
use crate::system::resolve_host;
use crate::tables::server_row::{ServerKeyword, row as server_row};
use crate::tables::tls::SERVER;

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadResolvers) -> Keyword {
    keyword::row(name, Where::RESOLVERS, signature, doc, Apply::Resolvers(read))
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("nameserver",            "<name> <address>:<port> [param*]", "name server",                                             nameserver),
    row("parse-resolv-conf",     "",                                 "adds the name servers from /etc/resolv.conf",             parse_resolv_conf),
    row("hold",                  "<status> <period>",                "time for which the last valid response is kept after a status", hold).lenient_words(),
    row("accepted_payload_size", "<nb>",                             "maximum size of a UDP response, in bytes",                payload_size),
    row("resolve_retries",       "<nb>",                             "number of attempts per query",                            |d, a| { d.retries = a.integer("a number of attempts", 0, i32::MAX as u32)?; a.finish() }).lenient_words().lenient_numbers(),
    row("timeout resolve",       "<time>",                           "time between two resolutions of a name",                  |d, a| time(&mut d.every, a)).lenient_words(),
    row("timeout retry",         "<time>",                           "time to wait for a response before a retry",              |d, a| time(&mut d.retry, a)).lenient_words(),
];

/// The parameters of server lines.
#[rustfmt::skip]
pub static SERVER_TABLE: &[ServerKeyword] = &[
    server_row("resolvers",      "<id>",                  "resolvers section for the server's name",                            |d, a| { d.resolvers = Some(a.value()?); Ok(()) }),
    server_row("resolve-prefer", "{ ipv4 | ipv6 }",       "preferred address family",                              resolve_prefer),
    server_row("resolve-net",    "<network>[,<network>…]", "networks of preferred addresses",                      resolve_net),
    server_row("resolve-opts",   "<option>,<option>,…",   "resolution options: allow-dup-ip, prevent-dup-ip, ignore-weight", resolve_opts),
];

fn time(value: &mut Duration, args: &mut Args<'_, '_>) -> Outcome {
    let time = args.duration(Milliseconds)?;
    if time.is_zero() {
        return Err(args
            .wrong("a time of 0 would query without a pause")
            .haproxy(format!("'{}' : unexpected value 0, at least 1ms is needed.", args.keyword())));
    }
    *value = time;
    args.finish()
}

fn nameserver<'a>(draft: &mut ResolversDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let usage = "<name> and <addr>[:<port>]";
    let name = args.required(usage)?;
    if let Some((at, wrong)) =
        name.char_indices().find(|(_, character)| !crate::draft::is_name_character(*character))
    {
        return Err(Diagnostic::alert(format!(
            "character `{wrong}` is not allowed in the name of a name server"
        ))
        .at(name.part(at, at + wrong.len_utf8()))
        .haproxy(format!("character '{wrong}' is not permitted in server name '{name}'.")));
    }
    if draft.nameservers.iter().any(|(other, _)| **other == **name) {
        return Err(args
            .wrong(format!("this section already has a name server named `{name}`"))
            .haproxy(format!("server '{name}' already exists in this resolvers section.")));
    }
    let word = args.required(usage)?;
    args.warn_of_mptcp(word);
    let address = args.address(word, Accepts { port: PortRule::Required, range: false, offset: false })?;
    let unsupported = || not_supported(&format!("nameserver … {word}")).at(word.span());
    let (address, stream) = match (&address.place, address.transport) {
        (_, Transport::Quic) => return Err(unsupported()),
        (Destination::Ip { host, ports }, transport) => {
            let ip = resolve_host(host).map_err(|error| {
                args.wrong(format!("cannot resolve the address of the name server `{word}`: {error}"))
                    .haproxy(format!("'nameserver {name}' : could not resolve address '{word}'."))
            })?;
            let port = ports.iter().next().filter(|port| *port > 0).unwrap_or(53);
            (
                NameServerAddress::Ip((ip, port).into()),
                matches!(transport, Transport::Stream | Transport::Mptcp),
            )
        }
        // A name server could not reply to a datagram from such a socket.
        (Destination::Unix(path), Transport::Default | Transport::Stream) => {
            (NameServerAddress::Unix(base::raw::path_of(path).into()), true)
        }
        _ => return Err(unsupported()),
    };
    let mut server = ServerDraft::default();
    while let Some(parameter) = args.next() {
        let row = SERVER.iter().find(|row| parameter == row.name);
        match row {
            Some(row) if stream && !matches!(row.name, "sni" | "check-sni" | "check-ssl" | "check-alpn") => {
                args.parameter = Some(row.name);
                (row.apply)(&mut server, args)?;
                args.parameter = None;
            }
            Some(_) if !stream => {
                return Err(args
                    .wrong(format!("`{parameter}` requires a name server over TCP"))
                    .help(format!("`tcp@{word}`")));
            }
            Some(row) if row.name == "sni" => {
                return Err(args
                    .wrong("`sni` of a name server is not supported yet: no SNI is sent")
                    .help("use `verifyhost <name>` to set the name that its certificate must have")
                    .haproxy(format!("'nameserver {name}' : 'sni' is not supported yet.")));
            }
            _ if crate::surface::is_server_keyword(parameter) => {
                return Err(not_supported(&format!("nameserver … {parameter}")).at(parameter.span()));
            }
            _ => {
                return Err(args
                    .wrong(format!("unknown parameter `{parameter}` for `nameserver`"))
                    .haproxy(format!("'nameserver {name}' : unknown keyword '{parameter}'.")));
            }
        }
    }
    if server.tls.enabled {
        draft.secure.push((draft.nameservers.len(), (*server.tls).clone(), args.statement));
    }
    draft.nameservers.push((name.as_str().into(), NameServer { address, stream, secure: None }));
    Ok(())
}

fn parse_resolv_conf<'a>(draft: &mut ResolversDraft<'_>, args: &mut Args<'a, '_>) -> Outcome {
    args.finish_softly();
    let path = "/etc/resolv.conf";
    let text = base::file::read_to_string(path).map_err(|error| {
        Diagnostic::alert(format!("cannot read `{path}`: {error}"))
            .at(args.statement.keyword_span())
            .haproxy(format!("failed to open {path}."))
    })?;
    add_system_servers(draft, &text);
    Ok(())
}

/// Adds the name servers of a `resolv.conf`, named by their addresses.
pub(crate) fn add_system_servers(draft: &mut ResolversDraft<'_>, text: &str) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some("nameserver"), Some(word)) = (words.next(), words.next()) else { continue };
        let Ok(ip) = word.parse::<std::net::IpAddr>() else { continue };
        if draft.nameservers.iter().all(|(name, _)| **name != *word) {
            let address = NameServerAddress::Ip(SocketAddr::new(ip, 53));
            draft.nameservers.push((word.into(), NameServer { address, stream: false, secure: None }));
        }
    }
}

fn hold<'a>(draft: &mut ResolversDraft<'_>, args: &mut Args<'a, '_>) -> Outcome {
    type Field = fn(&mut Hold) -> &mut Duration;
    const STATES: &[(&str, Field)] = &[
        ("nx", |hold| &mut hold.nx),
        ("other", |hold| &mut hold.other),
        ("refused", |hold| &mut hold.refused),
        ("timeout", |hold| &mut hold.timeout),
        ("valid", |hold| &mut hold.valid),
        ("obsolete", |hold| &mut hold.obsolete),
    ];
    let field = args.one_of(STATES)?;
    *field(&mut draft.hold) = args.duration(Milliseconds)?;
    args.finish()
}

fn payload_size<'a>(draft: &mut ResolversDraft<'_>, args: &mut Args<'a, '_>) -> Outcome {
    draft.payload_size = args.integer("a number of bytes", 12, u16::MAX)?;
    args.finish()
}

fn resolve_prefer<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.resolve.prefer = Some(args.choice(word, &[("ipv4", Family::V4), ("ipv6", Family::V6)])?);
    Ok(())
}

fn resolve_net<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.resolve.networks.clear();
    for part in word.split(',') {
        let network = Network::parse(part).map_err(|error| {
            args.wrong(format!("`resolve-net`: `{part}` is {error}"))
                .label("use networks such as `10.0.0.0/8,192.168.0.0/16`")
                .haproxy(format!("'resolve-net' invalid network '{part}'."))
        })?;
        draft.resolve.networks.push(network);
    }
    Ok(())
}

fn resolve_opts<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    for option in word.split(',') {
        match option {
            "allow-dup-ip" => draft.resolve.duplicates = true,
            "prevent-dup-ip" => draft.resolve.duplicates = false,
            "ignore-weight" => draft.resolve.ignore_weight = true,
            other => {
                let known = ["allow-dup-ip", "prevent-dup-ip", "ignore-weight"];
                return Err(args
                    .wrong(format!("unknown option `{other}` for `resolve-opts`"))
                    .did_you_mean(diag::suggest(other, known))
                    .help("one of: allow-dup-ip, prevent-dup-ip, ignore-weight")
                    .haproxy(format!(
                        "'resolve-opts' : unknown resolve-opts option '{other}', supported methods are 'allow-dup-ip', \
                         'ignore-weight', and 'prevent-dup-ip'."
                    )));
            }
        }
    }
    Ok(())
}

/// `dns-accept-family` of `global`.
pub(crate) fn dns_accept_family<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a list of 'ipv4', 'ipv6' and 'auto'")?;
    let (mut v4, mut v6, mut auto) = (false, false, false);
    for family in word.split(',') {
        match family {
            "ipv4" => v4 = true,
            "ipv6" => v6 = true,
            "auto" => auto = true,
            other => {
                return Err(args
                    .wrong(format!("unknown address family `{other}` for `dns-accept-family`"))
                    .did_you_mean(diag::suggest(other, ["ipv4", "ipv6", "auto"]))
                    .haproxy(format!(
                        "'dns-accept-family' expects a comma-delimited list of 'ipv4', 'ipv6' and 'auto' (got '{other}')."
                    )));
            }
        }
    }
    global.plan.dns_accept_family = match (auto, v4, v6) {
        (true, ..) => AcceptFamily::Auto,
        (_, true, true) => AcceptFamily::Both,
        (_, true, false) => AcceptFamily::V4,
        _ => AcceptFamily::V6,
    };
    args.finish()
}
