//! Runs the threads and prints the report.

use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use runtime::worker::{self, WorkerPlacement};

use crate::clock::{Nanos, SECOND, nanos, now};
use crate::environment::{Environment, RunState};
use crate::histogram::Latencies;
use crate::options::{Layout, Options};
use crate::pace::RequestPace;
use crate::report::LineReport;
use crate::schedule::Schedule;
use crate::summary::Summary;
use crate::tally::LoadTotals;
use crate::target::Targets;
use crate::user::User;

/// The number of times that the user has interrupted the run. The first interrupt ends it, the second one at once.
pub type Interrupts = AtomicUsize;

/// How often interrupts are looked for.
const TICK: Duration = Duration::from_millis(50);

/// How long requests may take after the end of the run, in addition to the times of `-w` and `--hold`.
const GRACE: Nanos = SECOND;

/// The results of a thread: its latencies, and the requests that were due and not sent.
type ThreadResult = io::Result<(Latencies, u64)>;

/// Generates load, prints a line each second and a report at the end. May be called once in a process.
///
/// # Errors
/// A URL, file or option that cannot be used, or a thread that cannot be started.
pub fn run(options: Options, interrupts: &Interrupts, out: &mut dyn Write) -> Result<(), String> {
    let targets = Targets::prepare(&options)?;
    let threads = options.threads;
    let failed = |error: io::Error| format!("cannot start the threads: {error}");
    let mut inboxes = worker::prepare(threads).map_err(failed)?;
    let shared = RunState::new(options, targets);
    let (sender, results) = channel();
    for index in 0..threads {
        let (shared, sender) = (shared.clone(), sender.clone());
        inboxes
            .spawn(index, WorkerPlacement::default(), move || generate(shared, index, sender))
            .map_err(failed)?;
    }
    observe(&shared, &results, interrupts, out)
}

/// The work of a thread.
async fn generate(shared: Arc<RunState>, index: usize, results: Sender<ThreadResult>) {
    // The receiver waits for all threads.
    let _ = results.send(generate_as(shared, index).await);
}

async fn generate_as(shared: Arc<RunState>, index: usize) -> ThreadResult {
    let options = &shared.options;
    let ramp = nanos(options.soft_start);
    let schedule =
        options.rate.map(|rate| Schedule::new(rate, ramp, index, options.threads, shared.start, shared.end));
    let pace = schedule.map(RequestPace::new).transpose()?.map(Rc::new);
    let env = Rc::new(Environment::new(shared.clone(), index, pace.clone()));
    env.enter();
    if let Some(pace) = &pace {
        tokio::task::spawn_local(pace.clone().drive());
    }
    let numbers = (index..options.users).step_by(options.threads);
    let users: Vec<_> =
        numbers.map(|number| tokio::task::spawn_local(User::new(&env, number).run())).collect();
    for user in users {
        user.await.map_err(io::Error::other)?;
    }
    let ended = now().min(shared.end);
    let unsent = pace.filter(|_| options.requests.is_none()).map_or(0, |pace| pace.overdue(ended));
    Ok((env.latencies.replace(Latencies::new()), unsent))
}

/// Prints lines until all threads have ended, then the report.
fn observe(
    shared: &Arc<RunState>,
    results: &Receiver<ThreadResult>,
    interrupts: &Interrupts,
    out: &mut dyn Write,
) -> Result<(), String> {
    let options = &shared.options;
    let mut report = LineReport::new(options, shared.start);
    let mut next_line = shared.start.saturating_add(SECOND);
    let mut latencies = Latencies::new();
    let (mut unsent, mut running, mut end, mut abort) = (0, options.threads, shared.end, None);
    let mut print = |line: &str| {
        // The run ends if the output is closed.
        if !options.json && writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            shared.stop(true);
            shared.wake_all();
        }
    };
    print(&report.header());
    while running > 0 {
        let wake = next_line.min(abort.unwrap_or(end)).saturating_sub(now());
        match results.recv_timeout(Duration::from_nanos(wake).min(TICK)) {
            Ok(Ok((own, own_unsent))) => {
                latencies.merge(&own);
                (unsent, running) = (unsent + own_unsent, running - 1);
                continue;
            }
            Ok(Err(error)) => return Err(format!("a thread has failed: {error}")),
            Err(RecvTimeoutError::Disconnected) => return Err("a thread has panicked".into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = now();
        let signals = interrupts.load(Relaxed);
        if signals > 0 && !shared.is_released() {
            shared.release();
            shared.wake_all();
        }
        if signals > 0 || shared.is_stopped() {
            end = end.min(now);
        }
        if now >= end && abort.is_none() {
            shared.stop(false);
            shared.wake_all();
            let rest = nanos(options.io_timeout).saturating_add(nanos(options.hold));
            abort = Some(now.saturating_add(rest).saturating_add(GRACE));
        }
        if !shared.is_aborted() && (signals > 1 || abort.is_some_and(|at| now >= at)) {
            shared.stop(true);
            shared.wake_all();
        }
        if now >= next_line {
            let line = report.line(&totals(shared), now, time_shown(options, now - shared.start));
            print(&line);
            next_line = next_line.saturating_add(SECOND);
        }
    }
    let elapsed = now() - shared.start;
    let totals = totals(shared);
    let line = report.line(&totals, now(), time_shown(options, elapsed + SECOND));
    print(&line);
    let summary = Summary { totals, latencies, elapsed, unsent };
    let text = if options.json { summary.json() } else { summary.text() };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // As after `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(|error| format!("cannot print: {error}")),
    }
}

fn totals(shared: &RunState) -> LoadTotals {
    LoadTotals::of(shared.tallies.iter())
}

/// The first column: whole seconds since the start, or in the long formats since 1970.
fn time_shown(options: &Options, elapsed: Nanos) -> u64 {
    match options.layout {
        Layout::Short => elapsed / SECOND,
        Layout::Long | Layout::Raw => SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
    }
}
