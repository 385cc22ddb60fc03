//! The metadata of one file: its key, freshness and size. Held by [`Files`](crate::StoreFiles).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::by_use::UsedItem;
use crate::identity::Identity;
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// Memory overhead of an entry, excluding its key, variant and tags.
pub(crate) const ENTRY: usize = size_of::<Entry>() + 128;

/// A response in a file.
#[derive(Debug)]
pub struct Entry {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    /// The tags of the response, separated by spaces.
    pub(crate) tags: Box<[u8]>,
    pub(crate) times: FreshnessTimes,
    /// The number of the entry's file.
    pub number: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// The time of the last use. Any worker may set it.
    pub(crate) used_ms: AtomicU64,
    /// The time under which the entry is in the order of use. Set while the order's lock is held.
    pub(crate) placed_ms: AtomicU64,
    /// Whether the file is complete.
    pub(crate) is_there: AtomicBool,
    /// Whether the entry must not be used any more.
    pub(crate) is_gone: AtomicBool,
    /// Whether the response is too long for memory.
    pub(crate) is_long: bool,
}

impl Entry {
    /// Creates an entry without a complete file.
    pub(crate) fn new(
        Identity { hash, key, variant }: Identity,
        tags: Box<[u8]>,
        times: FreshnessTimes,
        number: u64,
        size: u64,
        used_ms: u64,
    ) -> Self {
        Self {
            hash,
            key,
            variant,
            tags,
            times,
            number,
            size,
            used_ms: AtomicU64::new(used_ms),
            placed_ms: AtomicU64::new(used_ms),
            is_there: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_long: false,
        }
    }

    /// Whether the entry must not be used any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Whether the response is too long for memory, so that it is sent from its file.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Returns the first 32 bits of the key's hash.
    pub fn hash(&self) -> u32 {
        (self.hash >> 32) as u32
    }

    /// Returns the variant as a number; 0 for none.
    pub fn variant(&self) -> u64 {
        self.variant.number()
    }

    /// Returns the seconds until the response is stale; negative after that.
    pub fn expires(&self, now_ms: u64) -> i64 {
        self.times.expires_in(now_ms)
    }

    pub(crate) fn memory(&self) -> usize {
        ENTRY + self.key.len() + self.variant.memory() + self.tags.len()
    }
}

impl UsedItem for Entry {
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
