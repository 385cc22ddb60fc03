//! Requests waiting for a server or a backend, in order of priority class, then of their arrival, adjusted by the priority offset.
//!
//! The queue is protected by a mutex. It is only used when a limit is reached, never by requests that need not wait.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Waker;

use once_cell::race::OnceBox;

use crate::EventTopic;
use crate::journal::RepeatedEvent;

/// The order in which requests are served: class, then arrival in ms adjusted by the offset, then order of arrival.
type QueueKey = (i32, i64, u64);

#[derive(Debug, Default)]
struct QueueEntry {
    entries: BTreeMap<QueueKey, Waker>,
    order: u64,
}

/// A queue of requests. It takes memory only after a request has waited or has been rejected, because most of many thousands of
/// servers are never full.
#[derive(Debug, Default)]
pub struct Queue {
    /// The number of waiting requests, which can be read without the lock.
    length: AtomicU32,
    used: OnceBox<UsedQueue>,
}

#[derive(Debug, Default)]
struct UsedQueue {
    waiting: Mutex<QueueEntry>,
    /// The maximum number of waiting requests.
    longest: AtomicU32,
    /// Requests were rejected because the queue was full.
    full: RepeatedEvent,
    /// How many requests got a slot from the queue.
    served: AtomicU64,
}

/// A position in a queue, released by [`Queue::leave`].
#[derive(Debug, Clone, Copy)]
pub struct Ticket(QueueKey);

impl Queue {
    /// Returns the number of waiting requests.
    #[inline]
    pub fn len(&self) -> u32 {
        self.length.load(Relaxed)
    }

    /// Whether no request is waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn used(&self) -> &UsedQueue {
        self.used.get_or_init(Box::default)
    }

    /// Returns the maximum number of waiting requests (`qmax`).
    pub fn longest(&self) -> u32 {
        self.used.get().map_or(0, |used| used.longest.load(Relaxed))
    }

    /// Sets the maximum number of waiting requests to their current number.
    pub fn clear_longest(&self) {
        if let Some(used) = self.used.get() {
            used.longest.store(self.len(), Relaxed);
        }
    }

    /// Returns how many requests got a slot from the queue. The basis of `%sq` and `%bq`.
    pub fn served(&self) -> u64 {
        self.used.get().map_or(0, |used| used.served.load(Relaxed))
    }

    /// Counts a request that got a slot from the queue.
    pub fn count_served(&self) {
        self.used().served.fetch_add(1, Relaxed);
    }

    /// Records that a request was rejected because the queue was full. `text` makes the object and text of the event.
    pub fn note_full(&self, text: impl FnOnce() -> (String, String)) {
        self.used().full.note(EventTopic::Limits, text);
    }

    fn with<R>(&self, change: impl FnOnce(&mut QueueEntry) -> R) -> R {
        // Map operations are atomic, so the state is valid even if the lock is poisoned.
        let used = self.used();
        let mut waiting = used.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = change(&mut waiting);
        let length = waiting.entries.len() as u32;
        self.length.store(length, Relaxed);
        used.longest.fetch_max(length, Relaxed);
        result
    }

    /// Joins the queue. `waker` is woken when it is this ticket's turn to try. Returns the ticket and the number of tickets before
    /// it, or `None` if the queue is full. `limit` 0 means no limit.
    pub fn enter(&self, class: i32, date_ms: i64, limit: u32, waker: Waker) -> Option<(Ticket, u32)> {
        self.with(|waiting| {
            if limit > 0 && waiting.entries.len() >= limit as usize {
                return None;
            }
            waiting.order += 1;
            let key = (class, date_ms, waiting.order);
            let before = waiting.entries.range(..key).count() as u32;
            waiting.entries.insert(key, waker);
            Some((Ticket(key), before))
        })
    }

    /// Leaves the queue, after being served or giving up. Returns whether the ticket was still in the queue.
    pub fn leave(&self, ticket: Ticket) -> bool {
        self.with(|waiting| waiting.entries.remove(&ticket.0).is_some())
    }

    /// Whether `ticket` is the first in the queue.
    pub fn is_first(&self, ticket: Ticket) -> bool {
        self.with(|waiting| waiting.entries.first_key_value().is_some_and(|(key, _)| *key == ticket.0))
    }

    /// Wakes the first request in the queue, which then tries to get a slot. The request stays in the queue until it leaves it.
    pub fn wake_first(&self) {
        if !self.is_empty() {
            let first =
                self.with(|waiting| waiting.entries.first_key_value().map(|(_, waker)| waker.clone()));
            if let Some(waker) = first {
                waker.wake();
            }
        }
    }

    /// Wakes all requests, which choose a server again, because a server came up or went down.
    pub fn wake_all(&self) {
        if !self.is_empty() {
            let all: Vec<Waker> = self.with(|waiting| waiting.entries.values().cloned().collect());
            all.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_classes_then_earlier_dates_come_first() {
        let queue = Queue::default();
        let enter = |class, date| queue.enter(class, date, 0, Waker::noop().clone()).unwrap();
        let (late, before) = enter(0, 50);
        assert_eq!(before, 0);
        let (early, _) = enter(0, 10);
        assert!(queue.is_first(early) && !queue.is_first(late));
        let (urgent, before) = enter(-5, 99);
        assert!(queue.is_first(urgent));
        assert_eq!(before, 0);
        assert!(queue.leave(urgent) && !queue.leave(urgent));
        assert!(queue.is_first(early));
        assert_eq!((queue.len(), queue.longest()), (2, 3));
    }

    #[test]
    fn a_full_queue_rejects_entries() {
        let queue = Queue::default();
        assert!(queue.enter(0, 0, 1, Waker::noop().clone()).is_some());
        assert!(queue.enter(0, 0, 1, Waker::noop().clone()).is_none());
    }
}
