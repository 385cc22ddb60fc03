//! Received frames.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::path::{DatagramOrigin, PathResponse};
use super::space::SpaceId;
use super::{LostReason, QuicConnection};
use crate::error::TransportError;
use crate::frame::{Frame, Frames};
use crate::packet::PacketKind;
use crate::registration::{EndpointInput, Registration};
use crate::streams::{StreamFault, TooManyGaps};
use crate::varint;

/// The number of challenges that wait for their answers. Later ones replace earlier ones.
const RESPONSES_MAX: usize = 4;

/// The number of ACK frames of a packet that are processed.
const ACKNOWLEDGEMENTS_MAX: u32 = 2;

/// The contents of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketFacts {
    /// Whether the peer expects an acknowledgement.
    pub(super) is_eliciting: bool,
    /// Whether all frames are those of path validation, which do not move the connection to another path.
    pub(super) is_probing: bool,
    /// Whether the packet is to be dropped, so that the peer sends it again.
    pub(super) is_dropped: bool,
}

/// Returns whether a frame may be part of a packet (RFC 9000, 12.4).
fn is_permitted(frame: &Frame<'_>, kind: PacketKind) -> bool {
    use PacketKind::{Handshake, Initial, ZeroRtt};
    match frame {
        Frame::Padding | Frame::Ping | Frame::Close { .. } => true,
        Frame::Ack(_) | Frame::Crypto { .. } => kind != ZeroRtt,
        Frame::NewToken(_) | Frame::RetireConnectionId(_) | Frame::PathResponse(_) | Frame::HandshakeDone => {
            !matches!(kind, Initial | Handshake | ZeroRtt)
        }
        _ => !matches!(kind, Initial | Handshake),
    }
}

impl QuicConnection {
    /// Processes the frames of a packet.
    pub(super) fn process_frames(
        &mut self,
        now: Instant,
        kind: PacketKind,
        payload: &[u8],
        origin: DatagramOrigin,
    ) -> Result<PacketFacts, TransportError> {
        if payload.is_empty() {
            return Err(TransportError::violation("a packet without frames"));
        }
        let mut facts = PacketFacts { is_probing: true, ..PacketFacts::default() };
        let mut frames = Frames::new(payload);
        let mut acknowledgements = 0;
        let mut has_challenge = false;
        while let Some(next) = frames.next() {
            let (number, frame) = next?;
            // One frame has all acknowledgements, and each takes time.
            acknowledgements += u32::from(matches!(frame, Frame::Ack(_)));
            if acknowledgements > ACKNOWLEDGEMENTS_MAX && matches!(frame, Frame::Ack(_)) {
                continue;
            }
            if !is_permitted(&frame, kind) {
                let error = TransportError::violation("a frame is not permitted in packets of this type");
                return Err(error.in_frame(number));
            }
            facts.is_eliciting |= !matches!(
                frame,
                Frame::Padding | Frame::Ack(_) | Frame::Close { .. } | Frame::ApplicationClose { .. }
            );
            facts.is_probing &= matches!(
                frame,
                Frame::Padding | Frame::PathChallenge(_) | Frame::PathResponse(_) | Frame::NewConnectionId(_)
            );
            let is_challenge = matches!(frame, Frame::PathChallenge(_));
            let is_foreign = origin.remote != self.path.remote;
            if is_challenge && std::mem::replace(&mut has_challenge, true) && is_foreign {
                // Each answer to another address takes a datagram. Several for one received datagram would be amplification.
                self.stats.control_frames += 1;
                continue;
            }
            let result = self.process_frame(now, kind, frame, origin);
            facts.is_dropped |= result.map_err(|error| error.in_frame(number))?;
            if self.is_closed() {
                break;
            }
        }
        Ok(facts)
    }

    /// Processes a frame; returns whether its packet is to be dropped.
    fn process_frame(
        &mut self,
        now: Instant,
        kind: PacketKind,
        frame: Frame<'_>,
        origin: DatagramOrigin,
    ) -> Result<bool, TransportError> {
        let space = space_of(kind);
        match frame {
            Frame::Padding => {}
            Frame::Ping => self.stats.control_frames += 1,
            Frame::Ack(ack) => self.on_ack(now, space, &ack)?,
            Frame::Stream(frame) => {
                self.stats.note(&frame);
                return match self.streams.process(&frame) {
                    Ok(()) => Ok(false),
                    Err(StreamFault::TooManyGaps) => Ok(self.note_gaps()),
                    Err(StreamFault::Violation(error)) => Err(error),
                };
            }
            Frame::Crypto { offset, data } => {
                if self.on_crypto(now, space, offset, data)? == Err(TooManyGaps) {
                    return Ok(self.note_gaps());
                }
            }
            Frame::NewConnectionId(new) => {
                self.stats.control_frames += 1;
                self.peer_ids.insert(&new)?;
                self.follow_retirement();
            }
            Frame::RetireConnectionId(sequence) => {
                self.stats.control_frames += 1;
                if !self.is_server() {
                    return Err(TransportError::violation("a connection ID was retired that was not issued"));
                }
                let used = self.addressed_to;
                if let Some(id) = self.own_ids.retire(sequence, &used)? {
                    self.inputs.push_back(EndpointInput(Registration::Forget(id.into())));
                    self.issue_ids();
                }
            }
            Frame::PathChallenge(data) => {
                self.stats.control_frames += 1;
                if self.responses.len() == RESPONSES_MAX {
                    self.responses.remove(0);
                }
                self.responses.push(PathResponse { data, origin });
            }
            Frame::PathResponse(data) => self.on_path_response(data),
            Frame::Close { code } => self.closed_by_peer(now, LostReason::Closed(code)),
            Frame::ApplicationClose { code } => self.closed_by_peer(now, LostReason::Application(code)),
            Frame::NewToken(_) | Frame::HandshakeDone if self.is_server() => {
                return Err(TransportError::violation("a client sent a frame of servers"));
            }
            Frame::NewToken(token) => self.on_new_token(token),
            Frame::HandshakeDone if self.is_established && !self.is_confirmed => self.confirm(now),
            Frame::HandshakeDone => {}
        }
        Ok(false)
    }

    fn note_gaps(&mut self) -> bool {
        self.stats.gap_limit += 1;
        true
    }

    /// Uses another ID of the peer if it has retired the one in use.
    fn follow_retirement(&mut self) {
        let id = self.peer_ids.get(self.path.id);
        if id.sequence != self.path.id {
            self.path.id = id.sequence;
            self.inputs.push_back(EndpointInput(Registration::ResetToken(id.reset_token)));
        }
    }

    fn on_path_response(&mut self, data: [u8; 8]) {
        if self.path.challenge.is_some_and(|challenge| challenge.data == data) {
            self.path.challenge = None;
            self.path.is_validated = true;
            self.previous = None;
            self.sends_new_token = self.is_server();
        }
    }

    /// Switches to the path on which the peer sends now, and validates it (RFC 9000, 9.3).
    pub(super) fn migrate(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        has_new_id: bool,
    ) {
        let timeout = self.path.rtt.probe_timeout().max(crate::rtt::Rtt::default().probe_timeout());
        let data = self.next_random().to_ne_bytes();
        let mut path = self.path.moved(now, remote, local_ip, self.settings.mtu_max);
        if let Some(peer) = &self.peer {
            path.mtu.limit(peer.max_udp_payload);
        }
        let deadline = now + timeout * 3;
        path.challenge = Some(super::path::PathChallenge { data, is_pending: true, resend: None, deadline });
        if has_new_id && let Some(spare) = self.peer_ids.spare(self.path.id) {
            // The IDs of both paths differ, so that observers cannot link them.
            let old = std::mem::replace(&mut path.id, spare);
            if self.peer_ids.retire(old).is_ok() {
                let token = self.peer_ids.get(spare).reset_token;
                self.inputs.push_back(EndpointInput(Registration::ResetToken(token)));
            }
        }
        let old = std::mem::replace(&mut self.path, path);
        // Several of these may answer one datagram. Without the limit of the path, that would be amplification.
        self.responses.retain(|response| response.origin.remote != old.remote);
        if old.is_validated {
            self.previous = Some(Box::new(old));
        }
    }
}

/// The packet number space of a packet.
pub(super) fn space_of(kind: PacketKind) -> SpaceId {
    match kind {
        PacketKind::Initial => SpaceId::Initial,
        PacketKind::Handshake => SpaceId::Handshake,
        PacketKind::ZeroRtt | PacketKind::OneRtt | PacketKind::Retry | PacketKind::VersionNegotiation => {
            SpaceId::Application
        }
    }
}

/// Appends the frames of a path's validation.
pub(super) fn write_path_frame(out: &mut Vec<u8>, kind: u64, data: [u8; 8]) {
    varint::write_all(out, &[kind]);
    out.extend_from_slice(&data);
}
