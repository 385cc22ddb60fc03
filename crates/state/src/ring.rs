//! Rings (configuration manual, 12.5): the latest messages of a stream, in bounded memory.
//!
//! Any thread may write; each reader has its own position. The messages of an *attached* reader (a server that must get every
//! message) are not overwritten: if the ring is full, new messages are rejected and counted. Other readers miss messages that are
//! overwritten before they read them. Rings do no I/O; only a [`Mirror`] may.
//!
//! Writing holds a lock for the duration of a copy. This is the only lock that a request may encounter, and only if its log line
//! is sent to a ring.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Size of the length prefix of each message.
const LENGTH: usize = 4;

/// Returns how many bytes of a ring a message of `length` bytes takes.
pub fn footprint(length: usize) -> usize {
    LENGTH + length
}

/// A copy of a ring in another place (`backing-file`).
pub trait Mirror: Send {
    /// Writes one message.
    fn write(&mut self, message: &[u8]);
}

/// The prefix of messages that the process itself writes (`format` of a ring). Log lines have their own headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stamp {
    /// No prefix.
    #[default]
    None,
    /// The level.
    Level,
    /// The time.
    Time,
    /// Level and time.
    LevelAndTime,
}

/// A ring.
pub struct Ring {
    /// The name of the ring.
    pub name: Box<str>,
    /// `description`; the name if not configured.
    pub description: Box<str>,
    /// `maxlen`: maximum message size in bytes. Writers truncate longer messages.
    pub max_length: usize,
    /// The prefix of messages that are not logs.
    pub stamp: Stamp,
    /// `size`, in bytes. Each message takes four additional bytes.
    size: usize,
    messages: Mutex<RingMessages>,
    /// Rejected messages. Written by the writers.
    dropped: AtomicU64,
}

#[derive(Default)]
struct RingMessages {
    bytes: VecDeque<u8>,
    /// The position of the first byte: the number of bytes that were already removed from the ring.
    first: u64,
    /// The positions of attached readers.
    attached: Vec<Option<u64>>,
    /// The readers waiting for a message.
    waiting: Vec<Waker>,
    mirror: Option<Box<dyn Mirror>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ring@{}", self.name)
    }
}

impl Ring {
    /// Creates an empty ring of `size` bytes for messages of up to `max_length`.
    pub fn new(name: &str, description: &str, size: usize, max_length: usize) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            max_length: max_length.min(size.saturating_sub(LENGTH)),
            stamp: Stamp::None,
            size,
            messages: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Sets the prefix of messages that are not logs.
    #[must_use]
    pub fn stamped(self, stamp: Stamp) -> Self {
        Self { stamp, ..self }
    }

    /// Returns `size`, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of rejected messages.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Sets `mirror` to receive a copy of all messages from now on.
    pub fn set_mirror(&self, mirror: Box<dyn Mirror>) {
        self.lock().mirror = Some(mirror);
    }

    /// Locks the messages. They are appended in one step, so they are valid even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, RingMessages> {
        self.messages.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Appends a message, overwriting the oldest ones if there is no room. Returns `false` if the message was rejected and counted:
    /// an attached reader still needs the oldest message, or the message is longer than the ring.
    pub fn write(&self, message: &[u8]) -> bool {
        let need = LENGTH + message.len();
        let mut messages = self.lock();
        if messages.bytes.capacity() == 0 {
            // The whole memory is allocated with the first message, so it never grows, and an unused ring costs nothing.
            messages.bytes.reserve_exact(self.size);
        }
        if need > self.size || !messages.make_room(need, self.size) {
            drop(messages);
            self.dropped.fetch_add(1, Relaxed);
            return false;
        }
        messages.bytes.extend((message.len() as u32).to_le_bytes());
        messages.bytes.extend(message);
        if let Some(mirror) = &mut messages.mirror {
            mirror.write(message);
        }
        let waiting = std::mem::take(&mut messages.waiting);
        drop(messages);
        waiting.into_iter().for_each(Waker::wake);
        true
    }
}

impl RingMessages {
    /// Drops the oldest messages until `need` bytes fit into `size`. Returns `false` if an attached reader still needs one of them.
    fn make_room(&mut self, need: usize, size: usize) -> bool {
        while self.bytes.len() + need > size {
            if self.attached.contains(&Some(self.first)) {
                return false;
            }
            let whole = LENGTH + self.length_at(0);
            self.bytes.drain(..whole);
            self.first += whole as u64;
        }
        true
    }

    fn length_at(&self, offset: usize) -> usize {
        let byte = |at: usize| self.bytes.get(offset + at).copied().unwrap_or(0);
        u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]) as usize
    }

    fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }
}

/// A reader with a position in a ring.
pub struct RingReader {
    ring: Arc<Ring>,
    /// The position of the next message. A position that has left the ring stands for the oldest message.
    at: u64,
    /// The index of this reader among the attached readers.
    attached: Option<usize>,
}

impl RingReader {
    /// Creates a reader that starts with the oldest message.
    pub fn oldest(ring: &Arc<Ring>) -> Self {
        Self { ring: ring.clone(), at: 0, attached: None }
    }

    /// Creates a reader that starts after the newest message.
    pub fn newest(ring: &Arc<Ring>) -> Self {
        let at = ring.lock().end();
        Self { ring: ring.clone(), at, attached: None }
    }

    /// Creates an attached reader, which starts with the oldest message and misses none.
    pub fn attach(ring: &Arc<Ring>) -> Self {
        let mut messages = ring.lock();
        let at = messages.first;
        let free = messages.attached.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            messages.attached.push(None);
            messages.attached.len() - 1
        });
        messages.attached[place] = Some(at);
        drop(messages);
        Self { ring: ring.clone(), at, attached: Some(place) }
    }

    /// Calls `each` with the next messages: at least one, and more until `limit` bytes are reached. Returns the position after
    /// them, for [`advance`](Self::advance).
    pub fn peek(&self, limit: usize, mut each: impl FnMut(&[u8])) -> u64 {
        let messages = self.ring.lock();
        let mut offset = self.at.saturating_sub(messages.first) as usize;
        let mut given = 0;
        let mut whole = Vec::new();
        let (front, back) = messages.bytes.as_slices();
        while given < limit && offset < messages.bytes.len() {
            let start = offset + LENGTH;
            let end = start + messages.length_at(offset);
            if end <= front.len() {
                each(&front[start..end]);
            } else if start >= front.len() {
                each(&back[start - front.len()..end - front.len()]);
            } else {
                // The single message that wraps around the end of the memory.
                whole.clear();
                whole.extend_from_slice(&front[start..]);
                whole.extend_from_slice(&back[..end - front.len()]);
                each(&whole);
            }
            given += (end - start).max(1);
            offset = end;
        }
        messages.first + offset as u64
    }

    /// Moves to `position`, after which earlier messages may leave the ring.
    pub fn advance(&mut self, position: u64) {
        self.at = position;
        if let Some(place) = self.attached {
            self.ring.lock().attached[place] = Some(position);
        }
    }

    /// Ready when there is a message.
    pub fn poll_message(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut messages = self.ring.lock();
        if messages.end() > self.at {
            return Poll::Ready(());
        }
        if !messages.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            messages.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        if let Some(place) = self.attached {
            self.ring.lock().attached[place] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(size: usize) -> Arc<Ring> {
        Arc::new(Ring::new("r", "r", size, 64))
    }

    fn all(reader: &RingReader) -> Vec<String> {
        let mut seen = Vec::new();
        reader.peek(usize::MAX, |message| seen.push(String::from_utf8_lossy(message).into_owned()));
        seen
    }

    #[test]
    fn a_full_ring_drops_its_oldest_messages() {
        let ring = ring(24);
        for number in 0..5 {
            assert!(ring.write(format!("m{number:03}").as_bytes()));
        }
        assert_eq!(all(&RingReader::oldest(&ring)), ["m002", "m003", "m004"], "three times eight bytes");
        assert_eq!(ring.dropped(), 0);
        assert!(all(&RingReader::newest(&ring)).is_empty());
    }

    #[test]
    fn attached_readers_miss_nothing_and_rejected_messages_are_counted() {
        let ring = ring(24);
        let mut reader = RingReader::attach(&ring);
        let written = (0..5).filter(|number| ring.write(format!("m{number:03}").as_bytes())).count();
        assert_eq!((written, ring.dropped()), (3, 2));
        let behind_one = reader.peek(1, |_| {});
        reader.advance(behind_one);
        assert!(ring.write(b"m005"));
        assert_eq!(all(&reader), ["m001", "m002", "m005"]);
        drop(reader);
        assert!(ring.write(b"m006"), "nobody holds the oldest any more");
    }

    #[test]
    fn an_overtaken_reader_continues_with_the_oldest_message() {
        let ring = ring(24);
        ring.write(b"m000");
        let reader = RingReader::oldest(&ring);
        (1..6).for_each(|number| assert!(ring.write(format!("m{number:03}").as_bytes())));
        assert_eq!(all(&reader), ["m003", "m004", "m005"]);
    }

    #[test]
    fn messages_of_any_length_round_trip() {
        let ring = Arc::new(Ring::new("r", "r", 97, 64));
        let mut reader = RingReader::attach(&ring);
        for round in 0..500usize {
            let message = vec![b'a' + (round % 26) as u8; round * 7 % 41];
            assert!(ring.write(&message));
            let mut seen = Vec::new();
            let behind = reader.peek(usize::MAX, |message| seen.push(message.to_vec()));
            reader.advance(behind);
            assert_eq!(seen, [message], "round {round}");
        }
        assert_eq!(ring.lock().bytes.capacity(), 97, "it never grew");
    }

    #[test]
    fn a_message_longer_than_the_ring_is_refused() {
        let ring = ring(8);
        assert!(ring.write(b"1234"));
        assert!(!ring.write(b"12345"));
        assert_eq!(ring.dropped(), 1);
        assert_eq!(all(&RingReader::oldest(&ring)), ["1234"]);
    }

    #[test]
    fn waiting_readers_are_woken_by_a_message() {
        use std::sync::atomic::AtomicUsize;
        struct Counter(AtomicUsize);
        impl std::task::Wake for Counter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let counter = Arc::new(Counter(AtomicUsize::new(0)));
        let waker = Waker::from(counter.clone());
        let mut context = Context::from_waker(&waker);
        let ring = ring(64);
        let reader = RingReader::newest(&ring);
        assert!(reader.poll_message(&mut context).is_pending());
        assert!(reader.poll_message(&mut context).is_pending());
        ring.write(b"x");
        assert_eq!(counter.0.load(Relaxed), 1, "once, however often it looked");
        assert!(reader.poll_message(&mut context).is_ready());
    }
}
