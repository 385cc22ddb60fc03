//! The engine's view of TLS: a [`QuicHandshake`] as its cryptographic session.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig,
    Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use tls::Keep;
use tls::quic::{self, DirectionKeys, LevelKeys, QuicFailure, QuicHandshake};

/// QUIC version 1 (RFC 9000, 15).
pub(crate) const VERSION_1: u32 = 1;

struct HeaderProtection(quic::HeaderKey);

impl HeaderKey for HeaderProtection {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.0.unprotect(pn_offset, packet);
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        self.0.protect(pn_offset, packet);
    }

    fn sample_size(&self) -> usize {
        self.0.sample_length()
    }
}

struct PacketProtection(quic::PacketKey);

impl PacketKey for PacketProtection {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let sealed = self.0.seal(packet, buf, header_len);
        debug_assert!(sealed.is_ok(), "the engine reserves room for the tag");
        if sealed.is_err() {
            // Never sends plaintext.
            buf.fill(0);
        }
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        let length = self.0.open(packet, header, payload).map_err(|_| CryptoError)?;
        payload.truncate(length);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_length()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

fn level(keys: LevelKeys) -> Keys {
    let LevelKeys { local, remote } = keys;
    Keys {
        header: KeyPair {
            local: Box::new(HeaderProtection(local.header)),
            remote: Box::new(HeaderProtection(remote.header)),
        },
        packet: KeyPair {
            local: Box::new(PacketProtection(local.packet)),
            remote: Box::new(PacketProtection(remote.packet)),
        },
    }
}

fn initial(id: &ConnectionId, side: Side) -> Result<Keys, UnsupportedVersion> {
    LevelKeys::initial(id, side == Side::Client).map(level).ok_or(UnsupportedVersion)
}

/// The cryptographic settings of a listener's endpoint, or of one handshake.
pub(crate) struct ServerCrypto {
    acceptor: Arc<tls::Acceptor>,
    keep: Keep,
    /// The reserved TLS slot of a handshake.
    place: Mutex<Option<tls::ConnectionPermit>>,
}

impl ServerCrypto {
    pub(crate) fn new(
        acceptor: Arc<tls::Acceptor>,
        keep: Keep,
        place: Option<tls::ConnectionPermit>,
    ) -> Arc<Self> {
        Arc::new(Self { acceptor, keep, place: Mutex::new(place) })
    }
}

impl ServerConfig for ServerCrypto {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if version == VERSION_1 { initial(dst_cid, Side::Server) } else { Err(UnsupportedVersion) }
    }

    fn retry_tag(&self, _: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        quic::retry_tag(orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        let mut parameters = Vec::new();
        params.write(&mut parameters);
        let local = parameters.as_slice().into();
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::new(TlsSession {
            handshake: QuicHandshake::accept(&self.acceptor, parameters, self.keep, place),
            local,
            side: Side::Server,
            is_announced: false,
        })
    }
}

/// How to perform the handshake with a server.
#[derive(Debug, Clone)]
pub struct ServerHandshake {
    /// The TLS settings and sessions of the server's line.
    pub connector: Arc<tls::Connector>,
    /// The name to send as SNI.
    pub name: Option<Box<str>>,
    /// The data to keep for fetches.
    pub keep: Keep,
    /// Whether data may be sent before the server's answer, if an earlier session allows it.
    pub early: bool,
}

/// The cryptographic settings of a connection to a server.
pub(crate) struct ClientCrypto {
    pub(crate) handshake: ServerHandshake,
    /// Why the handshake could not be started.
    pub(crate) failure: Mutex<Option<tls::Error>>,
}

impl ClientConfig for ClientCrypto {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        _: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let mut parameters = Vec::new();
        params.write(&mut parameters);
        let local = parameters.as_slice().into();
        let ServerHandshake { connector, name, keep, early } = &self.handshake;
        match QuicHandshake::connect(connector, name.as_deref(), parameters, *keep, *early) {
            Ok(handshake) => {
                Ok(Box::new(TlsSession { handshake, local, side: Side::Client, is_announced: false }))
            }
            Err(error) => {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                Err(ConnectError::EndpointStopping)
            }
        }
    }
}

/// The transport parameters of both sides (RFC 9000, 18), as sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParameterBytes {
    /// Ours.
    pub local: Vec<u8>,
    /// The peer's; empty until they have arrived.
    pub remote: Vec<u8>,
}

/// One side of a handshake.
struct TlsSession {
    handshake: QuicHandshake,
    /// Our transport parameters.
    local: Box<[u8]>,
    side: Side,
    /// Whether the engine knows that the handshake's data is there.
    is_announced: bool,
}

impl Session for TlsSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        // The endpoint has derived keys of this kind before.
        initial(dst_cid, side).unwrap_or_else(|_| unreachable!("the suite of Initial packets is built in"))
    }

    /// The [`tls::Details`], in an `Arc`.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.handshake.details().clone()))
    }

    /// The [`ParameterBytes`]. The peer's certificate is part of the details.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let remote = self.handshake.peer_parameters().unwrap_or_default();
        Some(Box::new(ParameterBytes { local: self.local.to_vec(), remote: remote.to_vec() }))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let DirectionKeys { header, packet } = self.handshake.early_keys()?;
        Some((Box::new(HeaderProtection(header)), Box::new(PacketProtection(packet))))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        (self.side == Side::Client).then(|| self.handshake.accepts_early())
    }

    fn is_handshaking(&self) -> bool {
        !self.handshake.is_established()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.handshake.read(buf).map_err(|QuicFailure { error, alert }| TransportError {
            code: TransportErrorCode::crypto(alert),
            frame: None,
            reason: error.to_string(),
        })?;
        let announces = !self.is_announced && self.handshake.is_running();
        self.is_announced |= announces;
        Ok(announces)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(mut bytes) = self.handshake.peer_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(self.side, &mut bytes)?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.handshake.write(buf).map(level)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let (local, remote) = self.handshake.next_keys()?;
        Some(KeyPair { local: Box::new(PacketProtection(local)), remote: Box::new(PacketProtection(remote)) })
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.side == Side::Client && quic::is_retry(orig_dst_cid, &[header, payload].concat())
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.handshake.export(output, label, context).map_err(|_| ExportKeyingMaterialError)
    }
}
