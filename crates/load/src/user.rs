//! A user: a task that keeps requests in flight.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use runtime::timer::{NEVER, Timer};

use crate::clock::{MS, Nanos, nanos};
use crate::environment::{Environment, Job, NextRequest};
use crate::link::{Ended, UserConnection};
use crate::pace::Waiting;

/// The longest pause after connections that could not be opened.
const PAUSE_MAX: Nanos = 128 * MS;

/// A user of one thread.
pub(crate) struct User {
    env: Rc<Environment>,
    /// One connection to each server.
    connections: Vec<UserConnection>,
    /// The next request, by index.
    next: usize,
    /// Requests that were begun and wait for a connection.
    planned: VecDeque<Job>,
    /// The number of requests on connections.
    in_flight: u32,
    /// The place in the queue for due requests.
    place: Rc<Waiting>,
    timer: Timer,
    /// When the timer fires, in ms.
    timer_at: u64,
    /// When the user starts; 0 once it has.
    starts_at: Nanos,
    /// Connections in a row that could not be opened, and when the next one may be opened.
    refused: u32,
    paused_until: Nanos,
    ended: Ended,
    /// Whether no further request begins.
    is_over: bool,
    is_registered: bool,
}

impl User {
    /// The user with this number among all threads.
    pub(crate) fn new(env: &Rc<Environment>, number: usize) -> Self {
        let shared = &env.shared;
        let ramp = nanos(shared.options.soft_start);
        // Cannot overflow: both numbers are limited.
        let share = number as f64 / shared.options.users as f64;
        Self {
            connections: shared.targets.targets.iter().map(UserConnection::new).collect(),
            next: number % shared.targets.requests.len(),
            planned: VecDeque::new(),
            in_flight: 0,
            place: Rc::default(),
            timer: Timer::new(),
            timer_at: NEVER,
            starts_at: shared.start.saturating_add((ramp as f64 * share) as Nanos),
            refused: 0,
            paused_until: 0,
            ended: Ended::default(),
            is_over: false,
            is_registered: false,
            env: env.clone(),
        }
    }

    /// Runs until the run is over.
    pub(crate) async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let env = self.env.clone();
        if !self.is_registered {
            self.is_registered = true;
            env.register(context.waker());
        }
        env.tick();
        if env.shared.is_aborted() {
            self.connections.iter_mut().for_each(|connection| connection.abort(&env, &mut self.ended));
            return Poll::Ready(());
        }
        if !self.has_started(context, &env) {
            return Poll::Pending;
        }
        let mut deadline = NEVER;
        if self.timer.poll_expired(context).is_ready() {
            self.timer_at = NEVER;
            deadline = self.expire(&env);
        }
        while self.turn(context, &env) {}
        if self.is_over && self.in_flight == 0 && self.planned.is_empty() {
            let mut are_closed = true;
            for connection in &mut self.connections {
                are_closed &= connection.release(&env);
            }
            if are_closed {
                return Poll::Ready(());
            }
        }
        self.arm(context, &env, deadline);
        Poll::Pending
    }

    /// Whether the soft start has reached this user.
    fn has_started(&mut self, context: &mut Context<'_>, env: &Environment) -> bool {
        if self.starts_at == 0 {
            return true;
        }
        if env.now() < self.starts_at && !env.shared.is_stopped() {
            self.timer.set(self.starts_at.div_ceil(MS));
            if self.timer.poll_expired(context).is_ready() {
                context.waker().wake_by_ref();
            }
            return false;
        }
        self.starts_at = 0;
        self.timer.set(NEVER);
        env.tally().users.add(1);
        true
    }

    /// Receives, begins requests, sends. Returns whether there was any progress.
    fn turn(&mut self, context: &mut Context<'_>, env: &Environment) -> bool {
        let mut progress = false;
        for connection in &mut self.connections {
            progress |= connection.receive(context, env, &mut self.ended);
        }
        self.settle(env);
        progress |= self.begin(context, env);
        for connection in &mut self.connections {
            progress |= connection.flush(context, env, &mut self.ended);
        }
        self.settle(env);
        progress
    }

    /// Takes note of the requests that have ended.
    fn settle(&mut self, env: &Environment) {
        let ended = &mut self.ended;
        self.in_flight -= ended.count + ended.again.len() as u32;
        ended.count = 0;
        self.planned.extend(ended.again.drain(..));
        if std::mem::take(&mut ended.opened) {
            self.refused = 0;
        }
        if std::mem::take(&mut ended.failed_to_open) {
            self.refused += 1;
            let pause = MS.checked_shl(self.refused - 1).unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
            self.paused_until = env.now().saturating_add(pause);
        }
    }

    /// Begins as many requests as permitted.
    fn begin(&mut self, context: &mut Context<'_>, env: &Environment) -> bool {
        let mut progress = false;
        let holds = !env.shared.options.hold.is_zero();
        while self.in_flight < env.shared.options.streams {
            if self.paused_until != 0 {
                if env.now() < self.paused_until && !env.shared.is_stopped() {
                    break;
                }
                self.paused_until = 0;
            }
            // A request is not taken for a connection that is held.
            if holds && self.planned.is_empty() && !self.connections[self.next_target(env)].has_room() {
                break;
            }
            let Some(job) = self.planned.pop_front().or_else(|| self.plan(context, env)) else { break };
            let target = env.shared.targets.requests[job.request as usize].target;
            let connection = &mut self.connections[target];
            if !connection.has_room() {
                self.planned.push_front(job);
                break;
            }
            connection.begin(env, job, &mut self.ended);
            self.in_flight += 1;
            progress = true;
        }
        progress
    }

    /// The target of the next request.
    fn next_target(&self, env: &Environment) -> usize {
        env.shared.targets.requests[self.next].target
    }

    /// Takes the next request.
    fn plan(&mut self, context: &mut Context<'_>, env: &Environment) -> Option<Job> {
        if self.is_over {
            return None;
        }
        let begun = match env.next(context, &self.place) {
            NextRequest::Begin(begun) => begun,
            NextRequest::Wait => return None,
            NextRequest::Over => {
                self.is_over = true;
                return None;
            }
        };
        let request = self.next as u32;
        self.next = (self.next + 1) % env.shared.targets.requests.len();
        let touched = env.now();
        Some(Job { request, begun, first_byte: 0, touched, is_repeated: false, is_first: false })
    }

    /// Ends requests without progress. Returns when the next one will be without progress for too long, in ms.
    fn expire(&mut self, env: &Environment) -> u64 {
        let limit = nanos(env.shared.options.io_timeout);
        let since = env.now().saturating_sub(limit);
        let (connections, ended) = (&mut self.connections, &mut self.ended);
        let oldest =
            connections.iter_mut().filter_map(|connection| connection.expire(env, since, ended)).min();
        self.settle(env);
        oldest.map_or(NEVER, |touched| touched.saturating_add(limit).div_ceil(MS))
    }

    /// Sets the timer. Requests are checked once per time limit, not moved on each progress.
    fn arm(&mut self, context: &mut Context<'_>, env: &Environment, deadline: u64) {
        let mut at = deadline;
        if self.timer_at == NEVER && deadline == NEVER && self.in_flight > 0 {
            at = env.now().saturating_add(nanos(env.shared.options.io_timeout)).div_ceil(MS);
        }
        let opening = self.connections.iter().filter_map(UserConnection::wakes_at).min();
        let paused = (self.paused_until != 0).then_some(self.paused_until);
        for other in opening.into_iter().chain(paused) {
            at = at.min(other.div_ceil(MS));
        }
        if at < self.timer_at {
            self.timer_at = at;
            self.timer.set(at);
        }
        if self.timer.poll_expired(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }
}
