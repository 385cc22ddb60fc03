//! Connections that are told when the process stops: those that outlive a request, and would
//! otherwise learn of it with the next.

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

/// A place among those that are told, as long as it lives.
pub(super) struct ShutdownWaker(usize);

/// Has `waker` woken when the process stops.
pub(super) fn tell(waker: &Waker) -> ShutdownWaker {
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

/// The process stops: the calling worker's connections are woken.
pub fn stop() {
    let wakers: Vec<Waker> =
        WAITING.with_borrow(|waiting| waiting.wakers.iter().flatten().cloned().collect());
    wakers.iter().for_each(Waker::wake_by_ref);
}

impl Drop for ShutdownWaker {
    fn drop(&mut self) {
        // The thread may be ending.
        let _ = WAITING.try_with(|waiting| {
            let mut waiting = waiting.borrow_mut();
            waiting.wakers[self.0] = None;
            waiting.free.push(self.0);
        });
    }
}
