//! `maxconn … fleet`: limits on servers that apply to all members of a `peers` section together. A task of the first worker
//! publishes, in an aggregate table under the name of each such server, how many requests this process has there, and sets the
//! number that the other members have. Requests only compare the sum with the limit (`proxy::routing::assign`).

use std::cell::RefCell;
use std::collections::HashMap;
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

thread_local! {
    /// The limits of the current plan, on the first worker.
    static LIMITS: RefCell<Vec<FleetLimit>> = const { RefCell::new(Vec::new()) };
}

/// Starts the task if the plan has servers with a `fleet` limit. Counts of the former plan's other servers are withdrawn.
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
    succeed(&mut limits, LIMITS.take());
    let every = limits.iter().filter_map(|own| own.table.aggregate()).map(|own| own.every_ms).min()?;
    let pause = Duration::from_millis(u64::from(every).div_ceil(2));
    LIMITS.set(limits);
    let shared = shared.clone();
    let task = tokio::task::spawn_local(async move {
        loop {
            LIMITS.with_borrow_mut(|limits| limits.iter_mut().for_each(|limit| limit.update(&shared)));
            timer::sleep(pause).await;
        }
    });
    Some(task.abort_handle())
}

/// Continues the former limits that are still configured, and ends the others.
fn succeed(limits: &mut [FleetLimit], former: Vec<FleetLimit>) {
    let key = |limit: &FleetLimit| (Arc::as_ptr(&limit.server), Arc::as_ptr(&limit.table));
    let mut former: HashMap<_, FleetLimit> = former.into_iter().map(|limit| (key(&limit), limit)).collect();
    for limit in limits {
        if let Some(own) = former.remove(&key(limit)) {
            (limit.entry, limit.published, limit.published_at) = (own.entry, own.published, own.published_at);
        }
    }
    former.into_values().for_each(FleetLimit::withdraw);
}

impl FleetLimit {
    /// Publishes that this process has no requests at the server, because it does not count them any more.
    fn withdraw(self) {
        self.server.elsewhere.store(0, Relaxed);
        if let Some(entry) = self.entry.as_ref().map(Tracked::view)
            && self.published.is_some_and(|count| count > 0)
        {
            let now = now_ms();
            entry.set(DataType::ConnCur, 0, 0, now);
            entry.touch(now);
        }
    }

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
