//! Values with a copy per worker, each on its own cache lines. Readers sum the copies.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use once_cell::race::OnceBox;

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(0) };
    static GROUP: Cell<usize> = const { Cell::new(0) };
}

/// The number of workers; written once at startup, before any [`Sharded`] is created.
static WORKERS: AtomicUsize = AtomicUsize::new(1);

/// Sets the number of copies of each [`Sharded`] created from now on. Called once at startup.
pub fn set_workers(count: usize) {
    WORKERS.store(count.max(1), Ordering::Relaxed);
}

/// The number of workers.
pub fn workers() -> usize {
    WORKERS.load(Ordering::Relaxed)
}

/// The number of worker groups; written once at startup.
static GROUPS: AtomicUsize = AtomicUsize::new(1);

/// Sets the number of worker groups. Called once at startup.
pub fn set_groups(count: usize) {
    GROUPS.store(count.max(1), Ordering::Relaxed);
}

/// The number of worker groups.
pub fn groups() -> usize {
    GROUPS.load(Ordering::Relaxed)
}

/// Assigns the calling worker to group `index`.
pub fn enter_group(index: usize) {
    GROUP.set(index);
}

/// The group of the calling worker, 0 outside workers.
#[inline]
pub fn current_group() -> usize {
    GROUP.get()
}

/// Makes the calling thread worker `index`. Other threads access the first worker's copy and must only read it.
pub fn enter_worker(index: usize) {
    WORKER.set(index);
}

/// The index of the calling worker, 0 outside workers.
#[inline]
pub fn current_worker() -> usize {
    WORKER.get()
}

/// A value on two cache lines that contain nothing else, because x86 prefetches adjacent lines in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One `T` per worker. Each copy is written by its worker and read by all.
#[derive(Debug)]
pub struct Sharded<T> {
    shards: Box<[Padded<T>]>,
    others: OnceLock<Box<T>>,
}

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        let shards = (0..workers()).map(|_| Padded(T::default())).collect();
        Self { shards, others: OnceLock::new() }
    }
}

impl<T: Default> Sharded<T> {
    /// The copy with the values of other processes, created if necessary. Only the thread that reads the values from those
    /// processes may write it.
    pub fn keep_others(&self) -> &T {
        self.others.get_or_init(Box::default)
    }
}

impl<T> Sharded<T> {
    /// The calling worker's own copy.
    #[inline]
    pub fn mine(&self) -> &T {
        let index = current_worker();
        debug_assert!(index < self.shards.len(), "made before the number of workers was known");
        // A thread that is not a worker uses the first copy. An index past the end cannot occur after startup.
        &self.shards.get(index).unwrap_or(&self.shards[0]).0
    }

    /// All copies, in the order of the workers.
    pub fn all(&self) -> impl Iterator<Item = &T> + Clone {
        self.shards.iter().map(|padded| &padded.0)
    }

    /// Every worker's copy, followed by the values of other processes if they are known. Statistics show their sum.
    pub fn with_others(&self) -> impl Iterator<Item = &T> + Clone {
        self.all().chain(self.others.get().map(Box::as_ref))
    }
}

/// One `T` per worker, like [`Sharded`], but a copy is created when its worker first uses it.
///
/// For objects of which a configuration may have many, such as servers: most workers use few of them. Without any copy, nothing is
/// allocated.
#[derive(Debug)]
pub struct LazySharded<T> {
    shards: OnceLock<Box<[OnceBox<Padded<T>>]>>,
    others: OnceBox<T>,
}

impl<T> Default for LazySharded<T> {
    fn default() -> Self {
        Self { shards: OnceLock::new(), others: OnceBox::new() }
    }
}

impl<T: Default> LazySharded<T> {
    /// The copy with the values of other processes, created if necessary. Only the thread that reads the values from those
    /// processes may write it.
    pub fn keep_others(&self) -> &T {
        self.others.get_or_init(Box::default)
    }

    /// The calling worker's own copy, created if necessary.
    #[inline]
    pub fn mine(&self) -> &T {
        let index = current_worker();
        match self.of_worker(index) {
            Some(own) => own,
            None => self.create(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn create(&self, index: usize) -> &T {
        let shards = self.shards.get_or_init(|| (0..workers()).map(|_| OnceBox::new()).collect());
        debug_assert!(index < shards.len(), "used before the number of workers was known");
        // A thread that is not a worker uses the first copy. An index past the end cannot occur after startup.
        let shard = shards.get(index).unwrap_or(&shards[0]);
        &shard.get_or_init(|| Box::new(Padded(T::default()))).0
    }
}

impl<T> LazySharded<T> {
    /// The copy of a worker; `None` before the worker first uses it.
    #[inline]
    pub fn of_worker(&self, index: usize) -> Option<&T> {
        Some(&self.shards.get()?.get(index)?.get()?.0)
    }

    /// Whether no worker, and no other process, has used its copy so far.
    #[inline]
    pub fn is_unused(&self) -> bool {
        self.shards.get().is_none() && self.others.get().is_none()
    }

    /// The copies that exist, in the order of the workers.
    pub fn all(&self) -> impl Iterator<Item = &T> + Clone {
        let shards = self.shards.get().into_iter().flat_map(|shards| shards.iter());
        shards.filter_map(|shard| shard.get()).map(|padded| &padded.0)
    }

    /// Every worker's copy, followed by the values of other processes if they are known. Statistics show their sum.
    pub fn with_others(&self) -> impl Iterator<Item = &T> + Clone {
        self.all().chain(self.others.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Count;

    #[test]
    fn copies_exist_from_their_first_use_on() {
        let shards: LazySharded<Count> = LazySharded::default();
        assert_eq!((shards.all().count(), shards.of_worker(0).is_none()), (0, true));
        assert!(shards.is_unused());
        shards.keep_others().put(5);
        assert_eq!((shards.all().count(), shards.with_others().map(Count::get).sum::<u64>()), (0, 5));
        assert!(!shards.is_unused());
        shards.mine().add(2);
        shards.mine().add(1);
        assert_eq!(shards.all().map(Count::get).collect::<Vec<_>>(), [3]);
        assert_eq!(shards.of_worker(0).map(Count::get), Some(3));
    }
}
