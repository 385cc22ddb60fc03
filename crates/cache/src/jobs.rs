//! Jobs on files, queued for the threads of the crate `disk`.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::blocks::{Blocks, Fetch};
use crate::entry::Entry;
use crate::loading::ObjectRead;
use crate::object::Object;
use crate::spooled::Spooled;

/// A change of a file.
#[derive(Debug)]
pub enum FileChange {
    /// Write a response.
    Write(Arc<Entry>, Arc<Object>),
    /// Remove the file with this number.
    Remove(u64),
    /// Create the file of a response that is arriving.
    Create(Arc<Spooled>),
    /// Append these bytes to that file.
    Append(Arc<Spooled>, Vec<u8>),
    /// Complete that file, with a body of this size.
    Commit(Arc<Spooled>, Arc<Entry>, u64),
    /// Drop an incomplete file.
    Abort(u64),
}

/// A read from a file.
#[derive(Debug)]
pub enum FileRead {
    /// Read a response, or the head of a long one.
    Load(Arc<Entry>, Arc<ObjectRead>),
    /// Read a block of a long response.
    Block(Arc<Entry>, Arc<dyn Blocks>, u64, Arc<Fetch>),
}

/// A queue of jobs for threads.
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
    /// Queues a job; returns false if `most` are already queued.
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

    /// Removes queued jobs that became unnecessary, and wakes the waiting threads.
    pub(crate) fn take(&self, is_needed: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut jobs = locked(&self.jobs);
        let (needed, rest) = std::mem::take(&mut *jobs).into_iter().partition(is_needed);
        *jobs = needed;
        self.bell.notify_all();
        rest
    }

    /// Wakes the waiting threads.
    pub(crate) fn ring(&self) {
        let _jobs = locked(&self.jobs);
        self.bell.notify_all();
    }
}
