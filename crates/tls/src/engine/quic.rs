//! rustls handshakes and packet protection for QUIC (RFC 9001).

use std::sync::LazyLock;

use aws_lc_rs::aead;
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::quic::{
    ClientConnection, Connection, HeaderProtectionKey, KeyChange, PacketKey as EnginePacketKey, Secrets,
    ServerConnection, Suite, Version,
};

use super::{HandshakeFacts, error_of, session_extras, side};
use crate::error::{Error, Reason};

/// The suite of Initial packets (RFC 9001, 5.2).
static INITIAL: LazyLock<Option<Suite>> =
    LazyLock::new(|| cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite());

/// Keys that protect the headers of packets (RFC 9001, 5.4).
pub struct HeaderKey(Box<dyn HeaderProtectionKey>);

/// Keys that protect the payload of packets (RFC 9001, 5.3).
pub struct PacketKey(Box<dyn EnginePacketKey>);

/// The keys of one direction.
pub struct DirectionKeys {
    /// For headers.
    pub header: HeaderKey,
    /// For payloads.
    pub packet: PacketKey,
}

/// The keys of an encryption level, in both directions.
pub struct LevelKeys {
    /// For sent packets.
    pub local: DirectionKeys,
    /// For received packets.
    pub remote: DirectionKeys,
}

/// The packet could not be authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forged;

impl HeaderKey {
    /// Removes the protection from the header of `packet`. The packet number starts at `number_at`. A packet that is too short is
    /// left unchanged, and fails to decrypt later.
    pub fn unprotect(&self, number_at: usize, packet: &mut [u8]) {
        let Some((first, number, sample)) = parts(number_at, packet, self.0.sample_len()) else { return };
        let _ = self.0.decrypt_in_place(sample, first, number);
    }

    /// Adds the protection.
    pub fn protect(&self, number_at: usize, packet: &mut [u8]) {
        let Some((first, number, sample)) = parts(number_at, packet, self.0.sample_len()) else { return };
        let _ = self.0.encrypt_in_place(sample, first, number);
    }

    /// Returns the number of bytes that are sampled.
    pub fn sample_length(&self) -> usize {
        self.0.sample_len()
    }
}

/// Splits `packet` into its first byte, the four bytes of the packet number field, and the sample after them.
fn parts(number_at: usize, packet: &mut [u8], length: usize) -> Option<(&mut u8, &mut [u8], &[u8])> {
    let (first, rest) = packet.split_first_mut()?;
    let (number, rest) = rest.get_mut(number_at.checked_sub(1)?..)?.split_at_mut_checked(4)?;
    Some((first, number, rest.get(..length)?))
}

impl PacketKey {
    /// Encrypts `packet` in place. The first `header` bytes are authenticated only; the last [`tag_length`](Self::tag_length) bytes
    /// are room for the tag.
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn seal(&self, number: u64, packet: &mut [u8], header: usize) -> Result<(), Forged> {
        let (header, rest) = packet.split_at_mut_checked(header).ok_or(Forged)?;
        let at = rest.len().checked_sub(self.tag_length()).ok_or(Forged)?;
        let (payload, room) = rest.split_at_mut(at);
        let tag = self.0.encrypt_in_place(number, header, payload).map_err(|_| Forged)?;
        room.copy_from_slice(tag.as_ref());
        Ok(())
    }

    /// Decrypts `payload` in place. Returns the length of the plaintext.
    ///
    /// # Errors
    /// The packet is forged.
    pub fn open(&self, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, Forged> {
        self.0.decrypt_in_place(number, header, payload).map(|plain| plain.len()).map_err(|_| Forged)
    }

    /// Returns the length of the tag.
    pub fn tag_length(&self) -> usize {
        self.0.tag_len()
    }

    /// Returns how many packets may be encrypted with this key (RFC 9001, 6.6).
    pub fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    /// Returns how many forged packets end the connection (RFC 9001, 6.6).
    pub fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

impl LevelKeys {
    fn of(keys: rustls::quic::Keys) -> Self {
        let direction = |keys: rustls::quic::DirectionalKeys| DirectionKeys {
            header: HeaderKey(keys.header),
            packet: PacketKey(keys.packet),
        };
        Self { local: direction(keys.local), remote: direction(keys.remote) }
    }

    /// Returns the keys of Initial packets, which anybody can derive from the first connection ID that the client chose.
    pub fn initial(connection_id: &[u8], is_client: bool) -> Option<Self> {
        let side = if is_client { Side::Client } else { Side::Server };
        INITIAL.map(|suite| Self::of(suite.keys(connection_id, side, Version::V1)))
    }
}

/// Returns the integrity tag of a Retry packet (RFC 9001, 5.8), which `packet` lacks.
pub fn retry_tag(original_id: &[u8], packet: &[u8]) -> [u8; 16] {
    const KEY: [u8; 16] =
        [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e];
    const NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let mut pseudo = Vec::with_capacity(1 + original_id.len() + packet.len());
    // Connection IDs have at most 20 bytes.
    pseudo.push(original_id.len() as u8);
    pseudo.extend_from_slice(original_id);
    pseudo.extend_from_slice(packet);
    let sealed = aead::UnboundKey::new(&aead::AES_128_GCM, &KEY).and_then(|key| {
        let nonce = aead::Nonce::assume_unique_for_key(NONCE);
        aead::LessSafeKey::new(key).seal_in_place_separate_tag(nonce, aead::Aad::from(pseudo), &mut [])
    });
    sealed.ok().and_then(|tag| tag.as_ref().try_into().ok()).unwrap_or_default()
}

/// Whether `packet` is a genuine Retry packet, with its integrity tag at the end, in answer to the ID that the client chose.
pub fn is_retry(original_id: &[u8], packet: &[u8]) -> bool {
    let tagged = packet.len().checked_sub(aead::AES_128_GCM.tag_len()).map(|at| packet.split_at(at));
    tagged.is_some_and(|(packet, tag)| retry_tag(original_id, packet) == *tag)
}

/// One side of a handshake that rustls performs.
pub(crate) struct QuicEngine {
    /// Gone once nothing but key updates is left to do.
    connection: Option<Box<Connection>>,
    next: Option<Box<Secrets>>,
}

impl QuicEngine {
    /// Starts the server's side of a handshake; `parameters` are our transport parameters.
    pub(crate) fn server(config: &side::RustlsServerSide, parameters: Vec<u8>) -> Result<Self, Error> {
        let connection = ServerConnection::new(config.0.clone(), Version::V1, parameters);
        let connection = Box::new(Connection::Server(connection.map_err(|error| error_of(&error))?));
        Ok(Self { connection: Some(connection), next: None })
    }

    /// Starts the client's side with `name` as SNI, with `early` data if an earlier session allows it.
    pub(crate) fn client(
        config: &side::RustlsClientSide,
        name: Option<&str>,
        early: bool,
        parameters: Vec<u8>,
    ) -> Result<Self, Error> {
        let (config, name) = config.parts(name, early);
        let connection = ClientConnection::new(config, Version::V1, name, parameters);
        let connection = Box::new(Connection::Client(connection.map_err(|error| error_of(&error))?));
        Ok(Self { connection: Some(connection), next: None })
    }

    pub(crate) fn is_client(&self) -> bool {
        matches!(self.connection.as_deref(), Some(Connection::Client(_)))
    }

    /// Whether the server has accepted early data.
    pub(crate) fn accepts_early(&self) -> bool {
        matches!(self.connection.as_deref(), Some(Connection::Client(client)) if client.is_early_data_accepted())
    }

    /// Processes handshake messages. An error includes the number of the alert to send.
    pub(crate) fn read(&mut self, messages: &[u8]) -> Result<(), (Error, u8)> {
        const INTERNAL_ERROR: u8 = 80;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let read = connection.read_hs(messages);
        if let Some(group) = connection.negotiated_key_exchange_group() {
            session_extras::set_group(group.name().into());
        }
        let alert = connection.alert().map_or(INTERNAL_ERROR, u8::from);
        read.map_err(|error| (error_of(&error), alert))
    }

    /// Appends handshake messages to `out`. New keys protect the messages of the next call.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> Option<LevelKeys> {
        Some(LevelKeys::of(match self.connection.as_mut()?.write_hs(out)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(Box::new(next));
                keys
            }
        }))
    }

    pub(crate) fn peer_parameters(&self) -> Option<&[u8]> {
        self.connection.as_ref()?.quic_transport_parameters()
    }

    pub(crate) fn early_keys(&self) -> Option<DirectionKeys> {
        let keys = self.connection.as_ref()?.zero_rtt_keys()?;
        Some(DirectionKeys { header: HeaderKey(keys.header), packet: PacketKey(keys.packet) })
    }

    pub(crate) fn next_keys(&mut self) -> Option<(PacketKey, PacketKey)> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some((PacketKey(keys.local), PacketKey(keys.remote)))
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_handshaking())
    }

    /// Returns the negotiated parameters; an error before they are known, and after [`settle`](Self::settle).
    pub(crate) fn facts(&self) -> Result<HandshakeFacts, Error> {
        let connection = self.connection.as_ref();
        connection.map_or(Err(Error::handshake(Reason::InternalError)), |one| HandshakeFacts::of(one))
    }

    /// Drops the state of the handshake. Keys can still be updated.
    pub(crate) fn settle(&mut self) {
        self.connection = None;
    }
}
