//! Worker threads and their mailboxes.
//!
//! Work moves between workers only as messages: a closure is posted to a worker's mailbox, and the worker runs it in a separate
//! turn.

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

/// A mailbox message, which runs once, on the worker's thread.
pub type WorkerMessage = Box<dyn FnOnce() + Send>;

struct Mailboxes {
    senders: Vec<UnboundedSender<WorkerMessage>>,
    /// The number of connections per worker. Written by the worker itself and by threads that pass it a connection.
    connections: Vec<Padded<AtomicUsize>>,
    /// The metrics of each runtime, once it is running.
    metrics: Vec<OnceLock<RuntimeMetrics>>,
    groups: Vec<OnceLock<usize>>,
    /// The number of messages processed. Written by the worker itself.
    messages: Vec<Padded<AtomicU64>>,
    /// Whether busy-polling workers continue to poll. Written once, when the process begins to stop.
    polling: AtomicBool,
}

static MAILBOXES: OnceLock<Mailboxes> = OnceLock::new();

/// The placement of a worker, and how it waits.
#[derive(Debug, Clone, Default)]
pub struct WorkerPlacement {
    /// The index of its group.
    pub group: usize,
    /// The CPUs to which the worker is bound; `None` leaves the choice to the system.
    pub cpus: Option<Cpus>,
    /// Whether it polls without sleeping.
    pub busy_polling: bool,
}

/// The activity of a worker so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Activity {
    /// The number of its tasks: connections, listeners, checks.
    pub tasks: usize,
    /// Tasks and wake-ups that other threads have sent and the worker has not taken yet.
    pub queued: usize,
    /// The time it was busy since its start, excluding busy polling.
    pub busy: Duration,
    /// The number of times it went to sleep.
    pub sleeps: u64,
    /// The number of messages taken from its mailbox.
    pub messages: u64,
}

/// The receiving ends of all mailboxes. [`spawn`] takes them in order.
pub struct Inboxes(std::vec::IntoIter<UnboundedReceiver<WorkerMessage>>);

/// Creates `count` mailboxes. Called once at startup; a second call fails.
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

/// Posts `message` to worker `index`. Returns whether that worker is still running. Counted as one write to shared memory, whatever
/// the channel and the allocator do.
pub fn post(index: usize, message: impl FnOnce() + Send + 'static) -> bool {
    note_write();
    MAILBOXES
        .get()
        .and_then(|boxes| boxes.senders.get(index))
        .is_some_and(|sender| sender.send(Box::new(message)).is_ok())
}

/// The number of connections of worker `index`.
pub fn connections(index: usize) -> usize {
    MAILBOXES.get().map_or(0, |boxes| boxes.connections[index].0.load(Relaxed))
}

/// The group of worker `index`.
pub fn group_of(index: usize) -> usize {
    let groups = MAILBOXES.get().map_or(&[][..], |boxes| &boxes.groups);
    groups.get(index).and_then(OnceLock::get).copied().unwrap_or(0)
}

/// The activity of worker `index`; zeros before it starts.
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

/// Lets busy-polling workers sleep again. A process that only waits for its last connections leaves the CPU to its successor.
pub fn end_busy_polling() {
    if let Some(boxes) = MAILBOXES.get() {
        boxes.polling.store(false, Relaxed);
    }
}

/// Counts a connection for worker `index` as long as the guard exists.
#[derive(Debug)]
pub struct ConnectionGuard(u32);

/// The index for connections that are not counted.
const NOBODY: u32 = u32::MAX;

impl ConnectionGuard {
    /// Counts a connection for worker `index` immediately, so that the next choice sees it.
    pub fn add(index: usize) -> Self {
        if let Some(boxes) = MAILBOXES.get() {
            boxes.connections[index].add(1);
        }
        Self(index as u32)
    }

    /// Creates a guard that counts for no worker.
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
    /// Starts the next worker: a thread named `weir/INDEX`, placed according to `place`, which runs `main` and its mailbox until
    /// `main` ends. Returns when the worker has its reactor, or with the error that prevented it.
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
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("weir/{index}")).spawn(move || {
            shard::enter_worker(index);
            shard::enter_group(place.group);
            if let Some(group) = MAILBOXES.get().and_then(|boxes| boxes.groups.get(index)) {
                let _ = group.set(place.group);
            }
            if let Some(Err(error)) = place.cpus.as_ref().map(topology::bind) {
                let cpus = topology::show_list(&place.cpus.unwrap_or_default());
                to_standard_error(&format!("worker {index}: cannot bind to CPUs {cpus}: {error}\n"));
            }
            match runtime().and_then(|runtime| Ok((runtime, timer::Alarm::new()?))) {
                Ok((runtime, alarm)) => {
                    let _ = ready.send(Ok(()));
                    run(&runtime, alarm, index, inbox, place.busy_polling, main);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        })?;
        started.recv().map_err(|_| io::Error::other("the thread terminated"))??;
        Ok(thread)
    }
}

/// Starts a thread with a reactor and timers that is not a worker: it has no mailbox, serves no connections, and must not write
/// per-worker counters. The thread runs `main` and ends with it. Returns when the reactor exists, or with the error that prevented
/// it.
pub fn spawn_aside<F, Fut>(name: &str, main: F) -> io::Result<JoinHandle<()>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        match runtime().and_then(|runtime| Ok((runtime, timer::Alarm::new()?))) {
            Ok((runtime, alarm)) => {
                let _ = ready.send(Ok(()));
                runtime.block_on(async move {
                    let clock = tokio::task::spawn_local(timer::drive(alarm));
                    main().await;
                    clock.abort();
                });
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    })?;
    started.recv().map_err(|_| io::Error::other("the thread terminated"))??;
    Ok(thread)
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        // `timer` keeps the time: tokio's timer would read the clock in each turn.
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
    // An inbox only exists after the mailboxes were prepared.
    let Some(boxes) = MAILBOXES.get() else { return };
    let _ = boxes.metrics[index].set(runtime.handle().metrics());
    let taken = &boxes.messages[index].0;
    runtime.block_on(async move {
        tokio::task::spawn_local(async move {
            if let Err(error) = timer::drive(alarm).await {
                // Without deadlines, a worker cannot work reliably.
                to_standard_error(&format!("worker {index}: cannot create a timer: {error}\n"));
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

/// A task that is always ready, so that the worker polls the reactor and the timers after each round of the other tasks without
/// sleeping.
async fn poll_busily(going: &AtomicBool) {
    while going.load(Relaxed) {
        tokio::task::yield_now().await;
    }
}
