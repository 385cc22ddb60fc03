//! Certificates ordered from a CA, as seen by the runtime socket (management manual, 9.3: `acme status`, `acme renew`, `acme
//! challenge_ready`). Times are wall-clock seconds since 1970.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The ring of events for tools that update DNS (`show events dpapi`).
pub const EVENTS: &str = "dpapi";

/// An ordered certificate.
#[derive(Debug)]
pub struct Order {
    /// The name of the certificate.
    pub certificate: Box<str>,
    /// The name of the order's `acme` section.
    pub section: Box<str>,
    inner: Mutex<OrderInner>,
}

#[derive(Debug, Default)]
struct OrderInner {
    /// Whether an order is in progress.
    runs: bool,
    /// When the next order begins, if known.
    scheduled: Option<i64>,
    /// Whether an immediate order was requested.
    wanted: bool,
    /// The names whose challenges were not reported as ready on the runtime socket.
    waits: Vec<Box<str>>,
    /// The task to wake on changes.
    waker: Option<Waker>,
}

/// The status shown by `acme status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderStatus {
    /// Whether an order is in progress.
    pub runs: bool,
    /// When the next order begins.
    pub scheduled: Option<i64>,
}

impl Order {
    /// Creates an order that has not started.
    pub fn new(certificate: &str, section: &str) -> Self {
        Self { certificate: certificate.into(), section: section.into(), inner: Mutex::default() }
    }

    // Changes are atomic, so the state is valid even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, OrderInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the status to show.
    pub fn show(&self) -> OrderStatus {
        let inner = self.lock();
        OrderStatus { runs: inner.runs, scheduled: inner.scheduled }
    }

    /// Requests a new certificate now. Returns `false` if an order is in progress.
    pub fn renew(&self) -> bool {
        let mut inner = self.lock();
        if inner.runs || inner.wanted {
            return false;
        }
        inner.wanted = true;
        wake(inner);
        true
    }

    /// Marks the challenge of a name as ready. Returns how many other challenges are pending, or `None` if this one is not pending.
    pub fn challenge_ready(&self, name: &str) -> Option<usize> {
        let mut inner = self.lock();
        let before = inner.waits.len();
        inner.waits.retain(|own| **own != *name);
        let left = inner.waits.len();
        if left == before {
            return None;
        }
        wake(inner);
        Some(left)
    }

    /// Starts an order, which also satisfies a pending request.
    pub fn begin(&self) {
        let mut inner = self.lock();
        (inner.runs, inner.wanted, inner.scheduled) = (true, false, None);
    }

    /// Ends the order. The next order begins at `scheduled`.
    pub fn end(&self, scheduled: Option<i64>) {
        let mut inner = self.lock();
        (inner.runs, inner.scheduled) = (false, scheduled);
        inner.waits.clear();
    }

    /// Sets the names whose challenges must be reported as ready on the runtime socket.
    pub fn wait_for(&self, names: Vec<Box<str>>) {
        self.lock().waits = names;
    }

    /// Ready when a new certificate is requested.
    pub fn poll_wanted(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll(context, |inner| inner.wanted)
    }

    /// Ready when all challenges are ready.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll(context, |inner| inner.waits.is_empty())
    }

    fn poll(&self, context: &mut Context<'_>, is_so: impl Fn(&OrderInner) -> bool) -> Poll<()> {
        let mut inner = self.lock();
        if is_so(&inner) {
            return Poll::Ready(());
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

fn wake(mut inner: MutexGuard<'_, OrderInner>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_order_runs_at_a_time() {
        let order = Order::new("a.pem", "LE");
        assert!(order.renew());
        assert!(!order.renew(), "it is asked for already");
        order.begin();
        assert!(!order.renew(), "it is on its way");
        order.end(Some(7));
        assert_eq!(order.show(), OrderStatus { runs: false, scheduled: Some(7) });
        assert!(order.renew());
    }

    #[test]
    fn each_challenge_is_reported_once() {
        let order = Order::new("a.pem", "LE");
        order.wait_for(vec!["a.test".into(), "b.test".into()]);
        assert_eq!(order.challenge_ready("c.test"), None);
        assert_eq!(order.challenge_ready("a.test"), Some(1));
        assert_eq!(order.challenge_ready("a.test"), None);
        let mut context = Context::from_waker(Waker::noop());
        assert!(order.poll_ready(&mut context).is_pending());
        assert_eq!(order.challenge_ready("b.test"), Some(0));
        assert!(order.poll_ready(&mut context).is_ready());
    }
}
