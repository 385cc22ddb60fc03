//! The connections of a listener that opens them itself, counted (`nbconn`). Used by
//! [`reverse::dial`](super::reverse::dial), and held by each of them as long as it lasts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use runtime::shared::Shared as _;
use runtime::timer::now_ms;

/// How long nobody is tried after a failure, and what is short for a connection.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The connections of one listener.
#[derive(Default)]
pub(super) struct OpenCount {
    /// How many are open; written when one is and when one ends.
    open: AtomicU32,
    /// Whether one ended before it could be of use; written by the one that did.
    ended_early: AtomicBool,
    /// Wakes the listener's task.
    waker: Mutex<Option<Waker>>,
}

/// One of them: given back when it is dropped.
pub(crate) struct OpenPermit {
    kept: Arc<OpenCount>,
    /// When it was taken, in ms.
    since: u64,
}

impl OpenCount {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task to wake when one ends.
    pub(super) fn wait(&self, waker: &Waker) {
        *self.waker() = Some(waker.clone());
    }

    /// How many are open, or being opened.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// Whether one ended before it could be of use since the last call.
    pub(super) fn forgive(&self) -> bool {
        self.ended_early.swap(false, Relaxed)
    }
}

impl OpenPermit {
    /// One more of them.
    pub(super) fn take(kept: &Arc<OpenCount>) -> Self {
        kept.open.add(1);
        Self { kept: kept.clone(), since: now_ms() }
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        if now_ms().saturating_sub(self.since) < PAUSE.as_millis() as u64 {
            self.kept.ended_early.store(true, Relaxed);
        }
        self.kept.open.sub(1);
        if let Some(waker) = &*self.kept.waker() {
            waker.wake_by_ref();
        }
    }
}
