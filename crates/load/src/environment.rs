//! The state that the users of one thread share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use crate::clock::{Nanos, now};
use crate::histogram::Latencies;
use crate::options::{HttpVersion, Options};
use crate::pace::{RequestPace, Waiting};
use crate::tally::{Failure, ThreadTally};
use crate::target::Targets;

thread_local! {
    /// The environment of the calling thread.
    static CURRENT: RefCell<Option<Rc<Environment>>> = const { RefCell::new(None) };
}

/// The state that all threads share.
pub(crate) struct RunState {
    pub(crate) options: Options,
    pub(crate) targets: Targets,
    pub(crate) tallies: Vec<ThreadTally>,
    /// Requests that may still begin.
    budget: Option<AtomicU64>,
    /// Whether all of them have begun.
    is_spent: AtomicBool,
    /// No further request begins.
    stops: AtomicBool,
    /// Requests in flight are given up.
    aborts: AtomicBool,
    /// Idle connections are not held any longer.
    releases: AtomicBool,
    /// When the run began, and when it ends by `-d`.
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

impl RunState {
    /// The state of a run that starts now.
    pub(crate) fn new(options: Options, targets: Targets) -> Arc<Self> {
        let start = now();
        let length = options.duration.map_or(u64::MAX, crate::clock::nanos);
        Arc::new(Self {
            targets,
            tallies: (0..options.threads).map(|_| ThreadTally::default()).collect(),
            budget: options.requests.map(AtomicU64::new),
            is_spent: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            aborts: AtomicBool::new(false),
            releases: AtomicBool::new(false),
            start,
            end: start.saturating_add(length),
            options,
        })
    }

    /// Takes one of the requests of `-n`.
    fn claim(&self) -> bool {
        let Some(budget) = &self.budget else { return true };
        let before = budget.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if before == Ok(1) {
            // Users that wait for a due request would otherwise wait for the following ones.
            self.is_spent.store(true, Relaxed);
            self.wake_all();
        }
        before.is_ok()
    }

    /// Ends the run: no further request begins, and with `aborts` those in flight are given up.
    pub(crate) fn stop(&self, aborts: bool) {
        self.stops.store(true, Relaxed);
        self.aborts.fetch_or(aborts, Relaxed);
    }

    /// Closes the connections that are held.
    pub(crate) fn release(&self) {
        self.releases.store(true, Relaxed);
    }

    /// Wakes all users of all threads.
    pub(crate) fn wake_all(&self) {
        let wake = || CURRENT.with_borrow(|current| current.iter().for_each(|env| env.wake_users()));
        for index in 0..self.tallies.len() {
            runtime::worker::post(index, wake);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.load(Relaxed)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.releases.load(Relaxed)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborts.load(Relaxed)
    }
}

/// A request that a user has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// The index of the request.
    pub(crate) request: u32,
    /// When the request was due; without `-R`, when the user was ready for it.
    pub(crate) begun: Nanos,
    /// When the first byte of the response arrived; 0 before.
    pub(crate) first_byte: Nanos,
    /// When there was progress last.
    pub(crate) touched: Nanos,
    /// Whether it was sent again because an idle connection was closed.
    pub(crate) is_repeated: bool,
    /// Whether it is the first request of its connection.
    pub(crate) is_first: bool,
}

/// The state that the users of one thread share.
pub(crate) struct Environment {
    pub(crate) shared: Arc<RunState>,
    pub(crate) index: usize,
    pub(crate) latencies: RefCell<Latencies>,
    pub(crate) pace: Option<Rc<RequestPace>>,
    /// The tasks of all users, woken when the run ends.
    wakers: RefCell<Vec<Waker>>,
    /// The instant of the current turn.
    turn: Cell<Nanos>,
}

/// Whether a user may begin a request.
pub(crate) enum NextRequest {
    /// It begins a request, which was due at that time.
    Begin(Nanos),
    /// It waits, and is woken.
    Wait,
    /// The run is over.
    Over,
}

impl Environment {
    pub(crate) fn new(shared: Arc<RunState>, index: usize, pace: Option<Rc<RequestPace>>) -> Self {
        let (latencies, wakers) = (RefCell::new(Latencies::new()), RefCell::default());
        Self { shared, index, latencies, pace, wakers, turn: Cell::new(0) }
    }

    pub(crate) fn tally(&self) -> &ThreadTally {
        &self.shared.tallies[self.index]
    }

    /// Registers the task of a user.
    pub(crate) fn register(&self, waker: &Waker) {
        self.wakers.borrow_mut().push(waker.clone());
    }

    /// Makes this the environment of the calling thread.
    pub(crate) fn enter(self: &Rc<Self>) {
        CURRENT.set(Some(self.clone()));
    }

    /// Wakes the users of this thread.
    fn wake_users(&self) {
        self.wakers.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Reads the clock.
    pub(crate) fn tick(&self) -> Nanos {
        let now = now();
        self.turn.set(now);
        now
    }

    /// The instant at which the clock was read last.
    pub(crate) fn now(&self) -> Nanos {
        self.turn.get()
    }

    /// Decides whether a user begins another request.
    pub(crate) fn next(&self, context: &mut Context<'_>, user: &Rc<Waiting>) -> NextRequest {
        let (now, shared) = (self.now(), &self.shared);
        let is_over = shared.is_stopped() || shared.is_spent.load(Relaxed) || now >= shared.end;
        let begun = match &self.pace {
            None if is_over => return NextRequest::Over,
            None => now,
            // After the end, overdue requests are not sent.
            Some(_) if is_over => match user.take_granted() {
                Some(due) => due,
                None => return NextRequest::Over,
            },
            Some(pace) => match pace.poll_take(context, user, now) {
                Poll::Ready(due) => due,
                Poll::Pending => return NextRequest::Wait,
            },
        };
        if self.shared.claim() { NextRequest::Begin(begun) } else { NextRequest::Over }
    }

    /// Records that the first byte of a response has arrived, or more bytes.
    pub(crate) fn progress(&self, job: &mut Job) {
        let now = self.now();
        job.touched = now;
        if job.first_byte == 0 {
            job.first_byte = now;
        }
    }

    /// Counts a complete response.
    pub(crate) fn answered(&self, version: HttpVersion, status: u16, job: &Job) {
        let options = &self.shared.options;
        let is_measured = !(options.skips_first && job.is_first);
        let first = job.first_byte.saturating_sub(job.begun);
        let last = self.now().saturating_sub(job.begun);
        self.tally().answered(version, status, is_measured.then_some((first, last)));
        if is_measured {
            self.latencies.borrow_mut().record(last);
        }
        if options.traces {
            let shown = &self.shared.targets.requests[job.request as usize].shown;
            self.trace(format_args!("{shown}: {status} after {} us", last / 1000));
        }
    }

    /// Counts a failed request.
    pub(crate) fn failed(&self, failure: Failure, job: &Job) {
        self.tally().failures[failure as usize].add(1);
        let is_of_connection = matches!(failure, Failure::Connect | Failure::Handshake | Failure::Closed);
        if self.shared.options.stops_on_error && is_of_connection && !self.shared.is_stopped() {
            self.shared.release();
            self.shared.stop(false);
            self.shared.wake_all();
        }
        if self.shared.options.traces {
            let shown = &self.shared.targets.requests[job.request as usize].shown;
            self.trace(format_args!("{shown}: failed: {}", failure.text()));
        }
    }

    /// Prints a line on standard error, for `--traces`.
    pub(crate) fn trace(&self, line: std::fmt::Arguments<'_>) {
        let at = self.now().saturating_sub(self.shared.start) / 1000;
        base::output::to_standard_error(&format!(
            "{}.{:06} thread {}: {line}\n",
            at / 1_000_000,
            at % 1_000_000,
            self.index
        ));
    }
}
