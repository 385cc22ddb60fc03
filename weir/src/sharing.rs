//! Counters shared with other processes (`shm-stats-file`): opened at start, exchanged once a second by a
//! separate thread, left at the end. `statistics::sharing` defines their format.

use std::sync::Arc;
use std::time::Duration;

use control::Runtime;
use diag::Severity;
use plan::Plan;
use statistics::sharing::{MOST_OBJECTS, SharedCounters};

use crate::messages::MessageFormat;

/// How long apart counters are written and read.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens what the plan names, if it names any. To be called before the process gives up rights.
///
/// # Errors
/// It cannot be used, or has not enough places.
pub(crate) fn open(plan: &Plan) -> Result<Option<Arc<SharedCounters>>, String> {
    let Some(name) = &plan.global.shm_stats_file else { return Ok(None) };
    let most = plan.global.shm_stats_objects.unwrap_or(MOST_OBJECTS);
    let proxies = plan.proxies.iter().filter(|proxy| !proxy.disabled).map(|proxy| &proxy.state);
    SharedCounters::open(name, most, proxies).map(|shared| Some(Arc::new(shared)))
}

/// Exchanges counters from now on.
///
/// # Errors
/// There is no thread left for it.
pub(crate) fn begin(
    shared: Option<Arc<SharedCounters>>,
    runtime: &Arc<Runtime>,
    messages: MessageFormat,
) -> Result<(), String> {
    let Some(shared) = shared else { return Ok(()) };
    runtime.statistics.share_counters(shared.clone());
    let runtime = runtime.clone();
    let exchange = move || {
        let mut last = String::new();
        loop {
            std::thread::sleep(PAUSE);
            let outcome = shared.exchange(runtime.view().states());
            // Told once, and again when it comes back.
            let error = outcome.err().unwrap_or_default();
            if !error.is_empty() && error != last {
                messages.say(Severity::Warning, &format!("{error}."));
            }
            last = error;
        }
    };
    let thread = std::thread::Builder::new().name("counters".to_owned()).spawn(exchange);
    thread.map(drop).map_err(|error| format!("cannot start the thread that shares counters: {error}"))
}

/// Exchanges counters now: a plan takes the place of another, with or without objects of the same
/// identifiers. What fails is told by the next exchange.
pub(crate) fn exchange(runtime: &Runtime) {
    if let Some(shared) = runtime.statistics.shared_counters() {
        let _ = shared.exchange(runtime.view().states());
    }
}

/// The process is about to end.
pub(crate) fn leave(runtime: &Runtime) {
    if let Some(shared) = runtime.statistics.shared_counters() {
        shared.leave(runtime.view().states());
    }
}
