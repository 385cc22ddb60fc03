//! Worker threads and their mailboxes.
//!
//! Work moves between workers only as a message: a closure posted into the mailbox of one worker
//! and run there as a turn of its own.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use base::output::to_standard_error;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime, RuntimeMetrics};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::shard::{self, Padded};
use crate::shared::{Shared as _, note_write};
use crate::timer;
use crate::topology::{self, Cpus};
use crate::watchdog;

/// What a mailbox takes: run once, on the worker's thread.
pub type WorkerMessage = Box<dyn FnOnce() + Send>;

struct Mailboxes {
    senders: Vec<UnboundedSender<WorkerMessage>>,
    /// Connections each worker serves. Written by the worker itself and by those who hand it a
    /// connection.
    connections: Vec<Padded<AtomicUsize>>,
    /// What each runtime says of itself, once it runs.
    metrics: Vec<OnceLock<RuntimeMetrics>>,
    groups: Vec<OnceLock<usize>>,
    /// Messages taken. Written by the worker itself.
    messages: Vec<Padded<AtomicU64>>,
    /// Workers that still poll without sleeping. Written once, when the process begins to stop.
    polling: AtomicBool,
}

static MAILBOXES: OnceLock<Mailboxes> = OnceLock::new();

/// Where a worker runs and how it waits.
#[derive(Debug, Clone, Default)]
pub struct WorkerPlacement {
    /// The number of its group.
    pub group: usize,
    /// The CPUs that it is bound to; `None` leaves it to the system.
    pub cpus: Option<Cpus>,
    /// Whether it polls without sleeping.
    pub busy_polling: bool,
}

/// What a worker did so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Activity {
    /// Tasks that live on it: connections, listeners, checks.
    pub tasks: usize,
    /// Tasks and wake-ups that other threads sent and it has not taken yet.
    pub queued: usize,
    /// Time it was busy since it started, while it is not polling without sleeping.
    pub busy: Duration,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// Messages it took from its mailbox.
    pub messages: u64,
}

/// The receiving ends of all mailboxes, to be handed to [`spawn`] in order.
pub struct Inboxes(std::vec::IntoIter<UnboundedReceiver<WorkerMessage>>);

/// Makes `count` mailboxes. Called once at boot; a second call fails.
pub fn prepare(count: usize) -> io::Result<Inboxes> {
    shard::set_workers(count);
    timer::epoch();
    watchdog::prepare(count);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded_channel()).unzip();
    let connections = (0..count).map(|_| Padded(AtomicUsize::new(0))).collect();
    MAILBOXES
        .set(Mailboxes {
            senders,
            connections,
            metrics: (0..count).map(|_| OnceLock::new()).collect(),
            groups: (0..count).map(|_| OnceLock::new()).collect(),
            messages: (0..count).map(|_| Padded(AtomicU64::new(0))).collect(),
            polling: AtomicBool::new(true),
        })
        .map_err(|_| io::Error::other("the workers were already prepared"))?;
    Ok(Inboxes(receivers.into_iter()))
}

/// Posts `message` to worker `index`; says whether that worker still listens. It counts as one
/// write to something shared, whatever the channel and the allocator make of it.
pub fn post(index: usize, message: impl FnOnce() + Send + 'static) -> bool {
    note_write();
    MAILBOXES
        .get()
        .and_then(|boxes| boxes.senders.get(index))
        .is_some_and(|sender| sender.send(Box::new(message)).is_ok())
}

/// Connections that worker `index` serves.
pub fn connections(index: usize) -> usize {
    MAILBOXES.get().map_or(0, |boxes| boxes.connections[index].0.load(Relaxed))
}

/// The group that worker `index` is in.
pub fn group_of(index: usize) -> usize {
    let groups = MAILBOXES.get().map_or(&[][..], |boxes| &boxes.groups);
    groups.get(index).and_then(OnceLock::get).copied().unwrap_or(0)
}

/// What worker `index` did so far; nothing before it started.
pub fn activity(index: usize) -> Activity {
    let Some(boxes) = MAILBOXES.get() else { return Activity::default() };
    let messages = boxes.messages.get(index).map_or(0, |count| count.0.load(Relaxed));
    let Some(metrics) = boxes.metrics.get(index).and_then(OnceLock::get) else {
        return Activity { messages, ..Activity::default() };
    };
    Activity {
        tasks: metrics.num_alive_tasks(),
        queued: metrics.global_queue_depth(),
        busy: metrics.worker_total_busy_duration(0),
        sleeps: metrics.worker_park_count(0),
        messages,
    }
}

/// Lets workers sleep again that poll without: a process that only waits for its last connections
/// leaves the CPU to its successor.
pub fn end_busy_polling() {
    if let Some(boxes) = MAILBOXES.get() {
        boxes.polling.store(false, Relaxed);
    }
}

/// Counts a connection of worker `index` for as long as it lives.
#[derive(Debug)]
pub struct ConnectionGuard(u32);

/// The worker of what counts for none.
const NOBODY: u32 = u32::MAX;

impl ConnectionGuard {
    /// Counts one more connection for worker `index`, at once, so that the next choice sees it.
    pub fn add(index: usize) -> Self {
        if let Some(boxes) = MAILBOXES.get() {
            boxes.connections[index].add(1);
        }
        Self(index as u32)
    }

    /// Counts for no worker.
    pub fn none() -> Self {
        Self(NOBODY)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if self.0 != NOBODY
            && let Some(boxes) = MAILBOXES.get()
        {
            boxes.connections[self.0 as usize].sub(1);
        }
    }
}

impl Inboxes {
    /// Starts the next worker: a thread named `weir/INDEX`, placed as `place` says, that runs
    /// `main` and its mailbox until `main` ends. Returns when the worker has its reactor; what
    /// keeps it from one is the error.
    pub fn spawn<F, Fut>(
        &mut self,
        index: usize,
        place: WorkerPlacement,
        main: F,
    ) -> io::Result<JoinHandle<()>>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let inbox = self.0.next().ok_or_else(|| io::Error::other("every worker was already started"))?;
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("weir/{index}")).spawn(move || {
            shard::enter_worker(index);
            shard::enter_group(place.group);
            if let Some(group) = MAILBOXES.get().and_then(|boxes| boxes.groups.get(index)) {
                let _ = group.set(place.group);
            }
            if let Some(Err(error)) = place.cpus.as_ref().map(topology::bind) {
                let cpus = topology::show_list(&place.cpus.unwrap_or_default());
                to_standard_error(&format!("worker {index}: cannot be bound to CPUs {cpus}: {error}\n"));
            }
            match runtime().and_then(|runtime| Ok((runtime, timer::Alarm::new()?))) {
                Ok((runtime, alarm)) => {
                    let _ = tell.send(Ok(()));
                    run(&runtime, alarm, index, inbox, place.busy_polling, main);
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        told.recv().map_err(|_| io::Error::other("the thread ended"))??;
        Ok(thread)
    }
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        // Time is kept by `timer`: tokio's own would read the clock in each turn.
        .enable_io()
        .max_blocking_threads(4)
        .event_interval(61)
        .build_local(LocalOptions::default())
}

fn run<F, Fut>(
    runtime: &LocalRuntime,
    alarm: timer::Alarm,
    index: usize,
    mut inbox: UnboundedReceiver<WorkerMessage>,
    busy_polling: bool,
    main: F,
) where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    // Whoever has an inbox prepared the mailboxes.
    let Some(boxes) = MAILBOXES.get() else { return };
    let _ = boxes.metrics[index].set(runtime.handle().metrics());
    let taken = &boxes.messages[index].0;
    runtime.block_on(async move {
        tokio::task::spawn_local(async move {
            if let Err(error) = timer::drive(alarm).await {
                // Without deadlines nothing of a worker can be relied on.
                to_standard_error(&format!("worker {index}: no timer: {error}\n"));
                std::process::abort();
            }
        });
        tokio::task::spawn_local(watchdog::answer(index));
        tokio::task::spawn_local(async move {
            while let Some(message) = inbox.recv().await {
                taken.store(taken.load(Relaxed) + 1, Relaxed);
                message();
            }
        });
        if busy_polling {
            tokio::task::spawn_local(poll_busily(&boxes.polling));
        }
        main().await;
        watchdog::leave(index);
    });
}

/// A task that is always ready: the reactor and the timers are asked after each round of the
/// others, and never slept on.
async fn poll_busily(going: &AtomicBool) {
    while going.load(Relaxed) {
        tokio::task::yield_now().await;
    }
}
