//! Blocks of a body in a file, and how one is waited for.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The body in an open file.
pub trait Blocks: Debug + Send + Sync {
    /// Reads a block. May wait for the disk. `None`: it is not what it should be, or cannot be read.
    fn read(&self, block: u64) -> Option<Vec<u8>>;
}

/// What has blocks read.
pub(crate) trait Fetches: Debug + Send + Sync {
    /// Has a block read, which `fetch` hears of.
    fn fetch(&self, block: u64, fetch: &Arc<Fetch>);
}

/// A block that is being read.
#[derive(Debug, Default)]
pub struct Fetch {
    state: Mutex<Fetched>,
}

#[derive(Debug, Default)]
struct Fetched {
    /// What came of it.
    data: Option<Option<Arc<[u8]>>>,
    waiting: Option<Waker>,
}

impl Fetch {
    /// It is there, or will not be.
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
