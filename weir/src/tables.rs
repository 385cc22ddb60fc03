//! Expiry of stick table entries: a task of the first worker removes old entries.

use std::sync::Arc;
use std::time::Duration;

use plan::Plan;
use runtime::timer::{self, now_ms};
use state::table::Table;
use tokio::task::AbortHandle;

/// The maximum number of entries removed in one turn.
const TURN: usize = 1_000;

/// Minimum and maximum pause of the task.
const REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Starts sweeping the tables that expire entries, if there are any.
pub(crate) fn sweep(plan: &Plan) -> Option<AbortHandle> {
    let tables: Vec<Arc<Table>> =
        plan.tables.iter().filter(|table| table.settings.expire_ms > 0).cloned().collect();
    let soonest = tables.iter().map(|table| table.settings.expire_ms).min()?;
    let rest = Duration::from_millis(u64::from(soonest) / 8).clamp(REST.0, REST.1);
    let task = tokio::task::spawn_local(async move {
        loop {
            timer::sleep(rest).await;
            for table in &tables {
                while table.used() > 0 && table.sweep(now_ms(), TURN) == TURN {
                    // Lets other tasks run in between.
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    Some(task.abort_handle())
}
