//! Wakes connections when the process stops. These are connections that last longer than a request and would otherwise notice the
//! stop only at the next request.

use std::cell::RefCell;
use std::task::Waker;

#[derive(Default)]
struct ShutdownList {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

thread_local! {
    static WAITING: RefCell<ShutdownList> = RefCell::default();
}

/// A registration. Dropping it removes it.
pub(super) struct ShutdownWaker(usize);

/// Registers `waker` to be woken when the process stops.
pub(super) fn register(waker: &Waker) -> ShutdownWaker {
    WAITING.with_borrow_mut(|waiting| {
        let waker = Some(waker.clone());
        match waiting.free.pop() {
            Some(place) => {
                waiting.wakers[place] = waker;
                ShutdownWaker(place)
            }
            None => {
                waiting.wakers.push(waker);
                ShutdownWaker(waiting.wakers.len() - 1)
            }
        }
    })
}

/// Called when the process stops: wakes the calling worker's connections.
pub fn stop() {
    let wakers: Vec<Waker> =
        WAITING.with_borrow(|waiting| waiting.wakers.iter().flatten().cloned().collect());
    wakers.iter().for_each(Waker::wake_by_ref);
}

impl Drop for ShutdownWaker {
    fn drop(&mut self) {
        // The thread may be about to end.
        let _ = WAITING.try_with(|waiting| {
            let mut waiting = waiting.borrow_mut();
            waiting.wakers[self.0] = None;
            waiting.free.push(self.0);
        });
    }
}
