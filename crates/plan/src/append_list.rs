//! A list of what the configuration made and, behind it, what was added at run time.
//!
//! A place never changes and is never given to another, so that tasks may hold it across any wait.
//! Reading takes no lock; adding is for one at a time.

use std::ops::Index;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, OnceLock};

/// What is added lives in chunks of growing size: 16, 32, 64 …
const FIRST: usize = 16;
/// So many chunks hold a million.
const CHUNKS: usize = 17;

/// Items by place.
#[derive(Debug)]
pub struct Grown<T> {
    fixed: Vec<T>,
    added: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
    /// How many were added. Written by whoever adds, under the lock.
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
        let added = [const { OnceLock::new() }; CHUNKS];
        Self { fixed, added, count: AtomicUsize::new(0), adding: Mutex::default() }
    }
}

impl<T> Grown<T> {
    /// How many places there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.fixed.len() + self.count.load(Acquire)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.fixed.get(index).or_else(|| self.get_added(index.checked_sub(self.fixed.len())?))
    }

    #[cold]
    fn get_added(&self, at: usize) -> Option<&T> {
        let (chunk, offset) = place(at);
        self.added.get(chunk)?.get()?.get(offset)?.get()
    }

    /// All, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.fixed.iter().chain(self.iter_added())
    }

    /// Those added at run time.
    pub fn iter_added(&self) -> impl Iterator<Item = &T> {
        (0..self.count.load(Acquire)).filter_map(|at| self.get_added(at))
    }

    /// Adds what `make` makes behind the others; it is told its place. `None` when there is no
    /// place left.
    pub fn add(&self, make: impl FnOnce(usize) -> T) -> Option<&T> {
        // Whoever panicked here left whole items behind.
        let _adding = self.adding.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = self.count.load(Acquire);
        let (chunk, offset) = place(at);
        let slots =
            self.added.get(chunk)?.get_or_init(|| (0..FIRST << chunk).map(|_| OnceLock::new()).collect());
        let added = slots.get(offset)?.get_or_init(|| make(self.fixed.len() + at));
        self.count.store(at + 1, Release);
        Some(added)
    }

    /// Those that the configuration made, of a list that nobody else knows.
    pub fn into_fixed(self) -> Vec<T> {
        self.fixed
    }
}

/// The chunk and the offset in it of the `at`-th item added.
fn place(at: usize) -> (usize, usize) {
    // Chunk n begins at FIRST * (2^n - 1).
    let chunk = (at / FIRST + 1).ilog2() as usize;
    (chunk, at - FIRST * ((1 << chunk) - 1))
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
    fn places_follow_each_other_through_the_chunks() {
        let mut expected = (0, 0);
        for at in 0..10_000 {
            assert_eq!(place(at), expected, "{at}");
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(1_000_000).0 < CHUNKS);
    }

    #[test]
    fn what_is_added_stands_behind_the_others_and_stays_there() {
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
