//! Samples for the statistics page: a task of the first worker records the last minutes of proxies and servers.

use std::sync::Arc;
use std::time::Duration;

use plan::Plan;
use runtime::timer;
use state::history::INTERVAL_MS;
use statistics::{Statistics, sampling};
use tokio::task::AbortHandle;

/// Starts sampling if any proxy of the plan has a statistics page.
pub(crate) fn sample(plan: &Plan, statistics: &Arc<Statistics>) -> Option<AbortHandle> {
    let has_page = plan.proxies.iter().any(|proxy| !proxy.disabled && proxy.stats.is_some());
    let (statistics, keeps_history) = (statistics.clone(), plan.global.stats_history);
    let task = async move {
        loop {
            for () in sampling::round(&statistics, keeps_history) {
                // Lets other tasks run in between.
                tokio::task::yield_now().await;
            }
            timer::sleep(Duration::from_millis(INTERVAL_MS)).await;
        }
    };
    has_page.then(|| tokio::task::spawn_local(task).abort_handle())
}
