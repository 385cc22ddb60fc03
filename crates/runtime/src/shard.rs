//! Values of which every worker has its own copy, each on cache lines of its own, summed by the
//! reader.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(0) };
    static GROUP: Cell<usize> = const { Cell::new(0) };
}

/// How many workers the process runs; written once at boot, before any [`Sharded`] is made.
static WORKERS: AtomicUsize = AtomicUsize::new(1);

/// Sets how many copies each [`Sharded`] made from now on has. Called once at boot.
pub fn set_workers(count: usize) {
    WORKERS.store(count.max(1), Ordering::Relaxed);
}

/// How many workers the process runs.
pub fn workers() -> usize {
    WORKERS.load(Ordering::Relaxed)
}

/// How many groups the workers form; written once at boot.
static GROUPS: AtomicUsize = AtomicUsize::new(1);

/// Sets how many groups the workers form. Called once at boot.
pub fn set_groups(count: usize) {
    GROUPS.store(count.max(1), Ordering::Relaxed);
}

/// How many groups the workers form.
pub fn groups() -> usize {
    GROUPS.load(Ordering::Relaxed)
}

/// Says that the calling worker belongs to group `index`.
pub fn enter_group(index: usize) {
    GROUP.set(index);
}

/// The group of the calling worker, 0 outside of workers.
#[inline]
pub fn current_group() -> usize {
    GROUP.get()
}

/// Names the calling thread as worker `index`. Threads that never call this write into the first
/// shard's copy and must not: they only read.
pub fn enter_worker(index: usize) {
    WORKER.set(index);
}

/// The index of the calling worker, 0 outside of workers.
#[inline]
pub fn current_worker() -> usize {
    WORKER.get()
}

/// Two cache lines: adjacent-line prefetch pairs them on x86.
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

/// One `T` a worker. Written by the worker that owns the copy, read by all.
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
    /// The copy of what other processes have, from now on at the latest. Written by who reads it from
    /// them, and by nobody else.
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
        // A thread that is no worker reads the first copy; an index past the end cannot happen
        // after boot.
        &self.shards.get(index).unwrap_or(&self.shards[0]).0
    }

    /// All copies, in the order of the workers.
    pub fn all(&self) -> impl Iterator<Item = &T> + Clone {
        self.shards.iter().map(|padded| &padded.0)
    }

    /// The copies of the workers, and what other processes have where that is known: what is shown as
    /// the sum.
    pub fn with_others(&self) -> impl Iterator<Item = &T> + Clone {
        self.all().chain(self.others.get().map(Box::as_ref))
    }
}
