//! `udp-lb` sections, resolved.

use std::time::Duration;

/// The largest payload of a UDP datagram over IPv4, in bytes.
pub const LARGEST_PAYLOAD: u16 = 65_507;

/// The default of `accepted-payload-size`: the largest payload in an Ethernet frame over IPv4.
pub const DEFAULT_PAYLOAD: u16 = 1472;

/// The idle time after which a session ends, if the section has no timeout.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(60);

/// The settings of a `udp-lb` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpLb {
    /// How long a session may be idle after a datagram of the client.
    pub after_request: Duration,
    /// How long a session may be idle after a datagram of the server.
    pub after_response: Duration,
    /// `proxy-requests`: the client's next datagram begins another session after this number of datagrams; `None` for no limit.
    pub requests: Option<u32>,
    /// `proxy-responses`: a session ends when each of the client's datagrams is answered by this number; `None` for no limit.
    pub responses: Option<u32>,
    /// `balance quic-cid`: where connection IDs identify a server, as the number of bytes before and in that part.
    pub quic_id: Option<(u8, u8)>,
    /// `accepted-payload-size`: larger datagrams are dropped, in bytes.
    pub payload_size: u16,
}
