//! Concurrent requests for one resource: while the first is in progress, the others may wait for its response instead of going to
//! the server (`collapsed-forwarding`), or get a stale one in the meantime.
//!
//! Requests that find a fresh response do not reach this module.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::growing::{Feed, Growing};

/// How long requests do not wait for a resource with an uncacheable response, in seconds.
const PASSED: u64 = 2;

/// Maximum number of remembered uncacheable resources.
const PLACES: usize = 1024;

/// The outcome of the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// The response to the first request is stored.
    Kept,
    /// The response to the first request cannot be shared.
    Passed,
    /// The client of the first request left, so another request may try.
    Abandoned,
    /// The response has begun. Requests that it matches get it as it arrives.
    Begun,
}

/// The first requests in progress.
#[derive(Debug)]
pub(crate) struct Flights {
    open: Mutex<HashMap<u64, Vec<Arc<Flight>>>>,
    /// Uncacheable resources: the upper half of the hash, and the second until which it is remembered. Hash collisions do no harm.
    passed: Box<[AtomicU64]>,
}

/// A first request in progress.
#[derive(Debug)]
struct Flight {
    key: Box<[u8]>,
    state: Mutex<FlightState>,
}

#[derive(Debug, Default)]
struct FlightState {
    landed: Option<Landed>,
    /// The response to the first request, from its first bytes on.
    begun: Option<Arc<Growing>>,
    /// Waiting requests, in order of arrival.
    waiting: BTreeMap<u64, Waker>,
    /// The number of requests that have waited.
    came: u64,
}

/// How a request proceeds.
#[derive(Debug)]
pub enum FlightTurn {
    /// The request goes to the server, for the others too.
    Leads(Lead),
    /// The request may wait for another one.
    Follows(Follow),
    /// The request joins the response to another one, which has begun to arrive.
    Joins(Feed),
    /// The request goes to the server for itself alone.
    Alone,
}

/// The first request. Dropping it lets another request try.
#[derive(Debug)]
pub struct Lead {
    flights: Arc<Flights>,
    hash: u64,
    flight: Arc<Flight>,
}

/// A request waiting for the first.
#[derive(Debug)]
pub struct Follow {
    flight: Arc<Flight>,
    /// The key of this request in the map of waiting requests, once it waits.
    number: Option<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Flights {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default(), passed: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    fn place(&self, hash: u64) -> &AtomicU64 {
        &self.passed[hash as usize % PLACES]
    }

    fn was_passed(&self, hash: u64, now_ms: u64) -> bool {
        let noted = self.place(hash).load(Relaxed);
        noted >> 32 == hash >> 32 && now_ms / 1000 < (noted & u64::from(u32::MAX))
    }

    /// Returns how a request proceeds. `suits` decides whether another request's response would match.
    pub(crate) fn board(
        self: &Arc<Self>,
        hash: u64,
        key: &[u8],
        now_ms: u64,
        suits: impl Fn(&Growing) -> bool,
    ) -> FlightTurn {
        if self.was_passed(hash, now_ms) {
            return FlightTurn::Alone;
        }
        let mut open = locked(&self.open);
        let flights = open.entry(hash).or_default();
        for flight in flights.iter().filter(|flight| *flight.key == *key) {
            match &locked(&flight.state).begun {
                None => return FlightTurn::Follows(Follow { flight: flight.clone(), number: None }),
                Some(growing) if suits(growing) => return FlightTurn::Joins(growing.feed()),
                Some(_) => {}
            }
        }
        let flight = Arc::new(Flight { key: key.into(), state: Mutex::default() });
        flights.push(flight.clone());
        FlightTurn::Leads(Lead { flights: self.clone(), hash, flight })
    }

    /// Stops sharing a response that has begun to arrive if `is_meant` holds for its key.
    pub(crate) fn forget(&self, is_meant: impl Fn(&[u8]) -> bool) {
        let is_begun = |flight: &Flight| locked(&flight.state).begun.is_some();
        locked(&self.open).retain(|_, flights| {
            flights.retain(|flight| !is_meant(&flight.key) || !is_begun(flight));
            !flights.is_empty()
        });
    }

    fn land(&self, hash: u64, flight: &Arc<Flight>, landed: Landed) {
        let mut open = locked(&self.open);
        if let Some(flights) = open.get_mut(&hash) {
            flights.retain(|other| !Arc::ptr_eq(other, flight));
            if flights.is_empty() {
                open.remove(&hash);
            }
        }
        drop(open);
        let waiting = {
            let mut state = locked(&flight.state);
            state.landed.get_or_insert(landed);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Lead {
    /// Called when the response has begun to arrive.
    pub(crate) fn open(&self, growing: Arc<Growing>) {
        let waiting = {
            let mut state = locked(&self.flight.state);
            state.begun = Some(growing);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Called when the response is stored.
    pub fn keep(self) {
        self.flights.land(self.hash, &self.flight, Landed::Kept);
    }

    /// Called when the response cannot be shared.
    pub fn pass(self, now_ms: u64) {
        let until = now_ms / 1000 + PASSED;
        let hash = self.hash & !u64::from(u32::MAX);
        self.flights.place(self.hash).store(hash | (until & u64::from(u32::MAX)), Relaxed);
        self.flights.land(self.hash, &self.flight, Landed::Passed);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // If there was an outcome before, that one remains.
        self.flights.land(self.hash, &self.flight, Landed::Abandoned);
    }
}

impl Follow {
    /// Ready once the first response has begun, is stored, or has failed.
    pub fn poll_landed(&mut self, context: &mut Context<'_>) -> Poll<Landed> {
        let mut state = locked(&self.flight.state);
        if let Some(landed) = state.landed {
            return Poll::Ready(landed);
        }
        if state.begun.is_some() {
            return Poll::Ready(Landed::Begun);
        }
        let number = *self.number.get_or_insert_with(|| {
            state.came += 1;
            state.came
        });
        state.waiting.insert(number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Follow {
    /// Removes the waker of a request that no longer waits.
    fn drop(&mut self) {
        if let Some(number) = self.number {
            locked(&self.flight.state).waiting.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_follower_leaves_no_waker() {
        let flights = Arc::new(Flights::new());
        let FlightTurn::Leads(lead) = flights.board(1, b"key", 0, |_| true) else { panic!("nobody leads") };
        let mut context = Context::from_waker(Waker::noop());
        let follow = |context: &mut Context<'_>| {
            let FlightTurn::Follows(mut follow) = flights.board(1, b"key", 0, |_| true) else {
                panic!("two lead")
            };
            assert_eq!(follow.poll_landed(context), Poll::Pending);
            follow
        };
        let stays = follow(&mut context);
        for _ in 0..10 {
            drop(follow(&mut context));
        }
        assert_eq!(locked(&lead.flight.state).waiting.len(), 1);
        drop(stays);
        assert!(locked(&lead.flight.state).waiting.is_empty());
        drop(lead);
        assert!(locked(&flights.open).is_empty());
    }
}
