//! The servers of a backend: those of the configuration, and those added at run time behind them.
//!
//! A server's place never changes and is never given to another, so that tasks may hold it across any wait. Reading takes
//! no lock; adding is for one at a time. A server that was removed stays where it is, in maintenance for good.

use std::ops::Index;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock};

use crate::plan::server::ServerSettings;

type Slot = OnceLock<Arc<ServerSettings>>;

/// Servers added live in chunks of growing size: 16, 32, 64 …
const FIRST: usize = 16;
/// So many chunks hold a million servers.
const CHUNKS: usize = 17;

/// A backend's servers, by place.
#[derive(Debug, Default)]
pub struct Servers {
    fixed: Vec<Arc<ServerSettings>>,
    added: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// How many were added. Written by whoever adds, under the lock.
    count: AtomicUsize,
    adding: Mutex<()>,
}

impl Servers {
    /// How many places there are, removed servers included.
    #[inline]
    pub fn len(&self) -> usize {
        self.fixed.len() + self.count.load(Acquire)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The server at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Arc<ServerSettings>> {
        self.fixed.get(index).or_else(|| self.get_added(index.checked_sub(self.fixed.len())?))
    }

    #[cold]
    fn get_added(&self, at: usize) -> Option<&Arc<ServerSettings>> {
        let (chunk, offset) = place(at);
        self.added.get(chunk)?.get()?.get(offset)?.get()
    }

    /// All, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServerSettings>> {
        self.fixed.iter().chain(self.iter_added())
    }

    /// Those added at run time.
    pub fn iter_added(&self) -> impl Iterator<Item = &Arc<ServerSettings>> {
        (0..self.count.load(Acquire)).filter_map(|at| self.get_added(at))
    }

    /// Adds a server behind the others; it is told its place. `None` when there is no place left.
    pub fn add(&self, mut server: ServerSettings) -> Option<&Arc<ServerSettings>> {
        // Whoever panicked here left whole servers behind.
        let _adding = self.adding.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = self.count.load(Acquire);
        let (chunk, offset) = place(at);
        let slots = self.added.get(chunk)?.get_or_init(|| (0..FIRST << chunk).map(|_| Slot::new()).collect());
        server.index = self.fixed.len() + at;
        let added = slots.get(offset)?.get_or_init(|| Arc::new(server));
        self.count.store(at + 1, Release);
        Some(added)
    }

    /// Takes the only server out, of a plan that nobody else knows.
    pub(crate) fn into_only(mut self) -> Option<ServerSettings> {
        self.fixed.pop().and_then(Arc::into_inner)
    }
}

/// The chunk and the offset in it of the `at`-th server added.
fn place(at: usize) -> (usize, usize) {
    // Chunk n begins at FIRST * (2^n - 1).
    let chunk = (at / FIRST + 1).ilog2() as usize;
    (chunk, at - FIRST * ((1 << chunk) - 1))
}

impl Index<usize> for Servers {
    type Output = Arc<ServerSettings>;

    #[inline]
    fn index(&self, index: usize) -> &Self::Output {
        match self.get(index) {
            Some(server) => server,
            None => panic!("there is no server at place {index}"),
        }
    }
}

impl From<Vec<Arc<ServerSettings>>> for Servers {
    fn from(fixed: Vec<Arc<ServerSettings>>) -> Self {
        Self { fixed, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_through_the_chunks() {
        let mut expected = (0, 0);
        for at in 0..10_000 {
            assert_eq!(place(at), expected, "{at}");
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(1_000_000).0 < CHUNKS);
    }
}
