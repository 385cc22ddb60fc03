//! Packets that were sent and neither acknowledged nor lost.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::types::StreamDirection;

/// A part of a stream in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamRange {
    pub(crate) id: u64,
    pub(crate) offset: u64,
    pub(crate) length: u16,
    pub(crate) fin: bool,
}

/// The part of a sent frame that is needed when it is acknowledged or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentFrame {
    Stream(StreamRange),
    Crypto {
        offset: u64,
        length: u16,
    },
    /// An acknowledgement up to this packet.
    Ack(u64),
    ResetStream(u64),
    StopSending(u64),
    MaxData,
    MaxStreamData(u64),
    MaxStreams(StreamDirection),
    DataBlocked,
    StreamDataBlocked(u64),
    /// A connection ID with this sequence number.
    NewConnectionId(u64),
    RetireConnectionId(u64),
    NewToken,
    HandshakeDone,
    /// A probe for a larger packet size.
    MtuProbe,
}

/// The frames of a sent packet.
pub(crate) type SentFrames = SmallVec<[SentFrame; 1]>;

/// A sent packet.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub(crate) time: Instant,
    pub(crate) size: u16,
    /// Whether the peer has to acknowledge it. Such packets count for congestion control.
    pub(crate) is_eliciting: bool,
    /// Whether it was marked for ECN.
    pub(crate) is_marked: bool,
    /// The generation of the path it was sent on.
    pub(crate) path: u32,
    pub(crate) frames: SentFrames,
}

/// An entry for a packet number.
#[derive(Debug)]
enum Slot {
    Sent(SentPacket),
    Acknowledged,
    /// Lost, or sent without need for an acknowledgement.
    Done,
    /// Never sent: an acknowledgement of this number is forged.
    Skipped,
}

/// The packets of a packet number space, by number.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    /// The number of packets in flight.
    eliciting: usize,
}

/// The result of [`SentPackets::acknowledge`].
pub(crate) enum Taken {
    Packet(SentPacket),
    Nothing,
    /// The packet was never sent.
    Forged,
}

impl SentPackets {
    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether any packet waits for its acknowledgement.
    pub(crate) fn has_eliciting(&self) -> bool {
        self.eliciting > 0
    }

    /// The number of packets since the oldest one that waits.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Frees the memory of packets that are over.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
    }

    /// Adds a packet. Those that the peer need not acknowledge are not kept: it may never do so.
    pub(crate) fn push(&mut self, packet: SentPacket) {
        if packet.is_eliciting {
            self.eliciting += 1;
            self.slots.push_back(Slot::Sent(packet));
        } else if self.slots.is_empty() {
            self.first += 1;
        } else {
            self.slots.push_back(Slot::Done);
        }
    }

    /// Skips a packet number, so that acknowledgements of packets that were not received are noticed.
    pub(crate) fn skip(&mut self) {
        self.slots.push_back(Slot::Skipped);
    }

    /// The number of the oldest packet that waits.
    pub(crate) fn first_number(&self) -> u64 {
        self.first
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// Removes a packet that the peer has acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u64) -> Taken {
        let Some(slot) = self.slot(number) else { return Taken::Nothing };
        match slot {
            Slot::Skipped => Taken::Forged,
            Slot::Acknowledged | Slot::Done => Taken::Nothing,
            Slot::Sent(_) => {
                let Slot::Sent(packet) = std::mem::replace(slot, Slot::Acknowledged) else {
                    return Taken::Nothing;
                };
                self.eliciting -= 1;
                Taken::Packet(packet)
            }
        }
    }

    /// Removes a lost packet.
    pub(crate) fn lose(&mut self, number: u64) -> Option<SentPacket> {
        let slot = self.slot(number).filter(|slot| matches!(slot, Slot::Sent(_)))?;
        let Slot::Sent(packet) = std::mem::replace(slot, Slot::Done) else { return None };
        self.eliciting -= 1;
        Some(packet)
    }

    /// Returns the longest time between two of the packets `lost` that are about to be lost, if no packet sent in between was
    /// acknowledged (RFC 9002, 7.6.2). Only packets of `path` that were sent after `since` count. `lost` is in ascending order.
    pub(crate) fn longest_outage(&self, lost: &[u64], path: u32, since: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        let mut first: Option<(u64, Instant)> = None;
        for &number in lost {
            let Some(Slot::Sent(packet)) = self.slots.get((number - self.first) as usize) else { continue };
            if packet.path != path || packet.time < since {
                continue;
            }
            match first {
                Some((before, sent)) if !self.has_acknowledged(before..number) => {
                    longest = longest.max(packet.time.saturating_duration_since(sent));
                    first = Some((number, sent));
                }
                _ => first = Some((number, packet.time)),
            }
        }
        longest
    }

    fn has_acknowledged(&self, numbers: std::ops::Range<u64>) -> bool {
        let slot = |number: u64| self.slots.get((number - self.first) as usize);
        numbers.filter_map(slot).any(|slot| matches!(slot, Slot::Acknowledged))
    }

    /// Returns the numbers below `end` of packets that wait, the oldest first.
    pub(crate) fn numbers_below(&self, end: u64) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.slots.iter().zip(self.first..end).filter_map(|(slot, number)| match slot {
            Slot::Sent(packet) => Some((number, packet)),
            Slot::Acknowledged | Slot::Done | Slot::Skipped => None,
        })
    }

    /// Forgets all packets, but not their numbers.
    pub(crate) fn forget_all(&mut self) {
        self.first = self.next_number();
        self.eliciting = 0;
        self.slots = VecDeque::new();
    }

    /// Forgets the slots at the front that are not needed any more. Skipped numbers stay while packets before or after them wait.
    pub(crate) fn trim(&mut self) {
        while let Some(Slot::Acknowledged | Slot::Done) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        if self.eliciting == 0 {
            self.first += self.slots.len() as u64;
            self.slots.clear();
            if self.slots.capacity() > 16 {
                self.slots = VecDeque::new();
            }
        } else if let (Some(Slot::Skipped), Some(Slot::Acknowledged | Slot::Done)) =
            (self.slots.front(), self.slots.get(1))
        {
            // An acknowledgement so late is of no use to an attacker.
            self.slots.pop_front();
            self.first += 1;
            self.trim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(is_eliciting: bool) -> SentPacket {
        SentPacket {
            time: Instant::now(),
            size: 100,
            is_eliciting,
            is_marked: false,
            path: 0,
            frames: SentFrames::new(),
        }
    }

    #[test]
    fn packets_without_acknowledgement_take_no_memory() {
        let mut sent = SentPackets::default();
        for _ in 0..1000 {
            sent.push(packet(false));
        }
        assert_eq!((sent.len(), sent.next_number()), (0, 1000));
    }

    #[test]
    fn an_acknowledged_packet_ends_an_outage() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let outage = |acknowledged: &[u64], since: u64| {
            let mut sent = SentPackets::default();
            for number in 0..10 {
                let path = u32::from(number == 9);
                sent.push(SentPacket { time: start + ms(100) * number, path, ..packet(number != 3) });
            }
            for number in acknowledged {
                assert!(matches!(sent.acknowledge(*number), Taken::Packet(_)));
            }
            let lost: Vec<u64> = sent.numbers_below(10).map(|(number, _)| number).collect();
            let longest = sent.longest_outage(&lost, 0, start + ms(since));
            assert_eq!(lost.iter().filter_map(|number| sent.lose(*number)).count(), lost.len());
            longest
        };
        assert_eq!(outage(&[], 0), ms(800), "without the packet on another path");
        assert_eq!(outage(&[8], 0), ms(700));
        assert_eq!(outage(&[2], 0), ms(400), "from the fifth packet to the ninth");
        assert_eq!(outage(&[1, 5], 0), ms(200));
        assert_eq!(outage(&[], 250), ms(400), "packet 3 needs no acknowledgement");
        assert_eq!(outage(&[1, 2, 4, 5, 6, 7, 8], 0), ms(0));
    }

    #[test]
    fn packets_are_found_by_their_numbers() {
        let mut sent = SentPackets::default();
        for number in 0..100 {
            assert_eq!(sent.next_number(), number);
            if number == 50 { sent.skip() } else { sent.push(packet(number % 10 < 9)) }
        }
        assert!(matches!(sent.acknowledge(50), Taken::Forged));
        assert!(matches!(sent.acknowledge(100), Taken::Nothing));
        for number in 0..10 {
            assert_eq!(matches!(sent.acknowledge(number), Taken::Packet(_)), number < 9, "{number}");
            assert!(matches!(sent.acknowledge(number), Taken::Nothing));
        }
        sent.trim();
        assert_eq!(sent.first_number(), 10);
        assert!(sent.numbers_below(13).map(|(number, _)| number).eq([10, 11, 12]));
        for number in (10..100).filter(|number| *number != 50) {
            assert_eq!(matches!(sent.acknowledge(number), Taken::Packet(_)), number % 10 < 9, "{number}");
        }
        sent.push(packet(true));
        sent.forget_all();
        assert_eq!(sent.next_number(), 101, "numbers are never used twice");
        assert!(!sent.has_eliciting());
        assert_eq!((sent.first_number(), sent.next_number()), (101, 101));
    }
}
