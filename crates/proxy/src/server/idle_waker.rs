//! Records which servers had events on idle connections, so that the sweeper checks only those.
//!
//! A waker must be `Send`, although everything here happens on one worker. The locks are never contended, and requests take none.
//! Called by `pool`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The index of a backend, and the index of a server in it.
pub(crate) type ServerPosition = (usize, usize);

/// The state shared by all bells of a worker.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Rung>);

#[derive(Debug, Default)]
struct Rung {
    places: Vec<ServerPosition>,
    sweeper: Option<Waker>,
}

/// The waker that the idle connections of one server register.
#[derive(Debug)]
pub(crate) struct Bell {
    /// Rung, and not checked yet.
    rung: AtomicBool,
    place: ServerPosition,
    board: Arc<Board>,
}

impl Board {
    fn rung(&self) -> MutexGuard<'_, Rung> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the task to wake.
    pub(crate) fn set_sweeper(&self, waker: &Waker) {
        let mut rung = self.rung();
        if !rung.sweeper.as_ref().is_some_and(|own| own.will_wake(waker)) {
            rung.sweeper = Some(waker.clone());
        }
    }

    /// Wakes the sweeper without a server, because the time to purge has changed.
    pub(crate) fn wake_sweeper(&self) {
        if let Some(sweeper) = &self.rung().sweeper {
            sweeper.wake_by_ref();
        }
    }

    /// Moves the servers that had events since the last call to `places`, and reuses the memory of `places`.
    pub(crate) fn take(&self, places: &mut Vec<ServerPosition>) {
        places.clear();
        std::mem::swap(places, &mut self.rung().places);
    }
}

impl Bell {
    /// Creates the bell of the server at `place`.
    pub(crate) fn new(place: ServerPosition, board: &Arc<Board>) -> Arc<Bell> {
        Arc::new(Bell { rung: AtomicBool::new(false), place, board: Arc::clone(board) })
    }

    /// Allows the bell to ring again. Called before its server's connections are checked.
    pub(crate) fn reset(&self) {
        self.rung.store(false, Relaxed);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(true, Relaxed) {
            return;
        }
        let mut rung = self.board.rung();
        rung.places.push(self.place);
        if let Some(sweeper) = &rung.sweeper {
            sweeper.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_recorded_once_until_checked() {
        let board = Arc::new(Board::default());
        let (one, other) = (Bell::new((0, 1), &board), Bell::new((2, 3), &board));
        let wakers = [Waker::from(one.clone()), Waker::from(other.clone())];
        for waker in [&wakers[0], &wakers[1], &wakers[0]] {
            waker.wake_by_ref();
        }
        let mut places = vec![(9, 9)];
        board.take(&mut places);
        assert_eq!(places, [(0, 1), (2, 3)]);
        one.reset();
        wakers.iter().for_each(Waker::wake_by_ref);
        board.take(&mut places);
        assert_eq!(places, [(0, 1)], "the other was not looked at");
    }
}
