//! How a connection to a server is opened, whoever opens it: what its line says of sockets, as the options of one.
//!
//! Requests, checks, agents and logs begin with [`to_server`]; what only one of them knows (the client's address, marks of
//! rules, when to acknowledge) they set on top. The waiting, and what is said first on the connection, is theirs.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use net::dial::unspecified;
use net::{Dial, Target};
use plan::ServerSettings;
use plan::server::{Source, UseSource};

/// The options of a socket to this server.
pub fn to_server<'a>(server: &'a ServerSettings, target: &Target) -> Dial<'a> {
    let source = server.source.as_ref();
    Dial {
        source: source.and_then(|source| own_address(source, target)),
        source_ports: source.and_then(|source| source.ports).filter(|(first, last)| first != last),
        transparent: source.is_some_and(|source| matches!(source.transparent, UseSource::Fixed(_))),
        interface: source.and_then(|source| source.interface.as_deref()),
        user_timeout: server.tcp_ut,
        md5_key: server.md5sig.as_deref().map(str::as_bytes),
        congestion: server.congestion.as_deref(),
        tos: server.tos,
        namespace: server.namespace.as_deref(),
        ..Dial::default()
    }
}

/// The address to connect from as far as the line says it: a fixed one of `usesrc`, or our own. What `usesrc` takes from a
/// client is the caller's to know.
pub fn own_address(source: &Source, target: &Target) -> Option<SocketAddr> {
    let Target::Ip(target) = target else { return None };
    if let UseSource::Fixed(address) = source.transparent {
        return Some(address);
    }
    let port = source.ports.map_or(0, |(first, last)| if first == last { first } else { 0 });
    let ip = source.address.unwrap_or_else(|| unspecified(*target));
    (source.address.is_some() || source.ports.is_some()).then(|| SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address, a range of ports, and whether the address may be foreign.
    type Seen = (SocketAddr, Option<(u16, u16)>, bool);

    fn source(line: &str) -> Option<Seen> {
        let text = format!("backend b\n mode tcp\n server s 192.0.2.1:80 {line}\n");
        let loaded = config::load_text("test.cfg", &text, &config::Boot::default());
        let plan = loaded.plan.expect("the line is right");
        let server = plan.proxies[0].servers.get(0).expect("it has one");
        let dial = to_server(&server, &Target::Ip(([192, 0, 2, 1], 80).into()));
        dial.source.map(|address| (address, dial.source_ports, dial.transparent))
    }

    #[test]
    fn the_source_of_a_line_is_that_of_the_socket() {
        let own = |port: u16| SocketAddr::from(([127, 0, 0, 2], port));
        assert_eq!(source(""), None);
        assert_eq!(source("source 127.0.0.2"), Some((own(0), None, false)));
        assert_eq!(source("source 127.0.0.2:1000"), Some((own(1000), None, false)));
        assert_eq!(source("source 127.0.0.2:1000-1003"), Some((own(0), Some((1000, 1003)), false)));
        let fixed = SocketAddr::from(([192, 0, 2, 9], 0));
        assert_eq!(source("source 127.0.0.2 usesrc 192.0.2.9"), Some((fixed, None, true)));
    }
}
