//! `maxconn … fleet`: limits on servers that apply to all members of a `peers` section together. A task of the first worker
//! publishes, in an aggregate table under the name of each such server, how many requests this process has there, and sets the
//! number that the other members have. Requests only compare the sum with the limit (`proxy::routing::assign`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use proxy::Shared;
use runtime::timer::{self, now_ms};
use state::table::{DataType, Table, Tracked};
use tokio::task::AbortHandle;

/// A server with a `fleet` limit.
struct FleetLimit {
    server: Arc<state::Server>,
    /// The indexes of the backend and of the server in it.
    backend: usize,
    index: usize,
    table: Arc<Table>,
    /// The server's entry, which does not expire while it is held. `None` while the table is full.
    entry: Option<Tracked>,
    published: Option<u32>,
    published_at: u64,
}

/// Starts the task if the plan has servers with a `fleet` limit.
pub(crate) fn keep(shared: &Arc<Shared>) -> Option<AbortHandle> {
    let mut limits = Vec::new();
    for proxy in shared.plan.attended() {
        let backend = proxy.index;
        for server in proxy.servers.iter() {
            if let Some(table) = &server.fleet {
                limits.push(FleetLimit {
                    server: server.state.clone(),
                    backend,
                    index: server.index,
                    table: table.clone(),
                    entry: None,
                    published: None,
                    published_at: 0,
                });
            }
        }
    }
    let every = limits.iter().filter_map(|own| own.table.aggregate()).map(|own| own.every_ms).min()?;
    let pause = Duration::from_millis(u64::from(every).div_ceil(2));
    let shared = shared.clone();
    let task = tokio::task::spawn_local(async move {
        loop {
            for limit in &mut limits {
                limit.update(&shared);
            }
            timer::sleep(pause).await;
        }
    });
    Some(task.abort_handle())
}

impl FleetLimit {
    fn update(&mut self, shared: &Shared) {
        let now = now_ms();
        if self.entry.is_none() {
            self.entry = Tracked::get(&self.table, self.server.name.as_bytes(), now);
        }
        let Some(entry) = self.entry.as_ref().map(Tracked::view) else { return };
        let own = self.server.serving();
        // The others drop an entry that is not used.
        let is_old = now.saturating_sub(self.published_at) > u64::from(self.table.settings.expire_ms) / 4;
        if self.published != Some(own) || (is_old && own > 0) {
            entry.set(DataType::ConnCur, 0, own.into(), now);
            entry.touch(now);
            (self.published, self.published_at) = (Some(own), now);
        }
        let Some(column) = self.table.column(DataType::ConnCur) else { return };
        let others = u32::try_from(entry.others(column, 0, now)).unwrap_or(u32::MAX);
        let before = self.server.elsewhere.swap(others, Relaxed);
        if before != others {
            shared.proxies[self.backend].note_load(self.index);
        }
        if others < before {
            // The first request that gets a slot wakes the next.
            self.server.queue.wake_first();
            shared.proxies[self.backend].plan.state.queue.wake_first();
        }
    }
}
