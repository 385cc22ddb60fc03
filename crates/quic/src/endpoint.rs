//! The endpoint of one socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use tls::Keep;
use tls::quic::QuicHandshake;

use crate::connection::{ClientStart, QuicConnection};
use crate::connection_id::{CONNECTION_ID_LENGTH, ConnectionId, OwnId, SocketIndex};
use crate::error::{CONNECTION_REFUSED, INVALID_TOKEN, PROTOCOL_VIOLATION};
use crate::frame;
use crate::keys::{SharedKeys, fill_random};
use crate::packet::{self, LONG_HEADER, PacketHeader, PacketKind};
use crate::registration::{EndpointInput, EndpointShared, Registration};
use crate::settings::Settings;
use crate::token::TokenCheck;
use crate::transmit::{Ecn, Transmit};
use crate::versions;

/// The smallest datagram with a client's first packet (RFC 9000, 14.1).
const DATAGRAM_MIN: usize = 1200;

/// The shortest connection ID that a client may choose for its first packet (RFC 9000, 7.2).
const CLIENT_ID_MIN: usize = 8;

/// The smallest datagram that is answered with a stateless reset, which is shorter, so that two endpoints do not answer each other forever
/// (RFC 9000, 10.3.3).
const RESET_DATAGRAM_MIN: usize = 43;

/// The size of a stateless reset: a short header, random bytes, and the token.
const RESET_LENGTH: usize = 42;

/// Identifies a connection within its endpoint: small, dense, and reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionHandle(pub usize);

/// Demultiplexes the datagrams of a socket.
pub struct Endpoint {
    settings: Arc<Settings>,
    shared: Arc<EndpointShared>,
    /// The IDs that we have issued, and those that clients chose for their first packets.
    own_ids: HashMap<OwnId, usize, RandomState>,
    client_ids: HashMap<ConnectionId, usize, RandomState>,
    /// The tokens with which peers reset connections.
    reset_tokens: HashMap<[u8; 16], usize, RandomState>,
    connections: Slab<Registered>,
}

/// The IDs and the token of a connection.
#[derive(Debug, Default)]
struct Registered {
    own_ids: smallvec::SmallVec<[OwnId; 2]>,
    client_id: Option<ConnectionId>,
    reset_token: Option<[u8; 16]>,
}

/// The kind of a datagram.
pub enum Demultiplexed {
    /// Nothing of ours, or a duplicate: dropped.
    Nothing,
    /// A datagram for a connection, to be passed to [`QuicConnection::receive`].
    ForConnection(ConnectionHandle),
    /// The peer of a connection has lost its state: [`QuicConnection::receive_reset`].
    Reset(ConnectionHandle),
    /// The first datagram of a client. To be passed to [`accept`](Endpoint::accept), [`retry`](Endpoint::retry) or
    /// [`refuse`](Endpoint::refuse), or dropped.
    NewClient(NewClient),
    /// A datagram that is answered without a connection (Version Negotiation, stateless reset).
    Reply(Transmit),
}

/// A client with its first datagram.
pub struct NewClient {
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    destination: ConnectionId,
    source: ConnectionId,
    token: TokenCheck,
}

impl NewClient {
    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The address that the datagram was sent to.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.local_ip
    }

    /// Whether a token proves the client's address.
    pub fn is_validated(&self) -> bool {
        matches!(self.token, TokenCheck::Known | TokenCheck::Retried(_))
    }

    /// Whether the client may be sent a Retry packet: once at most.
    pub fn may_retry(&self) -> bool {
        !matches!(self.token, TokenCheck::Retried(_) | TokenCheck::Invalid)
    }
}

/// A client that was not accepted.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub reason: String,
    /// The answer in the caller's buffer.
    pub reply: Option<Transmit>,
}

impl Endpoint {
    /// Creates the endpoint of the socket at `index` of its group.
    pub fn new(keys: &SharedKeys, index: SocketIndex, settings: &Settings) -> Self {
        Self {
            settings: Arc::new(settings.clone()),
            shared: Arc::new(EndpointShared::new(keys, index)),
            own_ids: HashMap::default(),
            client_ids: HashMap::default(),
            reset_tokens: HashMap::default(),
            connections: Slab::new(),
        }
    }

    /// Decides to which connection a datagram belongs. A reply is appended to `out`.
    pub fn demultiplex(
        &mut self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Demultiplexed {
        if let Some(length) = versions::negotiate(datagram, out) {
            return Demultiplexed::Reply(reply(remote, local_ip, length));
        }
        let Some(destination) = packet::destination(datagram) else { return Demultiplexed::Nothing };
        let own = OwnId::try_from(&*destination).ok().and_then(|id| self.own_ids.get(&id));
        if let Some(&handle) = own.or_else(|| self.client_ids.get(&destination)) {
            return Demultiplexed::ForConnection(ConnectionHandle(handle));
        }
        if datagram[0] & LONG_HEADER != 0 {
            let Some(client) = self.new_client(remote, local_ip, ecn, datagram) else {
                return Demultiplexed::Nothing;
            };
            if client.destination.len() < CLIENT_ID_MIN {
                let ids = [&client.destination, &client.source];
                let length = write_refusal(ids, PROTOCOL_VIOLATION, out);
                return length.map_or(Demultiplexed::Nothing, |length| {
                    Demultiplexed::Reply(reply(remote, local_ip, length))
                });
            }
            return Demultiplexed::NewClient(client);
        }
        if let Some(token) = datagram.last_chunk::<16>()
            && let Some(&handle) = self.reset_tokens.get(token)
        {
            return Demultiplexed::Reset(ConnectionHandle(handle));
        }
        self.stateless_reset(remote, local_ip, &destination, datagram.len(), out)
    }

    /// Reads the first datagram of a client.
    fn new_client(
        &self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: &[u8],
    ) -> Option<NewClient> {
        let header = PacketHeader::read(datagram, 0, CONNECTION_ID_LENGTH)?;
        if header.kind != PacketKind::Initial || datagram.len() < DATAGRAM_MIN {
            return None;
        }
        let token = self.shared.keys.check_token(&datagram[header.token], remote, &header.destination);
        let (destination, source) = (header.destination, header.source);
        Some(NewClient { remote, local_ip, ecn, destination, source, token })
    }

    fn stateless_reset(
        &self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        destination: &[u8],
        received: usize,
        out: &mut Vec<u8>,
    ) -> Demultiplexed {
        if received < RESET_DATAGRAM_MIN {
            return Demultiplexed::Nothing;
        }
        let start = out.len();
        out.resize(start + RESET_LENGTH, 0);
        fill_random(&mut out[start..]);
        out[start] = out[start] & 0x3f | packet::FIXED_BIT;
        let token = self.shared.keys.reset_token(destination);
        out[start + RESET_LENGTH - token.len()..].copy_from_slice(&token);
        Demultiplexed::Reply(reply(remote, local_ip, RESET_LENGTH))
    }

    /// Creates the connection of a client, and processes its first datagram. Its handshake runs with the certificates of `acceptor` and
    /// keeps the data in `keep`; `place` is the slot reserved for it.
    ///
    /// # Errors
    /// The first datagram is not valid. A reply is appended to `out`.
    #[expect(clippy::too_many_arguments, reason = "a client has many sides")]
    pub fn accept(
        &mut self,
        now: Instant,
        client: NewClient,
        datagram: &mut [u8],
        acceptor: &Arc<tls::Acceptor>,
        keep: Keep,
        place: Option<tls::ConnectionPermit>,
        out: &mut Vec<u8>,
    ) -> Result<(ConnectionHandle, QuicConnection), Refused> {
        let is_validated = client.is_validated();
        let NewClient { remote, local_ip, ecn, destination, source, token } = client;
        let refused = |reason: &str, reply| Err(Refused { reason: reason.into(), reply });
        if token == TokenCheck::Invalid {
            let length = write_refusal([&destination, &source], INVALID_TOKEN, out);
            return refused("invalid token", length.map(|length| reply(remote, local_ip, length)));
        }
        let before_retry = match token {
            TokenCheck::Retried(original) => Some(original),
            _ => None,
        };
        let start = ClientStart { remote, local_ip, destination, source, before_retry, is_validated };
        let own_id = self.shared.new_id();
        let handshake = |parameters| QuicHandshake::accept(acceptor, parameters, keep, place);
        let connection = QuicConnection::accept(now, &start, own_id, &self.settings, &self.shared, handshake);
        let Some(mut connection) = connection else { return refused("no keys", None) };
        if !connection.receive(now, remote, local_ip, ecn, datagram) {
            return refused("the first packet is not authentic", None);
        }
        let registered = Registered {
            own_ids: smallvec::SmallVec::from_slice(&[own_id]),
            client_id: Some(destination),
            reset_token: None,
        };
        let handle = self.connections.insert(registered);
        self.own_ids.insert(own_id, handle);
        self.client_ids.insert(destination, handle);
        Ok((ConnectionHandle(handle), connection))
    }

    /// Appends a Retry packet to `out`: the client has to prove its address with the token in it.
    pub fn retry(&mut self, client: &NewClient, out: &mut Vec<u8>) -> Option<Transmit> {
        let start = out.len();
        let id = self.shared.new_id();
        let token = self.shared.keys.retry_token(client.remote, &client.destination, &id)?;
        packet::write_long(out, PacketKind::Retry, &client.source, &id, &token);
        let tag = tls::quic::retry_tag(&client.destination, &out[start..]);
        out.extend_from_slice(&tag);
        Some(reply(client.remote, client.local_ip, out.len() - start))
    }

    /// Appends a CONNECTION_CLOSE packet with the error CONNECTION_REFUSED to `out`.
    pub fn refuse(&mut self, client: &NewClient, out: &mut Vec<u8>) -> Option<Transmit> {
        let ids = [&client.destination, &client.source];
        let length = write_refusal(ids, CONNECTION_REFUSED, out)?;
        Some(reply(client.remote, client.local_ip, length))
    }

    /// Processes the input of a connection.
    pub fn handle(&mut self, handle: ConnectionHandle, input: EndpointInput) {
        let ConnectionHandle(handle) = handle;
        let Some(known) = self.connections.get_mut(handle) else { return };
        match input.0 {
            Registration::Use(id) => {
                known.own_ids.push(id);
                self.own_ids.insert(id, handle);
            }
            Registration::Forget(id) => {
                if known.client_id == Some(id) {
                    known.client_id = None;
                    self.client_ids.remove(&id);
                } else if let Ok(id) = OwnId::try_from(&*id) {
                    known.own_ids.retain(|own| *own != id);
                    self.own_ids.remove(&id);
                }
            }
            Registration::ResetToken(token) => {
                if let Some(old) = std::mem::replace(&mut known.reset_token, token) {
                    self.reset_tokens.remove(&old);
                }
                if let Some(token) = token {
                    self.reset_tokens.insert(token, handle);
                }
            }
            Registration::Drained => {
                let gone = self.connections.remove(handle);
                for id in &gone.own_ids {
                    self.own_ids.remove(id);
                }
                if let Some(id) = gone.client_id {
                    self.client_ids.remove(&id);
                }
                if let Some(token) = gone.reset_token {
                    self.reset_tokens.remove(&token);
                }
            }
        }
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }
}

fn reply(destination: SocketAddr, source: Option<IpAddr>, length: usize) -> Transmit {
    Transmit { destination, source, ecn: None, length, segment: None }
}

/// Appends an Initial packet that closes the connection before it exists; returns its length.
fn write_refusal([destination, source]: [&ConnectionId; 2], code: u64, out: &mut Vec<u8>) -> Option<usize> {
    const TAG: usize = 16;
    let keys = tls::quic::LevelKeys::initial(destination, false)?.local;
    let start = out.len();
    let length_at = packet::write_long(out, PacketKind::Initial, source, destination, &[]);
    let number_at = out.len();
    packet::write_number(out, start, 0, 2);
    let payload_at = out.len();
    frame::write_close(out, code, Some(0), &[], 0);
    out.resize(out.len() + TAG, 0);
    // Cannot truncate: the packet is short.
    let length = (out.len() - number_at) as u16 | 0x4000;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    keys.packet.seal(0, &mut out[start..], payload_at - start).ok()?;
    keys.header.protect(number_at - start, &mut out[start..]);
    Some(out.len() - start)
}
