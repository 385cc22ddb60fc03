//! Lets the users of a thread wait for the next due request (`-R`).
//!
//! A kernel timer with nanoseconds wakes one user for each request that is due. The worker's own timers count milliseconds, which would
//! be a part of the measured latency.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock::{Nanos, SECOND, now};
use crate::schedule::Schedule;

/// The schedule of a thread, and the users that wait for it.
pub(crate) struct RequestPace {
    schedule: RefCell<Schedule>,
    /// Users that wait, the longest first.
    waiting: RefCell<VecDeque<Rc<Waiting>>>,
    timer: AsyncFd<OwnedFd>,
    /// The instant for which the timer is set; 0 for none.
    armed: Cell<Nanos>,
}

/// A user's place in the queue.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waker: RefCell<Option<Waker>>,
    is_queued: Cell<bool>,
    /// When the request was due that the user is to send next.
    granted: Cell<Option<Nanos>>,
}

impl Waiting {
    /// Takes the request that the user is to send; returns when it was due.
    pub(crate) fn take_granted(&self) -> Option<Nanos> {
        self.granted.take()
    }
}

impl RequestPace {
    /// Creates the queue on the calling thread's reactor.
    ///
    /// # Errors
    /// No descriptor is available.
    pub(crate) fn new(schedule: Schedule) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(deprecated, reason = "it warns of descriptors that change, and an OwnedFd does not")]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        let (schedule, waiting) = (RefCell::new(schedule), RefCell::default());
        Ok(Self { schedule, waiting, timer, armed: Cell::new(0) })
    }

    /// Takes a request that is due, and returns when it was due. The users take turns: one that has just finished a request waits
    /// behind the others, and is woken.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>, user: &Rc<Waiting>, now: Nanos) -> Poll<Nanos> {
        if let Some(due) = user.granted.take() {
            return Poll::Ready(due);
        }
        let mut waker = user.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        if !user.is_queued.replace(true) {
            self.waiting.borrow_mut().push_back(user.clone());
        }
        self.grant(now, Some(user));
        user.granted.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Gives the requests that are due to the users that have waited longest, and sets the timer for the next one. `caller` need not be
    /// woken.
    fn grant(&self, now: Nanos, caller: Option<&Rc<Waiting>>) {
        let (mut schedule, mut waiting) = (self.schedule.borrow_mut(), self.waiting.borrow_mut());
        while let Some(user) = waiting.front() {
            let Some(due) = schedule.take(now) else {
                self.arm(schedule.due(), now);
                return;
            };
            user.is_queued.set(false);
            user.granted.set(Some(due));
            if caller.is_none_or(|caller| !Rc::ptr_eq(caller, user))
                && let Some(waker) = &*user.waker.borrow()
            {
                waker.wake_by_ref();
            }
            waiting.pop_front();
        }
    }

    /// The number of requests that are due before `at` and were not taken.
    pub(crate) fn overdue(&self, at: Nanos) -> u64 {
        self.schedule.borrow().overdue(at)
    }

    fn arm(&self, at: Nanos, now: Nanos) {
        if self.armed.get() == at {
            return;
        }
        self.armed.set(at);
        let wait = at.saturating_sub(now).max(1);
        let it_value = Timespec { tv_sec: (wait / SECOND) as i64, tv_nsec: (wait % SECOND) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // The descriptor is a timer and the time is valid, so this cannot fail.
        let _ = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once);
    }

    /// Wakes users when requests become due; runs as a task of the thread.
    pub(crate) async fn drive(self: Rc<Self>) {
        poll_fn(|context| -> Poll<()> {
            // The next expiry is a new edge, so the descriptor need not be read.
            while let Poll::Ready(ready) = self.timer.poll_read_ready(context) {
                match ready {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => return Poll::Ready(()),
                }
                self.armed.set(0);
                self.grant(now(), None);
            }
            Poll::Pending
        })
        .await;
    }
}
