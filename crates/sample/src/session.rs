//! A client connection as data. `proxy` creates it when a connection is accepted; expressions and logs read it.

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
    /// A UNIX or abstract socket, socket pair, or inherited descriptor, none of which has an address.
    Local,
    /// There is no client, as for requests that the proxy itself makes (SPOE, checks).
    Absent,
}

impl Ends {
    /// The ends of a session without a client.
    pub const ABSENT: Self = Self { source: Endpoint::Absent, destination: Endpoint::Absent };
}

impl Endpoint {
    /// The IP address, if there is one. IPv4-mapped addresses are returned as IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip().to_canonical()),
            Self::Local | Self::Absent => None,
        }
    }

    /// The socket address, if there is one.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(address),
            Self::Local | Self::Absent => None,
        }
    }

    /// The port, if there is one.
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
    /// The type.
    pub kind: u8,
    /// The value.
    pub value: Box<[u8]>,
}

/// Data that only few connections have.
#[derive(Debug, Default)]
struct SeldomNeeded {
    /// The connection's own addresses, if rules have set different ones for the session.
    own: Cell<Option<Ends>>,
    /// The TLVs of a PROXY protocol header.
    tlvs: OnceCell<Vec<Tlv>>,
    /// TLS details.
    tls: OnceCell<Arc<tls::Details>>,
    /// The tracked stick table entries.
    trackers: OnceCell<crate::tracked::HeldEntries>,
}

/// Both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The client's address.
    pub source: Endpoint,
    /// The local address.
    pub destination: Endpoint,
}

/// A client connection from accept to close. All of its requests share it, so everything that changes is in cells.
#[derive(Debug)]
pub struct Session {
    source: Cell<Endpoint>,
    destination: Cell<Endpoint>,
    rare: OnceCell<Box<SeldomNeeded>>,
    /// The reason why the connection failed.
    pub error: Cell<crate::socket::ConnectionError>,
    /// Whether a PROXY protocol header was received (`fc_rcvd_proxy`).
    pub received_proxy: Cell<bool>,
    /// Wall clock at accept, in µs since the UNIX epoch.
    pub accepted_wall_us: u64,
    /// Monotonic clock at accept, in µs (`runtime::timer::now_us`).
    pub accepted_us: u64,
    /// When the handshakes (PROXY protocol) were complete, on the same clock. `%Th` is the difference to the time of accept.
    pub ready_us: Cell<u64>,
    /// The frontend.
    pub frontend: Local<state::Proxy>,
    /// The listener.
    pub listener: Local<state::Listener>,
    /// The number of requests started on this connection.
    pub requests: Cell<u32>,
    /// The major HTTP version (`fc_http_major`).
    pub http_major: Cell<u8>,
    /// The number of tolerated protocol violations (`fc_glitches`).
    pub glitches: Cell<u32>,
    /// The process-wide connection number (`show sess`).
    pub id: u64,
    /// Variables of scope `sess`. Created when the first one is set.
    pub vars: OnceCell<Box<Slots>>,
    /// The log level that `set-log-level` has set in a `tcp-request` rule; `Some(None)` for silent.
    pub log_level: Cell<Option<Option<u8>>>,
}

/// The facts known when a connection is accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Both addresses.
    pub ends: Ends,
    /// The wall clock time, in µs since the UNIX epoch.
    pub wall_us: u64,
    /// Monotonic clock, in µs.
    pub us: u64,
    /// The frontend.
    pub frontend: Local<state::Proxy>,
    /// The listener.
    pub listener: Local<state::Listener>,
    /// The process-wide connection number.
    pub id: u64,
}

impl Session {
    /// Creates the session of a new connection.
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

    /// The client's address: as accepted, as specified by the PROXY protocol, or as changed by `set-src`.
    #[inline]
    pub fn source(&self) -> Endpoint {
        self.source.get()
    }

    /// The address to which the client connected. A PROXY header and `set-dst` change it.
    #[inline]
    pub fn destination(&self) -> Endpoint {
        self.destination.get()
    }

    /// TLS details, if the connection uses TLS.
    #[inline]
    pub fn tls(&self) -> Option<&Arc<tls::Details>> {
        self.rare.get()?.tls.get()
    }

    /// The tracked stick table entries, if any were ever tracked.
    #[inline]
    pub fn trackers(&self) -> Option<&RefCell<Trackers>> {
        self.rare.get()?.trackers.get()
    }

    /// The tracked stick table entries, for modification.
    pub fn trackers_to_change(&self) -> &RefCell<Trackers> {
        self.rare.get_or_init(Box::default).trackers.get_or_init(RefCell::default)
    }

    /// Stores the result of the TLS handshake.
    pub fn set_tls(&self, details: Arc<tls::Details>) {
        // A connection has one handshake.
        let _ = self.rare.get_or_init(Box::default).tls.set(details);
    }

    /// The variables of scope `sess`.
    pub fn vars(&self) -> &Slots {
        self.vars.get_or_init(Box::default)
    }

    /// The TLVs of the PROXY header.
    pub fn tlvs(&self) -> &[Tlv] {
        self.rare.get().and_then(|rare| rare.tlvs.get()).map_or(&[], Vec::as_slice)
    }

    /// The connection's own client address (`fc_src`), which `set-src` in rules does not change.
    pub fn connection_source(&self) -> Endpoint {
        self.own().map_or(self.source(), |own| own.source)
    }

    /// The connection's own local address (`fc_dst`).
    pub fn connection_destination(&self) -> Endpoint {
        self.own().map_or(self.destination(), |own| own.destination)
    }

    /// Whether there is a client connection. Requests that the proxy itself makes have none.
    pub fn is_connected(&self) -> bool {
        self.connection_source() != Endpoint::Absent
    }

    /// Overrides the client's address (`set-src`).
    pub fn set_source(&self, changed: Endpoint) {
        self.keep_own();
        self.source.set(changed);
    }

    /// Overrides the destination address (`set-dst`).
    pub fn set_destination(&self, changed: Endpoint) {
        self.keep_own();
        self.destination.set(changed);
    }

    /// Makes the session's current addresses the connection's own.
    pub fn forget_own(&self) {
        if let Some(rare) = self.rare.get() {
            rare.own.set(None);
        }
    }

    /// Stores the TLVs of a PROXY header, of which there is at most one.
    pub fn set_tlvs(&self, tlvs: Vec<Tlv>) {
        // A second header would have been parsed as part of the first request.
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
