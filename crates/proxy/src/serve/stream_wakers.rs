//! Tracks which streams of a connection have work. Each stream has its own waker, and the connection's task polls woken streams in
//! the order in which they were woken.
//!
//! Other threads may call the wakers. While the task runs, it need not be woken, because it checks this queue again before it
//! sleeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The streams of one connection that were woken.
#[derive(Default)]
pub(super) struct WakeQueue {
    state: Mutex<WakeState>,
}

#[derive(Default)]
struct WakeState {
    woken: VecDeque<u32>,
    owner: Option<Waker>,
    is_running: bool,
}

/// The waker of one stream.
pub(super) struct StreamWaker {
    ready: Arc<WakeQueue>,
    index: u32,
    is_woken: AtomicBool,
}

impl WakeQueue {
    // The lock is never held while other code runs, so a poisoned state is still valid.
    fn state(&self) -> MutexGuard<'_, WakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task starts running, and is woken through `owner` afterwards.
    pub(super) fn enter(&self, owner: &Waker) {
        let mut state = self.state();
        state.is_running = true;
        if !state.owner.as_ref().is_some_and(|known| known.will_wake(owner)) {
            state.owner = Some(owner.clone());
        }
    }

    /// Called when the task is about to sleep. It is woken immediately if a stream was woken in the meantime.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.is_running = false;
        if !state.woken.is_empty()
            && let Some(owner) = &state.owner
        {
            owner.wake_by_ref();
        }
    }

    /// Whether a stream was woken.
    pub(super) fn is_any(&self) -> bool {
        !self.state().woken.is_empty()
    }

    /// Returns the index of the next woken stream.
    pub(super) fn next(&self) -> Option<usize> {
        self.state().woken.pop_front().map(|index| index as usize)
    }
}

impl StreamWaker {
    /// Creates the waker of the stream with this index.
    pub(super) fn new(ready: &Arc<WakeQueue>, index: usize) -> Arc<Self> {
        Arc::new(Self { ready: ready.clone(), index: index as u32, is_woken: AtomicBool::new(false) })
    }

    /// The stream is about to be polled, and may be woken again.
    pub(super) fn clear(&self) {
        self.is_woken.store(false, Ordering::Release);
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.ready.state();
        state.woken.push_back(self.index);
        if !state.is_running
            && let Some(owner) = &state.owner
        {
            owner.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn streams_wake_once_per_poll_and_only_a_sleeping_task() {
        let (ready, counted) = (Arc::new(WakeQueue::default()), Arc::new(Counted(AtomicUsize::new(0))));
        let slots: Vec<_> = (0..3).map(|index| StreamWaker::new(&ready, index)).collect();
        ready.enter(&Waker::from(counted.clone()));
        for slot in [&slots[2], &slots[0], &slots[2]] {
            slot.wake_by_ref();
        }
        assert_eq!(counted.0.load(Ordering::Relaxed), 0);
        assert_eq!([ready.next(), ready.next(), ready.next()], [Some(2), Some(0), None]);
        slots[2].wake_by_ref();
        assert!(!ready.is_any(), "not polled yet");
        slots[2].clear();
        slots[2].wake_by_ref();
        ready.leave();
        assert_eq!(counted.0.load(Ordering::Relaxed), 1, "woken as it came to rest");
        assert_eq!(ready.next(), Some(2));
        slots[1].wake_by_ref();
        assert_eq!(counted.0.load(Ordering::Relaxed), 2);
    }
}
