//! From a plan to running workers: sockets, privileges, threads, and the wait for signals.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use config::Plan;
use control::Runtime;
use diag::Severity;
use proxy::worker::{ServiceReply, ServiceRequest};
use proxy::{Services, Shared, Worker};
use state::Process;

use crate::args::Args;
use crate::checks::Teller;
use crate::listeners::{self, Bound};
use crate::messages::Messages;
use crate::signals::{self, Ending};
use crate::{master, states, system, view};

/// Starts what the plan says and returns when all is over.
pub(crate) fn run(plan: Plan, args: Args) -> ExitCode {
    let messages = Messages::new(args.quiet || plan.global.quiet);
    match start(Arc::new(plan), &args, messages) {
        Ok(Ending::Clean) => ExitCode::SUCCESS,
        // As HAProxy: whoever waits for the process sees that the signal ended it.
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

fn start(plan: Arc<Plan>, args: &Args, messages: Messages) -> Result<Ending, String> {
    let global = &plan.global;
    let limits = system::limits(&plan);
    let inherited = system::take_over(args.take_over.as_deref(), messages);
    let bound = listeners::bind(&plan, inherited, limits.max_connections)?;
    // The master stays one thread and forks before any other exists.
    if (global.daemon) && !global.master_worker {
        net::sys::daemonize().map_err(|error| format!("[haproxy.main()] Cannot fork: {error}."))?;
    }
    if global.master_worker
        && let Some(ending) = master::supervise(global, args, messages)?
    {
        return Ok(ending);
    }
    if !global.master_worker {
        system::write_pidfile(global)?;
    }
    system::confine(global)?;
    system::finish_old(args);
    run_workers(plan, bound, limits, messages)
}

fn run_workers(
    plan: Arc<Plan>,
    bound: Vec<Bound>,
    limits: system::Limits,
    messages: Messages,
) -> Result<Ending, String> {
    let threads = plan.global.workers();
    let mut inboxes = runtime::worker::prepare(threads).map_err(|error| error.to_string())?;
    let process = Arc::new(Process::default());
    process.maxconn.store(limits.max_connections, Relaxed);
    process.hard_maxconn.store(limits.max_connections, Relaxed);
    process.connection_limit.store(plan.global.max_connection_rate, Relaxed);
    process.session_limit.store(plan.global.max_session_rate, Relaxed);
    limit_descriptors(&plan, &process, &limits);
    count_panics(&process);
    let teller = Teller::default();
    let view = view::of(&plan, &limits);
    states::restore(&plan, &view, messages);
    let runtime = Runtime::new(process.clone(), view).with_notify(teller.notify(messages));
    let runtime = Arc::new(runtime);
    let services = services(runtime.clone());
    let shared = Arc::new(Shared::new(plan.clone(), process.clone(), services));
    teller.bind(&shared);
    let shares = listeners::share(bound, threads);
    for (index, share) in shares.into_iter().enumerate() {
        let (shared, runtime, teller) = (shared.clone(), runtime.clone(), teller.clone());
        let group = listeners::group_of(&plan.global, index, threads);
        let main = move || async move { work(shared, runtime, teller, share, group, messages).await };
        inboxes.spawn(index, main).map_err(|error| format!("cannot start thread {index}: {error}"))?;
    }
    system::announce(messages);
    Ok(signals::wait(&shared, messages))
}

/// One worker's life: its share of the listeners, its part of what is common, then whatever its connections ask.
async fn work(
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    teller: Teller,
    share: Vec<Bound>,
    group: std::ops::Range<usize>,
    messages: Messages,
) {
    let worker = Worker::new(shared.clone(), group.clone());
    proxy::accept::install(&worker);
    tokio::task::spawn_local(proxy::worker::background(worker.clone()));
    for bound in share {
        let listener = match net::Listener::from_fd(bound.socket) {
            Ok(listener) => listener,
            Err(error) => {
                messages.say(Severity::Alert, &format!("cannot watch a listener: {error}"));
                continue;
            }
        };
        match bound.owner {
            listeners::Owner::Frontend { proxy, bind } => {
                let task = proxy::accept::serve(worker.clone(), listener, proxy, bind, group.clone());
                tokio::task::spawn_local(task);
            }
            listeners::Owner::RuntimeSocket(number) => {
                let task = crate::control_socket::serve(runtime.clone(), shared.clone(), listener, number);
                tokio::task::spawn_local(task);
            }
        }
    }
    let _checks = crate::checks::start(&shared, &teller, messages);
    std::future::pending::<()>().await;
}

/// From how many descriptors on idle connections and pipes are one too many.
fn limit_descriptors(plan: &Plan, process: &Process, limits: &system::Limits) {
    let tune = &plan.global.tune;
    let share = |percent: u32| {
        // A ratio of 100 is no limit: connections end first.
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

/// A panic ends its own connection; here it is counted besides being shown.
fn count_panics(process: &Arc<Process>) {
    let process = process.clone();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        process.counters.mine().panics.add(1);
        default(info);
    }));
}

/// What other rooms do for requests.
fn services(runtime: Arc<Runtime>) -> Services {
    let statistics = move |_: &config::plan::Proxy,
                           page: &config::plan::proxy::StatsPage,
                           request: &ServiceRequest<'_>|
          -> ServiceReply {
        let settings = view::page(page);
        let uri = String::from_utf8_lossy(request.target);
        let request = control::statistics::PageRequest {
            method: http::Method::from_bytes(request.method),
            uri: &uri,
            body: request.body,
            admin: request.admin,
        };
        let response = control::statistics::respond(&runtime, &settings, &request);
        ServiceReply {
            status: response.status,
            headers: response.headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            body: response.body.flatten().collect(),
        }
    };
    Services { statistics: Box::new(statistics) }
}
