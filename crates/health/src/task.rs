//! The tasks of checks and agents: their schedule, their moves to other workers, and their end together with their plan.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use base::clock::now_ms;
use plan::check::AgentSettings;
use runtime::timer::Timer;
use runtime::usage;
use runtime::{watchdog, worker};
use slab::Slab;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::{CheckContext, CheckedServer, Subject, agent, balance, watch};

/// The work of a task.
#[derive(Clone)]
enum Duty {
    Check(Subject),
    Agent(CheckedServer, AgentSettings),
}

/// A check or an agent, scheduled on some worker.
pub(crate) struct CheckTask {
    duty: Duty,
    /// When the task is due, in ms of the monotonic clock.
    due: u64,
}

impl CheckTask {
    /// Creates the task for the check of `subject`, first after `delay`.
    pub(crate) fn check(subject: Subject, delay: Duration) -> Self {
        Self { duty: Duty::Check(subject), due: now_ms() + delay.as_millis() as u64 }
    }

    /// Returns the index of the backend.
    fn backend(&self) -> usize {
        match &self.duty {
            Duty::Check(subject) => subject.backend().index,
            Duty::Agent(peer, _) => peer.backend.index,
        }
    }

    /// Creates the task for the agent of `peer`, first after `delay`.
    pub(crate) fn agent(peer: CheckedServer, settings: AgentSettings, delay: Duration) -> Self {
        Self { duty: Duty::Agent(peer, settings), due: now_ms() + delay.as_millis() as u64 }
    }

    fn server(&self) -> &Arc<state::Server> {
        match &self.duty {
            Duty::Check(subject) => subject.server(),
            Duty::Agent(peer, _) => peer.server(),
        }
    }

    /// Ready once the server is removed.
    fn poll_end(&self, context: &mut std::task::Context<'_>) -> Poll<()> {
        match &self.duty {
            Duty::Check(subject) => subject.server().health.poll_end(context),
            Duty::Agent(peer, _) => peer.server().agent.poll_end(context),
        }
    }

    fn is_due(&self) -> bool {
        match &self.duty {
            Duty::Check(subject) => watch::is_due(subject.server()),
            Duty::Agent(peer, _) => peer.server().agent_checked.load(Relaxed),
        }
    }
}

/// The tasks of one plan on one worker.
struct WorkerTasks {
    context: Arc<CheckContext>,
    tasks: RefCell<Slab<AbortHandle>>,
    ended: AtomicBool,
    /// `tune.max-checks-per-thread`.
    places: Option<Semaphore>,
}

thread_local! {
    /// The tasks on this worker, one entry for each plan that has checks here.
    static HOMES: RefCell<Vec<Rc<WorkerTasks>>> = const { RefCell::new(Vec::new()) };

    /// Tasks that reached this worker before it started the checks of their plan.
    static EARLY: RefCell<Vec<EarlyTask>> = const { RefCell::new(Vec::new()) };
}

/// A task that waits for its plan to start on this worker. The plan may never start here if the process ends first, so the
/// reference does not keep it.
struct EarlyTask {
    context: Weak<CheckContext>,
    task: CheckTask,
    hopped: bool,
}

/// The checks of a plan on one worker. Dropping it ends them.
pub struct RunningChecks(Rc<WorkerTasks>);

impl RunningChecks {
    /// Prepares the calling worker to run checks of a plan, and starts those that arrived early.
    pub(crate) fn enter(context: &Arc<CheckContext>) -> Self {
        let home = Rc::new(WorkerTasks {
            context: context.clone(),
            tasks: RefCell::default(),
            ended: AtomicBool::new(false),
            places: (context.at_once > 0).then(|| Semaphore::new(context.at_once)),
        });
        HOMES.with_borrow_mut(|homes| homes.push(home.clone()));
        context.started.mine().store(true, Relaxed);
        let is_own = |early: &mut EarlyTask| std::ptr::eq(early.context.as_ptr(), Arc::as_ptr(context));
        let early: Vec<EarlyTask> = EARLY.with_borrow_mut(|early| early.extract_if(.., is_own).collect());
        early.into_iter().for_each(|early| spawn(&home, early.task, early.hopped));
        Self(home)
    }

    pub(crate) fn spawn(&self, task: CheckTask) {
        self.0.context.process.checks.mine().enter();
        spawn(&self.0, task, false);
    }
}

impl Drop for RunningChecks {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        tasks.iter().for_each(|(_, task)| {
            task.abort();
            self.0.context.process.checks.mine().leave();
        });
        // `try_with` because the worker's thread may be ending.
        let _ = HOMES.try_with(|homes| homes.borrow_mut().retain(|home| !Rc::ptr_eq(home, &self.0)));
    }
}

/// Runs `task` on the calling worker. A task that has just moved here is due, and runs without checking the balance again.
fn spawn(home: &Rc<WorkerTasks>, task: CheckTask, hopped: bool) {
    let mut tasks = home.tasks.borrow_mut();
    let entry = tasks.vacant_entry();
    let (key, home) = (entry.key(), home.clone());
    let handle = tokio::task::spawn_local(async move {
        let name = watchdog::TaskName::Check { proxy: task.backend() as u32 };
        let mut life = pin!(live(&home, task, hopped));
        let hop = poll_fn(|context| watchdog::during(name, || life.as_mut().poll(context))).await;
        if !home.ended.load(Relaxed) {
            home.tasks.borrow_mut().try_remove(key);
        }
        match hop {
            Some(hop) => send(&home.context, hop),
            None => home.context.process.checks.mine().leave(),
        }
    });
    entry.insert(handle.abort_handle());
}

/// A task that moves to another worker.
struct Hop {
    task: CheckTask,
    worker: usize,
}

/// Passes a task to another worker. That worker's count already includes it.
fn send(context: &Arc<CheckContext>, Hop { task, worker }: Hop) {
    let there = context.clone();
    if !worker::post(worker, move || adopt(&there, task)) {
        // The other worker has ended, and this one is about to end.
        context.process.checks.all().nth(worker).into_iter().for_each(|counters| counters.leave());
    }
}

/// Starts a task for a server that was added at run time, on the worker determined by `index`.
pub(crate) fn begin(context: &Arc<CheckContext>, index: usize, task: CheckTask) {
    let context = context.clone();
    worker::post(index % runtime::shard::workers(), move || {
        context.process.checks.mine().enter();
        accept(&context, task, false);
    });
}

/// Runs a task that has been counted for the calling worker. A task that arrives before its plan has started here waits; if the
/// plan has ended, the task ends.
pub(crate) fn accept(context: &Arc<CheckContext>, task: CheckTask, hopped: bool) {
    let home =
        HOMES.with_borrow(|homes| homes.iter().find(|home| Arc::ptr_eq(&home.context, context)).cloned());
    match home {
        Some(home) => spawn(&home, task, hopped),
        None if context.started.mine().load(Relaxed) => context.process.checks.mine().leave(),
        None => EARLY.with_borrow_mut(|early| {
            let context = Arc::downgrade(context);
            early.push(EarlyTask { context, task, hopped });
        }),
    }
}

/// Accepts a task from another worker.
fn adopt(context: &Arc<CheckContext>, task: CheckTask) {
    context.process.checks.mine().adopted.add(1);
    accept(context, task, true);
}

/// Runs a task until it moves to another worker, or its server is removed.
async fn live(home: &WorkerTasks, mut task: CheckTask, mut hopped: bool) -> Option<Hop> {
    let timer = Timer::new();
    loop {
        if !hopped {
            timer.set(task.due);
            match &task.duty {
                Duty::Check(subject) => watch::pause(subject, &home.context, &timer).await,
                Duty::Agent(peer, _) => watch::pause_agent(peer.server(), &timer).await,
            }
            if task.is_due()
                && let Some(worker) = balance::hop(&home.context.process.checks)
            {
                task.due = timer.deadline();
                return Some(Hop { task, worker });
            }
        }
        if task.server().removed.load(Relaxed) {
            return None;
        }
        hopped = false;
        let interval = work_unless_removed(home, &task).await?;
        task.due = now_ms() + interval.as_millis() as u64;
    }
}

/// Performs the work once, or aborts it together with its connection if the server is removed in the meantime.
async fn work_unless_removed(home: &WorkerTasks, task: &CheckTask) -> Option<Duration> {
    let mut working = pin!(work(home, task));
    poll_fn(|context| {
        let working = working.as_mut().poll(context).map(Some);
        if working.is_pending() && task.poll_end(context).is_ready() { Poll::Ready(None) } else { working }
    })
    .await
}

/// Performs the work once. Returns the delay until the next time.
async fn work(home: &WorkerTasks, task: &CheckTask) -> Duration {
    let context = &home.context;
    if task.is_due() {
        // The semaphore is never closed, because it exists as long as the tasks.
        let place = match &home.places {
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        let counters = context.process.checks.mine();
        counters.started.add(1);
        counters.running.up();
        let _counted = CheckGuard(counters);
        // Boxed because a task is idle most of the time, and must be small then.
        match &task.duty {
            Duty::Check(subject) => usage::watched("check", Box::pin(watch::check(subject, context))).await,
            Duty::Agent(peer, settings) => {
                usage::watched("agent", Box::pin(agent::ask(peer, settings, context))).await;
            }
        }
        drop(place);
    }
    let interval = match &task.duty {
        Duty::Check(subject) => watch::interval(subject),
        Duty::Agent(_, settings) => settings.inter,
    };
    spread(interval, context.spread)
}

/// A check in progress. It is counted until it ends or is aborted.
struct CheckGuard<'a>(&'a state::process::CheckCounters);

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.0.running.down();
    }
}

/// Adds or subtracts a random share of up to `percent` (`spread-checks`).
fn spread(interval: Duration, percent: u32) -> Duration {
    if percent == 0 {
        return interval;
    }
    let range = interval.as_millis() as u64 * u64::from(percent.min(50)) / 100;
    let shift = fastrand::u64(0..=range * 2);
    Duration::from_millis((interval.as_millis() as u64 + shift).saturating_sub(range).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_stays_within_its_percentage() {
        let second = Duration::from_secs(1);
        assert_eq!(spread(second, 0), second);
        for _ in 0..1000 {
            let spread = spread(second, 20).as_millis();
            assert!((800..=1200).contains(&spread), "{spread}");
        }
    }
}
