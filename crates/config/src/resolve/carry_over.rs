//! State that survives an in-place reload. A proxy, server, listener, table or ring that is present in both plans is the same
//! object, with all its counters and run-time changes.
//!
//! Called where these objects are created. If an immutable property differs (for example, the mode of a proxy), a new object is
//! created, and the old one is freed with its last user.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use plan::{Plan, Proxy};
use state::proxy::ProxySeed;
use state::server::ServerSeed;
use state::table::{Table, TableSettings};
use state::{Listener, Ring, Server};

use crate::draft::settings::ProxySettings;
use crate::draft::tls::TlsDefaults;
use crate::resolve::PendingProxy;
use crate::resolve::server_line::ServerLine;

/// The previous plan's proxy with that name and the same sides.
fn former<'a>(previous: &'a Plan, name: &str, (frontend, backend): (bool, bool)) -> Option<&'a Arc<Proxy>> {
    let is = |proxy: &&Arc<Proxy>| {
        let state = &proxy.state;
        *state.name == *name
            && (state.is_frontend, state.is_backend) == (frontend, backend)
            && !state.removed.load(Relaxed)
    };
    let found = match backend {
        true => previous.backend(name).filter(is),
        false => previous.frontend(name).filter(is),
    };
    // Sections that are proxies only internally cannot be found by name.
    found.or_else(|| previous.proxies.iter().filter(|proxy| proxy.is_hidden()).find(is))
}

/// The ID that a proxy without an explicit one already has.
pub(super) fn number_of_proxy(settings: &ProxySettings<'_>, previous: Option<&Plan>) -> Option<u32> {
    let former = former(previous?, settings.name, (settings.is_frontend(), settings.is_backend()))?;
    Some(former.state.id).filter(|_| !former.state.forced_id.load(Relaxed))
}

/// Whether a proxy of the previous plan has that ID.
pub(super) fn has_number(previous: Option<&Plan>, id: u32) -> bool {
    previous.is_some_and(|plan| plan.proxies.iter().any(|proxy| proxy.state.id == id))
}

/// The state of a proxy, carried over if possible.
pub(super) fn proxy(seed: ProxySeed, guid: Option<&str>, previous: Option<&Plan>) -> Arc<state::Proxy> {
    let former = previous.and_then(|plan| former(plan, &seed.name, (seed.is_frontend, seed.is_backend)));
    if let Some(own) = former.map(|proxy| &proxy.state)
        && own.may_become(&seed)
        && own.guid.get().map(|own| &**own) == guid
    {
        own.renew(seed);
        return own.clone();
    }
    Arc::new(state::Proxy::new(seed))
}

/// The existing servers of a proxy's state.
pub(super) fn servers(proxy: &PendingProxy<'_>, previous: Option<&Plan>) -> Vec<Arc<Server>> {
    // A new proxy has none.
    match previous {
        Some(_) => proxy.state.servers.load().to_vec(),
        None => Vec::new(),
    }
}

/// The discovered servers that the previous plan has in this backend.
pub(super) fn discovered(proxy: &PendingProxy<'_>, previous: Option<&Plan>) -> Vec<Arc<Server>> {
    let former = previous.and_then(|plan| plan.backend(proxy.settings.name));
    let of_backend = former.filter(|former| Arc::ptr_eq(&former.state, &proxy.state));
    of_backend
        .map_or_else(Vec::new, |former| former.servers.discovered().map(|own| own.state.clone()).collect())
}

/// Returns the state of a server, carried over from `former` if possible, or otherwise `Err` with the seed for a new state. A
/// server with an unchanged host name keeps its resolved address.
pub(super) fn server(
    mut seed: ServerSeed,
    guid: Option<&str>,
    host: Option<&str>,
    former: &[Arc<Server>],
) -> Result<Arc<Server>, ServerSeed> {
    let Some(own) = former.iter().find(|own| *own.name == *seed.name) else { return Err(seed) };
    let named = own.fqdn.load_full();
    let record = own.srv_record.get();
    let same_host = match (host, record, &named) {
        (None, None, None) => true,
        (Some(host), Some(record), _) => **record == *host,
        (Some(host), None, Some(named)) => ***named == *host,
        _ => false,
    };
    if host.is_some() && same_host {
        seed.address = own.configured().address;
    }
    let is_same = own.may_become(&seed)
        && (same_host || record.is_none() && host.is_none_or(|host| !host.starts_with('_')))
        && own.guid.get().map(|own| &**own) == guid;
    if !is_same {
        return Err(seed);
    }
    own.renew(seed, now_ms());
    Ok(own.clone())
}

/// A hash of everything that connections to a server depend on: its line, its backend's settings, and the TLS settings of the
/// global section.
pub(super) fn print(proxy: &PendingProxy<'_>, line: &ServerLine<'_>, defaults: &TlsDefaults<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.statement.words.iter().for_each(|word| word.as_str().hash(&mut hasher));
    proxy.settings.default_server_lines.hash(&mut hasher);
    format!("{:?}", proxy.settings.source).hash(&mut hasher);
    proxy.settings.mode.name().hash(&mut hasher);
    if line.draft.tls.enabled || line.draft.is_quic {
        defaults.for_servers().hash(&mut hasher);
    }
    hasher.finish()
}

/// Replaces a listener's state with the state of `former` with the same address.
pub(super) fn listener(new: &mut Arc<Listener>, former: &[Arc<Listener>]) {
    let is = |own: &&Arc<Listener>| {
        (own.id, &own.name, &own.address, own.maxconn) == (new.id, &new.name, &new.address, new.maxconn)
            && own.counters.get().is_some() == new.counters.get().is_some()
            && own.guid.get() == new.guid.get()
    };
    if let Some(own) = former.iter().find(is) {
        *new = own.clone();
    }
}

/// A stick table, carried over if its settings are the same.
pub(super) fn table(settings: TableSettings, previous: Option<&Plan>) -> Arc<Table> {
    let is = |table: &&Arc<Table>| table.settings == settings && table.write_to.get().is_none();
    let own = previous.and_then(|plan| plan.tables.iter().find(is));
    own.cloned().unwrap_or_else(|| Table::new(settings))
}

/// The store of a cache, carried over with its contents if its settings are the same.
pub(super) fn cache(settings: cache::CacheSettings, previous: Option<&Plan>) -> Arc<cache::Store> {
    let own = previous.and_then(|plan| plan.caches.iter().find(|store| store.settings == settings));
    own.cloned().unwrap_or_else(|| cache::Store::new(settings))
}

/// A ring, carried over if possible.
pub(super) fn ring(new: Ring, previous: Option<&Plan>) -> Arc<Ring> {
    let is = |ring: &&Arc<Ring>| {
        (&ring.name, &ring.description, ring.max_length, ring.size(), ring.stamp)
            == (&new.name, &new.description, new.max_length, new.size(), new.stamp)
    };
    let own = previous.and_then(|plan| plan.rings.iter().find(is));
    own.cloned().unwrap_or_else(|| Arc::new(new))
}

/// Publishes the settings that runtime commands and sample fetches read.
pub(super) fn publish(state: &state::Proxy, settings: &ProxySettings<'_>) {
    let own = &settings.timeouts;
    let timeouts = [own.client, own.server, own.tunnel, own.connect, own.queue, own.tarpit];
    for (slot, timeout) in state.timeouts.iter().zip(timeouts) {
        slot.store(timeout.map_or(0, |timeout| timeout.as_millis() as u32), Relaxed);
    }
    state.retries.store(settings.retries, Relaxed);
    state.unpublished.store(settings.unpublished, Relaxed);
    state.dynamic_cookies.store(settings.cookie.as_ref().is_some_and(|cookie| cookie.dynamic), Relaxed);
    state.dynamic_key.store(settings.dynamic_cookie_key.map(|key| Arc::new(key.into())));
    let default = settings.default_backend.filter(|_| settings.is_frontend());
    state.default_backend.store(default.map(|name| Arc::new(name.as_str().into())));
}
