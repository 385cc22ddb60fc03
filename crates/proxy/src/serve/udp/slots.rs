//! The slots of a session in the limits of the process, its section, its listener and its server.

use std::sync::atomic::Ordering::Relaxed;

use runtime::shared::Shared as _;
use state::server::Tally;

use super::shard::ShardPlace;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// Takes the slots of a session in the limits of the process, the section and the listener.
pub(super) fn take_slots(place: &ShardPlace) -> bool {
    let process = &place.worker.shared.process;
    let limit = process.maxconn.load(Relaxed);
    let Ok(before) = process.connections.take_below(if limit == 0 { u32::MAX } else { limit }) else {
        return false;
    };
    if limit > 0 && before + 1 == limit {
        process.note_maxconn(limit);
    }
    if !place.frontend.state.try_connect() {
        process.connections.sub(1);
        return false;
    }
    place.bind().listener.connections.add(1);
    true
}

/// Returns the slots of a session.
pub(super) fn release_slots(place: &ShardPlace) {
    let listener = &place.bind().listener;
    place.frontend.state.frontend.mine().traffic.sessions.down();
    if let Some(of_listener) = listener.mine() {
        of_listener.traffic.sessions.down();
    }
    listener.connections.sub(1);
    place.frontend.state.disconnect();
    place.worker.shared.process.connections.sub(1);
}

/// Counts a session that another process has begun. It takes slots even above the limits.
pub(super) fn count_adopted(place: &ShardPlace, backend: &LocalProxy) {
    place.worker.shared.process.connections.add(1);
    place.frontend.state.connections.add(1);
    place.bind().listener.connections.add(1);
    place.frontend.state.frontend.mine().traffic.sessions.up();
    if let Some(of_listener) = place.bind().listener.mine() {
        of_listener.traffic.sessions.up();
    }
    backend.state.backend.mine().traffic.sessions.up();
}

/// Returns a session's slot at its server.
pub(super) fn leave(backend: &LocalProxy, server: &LocalServer, tally: Tally) {
    server.state.leave(tally);
    backend.prepared().picker().left(server.index);
    backend.state.backend.mine().traffic.sessions.down();
}
