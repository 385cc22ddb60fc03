//! A client connection as data. Made by `proxy` when a connection is accepted; read by expressions and logs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::vars::Slots;

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// TCP.
    Ip(SocketAddr),
    /// A UNIX or abstract socket, socket pair, or inherited descriptor: no address to speak of.
    Local,
}

impl Endpoint {
    /// The IP address, if it has one. IPv4-mapped addresses are told as IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip().to_canonical()),
            Self::Local => None,
        }
    }

    /// The port, if it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Ip(address) => Some(address.port()),
            Self::Local => None,
        }
    }
}

/// One type-length-value of a PROXY protocol v2 header.
#[derive(Clone, Debug)]
pub struct Tlv {
    /// Its type.
    pub kind: u8,
    /// Its value.
    pub value: Box<[u8]>,
}

/// What a client connection is, for its whole life.
#[derive(Debug)]
pub struct Session {
    /// The client's address: as accepted, as the PROXY protocol says, or as `set-src` made it.
    pub source: Endpoint,
    /// The address the client connected to, likewise.
    pub destination: Endpoint,
    /// The addresses of the connection itself (`fc_src`): `set-src` of rules does not change them.
    pub connection_source: Endpoint,
    /// Likewise `fc_dst`.
    pub connection_destination: Endpoint,
    /// Whether a PROXY protocol header was received (`fc_rcvd_proxy`).
    pub received_proxy: bool,
    /// What came with it; `None` when nothing did.
    pub tlvs: Option<Box<[Tlv]>>,
    /// Wall clock at accept, in µs since the UNIX epoch.
    pub accepted_wall_us: u64,
    /// Monotonic clock at accept, in µs (`runtime::timer::now_us`).
    pub accepted_us: u64,
    /// When the handshakes (PROXY protocol) were done, likewise. `%Th` is the difference.
    pub ready_us: u64,
    /// The frontend.
    pub frontend: Arc<state::Proxy>,
    /// The listener.
    pub listener: Arc<state::Listener>,
    /// Requests begun on this connection.
    pub requests: u32,
    /// Process-wide number of the connection (`fc_id`‑like facts, `show sess`).
    pub id: u64,
    /// Variables of the scope `sess`.
    pub vars: Slots,
    /// The log level that `set-log-level` of a `tcp-request` rule set, `Some(None)` for silent.
    pub log_level: Option<Option<u8>>,
}
