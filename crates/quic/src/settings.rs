//! The transport settings of a listener or a server.

use std::time::Duration;

/// Settings for the connections of a listener or to a server (`tune.quic.fe.*`, `tune.quic.be.*`, `quic-cc-algo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a connection may be silent; `None` for no limit of ours.
    pub max_idle: Option<Duration>,
    /// How many bidirectional streams the peer may have open: a client's requests. Servers open none.
    pub max_streams: u64,
    /// Bytes that the peer may send ahead on one stream.
    pub stream_window: u64,
    /// Bytes that the peer may send ahead on all streams of a connection.
    pub connection_window: u64,
    /// Bytes that are kept for the peer until it acknowledges them.
    pub send_window: u64,
    /// Congestion control.
    pub congestion: Congestion,
    /// Whether packets are spread over the round-trip time (`tune.quic.fe.tx.pacing`).
    pub pacing: bool,
    /// Whether several datagrams are passed to the kernel at once.
    pub gso: bool,
    /// The largest UDP payload to probe for; path MTU discovery is off up to [`INITIAL_MTU`](Self::INITIAL_MTU).
    pub mtu_max: u16,
    /// Out-of-order packets after which an earlier packet counts as lost.
    pub packet_threshold: u32,
    /// Whether a client may continue from another address.
    pub migration: bool,
}

/// The congestion control of a listener or server (`quic-cc-algo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Congestion {
    /// The algorithm.
    pub algorithm: CongestionAlgorithm,
    /// Maximum size of the window, in bytes.
    pub window_max: u64,
    /// The number of packets lost between two acknowledgements that reduces the window of Cubic.
    pub cubic_min_losses: u32,
    /// Whether HyStart++ (RFC 9406) replaces the slow start of Cubic.
    pub hystart: bool,
    /// The limit for unacknowledged bytes of all connections of the process.
    pub memory: Option<u64>,
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            algorithm: CongestionAlgorithm::Cubic,
            window_max: 491_520,
            cubic_min_losses: 1,
            hystart: false,
            memory: None,
        }
    }
}

/// A congestion control algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionAlgorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 9002, 7.
    NewReno,
    /// BBR, version 1.
    Bbr,
    /// The window is always at its maximum.
    None,
}

impl Settings {
    /// The UDP payload that every connection starts with: an Ethernet path with IPv6 and room for tunnels.
    pub const INITIAL_MTU: u16 = 1252;
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_idle: Some(Duration::from_secs(30)),
            max_streams: 100,
            stream_window: 1_474_560,
            connection_window: 1_638_400,
            send_window: 2 * 491_520,
            congestion: Congestion::default(),
            pacing: true,
            gso: true,
            mtu_max: 1452,
            packet_threshold: 3,
            migration: true,
        }
    }
}
