//! The inbox of an event handler: a bounded queue of events, filled from any thread and emptied by the handler's task.
//!
//! A handler that is too slow misses events until it has caught up. One message reports that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use sample::pattern;
use state::events::{self, OrderEvent, ServerEvent, Subscriber};

use crate::signal::Signal;

/// Maximum number of queued events per handler.
const MOST: usize = 4096;

/// An event.
#[derive(Debug, Clone)]
pub(crate) enum Happened {
    /// Of a server.
    Server(Arc<ServerEvent>),
    /// Of an ordered certificate.
    Order(Arc<OrderEvent>),
    /// An event of a pattern list, at this second.
    Pattern(pattern::ListChange, i64),
}

/// The queue of one handler.
pub(crate) struct Inbox {
    waiting: Mutex<InboxWaiter>,
    pub(crate) signal: Signal,
    /// Reports that events are missed.
    warn: Box<dyn Fn(&str) + Send + Sync>,
}

#[derive(Debug, Default)]
struct InboxWaiter {
    events: VecDeque<Happened>,
    /// Whether events are dropped until the queue is empty.
    is_paused: bool,
    /// Whether the queue is closed.
    is_closed: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(crate) fn new(warn: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), signal: Signal::default(), warn: Box::new(warn) })
    }

    fn waiting(&self) -> MutexGuard<'_, InboxWaiter> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn put(&self, happened: Happened) {
        let mut waiting = self.waiting();
        if waiting.is_closed || waiting.is_paused {
            return;
        }
        if waiting.events.len() >= MOST {
            waiting.is_paused = true;
            drop(waiting);
            return (self.warn)("Lua event handler is too slow: events are dropped until it has caught up.");
        }
        waiting.events.push_back(happened);
        drop(waiting);
        self.signal.notify();
    }

    /// Takes the next event.
    pub(crate) fn take(&self) -> Option<Happened> {
        let mut waiting = self.waiting();
        let next = waiting.events.pop_front();
        if waiting.events.is_empty() {
            waiting.is_paused = false;
        }
        next
    }

    /// Closes the queue.
    fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.events.clear();
        drop(waiting);
        self.signal.notify();
    }

    /// Ends the subscriptions of the queue.
    pub(crate) fn end(self: Arc<Self>) {
        let subscriber: Arc<dyn Subscriber> = self.clone();
        events::unsubscribe(&subscriber);
        self.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }
}

impl Subscriber for Inbox {
    fn take(&self, event: &Arc<ServerEvent>) {
        self.put(Happened::Server(event.clone()));
    }

    fn take_order(&self, event: &Arc<OrderEvent>) {
        self.put(Happened::Order(event.clone()));
    }
}

impl pattern::Watcher for Inbox {
    fn changed(&self, change: pattern::ListChange) {
        self.put(Happened::Pattern(change, base::clock::WallTime::now().seconds));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn slow_handlers_miss_events_until_they_catch_up() {
        let warned = Arc::new(AtomicUsize::new(0));
        let count = warned.clone();
        let inbox = Inbox::new(move |_| {
            count.fetch_add(1, Relaxed);
        });
        let put = || inbox.put(Happened::Pattern(pattern::ListChange::Add, 1));
        (0..2 * MOST).for_each(|_| put());
        assert_eq!(warned.load(Relaxed), 1);
        let taken = std::iter::from_fn(|| {
            // Events during the pause are dropped.
            put();
            inbox.take()
        });
        // Taking the last of the earlier events ends the pause, so that the event added afterwards is kept again.
        assert_eq!(taken.take(MOST + 1).count(), MOST + 1);
        inbox.close();
        put();
        assert!(inbox.take().is_none());
    }
}
