//! Requests for one resource that come while the first of them is on its way: they may wait for its
//! response instead of asking the server the same (`collapsed-forwarding`), or get what is stale
//! meanwhile.
//!
//! Nobody who finds something fresh comes here.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::growing::{Feed, Growing};

/// For so long nobody waits for the response of a resource that was not kept, in seconds.
const PASSED: u64 = 2;

/// So many such resources are remembered, at most.
const PLACES: usize = 1024;

/// What became of the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// Its response is kept.
    Kept,
    /// Its response is not for others.
    Passed,
    /// Its client left: another one may try.
    Abandoned,
    /// It has begun: those whom it suits get it as it comes.
    Begun,
}

/// The first requests that are on their way.
#[derive(Debug)]
pub(crate) struct Flights {
    open: Mutex<HashMap<u64, Vec<Arc<Flight>>>>,
    /// Resources that are not kept: the upper half of the hash, and until which second. Which one is
    /// remembered in a place that two share does not matter.
    passed: Box<[AtomicU64]>,
}

/// One of them.
#[derive(Debug)]
struct Flight {
    key: Box<[u8]>,
    state: Mutex<FlightState>,
}

#[derive(Debug, Default)]
struct FlightState {
    landed: Option<Landed>,
    /// What comes of it, from its first bytes on.
    begun: Option<Arc<Growing>>,
    /// Those who wait, by when they came.
    waiting: BTreeMap<u64, Waker>,
    /// How many came.
    came: u64,
}

/// Whose turn it is.
#[derive(Debug)]
pub enum FlightTurn {
    /// The request's own: it goes to the server, for the others too.
    Leads(Lead),
    /// Another request's, which may be waited for.
    Follows(Follow),
    /// Another request's, whose response has begun to come.
    Joins(Feed),
    /// Everybody goes on their own.
    Alone,
}

/// The first request. Dropped, it is abandoned.
#[derive(Debug)]
pub struct Lead {
    flights: Arc<Flights>,
    hash: u64,
    flight: Arc<Flight>,
}

/// One that waits for it.
#[derive(Debug)]
pub struct Follow {
    flight: Arc<Flight>,
    /// Which of those who wait it is, once it does.
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

    /// Whose turn it is; `suits` says whether what comes of another request will do.
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

    /// Nobody else gets what has begun to come under such keys.
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
    /// Its response has begun to come.
    pub(crate) fn open(&self, growing: Arc<Growing>) {
        let waiting = {
            let mut state = locked(&self.flight.state);
            state.begun = Some(growing);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// Its response is kept.
    pub fn keep(self) {
        self.flights.land(self.hash, &self.flight, Landed::Kept);
    }

    /// Its response is not for others.
    pub fn pass(self, now_ms: u64) {
        let until = now_ms / 1000 + PASSED;
        let hash = self.hash & !u64::from(u32::MAX);
        self.flights.place(self.hash).store(hash | (until & u64::from(u32::MAX)), Relaxed);
        self.flights.land(self.hash, &self.flight, Landed::Passed);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // What was said before counts.
        self.flights.land(self.hash, &self.flight, Landed::Abandoned);
    }
}

impl Follow {
    /// Ready once the response to the first request comes, is there, or will not be.
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
    /// Who waits no more is not woken.
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
    fn who_waits_no_more_leaves_nothing() {
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
