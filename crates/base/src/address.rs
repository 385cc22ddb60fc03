//! Addresses in `bind`, `server`, `log`, `source`, `nameserver` and `peer` (manual, section 2.9).
//!
//! This module only parses: it neither resolves names nor creates sockets. The same text can be valid for one keyword and invalid
//! for another, so [`Address::check`] checks the port against what the keyword [`Accepts`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address: the destination and the socket type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The transport required by the prefix, if any (sections 2.9.2 and 2.9.3).
    pub transport: Transport,
    /// The destination.
    pub place: Destination,
}

/// The socket type required by an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// No transport in the address: the keyword decides (stream for `bind` and `server`, datagram for `log`).
    Default,
    /// `tcp@`, `uxst@`, `stream+...`.
    Stream,
    /// `udp@`, `uxdg@`, `dgram+...`.
    Datagram,
    /// `quic4@`, `quic6@`, `quic+...`.
    Quic,
    /// `mptcp@`, `mptcp4@`, `mptcp6@`.
    Mptcp,
}

/// The destination of an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An IP address or host name, with ports.
    Ip {
        /// The address or name.
        host: Host,
        /// The port, range or offset.
        ports: Ports,
    },
    /// A UNIX socket: `/path` or `unix@path`.
    Unix(String),
    /// An abstract socket padded with NULs to the full length: `abns@name`.
    Abns(String),
    /// An abstract socket without the padding: `abnsz@name`.
    Abnsz(String),
    /// An inherited file descriptor: `fd@3`.
    Fd(i32),
    /// One end of a socket pair: `sockpair@3`.
    SockPair(i32),
    /// A reverse HTTP connection of the named backend and server: `rhttp@backend/server` (or
    /// `rhttp@` for a server).
    ReverseHttp(String),
}

/// An IP address, or a name still to be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A literal address; `*` and the empty host are `0.0.0.0`, or `::` after an IPv6 prefix.
    Ip(IpAddr),
    /// A name, and the family required by its prefix.
    Name {
        /// The name as written.
        name: String,
        /// The family, if a prefix such as `ipv4@` specifies it.
        family: Option<Family>,
    },
}

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The port part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ports {
    /// No port given.
    None,
    /// One port.
    One(u16),
    /// An inclusive range, with the first port not above the last.
    Range(u16, u16),
    /// `+8` or `-8`: relative to the port the client connected to.
    Offset(i32),
}

/// The forms accepted by a statement.
#[derive(Debug, Clone, Copy)]
pub struct Accepts {
    /// Whether a port is optional, required or forbidden.
    pub port: PortRule,
    /// Whether a port range is accepted.
    pub range: bool,
    /// Whether `+n` and `-n` are accepted.
    pub offset: bool,
}

/// Whether a port is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortRule {
    /// No port may be written.
    Forbidden,
    /// A port is optional.
    Optional,
    /// A port is required.
    Required,
}

/// An error in an address; `at` is a byte offset in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError {
    /// The kind of error.
    pub kind: AddressErrorKind,
    /// The byte offset of the first invalid byte.
    pub at: usize,
}

/// The kinds of invalid addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressErrorKind {
    /// The address is empty.
    Empty,
    /// An unknown prefix such as `foo@`.
    UnknownPrefix(String),
    /// The host does not match the family of its prefix, or is malformed.
    Host(String),
    /// The port is not a number up to 65535.
    Port(String),
    /// Port 0 although a port is required.
    Zero,
    /// The range ends before it begins.
    Range(u16, u16),
    /// The file descriptor is not a number.
    Descriptor(String),
    /// The path of a UNIX socket is empty or longer than the system allows.
    Path(String),
    /// A required port is missing.
    MissingPort,
    /// A port, although none is allowed.
    UnwantedPort,
    /// A port range, although only a single port is allowed.
    UnwantedRange,
    /// An offset, although only a port is allowed.
    UnwantedOffset,
}

impl fmt::Display for AddressErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("missing address"),
            Self::UnknownPrefix(prefix) => write!(f, "unknown address prefix '{prefix}@'"),
            Self::Host(host) => write!(f, "invalid address: '{host}'"),
            Self::Port(port) => write!(f, "invalid port number '{port}'"),
            Self::Zero => f.write_str("invalid port '0'"),
            Self::Range(first, last) => write!(f, "invalid port range '{first}-{last}'"),
            Self::Descriptor(text) => write!(f, "file descriptor '{text}' is not a number"),
            Self::Path(path) => {
                write!(f, "socket path '{path}' is empty or longer than {UNIX_PATH_MAX} characters")
            }
            Self::MissingPort => f.write_str("missing port number"),
            Self::UnwantedPort => f.write_str("a port number is not permitted here"),
            Self::UnwantedRange => f.write_str("a port range is not permitted here"),
            Self::UnwantedOffset => f.write_str("a port offset is not permitted here"),
        }
    }
}

/// Longest path of a UNIX socket on Linux, without its final NUL.
pub const UNIX_PATH_MAX: usize = 107;

/// The kind of address after a prefix.
#[derive(Clone, Copy)]
enum AddressPrefix {
    Ip(Option<Family>),
    Unix,
    Abns,
    Abnsz,
    Fd,
    SockPair,
    ReverseHttp,
}

/// Address families, which `stream+`, `dgram+` and `quic+` may precede.
const FAMILIES: &[(&str, AddressPrefix)] = &[
    ("ip", AddressPrefix::Ip(None)),
    ("ipv4", AddressPrefix::Ip(Some(Family::V4))),
    ("ipv6", AddressPrefix::Ip(Some(Family::V6))),
    ("unix", AddressPrefix::Unix),
    ("abns", AddressPrefix::Abns),
    ("abnsz", AddressPrefix::Abnsz),
    ("fd", AddressPrefix::Fd),
    ("sockpair", AddressPrefix::SockPair),
    ("rhttp", AddressPrefix::ReverseHttp),
];

/// Transports that may precede a family or an address.
const TRANSPORTS: &[(&str, Transport)] =
    &[("stream+", Transport::Stream), ("dgram+", Transport::Datagram), ("quic+", Transport::Quic)];

/// Aliases for a combination of family and transport.
const PROTOCOLS: &[(&str, Transport, AddressPrefix)] = &[
    ("tcp", Transport::Stream, AddressPrefix::Ip(None)),
    ("tcp4", Transport::Stream, AddressPrefix::Ip(Some(Family::V4))),
    ("tcp6", Transport::Stream, AddressPrefix::Ip(Some(Family::V6))),
    ("udp", Transport::Datagram, AddressPrefix::Ip(None)),
    ("udp4", Transport::Datagram, AddressPrefix::Ip(Some(Family::V4))),
    ("udp6", Transport::Datagram, AddressPrefix::Ip(Some(Family::V6))),
    ("quic4", Transport::Quic, AddressPrefix::Ip(Some(Family::V4))),
    ("quic6", Transport::Quic, AddressPrefix::Ip(Some(Family::V6))),
    ("mptcp", Transport::Mptcp, AddressPrefix::Ip(None)),
    ("mptcp4", Transport::Mptcp, AddressPrefix::Ip(Some(Family::V4))),
    ("mptcp6", Transport::Mptcp, AddressPrefix::Ip(Some(Family::V6))),
    ("uxst", Transport::Stream, AddressPrefix::Unix),
    ("uxdg", Transport::Datagram, AddressPrefix::Unix),
];

impl Address {
    /// Parses an address with any port part.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(error(AddressErrorKind::Empty, 0));
        }
        let (transport, kind, at) = split_prefix(text)?;
        let rest = &text[at..];
        let place = match kind {
            None if rest.starts_with('/') => unix_path(rest, at)?,
            None => parse_ip(rest, at, None)?,
            Some(AddressPrefix::Ip(family)) => parse_ip(rest, at, family)?,
            Some(AddressPrefix::Unix) => unix_path(rest, at)?,
            Some(AddressPrefix::Abns) => Destination::Abns(socket_name(rest, at)?),
            Some(AddressPrefix::Abnsz) => Destination::Abnsz(socket_name(rest, at)?),
            Some(AddressPrefix::Fd) => Destination::Fd(descriptor(rest, at)?),
            Some(AddressPrefix::SockPair) => Destination::SockPair(descriptor(rest, at)?),
            Some(AddressPrefix::ReverseHttp) => Destination::ReverseHttp(rest.to_owned()),
        };
        Ok(Self { transport, place })
    }

    /// Checks the port part against the forms that the keyword accepts. The offset of an error is 0, because the error concerns the
    /// whole address.
    pub fn check(&self, accepts: Accepts) -> Result<(), AddressError> {
        let Destination::Ip { ports, .. } = &self.place else { return Ok(()) };
        let kind = match (ports, accepts.port) {
            (Ports::None, PortRule::Required) => AddressErrorKind::MissingPort,
            (Ports::One(0) | Ports::Range(0, _), PortRule::Required) => AddressErrorKind::Zero,
            (Ports::None, _) => return Ok(()),
            (_, PortRule::Forbidden) => AddressErrorKind::UnwantedPort,
            (Ports::Range(..), _) if !accepts.range => AddressErrorKind::UnwantedRange,
            (Ports::Offset(_), _) if !accepts.offset => AddressErrorKind::UnwantedOffset,
            _ => return Ok(()),
        };
        Err(error(kind, 0))
    }

    /// The socket address, if the host is a literal and there is at most one port (0 without one).
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match &self.place {
            Destination::Ip { host: Host::Ip(ip), ports: Ports::One(port) } => {
                Some(SocketAddr::new(*ip, *port))
            }
            Destination::Ip { host: Host::Ip(ip), ports: Ports::None } => Some(SocketAddr::new(*ip, 0)),
            _ => None,
        }
    }
}

impl Ports {
    /// Iterates over all ports of the address. Returns none if the port is missing or an offset.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let (first, last) = match self {
            Self::One(port) => (u32::from(port), u32::from(port)),
            Self::Range(first, last) => (u32::from(first), u32::from(last)),
            Self::None | Self::Offset(_) => (1, 0),
        };
        (first..=last).map(|port| port as u16)
    }
}

fn split_prefix(text: &str) -> Result<(Transport, Option<AddressPrefix>, usize), AddressError> {
    // `stream+`, `dgram+` and `quic+` may also precede an address without a family.
    for (prefix, transport) in TRANSPORTS {
        if let Some(rest) = text.strip_prefix(prefix)
            && !rest.contains('@')
        {
            return Ok((*transport, None, prefix.len()));
        }
    }
    let Some(at_sign) = text.find('@').filter(|_| !text.starts_with('/')) else {
        // Without a family prefix, any family is possible.
        let types =
            [("stream+", Transport::Stream), ("dgram+", Transport::Datagram), ("quic+", Transport::Quic)];
        let named = types.into_iter().find(|(prefix, _)| text.starts_with(prefix));
        return Ok(named.map_or((Transport::Default, None, 0), |(prefix, kind)| (kind, None, prefix.len())));
    };
    let prefix = &text[..at_sign];
    let unknown = || error(AddressErrorKind::UnknownPrefix(prefix.to_owned()), 0);
    if let Some((_, transport, kind)) = PROTOCOLS.iter().find(|row| row.0 == prefix) {
        return Ok((*transport, Some(*kind), at_sign + 1));
    }
    let named =
        TRANSPORTS.iter().find_map(|(name, transport)| Some((*transport, prefix.strip_prefix(name)?)));
    let (transport, family) = named.unwrap_or((Transport::Default, prefix));
    let (_, kind) = FAMILIES.iter().find(|row| row.0 == family).ok_or_else(unknown)?;
    Ok((transport, Some(*kind), at_sign + 1))
}

fn parse_ip(text: &str, at: usize, family: Option<Family>) -> Result<Destination, AddressError> {
    // The last colon separates host and port unless it is inside brackets, so `:::80` is `::` and 80.
    let split = text.rfind([':', ']']).filter(|position| text.as_bytes()[*position] == b':');
    if let Some(position) = split {
        let host = parse_host(&text[..position], at, family);
        let ports = parse_ports(&text[position + 1..], at + position + 1);
        if let (Ok(host), Ok(ports)) = (&host, &ports)
            && !matches!(host, Host::Name { name, .. } if name.contains(':'))
        {
            return Ok(Destination::Ip { host: host.clone(), ports: *ports });
        }
        // An IPv6 address without a port, such as `fe80::1:a`.
        if family != Some(Family::V4)
            && let Ok(v6) = text.parse::<Ipv6Addr>()
        {
            return Ok(Destination::Ip { host: Host::Ip(v6.into()), ports: Ports::None });
        }
        return Ok(Destination::Ip { host: host?, ports: ports? });
    }
    Ok(Destination::Ip { host: parse_host(text, at, family)?, ports: Ports::None })
}

fn parse_host(text: &str, at: usize, family: Option<Family>) -> Result<Host, AddressError> {
    let invalid = || error(AddressErrorKind::Host(text.to_owned()), at);
    if text.is_empty() || text == "*" {
        return Ok(Host::Ip(match family {
            Some(Family::V6) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }));
    }
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.strip_suffix(']').ok_or_else(invalid)?;
        let v6: Ipv6Addr = inside.parse().map_err(|_| invalid())?;
        return if family == Some(Family::V4) { Err(invalid()) } else { Ok(Host::Ip(v6.into())) };
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        let wanted = match family {
            Some(Family::V4) => ip.is_ipv4(),
            Some(Family::V6) => ip.is_ipv6(),
            None => true,
        };
        return if wanted { Ok(Host::Ip(ip)) } else { Err(invalid()) };
    }
    if text.bytes().any(|byte| byte == b':' || byte == b'/' || byte.is_ascii_whitespace() || byte == b']') {
        return Err(invalid());
    }
    Ok(Host::Name { name: text.to_owned(), family })
}

fn parse_ports(text: &str, at: usize) -> Result<Ports, AddressError> {
    let port = |digits: &str, offset: usize| {
        let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        all_digits
            .then(|| digits.parse::<u16>().ok())
            .flatten()
            .ok_or_else(|| error(AddressErrorKind::Port(digits.to_owned()), at + offset))
    };
    match text.as_bytes() {
        [] => Ok(Ports::None),
        [b'+', ..] => port(&text[1..], 1).map(|offset| Ports::Offset(i32::from(offset))),
        [b'-', ..] => port(&text[1..], 1).map(|offset| Ports::Offset(-i32::from(offset))),
        _ => match text.split_once('-') {
            None => port(text, 0).map(Ports::One),
            Some((first, last)) => {
                let (low, high) = (port(first, 0)?, port(last, first.len() + 1)?);
                if low > high || low == 0 {
                    return Err(error(AddressErrorKind::Range(low, high), at));
                }
                Ok(if low == high { Ports::One(low) } else { Ports::Range(low, high) })
            }
        },
    }
}

fn unix_path(text: &str, at: usize) -> Result<Destination, AddressError> {
    socket_name(text, at).map(Destination::Unix)
}

fn socket_name(text: &str, at: usize) -> Result<String, AddressError> {
    if text.is_empty() || text.len() > UNIX_PATH_MAX {
        return Err(error(AddressErrorKind::Path(text.to_owned()), at));
    }
    Ok(text.to_owned())
}

fn descriptor(text: &str, at: usize) -> Result<i32, AddressError> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| error(AddressErrorKind::Descriptor(text.to_owned()), at))
}

fn error(kind: AddressErrorKind, at: usize) -> AddressError {
    AddressError { kind, at }
}

impl fmt::Display for Address {
    /// Formats the address so that it parses back to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.transport {
            Transport::Default => "",
            Transport::Stream => "stream+",
            Transport::Datagram => "dgram+",
            Transport::Quic => "quic+",
            Transport::Mptcp => "mptcp",
        };
        let (host, ports) = match &self.place {
            Destination::Unix(path) if self.transport == Transport::Default && path.starts_with('/') => {
                return f.write_str(path);
            }
            Destination::Unix(path) => return write!(f, "{prefix}unix@{path}"),
            Destination::Abns(name) => return write!(f, "{prefix}abns@{name}"),
            Destination::Abnsz(name) => return write!(f, "{prefix}abnsz@{name}"),
            Destination::Fd(number) => return write!(f, "{prefix}fd@{number}"),
            Destination::SockPair(number) => return write!(f, "{prefix}sockpair@{number}"),
            Destination::ReverseHttp(name) => return write!(f, "{prefix}rhttp@{name}"),
            Destination::Ip { host, ports } => (host, ports),
        };
        let family = match host {
            Host::Name { family: Some(Family::V4), .. } => "v4",
            Host::Name { family: Some(Family::V6), .. } => "v6",
            _ => "",
        };
        match self.transport {
            Transport::Mptcp => write!(f, "mptcp{}@", family.trim_start_matches('v'))?,
            Transport::Default if family.is_empty() => {}
            _ => write!(f, "{prefix}ip{family}@")?,
        }
        match (host, ports) {
            (Host::Ip(IpAddr::V6(ip)), Ports::None) => write!(f, "[{ip}]")?,
            (Host::Ip(IpAddr::V6(ip)), _) => write!(f, "[{ip}]")?,
            (Host::Ip(ip), _) => write!(f, "{ip}")?,
            (Host::Name { name, .. }, _) => f.write_str(name)?,
        }
        match ports {
            Ports::None => Ok(()),
            Ports::One(port) => write!(f, ":{port}"),
            Ports::Range(first, last) => write!(f, ":{first}-{last}"),
            Ports::Offset(offset) => write!(f, ":{offset:+}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(host: &str, ports: Ports) -> Destination {
        Destination::Ip { host: Host::Ip(host.parse().unwrap()), ports }
    }

    fn name(host: &str, family: Option<Family>, ports: Ports) -> Destination {
        Destination::Ip { host: Host::Name { name: host.to_owned(), family }, ports }
    }

    #[test]
    fn every_form_of_section_2_9_is_parsed() {
        use Transport::*;
        let cases: Vec<(&str, Transport, Destination)> = vec![
            ("*:80", Default, ip("0.0.0.0", Ports::One(80))),
            (":80", Default, ip("0.0.0.0", Ports::One(80))),
            ("[::]:80", Default, ip("::", Ports::One(80))),
            (":::80", Default, ip("::", Ports::One(80))),
            ("::1", Default, ip("::1", Ports::None)),
            ("fe80::a:b", Default, ip("fe80::a:b", Ports::None)),
            ("2001:db8::1:8080", Default, ip("2001:db8::1", Ports::One(8080))),
            ("[2001:db8::1]", Default, ip("2001:db8::1", Ports::None)),
            ("10.0.0.1", Default, ip("10.0.0.1", Ports::None)),
            ("10.0.0.1:", Default, ip("10.0.0.1", Ports::None)),
            ("10.0.0.1:1-10", Default, ip("10.0.0.1", Ports::Range(1, 10))),
            ("10.0.0.1:+8", Default, ip("10.0.0.1", Ports::Offset(8))),
            ("10.0.0.1:-8", Default, ip("10.0.0.1", Ports::Offset(-8))),
            ("www.example.com:443", Default, name("www.example.com", None, Ports::One(443))),
            ("ipv4@www:443", Default, name("www", Some(Family::V4), Ports::One(443))),
            ("ipv6@:443", Default, ip("::", Ports::One(443))),
            ("ipv6@*:443", Default, ip("::", Ports::One(443))),
            ("ip@10.0.0.1:1", Default, ip("10.0.0.1", Ports::One(1))),
            ("tcp@10.0.0.1:1", Stream, ip("10.0.0.1", Ports::One(1))),
            ("tcp4@10.0.0.1:1", Stream, ip("10.0.0.1", Ports::One(1))),
            ("tcp6@[::1]:1", Stream, ip("::1", Ports::One(1))),
            ("udp@10.0.0.1:1", Datagram, ip("10.0.0.1", Ports::One(1))),
            ("quic4@:443", Quic, ip("0.0.0.0", Ports::One(443))),
            ("quic+ipv6@:443", Quic, ip("::", Ports::One(443))),
            ("mptcp@10.0.0.1:1", Mptcp, ip("10.0.0.1", Ports::One(1))),
            ("stream+ip@10.0.0.1:1", Stream, ip("10.0.0.1", Ports::One(1))),
            ("stream+10.0.0.1:1", Stream, ip("10.0.0.1", Ports::One(1))),
            ("dgram+[::1]:1", Datagram, ip("::1", Ports::One(1))),
            ("/run/a@b.sock", Default, Destination::Unix("/run/a@b.sock".into())),
            ("unix@relative", Default, Destination::Unix("relative".into())),
            ("uxdg@/run/log", Datagram, Destination::Unix("/run/log".into())),
            ("uxst@/run/log", Stream, Destination::Unix("/run/log".into())),
            ("abns@name", Default, Destination::Abns("name".into())),
            ("abnsz@name", Default, Destination::Abnsz("name".into())),
            ("fd@3", Default, Destination::Fd(3)),
            ("stream+fd@3", Stream, Destination::Fd(3)),
            ("dgram+fd@3", Datagram, Destination::Fd(3)),
            ("stream+10.0.0.1:1", Stream, ip("10.0.0.1", Ports::One(1))),
            ("sockpair@7", Default, Destination::SockPair(7)),
            ("rhttp@be/srv", Default, Destination::ReverseHttp("be/srv".into())),
        ];
        for (text, transport, place) in cases {
            assert_eq!(Address::parse(text), Ok(Address { transport, place }), "{text}");
        }
    }

    #[test]
    fn invalid_addresses_report_cause_and_position() {
        use AddressErrorKind::*;
        let long = format!("/{}", "x".repeat(107));
        let cases: Vec<(&str, AddressErrorKind, usize)> = vec![
            ("", Empty, 0),
            ("foo@bar", UnknownPrefix("foo".into()), 0),
            ("blah+ip@bar", UnknownPrefix("blah+ip".into()), 0),
            ("ipv4@[::1]:80", Host("[::1]".into()), 5),
            ("ipv6@10.0.0.1:80", Host("10.0.0.1".into()), 5),
            ("[::1:80", Host("[::1".into()), 0),
            ("10.0.0.1:65536", Port("65536".into()), 9),
            ("10.0.0.1:8o", Port("8o".into()), 9),
            ("10.0.0.1:10-x", Port("x".into()), 12),
            ("10.0.0.1:10-1", Range(10, 1), 9),
            ("fd@x", Descriptor("x".into()), 3),
            ("fd@", Descriptor("".into()), 3),
            ("unix@", Path("".into()), 5),
            (&long, Path(long.clone()), 0),
        ];
        for (text, kind, at) in cases {
            assert_eq!(Address::parse(text), Err(AddressError { kind, at }), "{text}");
        }
    }

    #[test]
    fn statements_refuse_unsuitable_ports() {
        let bind = Accepts { port: PortRule::Required, range: true, offset: false };
        let log = Accepts { port: PortRule::Optional, range: false, offset: false };
        let none = Accepts { port: PortRule::Forbidden, range: false, offset: false };
        let cases = [
            ("*", bind, Some(AddressErrorKind::MissingPort)),
            ("*:80-90", bind, None),
            ("*:+1", bind, Some(AddressErrorKind::UnwantedOffset)),
            ("*:80-90", log, Some(AddressErrorKind::UnwantedRange)),
            ("10.0.0.1", log, None),
            ("10.0.0.1:1", none, Some(AddressErrorKind::UnwantedPort)),
            ("/run/x", bind, None),
        ];
        for (text, accepts, expected) in cases {
            let checked = Address::parse(text).unwrap().check(accepts);
            assert_eq!(checked.err().map(|error| error.kind), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_display_round_trips(text in "\\PC{0,24}|[a-z0-9:@.+\\[\\]*/-]{0,24}") {
            if let Ok(address) = Address::parse(&text) {
                prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
