//! The memory accounting of a store, in blocks. A user of memory holds a [`Room`], which returns the blocks when it is dropped: an
//! object is counted as long as it is being sent, even after the store has dropped it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of free blocks. Changed when blocks are taken, and when an object is finally dropped.
pub(crate) type Free = Arc<AtomicU32>;

/// Blocks in use.
#[derive(Debug)]
pub(crate) struct Room {
    free: Free,
    /// Written by the holder, and when accounting moves elsewhere.
    blocks: AtomicU32,
}

impl Room {
    fn new(free: &Free, blocks: u32) -> Self {
        Self { free: free.clone(), blocks: AtomicU32::new(blocks) }
    }

    /// Takes this many free blocks, if there are enough.
    pub(crate) fn take(free: &Free, blocks: u32) -> Option<Self> {
        let took = free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(blocks));
        took.is_ok().then(|| Self::new(free, blocks))
    }

    /// Creates an empty room.
    pub(crate) fn empty(free: &Free) -> Self {
        Self::new(free, 0)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.load(Relaxed)
    }

    /// Adds the blocks of `other`.
    pub(crate) fn add(&mut self, mut other: Self) {
        *self.blocks.get_mut() += std::mem::take(other.blocks.get_mut());
    }

    /// Moves up to this many blocks to a new room.
    pub(crate) fn split(&mut self, blocks: u32) -> Self {
        let own = self.blocks.get_mut();
        let blocks = blocks.min(*own);
        *own -= blocks;
        Self::new(&self.free, blocks)
    }

    /// Returns all blocks, because the memory is counted elsewhere.
    pub(crate) fn release(&self) {
        let blocks = self.blocks.swap(0, Relaxed);
        if blocks > 0 {
            self.free.fetch_add(blocks, Relaxed);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.release();
    }
}
