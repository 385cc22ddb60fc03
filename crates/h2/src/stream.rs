//! A slab of streams, indexed by ID and by key, and a list of recently closed streams.
//!
//! The client opens all streams, so their IDs are odd and increasing. A stream keeps its slot until the caller releases it, even if
//! it has ended: a peer that provokes resets cannot have more streams in progress than it may open (the "MadeYouReset" attack).

use fields::Priority;

/// Identifies a stream for the caller. A key never refers to a later stream in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(crate) slot: u32,
    pub(crate) id: u32,
}

impl StreamKey {
    /// The slot: a small, dense index for the caller's own table. Reused after the release.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot as usize
    }

    /// The stream ID in frames, for logs.
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }
}

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// No `content-length`.
pub(crate) const ANY_LENGTH: u64 = u64::MAX;

/// The peer's message is complete.
pub(crate) const REMOTE_ENDED: u16 = 1;
/// Our message is complete.
pub(crate) const LOCAL_ENDED: u16 = 2;
/// The peer reset the stream.
pub(crate) const RESET_BY_PEER: u16 = 4;
/// We reset the stream, or the peer's GOAWAY excluded it.
pub(crate) const RESET_BY_US: u16 = 8;
/// The peer's final head has arrived.
pub(crate) const HEAD_RECEIVED: u16 = 16;
/// The stream counts among those that share the receive buffers.
pub(crate) const RECEIVING: u16 = 32;
/// The stream has data to send.
pub(crate) const WAITING: u16 = 64;
/// The stream is in a send queue.
pub(crate) const QUEUED: u16 = 128;
/// `next_writable` returned the stream, which has not sent since then.
pub(crate) const TURN: u16 = 256;
/// The stream is sent to its end before others of its urgency (RFC 9218: not incremental).
pub(crate) const SEQUENTIAL: u16 = 512;
/// The request method is HEAD, so the response has no body, whatever its head announces.
pub(crate) const HEAD_METHOD: u16 = 1024;
/// The request is a CONNECT, so `content-length` is ignored.
pub(crate) const CONNECT: u16 = 2048;
/// The caller has released the stream, but the rest of its request has not arrived yet.
pub(crate) const UNFINISHED: u16 = 4096;

pub(crate) const RESET: u16 = RESET_BY_PEER | RESET_BY_US;
pub(crate) const ENDED: u16 = REMOTE_ENDED | LOCAL_ENDED;

#[derive(Debug)]
pub(crate) struct StreamState {
    /// 0 in a free slot.
    pub(crate) id: u32,
    pub(crate) flags: u16,
    pub(crate) urgency: u8,
    /// The send window. Negative after the peer has reduced its initial window.
    pub(crate) sendable: i32,
    /// The receive window. Negative as long as the peer does not know the initial window of this side.
    pub(crate) credit: i32,
    /// Bytes passed to the caller but not consumed.
    pub(crate) held: u32,
    /// The rest of the body, by `content-length`.
    pub(crate) due: u64,
    /// Neighbours in a queue, or the next free slot.
    pub(crate) previous: u32,
    pub(crate) next: u32,
}

impl StreamState {
    #[inline]
    pub(crate) fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Whether both messages are complete.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.flags & ENDED == ENDED
    }

    /// Whether anything more can be sent.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        !self.has(RESET | LOCAL_ENDED)
    }

    pub(crate) fn set_priority(&mut self, priority: Priority) {
        self.urgency = priority.urgency.min(7);
        self.flags &= !SEQUENTIAL;
        self.flags |= if priority.incremental { 0 } else { SEQUENTIAL };
    }
}

/// How a closed stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    Ended,
    ResetByPeer,
    ResetByUs,
    /// The stream ended before those in the list of closed streams.
    Unknown,
    /// The stream was never opened, because a stream with a higher ID was opened first.
    Skipped,
}

/// The state of a stream ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamSlot {
    Here(u32),
    Gone(Gone),
    Idle,
}

/// The number of closed streams remembered.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<StreamState>,
    free: u32,
    /// IDs and slots of open streams, sorted by ID.
    index: Vec<(u32, u32)>,
    /// The most recently closed streams, at most [`REMEMBERED`]: the ID without its lowest bit, and how the stream ended in the
    /// upper two bits.
    gone: Vec<u32>,
    /// The index of the oldest one, once the list is full.
    gone_at: u8,
    /// The highest ID dropped from `gone`.
    forgotten: u32,
    /// The highest ID opened.
    pub(crate) last: u32,
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams {
            slots: Vec::new(),
            free: NONE,
            index: Vec::new(),
            gone: Vec::new(),
            gone_at: 0,
            forgotten: 0,
            last: 0,
        }
    }

    /// The number of slots in use.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Opens a stream with an ID above all earlier ones.
    pub(crate) fn open(&mut self, id: u32, sendable: i32, credit: i32) -> StreamKey {
        let next = NONE;
        let (flags, urgency, held, due, previous) = (0, 3, 0, ANY_LENGTH, NONE);
        let stream = StreamState { id, flags, urgency, sendable, credit, held, due, previous, next };
        let slot = self.free;
        let slot = match self.slots.get_mut(slot as usize) {
            Some(place) => {
                self.free = place.next;
                *place = stream;
                slot
            }
            None => {
                // Many connections have one stream at a time, so no space is allocated for four.
                if self.slots.is_empty() {
                    self.slots.reserve_exact(1);
                    self.index.reserve_exact(1);
                }
                self.slots.push(stream);
                self.slots.len() as u32 - 1
            }
        };
        self.last = id;
        self.index.push((id, slot));
        StreamKey { slot, id }
    }

    /// Looks up an ID. Even IDs are never opened.
    pub(crate) fn find(&self, id: u32) -> StreamSlot {
        if id > self.last || id.is_multiple_of(2) {
            return StreamSlot::Idle;
        }
        if let Ok(at) = self.index.binary_search_by_key(&id, |entry| entry.0) {
            return StreamSlot::Here(self.index[at].1);
        }
        let known = self.gone.iter().find(|entry| **entry & 0x3fff_ffff == id >> 1);
        StreamSlot::Gone(match known.map(|entry| entry >> 30) {
            Some(1) => Gone::Ended,
            Some(2) => Gone::ResetByPeer,
            Some(_) => Gone::ResetByUs,
            None if id <= self.forgotten => Gone::Unknown,
            None => Gone::Skipped,
        })
    }

    #[inline]
    pub(crate) fn get(&self, key: StreamKey) -> Option<&StreamState> {
        self.slots.get(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: StreamKey) -> Option<&mut StreamState> {
        self.slots.get_mut(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    /// The number of slots, free or not.
    pub(crate) fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The stream in a slot returned by `find`.
    #[inline]
    pub(crate) fn at(&mut self, slot: u32) -> &mut StreamState {
        &mut self.slots[slot as usize]
    }

    /// Frees the stream's slot and remembers how it ended.
    pub(crate) fn remove(&mut self, key: StreamKey) {
        let free = self.free;
        let Some(stream) = self.get_mut(key) else { return };
        let gone = match stream.flags {
            flags if flags & RESET_BY_PEER != 0 => Gone::ResetByPeer,
            flags if flags & RESET_BY_US != 0 => Gone::ResetByUs,
            _ => Gone::Ended,
        };
        stream.id = 0;
        stream.next = free;
        self.free = key.slot;
        if let Ok(at) = self.index.binary_search_by_key(&key.id, |entry| entry.0) {
            self.index.remove(at);
        }
        self.remember(key.id, gone);
    }

    /// Records that the peer ended or reset a stream that this side had reset, so that later frames on it are errors and not frames
    /// in transit.
    pub(crate) fn note_end(&mut self, id: u32, how: Gone) {
        let new = id >> 1 | Self::how(how) << 30;
        if let Some(known) = self.gone.iter_mut().find(|entry| **entry & 0x3fff_ffff == id >> 1) {
            *known = new;
        }
    }

    /// Marks an ID as used without a slot.
    pub(crate) fn refuse(&mut self, id: u32) {
        self.last = id;
        self.remember(id, Gone::ResetByUs);
    }

    fn how(gone: Gone) -> u32 {
        match gone {
            Gone::Ended => 1,
            Gone::ResetByPeer => 2,
            _ => 3,
        }
    }

    fn remember(&mut self, id: u32, gone: Gone) {
        let new = id >> 1 | Self::how(gone) << 30;
        if self.gone.len() < REMEMBERED {
            self.gone.push(new);
            return;
        }
        let oldest = std::mem::replace(&mut self.gone[self.gone_at as usize], new);
        self.forgotten = self.forgotten.max((oldest & 0x3fff_ffff) << 1 | 1);
        self.gone_at = (self.gone_at + 1) % REMEMBERED as u8;
    }

    /// The keys of open streams, the newest last.
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = StreamKey> {
        self.index.iter().map(|&(id, slot)| StreamKey { slot, id })
    }

    /// All open streams, by slot.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut StreamState)> {
        self.slots.iter_mut().enumerate().filter(|(_, s)| s.id != 0).map(|(slot, s)| (slot as u32, s))
    }

    /// Frees memory if no stream is open.
    pub(crate) fn shrink(&mut self) {
        if self.index.is_empty() {
            (self.slots, self.index, self.free) = (Vec::new(), Vec::new(), NONE);
        }
    }

    /// Heap memory in bytes.
    pub(crate) fn heap(&self) -> usize {
        self.slots.capacity() * size_of::<StreamState>()
            + self.index.capacity() * size_of::<(u32, u32)>()
            + self.gone.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_refer_to_later_streams_in_their_slot() {
        let mut streams = Streams::new();
        let first = streams.open(1, 0, 0);
        streams.remove(first);
        let second = streams.open(3, 0, 0);
        assert_eq!(first.index(), second.index());
        assert!(streams.get(first).is_none() && streams.get(second).is_some());
        streams.remove(first);
        assert_eq!(streams.len(), 1, "a stale key removes nothing");
    }

    #[test]
    fn closed_streams_are_remembered_for_a_while() {
        let mut streams = Streams::new();
        for (id, flags) in [(1, ENDED), (5, RESET_BY_PEER), (7, RESET_BY_US)] {
            let key = streams.open(id, 0, 0);
            streams.at(key.slot).flags = flags;
            streams.remove(key);
        }
        assert_eq!(streams.find(1), StreamSlot::Gone(Gone::Ended));
        assert_eq!(streams.find(3), StreamSlot::Gone(Gone::Skipped));
        assert_eq!(streams.find(5), StreamSlot::Gone(Gone::ResetByPeer));
        assert_eq!(streams.find(7), StreamSlot::Gone(Gone::ResetByUs));
        assert_eq!((streams.find(9), streams.find(2)), (StreamSlot::Idle, StreamSlot::Idle));
        for id in 0..REMEMBERED as u32 {
            let key = streams.open(9 + 2 * id, 0, 0);
            streams.remove(key);
        }
        assert_eq!(streams.find(5), StreamSlot::Gone(Gone::Unknown));
        assert_eq!(streams.slots.len(), 1, "places are reused");
    }
}
