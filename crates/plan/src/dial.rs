//! Socket options for a connection to a server, derived from its `server` line and `global`.
//!
//! This is a pure conversion, which requests, health checks, agents and log forwarding share. They start with [`to_server`], set
//! the options that depend on the request (the client's address, marks set by rules, delayed acknowledgements), and then connect
//! through `net`.

use std::net::SocketAddr;

use net::dial::unspecified;
use net::{Dial, Target};
use state::server::ServerAddress;

use crate::ServerSettings;
use crate::global::Tune;
use crate::server::{SourceAddress, UseSource};

/// The kernel's buffer sizes for servers (`tune.rcvbuf.server`, `tune.sndbuf.server`, `tune.notsent-lowat.server`); 0 for the
/// kernel's default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buffers {
    receive: usize,
    send: usize,
    notsent: usize,
}

impl Buffers {
    /// The sizes for datagrams (`tune.rcvbuf.backend`, `tune.sndbuf.backend`).
    pub fn of_datagrams(tune: &Tune) -> Self {
        Self { receive: tune.rcvbuf_backend, send: tune.sndbuf_backend, notsent: 0 }
    }
}

impl From<&Tune> for Buffers {
    fn from(tune: &Tune) -> Self {
        Self { receive: tune.rcvbuf_server, send: tune.sndbuf_server, notsent: tune.notsent_server }
    }
}

/// Returns the server's current address as a target. `None` if its name is not resolved, and for a reverse server, to which clients
/// open the connections.
pub fn target(address: &ServerAddress) -> Option<Target> {
    Some(match address {
        ServerAddress::Ip(address) => Target::Ip(*address),
        ServerAddress::Unix(path) => Target::Unix(path.clone()),
        ServerAddress::Abstract { name, padded } => Target::Abstract { name: name.clone(), padded: *padded },
        ServerAddress::Unresolved | ServerAddress::Reverse => return None,
    })
}

/// Returns the socket options for a connection to this server.
pub fn to_server<'a>(server: &'a ServerSettings, buffers: Buffers, target: &Target) -> Dial<'a> {
    let source = server.source.as_deref();
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

/// Returns the source address, if the `server` line fixes it: that of `usesrc`, otherwise that of `source`. The caller handles a
/// `usesrc` address that is taken from the client.
pub fn own_address(source: &SourceAddress, target: &Target) -> Option<SocketAddr> {
    let Target::Ip(target) = target else { return None };
    if let UseSource::Fixed(address) = source.transparent {
        return Some(address);
    }
    let port = source.ports.map_or(0, |(first, last)| if first == last { first } else { 0 });
    let ip = source.address.unwrap_or_else(|| unspecified(*target));
    (source.address.is_some() || source.ports.is_some()).then(|| SocketAddr::new(ip, port))
}
