//! Work on files that waits for the threads of the crate `disk`.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::blocks::{Blocks, Fetch};
use crate::entry::Entry;
use crate::loading::ObjectRead;
use crate::object::Object;
use crate::spooled::Spooled;

/// What is to be done to files.
#[derive(Debug)]
pub enum FileChange {
    /// A response is to be written.
    Write(Arc<Entry>, Arc<Object>),
    /// The file with this number is to be removed.
    Remove(u64),
    /// A response comes, whose file is to be begun.
    Create(Arc<Spooled>),
    /// These bytes of it are to be added.
    Append(Arc<Spooled>, Vec<u8>),
    /// It is whole, with a body of so many bytes.
    Commit(Arc<Spooled>, Arc<Entry>, u64),
    /// It does not come to its end.
    Abort(u64),
}

/// What is to be read.
#[derive(Debug)]
pub enum FileRead {
    /// A response, or the head of a long one.
    Load(Arc<Entry>, Arc<ObjectRead>),
    /// A block of a long one.
    Block(Arc<Entry>, Arc<dyn Blocks>, u64, Arc<Fetch>),
}

/// Work that waits for a thread.
#[derive(Debug)]
pub(crate) struct JobQueue<T> {
    pub(crate) jobs: Mutex<VecDeque<T>>,
    bell: Condvar,
}

impl<T> Default for JobQueue<T> {
    fn default() -> Self {
        Self { jobs: Mutex::default(), bell: Condvar::new() }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<T> JobQueue<T> {
    /// False: `most` wait already.
    pub(crate) fn push(&self, job: T, most: usize) -> bool {
        let mut jobs = locked(&self.jobs);
        let has_place = jobs.len() < most;
        if has_place {
            jobs.push_back(job);
            drop(jobs);
            self.bell.notify_one();
        }
        has_place
    }

    pub(crate) fn next(&self, is_over: impl Fn() -> bool) -> Option<T> {
        let mut jobs = locked(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                return Some(job);
            }
            if is_over() {
                return None;
            }
            jobs = self.bell.wait(jobs).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Takes what waits and need not be done, and has who waits for work look again.
    pub(crate) fn take(&self, is_needed: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut jobs = locked(&self.jobs);
        let (needed, rest) = std::mem::take(&mut *jobs).into_iter().partition(is_needed);
        *jobs = needed;
        self.bell.notify_all();
        rest
    }

    /// Has who waits for work look again.
    pub(crate) fn ring(&self) {
        let _jobs = locked(&self.jobs);
        self.bell.notify_all();
    }
}
