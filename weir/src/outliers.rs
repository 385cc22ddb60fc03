//! Outlier ejection (`outlier-ejection`): a task of the first worker periodically evaluates the servers of each backend, and
//! reports those that were ejected or have returned.

use std::sync::Arc;
use std::time::Duration;

use balance::Outliers;
use balance::ejection::{EjectionChange, EjectionEvent};
use plan::Proxy;
use proxy::Shared;
use proxy::shared::PreparedProxy;
use runtime::timer::{self, now_ms};
use state::{journal, transition};
use tokio::task::AbortHandle;

/// If the number of servers times the number of workers exceeds this, the evaluation runs on a separate thread, because it takes
/// more than about 100 µs.
const HEAVY: usize = 2_000;

/// Starts the task if any backend of the plan ejects outliers. The task also covers backends that are added later. If there were no
/// such backends at the start, requests to backends added later trigger the evaluation.
pub(crate) fn watch(shared: &Arc<Shared>, notify: health::Notify) -> Option<AbortHandle> {
    let rest =
        shared.plan.proxies.iter().filter_map(|proxy| proxy.balance.outliers.as_deref()).map(rest).min()?;
    let shared = shared.clone();
    let task = tokio::task::spawn_local(async move {
        loop {
            timer::sleep(rest).await;
            for index in 0..shared.proxies.len() {
                for event in look(&shared, index).await {
                    report(&shared.proxies[index].plan, event, &notify);
                }
                if index % 64 == 63 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    Some(task.abort_handle())
}

/// Returns the pause between two evaluations, which is a fraction of the shortest time that matters.
fn rest(own: &Outliers) -> Duration {
    let step = if own.recover == 0 { u64::MAX } else { own.recover / 10 };
    Duration::from_millis((own.interval.min(own.ejection_time).min(step) / 2).clamp(50, 1000))
}

async fn look(shared: &Arc<Shared>, index: usize) -> Vec<EjectionEvent> {
    let proxy = &shared.proxies[index];
    if proxy.plan.balance.outliers.is_none() {
        return Vec::new();
    }
    if proxy.plan.servers.len() * runtime::shard::workers() <= HEAVY {
        return proxy.judge(now_ms());
    }
    let own = shared.clone();
    let judge = move || PreparedProxy::judge(&own.proxies[index], now_ms());
    tokio::task::spawn_blocking(judge).await.unwrap_or_default()
}

/// Writes a change of a server to the logs of its backend.
fn report(backend: &Proxy, event: EjectionEvent, notify: &health::Notify) {
    let Some(server) = backend.servers.get(event.server) else { return };
    let name = format!("Server {}/{}", server.state.proxy, server.state.name);
    let (level, text) = match event.what {
        EjectionChange::Ejected(cause, ms) => {
            (transition::WARNING, format!("{name} is ejected for {ms}ms, reason: {}.", cause.name()))
        }
        EjectionChange::Back => (transition::NOTICE, format!("{name} is no longer ejected.")),
    };
    journal::server(&server.state, &text);
    notify(&backend.state, level, &text);
}
