//! A second reader of a payload (`http-request mirror`): copies the payload into a bounded buffer for the reader. A reader that
//! is too slow loses the rest; the direction itself never waits for it. Filled by [`Filters`](super::Filters); created and read
//! by `serve::mirror`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The maximum number of bytes that wait for the reader.
const MOST: usize = 256 * 1024;

/// The number of bytes after which the direction yields to other tasks, including the reader.
const TURN: usize = 64 * 1024;

/// The state shared by the tap and its reader.
#[derive(Debug, Default)]
struct SharedTap {
    waiting: Vec<u8>,
    end: TapEnd,
    reader: Option<Waker>,
    /// The task to wake when the rest is lost.
    watcher: Option<Waker>,
}

/// Whether more will follow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum TapEnd {
    /// More follows.
    #[default]
    Open,
    /// The payload is complete.
    Whole,
    /// The payload stopped early, or arrived too fast for the reader.
    Cut,
}

/// The writing side of a copy.
#[derive(Debug)]
pub(crate) struct Tap {
    shared: Rc<RefCell<SharedTap>>,
    /// The number of bytes copied so far.
    copied: Cell<u64>,
    /// The number of bytes that passed in the current attempt. A request may be sent more than once.
    passed: Cell<u64>,
    /// The number of bytes copied since the direction last paused.
    turn: Cell<usize>,
}

/// The reader of a [`Tap`].
#[derive(Debug)]
pub(crate) struct Tapped(Rc<RefCell<SharedTap>>);

/// Creates a tap and its reader.
pub(crate) fn tap() -> (Tap, Tapped) {
    let shared = Rc::<RefCell<SharedTap>>::default();
    let tap = Tap { shared: shared.clone(), copied: Cell::new(0), passed: Cell::new(0), turn: Cell::new(0) };
    (tap, Tapped(shared))
}

impl Tap {
    /// The payload starts again. Bytes that were already copied are not copied again.
    pub(crate) fn start(&self) {
        self.passed.set(0);
    }

    /// Copies `data`, the continuation of the payload.
    pub(super) fn pass(&self, data: &[u8]) {
        let (from, copied) = (self.passed.get(), self.copied.get());
        let to = from + data.len() as u64;
        self.passed.set(to);
        let Some(new) = data.len().checked_sub(copied.saturating_sub(from) as usize).filter(|new| *new > 0)
        else {
            return;
        };
        let mut shared = self.shared.borrow_mut();
        // The reader is gone.
        if shared.end != TapEnd::Open || Rc::strong_count(&self.shared) == 1 {
            return;
        }
        self.copied.set(to);
        self.turn.set(self.turn.get() + new);
        if shared.waiting.len() + new > MOST {
            shared.waiting = Vec::new();
            shared.end(TapEnd::Cut);
            return;
        }
        shared.waiting.extend_from_slice(&data[data.len() - new..]);
        shared.wake();
    }

    /// Whether the reader should run before more is copied.
    pub(super) fn takes_turn(&self) -> bool {
        let is_due = self.turn.get() >= TURN;
        if is_due {
            self.turn.set(0);
        }
        is_due
    }

    /// The payload has ended.
    pub(super) fn end(&self) {
        self.shared.borrow_mut().end(TapEnd::Whole);
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.borrow_mut().end(TapEnd::Cut);
    }
}

impl SharedTap {
    fn end(&mut self, end: TapEnd) {
        if self.end != TapEnd::Open {
            return;
        }
        self.end = end;
        self.wake();
        if let Some(watcher) = self.watcher.take().filter(|_| end == TapEnd::Cut) {
            watcher.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Tapped {
    /// Waits for more payload, and replaces the content of `into` with it. Returns `false` at the end.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<bool> {
        into.clear();
        let mut shared = self.0.borrow_mut();
        if !shared.waiting.is_empty() {
            std::mem::swap(&mut shared.waiting, into);
            return Poll::Ready(true);
        }
        if shared.end == TapEnd::Open {
            shared.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(false)
    }

    /// Ready once the rest is lost.
    pub(crate) fn poll_cut(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.0.borrow_mut();
        if shared.end == TapEnd::Cut {
            return Poll::Ready(());
        }
        shared.watcher = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether the rest is lost.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.borrow().end == TapEnd::Cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(reader: &Tapped) -> Option<Vec<u8>> {
        let mut context = Context::from_waker(Waker::noop());
        let mut into = b"what it had".to_vec();
        match reader.poll_take(&mut context, &mut into) {
            Poll::Ready(true) => Some(into),
            Poll::Ready(false) => None,
            Poll::Pending => Some(Vec::new()),
        }
    }

    #[test]
    fn resent_payload_is_copied_once() {
        let (tap, reader) = tap();
        assert_eq!(taken(&reader), Some(Vec::new()));
        tap.pass(b"abc");
        tap.pass(b"de");
        assert_eq!(taken(&reader).as_deref(), Some(&b"abcde"[..]));
        tap.start();
        tap.pass(b"ab");
        assert_eq!(taken(&reader), Some(Vec::new()));
        tap.pass(b"cdef");
        tap.end();
        assert_eq!(taken(&reader).as_deref(), Some(&b"f"[..]));
        assert_eq!(taken(&reader), None);
        drop(tap);
        assert!(!reader.is_cut(), "it was whole");
    }

    #[test]
    fn a_slow_reader_loses_the_rest_and_holds_no_more_than_the_bound() {
        let (tap, reader) = tap();
        for _ in 0..MOST / 1024 {
            tap.pass(&[b'x'; 1024]);
        }
        assert!(!reader.is_cut());
        assert_eq!(taken(&reader).map(|all| all.len()), Some(MOST));
        tap.pass(&vec![b'x'; MOST]);
        tap.pass(b"x");
        assert!(reader.is_cut());
        assert_eq!(taken(&reader), None, "half of a body is of no use");
        assert_eq!(tap.shared.borrow().waiting.capacity(), 0);
    }

    #[test]
    fn a_direction_that_ends_early_cuts_the_copy() {
        let (tap, reader) = tap();
        tap.pass(b"half");
        drop(tap);
        assert!(reader.is_cut());
        assert_eq!(taken(&reader).as_deref(), Some(&b"half"[..]));
        assert_eq!(taken(&reader), None);
    }

    #[test]
    fn a_direction_yields_after_its_share() {
        let (tap, _reader) = tap();
        tap.pass(&[0; TURN - 1]);
        assert!(!tap.takes_turn());
        tap.pass(&[0; 1]);
        assert!(tap.takes_turn() && !tap.takes_turn());
    }
}
