//! Objects with a globally unique identifier (`guid`, `guid-prefix`) and counters that outlive a process: in a statistics file
//! ([`crate::stats_file`]) or shared between processes ([`crate::sharing`]).

use std::sync::Arc;

use state::{Listener, Proxy, Server};

/// The owner of the counters.
#[derive(Debug, Clone)]
pub(crate) enum CountedObject {
    Frontend(Arc<Proxy>),
    Listener(Arc<Listener>),
    Backend(Arc<Proxy>),
    Server(Arc<Server>),
}

/// The side of proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxySide {
    Frontends,
    Backends,
}

/// The objects with an identifier, in configuration order.
pub(crate) fn objects<'p>(
    proxies: impl Iterator<Item = &'p Arc<Proxy>>,
    side: ProxySide,
) -> Vec<(Box<str>, CountedObject)> {
    let mut found = Vec::new();
    for proxy in proxies {
        let own = proxy.guid.get().cloned();
        if side == ProxySide::Frontends && proxy.is_frontend {
            found.extend(own.map(|guid| (guid, CountedObject::Frontend(proxy.clone()))));
            // Listeners without counters have nothing to store.
            let counting = proxy.listeners.load();
            let counting = counting.iter().filter(|listener| listener.counters.get().is_some());
            let named = |listener: &Arc<Listener>| {
                Some((listener.guid.get()?.clone(), CountedObject::Listener(listener.clone())))
            };
            found.extend(counting.filter_map(named));
        } else if side == ProxySide::Backends && proxy.is_backend {
            let servers = proxy.servers.load();
            let named = |server: &Arc<Server>| {
                Some((server.guid.get()?.clone(), CountedObject::Server(server.clone())))
            };
            found.extend(servers.iter().filter_map(named));
            found.extend(own.map(|guid| (guid, CountedObject::Backend(proxy.clone()))));
        }
    }
    found
}
