//! What is known of one file: for what it answers, how long it may be used, how much it takes. Kept by
//! [`Files`](crate::StoreFiles).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::by_use::UsedItem;
use crate::identity::Identity;
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// Memory that an entry takes beside its key, what it varies on and its tags.
pub(crate) const ENTRY: usize = size_of::<Entry>() + 128;

/// A response in a file.
#[derive(Debug)]
pub struct Entry {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    /// Its tags, spaces between them.
    pub(crate) tags: Box<[u8]>,
    pub(crate) times: FreshnessTimes,
    /// The number of its file.
    pub number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// When it was used last. Written by any worker.
    pub(crate) used_ms: AtomicU64,
    /// Under what instant it stands in the order of use. Written under the lock of that.
    pub(crate) placed_ms: AtomicU64,
    /// Whether the file is there as a whole.
    pub(crate) is_there: AtomicBool,
    /// Whether nobody may get it any more.
    pub(crate) is_gone: AtomicBool,
    /// Whether memory does not hold it.
    pub(crate) is_long: bool,
}

impl Entry {
    /// One whose file is not there yet.
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

    /// Whether nobody may get it any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Whether memory does not hold it: it is sent out of its file.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// The first 32 bits of the hash of its key.
    pub fn hash(&self) -> u32 {
        (self.hash >> 32) as u32
    }

    /// What it varies on, as one number; 0 for nothing.
    pub fn variant(&self) -> u64 {
        self.variant.number()
    }

    /// Seconds until it is not fresh any more; negative since.
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
