//! Addresses on server lines (manual, section 5.2): the server's address and the address to connect from (`source`).
//!
//! Host names are still names at this stage, except in `source`; [`crate::resolve`] and the `resolvers` sections look them up.

use std::net::IpAddr;

use base::address::{Accepts, Destination, Host, PortRule, Ports, Transport};
use diag::Diagnostic;
use plan::server::{SourceAddress, UseSource};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::row::{Outcome, not_supported};
use crate::system::resolve_host;

/// Parses the words after `source`, up to the end of the line or the first word that is not part of it.
pub(crate) fn parse_source(args: &mut Args<'_, '_>) -> Result<SourceAddress, Diagnostic> {
    let word = args.required("<addr>[:<port>[-<port>]]")?;
    let (address, ports) = source_address(word, args)?;
    let mut source = SourceAddress { address, ports, interface: None, transparent: UseSource::No };
    loop {
        if args.take("usesrc") {
            source.transparent = use_source(args)?;
        } else if args.take("interface") {
            source.interface = Some(args.required("an interface name")?.as_str().into());
        } else {
            return Ok(source);
        }
    }
}

type AddressAndPorts = (Option<IpAddr>, Option<(u16, u16)>);

fn source_address(word: &Word, args: &Args<'_, '_>) -> Result<AddressAndPorts, Diagnostic> {
    let address = args.address(word, Accepts { port: PortRule::Optional, range: true, offset: false })?;
    let Destination::Ip { host, ports } = &address.place else {
        return Err(args.wrong(format!("invalid IP address `{word}`")));
    };
    let ip = resolve_host(host).map_err(|error| args.wrong(format!("cannot resolve `{word}`: {error}")))?;
    let ports = match *ports {
        Ports::One(port) if port > 0 => Some((port, port)),
        Ports::Range(first, last) => Some((first, last)),
        _ => None,
    };
    Ok((Some(ip).filter(|ip| !ip.is_unspecified()), ports))
}

fn use_source(args: &mut Args<'_, '_>) -> Result<UseSource, Diagnostic> {
    let word = args.required("<addr>[:<port>], 'client', 'clientip', or 'hdr_ip(name,#)'")?;
    if let Some(inside) = word.strip_prefix("hdr_ip(").and_then(|rest| rest.strip_suffix(')')) {
        let (name, occurrence) = inside.split_once(',').unwrap_or((inside, "-1"));
        let occurrence = occurrence
            .parse()
            .map_err(|_| args.wrong(format!("invalid occurrence number `{occurrence}`")))?;
        return Ok(UseSource::Header(name.into(), occurrence));
    }
    match word.as_str() {
        "client" => Ok(UseSource::Client),
        "clientip" => Ok(UseSource::ClientIp),
        _ => {
            let (ip, ports) = source_address(word, args)?;
            let ip = ip.ok_or_else(|| args.wrong("`usesrc` expects an address"))?;
            Ok(UseSource::Fixed((ip, ports.map_or(0, |(first, _)| first)).into()))
        }
    }
}

/// The address of a server as written: its host, and the port or port offset.
pub(crate) struct ServerPlace {
    /// Host or path.
    pub(crate) place: Destination,
    /// `+8`, or 0 when no port was written.
    pub(crate) port_offset: Option<i32>,
    /// `udp@`, `uxdg@`: for log servers only.
    pub(crate) is_datagram: bool,
    /// `quic4@`, `quic6@`.
    pub(crate) is_quic: bool,
}

/// Parses the address of a server line.
pub(crate) fn parse_place(word: &Word, args: &Args<'_, '_>) -> Result<ServerPlace, Diagnostic> {
    let address = args.address(word, Accepts { port: PortRule::Optional, range: false, offset: true })?;
    let is_quic = address.transport == Transport::Quic;
    if is_quic && !matches!(address.place, Destination::Ip { .. }) {
        return Err(Diagnostic::alert(format!("QUIC needs an IP address, not `{word}`"))
            .at(word.span())
            .haproxy(format!("unusable address '{word}': QUIC needs an IP address.")));
    }
    let port_offset = match &address.place {
        // Without a port, or with port 0, the client's destination port is used.
        Destination::Ip { ports: Ports::None | Ports::One(0), .. } => Some(0),
        Destination::Ip { ports: Ports::Offset(offset), .. } => Some(*offset),
        Destination::Fd(_) | Destination::SockPair(_) => {
            return Err(not_supported(&format!("server … {word}")).at(word.span()));
        }
        _ => None,
    };
    let is_datagram = address.transport == Transport::Datagram;
    Ok(ServerPlace { place: address.place, port_offset, is_datagram, is_quic })
}

/// Refuses `udp@` and `uxdg@`, except in `mode log`.
pub(crate) fn refuse_datagrams(place: &ServerPlace, word: &Word) -> Outcome {
    if !place.is_datagram {
        return Ok(());
    }
    Err(Diagnostic::alert(format!("`{word}` is a datagram address, which only log servers support"))
        .at(word.span())
        .help("use it in a backend with `mode log`")
        .haproxy(format!("unusable address '{word}': datagram servers need 'mode log'.")))
}

/// The host, if it is a name that must be resolved.
pub(crate) fn host_name(place: &Destination) -> Option<&Host> {
    match place {
        Destination::Ip { host: host @ Host::Name { .. }, .. } => Some(host),
        _ => None,
    }
}
