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
    /// Written by who holds it, and by who has it counted elsewhere from then on.
    blocks: AtomicU32,
}

impl Room {
    fn new(free: &Free, blocks: u32) -> Self {
        Self { free: free.clone(), blocks: AtomicU32::new(blocks) }
    }

    /// So many of those that are free, if there are as many.
    pub(crate) fn take(free: &Free, blocks: u32) -> Option<Self> {
        let took = free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(blocks));
        took.is_ok().then(|| Self::new(free, blocks))
    }

    /// None of them yet.
    pub(crate) fn empty(free: &Free) -> Self {
        Self::new(free, 0)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.load(Relaxed)
    }

    /// Takes over what `other` has.
    pub(crate) fn add(&mut self, mut other: Self) {
        *self.blocks.get_mut() += std::mem::take(other.blocks.get_mut());
    }

    /// Moves so many of its blocks, at most all, to a room of their own.
    pub(crate) fn split(&mut self, blocks: u32) -> Self {
        let own = self.blocks.get_mut();
        let blocks = blocks.min(*own);
        *own -= blocks;
        Self::new(&self.free, blocks)
    }

    /// Gives all of it back: what it was for counts elsewhere.
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
