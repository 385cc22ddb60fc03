//! Signals between scripts: a counter that only grows, and the tasks that wait for it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A signal, shared by all copies.
#[derive(Debug, Clone, Default)]
pub struct Signal(Arc<SignalInner>);

#[derive(Debug, Default)]
struct SignalInner {
    count: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Signal {
    /// Returns how often the signal was given.
    pub fn count(&self) -> u64 {
        self.0.count.load(SeqCst)
    }

    /// Gives the signal, which wakes the waiting tasks.
    pub fn notify(&self) {
        self.0.count.fetch_add(1, SeqCst);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready once the signal was given more than `seen` times.
    pub fn poll_given(&self, seen: u64, context: &mut Context<'_>) -> Poll<()> {
        if self.count() != seen {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        drop(waiting);
        // The signal may have been given in the meantime.
        if self.count() == seen { Poll::Pending } else { Poll::Ready(()) }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.0.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
