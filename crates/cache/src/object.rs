//! A response that is kept. One copy serves all workers; whoever sends it holds it meanwhile.

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

/// A body, and the memory that it takes as long as anybody holds it.
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

/// A response, or the hints that are left of one.
#[derive(Debug)]
pub struct Object {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    /// What is sent of its head: without the fields that told of one message or connection, and with
    /// the length of its body. Of hints, the `Link` fields alone.
    pub head: Head,
    /// The body. A response and what it was before its head was freshened share it.
    pub body: Arc<StoredBody>,
    /// Whether only hints are left of it.
    pub is_hints: bool,
    /// The file that has it too, if it came from one.
    pub(crate) file: Option<Arc<Entry>>,
    /// What it takes of the store's memory beside that of its body.
    pub(crate) room: Room,
    /// Its number, in the order in which objects came.
    pub(crate) number: u64,
    pub(crate) times: FreshnessTimes,
    /// When it was used last. Written by any worker, at most once in a millisecond each.
    pub(crate) used_ms: AtomicU64,
    /// Under what instant it stands in the order of use. Written under the lock of that.
    pub(crate) placed_ms: AtomicU64,
}

/// What `show cache` tells of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSummary {
    /// The first 32 bits of the hash of its key.
    pub hash: u32,
    /// What it varies on, as one number; 0 for nothing.
    pub variant: u64,
    /// Whether only hints are left of it.
    pub is_hints: bool,
    /// Bytes.
    pub size: u64,
    /// Blocks that these take.
    pub blocks: u32,
    /// Seconds until it is not fresh any more; negative since.
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

    /// Which requests get it.
    pub(crate) fn identity(&self) -> Identity {
        Identity { hash: self.hash, key: self.key.clone(), variant: self.variant.clone() }
    }

    /// Blocks that it takes.
    pub(crate) fn blocks(&self) -> u32 {
        self.room.blocks() + self.body.blocks()
    }

    /// Its memory counts elsewhere from now on.
    pub(crate) fn release(&self) {
        self.room.release();
        self.body.room.release();
    }

    /// What `If-Modified-Since` is compared with, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.times.modified
    }

    /// How old it is, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.times.age) + now_ms.saturating_sub(self.times.stored_ms) / 1000
    }

    /// Whether it may be used by all who ask.
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.times.expires_ms
    }

    /// Whether it may be used while a fresh one is fetched (RFC 5861, 3).
    pub fn may_wait(&self, now_ms: u64) -> bool {
        now_ms < self.times.revalidate_ms
    }

    /// Whether it may be used where none can be fetched (RFC 5861, 4).
    pub fn may_help(&self, now_ms: u64) -> bool {
        now_ms < self.times.error_ms
    }

    /// Notes that it was used.
    #[inline]
    pub(crate) fn touch(&self, now_ms: u64) {
        if self.used_ms.load(Relaxed) < now_ms {
            self.used_ms.store(now_ms, Relaxed);
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn size(&self) -> u64 {
        memory(&self.head, &self.key, &self.variant) + self.body.len() as u64
    }

    /// What is told of it.
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

/// Bytes of memory that an object takes beside its body.
pub(crate) fn memory(head: &Head, key: &[u8], variant: &Variant) -> u64 {
    (size_of::<Object>() + head.memory() + key.len() + variant.memory()) as u64
}

/// The blocks that hold so many bytes.
pub(crate) fn blocks_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CacheSettings::BLOCK)).unwrap_or(u32::MAX)
}
