//! Histograms of durations (`latency-histograms`): a task of the first worker ends their minutes.

use std::sync::Arc;
use std::time::Duration;

use plan::global::LatencyHistograms;
use proxy::Shared;
use runtime::timer::{self, now_ms};
use tokio::task::AbortHandle;

/// The number of servers handled in one turn.
const TURN: usize = 64;

/// Starts the task, unless the histograms are disabled.
pub(crate) fn watch(shared: &Arc<Shared>) -> Option<AbortHandle> {
    if shared.plan.global.latency_histograms == LatencyHistograms::Off {
        return None;
    }
    let shared = shared.clone();
    let task = tokio::task::spawn_local(async move {
        loop {
            // Minutes of the clock, so that a reload, which starts another task, does not prolong them.
            timer::sleep(Duration::from_millis(60_000 - now_ms() % 60_000)).await;
            for proxy in shared.proxies.iter() {
                let proxy = proxy.plan.state.clone();
                proxy.durations.frontend.end_minute();
                proxy.durations.backend.end_minute();
                for servers in proxy.servers.load_full().chunks(TURN) {
                    servers.iter().for_each(|server| server.durations.end_minute());
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    Some(task.abort_handle())
}
