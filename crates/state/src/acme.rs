//! Certificates that are ordered from an authority, as the runtime socket sees them (management
//! manual, 9.3: `acme status`, `acme renew`, `acme challenge_ready`). Time is that of the wall
//! clock, in seconds since 1970.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The ring of events for tools that fill DNS (`show events dpapi`).
pub const EVENTS: &str = "dpapi";

/// A certificate that is ordered.
#[derive(Debug)]
pub struct Order {
    /// The name of the certificate.
    pub certificate: Box<str>,
    /// The name of its `acme` section.
    pub section: Box<str>,
    inner: Mutex<OrderInner>,
}

#[derive(Debug, Default)]
struct OrderInner {
    /// Whether an order is on its way.
    runs: bool,
    /// When the next one begins, if that is known.
    scheduled: Option<i64>,
    /// Whether somebody asked for one.
    wanted: bool,
    /// The names whose challenges wait until the runtime socket says that they are ready.
    waits: Vec<Box<str>>,
    /// Whose task is told of changes.
    waker: Option<Waker>,
}

/// What `acme status` shows of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderStatus {
    /// Whether an order is on its way.
    pub runs: bool,
    /// When the next one begins.
    pub scheduled: Option<i64>,
}

impl Order {
    /// One that nobody has begun with.
    pub fn new(certificate: &str, section: &str) -> Self {
        Self { certificate: certificate.into(), section: section.into(), inner: Mutex::default() }
    }

    // Every change is whole.
    fn lock(&self) -> MutexGuard<'_, OrderInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is to show.
    pub fn show(&self) -> OrderStatus {
        let inner = self.lock();
        OrderStatus { runs: inner.runs, scheduled: inner.scheduled }
    }

    /// Asks for a new certificate now. `false` where one is on its way.
    pub fn renew(&self) -> bool {
        let mut inner = self.lock();
        if inner.runs || inner.wanted {
            return false;
        }
        inner.wanted = true;
        wake(inner);
        true
    }

    /// Says that the challenge of a name is ready: how many others are waited for. `None` where
    /// this one is not.
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

    /// Begins an order; the one that was asked for is this one.
    pub fn begin(&self) {
        let mut inner = self.lock();
        (inner.runs, inner.wanted, inner.scheduled) = (true, false, None);
    }

    /// Ends it. The next one begins at that time.
    pub fn end(&self, scheduled: Option<i64>) {
        let mut inner = self.lock();
        (inner.runs, inner.scheduled) = (false, scheduled);
        inner.waits.clear();
    }

    /// Waits for the runtime socket to say that the challenges of these names are ready.
    pub fn wait_for(&self, names: Vec<Box<str>>) {
        self.lock().waits = names;
    }

    /// Until somebody asks for a new certificate.
    pub fn poll_wanted(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll(context, |inner| inner.wanted)
    }

    /// Until all challenges are ready.
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
    fn there_is_one_order_at_a_time() {
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
    fn each_challenge_is_told_of_once() {
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
