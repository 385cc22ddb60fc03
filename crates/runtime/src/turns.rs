//! Long steps take turns: where one step of a task may keep the worker busy for long, as a handshake
//! of TLS that signs with RSA does, at most one such step is taken between two looks at the sockets.
//! Whoever has a short request to answer waits for one of them, however many are asked for.
//! Called by the handshakes of clients, and by tasks that have more to do than one turn may take.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::timer::now_us;

/// What counts as long, in µs: several times what a request takes.
const LONG: u64 = 100;

/// Has the task polled again once the worker has looked at its sockets and run the tasks that were
/// ready. A task that wakes itself instead is run up to 61 times before the next look at the sockets.
pub fn yield_turn(context: &Context<'_>) {
    yield_for(context.waker());
}

fn yield_for(waker: &Waker) {
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker));
}

/// Those of one worker that wait for their turn.
#[derive(Debug, Default)]
struct TurnQueue {
    waiting: VecDeque<(u64, Waker)>,
    /// The number of the last that had to wait.
    last: u64,
    /// Whether the latest step was long. Always so while somebody waits.
    is_closed: bool,
}

thread_local! {
    static QUEUE: RefCell<TurnQueue> = RefCell::default();
}

impl TurnQueue {
    /// Wakes the first, at once or `later`: behind the worker's next look at its sockets.
    fn wake_first(&self, later: bool) {
        let Some((_, waker)) = self.waiting.front() else { return };
        if later {
            yield_for(waker);
        } else {
            waker.wake_by_ref();
        }
    }

    /// Whether the task of that number may go on; else it is in the queue, in which it gets one.
    fn admits(&mut self, number: &mut Option<u64>, waker: &Waker) -> bool {
        if let Some(own) = number {
            if self.waiting.front().is_some_and(|(first, _)| first == own) {
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

/// One task's place among those that take long steps.
#[derive(Debug, Default)]
pub struct Turn {
    /// Its number in the queue.
    number: Option<u64>,
}

impl Turn {
    /// Takes `step`. After a long one, others' or its own, that is put off until the worker has
    /// looked at its sockets and served those that are ready, and those before it have had their
    /// turn: `Pending`, and the task is woken then.
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
        let was_long = now_us().saturating_sub(began) > LONG;
        QUEUE.with_borrow_mut(|queue| {
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
        // try_with: the thread itself may end.
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
    fn one_long_step_is_taken_between_two_looks_at_the_sockets_and_each_gets_its_turn() {
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
            // What else the worker has to do, woken behind each look.
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
    fn short_steps_are_taken_at_once() {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut turn = Turn::default();
            assert!(turn.poll(&mut context, |_| Poll::Ready(())).is_ready());
        }
    }

    #[test]
    fn who_gives_up_leaves_its_place_to_the_next() {
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
