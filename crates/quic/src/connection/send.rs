//! Datagrams to send.

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tls::quic::{HeaderKey, PacketKey};

use super::close::CloseReason;
use super::frames::write_path_frame;
use super::path::{AMPLIFICATION_MAX, PathResponse};
use super::space::SpaceId;
use super::{QuicConnection, SEND_WINDOW_MIN, State};
use crate::error::TransportError;
use crate::frame;
use crate::packet::{self, FIXED_BIT, KEY_PHASE, PacketKind};
use crate::sent::{SentFrame, SentFrames, SentPacket};
use crate::transmit::{Ecn, Transmit};
use crate::varint;

/// The smallest datagrams with Initial packets and of path validation (RFC 9000, 8.2.1 and 14.1).
const DATAGRAM_MIN: usize = 1200;

/// The maximum length of the datagrams that are sent together: the kernel accepts no more than the largest UDP datagram over IPv4.
const BATCH_MAX: usize = 65_507;

/// The largest header without a token, and a few bytes of payload.
const PACKET_MIN: usize = 64;

/// The length of the tag of all cipher suites.
const TAG: usize = 16;

/// The number of packets that are remembered for a peer that acknowledges the oldest of them late, in addition to those that the
/// congestion window permits.
const PACKETS_MAX: usize = 8192;

/// The number of random packet numbers that are skipped, on average one in this many.
const SKIP_DISTANCE: u64 = 512;

/// A packet that is not encrypted yet.
pub(super) struct Draft {
    id: SpaceId,
    /// Positions in the buffer: the packet, its length field, and its packet number.
    start: usize,
    length_at: Option<usize>,
    number_at: usize,
    payload_at: usize,
    number: u64,
    is_eliciting: bool,
    frames: SentFrames,
}

impl QuicConnection {
    /// Appends at most `most` datagrams to `out`, and no more than one system call can send.
    pub fn transmit(&mut self, now: Instant, most: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        match self.state {
            State::Open => {}
            State::Closing(_) => return self.transmit_close(now, out),
            State::Draining | State::Drained => return None,
        }
        if let Some(transmit) = self.transmit_response(now, out) {
            return Some(transmit);
        }
        self.fit_send_window();
        let start = out.len();
        // Initial packets are always padded. A client that moves may have sent little from its new address.
        let least = if self.is_confirmed { PACKET_MIN + TAG } else { DATAGRAM_MIN };
        let mut segment = 0;
        let mut count = 0;
        while count < most.max(1) {
            let full = if count == 0 { usize::from(self.path.mtu.current()) } else { segment };
            let left = self.path.allowance();
            let limit = full.min(left);
            let begin = out.len();
            if limit < full.min(least) || !self.build_datagram(now, out, begin + limit, count == 0) {
                break;
            }
            let size = out.len() - begin;
            self.note_datagram(size);
            count += 1;
            if count == 1 {
                segment = size;
            }
            if size < limit || !self.is_confirmed || out.len() - start + segment > BATCH_MAX {
                break;
            }
        }
        if count == 0 {
            let size = self.path.mtu.next_probe(now).filter(|_| self.may_probe_mtu())?;
            self.build_mtu_probe(now, out, size)?;
            self.note_datagram(out.len() - start);
            (segment, count) = (out.len() - start, 1);
        }
        Some(self.transmit_to_path(out.len() - start, (count > 1).then_some(segment)))
    }

    fn transmit_to_path(&mut self, length: usize, segment: Option<usize>) -> Transmit {
        let is_marked = self.path.ecn.is_used();
        Transmit {
            destination: self.path.remote,
            source: self.path.local_ip,
            ecn: is_marked.then_some(Ecn::Capable0),
            length,
            segment,
        }
    }

    fn note_datagram(&mut self, size: usize) {
        self.path.note_sent(size);
        self.path.pacer.note_sent(size as u64);
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += size as u64;
    }

    /// Adapts the number of bytes that are kept to the congestion window: as much again as may be in flight. A peer that acknowledges
    /// nothing occupies little memory.
    fn fit_send_window(&mut self) {
        let window = self.path.controller.window().saturating_mul(2);
        self.streams.set_send_window(window.max(SEND_WINDOW_MIN).min(self.settings.send_window));
    }

    /// Whether packets that have to be acknowledged may be sent now.
    fn permits(&mut self, now: Instant, is_first: bool) -> bool {
        // The first datagram of a batch waits for room for several.
        let has_room = if is_first { self.path.has_window_for_batch() } else { self.path.has_window() };
        if !has_room {
            self.path.is_limited = false;
            return false;
        }
        if self.paced_until.is_some_and(|at| now < at) {
            return false;
        }
        if self.path.pacer.has_tokens() || !self.settings.pacing {
            return true;
        }
        let pace = self.path.pace();
        self.paced_until = self.path.pacer.delay(now, pace);
        self.paced_until.is_none()
    }

    /// Appends a datagram that ends before `limit`; returns whether there was anything to send.
    fn build_datagram(&mut self, now: Instant, out: &mut Vec<u8>, limit: usize, is_first: bool) -> bool {
        let begin = out.len();
        let mut drafts = SmallVec::<[Draft; 1]>::new();
        let mut min = 0;
        for id in SpaceId::ALL {
            if !self.wants_to_send(id) {
                continue;
            }
            let permits = self.permits(now, is_first);
            let Some(draft) = self.build_packet(now, id, out, limit, permits) else { continue };
            if id == SpaceId::Initial && (draft.is_eliciting || !self.is_server()) {
                min = DATAGRAM_MIN;
            }
            drafts.push(draft);
        }
        if drafts.is_empty() {
            self.path.is_limited |= self.path.has_window();
            return false;
        }
        let has_challenge = self.is_confirmed && self.is_validating;
        if std::mem::take(&mut self.is_validating) && has_challenge {
            min = DATAGRAM_MIN;
        }
        self.finish_datagram(now, out, begin, min.min(limit - begin), drafts);
        true
    }

    /// Pads the datagram to `min` bytes, and encrypts its packets.
    fn finish_datagram(
        &mut self,
        now: Instant,
        out: &mut Vec<u8>,
        begin: usize,
        min: usize,
        drafts: SmallVec<[Draft; 1]>,
    ) {
        if out.len() - begin < min {
            // The tag is written over the padding at the end.
            out.resize(begin + min, 0);
        }
        let mut ends: SmallVec<[usize; 3]> = drafts.iter().skip(1).map(|draft| draft.start).collect();
        ends.push(out.len());
        for (draft, end) in drafts.into_iter().zip(ends) {
            self.finish_packet(now, out, draft, end);
        }
    }

    /// Whether a space has something to send or to acknowledge.
    fn wants_to_send(&self, id: SpaceId) -> bool {
        let Some(space) = self.space(id) else { return false };
        if id == SpaceId::Application && self.one_rtt.is_none() {
            return !self.is_server() && self.early.is_some() && self.has_content(id);
        }
        space.received.is_due || self.has_content(id)
    }

    /// Whether a space has something to send that the peer has to acknowledge.
    fn has_content(&self, id: SpaceId) -> bool {
        let Some(space) = self.space(id) else { return false };
        space.probes > 0
            || space.sends_ping
            || space.crypto_out.has_unsent()
            || (id == SpaceId::Application
                && (self.streams.has_data()
                    || self.streams.has_control()
                    || self.sends_handshake_done
                    || (self.sends_new_token && self.is_confirmed)
                    || !self.own_ids.pending.is_empty()
                    || !self.peer_ids.pending.is_empty()
                    || !self.responses.is_empty()
                    || self.path.challenge.is_some_and(|challenge| challenge.is_pending)))
    }

    /// Appends a packet without encryption, but with room for the tag.
    fn build_packet(
        &mut self,
        now: Instant,
        id: SpaceId,
        out: &mut Vec<u8>,
        limit: usize,
        permits: bool,
    ) -> Option<Draft> {
        let space = self.space(id)?;
        let is_probe = space.probes > 0;
        let may_elicit = (permits || is_probe) && self.has_content(id);
        if !(may_elicit || space.received.is_due) || out.len() + PACKET_MIN + TAG > limit {
            return None;
        }
        let mut draft = self.write_header(id, out);
        let end = limit - TAG;
        let space = self.space_mut(id)?;
        if space.received.has_news()
            && let Some(largest) = space.received.write_ack(now, out, end)
        {
            draft.frames.push(SentFrame::Ack(largest));
        }
        if may_elicit {
            let before = out.len();
            self.write_content(now, id, out, end, &mut draft.frames);
            draft.is_eliciting = out.len() > before;
        }
        if out.len() == draft.payload_at {
            out.truncate(draft.start);
            return None;
        }
        // Header protection needs a sample that starts four bytes after the packet number.
        let least = draft.number_at + 4;
        if out.len() < least {
            out.resize(least, 0);
        }
        out.resize(out.len() + TAG, 0);
        Some(draft)
    }

    pub(super) fn write_header(&mut self, id: SpaceId, out: &mut Vec<u8>) -> Draft {
        let start = out.len();
        let destination = self.peer_ids.get(self.path.id).id;
        let (number, length) = self.space(id).map_or((0, 2), |space| {
            let number = space.sent.next_number();
            (number, packet::number_length(number, space.largest_acknowledged))
        });
        let own = self.own_ids.first();
        let own: &[u8] = if self.is_server() { &own } else { &[] };
        let token = self.client().map_or(&[][..], |client| &client.token);
        let length_at = match id {
            SpaceId::Initial => Some(packet::write_long(out, PacketKind::Initial, &destination, own, token)),
            SpaceId::Handshake => {
                Some(packet::write_long(out, PacketKind::Handshake, &destination, own, &[]))
            }
            SpaceId::Application if self.one_rtt.is_none() => {
                Some(packet::write_long(out, PacketKind::ZeroRtt, &destination, own, &[]))
            }
            SpaceId::Application => {
                let phase = self.one_rtt.as_ref().is_some_and(|keys| keys.phase);
                out.push(FIXED_BIT | if phase { KEY_PHASE } else { 0 });
                out.extend_from_slice(&destination);
                None
            }
        };
        let number_at = out.len();
        packet::write_number(out, start, number, length);
        Draft {
            id,
            start,
            length_at,
            number_at,
            payload_at: out.len(),
            number,
            is_eliciting: false,
            frames: SentFrames::new(),
        }
    }

    /// Appends frames that the peer has to acknowledge.
    fn write_content(
        &mut self,
        now: Instant,
        id: SpaceId,
        out: &mut Vec<u8>,
        end: usize,
        sent: &mut SentFrames,
    ) {
        if let Some(space) = self.space_mut(id) {
            space.probes = space.probes.saturating_sub(1);
            if std::mem::take(&mut space.sends_ping) {
                varint::write_all(out, &[frame::PING]);
            }
            write_crypto(space, out, end, sent);
        }
        if id != SpaceId::Application {
            return;
        }
        if self.sends_handshake_done && out.len() < end {
            self.sends_handshake_done = false;
            varint::write_all(out, &[frame::HANDSHAKE_DONE]);
            sent.push(SentFrame::HandshakeDone);
        }
        self.write_path_frames(now, out, end);
        self.write_ids(out, end, sent);
        self.write_token(out, end, sent);
        if self.streams.has_control() {
            self.streams.write_control(out, end, sent);
        }
        if self.streams.has_data() {
            self.streams.write_data(out, end, sent);
        }
    }

    /// Appends a challenge of this path, and answers to those that came on it.
    fn write_path_frames(&mut self, now: Instant, out: &mut Vec<u8>, end: usize) {
        const FRAME: usize = 9;
        let timeout = self.path.rtt.probe_timeout();
        if let Some(challenge) = &mut self.path.challenge
            && challenge.is_pending
            && out.len() + FRAME <= end
        {
            challenge.is_pending = false;
            challenge.resend = Some(now + timeout);
            write_path_frame(out, frame::PATH_CHALLENGE, challenge.data);
            self.is_validating = true;
        }
        while out.len() + FRAME <= end
            && let Some(PathResponse { data, .. }) = self.responses.pop()
        {
            write_path_frame(out, frame::PATH_RESPONSE, data);
            self.is_validating = true;
        }
        if self.responses.is_empty() {
            self.responses = Vec::new();
        }
    }

    fn write_ids(&mut self, out: &mut Vec<u8>, end: usize, sent: &mut SentFrames) {
        const FRAME_MAX: usize = 1 + 8 + 1 + 1 + 8 + 16;
        while out.len() + FRAME_MAX <= end
            && let Some(sequence) = self.own_ids.pending.pop()
        {
            let Some(id) = self.own_ids.get(sequence) else { continue };
            let token = self.shared.keys.reset_token(id);
            varint::write_all(out, &[frame::NEW_CONNECTION_ID, sequence, 0, id.len() as u64]);
            out.extend_from_slice(id);
            out.extend_from_slice(&token);
            sent.push(SentFrame::NewConnectionId(sequence));
        }
        while out.len() + FRAME_MAX <= end
            && let Some(sequence) = self.peer_ids.pending.pop()
        {
            varint::write_all(out, &[frame::RETIRE_CONNECTION_ID, sequence]);
            sent.push(SentFrame::RetireConnectionId(sequence));
        }
    }

    /// Appends a token with which the client proves its address when it connects again.
    fn write_token(&mut self, out: &mut Vec<u8>, end: usize, sent: &mut SentFrames) {
        const FRAME_MAX: usize = 1 + 2 + crate::token::LENGTH_MAX;
        if !self.sends_new_token || !self.is_confirmed || out.len() + FRAME_MAX > end {
            return;
        }
        self.sends_new_token = false;
        let Some(token) = self.shared.keys.new_token(self.path.remote.ip()) else { return };
        varint::write_all(out, &[frame::NEW_TOKEN, token.len() as u64]);
        out.extend_from_slice(&token);
        sent.push(SentFrame::NewToken);
    }

    /// Encrypts a packet that ends at `end`, and records it.
    pub(super) fn finish_packet(&mut self, now: Instant, out: &mut [u8], draft: Draft, end: usize) {
        let Draft { id, start, length_at, number_at, payload_at, number, is_eliciting, frames } = draft;
        if let Some(at) = length_at {
            // Datagrams are shorter than 16 KiB.
            let length = ((end - number_at) as u16) | 0x4000;
            out[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
        if id == SpaceId::Application && self.one_rtt.as_mut().is_some_and(|keys| keys.note_sealed()) {
            // The packet itself still uses the old keys.
            self.updates_keys = true;
        }
        if let Some((header, packet)) = self.keys(id) {
            seal(header, packet, number, &mut out[start..end], number_at - start, payload_at - start);
        }
        if std::mem::take(&mut self.updates_keys) {
            self.update_keys(now, false);
        }
        let is_marked = self.path.ecn.is_used();
        self.path.ecn.marked += u64::from(is_marked);
        self.stats.packets_sent += 1;
        // Cannot truncate: UDP payloads are shorter than 64 KiB.
        let size = (end - start) as u16;
        let mut idle = Duration::ZERO;
        if is_eliciting {
            if self.path.in_flight == 0 {
                idle = self.last_sent.map_or(idle, |last| now.saturating_duration_since(last));
            }
            self.last_sent = Some(now);
            self.path.in_flight += u64::from(size);
            self.path.controller.set_in_flight(self.path.in_flight);
            self.path.controller.on_sent(now, number, idle);
            if !std::mem::replace(&mut self.has_sent_since_received, true) {
                self.restart_idle_timer(now);
            }
        }
        let path = self.path.generation;
        let skips = id == SpaceId::Application && number + 1 == self.skip_at;
        let distance = if skips { 1 + self.next_random() % (2 * SKIP_DISTANCE) } else { 0 };
        // Small packets, and acknowledgements in between.
        let most =
            PACKETS_MAX + usize::try_from(self.path.controller.window() / 100).unwrap_or(usize::MAX / 2);
        let Some(space) = self.space_mut(id) else { return };
        if is_eliciting {
            space.last_eliciting = Some(now);
        }
        space.sent.push(SentPacket { time: now, size, is_eliciting, is_marked, path, frames });
        if space.sent.len() > most {
            self.fail(now, TransportError::violation("packets were not acknowledged"));
            return;
        }
        let Some(space) = self.space_mut(id) else { return };
        if skips {
            space.sent.skip();
            self.skip_at += distance + 1;
        }
        if id == SpaceId::Handshake && !self.is_server() {
            // The server can have no use for more Initial packets (RFC 9001, 4.9.1).
            self.drop_space(SpaceId::Initial);
        }
    }

    fn keys(&self, id: SpaceId) -> Option<(&HeaderKey, &PacketKey)> {
        let local = match id {
            SpaceId::Initial => &self.initial.as_ref()?.keys.local,
            SpaceId::Handshake => &self.handshake.as_ref()?.keys.local,
            SpaceId::Application => match &self.one_rtt {
                Some(keys) if keys.is_exhausted() => return None,
                Some(keys) => &keys.local,
                // A server's early keys are for receiving.
                None if self.is_server() => return None,
                None => self.early.as_ref()?,
            },
        };
        Some((&local.header, &local.packet))
    }

    /// Probes need a connection that has room for them, and a path that is known to work.
    fn may_probe_mtu(&self) -> bool {
        self.is_confirmed && self.path.is_validated && self.path.has_window() && self.paced_until.is_none()
    }

    /// Appends a datagram of `size` bytes that only finds out whether it arrives.
    fn build_mtu_probe(&mut self, now: Instant, out: &mut Vec<u8>, size: u16) -> Option<()> {
        let begin = out.len();
        let mut draft = self.write_header(SpaceId::Application, out);
        varint::write_all(out, &[frame::PING]);
        draft.is_eliciting = true;
        draft.frames.push(SentFrame::MtuProbe);
        out.resize(begin + usize::from(size), 0);
        let end = out.len();
        self.path.mtu.note_probe(size);
        self.finish_packet(now, out, draft, end);
        Some(())
    }

    /// Answers a challenge from another address than the current one.
    fn transmit_response(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.responses.is_empty() || !self.is_confirmed {
            return None;
        }
        let remote = self.path.remote;
        let at = self.responses.iter().position(|response| response.origin.remote != remote)?;
        let PathResponse { data, origin } = self.responses.remove(at);
        let begin = out.len();
        let draft = self.write_header(SpaceId::Application, out);
        write_path_frame(out, frame::PATH_RESPONSE, data);
        // The address may be forged (RFC 9000, 8.2.2). Without padding, the answer is never that much longer than a challenge.
        let padded = DATAGRAM_MIN.min(origin.length * AMPLIFICATION_MAX as usize);
        let end = (begin + padded).max(out.len() + TAG);
        out.resize(end, 0);
        self.finish_packet(now, out, draft, end);
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += (end - begin) as u64;
        let (destination, source) = (origin.remote, origin.local_ip);
        Some(Transmit { destination, source, ecn: None, length: end - begin, segment: None })
    }

    /// Appends a datagram with the reason why the connection was closed.
    fn transmit_close(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let State::Closing(reason) = &mut self.state else { return None };
        if !std::mem::take(&mut reason.is_pending) {
            return None;
        }
        let reason: CloseReason = CloseReason::clone(reason);
        let begin = out.len();
        let limit = begin + DATAGRAM_MIN.min(self.path.allowance());
        let mut drafts = SmallVec::<[Draft; 1]>::new();
        for id in SpaceId::ALL {
            // A client that has not finished the handshake may not have the keys of all levels.
            if self.keys(id).is_none() || out.len() + 100 > limit {
                continue;
            }
            let draft = self.write_header(id, out);
            let room = (limit - out.len() - TAG) / if self.is_confirmed { 1 } else { 3 };
            if id == SpaceId::Application {
                frame::write_close(out, reason.code, reason.frame, &reason.reason, room);
            } else {
                let (code, frame, reason) = reason.before_one_rtt();
                frame::write_close(out, code, frame, reason, room);
            }
            let least = draft.number_at + 4;
            if out.len() < least {
                out.resize(least, 0);
            }
            out.resize(out.len() + TAG, 0);
            drafts.push(draft);
        }
        if drafts.is_empty() {
            return None;
        }
        self.finish_datagram(now, out, begin, 0, drafts);
        self.path.note_sent(out.len() - begin);
        Some(self.transmit_to_path(out.len() - begin, None))
    }
}

/// Appends CRYPTO frames as long as they fit before `end`.
fn write_crypto(space: &mut super::Space, out: &mut Vec<u8>, end: usize, sent: &mut SentFrames) {
    const HEAD_MAX: usize = 1 + 8 + 2 + 1;
    while out.len() + HEAD_MAX <= end
        && let Some(range) = space.crypto_out.peek()
    {
        let room = (end - out.len() - HEAD_MAX + 1) as u64;
        let range = range.start..range.end.min(range.start + room);
        // Cannot truncate: the range is shorter than a packet.
        let length = (range.end - range.start) as u16;
        varint::write_all(out, &[frame::CRYPTO, range.start, length.into()]);
        space.crypto_out.copy(range.clone(), out);
        space.crypto_out.mark_sent(range.clone());
        sent.push(SentFrame::Crypto { offset: range.start, length });
    }
}

/// Encrypts a packet.
fn seal(
    header: &HeaderKey,
    packet: &PacketKey,
    number: u64,
    bytes: &mut [u8],
    number_at: usize,
    payload_at: usize,
) {
    let sealed = packet.seal(number, bytes, payload_at);
    debug_assert!(sealed.is_ok(), "there is room for the tag");
    if sealed.is_err() {
        // Never sends plaintext.
        bytes.fill(0);
        return;
    }
    header.protect(number_at, bytes);
}
