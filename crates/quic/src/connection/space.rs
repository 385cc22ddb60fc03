//! A packet number space (RFC 9000, 12.3).

use std::time::{Duration, Instant};

use tls::quic::LevelKeys;

use crate::ranges::Ranges;
use crate::sent::SentPackets;
use crate::streams::{Assembler, SendBuffer};
use crate::transmit::Ecn;

/// The number of ranges of received packets that are remembered. A peer that skips more numbers gets no acknowledgement of the oldest.
const RANGES_MAX: usize = 64;

/// The longest delay of an acknowledgement, as announced.
pub(super) const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// The packet number spaces, in the order in which packets are coalesced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpaceId {
    Initial,
    Handshake,
    Application,
}

impl SpaceId {
    pub(super) const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Application];
}

/// The packets of a space in both directions, and its CRYPTO stream.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) sent: SentPackets,
    pub(super) largest_acknowledged: Option<u64>,
    /// When the next packet counts as lost.
    pub(super) loss_time: Option<Instant>,
    pub(super) last_eliciting: Option<Instant>,
    /// The number of packets that are sent whatever the congestion window is.
    pub(super) probes: u8,
    /// Whether a PING is to be sent.
    pub(super) sends_ping: bool,
    /// Counts of marked packets that the peer has reported.
    pub(super) ecn_acknowledged: [u64; 3],
    pub(super) received: ReceivedPackets,
    pub(super) crypto_in: Assembler,
    pub(super) crypto_out: SendBuffer,
}

/// The received packets of a space.
#[derive(Debug, Default)]
pub(super) struct ReceivedPackets {
    numbers: Ranges,
    /// Numbers below count as received.
    floor: u64,
    /// When the largest one arrived.
    largest_at: Option<Instant>,
    /// Packets that the peer expects to be acknowledged.
    eliciting: u32,
    /// Whether an acknowledgement is to be sent at once.
    pub(super) is_due: bool,
    /// When an acknowledgement is to be sent at the latest.
    pub(super) deadline: Option<Instant>,
    /// Counts of ECT(0), ECT(1) and CE marks.
    ecn: [u64; 3],
}

impl ReceivedPackets {
    pub(super) fn largest(&self) -> Option<u64> {
        self.numbers.last().map(|last| last.end - 1)
    }

    /// The next number if nothing is lost.
    pub(super) fn expected(&self) -> u64 {
        self.numbers.last().map_or(0, |last| last.end)
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        number < self.floor || self.numbers.contains(number)
    }

    /// Adds a packet. `delays` is set if acknowledgements may wait for a second packet.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        number: u64,
        is_eliciting: bool,
        ecn: Option<Ecn>,
        delays: bool,
    ) {
        let expected = self.expected();
        self.numbers.insert(number..number + 1);
        if self.numbers.len() > RANGES_MAX
            && let Some(oldest) = self.numbers.pop_first()
        {
            self.floor = oldest.end;
        }
        if number >= expected {
            self.largest_at = Some(now);
        }
        if let Some(ecn) = ecn {
            self.ecn[match ecn {
                Ecn::Capable0 => 0,
                Ecn::Capable1 => 1,
                Ecn::Congestion => 2,
            }] += 1;
        }
        if !is_eliciting {
            return;
        }
        self.eliciting += 1;
        let is_in_order = number == expected;
        self.is_due |= !delays || !is_in_order || self.eliciting >= 2 || ecn == Some(Ecn::Congestion);
        self.deadline.get_or_insert(now + ACK_DELAY_MAX);
    }

    /// Whether there is something to acknowledge.
    pub(super) fn has_news(&self) -> bool {
        self.eliciting > 0
    }

    /// Appends an ACK frame if there is room; returns the largest number in it.
    pub(super) fn write_ack(&mut self, now: Instant, out: &mut Vec<u8>, limit: usize) -> Option<u64> {
        const EXPONENT: u32 = 3;
        let largest = self.largest()?;
        let waited = self.largest_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let delay = u64::try_from(waited.as_micros() >> EXPONENT).unwrap_or(0);
        let ecn = Some(self.ecn).filter(|counts| counts.iter().any(|count| *count > 0));
        let room = limit.saturating_sub(out.len());
        crate::frame::write_ack(out, &self.numbers, delay, ecn, room).then(|| {
            self.eliciting = 0;
            self.is_due = false;
            self.deadline = None;
            largest
        })
    }

    /// The peer knows that packets up to `largest` have arrived: they need not be acknowledged again.
    pub(super) fn forget_to(&mut self, largest: u64) {
        // The largest number stays, as the base for those of later packets.
        let end = (largest + 1).min(self.expected().saturating_sub(1));
        self.numbers.remove(0..end);
        self.floor = self.floor.max(end);
    }
}

/// The space of a handshake's packets with its keys.
pub(super) struct LongSpace {
    pub(super) space: Space,
    pub(super) keys: LevelKeys,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Frames};

    #[test]
    fn every_second_packet_is_acknowledged_at_once() {
        let now = Instant::now();
        let mut received = ReceivedPackets::default();
        received.insert(now, 0, true, None, true);
        assert!(!received.is_due);
        assert_eq!(received.deadline, Some(now + ACK_DELAY_MAX));
        received.insert(now, 1, false, None, true);
        assert!(!received.is_due);
        received.insert(now, 2, true, None, true);
        assert!(received.is_due);
        let mut out = Vec::new();
        assert_eq!(received.write_ack(now, &mut out, 100), Some(2));
        assert!(!received.is_due && !received.has_news() && received.deadline.is_none());
        received.insert(now, 4, true, None, true);
        assert!(received.is_due, "a gap");
    }

    #[test]
    fn old_packets_count_as_received() {
        let now = Instant::now();
        let mut received = ReceivedPackets::default();
        for number in (0..200).map(|number| number * 2) {
            received.insert(now, number, true, None, true);
        }
        assert!(received.contains(1), "too old to know");
        assert!(received.contains(398) && !received.contains(397));
        received.forget_to(398);
        assert!(received.contains(397));
        assert_eq!(received.largest(), Some(398));
        let mut out = Vec::new();
        assert_eq!(received.write_ack(now, &mut out, 100), Some(398));
        let Some(Ok((_, Frame::Ack(ack)))) = Frames::new(&out).next() else { panic!("{out:?}") };
        assert!(ack.ranges().eq(std::iter::once(398..399)));
    }
}
