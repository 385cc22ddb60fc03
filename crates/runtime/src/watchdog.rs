//! Watches the workers from a separate thread: if a worker is awake but does not respond, a task blocks it and delays everything
//! else on the worker (`warn-blocked-traffic-after`, configuration manual, 3.1).
//!
//! The cost for workers is a store before and after each turn of a named task, and an occasional response while they are awake.
//! Idle workers are not woken.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::Notify;

use crate::shard::{self, Padded};

/// The interval between two looks at an entirely idle process.
const IDLE: Duration = Duration::from_secs(1);
/// A worker that makes no progress for this long is blocked, whether it computes or waits for the system.
const TOO_LONG: Duration = Duration::from_secs(1);
/// The interval at which a blockage that continues is reported again.
const AGAIN: Duration = Duration::from_secs(1);

/// The subject of a named task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskName {
    /// A request or stream of a frontend, with the frontend's index among the proxies and the session number.
    Stream {
        /// The frontend's index.
        proxy: u32,
        /// The last 24 bits of the session number.
        session: u32,
    },
    /// A check of a server, with the backend's index among the proxies.
    Check {
        /// The backend's index.
        proxy: u32,
    },
    /// A runtime socket command.
    Command,
}

/// A blocked worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldWorker {
    /// The worker's index.
    pub worker: usize,
    /// The blocking task, if it is named.
    pub task: Option<TaskName>,
    /// The minimum duration so far.
    pub since: Duration,
    /// Whether the same blockage was reported before.
    pub again: bool,
}

struct Watched {
    /// The current task as a single number. Written by the worker.
    task: Padded<AtomicU64>,
    /// Wakes the worker to respond.
    question: Notify,
    /// The number of responses. Written by the worker.
    answers: Padded<AtomicU64>,
    /// The thread ID; 0 while the worker is not running. Written by the worker.
    thread: AtomicI32,
    /// The runtime's metrics, once it is running.
    metrics: OnceLock<RuntimeMetrics>,
}

static WATCHED: OnceLock<Vec<Watched>> = OnceLock::new();

impl Watched {
    /// The number of times the worker went to sleep plus the number of wake-ups. It is odd while the worker sleeps, and before it
    /// starts.
    fn rounds(&self) -> u64 {
        self.metrics.get().map_or(1, |metrics| metrics.worker_park_unpark_count(0))
    }
}

impl TaskName {
    const SESSION_BITS: u32 = 24;

    fn packed(self) -> u64 {
        match self {
            Self::Stream { proxy, session } => {
                let session = u64::from(session) & ((1 << Self::SESSION_BITS) - 1);
                1 << 60 | u64::from(proxy) << Self::SESSION_BITS | session
            }
            Self::Check { proxy } => 2 << 60 | u64::from(proxy),
            Self::Command => 3 << 60,
        }
    }

    fn unpacked(number: u64) -> Option<Self> {
        let session = (number & ((1 << Self::SESSION_BITS) - 1)) as u32;
        match number >> 60 {
            1 => Some(Self::Stream { proxy: (number >> Self::SESSION_BITS) as u32, session }),
            2 => Some(Self::Check { proxy: number as u32 }),
            3 => Some(Self::Command),
            _ => None,
        }
    }
}

/// Runs a turn of a task, and makes the task's name visible to the watchdog.
#[inline]
pub fn during<R>(task: TaskName, turn: impl FnOnce() -> R) -> R {
    let Some(watched) = WATCHED.get().and_then(|all| all.get(shard::current_worker())) else { return turn() };
    watched.task.0.store(task.packed(), Relaxed);
    let result = turn();
    watched.task.0.store(0, Relaxed);
    result
}

/// Allocates the state for `workers`. Called once, before they start.
pub(crate) fn prepare(workers: usize) {
    let one = || Watched {
        task: Padded(AtomicU64::new(0)),
        question: Notify::new(),
        answers: Padded(AtomicU64::new(0)),
        thread: AtomicI32::new(0),
        metrics: OnceLock::new(),
    };
    let _ = WATCHED.set((0..workers).map(|_| one()).collect());
}

/// Responds to probes on worker `index`, as long as the worker runs.
pub(crate) async fn answer(index: usize) {
    let Some(watched) = WATCHED.get().and_then(|all| all.get(index)) else { return };
    let _ = watched.metrics.set(Handle::current().metrics());
    watched.thread.store(rustix::thread::gettid().as_raw_pid(), Relaxed);
    loop {
        watched.question.notified().await;
        watched.answers.0.store(watched.answers.0.load(Relaxed) + 1, Relaxed);
    }
}

/// Marks worker `index` as ended, so that it is not probed any more.
pub(crate) fn leave(index: usize) {
    if let Some(watched) = WATCHED.get().and_then(|all| all.get(index)) {
        watched.thread.store(0, Relaxed);
    }
}

/// The CPU time used by a thread of this process, by thread ID.
pub type CpuTime = fn(i32) -> Option<Duration>;

/// Starts the watchdog. A separate thread calls `tell` for each worker that one task has kept computing for longer than `limit`, or
/// that has otherwise been blocked for a second, and again every second as long as the blockage lasts. A worker that the system did
/// not schedule is not considered blocked.
///
/// # Errors
/// No thread could be created.
pub fn start(
    limit: Duration,
    cpu_time: CpuTime,
    report: impl Fn(HeldWorker) + Send + 'static,
) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("weir/watchdog".to_owned());
    thread.spawn(move || watch(limit, cpu_time, &report)).map(drop)
}

/// A probe that a worker has not answered yet.
#[derive(Debug, Clone, Copy)]
struct PendingProbe {
    at: Instant,
    cpu: Duration,
    answers: u64,
    reported_at: Option<Instant>,
}

fn watch(limit: Duration, cpu_time: CpuTime, report: &dyn Fn(HeldWorker)) {
    let Some(all) = WATCHED.get() else { return };
    let mut asked: Vec<Option<PendingProbe>> = vec![None; all.len()];
    let mut rounds = vec![0; all.len()];
    let mut is_idle = false;
    loop {
        std::thread::sleep(if is_idle { IDLE } else { limit / 2 });
        is_idle = true;
        for (index, watched) in all.iter().enumerate() {
            let (round, thread) = (watched.rounds(), watched.thread.load(Relaxed));
            let sleeps = round % 2 == 1 || thread == 0;
            is_idle &= sleeps && std::mem::replace(&mut rounds[index], round) == round;
            if sleeps {
                asked[index] = None;
                continue;
            }
            let cpu = || cpu_time(thread).unwrap_or_default();
            let answers = watched.answers.0.load(Relaxed);
            if let Some(question) = asked[index].as_mut().filter(|question| question.answers == answers) {
                if let Some(since) = question.is_worth_a_word(limit, cpu()) {
                    let task = TaskName::unpacked(watched.task.0.load(Relaxed));
                    let again = question.reported_at.replace(Instant::now()).is_some();
                    report(HeldWorker { worker: index, task, since, again });
                }
                continue;
            }
            asked[index] = Some(PendingProbe { at: Instant::now(), cpu: cpu(), answers, reported_at: None });
            watched.question.notify_one();
        }
    }
}

impl PendingProbe {
    /// How long the worker has been blocked, if that should be reported. `cpu` is the CPU time that the worker has used so far.
    fn is_worth_a_word(&self, limit: Duration, cpu: Duration) -> Option<Duration> {
        if self.reported_at.is_some_and(|reported_at| reported_at.elapsed() < AGAIN) {
            return None;
        }
        let (computed, passed) = (cpu.saturating_sub(self.cpu), self.at.elapsed());
        match computed >= limit {
            true => Some(computed.max(passed)),
            false => (passed >= TOO_LONG).then_some(passed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_names_round_trip_through_a_number() {
        let tasks = [
            TaskName::Stream { proxy: 0, session: 0 },
            TaskName::Stream { proxy: 70_000, session: 0xff_ffff },
            TaskName::Check { proxy: 33_000 },
            TaskName::Command,
        ];
        for task in tasks {
            assert_eq!(TaskName::unpacked(task.packed()), Some(task));
        }
        assert_eq!(TaskName::unpacked(0), None);
    }
}
