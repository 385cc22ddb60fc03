//! Packets that were sent and neither acknowledged nor lost.

use std::collections::VecDeque;
use std::time::Instant;

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

/// The part of a sent frame that its acknowledgement or loss concerns.
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
    /// Acknowledged, lost, or forgotten.
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

/// The result of [`SentPackets::take`].
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

    /// Removes a packet.
    pub(crate) fn take(&mut self, number: u64) -> Taken {
        let slot = number
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.slots.get_mut(at));
        let Some(slot) = slot else { return Taken::Nothing };
        match slot {
            Slot::Skipped => Taken::Forged,
            Slot::Done => Taken::Nothing,
            Slot::Sent(_) => match std::mem::replace(slot, Slot::Done) {
                Slot::Sent(packet) => {
                    self.eliciting -= 1;
                    Taken::Packet(packet)
                }
                Slot::Done | Slot::Skipped => Taken::Nothing,
            },
        }
    }

    /// Returns the numbers below `end` of packets that wait, the oldest first.
    pub(crate) fn numbers_below(&self, end: u64) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.slots.iter().zip(self.first..end).filter_map(|(slot, number)| match slot {
            Slot::Sent(packet) => Some((number, packet)),
            Slot::Done | Slot::Skipped => None,
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
        while let Some(Slot::Done) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        if self.eliciting == 0 {
            self.first += self.slots.len() as u64;
            self.slots.clear();
            if self.slots.capacity() > 16 {
                self.slots = VecDeque::new();
            }
        } else if let (Some(Slot::Skipped), Some(Slot::Done)) = (self.slots.front(), self.slots.get(1)) {
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
    fn packets_are_found_by_their_numbers() {
        let mut sent = SentPackets::default();
        for number in 0..100 {
            assert_eq!(sent.next_number(), number);
            if number == 50 { sent.skip() } else { sent.push(packet(number % 10 < 9)) }
        }
        assert!(matches!(sent.take(50), Taken::Forged));
        assert!(matches!(sent.take(100), Taken::Nothing));
        for number in 0..10 {
            assert_eq!(matches!(sent.take(number), Taken::Packet(_)), number < 9, "{number}");
            assert!(matches!(sent.take(number), Taken::Nothing));
        }
        sent.trim();
        assert_eq!(sent.first_number(), 10);
        assert!(sent.numbers_below(13).map(|(number, _)| number).eq([10, 11, 12]));
        for number in (10..100).filter(|number| *number != 50) {
            assert_eq!(matches!(sent.take(number), Taken::Packet(_)), number % 10 < 9, "{number}");
        }
        sent.push(packet(true));
        sent.forget_all();
        assert_eq!(sent.next_number(), 101, "numbers are never used twice");
        assert!(!sent.has_eliciting());
        assert_eq!((sent.first_number(), sent.next_number()), (101, 101));
    }
}
