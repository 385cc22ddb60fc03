//! Memory of a store, counted in blocks. What takes some holds a [`Room`], which gives it back when it
//! is dropped: an object counts as long as anybody sends it, also once the store has let go of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Blocks that nothing takes. Written by who takes some and by who lets go of an object last.
pub(crate) type Free = Arc<AtomicU32>;

/// Blocks that something takes.
#[derive(Debug)]
pub(crate) struct Room {
    free: Free,
    blocks: u32,
}

impl Room {
    /// So many of those that are free, if there are as many.
    pub(crate) fn take(free: &Free, blocks: u32) -> Option<Self> {
        let took = free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(blocks));
        took.is_ok().then(|| Self { free: free.clone(), blocks })
    }

    /// None of them yet.
    pub(crate) fn empty(free: &Free) -> Self {
        Self { free: free.clone(), blocks: 0 }
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Takes over what `other` has.
    pub(crate) fn add(&mut self, mut other: Self) {
        self.blocks += std::mem::take(&mut other.blocks);
    }

    /// Moves so many of its blocks, at most all, to a room of their own.
    pub(crate) fn split(&mut self, blocks: u32) -> Self {
        let blocks = blocks.min(self.blocks);
        self.blocks -= blocks;
        Self { free: self.free.clone(), blocks }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.free.fetch_add(self.blocks, Relaxed);
        }
    }
}
