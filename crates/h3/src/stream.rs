//! A slab of request streams, indexed by ID and by key.
//!
//! A stream keeps its slot until the caller releases it, however it ended: a peer that provokes resets cannot have more requests in
//! progress than it may open.

use bytes::Bytes;

use crate::frame::HEADER_MAX;

/// Identifies a stream for the caller. It never refers to a later stream in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestKey {
    pub(crate) slot: u32,
    pub(crate) id: u64,
}

impl RequestKey {
    /// The slot: a small, dense index, reused after the release; for the caller's own table.
    #[must_use]
    pub fn index(self) -> usize {
        self.slot as usize
    }

    /// The stream ID of the transport, for logs.
    #[must_use]
    pub fn id(self) -> u64 {
        self.id
    }
}

/// No slot.
const NONE: u32 = u32::MAX;
/// The memory that a free slot keeps for a section, or for output, in bytes.
const KEPT: usize = 4096;
/// The ID in a free slot: no stream has it.
pub(crate) const FREE: u64 = u64::MAX;
/// No `content-length`.
pub(crate) const ANY_LENGTH: u64 = u64::MAX;

/// The caller knows the stream: an event named it, or the caller opened it.
pub(crate) const KNOWN: u32 = 1;
/// The peer's final head has arrived.
pub(crate) const HEAD_RECEIVED: u32 = 1 << 1;
/// Its trailers have arrived.
pub(crate) const TRAILERS: u32 = 1 << 2;
/// The peer's message is complete.
pub(crate) const REMOTE_ENDED: u32 = 1 << 3;
/// Nothing more is read: the end of the stream was seen, or reading was stopped.
pub(crate) const READ_DONE: u32 = 1 << 4;
/// Our message is complete.
pub(crate) const LOCAL_ENDED: u32 = 1 << 5;
/// Nothing more is written: the stream was finished or reset.
pub(crate) const WRITE_DONE: u32 = 1 << 6;
/// The peer reset it.
pub(crate) const RESET_BY_PEER: u32 = 1 << 7;
/// We reset it, or the peer's GOAWAY excluded it.
pub(crate) const RESET_BY_US: u32 = 1 << 8;
/// It is in the queue of streams to read.
pub(crate) const READY: u32 = 1 << 9;
/// It is not read until the caller consumes data.
pub(crate) const PAUSED: u32 = 1 << 10;
/// The caller has data to send.
pub(crate) const WAITING: u32 = 1 << 11;
/// It is in the queue of streams that the caller may continue.
pub(crate) const WRITABLE: u32 = 1 << 12;
/// The transport reported it as writable.
pub(crate) const FLUSHABLE: u32 = 1 << 13;
/// The caller has released it, but its last bytes are still to be written.
pub(crate) const RELEASED: u32 = 1 << 14;
/// The response has no body whatever its head announces: HEAD.
pub(crate) const HEAD_METHOD: u32 = 1 << 15;
/// A CONNECT: `content-length` is ignored.
pub(crate) const CONNECT: u32 = 1 << 16;
/// It waits for entries of the dynamic table.
pub(crate) const BLOCKED: u32 = 1 << 17;
/// Our message was reset because the peer asked us to stop.
pub(crate) const STOPPED: u32 = 1 << 18;

pub(crate) const RESET: u32 = RESET_BY_PEER | RESET_BY_US;

/// The kind of the next bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramePosition {
    /// A frame header.
    Header,
    /// A field section, with the number of bytes that are missing.
    Section(usize),
    /// A body.
    Data(u64),
    /// Bytes to ignore.
    Skip(u64),
}

/// The end of a stream that was seen while looking for more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenEnd {
    Finished,
    Reset(u64),
}

/// A frame header that arrives in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PartialHeader {
    pub(crate) bytes: [u8; HEADER_MAX],
    pub(crate) length: u8,
}

/// One request stream.
#[derive(Debug)]
pub(crate) struct RequestStream {
    /// [`FREE`] in a free slot.
    pub(crate) id: u64,
    pub(crate) flags: u32,
    /// The next free slot.
    next_free: u32,
    pub(crate) reading: FramePosition,
    pub(crate) seen_end: Option<SeenEnd>,
    pub(crate) header: PartialHeader,
    /// Bytes read from the transport but not parsed yet.
    pub(crate) input: Bytes,
    /// A field section that arrives in pieces, or waits for the dynamic table.
    pub(crate) section: Vec<u8>,
    /// The rest of the body, by `content-length`.
    pub(crate) due: u64,
    /// Bytes passed to the caller but not consumed.
    pub(crate) held: usize,
    /// The rest of the DATA frame that is being sent.
    pub(crate) frame_left: u64,
    /// Bytes that the transport did not take yet, before the caller's.
    pub(crate) output: Vec<u8>,
    /// Payload that follows `output`, not copied.
    pub(crate) payload: Bytes,
}

impl RequestStream {
    fn new(id: u64) -> RequestStream {
        RequestStream {
            id,
            flags: 0,
            next_free: NONE,
            reading: FramePosition::Header,
            seen_end: None,
            header: PartialHeader::default(),
            input: Bytes::new(),
            section: Vec::new(),
            due: ANY_LENGTH,
            held: 0,
            frame_left: 0,
            output: Vec::new(),
            payload: Bytes::new(),
        }
    }

    #[inline]
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether the caller may send anything more.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        !self.has(RESET | LOCAL_ENDED | WRITE_DONE | RELEASED)
    }

    /// The number of bytes that the transport did not take yet.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.output.len() + self.payload.len()
    }

    /// Whether part of a field section or of its header has arrived.
    pub(crate) fn is_within_head(&self) -> bool {
        !self.has(HEAD_RECEIVED | READ_DONE)
            && (self.header.length > 0
                || self.has(BLOCKED)
                || matches!(self.reading, FramePosition::Section(_)))
    }
}

#[derive(Debug)]
pub(crate) struct StreamTable {
    slots: Vec<RequestStream>,
    free: u32,
    /// IDs and slots of open streams, sorted by ID.
    index: Vec<(u64, u32)>,
}

impl StreamTable {
    pub(crate) fn new() -> StreamTable {
        StreamTable { slots: Vec::new(), free: NONE, index: Vec::new() }
    }

    /// The number of slots in use.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Opens a stream, usually with an ID above all before. The ID must not be open.
    pub(crate) fn open(&mut self, id: u64) -> RequestKey {
        let slot = self.free;
        let slot = match self.slots.get_mut(slot as usize) {
            Some(place) => {
                self.free = place.next_free;
                // The memory of earlier messages is reused.
                let (section, output) =
                    (std::mem::take(&mut place.section), std::mem::take(&mut place.output));
                *place = RequestStream { section, output, ..RequestStream::new(id) };
                slot
            }
            None => {
                // Many connections have one stream at a time: do not allocate space for four.
                if self.slots.is_empty() {
                    self.slots.reserve_exact(1);
                    self.index.reserve_exact(1);
                }
                self.slots.push(RequestStream::new(id));
                self.slots.len() as u32 - 1
            }
        };
        let at = self.index.partition_point(|entry| entry.0 < id);
        self.index.insert(at, (id, slot));
        RequestKey { slot, id }
    }

    /// The slot of an open stream.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        // Most calls are for one of the newest.
        let at = self.index.binary_search_by_key(&id, |entry| entry.0).ok()?;
        Some(self.index[at].1)
    }

    #[inline]
    pub(crate) fn get(&self, key: RequestKey) -> Option<&RequestStream> {
        self.slots.get(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: RequestKey) -> Option<&mut RequestStream> {
        self.slots.get_mut(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    /// The stream in a slot that was in use.
    #[inline]
    pub(crate) fn at(&mut self, slot: u32) -> &mut RequestStream {
        &mut self.slots[slot as usize]
    }

    /// The key of the stream in a slot.
    pub(crate) fn key(&self, slot: u32) -> RequestKey {
        RequestKey { slot, id: self.slots[slot as usize].id }
    }

    /// Frees a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        let free = self.free;
        let stream = self.at(slot);
        let id = std::mem::replace(&mut stream.id, FREE);
        stream.flags = 0;
        stream.next_free = free;
        stream.input = Bytes::new();
        stream.payload = Bytes::new();
        for memory in [&mut stream.section, &mut stream.output] {
            if memory.capacity() > KEPT {
                *memory = Vec::new();
            }
            memory.clear();
        }
        self.free = slot;
        if let Ok(at) = self.index.binary_search_by_key(&id, |entry| entry.0) {
            self.index.remove(at);
        }
    }

    /// The keys of open streams, the newest last.
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = RequestKey> {
        self.index.iter().map(|&(id, slot)| RequestKey { slot, id })
    }

    /// All open streams, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RequestStream> {
        self.slots.iter().filter(|stream| stream.id != FREE)
    }

    /// Frees memory that no open stream uses.
    pub(crate) fn shrink(&mut self) {
        if self.index.is_empty() {
            *self = StreamTable::new();
        }
    }

    /// Heap memory in bytes, without the transport's bytes.
    pub(crate) fn heap(&self) -> usize {
        let of = |stream: &RequestStream| stream.section.capacity() + stream.output.capacity();
        self.slots.capacity() * size_of::<RequestStream>()
            + self.index.capacity() * size_of::<(u64, u32)>()
            + self.slots.iter().map(of).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_refer_to_later_streams_in_their_slot() {
        let mut streams = StreamTable::new();
        let first = streams.open(0);
        streams.remove(first.slot);
        let second = streams.open(4);
        assert_eq!(first.index(), second.index());
        assert!(streams.get(first).is_none() && streams.get(second).is_some());
        assert_eq!((streams.find(0), streams.find(4)), (None, Some(second.slot)));
    }

    #[test]
    fn streams_may_open_in_any_order() {
        let mut streams = StreamTable::new();
        for id in [8, 0, 12, 4] {
            streams.open(id);
        }
        assert!(streams.keys().map(RequestKey::id).eq([0, 4, 8, 12]));
        streams.remove(streams.find(8).unwrap());
        assert_eq!((streams.find(8), streams.len()), (None, 3));
        assert_eq!(streams.open(16).slot, 0, "slots are reused");
    }
}
