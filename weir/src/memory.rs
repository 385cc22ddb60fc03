//! Memory limits: `-m`, or a limit with which the process was started (`ulimit -v`, `ulimit -d`).
//!
//! Without a limit, this module does nothing. With a limit, the process reserves some address space. The first allocation that
//! fails releases it (`process::Allocator`), and load is reduced until the reserve is restored: listeners accept fewer
//! connections, requests get a 503, and connections that need a buffer are closed.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::event_counter::EventCounter;
use base::{event_counter, memory};
use diag::Severity;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use state::{EventTopic, Process, RepeatedEvent};

use crate::messages::MessageFormat;

/// Settings that mimalloc and the C library read on first use. Arenas reserve up to 1 GiB of address space at once, which counts
/// towards the limits.
const ALLOCATORS: [(&str, &str); 2] = [("MIMALLOC_ARENA_RESERVE", "0"), ("MALLOC_ARENA_MAX", "1")];

/// The minimum reserve in bytes, and the addition for each CPU. For the first object of more than 64 KiB in a thread, mimalloc
/// takes 4 MiB, and twice that until they are aligned.
const RESERVE: u64 = 8 << 20;
const RESERVE_BY_CPU: u64 = 2 << 20;
const MOST_RESERVE: u64 = 64 << 20;

/// The time after which free memory is returned.
const SETTLED: Duration = Duration::from_secs(1);

/// The interval of checking whether memory is short, or no longer short.
const LOOK: Duration = Duration::from_millis(20);

/// The number of checks between two steps in which listeners accept more again.
const LOOKS_TO_GROW: u32 = 5;

static SHORTAGE: EventCounter = event_counter!(Count, "watch()", "memory limit reached: load is shed");

/// [`SHORTAGE`] as an event for the journal.
static REACHED: RepeatedEvent = RepeatedEvent::new();

/// Sets the limit of `-m`, in megabytes, and returns it in bytes; 0 for none. Programs started by this one inherit it.
///
/// # Errors
/// A message for the operator: the system refuses the limit.
pub(crate) fn limit(megabytes: Option<u64>) -> Result<u64, String> {
    let Some(bytes) = megabytes.filter(|limit| *limit > 0).map(|limit| limit.saturating_mul(1 << 20)) else {
        return Ok(0);
    };
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Data, limit)
        .map(|()| bytes)
        .map_err(|error| format!("[haproxy.main()] Cannot limit memory to {bytes} bytes: {error}."))
}

/// Returns free memory to the system once the workers have settled: reading a configuration or a long list takes more memory than
/// it leaves.
pub(crate) fn return_soon() {
    let task = || {
        std::thread::sleep(SETTLED);
        process::return_memory();
    };
    // If no thread can be started, later allocations use the memory.
    let _ = std::thread::Builder::new().name("weir/return".to_owned()).spawn(task);
}

/// Returns the lowest limit in force, in bytes.
fn least() -> Option<u64> {
    [Resource::Data, Resource::As].into_iter().filter_map(|resource| getrlimit(resource).current).min()
}

/// If a limit is set, re-executes the program with allocators that reserve no memory in advance, because the allocators are
/// already in use when the limit becomes known. Returns without doing so if no limit is set, in the re-executed process, and if
/// `is_resumed` is set, because a resumed master would lose its descriptors. Must be called while the process has one thread and
/// nothing is open.
///
/// # Errors
/// The errors of [`limit`].
pub(crate) fn execute_again(megabytes: Option<u64>, is_resumed: bool) -> Result<(), String> {
    limit(megabytes)?;
    let Some(limit) = least() else { return Ok(()) };
    if is_resumed || std::env::var_os(ALLOCATORS[0].0).is_some() {
        // `watch` tries again and reports a failure.
        let _ = process::reserve_memory(reserve_of(limit));
        return Ok(());
    }
    if let Ok(program) = std::env::current_exe() {
        let mut words = std::env::args_os();
        let mut command = Command::new(program);
        command.arg0(words.next().unwrap_or_default()).args(words).envs(ALLOCATORS);
        // If exec fails, the limit may still exceed the memory reserved in advance.
        let _ = command.exec();
    }
    Ok(())
}

/// Returns the size of the reserve under a limit, in bytes: a sixth of the limit, up to [`MOST_RESERVE`], or more if the limit is
/// small.
fn reserve_of(limit: u64) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    (limit / 6).min(MOST_RESERVE).max(RESERVE + RESERVE_BY_CPU * cpus) as usize
}

/// Watches for shortages, if there is a limit. Called when the process has all its threads.
///
/// # Errors
/// A message for the operator: the remaining memory is less than twice the reserve.
pub(crate) fn watch(process: &Arc<Process>, messages: MessageFormat) -> Result<(), String> {
    let Some(limit) = least() else { return Ok(()) };
    let reserve = reserve_of(limit);
    let kept = process::reserve_memory(reserve).is_ok();
    let has_room = Vec::<u8>::new().try_reserve_exact(reserve).is_ok() && !memory::is_short();
    let watching = {
        let process = process.clone();
        move || {
            let mut watch = MemoryWatch { process, reserve, looks: 0, was_short: false };
            loop {
                std::thread::sleep(LOOK);
                watch.look(messages);
            }
        }
    };
    let builder = std::thread::Builder::new().name("weir/memory".into());
    if kept && has_room && builder.spawn(watching).is_ok() {
        return Ok(());
    }
    Err(format!(
        "[haproxy.main()] The memory limit of {} MiB is too low: {} MiB must be free after startup. \
         Increase '-m', 'ulimit -v' or 'ulimit -d', or lower 'nbthread'.",
        limit >> 20,
        (2 * reserve) >> 20,
    ))
}

/// The state between two checks.
struct MemoryWatch {
    process: Arc<Process>,
    reserve: usize,
    /// The number of checks since listeners last changed how much they accept.
    looks: u32,
    was_short: bool,
}

impl MemoryWatch {
    fn look(&mut self, messages: MessageFormat) {
        let accepted = &self.process.accepted_in_shortage;
        if memory::is_short() {
            if !std::mem::replace(&mut self.was_short, true) {
                SHORTAGE.note();
                let connections = self.process.connections.load(Relaxed);
                accepted.store((connections - connections / 4).max(1), Relaxed);
                self.looks = 0;
                let text =
                    "Memory limit reached: connections and requests are rejected until memory is freed.";
                REACHED.note(EventTopic::Limits, || ("-".to_owned(), text.to_owned()));
                messages.say(Severity::Warning, text);
            }
            for worker in 0..runtime::shard::workers() {
                runtime::worker::post(worker, runtime::buffer::flush);
            }
            if process::reserve_memory(self.reserve).is_ok() {
                memory::set_short(false);
            }
            return;
        }
        self.was_short = false;
        let now = accepted.load(Relaxed);
        self.looks += 1;
        if now > 0 && self.looks >= LOOKS_TO_GROW {
            self.looks = 0;
            let more = now.saturating_add(now / 32 + 1);
            let limit = self.process.maxconn.load(Relaxed);
            accepted.store(if limit > 0 && more >= limit { 0 } else { more }, Relaxed);
        }
    }
}

/// Returns the event counter for `debug counters`.
pub(crate) fn rare() -> [&'static EventCounter; 1] {
    [&SHORTAGE]
}
