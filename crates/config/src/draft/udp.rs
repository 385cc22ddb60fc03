//! The settings of `udp-lb` sections that other proxies do not have.

use std::time::Duration;

/// The settings of a `udp-lb` section.
#[derive(Debug, Clone, Default)]
pub struct UdpDraft {
    /// `timeout session`.
    pub session: Option<Duration>,
    /// `proxy-requests`.
    pub requests: Option<u32>,
    /// `proxy-responses`.
    pub responses: Option<u32>,
    /// `balance quic-cid`: the offset and the length.
    pub quic_id: Option<(u8, u8)>,
    /// `accepted-payload-size`.
    pub payload_size: Option<u16>,
}
