//! Received datagrams.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::frames::space_of;
use super::keys::Opened;
use super::path::DatagramOrigin;
use super::space::{ACK_DELAY_MAX, SpaceId};
use super::{LostReason, QuicConnection, State};
use crate::connection_id::CONNECTION_ID_LENGTH;
use crate::error::{AEAD_LIMIT_REACHED, KEY_UPDATE_ERROR, TransportError};
use crate::frame::{Frame, Frames};
use crate::packet::{self, KEY_PHASE, PacketHeader, PacketKind, RESERVED_LONG, RESERVED_SHORT};
use crate::transmit::Ecn;

/// The length of the sample for header protection, and the largest packet number before it.
const SAMPLE_END: usize = 4 + 16;

/// A datagram and its addresses.
struct Arrival<'a> {
    now: Instant,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    datagram: &'a mut [u8],
}

/// A decrypted packet: its number, the range of its payload, and whether it uses the keys of the next phase.
struct Decrypted {
    number: u64,
    payload: std::ops::Range<usize>,
    is_updated: bool,
}

impl QuicConnection {
    /// Processes a datagram, which is decrypted in place. Returns whether any packet of it belonged to the connection.
    pub fn receive(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        datagram: &mut [u8],
    ) -> bool {
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += datagram.len() as u64;
        let is_same = remote == self.path.remote;
        // Clients may move once the handshake is confirmed (RFC 9000, 9).
        let may_move = self.is_server() && self.is_confirmed && self.settings.migration;
        if !is_same && !may_move {
            return false;
        }
        match &mut self.state {
            State::Open => {}
            State::Closing(reason) => {
                // Fewer and fewer packets are answered.
                reason.received += 1;
                reason.is_pending |= reason.received.is_power_of_two();
            }
            State::Draining | State::Drained => return true,
        }
        if is_same {
            self.path.note_received(datagram.len());
        }
        let own_length = if self.is_server() { CONNECTION_ID_LENGTH } else { 0 };
        let mut arrival = Arrival { now, remote, local_ip, ecn, datagram };
        let mut start = 0;
        let mut is_known = false;
        let mut first = None;
        while start < arrival.datagram.len() {
            let Some(header) = PacketHeader::read(arrival.datagram, start, own_length) else {
                break;
            };
            // Packets of one datagram have the same destination.
            if *first.get_or_insert(header.destination) != header.destination {
                break;
            }
            start = header.end;
            match header.kind {
                PacketKind::Retry => self.on_retry(arrival.datagram, &header),
                PacketKind::VersionNegotiation => self.on_version_negotiation(arrival.datagram, &header),
                _ => {}
            }
            is_known |= self.process_packet(&mut arrival, &header);
        }
        is_known
    }

    /// Processes a packet; returns whether it was authentic.
    fn process_packet(&mut self, arrival: &mut Arrival<'_>, header: &PacketHeader) -> bool {
        let now = arrival.now;
        let Some(Decrypted { number, payload, is_updated }) = self.decrypt(arrival, header) else {
            return false;
        };
        let id = space_of(header.kind);
        if id != SpaceId::Application && !self.check_source(header.source) {
            return false;
        }
        let reserved = if header.kind == PacketKind::OneRtt { RESERVED_SHORT } else { RESERVED_LONG };
        if arrival.datagram[header.start] & reserved != 0 {
            self.fail(now, TransportError::violation("the reserved bits are set"));
            return true;
        }
        let Some(space) = self.space_mut(id) else { return true };
        if space.received.contains(number) {
            return true;
        }
        if self.is_closed() {
            self.look_for_close(now, &arrival.datagram[payload]);
            return true;
        }
        if is_updated {
            self.update_keys(now, true);
        }
        self.addressed_to = header.destination;
        let Arrival { remote, local_ip, .. } = *arrival;
        let origin = DatagramOrigin { remote, local_ip, length: arrival.datagram.len() };
        let processed = self.process_frames(now, header.kind, &arrival.datagram[payload], origin);
        let facts = match processed {
            Ok(facts) => facts,
            Err(error) => {
                self.fail(now, error);
                return true;
            }
        };
        if facts.is_dropped || matches!(self.state, State::Draining | State::Drained) {
            return true;
        }
        let expected = self.space(id).map_or(0, |space| space.received.expected());
        let delays = id == SpaceId::Application && self.is_confirmed;
        if let Some(space) = self.space_mut(id) {
            space.received.insert(now, number, facts.is_eliciting, arrival.ecn, delays);
        }
        if self.is_closed() {
            return true;
        }
        self.has_sent_since_received = false;
        self.restart_idle_timer(now);
        if header.kind == PacketKind::Handshake && self.is_server() {
            // The client has received our Initial packets.
            self.path.is_validated = true;
            self.drop_space(SpaceId::Initial);
        }
        let has_moved = remote != self.path.remote;
        if has_moved && !facts.is_probing && number >= expected && header.kind == PacketKind::OneRtt {
            let has_new_id = self.path.destination != Some(header.destination);
            self.migrate(now, remote, local_ip, has_new_id);
            self.path.note_received(arrival.datagram.len());
        }
        if remote == self.path.remote {
            self.path.destination = Some(header.destination);
        }
        true
    }

    /// Looks for the peer's close in a packet that arrives after ours.
    fn look_for_close(&mut self, now: Instant, payload: &[u8]) {
        let mut frames = Frames::new(payload);
        while let Some(Ok((_, frame))) = frames.next() {
            if let Frame::Close { code } | Frame::ApplicationClose { code } = frame {
                return self.closed_by_peer(now, LostReason::Closed(code));
            }
        }
    }

    /// Removes the protection of a packet. `None` if it is not authentic, or its keys are missing.
    fn decrypt(&mut self, arrival: &mut Arrival<'_>, header: &PacketHeader) -> Option<Decrypted> {
        if header.number_at + SAMPLE_END > header.end {
            self.check_reset(arrival, header);
            return None;
        }
        let (start, number_at) = (header.start, header.number_at - header.start);
        let expected = self.space(space_of(header.kind))?.received.expected();
        let bytes = &mut arrival.datagram[header.start..header.end];
        match header.kind {
            PacketKind::Initial => self.initial.as_ref()?.keys.remote.header.unprotect(number_at, bytes),
            PacketKind::Handshake => self.handshake.as_ref()?.keys.remote.header.unprotect(number_at, bytes),
            PacketKind::ZeroRtt => self.early.as_ref()?.header.unprotect(number_at, bytes),
            // Packets that arrive before the end of the handshake are dropped: the client sends them again.
            PacketKind::OneRtt if self.is_established => {
                self.one_rtt.as_ref()?.header().unprotect(number_at, bytes);
            }
            PacketKind::OneRtt | PacketKind::Retry | PacketKind::VersionNegotiation => return None,
        }
        let length = usize::from(bytes[0] & 0b11) + 1;
        let (head, payload) = bytes.split_at_mut(number_at + length);
        let truncated = head[number_at..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let number = packet::expand(truncated, length, expected);
        let payload_at = start + head.len();
        let range = |length: usize| payload_at..payload_at + length;
        let long_keys = match header.kind {
            PacketKind::Initial => &self.initial.as_ref()?.keys.remote.packet,
            PacketKind::Handshake => &self.handshake.as_ref()?.keys.remote.packet,
            PacketKind::ZeroRtt => &self.early.as_ref()?.packet,
            _ => {
                let phase = head[0] & KEY_PHASE != 0;
                let keys = self.one_rtt.as_mut()?;
                let opened = keys.open(arrival.now, phase, number, head, payload, &mut self.tls);
                let (length, is_updated) = match opened {
                    Opened::Payload(length) => (length, false),
                    Opened::Updated(length) => (length, true),
                    Opened::Forged => {
                        self.on_forged(arrival, header);
                        return None;
                    }
                    Opened::TooEarly => {
                        self.fail(
                            arrival.now,
                            TransportError::new(KEY_UPDATE_ERROR, "keys updated too early"),
                        );
                        return None;
                    }
                };
                return Some(Decrypted { number, payload: range(length), is_updated });
            }
        };
        let length = long_keys.open(number, head, payload).ok()?;
        Some(Decrypted { number, payload: range(length), is_updated: false })
    }

    fn on_forged(&mut self, arrival: &Arrival<'_>, header: &PacketHeader) {
        self.check_reset(arrival, header);
        if self.one_rtt.as_ref().is_some_and(|keys| keys.is_worn_out()) {
            self.fail(arrival.now, TransportError::new(AEAD_LIMIT_REACHED, "too many forged packets"));
        }
    }

    /// Ends the connection if a datagram is the peer's stateless reset.
    fn check_reset(&mut self, arrival: &Arrival<'_>, header: &PacketHeader) {
        let token = self.peer_ids.get(self.path.id).reset_token;
        let end = arrival.datagram.last_chunk::<16>();
        if header.start == 0 && header.kind == PacketKind::OneRtt && token.is_some() && token.as_ref() == end
        {
            self.end(Some(LostReason::Reset));
        }
    }

    /// The endpoint has found the peer's stateless reset.
    pub fn receive_reset(&mut self) {
        self.end(Some(LostReason::Reset));
    }

    /// Begins the next key phase.
    pub(super) fn update_keys(&mut self, now: Instant, by_peer: bool) {
        let keep_until = now + (self.path.rtt.probe_timeout() + ACK_DELAY_MAX) * 3;
        let number = self.application.sent.next_number();
        if let Some(keys) = &mut self.one_rtt {
            keys.update(number, keep_until, &mut self.tls, by_peer);
        }
    }
}
