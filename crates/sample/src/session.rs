//! A client connection as data. Made by `proxy` when a connection is accepted; read by expressions and logs.

use runtime::Local;
use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};

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

/// What only some connections have.
#[derive(Clone, Debug, Default)]
pub struct Rare {
    /// The addresses of the connection itself where they are not the session's: rules changed one of those.
    pub own: Option<Ends>,
    /// What came with a PROXY header.
    pub tlvs: Vec<Tlv>,
}

/// Both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The client's.
    pub source: Endpoint,
    /// Ours.
    pub destination: Endpoint,
}

/// What a client connection is, for its whole life.
#[derive(Debug)]
pub struct Session {
    /// The client's address: as accepted, as the PROXY protocol says, or as `set-src` made it.
    pub source: Endpoint,
    /// The address the client connected to, likewise.
    pub destination: Endpoint,
    /// What only some connections have; see [`Session::tlvs`] and [`Session::connection_source`].
    pub rare: Option<Box<Rare>>,
    /// Why the connection failed before it carried anything.
    pub error: crate::socket::ConnectionError,
    /// Whether a PROXY protocol header was received (`fc_rcvd_proxy`).
    pub received_proxy: bool,
    /// Wall clock at accept, in µs since the UNIX epoch.
    pub accepted_wall_us: u64,
    /// Monotonic clock at accept, in µs (`runtime::timer::now_us`).
    pub accepted_us: u64,
    /// When the handshakes (PROXY protocol) were done, likewise. `%Th` is the difference.
    pub ready_us: u64,
    /// The frontend.
    pub frontend: Local<state::Proxy>,
    /// The listener.
    pub listener: Local<state::Listener>,
    /// Requests begun on this connection.
    pub requests: u32,
    /// Requests on it whose breaches of the rules were let pass (`fc_glitches`).
    pub glitches: u32,
    /// Process-wide number of the connection (`fc_id`‑like facts, `show sess`).
    pub id: u64,
    /// Variables of the scope `sess`, once there is one.
    pub vars: OnceCell<Box<Slots>>,
    /// The log level that `set-log-level` of a `tcp-request` rule set, `Some(None)` for silent.
    pub log_level: Option<Option<u8>>,
}

impl Session {
    /// The variables of the scope `sess`.
    pub fn vars(&self) -> &Slots {
        self.vars.get_or_init(Box::default)
    }

    /// What came with the PROXY header.
    pub fn tlvs(&self) -> &[Tlv] {
        self.rare.as_ref().map_or(&[], |rare| &rare.tlvs)
    }

    /// The client's address of the connection itself (`fc_src`): `set-src` of rules does not change it.
    pub fn connection_source(&self) -> Endpoint {
        self.own().map_or(self.source, |own| own.source)
    }

    /// Likewise our own address (`fc_dst`).
    pub fn connection_destination(&self) -> Endpoint {
        self.own().map_or(self.destination, |own| own.destination)
    }

    /// Gives the client another address than the connection has (`set-src`).
    pub fn set_source(&mut self, changed: Endpoint) {
        self.keep_own();
        self.source = changed;
    }

    /// Likewise our own address (`set-dst`).
    pub fn set_destination(&mut self, changed: Endpoint) {
        self.keep_own();
        self.destination = changed;
    }

    /// Makes the session's addresses those of the connection too.
    pub fn forget_own(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.own = None;
        }
    }

    /// Keeps what came with a PROXY header.
    pub fn set_tlvs(&mut self, tlvs: Vec<Tlv>) {
        self.rare.get_or_insert_default().tlvs = tlvs;
    }

    fn own(&self) -> Option<&Ends> {
        self.rare.as_ref().and_then(|rare| rare.own.as_ref())
    }

    fn keep_own(&mut self) {
        if self.own().is_none() {
            let own = Ends { source: self.source, destination: self.destination };
            self.rare.get_or_insert_default().own = Some(own);
        }
    }
}
