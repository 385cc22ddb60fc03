//! A list of configured items, followed by items added at run time.
//!
//! An index never changes and is never reused, so that tasks may keep it across any wait. Reading takes no lock; additions are
//! serialized.

use std::ops::Index;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, OnceLock};

/// Added items are in chunks of growing size: 16, 16, 32, 32, 64, 64 … Thus at most a third of the slots is unused.
const FIRST: usize = 16;
/// Maximum number of chunks: enough for two million items.
const CHUNKS: usize = 32;

/// The chunks that exist.
type Chunks<T> = [OnceLock<Box<[OnceLock<T>]>>; CHUNKS];

/// Items by index.
#[derive(Debug)]
pub struct Grown<T> {
    fixed: Vec<T>,
    /// Created with the first added item.
    added: OnceLock<Box<Chunks<T>>>,
    /// The number of added items. Written under the lock when an item is added.
    count: AtomicUsize,
    adding: Mutex<()>,
}

impl<T> Default for Grown<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T> From<Vec<T>> for Grown<T> {
    fn from(fixed: Vec<T>) -> Self {
        Self { fixed, added: OnceLock::new(), count: AtomicUsize::new(0), adding: Mutex::default() }
    }
}

impl<T> Grown<T> {
    /// Returns the number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.fixed.len() + self.count.load(Acquire)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the item at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.fixed.get(index).or_else(|| self.get_added(index.checked_sub(self.fixed.len())?))
    }

    #[cold]
    fn get_added(&self, at: usize) -> Option<&T> {
        let (chunk, offset) = place(at);
        self.added.get()?.get(chunk)?.get()?.get(offset)?.get()
    }

    /// Returns all items, in order of their indexes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.fixed.iter().chain(self.iter_added())
    }

    /// Returns the items added at run time.
    pub fn iter_added(&self) -> impl Iterator<Item = &T> {
        (0..self.count.load(Acquire)).filter_map(|at| self.get_added(at))
    }

    /// Appends the result of `make`, which is called with the index of the new item. Returns `None` if there is no room left.
    pub fn add(&self, make: impl FnOnce(usize) -> T) -> Option<&T> {
        // Items are added as a whole, so the list is valid even if the lock is poisoned.
        let _adding = self.adding.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = self.count.load(Acquire);
        let (chunk, offset) = place(at);
        let chunks = self.added.get_or_init(|| Box::new([const { OnceLock::new() }; CHUNKS]));
        let slots =
            chunks.get(chunk)?.get_or_init(|| (0..FIRST << (chunk / 2)).map(|_| OnceLock::new()).collect());
        let added = slots.get(offset)?.get_or_init(|| make(self.fixed.len() + at));
        self.count.store(at + 1, Release);
        Some(added)
    }

    /// Returns the configured items of a list that has no other references.
    pub fn into_fixed(self) -> Vec<T> {
        self.fixed
    }
}

/// Returns the chunk of the `at`-th added item, and the offset in it.
fn place(at: usize) -> (usize, usize) {
    // Pair n starts at 2 * FIRST * (2^n - 1).
    let pair = (at / (2 * FIRST) + 1).ilog2() as usize;
    let (size, offset) = (FIRST << pair, at - 2 * FIRST * ((1 << pair) - 1));
    (2 * pair + offset / size, offset % size)
}

impl<T> Index<usize> for Grown<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(item) => item,
            None => panic!("there is nothing at place {index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_contiguous_across_chunks() {
        let mut expected = (0, 0);
        for at in 0..10_000 {
            assert_eq!(place(at), expected, "{at}");
            expected.1 += 1;
            if expected.1 == FIRST << (expected.0 / 2) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(1_000_000).0 < CHUNKS);
    }

    #[test]
    fn added_items_follow_the_others_and_keep_their_index() {
        let all = Grown::from(vec![10, 11]);
        for number in 0..100 {
            assert_eq!(all.add(|place| place as u32 + 10), Some(&(12 + number)));
        }
        assert_eq!(all.len(), 102);
        assert!(all.iter().copied().eq(10..112));
        assert!(all.iter_added().copied().eq(12..112));
        assert_eq!((all[1], all[2], all[101], all.get(102)), (11, 12, 111, None));
    }
}
