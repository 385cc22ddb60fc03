//! Counts the connections of a listener that opens them itself (`nbconn`). Used by [`reverse::dial`](super::reverse::dial); each
//! connection holds a permit while it is open.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use runtime::shared::Shared as _;
use runtime::timer::now_ms;

/// The delay after a failure. A connection that ends within this time was useless.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The connections of one listener.
#[derive(Default)]
pub(super) struct OpenCount {
    /// The number of open connections. It changes when a connection is opened and when one ends.
    open: AtomicU32,
    /// Whether a connection ended too early to be useful. Set by that connection.
    ended_early: AtomicBool,
    /// Wakes the listener's task.
    waker: Mutex<Option<Waker>>,
}

/// The permit of a counted connection. Dropping it removes the connection from the count.
pub(crate) struct OpenPermit {
    kept: Arc<OpenCount>,
    /// When the connection was counted, in ms.
    since: u64,
}

impl OpenCount {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the task to wake when a connection ends.
    pub(super) fn wait(&self, waker: &Waker) {
        *self.waker() = Some(waker.clone());
    }

    /// Returns how many connections are open or being opened.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// Returns whether a connection has ended too early since the last call.
    pub(super) fn forgive(&self) -> bool {
        self.ended_early.swap(false, Relaxed)
    }
}

impl OpenPermit {
    /// Counts one more connection.
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
