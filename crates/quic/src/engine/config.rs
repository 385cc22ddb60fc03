//! Settings in the engine's form.

use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::{
    ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig,
    VarInt,
};

use super::congestion::Controllers;
use super::crypto::VERSION_1;
use crate::connection_id::{CONNECTION_ID_LENGTH, SocketIndex};
use crate::settings::Settings;

/// Control, encoder and decoder streams of HTTP/3, and one for extensions.
const UNI_STREAMS: u32 = 4;

/// Maximum number of bytes of a handshake that arrive out of order.
const CRYPTO_BUFFER: usize = 1 << 16;

fn var_int(number: u64) -> VarInt {
    VarInt::from_u64(number).unwrap_or(VarInt::MAX)
}

pub(crate) fn transport(settings: &Settings) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(var_int(settings.max_streams))
        .max_concurrent_uni_streams(UNI_STREAMS.into())
        .max_idle_timeout(settings.max_idle.and_then(|limit| IdleTimeout::try_from(limit).ok()))
        .stream_receive_window(var_int(settings.stream_window))
        .receive_window(var_int(settings.connection_window))
        .send_window(settings.send_window)
        .packet_threshold(settings.packet_threshold)
        .initial_mtu(Settings::INITIAL_MTU)
        .crypto_buffer_size(CRYPTO_BUFFER)
        .datagram_receive_buffer_size(None)
        .allow_spin(false)
        .enable_segmentation_offload(settings.gso)
        .congestion_controller_factory(Arc::new(Controllers(settings.congestion)));
    let discovery = (settings.mtu_max > Settings::INITIAL_MTU).then(|| {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(settings.mtu_max);
        discovery
    });
    config.mtu_discovery_config(discovery);
    Arc::new(config)
}

/// Keys that all workers, and with `cluster-secret` all nodes, have in common.
#[derive(Clone)]
pub struct SharedKeys {
    /// Derives stateless reset tokens (RFC 9000, 10.3).
    pub(crate) reset: Arc<hmac::Key>,
    /// Derives the keys of Retry and NEW_TOKEN tokens.
    pub(crate) token: Arc<hkdf::Prk>,
}

impl SharedKeys {
    /// Derives the keys from a secret.
    pub fn new(secret: &[u8]) -> Self {
        let derived = |label: &[u8]| hkdf::Salt::new(hkdf::HKDF_SHA256, label).extract(secret);
        let mut reset = [0; 32];
        let filled = derived(b"weir quic stateless reset")
            .expand(&[b"key"], hkdf::HKDF_SHA256)
            .and_then(|key| key.fill(&mut reset));
        debug_assert!(filled.is_ok(), "32 bytes are one block");
        Self {
            reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &reset)),
            token: Arc::new(derived(b"weir quic address token")),
        }
    }

    /// Returns keys from a random secret.
    pub fn random() -> Self {
        let mut secret = [0; 32];
        fill_random(&mut secret);
        Self::new(&secret)
    }
}

impl std::fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedKeys")
    }
}

fn fill_random(bytes: &mut [u8]) {
    let filled = rand::fill(bytes);
    debug_assert!(filled.is_ok(), "the generator cannot fail after it has started");
}

pub(crate) fn endpoint(keys: &SharedKeys, index: SocketIndex, mtu_max: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(keys.reset.clone());
    config
        .supported_versions(vec![VERSION_1])
        // Stateless resets are limited by the caller, together with other replies.
        .min_reset_interval(std::time::Duration::ZERO)
        .cid_generator(move || Box::new(Ids { index, random: [0; RANDOM], left: 0 }));
    // Cannot fail: the value is at least 1200.
    let _ = config.max_udp_payload_size(mtu_max.max(Settings::INITIAL_MTU));
    config
}

/// Returns the configuration of an endpoint with a single connection, to a server. Its datagrams need no connection ID, because the
/// socket is used for nothing else.
pub(crate) fn client_endpoint(keys: &SharedKeys, mtu_max: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(keys.reset.clone());
    config.supported_versions(vec![VERSION_1]).cid_generator(|| Box::new(NoIds));
    // Cannot fail: the value is at least 1200.
    let _ = config.max_udp_payload_size(mtu_max.max(Settings::INITIAL_MTU));
    config
}

/// Generates empty connection IDs.
struct NoIds;

impl ConnectionIdGenerator for NoIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&[])
    }

    fn cid_len(&self) -> usize {
        0
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// How many random bytes are drawn at once.
const RANDOM: usize = 32 * CONNECTION_ID_LENGTH;

/// Generates connection IDs.
struct Ids {
    index: SocketIndex,
    random: [u8; RANDOM],
    /// How many random bytes are left.
    left: usize,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        if self.left == 0 {
            fill_random(&mut self.random);
            self.left = RANDOM;
        }
        self.left -= CONNECTION_ID_LENGTH;
        let mut id = [0; CONNECTION_ID_LENGTH];
        id.copy_from_slice(&self.random[self.left..self.left + CONNECTION_ID_LENGTH]);
        self.index.mark(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}
