//! Takes and returns a session's slots within the limits of the process, its section, its listener and its server.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use runtime::Gauge;
use runtime::shared::Shared as _;
use runtime::timer::now_us;
use state::server::Tally;

use super::place::ShardPlace;
use crate::routing::assign;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// Takes a session's slots within the limits of the process, the section and the listener. Returns `false` if a limit
/// is reached.
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

/// Moves the slots of `count` sessions to the place of their socket in a new plan. They differ if the new plan has other limits or
/// another number for the bind line, and thus another listener.
pub(super) fn move_slots(from: &ShardPlace, to: &ShardPlace, count: usize) {
    let slots = u32::try_from(count).unwrap_or(u32::MAX);
    let move_gauge = |from: Option<&Gauge>, to: Option<&Gauge>| {
        for _ in 0..count {
            from.inspect(|gauge| gauge.down());
            to.inspect(|gauge| _ = gauge.up());
        }
    };
    let (old, new) = (&from.bind().listener, &to.bind().listener);
    if !Arc::ptr_eq(old, new) {
        new.connections.add(slots);
        old.connections.sub(slots);
        let (old, new) = (old.mine(), new.mine());
        move_gauge(old.map(|own| &own.traffic.sessions), new.map(|own| &own.traffic.sessions));
    }
    let (old, new) = (&from.frontend.state, &to.frontend.state);
    if !Arc::ptr_eq(old, new) {
        new.connections.add(slots);
        old.connections.sub(slots);
        let (old, new) = (old.frontend.mine(), new.frontend.mine());
        move_gauge(Some(&old.traffic.sessions), Some(&new.traffic.sessions));
    }
}

/// Returns a session's slot at its server.
pub(super) fn leave(backend: &LocalProxy, server: &LocalServer, tally: Tally) {
    server.state.leave(tally);
    backend.prepared().picker().left(server.index);
    backend.state.backend.mine().traffic.sessions.down();
}

/// Takes a slot of a server, if `limit` allows one more (0: no limit).
pub(super) fn enter(backend: &LocalProxy, server: &LocalServer, limit: u32, now_us: u64) -> Option<Tally> {
    let tally = server.state.try_enter(limit)?;
    backend.prepared().picker().entered(server.index, now_us);
    Some(tally)
}

/// Takes a slot of a server for a session that exists already, so that no limit can refuse it.
pub(super) fn enter_again(backend: &LocalProxy, server: &LocalServer) -> Option<Tally> {
    let limit = assign::limit_without_queue(backend, &server.state).unwrap_or(0);
    let now_us = now_us();
    enter(backend, server, limit, now_us).or_else(|| enter(backend, server, 0, now_us))
}
