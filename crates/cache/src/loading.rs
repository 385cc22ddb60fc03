//! A response that is being read from its file, and the requests waiting for it. Each file is read only once at a
//! time, for any number of requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::long::{FileFeed, Long};
use crate::object::Object;

/// The result of a read.
#[derive(Debug, Clone)]
pub enum Loaded {
    /// The response is in memory.
    Kept(Arc<Object>),
    /// The response is sent from its file.
    Long(Arc<Long>),
}

impl Loaded {
    /// Returns a reader of a long response, if that is fresh; `None` for a response in memory.
    pub fn feed(self, now_ms: u64) -> Option<FileFeed> {
        match self {
            Self::Long(long) if long.is_fresh(now_ms) => Some(FileFeed::new(long)),
            Self::Long(_) | Self::Kept(_) => None,
        }
    }
}

/// A read in progress.
#[derive(Debug, Default)]
pub struct ObjectRead {
    state: Mutex<LoadingState>,
}

#[derive(Debug, Default)]
struct LoadingState {
    /// The result; `None` until it is known.
    outcome: Option<Option<Loaded>>,
    /// Waiting requests, in order of arrival.
    waiting: BTreeMap<u64, Waker>,
    /// The number of requests that have waited.
    came: u64,
}

/// A request waiting for the read.
#[derive(Debug)]
pub struct Loading {
    load: Arc<ObjectRead>,
    /// The key of this request in the map of waiting requests, once it waits.
    number: Option<u64>,
}

impl ObjectRead {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, LoadingState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets the result; `None` if the response cannot be read.
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

    /// Ready once the response is read, or with `None` if it cannot be read.
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
    /// Removes the waker of a request that no longer waits.
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.load.state().waiting.remove(&number);
        }
    }
}
