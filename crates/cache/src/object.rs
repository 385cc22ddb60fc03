//! A response that is kept. One copy serves all workers; whoever sends it holds it meanwhile.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::Head;

use crate::room::Room;
use crate::settings::Settings;
use crate::vary::Variant;

/// A response, or the hints that are left of one.
#[derive(Debug)]
pub struct Object {
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    /// What is sent of its head: without the fields that told of one message or connection, and with
    /// the length of its body. Of hints, the `Link` fields alone.
    pub head: Head,
    /// The body.
    pub body: Box<[u8]>,
    /// Whether only hints are left of it.
    pub is_hints: bool,
    /// What it takes of the store's memory.
    pub(crate) room: Room,
    /// Its number, in the order in which objects came.
    pub(crate) number: u64,
    /// How old it was when it came, in seconds.
    pub(crate) age: u32,
    /// What `If-Modified-Since` is compared with, in seconds since 1970.
    pub(crate) modified: i64,
    /// When it came, in ms of the monotonic clock.
    pub(crate) stored_ms: u64,
    /// From when on it is not fresh any more.
    pub(crate) expires_ms: u64,
    /// Until when it is used while a fresh one is fetched.
    pub(crate) revalidate_ms: u64,
    /// Until when it is used where none can be fetched.
    pub(crate) error_ms: u64,
    /// When it was used last. Written by any worker, at most once in a millisecond each.
    pub(crate) used_ms: AtomicU64,
    /// Under what instant it stands in the order of use. Written under the lock of that.
    pub(crate) placed_ms: AtomicU64,
}

/// What `show cache` tells of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
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
    /// How old it is, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.age) + now_ms.saturating_sub(self.stored_ms) / 1000
    }

    /// Whether it may be used by all who ask.
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.expires_ms
    }

    /// Whether it may be used while a fresh one is fetched (RFC 5861, 3).
    pub fn may_wait(&self, now_ms: u64) -> bool {
        now_ms < self.revalidate_ms
    }

    /// Whether it may be used where none can be fetched (RFC 5861, 4).
    pub fn may_help(&self, now_ms: u64) -> bool {
        now_ms < self.error_ms
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
    pub fn shown(&self, now_ms: u64) -> Shown {
        Shown {
            hash: (self.hash >> 32) as u32,
            variant: self.variant.number(),
            is_hints: self.is_hints,
            size: self.size(),
            blocks: self.room.blocks(),
            expires: (self.expires_ms as i64 - now_ms as i64).div_euclid(1000),
        }
    }
}

/// Bytes of memory that an object takes beside its body.
pub(crate) fn memory(head: &Head, key: &[u8], variant: &Variant) -> u64 {
    (size_of::<Object>() + head.memory() + key.len() + variant.memory()) as u64
}

/// The blocks that hold so many bytes.
pub(crate) fn blocks_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(Settings::BLOCK)).unwrap_or(u32::MAX)
}
