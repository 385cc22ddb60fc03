//! A response that is being read from its file, and who waits for it. Each file is read once at a
//! time, however many ask for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::long::{FileFeed, Long};
use crate::object::Object;

/// What came of it.
#[derive(Debug, Clone)]
pub enum Loaded {
    /// It is in memory.
    Kept(Arc<Object>),
    /// It is sent out of its file.
    Long(Arc<Long>),
}

impl Loaded {
    /// How a long response is sent, where it is fresh; `None` of one that is in memory.
    pub fn feed(self, now_ms: u64) -> Option<FileFeed> {
        match self {
            Self::Long(long) if long.is_fresh(now_ms) => Some(FileFeed::new(long)),
            Self::Long(_) | Self::Kept(_) => None,
        }
    }
}

/// One reading.
#[derive(Debug, Default)]
pub struct ObjectRead {
    state: Mutex<LoadingState>,
}

#[derive(Debug, Default)]
struct LoadingState {
    /// What came of it.
    outcome: Option<Option<Loaded>>,
    /// Those who wait, by when they came.
    waiting: BTreeMap<u64, Waker>,
    /// How many came.
    came: u64,
}

/// One that waits for it.
#[derive(Debug)]
pub struct Loading {
    load: Arc<ObjectRead>,
    /// Which of those who wait it is, once it does.
    number: Option<u64>,
}

impl ObjectRead {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, LoadingState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// It is read, or cannot be.
    pub fn end(&self, outcome: Option<Loaded>) {
        let waiting = {
            let mut state = self.state();
            state.outcome.get_or_insert(outcome);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Loading {
    pub(crate) fn new(load: Arc<ObjectRead>) -> Self {
        Self { load, number: None }
    }

    /// Ready once the response is read; `None` where it cannot be.
    pub fn poll_loaded(&mut self, context: &mut Context<'_>) -> Poll<Option<Loaded>> {
        let mut state = self.load.state();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.came += 1;
            state.came
        });
        state.waiting.insert(number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Loading {
    /// Who waits no more is not woken.
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.load.state().waiting.remove(&number);
        }
    }
}
