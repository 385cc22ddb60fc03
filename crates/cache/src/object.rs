//! A stored response. All workers share one copy, and hold a reference while it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::Head;

use crate::by_use::UsedItem;
use crate::entry::Entry;
use crate::identity::Identity;
use crate::room::Room;
use crate::settings::CacheSettings;
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// A body, and its memory, which is counted as long as the body is referenced.
#[derive(Debug)]
pub struct StoredBody {
    bytes: Box<[u8]>,
    room: Room,
}

impl StoredBody {
    pub(crate) fn new(bytes: Box<[u8]>, room: Room) -> Arc<Self> {
        Arc::new(Self { bytes, room })
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.room.blocks()
    }
}

impl std::ops::Deref for StoredBody {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A response, or only its hints.
#[derive(Debug)]
pub struct Object {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    /// The head to send: without fields that are specific to a connection or message, and with the length of the body. For hints,
    /// only the `Link` fields.
    pub head: Head,
    /// The body. After a validation, the updated response shares it with the old version.
    pub body: Arc<StoredBody>,
    /// Whether the object has only hints.
    pub is_hints: bool,
    /// The file with the same response, if the response was read from one.
    pub(crate) file: Option<Arc<Entry>>,
    /// The memory that the object takes in the store, without its body.
    pub(crate) room: Room,
    /// The number of the object, in order of storing.
    pub(crate) number: u64,
    pub(crate) times: FreshnessTimes,
    /// The time of the last use. Any worker may set it, at most once per millisecond each.
    pub(crate) used_ms: AtomicU64,
    /// The time under which the object is in the order of use. Set while the order's lock is held.
    pub(crate) placed_ms: AtomicU64,
}

/// The information about an object in `show cache`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSummary {
    /// The first 32 bits of the key's hash.
    pub hash: u32,
    /// The variant as a number; 0 for none.
    pub variant: u64,
    /// Whether the object has only hints.
    pub is_hints: bool,
    /// Size in bytes.
    pub size: u64,
    /// Size in blocks.
    pub blocks: u32,
    /// The seconds until the response is stale; negative after that.
    pub expires: i64,
}

impl Object {
    pub(crate) fn new(
        Identity { hash, key, variant }: Identity,
        head: Head,
        body: Arc<StoredBody>,
        times: FreshnessTimes,
        room: Room,
        used_ms: u64,
    ) -> Self {
        let (used_ms, placed_ms) = (AtomicU64::new(used_ms), AtomicU64::new(used_ms));
        let (is_hints, number, file) = (false, 0, None);
        Self { hash, key, variant, head, body, is_hints, file, room, number, times, used_ms, placed_ms }
    }

    /// Returns the identity of the requests that the response answers.
    pub(crate) fn identity(&self) -> Identity {
        Identity { hash: self.hash, key: self.key.clone(), variant: self.variant.clone() }
    }

    /// Returns the size of the object in blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.room.blocks() + self.body.blocks()
    }

    /// Releases the object's memory, which is counted elsewhere from here on.
    pub(crate) fn release(&self) {
        self.room.release();
        self.body.room.release();
    }

    /// Returns the date for `If-Modified-Since`, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.times.modified
    }

    /// Returns the age of the response, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.times.age) + now_ms.saturating_sub(self.times.stored_ms) / 1000
    }

    /// Whether the response is fresh.
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.times.expires_ms
    }

    /// Whether the response may be used during a refresh (RFC 5861, 3).
    pub fn may_wait(&self, now_ms: u64) -> bool {
        now_ms < self.times.revalidate_ms
    }

    /// Whether the response may be used after an error (RFC 5861, 4).
    pub fn may_help(&self, now_ms: u64) -> bool {
        now_ms < self.times.error_ms
    }

    /// Records a use of the object.
    #[inline]
    pub(crate) fn touch(&self, now_ms: u64) {
        if self.used_ms.load(Relaxed) < now_ms {
            self.used_ms.store(now_ms, Relaxed);
        }
    }

    /// Returns the memory size of the object in bytes.
    pub(crate) fn size(&self) -> u64 {
        memory(&self.head, &self.key, &self.variant) + self.body.len() as u64
    }

    /// Returns the information to show.
    pub fn shown(&self, now_ms: u64) -> ObjectSummary {
        ObjectSummary {
            hash: (self.hash >> 32) as u32,
            variant: self.variant.number(),
            is_hints: self.is_hints,
            size: self.size(),
            blocks: self.blocks(),
            expires: self.times.expires_in(now_ms),
        }
    }
}

impl UsedItem for Object {
    fn number(&self) -> u64 {
        self.number
    }

    fn used_ms(&self) -> &AtomicU64 {
        &self.used_ms
    }

    fn placed_ms(&self) -> &AtomicU64 {
        &self.placed_ms
    }
}

/// Returns the memory size of an object without its body.
pub(crate) fn memory(head: &Head, key: &[u8], variant: &Variant) -> u64 {
    (size_of::<Object>() + head.memory() + key.len() + variant.memory()) as u64
}

/// Returns the number of blocks for this many bytes.
pub(crate) fn blocks_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CacheSettings::BLOCK)).unwrap_or(u32::MAX)
}
