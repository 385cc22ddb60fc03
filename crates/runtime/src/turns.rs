//! Limits long steps to one per poll of the sockets. Steps that may keep the worker busy for long, such as the RSA signature in a
//! TLS handshake, run one at a time. A short request therefore waits for at most one of them, however many are pending. Very long ones
//! are followed by a pause as long as there is other work, so that a request does not wait again for its server's answer. Used by
//! client handshakes, and by tasks with more work than fits into a turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::timer::now_us;

/// The minimum duration of a long step in µs: several times that of a request.
const LONG: u64 = 100;

/// The minimum duration of a step that is followed by a pause, in µs: that of a signature with a key of more than 2048 bits.
const PAUSE_AFTER: u64 = 1000;

/// A pause takes at most the duration of the long step divided by this.
const PAUSE_PART: u64 = 4;

/// A pause ends after this time without other work, in µs: the time in which a server on the same network answers.
const QUIET: u64 = 60;

/// The minimum duration of a turn with other work, in µs. A turn without work only polls the sockets.
const BUSY: u64 = 5;

/// Schedules the task to be polled again after the worker has polled its sockets and run the ready tasks. A task that only wakes
/// itself is run up to 61 times before the next poll of the sockets.
pub fn yield_turn(context: &Context<'_>) {
    yield_for(context.waker());
}

fn yield_for(waker: &Waker) {
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker));
}

/// The waiting tasks of one worker.
#[derive(Debug, Default)]
struct TurnQueue {
    waiting: VecDeque<(u64, Waker)>,
    /// The last number assigned.
    last: u64,
    /// Whether the latest step was long. Always true while a task waits.
    is_closed: bool,
    pause: Option<Pause>,
}

/// The time after a long step in which no other one begins.
#[derive(Debug, Clone, Copy)]
struct Pause {
    /// The latest end, in µs.
    until: u64,
    /// The time at which the worker was last found to have done other work.
    busy_at: u64,
    /// The time of the last check.
    checked: u64,
}

impl Pause {
    fn after(began: u64, now: u64) -> Self {
        Self { until: now + (now - began) / PAUSE_PART, busy_at: now, checked: now }
    }

    /// Whether the pause continues. Called once in each turn.
    fn continues(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.checked) >= BUSY {
            self.busy_at = now;
        }
        self.checked = now;
        now < self.until && now.saturating_sub(self.busy_at) < QUIET
    }
}

thread_local! {
    static QUEUE: RefCell<TurnQueue> = RefCell::default();
}

impl TurnQueue {
    /// Wakes the first task: immediately, or with `later` after the worker's next poll of its sockets.
    fn wake_first(&self, later: bool) {
        let Some((_, waker)) = self.waiting.front() else { return };
        if later {
            yield_for(waker);
        } else {
            waker.wake_by_ref();
        }
    }

    /// Whether the task with that number may proceed. Otherwise the task is queued and gets a number.
    fn admits(&mut self, number: &mut Option<u64>, waker: &Waker) -> bool {
        if let Some(own) = number {
            if self.waiting.front().is_some_and(|(first, _)| first == own) {
                if self.pause.as_mut().is_some_and(|pause| pause.continues(now_us())) {
                    yield_for(waker);
                    return false;
                }
                self.pause = None;
                return true;
            }
            if let Some((_, kept)) = self.waiting.iter_mut().find(|(waiting, _)| waiting == own) {
                kept.clone_from(waker);
            }
            return false;
        }
        if !self.is_closed {
            return true;
        }
        self.last += 1;
        *number = Some(self.last);
        self.waiting.push_back((self.last, waker.clone()));
        if self.waiting.len() == 1 {
            self.wake_first(true);
        }
        false
    }
}

/// A task's position among those with long steps.
#[derive(Debug, Default)]
pub struct Turn {
    /// The number of the task in the queue.
    number: Option<u64>,
}

impl Turn {
    /// Runs `step`. After a long step of this or another task, `step` is postponed until the worker has polled its sockets, served
    /// the ready ones, and run the tasks that were waiting earlier. In that case this returns `Pending`, and the task is woken at
    /// that time.
    pub fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        step: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if !QUEUE.with_borrow_mut(|queue| queue.admits(&mut self.number, context.waker())) {
            return Poll::Pending;
        }
        let began = now_us();
        let outcome = step(context);
        let now = now_us();
        let was_long = now.saturating_sub(began) > LONG;
        QUEUE.with_borrow_mut(|queue| {
            if now.saturating_sub(began) > PAUSE_AFTER {
                queue.pause = Some(Pause::after(began, now));
            }
            if self.number.take().is_some() {
                queue.waiting.pop_front();
            }
            queue.is_closed = was_long || !queue.waiting.is_empty();
            queue.wake_first(was_long);
        });
        outcome
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // `try_with`, because the thread may be exiting.
        let _ = QUEUE.try_with(|queue| {
            let mut queue = queue.borrow_mut();
            let was_first = queue.waiting.front().is_some_and(|(first, _)| *first == number);
            queue.waiting.retain(|(waiting, _)| *waiting != number);
            if was_first {
                queue.wake_first(false);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    fn busy() {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(2 * LONG) {}
    }

    #[test]
    fn one_long_step_runs_per_poll_of_the_sockets() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut tasks = Vec::new();
            for name in 0..4 {
                let order = order.clone();
                tasks.push(tokio::task::spawn_local(async move {
                    let mut turn = Turn::default();
                    poll_fn(|context| {
                        turn.poll(context, |_| {
                            busy();
                            Poll::Ready(())
                        })
                    })
                    .await;
                    order.borrow_mut().push(name.to_string());
                }));
            }
            // Represents other work of the worker; woken after each poll of the sockets.
            let other = order.clone();
            tasks.push(tokio::task::spawn_local(async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                    other.borrow_mut().push("other".to_owned());
                }
            }));
            for task in tasks {
                task.await.unwrap();
            }
        });
        let order = order.borrow();
        let steps: Vec<&str> = order.iter().map(String::as_str).filter(|name| *name != "other").collect();
        assert_eq!(steps, ["0", "1", "2", "3"]);
        let neighbours = order.windows(2).filter(|pair| pair.iter().all(|name| name != "other")).count();
        assert!(neighbours <= 1, "{order:?}");
    }

    #[test]
    fn pauses_last_as_long_as_there_is_other_work() {
        let step = 4 * PAUSE_AFTER;
        let most = step / PAUSE_PART;
        // Without other work, turns are short.
        let mut pause = Pause::after(0, step);
        let quiet = (1..).map(|turn| turn * (BUSY - 1)).find(|after| !pause.continues(step + after));
        assert_eq!(quiet, Some(QUIET.next_multiple_of(BUSY - 1)));
        let mut pause = Pause::after(0, step);
        let busy = (1..).map(|turn| turn * BUSY).find(|after| !pause.continues(step + after));
        assert_eq!(busy, Some(most.next_multiple_of(BUSY)));
    }

    #[test]
    fn short_steps_run_immediately() {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut turn = Turn::default();
            assert!(turn.poll(&mut context, |_| Poll::Ready(())).is_ready());
        }
    }

    #[test]
    fn dropped_tasks_yield_their_position() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut context = Context::from_waker(Waker::noop());
            let long = |_: &mut Context<'_>| {
                busy();
                Poll::Ready(())
            };
            let (mut first, mut second, mut third) = (Turn::default(), Turn::default(), Turn::default());
            assert!(first.poll(&mut context, long).is_ready());
            assert!(second.poll(&mut context, long).is_pending());
            assert!(third.poll(&mut context, long).is_pending());
            drop(second);
            assert!(third.poll(&mut context, long).is_ready());
        });
    }
}
