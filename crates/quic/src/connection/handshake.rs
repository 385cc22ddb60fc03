//! The TLS handshake (RFC 9001, 4).

use std::time::Instant;

use tls::quic::QuicFailure;

use super::keys::OneRttKeys;
use super::space::{LongSpace, Space, SpaceId};
use super::{PeerLimits, QuicConnection, QuicEvent};
use crate::error::{CRYPTO_BUFFER_EXCEEDED, CRYPTO_ERROR, TransportError};
use crate::parameters::TransportParameters;
use crate::registration::{EndpointInput, Registration};
use crate::streams::TooManyGaps;

/// The maximum number of bytes of a handshake that arrive out of order.
const CRYPTO_BUFFER: u64 = 1 << 16;

impl QuicConnection {
    /// Processes a CRYPTO frame. An error of the TLS handshake closes the connection here.
    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        id: SpaceId,
        offset: u64,
        data: &[u8],
    ) -> Result<Result<(), TooManyGaps>, TransportError> {
        if id == SpaceId::Application && self.is_server() {
            // Clients send no messages after the handshake. The bytes are dropped.
            return Ok(Ok(()));
        }
        let Some(space) = self.space_mut(id) else { return Ok(Ok(())) };
        let end = offset.saturating_add(data.len() as u64);
        if end > space.crypto_in.read_offset() + CRYPTO_BUFFER {
            return Err(TransportError::new(CRYPTO_BUFFER_EXCEEDED, "too many handshake bytes out of order"));
        }
        match space.crypto_in.insert(offset, data) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(gaps) => return Ok(Err(gaps)),
        }
        while let Some(bytes) = self.space_mut(id).and_then(|space| space.crypto_in.read(usize::MAX)) {
            if let Err(QuicFailure { error, alert }) = self.tls.read(&bytes) {
                self.fail_with(now, CRYPTO_ERROR + u64::from(alert), crate::frame::CRYPTO, error.to_string());
                return Ok(Ok(()));
            }
        }
        self.advance_handshake(now)?;
        Ok(Ok(()))
    }

    /// Takes messages, keys and results from TLS.
    pub(super) fn advance_handshake(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.peer.is_none()
            && let Some(bytes) = self.tls.peer_parameters().map(Box::<[u8]>::from)
            && !self.is_remembered(&bytes)
        {
            self.set_peer(bytes)?;
        }
        if self.is_server() && self.early.is_none() && !self.is_established && self.one_rtt.is_none() {
            self.early = self.tls.early_keys().map(Box::new);
        }
        if !self.is_announced && self.tls.is_running() {
            self.is_announced = true;
            self.events.push_back(QuicEvent::HandshakeData);
        }
        loop {
            let mut messages = Vec::new();
            let keys = self.tls.write(&mut messages);
            let is_done = keys.is_none() && messages.is_empty();
            if !messages.is_empty()
                && let Some(space) = self.space_mut(self.write_level())
            {
                space.crypto_out.push(&messages);
            }
            match keys {
                Some(keys) if self.handshake.is_none() && self.one_rtt.is_none() => {
                    self.handshake = Some(Box::new(LongSpace { space: Space::default(), keys }));
                }
                Some(keys) => self.one_rtt = Some(Box::new(OneRttKeys::new(keys))),
                None if is_done => break,
                None => {}
            }
        }
        if !self.is_established && self.tls.is_established() {
            self.is_established = true;
            self.events.push_back(QuicEvent::Connected);
            if self.is_server() {
                self.confirm(now);
                self.tls.settle();
                self.sends_handshake_done = true;
                self.sends_new_token = true;
            } else {
                self.settle_early();
                self.early = None;
            }
        }
        Ok(())
    }

    /// The space for handshake messages that are written now.
    fn write_level(&self) -> SpaceId {
        match (&self.one_rtt, &self.handshake) {
            (Some(_), _) => SpaceId::Application,
            (None, Some(_)) => SpaceId::Handshake,
            (None, None) => SpaceId::Initial,
        }
    }

    /// Both sides have completed the handshake (RFC 9001, 4.1.2).
    pub(super) fn confirm(&mut self, now: Instant) {
        self.is_confirmed = true;
        self.drop_space(SpaceId::Initial);
        self.drop_space(SpaceId::Handshake);
        self.early = None;
        self.path.is_validated = true;
        self.issue_ids();
        self.restart_idle_timer(now);
    }

    /// Issues connection IDs as long as the peer may have more.
    pub(super) fn issue_ids(&mut self) {
        while self.own_ids.has_room() {
            let id = self.shared.new_id();
            self.own_ids.issue(id);
            self.inputs.push_back(EndpointInput(Registration::Use(id)));
        }
    }

    /// Drops the keys of a space. Its packets count neither as acknowledged nor as lost.
    pub(super) fn drop_space(&mut self, id: SpaceId) {
        let long = match id {
            SpaceId::Initial => self.initial.take(),
            SpaceId::Handshake => self.handshake.take(),
            SpaceId::Application => None,
        };
        let Some(long) = long else { return };
        let next = long.space.sent.next_number();
        let generation = self.path.generation;
        let in_flight = long.space.sent.numbers_below(next).map(|(_, packet)| packet);
        let bytes = in_flight
            .filter(|packet| packet.is_eliciting && packet.path == generation)
            .map(|packet| u64::from(packet.size))
            .sum();
        self.path.remove_in_flight(bytes);
        self.probe_count = 0;
    }

    /// Checks and applies the peer's transport parameters.
    fn set_peer(&mut self, bytes: Box<[u8]>) -> Result<(), TransportError> {
        let peer = TransportParameters::read(&bytes, !self.is_server())?;
        self.check_ids(&peer)?;
        self.streams.set_parameters(&peer);
        if self.is_server() {
            // A client has a socket for each connection, and needs no IDs.
            self.own_ids.set_peer_limit(peer.active_ids);
        }
        self.path.mtu.limit(peer.max_udp_payload);
        if let Some(token) = peer.reset_token {
            self.peer_ids.set_first_token(token);
            self.inputs.push_back(EndpointInput(Registration::ResetToken(Some(token))));
        }
        self.peer = Some(Box::new(PeerLimits {
            bytes,
            max_ack_delay: peer.max_ack_delay,
            ack_delay_exponent: peer.ack_delay_exponent,
            max_idle: peer.max_idle,
            max_udp_payload: peer.max_udp_payload,
        }));
        Ok(())
    }
}
