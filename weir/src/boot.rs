//! From a plan to running workers: sockets, privileges, threads, and the wait for signals.

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::event_counter;
use base::event_counter::EventCounter;
use control::Runtime;
use diag::Severity;
use plan::Plan;
use proxy::{Life, Worker};
use runtime::watchdog::{self, TaskName};
use state::{EventTopic, Process, journal};
use statistics::Statistics;
use statistics::sharing::SharedCounters;
use tokio::sync::Barrier;

use crate::args::CommandLineArgs;
use crate::checks::Notifier;
use crate::discovered::{self, Discovery};
use crate::generation::{Generation, InUse};
use crate::hand_over::{self, Exposed};
use crate::listeners;
use crate::listening;
use crate::messages::MessageFormat;
use crate::peers::PeersSections;
use crate::process_context::Common;
use crate::reload::Reloader;
use crate::signals::{self, Ending};
use crate::sockets::{Inherited, ListeningSocket};
use crate::{
    caches, master, memory, predecessors, privileges, sharing, states, system, traces, udp_sessions, version,
    view,
};

/// Runs the plan and returns when the process is about to end.
pub(crate) fn run(plan: Plan, args: CommandLineArgs, resumed: Option<master::MasterState>) -> ExitCode {
    let messages = MessageFormat::new(args.quiet || plan.global.quiet);
    end(start(Arc::new(plan), &args, resumed, messages), messages)
}

/// Returns the exit code of the program.
pub(crate) fn end(ending: Result<Ending, String>, messages: MessageFormat) -> ExitCode {
    match ending {
        Ok(Ending::Clean) => ExitCode::SUCCESS,
        // As in HAProxy, the parent process sees that the signal ended the process.
        Ok(Ending::Signal(number)) => {
            let _ = signal_hook::low_level::emulate_default_handler(number);
            ExitCode::from(128u8.wrapping_add(number as u8))
        }
        Ok(Ending::Code(code)) => ExitCode::from(code),
        Err(message) => {
            if !message.is_empty() {
                messages.say(Severity::Alert, &message);
            }
            ExitCode::FAILURE
        }
    }
}

fn start(
    plan: Arc<Plan>,
    args: &CommandLineArgs,
    resumed: Option<master::MasterState>,
    messages: MessageFormat,
) -> Result<Ending, String> {
    let global = &plan.global;
    let first = resumed.is_none();
    let (limits, mut bound) = match prepare(&plan, args, resumed.as_ref(), messages) {
        Ok(prepared) => prepared,
        Err(error) => {
            // A resumed master has workers, which keep running.
            let Some(state) = resumed else { return Err(error) };
            messages.say(Severity::Alert, &error);
            return Ok(master::go_on(state, args, messages));
        }
    };
    // The master stays single-threaded and forks before any other thread exists.
    let (mut link, mut launch) = (None, None);
    if global.master_worker {
        match master::split(global, args, resumed, &mut bound, messages)? {
            master::Role::Master(ending) => return Ok(ending),
            master::Role::Worker(theirs) => link = Some(theirs),
        }
        if global.daemon {
            launch = Some(system::Launch::of_worker()?);
        }
    } else {
        if global.daemon {
            launch = Some(system::Launch::begin()?);
        }
        system::write_pidfile(global)?;
    }
    // These files belong to the user who starts the program, so they are opened before the program changes its root.
    proxy::log::open_mirrors(&plan)?;
    proxy::log::open_inherited(&plan);
    if !global.daemon {
        // The master stays single-threaded, and forks before any other thread exists.
        let _ = base::output::Standard::Error.open();
    }
    caches::prepare(&plan, messages);
    traces::begin(&plan, args)?;
    if global.debug {
        runtime::trace::show_messages();
    }
    for notice in acme::keep_account_keys(&plan)?.into_iter().chain(acme::complete_pairs(&plan)?) {
        messages.say(Severity::Notice, &notice);
    }
    if global.preallocates_descriptors {
        system::preallocate_descriptors(limits.open_files);
    }
    system::renice(global, messages);
    let counters = sharing::open(&plan)?;
    privileges::confine(&plan, messages)?;
    acme::try_files(&plan)?;
    if first && !global.daemon && messages.is_for_people() {
        listening::list(&plan).iter().for_each(|text| messages.say(Severity::Notice, text));
    }
    let exposed = Exposed::of(&plan, &bound);
    let exposed =
        Arc::new(exposed.map_err(|error| format!("cannot keep sockets for a new process: {error}"))?);
    let old = if first { args.clone() } else { CommandLineArgs::default() };
    let successor = !first || !old.finish.is_empty() || !old.terminate.is_empty();
    let args = args.clone();
    let start =
        Start { plan, bound, limits, link, launch, exposed, old, args, successor, messages, counters };
    run_workers(start)
}

/// Acquires the resources that the system may refuse: limits and all sockets.
fn prepare(
    plan: &Plan,
    args: &CommandLineArgs,
    resumed: Option<&master::MasterState>,
    messages: MessageFormat,
) -> Result<(system::ProcessLimits, Vec<ListeningSocket>), String> {
    let memory = memory::limit(args.memory_limit)?;
    system::try_tables(plan, memory, messages)?;
    let limits = system::ProcessLimits { memory, ..system::limits(plan, messages)? };
    let inherited = match resumed {
        // `-x` with a path applies only to the first start of a master. An exception is `/dev/null`, which forbids that sockets are
        // taken over; it always applies.
        Some(state) if args.take_over.as_deref() != Some(Path::new("/dev/null")) => {
            master::sockets(state, messages)
        }
        _ => system::take_over(args.take_over.as_deref(), plan.global.master_worker, messages)?,
    };
    if !plan.discovery.is_empty() {
        // Until the sources answer, the servers of the process in service are used.
        let lists = match (resumed, args.take_over.as_deref()) {
            (Some(state), _) => master::lists(state),
            (None, Some(path)) => hand_over::lists(path).unwrap_or_default(),
            (None, None) if args.finish.is_empty() && args.terminate.is_empty() => Vec::new(),
            (None, None) => hand_over::lists_at(&plan.global.stats_sockets),
        };
        discovered::restore(plan, &lists);
    }
    // Once this process listens, it may be asked to finish or to pause. Such signals wait until they can be handled.
    process::hold_signals(true);
    let bound = bind(plan, inherited, &limits, args).map_err(|failures| {
        failures.lines().for_each(|failure| messages.say(Severity::Alert, failure));
        listening::advice(plan, &failures).iter().for_each(|text| messages.say(Severity::Notice, text));
        "[haproxy.main()] Some protocols failed to start their listeners! Exiting.".to_owned()
    })?;
    Ok((limits, bound))
}

/// Binds all sockets. Processes that this one replaces are asked to release addresses that cannot be shared.
fn bind(
    plan: &Plan,
    mut inherited: Inherited,
    limits: &system::ProcessLimits,
    args: &CommandLineArgs,
) -> Result<Vec<ListeningSocket>, String> {
    let mut bound = listeners::bind(plan, &mut inherited, limits.max_connections);
    let old = || args.finish.iter().chain(&args.terminate).copied();
    if bound.is_ok() || old().next().is_none() {
        return bound;
    }
    system::signal(old(), rustix::process::Signal::TTOU);
    for _ in 0..RETRIES {
        std::thread::sleep(RETRY);
        bound = listeners::bind(plan, &mut Vec::new(), limits.max_connections);
        if bound.is_ok() {
            return bound;
        }
    }
    // This process has failed, so the other processes resume.
    system::signal(old(), rustix::process::Signal::TTIN);
    bound
}

/// How often binding to an address in use is retried, and the pause between the attempts.
const RETRIES: u32 = 100;
const RETRY: Duration = Duration::from_millis(10);

static PANICKED: EventCounter = event_counter!(Bug, "count_panics()", "task ended by a panic");
static HELD_UP: EventCounter = event_counter!(Check, "watch()", "task that blocked its thread for too long");

/// Everything needed to start the workers.
struct Start {
    plan: Arc<Plan>,
    bound: Vec<ListeningSocket>,
    limits: system::ProcessLimits,
    /// The connection to the master, if there is one.
    link: Option<UnixStream>,
    /// The foreground process that waits for this one, if there is one.
    launch: Option<system::Launch>,
    exposed: Arc<Exposed>,
    /// The arguments that specify the processes to replace.
    old: CommandLineArgs,
    /// The complete arguments, for reading the configuration again.
    args: CommandLineArgs,
    /// Whether this process replaces an earlier one.
    successor: bool,
    messages: MessageFormat,
    /// The counters shared with other processes.
    counters: Option<Arc<SharedCounters>>,
}

fn run_workers(start: Start) -> Result<Ending, String> {
    let Start { plan, bound, limits, mut link, launch, exposed, old, args, successor, messages, counters } =
        start;
    let has_master = link.is_some();
    let to_master = link.as_ref().map(UnixStream::try_clone).transpose();
    let to_master = to_master.map_err(|error| format!("cannot receive messages from the master: {error}"))?;
    let threads = plan.global.workers();
    runtime::profile::switch(plan.global.profile_tasks);
    proxy::trace_process(&plan, Life::Begins);
    let mut inboxes = runtime::worker::prepare(threads).map_err(|error| error.to_string())?;
    let process = begin_process(&plan, &limits);
    let notifier = Notifier::default();
    let runtime = offer_commands(&plan, &process, &limits, &notifier, messages);
    let peers = Arc::new(PeersSections::new(&plan, process.clone(), successor));
    let showing = peers.clone();
    let show =
        Box::new(move |name: Option<&str>, with_names: bool| crate::peers::show(&showing, name, with_names));
    // The cell is new, so setting it cannot fail.
    let _ = runtime.peers.set(show);
    let runtime = Arc::new(runtime);
    let exporter = telemetry::Exporter::default();
    let common = Common {
        process: process.clone(),
        runtime,
        notifier,
        exposed,
        limits,
        messages,
        exporter,
        discovery: Discovery::default(),
    };
    let common = Arc::new(common);
    sharing::begin(counters, &common.runtime, messages)?;
    let placement = plan.global.placement.clone();
    let limit = plan.global.blocked_traffic;
    let desk = Arc::new(Generation::new(&common, plan, None)?);
    let process_in_use = Arc::new(InUse::new(desk.clone()));
    let reloader = Arc::new(Reloader::new(common.clone(), process_in_use.clone(), args));
    common.runtime.reload_by(reloader.clone());
    crate::messages::serve();
    // Signal handlers are set up before connections can use up the descriptors.
    let signals = signals::watch()?;
    let ready = Arc::new(Barrier::new(threads));
    for (index, share) in listeners::share(bound, threads).into_iter().enumerate() {
        let place = runtime::worker::WorkerPlacement {
            group: placement.group_index(index),
            cpus: placement.cpus[index].clone(),
            busy_polling: placement.busy_polling[index],
        };
        let group = placement.group_of(index);
        let start = StartOfWorker {
            desk: desk.clone(),
            common: common.clone(),
            peers: peers.clone(),
            ready: ready.clone(),
        };
        let link = link.take();
        let main = move || work(start, group, share, link);
        inboxes.spawn(index, place, main).map_err(|error| format!("cannot start thread {index}: {error}"))?;
    }
    drop(desk);
    watch(limit, &process_in_use, &process, messages);
    memory::watch(&process, messages)?;
    let pid = std::process::id();
    journal::record(EventTopic::Reloads, "-", &format!("Process {pid} serves requests."));
    if !has_master {
        system::announce(messages);
    }
    let replaced: Vec<i32> = old.finish.iter().chain(&old.terminate).copied().collect();
    if let Err(error) = predecessors::watch(&common.exposed, &replaced) {
        let text = format!("QUIC sockets of old processes are never closed: {error}");
        messages.say(Severity::Warning, &text);
    }
    system::finish_old(&old);
    if let Some(launch) = launch {
        launch.succeed();
    }
    // This thread has read the configuration and allocates little from now on.
    ::process::return_memory();
    memory::return_soon();
    let ending =
        signals::wait(signals, &process_in_use, &common.exposed, &reloader, &peers, to_master, messages);
    udp_sessions::finish();
    let shared = process_in_use.shared();
    let within = shared.plan.global.hard_stop_after.map_or(LAST_EXPORT, |limit| limit.min(LAST_EXPORT));
    common.exporter.stop(within);
    (0..threads).rev().for_each(|index| proxy::trace_process(&shared.plan, Life::WorkerEnds(index)));
    proxy::trace_process(&shared.plan, Life::Ends);
    sharing::leave(&common.runtime);
    Ok(ending)
}

/// How long the end of the process waits for the last export of telemetry.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// Creates the state of the process, with the limits of the plan and the system.
fn begin_process(plan: &Plan, limits: &system::ProcessLimits) -> Arc<Process> {
    let process = Arc::new(Process { counted: plan.global.counted, ..Process::default() });
    process.maxconn.store(limits.max_connections, Relaxed);
    process.hard_maxconn.store(limits.max_connections, Relaxed);
    process.quic.store(plan.global.tune.quic.listen, Relaxed);
    plan.global.set_limits(&process);
    plan.global.limit_tls();
    limit_descriptors(plan, &process, limits);
    plan.settle_full_loads(limits.max_connections, None);
    count_panics(&process);
    process
}

/// Creates the runtime socket's view of the process, and restores what an earlier process saved to files.
fn offer_commands(
    plan: &Plan,
    process: &Arc<Process>,
    limits: &system::ProcessLimits,
    notifier: &Notifier,
    messages: MessageFormat,
) -> Runtime {
    let view = view::of(plan, limits);
    states::restore(plan, &view, messages);
    states::preload_counters(plan, &view, messages);
    let mut statistics = Statistics::new(process.clone(), view);
    // The same version is reported everywhere.
    (statistics.version, statistics.date) = (version::FULL, version::DATE);
    statistics.warnings = crate::messages::warnings;
    let splices = |options: &plan::ProxyOptions| {
        options.splice_auto || options.splice_request || options.splice_response
    };
    if !plan.global.no_splice && plan.proxies.iter().any(|proxy| splices(&proxy.options)) {
        statistics.pipes = net::splice::pipes;
    }
    statistics.compression_memory = || compress::memory_used() as u64;
    let runtime = Runtime::new(Arc::new(statistics)).with_notify(notifier.notify(messages));
    runtime
        .count_rare([&PANICKED, &HELD_UP].into_iter().chain(memory::rare()).chain(proxy::rare()).collect());
    runtime.anonymous_key.store(plan.global.anonymous_key, Relaxed);
    runtime
}

/// The process state passed to a worker.
struct StartOfWorker {
    desk: Arc<Generation>,
    common: Arc<Common>,
    peers: Arc<PeersSections>,
    ready: Arc<Barrier>,
}

/// The first task of a worker.
async fn work(
    start: StartOfWorker,
    group: Range<usize>,
    share: Vec<ListeningSocket>,
    link: Option<UnixStream>,
) {
    let StartOfWorker { desk, common, peers, ready } = start;
    let worker = Worker::new(desk.shared.clone(), group);
    proxy::trace_process(&desk.shared.plan, Life::WorkerBegins(worker.index));
    proxy::serve::accept::install();
    tokio::task::spawn_local(proxy::worker::background(worker.clone()));
    proxy::serve::log::ring_feed::start(&worker);
    // Names may be looked up on any worker, so all sections must have been started.
    desk.sections.start();
    ready.wait().await;
    peers.start();
    desk.attend(&worker, share, &common);
    ready.wait().await;
    if worker.index == 0 {
        desk.follow_sources(&common);
        udp_sessions::take_over();
    }
    if let Some(link) = link {
        obey(link, &common);
    }
    // Nothing of a plan is kept after the plan ends.
    drop((worker, desk, common, peers, ready));
    std::future::pending::<()>().await;
}

/// Obeys the master's requests.
fn obey(link: UnixStream, common: &Arc<Common>) {
    let (runtime, exposed, messages) = (common.runtime.clone(), common.exposed.clone(), common.messages);
    tokio::task::spawn_local(async move {
        if let Err(error) = master::obey(link, runtime, exposed).await {
            messages.say(Severity::Alert, &format!("cannot receive messages from the master: {error}"));
        }
    });
}

/// Reports workers that are blocked by one task.
fn watch(limit: Option<Duration>, in_use: &Arc<InUse>, process: &Arc<Process>, messages: MessageFormat) {
    let (in_use, process) = (in_use.clone(), process.clone());
    let limit = limit.unwrap_or(Duration::from_millis(100));
    let name = move |proxy: u32| {
        let shared = in_use.shared();
        let own = shared.plan.proxies.get(proxy as usize);
        own.map_or("?".into(), |own| own.state.name.clone())
    };
    let started = watchdog::start(limit, process::thread_cpu_time, move |held| {
        if !held.again {
            process.held_up.fetch_add(1, Relaxed);
            HELD_UP.note();
        }
        let task = match held.task {
            Some(TaskName::Stream { proxy, session }) => {
                format!("a stream of `{}` (session {session:06x})", name(proxy))
            }
            Some(TaskName::Check { proxy }) => format!("a check of `{}`", name(proxy)),
            Some(TaskName::Command) => "a command on the runtime socket".to_owned(),
            None => "a task".to_owned(),
        };
        let (thread, ms) = (held.worker + 1, held.since.as_millis());
        let text = format!(
            "thread {thread} has been blocked for {ms} milliseconds by {task}: everything else on it is waiting."
        );
        messages.say(Severity::Warning, &text);
    });
    if let Err(error) = started {
        messages.say(Severity::Warning, &format!("blocked threads will not be detected: {error}"));
    }
}

/// Sets the number of descriptors from which idle connections and pipes are closed.
fn limit_descriptors(plan: &Plan, process: &Process, limits: &system::ProcessLimits) {
    let tune = &plan.global.tune;
    let share = |percent: u32| {
        // A ratio of 100 has no effect, because connections are closed earlier.
        if percent >= 100 {
            0
        } else {
            (limits.open_files * u64::from(percent) / 100).clamp(1, u32::MAX.into()) as u32
        }
    };
    process.idle_from_fds.store(share(tune.pool_low_fd_ratio), Relaxed);
    process.crowded_from_fds.store(share(tune.pool_high_fd_ratio), Relaxed);
    let most = if tune.max_pipes > 0 { tune.max_pipes } else { (limits.max_connections / 4).max(1) as usize };
    net::splice::limit_pipes(most);
}

/// Counts panics, which end only their own connection; they are still printed.
fn count_panics(process: &Arc<Process>) {
    let process = process.clone();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        process.counters.mine().panics.add(1);
        PANICKED.note();
        default(info);
    }));
}
