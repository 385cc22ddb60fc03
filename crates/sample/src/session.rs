//! A client connection as data. Made by `proxy` when a connection is accepted; read by expressions
//! and logs.

use runtime::Local;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::slots::Slots;
use crate::tracked::Trackers;

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// TCP.
    Ip(SocketAddr),
    /// A UNIX or abstract socket, socket pair, or inherited descriptor: no address to speak of.
    Local,
    /// None: nobody connected, as for what the proxy itself asks (questions to agents, checks).
    Absent,
}

impl Ends {
    /// Those of a session that nobody connected for.
    pub const ABSENT: Self = Self { source: Endpoint::Absent, destination: Endpoint::Absent };
}

impl Endpoint {
    /// The IP address, if it has one. IPv4-mapped addresses are told as IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip().to_canonical()),
            Self::Local | Self::Absent => None,
        }
    }

    /// The address, if it has one.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(address),
            Self::Local | Self::Absent => None,
        }
    }

    /// The port, if it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Ip(address) => Some(address.port()),
            Self::Local | Self::Absent => None,
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
#[derive(Debug, Default)]
struct SeldomNeeded {
    /// The addresses of the connection itself where they are not the session's: rules changed one
    /// of those.
    own: Cell<Option<Ends>>,
    /// What came with a PROXY header.
    tlvs: OnceCell<Vec<Tlv>>,
    /// TLS.
    tls: OnceCell<Arc<tls::Details>>,
    /// What it tracks in stick tables.
    trackers: OnceCell<crate::tracked::HeldEntries>,
}

/// Both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The client's.
    pub source: Endpoint,
    /// Ours.
    pub destination: Endpoint,
}

/// What a client connection is, for its whole life. All its requests share it, so what changes is
/// in cells.
#[derive(Debug)]
pub struct Session {
    source: Cell<Endpoint>,
    destination: Cell<Endpoint>,
    rare: OnceCell<Box<SeldomNeeded>>,
    /// Why the connection failed.
    pub error: Cell<crate::socket::ConnectionError>,
    /// Whether a PROXY protocol header was received (`fc_rcvd_proxy`).
    pub received_proxy: Cell<bool>,
    /// Wall clock at accept, in µs since the UNIX epoch.
    pub accepted_wall_us: u64,
    /// Monotonic clock at accept, in µs (`runtime::timer::now_us`).
    pub accepted_us: u64,
    /// When the handshakes (PROXY protocol) were done, on the same clock. `%Th` is the difference.
    pub ready_us: Cell<u64>,
    /// The frontend.
    pub frontend: Local<state::Proxy>,
    /// The listener.
    pub listener: Local<state::Listener>,
    /// Requests begun on this connection.
    pub requests: Cell<u32>,
    /// The major version of HTTP on it (`fc_http_major`).
    pub http_major: Cell<u8>,
    /// Requests on it whose breaches of the rules were let pass (`fc_glitches`).
    pub glitches: Cell<u32>,
    /// Process-wide number of the connection (`fc_id`‑like facts, `show sess`).
    pub id: u64,
    /// Variables of the scope `sess`, once there is one.
    pub vars: OnceCell<Box<Slots>>,
    /// The log level that `set-log-level` of a `tcp-request` rule set, `Some(None)` for silent.
    pub log_level: Cell<Option<Option<u8>>>,
}

/// What is known of a connection when it is accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Both addresses.
    pub ends: Ends,
    /// Wall clock, in µs since the UNIX epoch.
    pub wall_us: u64,
    /// Monotonic clock, in µs.
    pub us: u64,
    /// The frontend.
    pub frontend: Local<state::Proxy>,
    /// The listener.
    pub listener: Local<state::Listener>,
    /// Process-wide number of the connection.
    pub id: u64,
}

impl Session {
    /// A connection at its beginning.
    pub fn new(accepted: Accepted) -> Self {
        let Accepted { ends, wall_us, us, frontend, listener, id } = accepted;
        Self {
            source: Cell::new(ends.source),
            destination: Cell::new(ends.destination),
            rare: OnceCell::new(),
            error: Cell::default(),
            received_proxy: Cell::new(false),
            accepted_wall_us: wall_us,
            accepted_us: us,
            ready_us: Cell::new(us),
            http_major: Cell::new(1),
            frontend,
            listener,
            requests: Cell::new(0),
            glitches: Cell::new(0),
            id,
            vars: OnceCell::new(),
            log_level: Cell::new(None),
        }
    }

    /// The client's address: as accepted, as the PROXY protocol says, or as `set-src` made it.
    #[inline]
    pub fn source(&self) -> Endpoint {
        self.source.get()
    }

    /// The address the client connected to; a PROXY header and `set-dst` change it.
    #[inline]
    pub fn destination(&self) -> Endpoint {
        self.destination.get()
    }

    /// What is known of TLS, where it is spoken.
    #[inline]
    pub fn tls(&self) -> Option<&Arc<tls::Details>> {
        self.rare.get()?.tls.get()
    }

    /// What it tracks in stick tables, if it does.
    #[inline]
    pub fn trackers(&self) -> Option<&RefCell<Trackers>> {
        self.rare.get()?.trackers.get()
    }

    /// What it tracks in stick tables, to be changed.
    pub fn trackers_to_change(&self) -> &RefCell<Trackers> {
        self.rare.get_or_init(Box::default).trackers.get_or_init(RefCell::default)
    }

    /// Keeps what the handshake of TLS came to.
    pub fn set_tls(&self, details: Arc<tls::Details>) {
        // There is one handshake a connection.
        let _ = self.rare.get_or_init(Box::default).tls.set(details);
    }

    /// The variables of the scope `sess`.
    pub fn vars(&self) -> &Slots {
        self.vars.get_or_init(Box::default)
    }

    /// What came with the PROXY header.
    pub fn tlvs(&self) -> &[Tlv] {
        self.rare.get().and_then(|rare| rare.tlvs.get()).map_or(&[], Vec::as_slice)
    }

    /// The client's address of the connection itself (`fc_src`): `set-src` of rules does not change
    /// it.
    pub fn connection_source(&self) -> Endpoint {
        self.own().map_or(self.source(), |own| own.source)
    }

    /// Our own address of the connection itself (`fc_dst`).
    pub fn connection_destination(&self) -> Endpoint {
        self.own().map_or(self.destination(), |own| own.destination)
    }

    /// Whether there is a connection of a client. Nobody connects for what the proxy itself asks.
    pub fn is_connected(&self) -> bool {
        self.connection_source() != Endpoint::Absent
    }

    /// Gives the client another address than the connection has (`set-src`).
    pub fn set_source(&self, changed: Endpoint) {
        self.keep_own();
        self.source.set(changed);
    }

    /// Gives the session another destination than the connection has (`set-dst`).
    pub fn set_destination(&self, changed: Endpoint) {
        self.keep_own();
        self.destination.set(changed);
    }

    /// Makes the session's addresses those of the connection too.
    pub fn forget_own(&self) {
        if let Some(rare) = self.rare.get() {
            rare.own.set(None);
        }
    }

    /// Keeps what came with a PROXY header: there is one at most.
    pub fn set_tlvs(&self, tlvs: Vec<Tlv>) {
        // A second header would have been part of the first request.
        let _ = self.rare.get_or_init(Box::default).tlvs.set(tlvs);
    }

    fn own(&self) -> Option<Ends> {
        self.rare.get().and_then(|rare| rare.own.get())
    }

    fn keep_own(&self) {
        if self.own().is_none() {
            let own = Ends { source: self.source(), destination: self.destination() };
            self.rare.get_or_init(Box::default).own.set(Some(own));
        }
    }
}
