//! The load of the workers, and the cost so far of the current request, for expressions that use them (`cpu_usage_thr`,
//! `cpu_ns_tot` and others). Without such expressions, nothing is measured.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use crate::profile;
use crate::shard;
use crate::timer::now_us;
use crate::worker;

/// The time for which a sample of the workers is valid. It is long enough for the busy share between two samples to be meaningful.
const FRESH: Duration = Duration::from_millis(100);

/// The calling worker's last sample of all workers.
struct Look {
    at: Instant,
    busy: Vec<Duration>,
    /// The busy share of each worker before the sample, in percent.
    percent: Vec<u8>,
}

thread_local! {
    static LOOK: RefCell<Option<Look>> = const { RefCell::new(None) };
    static TURNS: Cell<Turns> = const { Cell::new(Turns::NONE) };
}

/// The scope of a usage query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The calling worker.
    Worker,
    /// The mean of the worker's group.
    Group,
    /// The mean of all workers.
    Process,
}

/// The busy share of workers over the last tenth of a second or slightly more, in percent.
pub fn percent(of: Of) -> u8 {
    LOOK.with_borrow_mut(|look| {
        let now = Instant::now();
        if look.as_ref().is_none_or(|look| now.duration_since(look.at) >= FRESH) {
            *look = Some(take_look(look.take(), now));
        }
        let percent = look.as_ref().map_or(&[][..], |look| &look.percent);
        let mine = |index: usize| match of {
            Of::Worker => index == shard::current_worker(),
            Of::Group => worker::group_of(index) == shard::current_group(),
            Of::Process => true,
        };
        mean(percent.iter().enumerate().filter(|(index, _)| mine(*index)).map(|(_, percent)| *percent))
    })
}

/// The assumed duration of a waiting task's turn, in µs.
const A_TURN: u64 = 20;

/// The number of tasks waiting on the calling worker. It is derived from the time that a task waits for two of its turns, in units
/// of 20 µs, and takes that time.
pub async fn load() -> u32 {
    let begun = now_us();
    // Two turns are needed: tasks that yielded are woken together, the last one first, so the tasks that yielded before this one
    // run between its two turns.
    for _ in 0..2 {
        tokio::task::yield_now().await;
    }
    u32::try_from(now_us().saturating_sub(begun) / A_TURN).unwrap_or(u32::MAX)
}

fn take_look(before: Option<Look>, now: Instant) -> Look {
    let busy: Vec<Duration> = (0..shard::workers()).map(|index| worker::activity(index).busy).collect();
    let Some(before) = before else { return Look { at: now, percent: vec![0; busy.len()], busy } };
    let time = now.duration_since(before.at);
    let share = |(now, then): (&Duration, &Duration)| share(now.saturating_sub(*then), time);
    Look { at: now, percent: busy.iter().zip(&before.busy).map(share).collect(), busy }
}

fn share(busy: Duration, time: Duration) -> u8 {
    (busy.as_nanos() * 100 / time.as_nanos().max(1)).min(100) as u8
}

fn mean(percent: impl Iterator<Item = u8>) -> u8 {
    let (sum, count) = percent.fold((0, 0), |(sum, count), one| (sum + u32::from(one), count + 1));
    (sum / u32::max(count, 1)) as u8
}

/// The turns of a task, and the time spent in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turns {
    /// The number of turns.
    pub count: u64,
    /// Their total duration in ns.
    pub ns: u64,
    /// The total time between wake-ups and turns, in ns.
    pub waited_ns: u64,
    /// The start of the current turn.
    since: Option<Instant>,
}

impl Turns {
    const NONE: Self = Self { count: 0, ns: 0, waited_ns: 0, since: None };

    /// Runs one turn of the task.
    pub fn measure<R>(&mut self, turn: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        self.count += 1;
        TURNS.set(Self { since: Some(start), ..*self });
        let result = turn();
        TURNS.set(Self::NONE);
        self.ns += start.elapsed().as_nanos() as u64;
        result
    }
}

/// A measured task: its turns, and the waiting time before each.
#[derive(Debug, Default)]
pub struct Measured {
    /// The kind of task, for the profile.
    name: &'static str,
    turns: Turns,
    alarm: Option<Arc<Alarm>>,
}

/// Wraps a task's waker, and records when it was first woken since its last turn.
#[derive(Debug)]
struct Alarm(Mutex<(Waker, Option<Instant>)>);

impl Alarm {
    fn lock(&self) -> MutexGuard<'_, (Waker, Option<Instant>)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut alarm = self.lock();
        alarm.1.get_or_insert_with(Instant::now);
        let waker = alarm.0.clone();
        drop(alarm);
        waker.wake();
    }
}

impl Measured {
    /// Creates the measurement of a task of kind `name`.
    pub fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// Runs one turn of the task. To be woken, the task must use the context passed to `turn`.
    pub fn poll<R>(&mut self, context: &Context<'_>, turn: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let new = || Arc::new(Alarm(Mutex::new((context.waker().clone(), None))));
        let alarm = self.alarm.get_or_insert_with(new);
        let waited = {
            let mut alarm = alarm.lock();
            alarm.0.clone_from(context.waker());
            alarm.1.take().map_or(Duration::ZERO, |woken| woken.elapsed()).as_nanos() as u64
        };
        self.turns.waited_ns += waited;
        let waker = Waker::from(alarm.clone());
        let before = self.turns.ns;
        let result = self.turns.measure(|| turn(&mut Context::from_waker(&waker)));
        if profile::is_on() {
            profile::note(self.name, self.turns.ns - before, waited);
        }
        result
    }
}

/// Wraps a future to count its turns under `name`, if profiling is on when it starts.
pub fn watched<F: Future>(name: &'static str, mut future: Pin<Box<F>>) -> impl Future<Output = F::Output> {
    let mut measured = profile::is_on().then(|| Measured::new(name));
    poll_fn(move |context| match &mut measured {
        Some(measured) => measured.poll(context, |context| future.as_mut().poll(context)),
        None => future.as_mut().poll(context),
    })
}

/// The turns of the current task so far, including the current one; `None` outside measured tasks.
pub fn turns() -> Option<Turns> {
    let mut turns = TURNS.get();
    let now = turns.since.take()?.elapsed();
    turns.ns += now.as_nanos() as u64;
    Some(turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_means_stay_between_0_and_100() {
        let ms = Duration::from_millis;
        assert_eq!([share(ms(25), ms(100)), share(ms(200), ms(100)), share(ms(1), ms(0))], [25, 100, 100]);
        assert_eq!([mean([10, 20, 33].into_iter()), mean([].into_iter())], [21, 0]);
    }

    #[test]
    fn the_load_counts_tasks_ahead_in_the_queue() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let busy = |us: u64| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(us) {}
            };
            for _ in 0..50 {
                tokio::task::spawn_local(async move { busy(A_TURN) });
            }
            assert!(load().await >= 50);
        });
    }

    #[test]
    fn yielding_tasks_count_as_load() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(async {
                loop {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(50 * A_TURN) {}
                    tokio::task::yield_now().await;
                }
            });
            for _ in 0..10 {
                assert!(load().await >= 50);
            }
        });
    }

    #[test]
    fn turns_include_the_current_one() {
        assert!(turns().is_none());
        let mut task = Turns::default();
        assert_eq!(task.measure(|| turns().map(|turns| turns.count)), Some(1));
        let (count, ns) = task.measure(|| turns().map_or((0, 0), |turns| (turns.count, turns.ns)));
        assert_eq!(count, 2);
        assert!(task.ns >= ns);
        assert!(turns().is_none());
    }

    #[test]
    fn waiting_starts_at_the_first_wake_up() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let outer = Arc::new(Count(0.into()));
        let waker = Waker::from(outer.clone());
        let context = Context::from_waker(&waker);
        let mut task = Measured::default();
        let waited = || turns().map_or(0, |turns| turns.waited_ns);
        let (first, inner) = task.poll(&context, |context| (waited(), context.waker().clone()));
        assert_eq!((first, task.poll(&context, |_| waited())), (0, 0), "nobody woke it");
        let before = Instant::now();
        inner.wake_by_ref();
        let woken = Instant::now();
        inner.wake_by_ref();
        while woken.elapsed() < Duration::from_micros(50) {}
        let waited = task.poll(&context, |_| waited());
        assert!((50_000..=before.elapsed().as_nanos() as u64).contains(&waited), "{waited}");
        assert_eq!(outer.0.load(std::sync::atomic::Ordering::Relaxed), 2, "the task itself was woken");
    }
}
