//! Changes of servers by an administrator, from the runtime socket or the page: states, their heirs, their messages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use state::server::Operational;
use state::transition::{self, ALERT, NOTICE};
use state::{Admin, Proxy, Server};

use crate::view::{ProxyView, Runtime, View};

fn tell(runtime: &Runtime, proxy: &Proxy, level: u8, text: &str) {
    if let Some(notify) = &runtime.notify {
        notify(proxy, level, text);
    }
}

/// Notes whether the backend can still serve, and tells if it lost its last server.
pub(crate) fn refresh(runtime: &Runtime, proxy: &Proxy) {
    if let Some((level, text)) = transition::refresh_backend(proxy, now_ms()) {
        tell(runtime, proxy, level, &text);
    }
}

/// `set server … state`; `false` for a state that does not exist.
pub(crate) fn set_state(runtime: &Runtime, server: &Arc<Server>, state: &str) -> bool {
    let (set, clear) = match state {
        "ready" => (0, Admin::FORCED_MAINT | Admin::FORCED_DRAIN),
        "drain" => (Admin::FORCED_DRAIN, Admin::FORCED_MAINT),
        "maint" => (Admin::FORCED_MAINT, Admin::FORCED_DRAIN),
        _ => return false,
    };
    let view = runtime.view();
    change(runtime, &view, server, set, clear, "");
    true
}

/// Sets or clears one administrative flag.
pub(crate) fn set_flag(runtime: &Runtime, server: &Arc<Server>, flag: u32, on: bool) {
    let (set, clear) = if on { (flag, 0) } else { (0, flag) };
    change(runtime, &runtime.view(), server, set, clear, "");
}

/// The backend of a server.
fn backend<'a>(view: &'a View, server: &Arc<Server>) -> Option<&'a ProxyView> {
    view.backend(&server.proxy)
}

/// Changes administrative flags, tells it, and lets those that track the server inherit.
fn change(runtime: &Runtime, view: &View, server: &Arc<Server>, set: u32, clear: u32, via: &str) {
    let before = server.admin();
    let was_down = server.operational() == Operational::Stopped;
    let requeued = server.queue.len();
    let now = now_ms();
    if !server.change_admin(set, clear, now) {
        return;
    }
    let after = server.admin();
    if !before.in_maintenance() && after.in_maintenance() {
        server.queue.wake_all();
    }
    if before.in_maintenance() && !after.in_maintenance() {
        leave_maintenance(view, server, now);
    }
    if let Some(proxy) = backend(view, server) {
        let proxy = &*proxy.state;
        let change = transition::Administrative { before, after, was_down, requeued, via };
        let message = transition::administrative(proxy, server, &change);
        if let Some((level, text)) = message {
            tell(runtime, proxy, level, &text);
        }
        refresh(runtime, proxy);
    }
    inherit(runtime, view, server);
}

/// A server that leaves maintenance is up until its next check says otherwise, unless `init-state` says what it begins with; one that
/// tracks is as the one tracked.
fn leave_maintenance(view: &View, server: &Arc<Server>, now: u64) {
    let tracked = backend(view, server).and_then(|proxy| proxy.server(server.id)?.tracks.clone());
    let state = match tracked {
        Some(tracked) => tracked.operational(),
        // It has begun anew already.
        None if server.checked.load(Relaxed) && server.health.initial().is_some() => return,
        None => {
            if server.checked.load(Relaxed) {
                server.health.level.store(server.health.rise.load(Relaxed), Relaxed);
            }
            Operational::Running
        }
    };
    server.set_operational(state, now);
}

/// Servers that follow `tracked`, the latest declared first, as HAProxy tells them.
fn followers(view: &View, tracked: &Arc<Server>) -> Vec<Arc<Server>> {
    let mut found = Vec::new();
    for proxy in view.proxies.iter().filter(|proxy| proxy.servers.values().any(|one| one.tracks.is_some())) {
        let follows = |server: &&Arc<Server>| {
            let tracks = proxy.server(server.id).and_then(|one| one.tracks.as_ref());
            tracks.is_some_and(|of| Arc::ptr_eq(of, tracked)) && !Arc::ptr_eq(server, tracked)
        };
        found.extend(proxy.state.servers.load().iter().rev().filter(follows).cloned());
    }
    found
}

/// Passes maintenance and draining on to the servers that track this one.
fn inherit(runtime: &Runtime, view: &View, tracked: &Arc<Server>) {
    let admin = tracked.admin();
    let (mut set, mut clear) = (0, 0);
    for (on, flag) in
        [(admin.in_maintenance(), Admin::INHERITED_MAINT), (admin.draining(), Admin::INHERITED_DRAIN)]
    {
        *(if on { &mut set } else { &mut clear }) |= flag;
    }
    let via = format!(" via {}/{}", tracked.proxy, tracked.name);
    for follower in &followers(view, tracked) {
        change(runtime, view, follower, set, clear, &via);
    }
}

/// `set server … health`: sets what checks would have found; `false` for a word that does not exist.
pub(crate) fn set_health(runtime: &Runtime, server: &Arc<Server>, health: &str) -> bool {
    let full = server.health.rise.load(Relaxed) + server.health.fall.load(Relaxed);
    let (state, level) = match health {
        "up" => (Operational::Running, full.saturating_sub(1)),
        "stopping" => (Operational::Stopping, full.saturating_sub(1)),
        "down" => (Operational::Stopped, 0),
        _ => return false,
    };
    server.health.level.store(level, Relaxed);
    force(runtime, &runtime.view(), server, state, "");
    true
}

/// `set server … agent`: sets what the agent would have said; `false` for a word that does not exist.
pub(crate) fn set_agent(runtime: &Runtime, server: &Arc<Server>, word: &str) -> bool {
    let (state, level) = match word {
        "up" => (Operational::Running, 1),
        "down" => (Operational::Stopped, 0),
        _ => return false,
    };
    server.agent.level.store(level, Relaxed);
    force(runtime, &runtime.view(), server, state, "");
    true
}

fn force(runtime: &Runtime, view: &View, server: &Arc<Server>, state: Operational, via: &str) {
    let requeued = server.queue.len();
    if !server.set_operational(state, now_ms()) {
        return;
    }
    // Who follows another server is told of by that server's name.
    let why = if via.is_empty() { ", changed from CLI" } else { "" };
    if let Some(proxy) = backend(view, server) {
        let proxy = &*proxy.state;
        let (level, text) = match state {
            Operational::Stopped => {
                server.queue.wake_all();
                (ALERT, transition::left(proxy, server, &format!("is DOWN{via}"), why, requeued))
            }
            Operational::Stopping => {
                let event = format!("is stopping{via}");
                (NOTICE, transition::joined(proxy, server, &event, why, requeued))
            }
            _ => (NOTICE, transition::joined(proxy, server, &format!("is UP{via}"), why, 0)),
        };
        tell(runtime, proxy, level, &text);
        refresh(runtime, proxy);
    }
    let via = format!(" via {}/{}", server.proxy, server.name);
    for follower in &followers(view, server) {
        force(runtime, view, follower, state, &via);
    }
}

/// `disable health`: an unchecked server counts as up.
pub(crate) fn disable_checks(server: &Server) {
    server.checked.store(false, Relaxed);
    if !server.admin().in_maintenance() {
        server.set_operational(Operational::Running, now_ms());
    }
}
