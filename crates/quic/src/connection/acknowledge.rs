//! Acknowledgements and losses of sent packets (RFC 9002, 6 and 7).

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::QuicConnection;
use super::path::NetworkPath;
use super::space::SpaceId;
use crate::congestion::Losses;
use crate::error::TransportError;
use crate::frame::AckFrame;
use crate::sent::{SentFrame, SentPacket, Taken};

/// The number of probe timeouts without an acknowledgement that make congestion persistent (RFC 9002, 7.6.1).
const PERSISTENT: u32 = 3;

/// The result of an acknowledgement.
#[derive(Default)]
struct Acknowledged {
    /// The largest packet that is newly acknowledged, when it was sent, and on which path.
    largest: Option<(u64, Instant, u32)>,
    has_eliciting: bool,
    marked: u64,
}

impl QuicConnection {
    /// Processes an ACK frame.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        id: SpaceId,
        ack: &AckFrame<'_>,
    ) -> Result<(), TransportError> {
        let Some(space) = self.space_mut(id) else { return Ok(()) };
        if ack.largest >= space.sent.next_number() {
            return Err(TransportError::violation("a packet was acknowledged that was not sent"));
        }
        let first = space.sent.first_number();
        let mut result = Acknowledged::default();
        for range in ack.ranges() {
            for number in range.start.max(first)..range.end {
                let taken = self.space_mut(id).map_or(Taken::Nothing, |space| space.sent.acknowledge(number));
                match taken {
                    Taken::Packet(packet) => self.packet_arrived(now, id, number, packet, &mut result),
                    Taken::Nothing => {}
                    Taken::Forged => {
                        return Err(TransportError::violation("a packet was acknowledged that was not sent"));
                    }
                }
            }
            if range.start < first {
                break;
            }
        }
        let Some((largest, sent, generation)) = result.largest else { return Ok(()) };
        let Some(space) = self.space_mut(id) else { return Ok(()) };
        let is_largest = largest == ack.largest;
        space.largest_acknowledged = space.largest_acknowledged.max(Some(ack.largest));
        if id == SpaceId::Application
            && let Some(keys) = &mut self.one_rtt
        {
            keys.note_acknowledged(ack.largest);
        }
        if is_largest && generation == self.path.generation {
            if result.has_eliciting {
                self.update_rtt(now, sent, ack.delay, id);
            }
            self.check_marks(now, id, ack.ecn, result.marked, sent);
        }
        self.detect_losses(now, id);
        let path = &mut self.path;
        let sample = now.saturating_duration_since(sent);
        path.controller.end_ack(now, largest, sample, path.in_flight);
        self.probe_count = 0;
        self.streams.wake_blocked();
        if let Some(space) = self.space_mut(id) {
            space.sent.trim();
        }
        Ok(())
    }

    fn update_rtt(&mut self, now: Instant, sent: Instant, delay: u64, id: SpaceId) {
        let delay = match &self.peer {
            Some(peer) if id == SpaceId::Application => {
                let micros = delay.saturating_mul(1 << peer.ack_delay_exponent);
                let delay = Duration::from_micros(micros);
                if self.is_confirmed { delay.min(peer.max_ack_delay) } else { delay }
            }
            _ => Duration::ZERO,
        };
        self.path.rtt.update(now, now.saturating_duration_since(sent), delay);
    }

    /// Processes the acknowledgement of one packet.
    fn packet_arrived(
        &mut self,
        now: Instant,
        id: SpaceId,
        number: u64,
        packet: SentPacket,
        result: &mut Acknowledged,
    ) {
        let SentPacket { time, size, is_eliciting, is_marked, path: generation, frames } = packet;
        if result.largest.is_none_or(|(largest, ..)| number > largest) {
            result.largest = Some((number, time, generation));
        }
        result.has_eliciting |= is_eliciting;
        let is_current = generation == self.path.generation;
        result.marked += u64::from(is_marked && is_current);
        if is_eliciting && is_current {
            let path = &mut self.path;
            path.remove_in_flight(size.into());
            let (rtt, is_limited) = (path.rtt.smoothed, path.is_limited);
            path.controller.on_ack(now, time, size.into(), is_limited, rtt);
            path.mtu.packet_arrived(size);
        }
        for frame in &frames {
            self.frame_arrived(now, id, frame, is_current);
        }
    }

    fn frame_arrived(&mut self, now: Instant, id: SpaceId, frame: &SentFrame, is_current: bool) {
        match *frame {
            SentFrame::Stream(ref range) => self.streams.acknowledge(range),
            SentFrame::Crypto { offset, length } => {
                if let Some(space) = self.space_mut(id) {
                    space.crypto_out.acknowledge(offset..offset + u64::from(length));
                }
            }
            SentFrame::Ack(largest) => {
                if let Some(space) = self.space_mut(id) {
                    space.received.forget_to(largest);
                }
            }
            SentFrame::ResetStream(stream) => self.streams.acknowledge_reset(stream),
            SentFrame::RetireConnectionId(_) => self.peer_ids.retirement_arrived(),
            SentFrame::MtuProbe => {
                if is_current && self.path.mtu.probe_arrived(now) {
                    let mtu = self.path.mtu.current();
                    self.path.controller.set_mtu(mtu);
                }
            }
            SentFrame::StopSending(_)
            | SentFrame::MaxData
            | SentFrame::MaxStreamData(_)
            | SentFrame::MaxStreams(_)
            | SentFrame::DataBlocked
            | SentFrame::StreamDataBlocked(_)
            | SentFrame::NewConnectionId(_)
            | SentFrame::NewToken
            | SentFrame::HandshakeDone => {}
        }
    }

    /// Checks the reported marks (RFC 9000, 13.4.2), and reacts to those that mean congestion.
    fn check_marks(
        &mut self,
        now: Instant,
        id: SpaceId,
        counts: Option<[u64; 3]>,
        marked: u64,
        sent: Instant,
    ) {
        let Some(space) = self.space_mut(id) else { return };
        let before = space.ecn_acknowledged;
        let Some(counts) = counts else {
            self.path.ecn.has_failed |= marked > 0;
            return;
        };
        space.ecn_acknowledged = counts;
        let grown = |at: usize| counts[at].checked_sub(before[at]);
        let ecn = &mut self.path.ecn;
        match (grown(0), grown(1), grown(2)) {
            (Some(capable), Some(0), Some(congested)) if capable + congested >= marked => {
                ecn.is_proven |= capable + congested > 0;
                if congested > 0 && !ecn.has_failed {
                    self.path.controller.on_congestion(now, sent, false);
                }
            }
            _ => ecn.has_failed = true,
        }
    }

    /// Declares packets lost that were sent long enough before acknowledged ones (RFC 9002, 6.1).
    pub(super) fn detect_losses(&mut self, now: Instant, id: SpaceId) {
        let delay = self.path.rtt.loss_delay();
        let threshold = u64::from(self.settings.packet_threshold);
        let Some(space) = self.space_mut(id) else { return };
        space.loss_time = None;
        let Some(largest) = space.largest_acknowledged else { return };
        let mut lost = SmallVec::<[u64; 8]>::new();
        for (number, packet) in space.sent.numbers_below(largest) {
            if number + threshold <= largest || now.saturating_duration_since(packet.time) >= delay {
                lost.push(number);
            } else {
                space.loss_time = Some(packet.time + delay);
                break;
            }
        }
        if lost.is_empty() {
            return;
        }
        self.packets_lost(now, id, &lost);
    }

    fn packets_lost(&mut self, now: Instant, id: SpaceId, numbers: &[u64]) {
        let is_persistent = self.is_congestion_persistent(id, numbers);
        let mut losses: Option<Losses> = None;
        let mut largest_size = 0;
        for &number in numbers {
            let Some(packet) = self.space_mut(id).and_then(|space| space.sent.lose(number)) else { continue };
            let is_probe = packet.frames.contains(&SentFrame::MtuProbe);
            let is_current = packet.path == self.path.generation;
            if packet.is_eliciting && is_current {
                self.path.remove_in_flight(packet.size.into());
            }
            if is_probe {
                if is_current {
                    self.path.mtu.probe_lost(now);
                }
                continue;
            }
            self.stats.packets_lost += 1;
            if packet.is_eliciting && is_current {
                largest_size = largest_size.max(packet.size);
                let all =
                    losses.get_or_insert(Losses { sent: packet.time, packets: 0, bytes: 0, is_persistent });
                all.sent = packet.time;
                all.packets += 1;
                all.bytes += u64::from(packet.size);
            }
            for frame in &packet.frames {
                self.frame_lost(id, frame);
            }
        }
        if let Some(losses) = losses {
            self.path.controller.on_losses(now, losses);
            if self.path.mtu.packets_lost(now, largest_size) {
                let mtu = self.path.mtu.current();
                self.path.controller.set_mtu(mtu);
            }
        }
    }

    /// Whether packets that are about to be lost show persistent congestion (RFC 9002, 7.6).
    fn is_congestion_persistent(&self, id: SpaceId, lost: &[u64]) -> bool {
        let NetworkPath { rtt, generation, .. } = &self.path;
        let (Some(space), Some(since)) = (self.space(id), rtt.sampled) else { return false };
        space.sent.longest_outage(lost, *generation, since) > self.probe_timeout() * PERSISTENT
    }

    /// Sends the contents of a lost packet again if they still matter.
    pub(super) fn frame_lost(&mut self, id: SpaceId, frame: &SentFrame) {
        match *frame {
            SentFrame::Stream(ref range) => self.streams.lose(range),
            SentFrame::Crypto { offset, length } => {
                if let Some(space) = self.space_mut(id) {
                    space.crypto_out.lose(offset..offset + u64::from(length));
                }
            }
            SentFrame::NewConnectionId(sequence) => {
                if self.own_ids.get(sequence).is_some() && !self.own_ids.pending.contains(&sequence) {
                    self.own_ids.pending.push(sequence);
                }
            }
            SentFrame::RetireConnectionId(sequence) => self.peer_ids.pending.push(sequence),
            SentFrame::HandshakeDone => self.sends_handshake_done = true,
            SentFrame::NewToken => self.sends_new_token = true,
            SentFrame::Ack(_) | SentFrame::MtuProbe => {}
            SentFrame::ResetStream(_)
            | SentFrame::StopSending(_)
            | SentFrame::MaxData
            | SentFrame::MaxStreamData(_)
            | SentFrame::MaxStreams(_)
            | SentFrame::DataBlocked
            | SentFrame::StreamDataBlocked(_) => self.streams.lose_control(frame),
        }
    }

    /// The loss timer of a space has expired.
    pub(super) fn on_loss_timeout(&mut self, now: Instant, id: SpaceId) {
        let Some(space) = self.space_mut(id) else { return };
        if space.loss_time.is_some() {
            self.detect_losses(now, id);
            if let Some(space) = self.space_mut(id) {
                space.sent.trim();
            }
            return;
        }
        self.probe_count = self.probe_count.saturating_add(1);
        if let Some(space) = self.space_mut(id)
            && !space.sent.has_eliciting()
        {
            space.probes = 1;
            space.sends_ping = true;
        }
        // During a handshake the other space may have something that unblocks the peer.
        for id in SpaceId::ALL {
            let Some(space) = self.space_mut(id) else { continue };
            if !space.sent.has_eliciting() {
                continue;
            }
            space.probes = 2;
            self.repeat_oldest(id);
        }
    }

    /// Sends the contents of the oldest packets again, which may still arrive.
    fn repeat_oldest(&mut self, id: SpaceId) {
        let Some(space) = self.space(id) else { return };
        let next = space.sent.next_number();
        let oldest = space.sent.numbers_below(next).filter(|(_, packet)| packet.is_eliciting).take(2);
        let frames: SmallVec<[SentFrame; 4]> =
            oldest.flat_map(|(_, packet)| packet.frames.iter().copied()).collect();
        for frame in &frames {
            self.frame_lost(id, frame);
        }
        if let Some(space) = self.space_mut(id) {
            space.sends_ping = true;
        }
    }
}
