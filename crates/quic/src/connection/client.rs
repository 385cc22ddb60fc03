//! The client's side of a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tls::quic::{LevelKeys, QuicHandshake};

use super::{ConnectionStart, LostReason, QuicConnection, Side};
use crate::client::{ClientSettings, ConnectFailure, ServerHandshake, TokenPlace, Tokens};
use crate::connection_id::{ConnectionId, OwnId};
use crate::error::{TRANSPORT_PARAMETER_ERROR, TransportError};
use crate::packet::{PacketHeader, VERSION_1};
use crate::parameters::TransportParameters;
use crate::sent::SentFrame;

/// The state that only clients have.
pub(super) struct ClientState {
    /// The server's connection ID that we chose first.
    original_id: ConnectionId,
    /// The ID that the server chose in a Retry packet.
    retry_id: Option<ConnectionId>,
    /// The ID that the server chose in its first packet.
    server_id: Option<ConnectionId>,
    /// The token for Initial packets.
    pub(super) token: Box<[u8]>,
    tokens: Arc<Tokens>,
    place: TokenPlace,
    /// The server's parameters in the session that is resumed.
    remembered: Option<Box<[u8]>>,
    /// Whether early data was offered, and refused.
    offers_early: bool,
    refused_early: bool,
}

/// The cryptographic library has no keys for Initial packets.
const NO_KEYS: tls::Error =
    tls::Error { kind: tls::FailureKind::Handshake, reason: tls::Reason::InternalError, verify: 0 };

impl QuicConnection {
    /// Creates a connection to the server at `remote`. Its first datagrams are those of its handshake, and of early data if that is
    /// possible.
    ///
    /// # Errors
    /// The reasons are those of [`ConnectFailure`].
    pub fn connect(
        settings: &ClientSettings,
        now: Instant,
        remote: SocketAddr,
        handshake: ServerHandshake,
    ) -> Result<Self, ConnectFailure> {
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectFailure::Address);
        }
        let ServerHandshake { connector, name, keep, early } = handshake;
        let parameters = TransportParameters {
            initial_source: Some(ConnectionId::default()),
            ..super::own_parameters(&settings.settings)
        }
        .write();
        let tls = QuicHandshake::connect(&connector, name.as_deref(), parameters.clone(), keep, early)
            .map_err(ConnectFailure::Tls)?;
        let original_id = ConnectionId::from(settings.shared.new_id());
        let keys = LevelKeys::initial(&original_id, true).ok_or(ConnectFailure::Tls(NO_KEYS))?;
        let place = (remote, name);
        let client = ClientState {
            original_id,
            retry_id: None,
            server_id: None,
            token: settings.tokens.take(&place).unwrap_or_default(),
            tokens: settings.tokens.clone(),
            place,
            remembered: None,
            offers_early: false,
            refused_early: false,
        };
        let mut connection = Self::start(ConnectionStart {
            now,
            side: Side::Client(Box::new(client)),
            remote,
            local_ip: None,
            peer_id: original_id,
            addressed_to: ConnectionId::default(),
            own_id: OwnId::default(),
            settings: &settings.settings,
            shared: &settings.shared,
            keys,
            tls,
            parameters,
        });
        connection.path.is_validated = true;
        connection.offer_early();
        // Errors of this side's own messages cannot occur before the peer has sent something.
        let _ = connection.advance_handshake(now);
        Ok(connection)
    }

    pub(super) fn client_mut(&mut self) -> Option<&mut ClientState> {
        match &mut self.side {
            Side::Client(client) => Some(client),
            Side::Server => None,
        }
    }

    pub(super) fn client(&self) -> Option<&ClientState> {
        match &self.side {
            Side::Client(client) => Some(client),
            Side::Server => None,
        }
    }

    /// Prepares early data with the limits that the server announced in the resumed session.
    fn offer_early(&mut self) {
        // The parameters of the session, as long as the server has not sent those of the connection.
        let Some(bytes) = self.tls.peer_parameters().map(Box::<[u8]>::from) else { return };
        let remembered = TransportParameters::read(&bytes, true);
        let keys = self.tls.early_keys();
        let Some(client) = self.client_mut() else { return };
        client.remembered = Some(bytes);
        if let (Ok(remembered), Some(keys)) = (remembered, keys) {
            client.offers_early = true;
            self.early = Some(Box::new(keys));
            self.streams.set_parameters(&remembered);
        }
    }

    /// Whether a client may send early data before the end of the handshake.
    pub fn has_early(&self) -> bool {
        self.client().is_some_and(|client| client.offers_early)
    }

    /// Whether the server has refused early data: it has processed none of the streams so far, and they no longer exist.
    pub fn refused_early(&self) -> bool {
        self.client().is_some_and(|client| client.refused_early)
    }

    /// Whether these parameters are those of an earlier session, which is resumed.
    pub(super) fn is_remembered(&self, parameters: &[u8]) -> bool {
        self.client().is_some_and(|client| client.remembered.as_deref() == Some(parameters))
    }

    /// Follows the server's decision about early data, at the end of the handshake.
    pub(super) fn settle_early(&mut self) {
        let accepts = self.tls.accepts_early();
        let Some(client) = self.client_mut() else { return };
        if !client.offers_early || accepts {
            return;
        }
        client.refused_early = true;
        let next = self.application.sent.next_number();
        let in_flight = self.application.sent.numbers_below(next).map(|(_, packet)| u64::from(packet.size));
        let bytes = in_flight.sum();
        self.path.remove_in_flight(bytes);
        self.application.sent.forget_all();
        self.streams = crate::streams::StreamSet::new(false, &self.settings);
        let peer = self.peer.as_ref().map(|peer| TransportParameters::read(&peer.bytes, true));
        if let Some(Ok(peer)) = peer {
            self.streams.set_parameters(&peer);
        }
    }

    /// Checks the connection IDs in the server's parameters against those in its packets (RFC 9000, 7.3).
    pub(super) fn check_ids(&self, peer: &TransportParameters) -> Result<(), TransportError> {
        let is_valid = match self.client() {
            Some(client) => {
                peer.initial_source == client.server_id
                    && peer.original_destination == Some(client.original_id)
                    && peer.retry_source == client.retry_id
            }
            None => peer.initial_source == Some(self.peer_ids.get(0).id),
        };
        is_valid
            .then_some(())
            .ok_or(TransportError::new(TRANSPORT_PARAMETER_ERROR, "the connection IDs do not match"))
    }

    /// Takes the server's ID from its first packet; returns whether the packet is of this connection.
    pub(super) fn check_source(&mut self, source: ConnectionId) -> bool {
        let Some(client) = self.client_mut() else { return true };
        match client.server_id {
            Some(known) => known == source,
            None => {
                client.server_id = Some(source);
                self.peer_ids.replace_first(source);
                true
            }
        }
    }

    /// Processes a Retry packet (RFC 9000, 17.2.5): the handshake begins again with its token.
    pub(super) fn on_retry(&mut self, datagram: &[u8], header: &PacketHeader) {
        let packet = &datagram[header.start..];
        let Some(client) = self.client_mut() else { return };
        let token = &datagram[header.token.clone()];
        if client.server_id.is_some()
            || client.retry_id.is_some()
            || token.is_empty()
            || !tls::quic::is_retry(&client.original_id, packet)
        {
            return;
        }
        let Some(keys) = LevelKeys::initial(&header.source, true) else { return };
        client.retry_id = Some(header.source);
        client.token = token.into();
        self.peer_ids.replace_first(header.source);
        for id in [super::SpaceId::Initial, super::SpaceId::Application] {
            let Some(space) = self.space(id) else { continue };
            let next = space.sent.next_number();
            let frames: Vec<SentFrame> = space
                .sent
                .numbers_below(next)
                .flat_map(|(_, packet)| packet.frames.iter().copied())
                .collect();
            for frame in &frames {
                self.frame_lost(id, frame);
            }
            if let Some(space) = self.space_mut(id) {
                space.sent.forget_all();
            }
        }
        let in_flight = self.path.in_flight;
        self.path.remove_in_flight(in_flight);
        if let Some(initial) = &mut self.initial {
            initial.keys = keys;
        }
    }

    /// Ends the connection if the server does not know our version of QUIC.
    pub(super) fn on_version_negotiation(&mut self, datagram: &[u8], header: &PacketHeader) {
        let Some(client) = self.client() else { return };
        let mut versions = datagram[header.number_at..].chunks_exact(4);
        let knows_ours = versions.any(|version| version == VERSION_1.to_be_bytes());
        if client.server_id.is_none() && client.retry_id.is_none() && !knows_ours {
            self.end(Some(LostReason::Reset));
        }
    }

    /// Keeps a token for the next connection.
    pub(super) fn on_new_token(&mut self, token: &[u8]) {
        if let Some(client) = self.client() {
            client.tokens.put(&client.place, token);
        }
    }
}
