//! Finds servers by the QUIC connection IDs that they have chosen (`balance quic-cid`).
//!
//! All workers share them, because the kernel passes the datagrams of a client that has moved to any of them. They are only used for
//! datagrams that begin a session, and for the first ones of a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use state::Server;
use udplb::quic::{IdBytes, Routes};

/// The number of IDs that each section remembers, at least.
const MOST: usize = 100_000;

/// How many datagrams of a server are looked at.
pub(super) const BEGINNING: u64 = 8;

/// The IDs, keyed by section number.
type Sections = HashMap<u32, Routes<Weak<Server>>>;

static ROUTES: Mutex<Option<Sections>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Sections>> {
    ROUTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers the server that has chosen an ID.
pub(super) fn learn(section: u32, id: IdBytes, server: &Arc<Server>) {
    let mut all = lock();
    let routes = all.get_or_insert_default().entry(section).or_insert_with(|| Routes::new(MOST));
    routes.learn(id, Arc::downgrade(server));
}

/// Returns the server that has chosen an ID.
pub(super) fn find(section: u32, id: &IdBytes) -> Option<Arc<Server>> {
    lock().as_mut()?.get_mut(&section)?.find(id)?.upgrade()
}

/// Returns all IDs, each with its section number and its server.
pub(super) fn all() -> Vec<(u32, IdBytes, Arc<Server>)> {
    let all = lock();
    let routes = all.iter().flatten().flat_map(|(section, routes)| {
        routes.iter().filter_map(|(id, server)| Some((*section, *id, server.upgrade()?)))
    });
    routes.collect()
}
