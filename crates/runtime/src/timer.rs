//! Lazy deadlines: moving a deadline is a store, not a timer operation.
//!
//! A connection owns one [`Timer`] for its whole life and moves it in every phase. The worker's [`Wheel`] holds the earliest
//! instant set since the timer last fired. When that instant passes, the timer is compared with its actual deadline, and
//! rescheduled if the deadline has moved. The resolution is one millisecond.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use slab::Slab;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::wheel::Wheel;

/// A deadline that never passes.
pub const NEVER: u64 = u64::MAX;

pub use base::clock::{now_ms, now_us, start as epoch};

struct TimerSlot {
    deadline: u64,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Timers {
    slots: Slab<TimerSlot>,
    /// When to check each slot that has a deadline. This is never later than the deadline.
    wheel: Wheel,
    /// When the driver will next wake up by itself.
    driver_at: u64,
    driver: Option<Waker>,
}

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::new(Timers { driver_at: NEVER, ..Timers::default() });
}

impl Timers {
    fn arm(&mut self, slot: u32, at: u64) {
        self.wheel.set(slot, at);
        if at < self.driver_at {
            self.driver_at = at;
            if let Some(driver) = self.driver.take() {
                driver.wake();
            }
        }
    }

    /// Wakes every timer with a deadline at or before `now`; returns the next instant to check.
    fn fire(&mut self, now: u64) -> u64 {
        while let Some(index) = self.wheel.pop(now) {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            if slot.deadline <= now {
                if let Some(waker) = slot.waker.take() {
                    waker.wake();
                }
            } else if slot.deadline != NEVER {
                self.wheel.set(index, slot.deadline);
            }
        }
        self.wheel.next().unwrap_or(NEVER)
    }
}

/// A deadline that a task awaits in addition to its sockets.
#[derive(Debug)]
pub struct Timer {
    slot: u32,
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl Timer {
    /// Creates a timer without a deadline.
    pub fn new() -> Self {
        TIMERS.with_borrow_mut(|timers| {
            let slot = timers.slots.insert(TimerSlot { deadline: NEVER, waker: None });
            Self { slot: slot as u32 }
        })
    }

    /// Moves the deadline to `at` ms of [`now_ms`]; [`NEVER`] removes it.
    #[inline]
    pub fn set(&self, at: u64) {
        TIMERS.with_borrow_mut(|timers| {
            timers.slots[self.slot as usize].deadline = at;
            if at != NEVER && timers.wheel.at(self.slot).is_none_or(|armed| at < armed) {
                timers.arm(self.slot, at);
            }
        });
    }

    /// Moves the deadline to `after` from now; `None` removes it.
    #[inline]
    pub fn set_after(&self, now: u64, after: Option<Duration>) {
        self.set(after.map_or(NEVER, |after| now.saturating_add(after.as_millis() as u64)));
    }

    /// The deadline as last set.
    pub fn deadline(&self) -> u64 {
        TIMERS.with_borrow(|timers| timers.slots[self.slot as usize].deadline)
    }

    /// Ready once the deadline has passed. Until then, the task is registered to be woken at that time.
    #[inline]
    pub fn poll_expired(&self, context: &mut Context<'_>) -> Poll<()> {
        TIMERS.with_borrow_mut(|timers| {
            let slot = &mut timers.slots[self.slot as usize];
            let at = slot.deadline;
            if at == NEVER {
                return Poll::Pending;
            }
            match &mut slot.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                waker => *waker = Some(context.waker().clone()),
            }
            // If the entry in the wheel is still ahead, the clock need not be read.
            if timers.wheel.at(self.slot).is_some() {
                return Poll::Pending;
            }
            if at <= now_ms() {
                return Poll::Ready(());
            }
            timers.arm(self.slot, at);
            Poll::Pending
        })
    }

    /// Waits until the deadline has passed.
    pub async fn expired(&self) {
        poll_fn(|context| self.poll_expired(context)).await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // `try_with`, because a task may be dropped while the thread exits.
        let _ = TIMERS.try_with(|timers| {
            let mut timers = timers.borrow_mut();
            timers.slots.try_remove(self.slot as usize);
            timers.wheel.remove(self.slot);
        });
    }
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    let timer = Timer::new();
    timer.set_after(now_ms(), Some(duration));
    timer.expired().await;
}

/// The time limit expired first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// Waits for `future`, at most for `limit`.
///
/// # Errors
/// The limit expired.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    timeout_at(now_ms().saturating_add(limit.as_millis() as u64), future).await
}

/// Waits for `future`, at most until `deadline`, in ms of [`now_ms`].
///
/// # Errors
/// The deadline expired.
pub async fn timeout_at<F: Future>(deadline: u64, future: F) -> Result<F::Output, Elapsed> {
    let timer = Timer::new();
    timer.set(deadline);
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => timer.poll_expired(context).map(|()| Err(Elapsed)),
    })
    .await
}

/// The kernel timer that wakes the worker for its earliest deadline. The reactor handles it like any other descriptor, so a turn in
/// which no deadline expires neither reads a clock nor computes a sleep time.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Creates an unset alarm.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Sets `alarm` to fire when millisecond `at` of [`now_ms`] is over. The clock truncates, so a deadline that was set within a
    /// millisecond would otherwise expire up to one millisecond too early.
    fn set(alarm: &OwnedFd, at: u64) -> io::Result<()> {
        // To the kernel zero means never.
        let us = at.saturating_add(1).saturating_mul(1000).saturating_sub(now_us()).max(1);
        let it_value = Timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1000) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(alarm, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

/// Fires the worker's timers; runs forever as one task per worker.
///
/// # Errors
/// The reactor accepts no further descriptor.
pub async fn drive(alarm: Alarm) -> io::Result<()> {
    #[expect(deprecated, reason = "what it warns of, a descriptor that changes, an OwnedFd is not")]
    let watched = AsyncFd::with_interest(alarm.0, Interest::READABLE)?;
    let mut armed = NEVER;
    poll_fn(|context| {
        // The next expiry is a new edge, so the descriptor need not be read.
        while let Poll::Ready(ready) = watched.poll_read_ready(context) {
            ready?.clear_ready();
            armed = NEVER;
        }
        let next = TIMERS.with_borrow_mut(|timers| {
            let next = timers.fire(now_ms());
            timers.driver_at = next;
            timers.driver = Some(context.waker().clone());
            next
        });
        if next != armed && next != NEVER {
            Alarm::set(watched.get_ref(), next)?;
            armed = next;
        }
        Poll::<io::Result<()>>::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    fn run<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            tokio::task::spawn_local(drive(Alarm::new().unwrap()));
            future.await
        })
    }

    #[test]
    fn timers_expire_in_order_and_not_early() {
        run(async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [30u64, 10, 20]
                .into_iter()
                .map(|ms| {
                    let order = order.clone();
                    tokio::task::spawn_local(async move {
                        let start = now_ms();
                        sleep(Duration::from_millis(ms)).await;
                        assert!(now_ms() >= start + ms);
                        order.borrow_mut().push(ms);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.borrow(), [10, 20, 30]);
        });
    }

    #[test]
    fn a_deadline_moved_later_does_not_fire_at_the_earlier_instant() {
        run(async {
            let timer = Timer::new();
            let start = now_ms();
            timer.set(start + 5);
            let moved = Cell::new(false);
            poll_fn(|context| {
                if !moved.replace(true) {
                    assert!(timer.poll_expired(context).is_pending());
                    timer.set(start + 25);
                }
                timer.poll_expired(context)
            })
            .await;
            assert!(now_ms() >= start + 25);
        });
    }

    #[test]
    fn timeouts_end_with_the_future_or_the_limit() {
        run(async {
            let start = now_ms();
            assert_eq!(timeout(Duration::from_millis(20), std::future::pending::<()>()).await, Err(Elapsed));
            assert!(now_ms() >= start + 20);
            assert_eq!(timeout(Duration::from_secs(3600), sleep(Duration::from_millis(1))).await, Ok(()));
            assert_eq!(timeout(Duration::ZERO, std::future::ready(1)).await, Ok(1));
        });
    }

    #[test]
    fn a_deadline_moved_earlier_fires_at_the_earlier_instant() {
        run(async {
            let timer = Timer::new();
            timer.set(now_ms() + 3_600_000);
            timer.set(now_ms() + 5);
            timer.expired().await;
        });
    }
}
