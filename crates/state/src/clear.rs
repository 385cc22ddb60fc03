//! `clear counters` (management manual, 9.3): resets the counters of servers, proxies and the process.

use std::sync::atomic::Ordering::Relaxed;

use crate::counters::clear_shards;
use crate::{Process, Proxy, Server};

/// `clear counters` for one server: resets maxima, or with `all` all counters.
pub fn server(server: &Server, all: bool) {
    clear_shards(&server.counters, all);
    server.served_max.store(server.serving(), Relaxed);
    server.queue.clear_longest();
    if all {
        server.durations.clear();
        server.durations_by_attributes.clear();
        server.health.failed.store(0, Relaxed);
        server.health.observed.store(0, Relaxed);
        server.downs.store(0, Relaxed);
        server.down_ms.store(0, Relaxed);
        if let Some(performance) = server.performance() {
            performance.clear();
        }
    }
}

/// `clear counters` for one proxy, including its listeners and servers.
pub fn proxy(proxy: &Proxy, all: bool) {
    clear_shards(&proxy.frontend, all);
    clear_shards(&proxy.backend, all);
    if let Some(extra) = proxy.extra() {
        clear_shards(&extra.counters, all);
    }
    if let Some(mirror) = proxy.mirror() {
        clear_shards(&mirror.counters, all);
    }
    proxy.connections_max.store(proxy.connections.load(Relaxed), Relaxed);
    proxy.queue.clear_longest();
    if all {
        proxy.faults.clear();
        proxy.durations.frontend.clear();
        proxy.durations.backend.clear();
        proxy.durations.by_attributes.clear();
        proxy.downs.store(0, Relaxed);
    }
    for listener in proxy.listeners.load().iter() {
        if let Some(counters) = listener.counters.get() {
            clear_shards(counters, all);
        }
    }
    proxy.servers.load().iter().for_each(|own| server(own, all));
}

/// `clear counters` for the process: resets its maximum rates. As in HAProxy, totals of the process are never reset.
pub fn process(process: &Process) {
    for shard in process.counters.all() {
        shard.connection_rate.clear_max();
        shard.session_rate.clear_max();
    }
}
