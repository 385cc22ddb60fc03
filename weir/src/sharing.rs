//! Counters that are shared with other processes (`shm-stats-file`). The file is opened at startup, a separate thread exchanges
//! the counters once per second, and the file is released at the end. `statistics::sharing` defines its format.

use std::sync::Arc;
use std::time::Duration;

use control::Runtime;
use diag::Severity;
use plan::Plan;
use statistics::sharing::{MOST_OBJECTS, SharedCounters};

use crate::messages::MessageFormat;

/// Pause between two exchanges.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the file that the plan names, if it names one. Must be called before privileges are dropped.
///
/// # Errors
/// The file cannot be used or has too few slots.
pub(crate) fn open(plan: &Plan) -> Result<Option<Arc<SharedCounters>>, String> {
    let Some(name) = &plan.global.shm_stats_file else { return Ok(None) };
    let most = plan.global.shm_stats_objects.unwrap_or(MOST_OBJECTS);
    let proxies = plan.proxies.iter().filter(|proxy| !proxy.disabled).map(|proxy| &proxy.state);
    SharedCounters::open(name, most, proxies).map(|shared| Some(Arc::new(shared)))
}

/// Starts exchanging counters.
///
/// # Errors
/// The thread cannot be started.
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
            // An error is reported once, and again if it recurs.
            let error = outcome.err().unwrap_or_default();
            if !error.is_empty() && error != last {
                messages.say(Severity::Warning, &format!("{error}."));
            }
            last = error;
        }
    };
    let thread = std::thread::Builder::new().name("counters".to_owned()).spawn(exchange);
    thread.map(drop).map_err(|error| format!("cannot start the thread for shared counters: {error}"))
}

/// Exchanges counters immediately, because a plan replaces another one, which may have objects with the same identifiers. The next
/// exchange reports a failure.
pub(crate) fn exchange(runtime: &Runtime) {
    if let Some(shared) = runtime.statistics.shared_counters() {
        let _ = shared.exchange(runtime.view().states());
    }
}

/// Releases the counters because the process is about to end.
pub(crate) fn leave(runtime: &Runtime) {
    if let Some(shared) = runtime.statistics.shared_counters() {
        shared.leave(runtime.view().states());
    }
}
