//! How a connection to a server is opened, whoever opens it: what its line says of sockets, as the
//! options of one.
//!
//! Requests, checks, agents and logs begin with [`to_server`]; what only one of them knows (the
//! client's address, marks of rules, when to acknowledge) they set on top. The waiting, and what is
//! said first on the connection, is theirs.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use net::dial::unspecified;
use net::{Dial, Target};
use plan::ServerSettings;
use plan::global::Tune;
use plan::server::{SourceAddress, UseSource};
use state::server::ServerAddress;

/// The kernel's buffers towards servers (`tune.rcvbuf.server`, `tune.sndbuf.server`,
/// `tune.notsent-lowat.server`); 0 leaves each to the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buffers {
    receive: usize,
    send: usize,
    notsent: usize,
}

impl From<&Tune> for Buffers {
    fn from(tune: &Tune) -> Self {
        Self { receive: tune.rcvbuf_server, send: tune.sndbuf_server, notsent: tune.notsent_server }
    }
}

/// The address of a server as it is now, as something to connect to; `None` while its name has
/// none, and where clients bring its connections.
pub fn target(address: &ServerAddress) -> Option<Target> {
    Some(match address {
        ServerAddress::Ip(address) => Target::Ip(*address),
        ServerAddress::Unix(path) => Target::Unix(path.clone()),
        ServerAddress::Abstract { name, padded } => Target::Abstract { name: name.clone(), padded: *padded },
        ServerAddress::Unresolved | ServerAddress::Reverse => return None,
    })
}

/// The options of a socket to this server.
pub fn to_server<'a>(server: &'a ServerSettings, buffers: Buffers, target: &Target) -> Dial<'a> {
    let source = server.source.as_ref();
    Dial {
        source: source.and_then(|source| own_address(source, target)),
        source_ports: source.and_then(|source| source.ports).filter(|(first, last)| first != last),
        transparent: source.is_some_and(|source| matches!(source.transparent, UseSource::Fixed(_))),
        interface: source.and_then(|source| source.interface.as_deref()),
        user_timeout: server.tcp_ut,
        receive_buffer: buffers.receive,
        send_buffer: buffers.send,
        notsent: buffers.notsent,
        md5_key: server.md5sig.as_deref().map(str::as_bytes),
        congestion: server.congestion.as_deref(),
        tos: server.tos,
        namespace: server.namespace.as_deref(),
        ..Dial::default()
    }
}

/// The address to connect from as far as the line says it: a fixed one of `usesrc`, or our own.
/// What `usesrc` takes from a client is the caller's to know.
pub fn own_address(source: &SourceAddress, target: &Target) -> Option<SocketAddr> {
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

    /// What `see` sees of the options for a server line behind some lines of `global`.
    fn options<T>(global: &str, line: &str, see: impl FnOnce(&Dial<'_>) -> T) -> T {
        let text = format!("global\n {global}\nbackend b\n mode tcp\n server s 192.0.2.1:80 {line}\n");
        let loaded = config::load_text("test.cfg", &text, &config::Boot::default());
        let plan = loaded.plan.expect("the lines are right");
        let server = plan.proxies[0].servers.get(0).expect("it has one");
        let buffers = (&plan.global.tune).into();
        see(&to_server(&server, buffers, &Target::Ip(([192, 0, 2, 1], 80).into())))
    }

    fn source(line: &str) -> Option<Seen> {
        options("", line, |dial| dial.source.map(|address| (address, dial.source_ports, dial.transparent)))
    }

    #[test]
    fn the_buffers_of_the_process_are_those_of_the_socket() {
        let sizes =
            |global: &str| options(global, "", |dial| (dial.receive_buffer, dial.send_buffer, dial.notsent));
        assert_eq!(sizes(""), (0, 0, 0));
        assert_eq!(sizes("tune.rcvbuf.server 8192\n tune.sndbuf.server 4096"), (8192, 4096, 0));
        assert_eq!(sizes("tune.notsent-lowat.server 2048"), (0, 0, 2048));
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
