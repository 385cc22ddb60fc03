//! Interfaces for reading the blocks of a body from its file and for waiting for them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The body in an open file.
pub trait Blocks: Debug + Send + Sync {
    /// Reads a block; returns `None` if the block is corrupt or cannot be read. May block on the disk.
    fn read(&self, block: u64) -> Option<Vec<u8>>;
}

/// Starts reading blocks.
pub(crate) trait Fetches: Debug + Send + Sync {
    /// Starts reading a block; the result goes to `fetch`.
    fn fetch(&self, block: u64, fetch: &Arc<Fetch>);
}

/// A block being read.
#[derive(Debug, Default)]
pub struct Fetch {
    state: Mutex<Fetched>,
}

#[derive(Debug, Default)]
struct Fetched {
    /// The result; `None` until it is known.
    data: Option<Option<Arc<[u8]>>>,
    waiting: Option<Waker>,
}

impl Fetch {
    /// Sets the result; `None` if the block cannot be read.
    pub fn end(&self, data: Option<Vec<u8>>) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.data.get_or_insert(data.map(Into::into));
        let waker = state.waiting.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Arc<[u8]>>> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(data) = &state.data {
            return Poll::Ready(data.clone());
        }
        state.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}
