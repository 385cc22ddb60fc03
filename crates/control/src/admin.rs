//! Administrative changes of servers, from the runtime socket or the statistics page: states, propagation to tracking servers, and
//! messages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use state::proxy::Admission;
use state::server::Operational;
use state::transition::{self, WARNING};
use state::{Admin, Proxy, Server};
use statistics::{ConfigView, ProxyView};

use crate::process::Runtime;

/// Changes how a frontend accepts connections, and reports the change.
pub(crate) fn admit(runtime: &Runtime, proxy: &Proxy, admission: Admission) {
    let from = proxy.admission();
    proxy.set_admission(admission);
    if let Some(text) = transition::admitted(proxy, from) {
        runtime.report(proxy, WARNING, &text);
    }
}

/// Updates whether the backend can still serve, and reports the loss of its last server.
pub(crate) fn refresh(runtime: &Runtime, proxy: &Proxy) {
    if let Some((level, text)) = transition::refresh_backend(proxy, now_ms()) {
        runtime.report(proxy, level, &text);
    }
}

/// `set server … state`. Returns `false` for an unknown state.
pub(crate) fn set_state(runtime: &Runtime, server: &Arc<Server>, state: &str) -> bool {
    let (set, clear) = match state {
        "ready" => (0, Admin::FORCED_MAINT | Admin::FORCED_DRAIN),
        "drain" => (Admin::FORCED_DRAIN, Admin::FORCED_MAINT),
        "maint" => (Admin::FORCED_MAINT, Admin::FORCED_DRAIN),
        _ => return false,
    };
    let view = runtime.view();
    change(runtime, &view, server, set, clear);
    true
}

/// Sets or clears one administrative flag.
pub(crate) fn set_flag(runtime: &Runtime, server: &Arc<Server>, flag: u32, on: bool) {
    let (set, clear) = if on { (flag, 0) } else { (0, flag) };
    change(runtime, &runtime.view(), server, set, clear);
}

/// The backend of a server.
fn backend<'a>(view: &'a ConfigView, server: &Arc<Server>) -> Option<&'a ProxyView> {
    view.backend(&server.proxy)
}

/// Changes administrative flags, reports the change, and propagates it to servers that track this one.
fn change(runtime: &Runtime, view: &ConfigView, server: &Arc<Server>, set: u32, clear: u32) {
    if let Some(proxy) = backend(view, server) {
        let notify = |proxy: &Proxy, level, text: &str| runtime.report(proxy, level, text);
        transition::administer(&proxy.state, server, set, clear, "", now_ms(), &notify);
    }
}

/// The origin of an administrative change, as logged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AdminOrigin {
    RuntimeSocket,
    StatisticsPage,
    Script,
}

impl AdminOrigin {
    fn text(self) -> &'static str {
        match self {
            Self::RuntimeSocket => ", changed from CLI",
            Self::StatisticsPage => ", changed from Web interface",
            Self::Script => ", changed from Lua script",
        }
    }
}

/// `set server … health`: sets the result of checks. Returns `false` for an unknown word.
pub(crate) fn set_health(runtime: &Runtime, server: &Arc<Server>, health: &str, origin: AdminOrigin) -> bool {
    let full = server.health.rise.load(Relaxed) + server.health.fall.load(Relaxed);
    let (state, level) = match health {
        "up" => (Operational::Running, full.saturating_sub(1)),
        "stopping" => (Operational::Stopping, full.saturating_sub(1)),
        "down" => (Operational::Stopped, 0),
        _ => return false,
    };
    server.health.level.store(level, Relaxed);
    force(runtime, server, state, origin);
    true
}

/// `set server … agent`: sets the agent's status. Returns `false` for an unknown word.
pub(crate) fn set_agent(runtime: &Runtime, server: &Arc<Server>, word: &str, origin: AdminOrigin) -> bool {
    let (state, level) = match word {
        "up" => (Operational::Running, 1),
        "down" => (Operational::Stopped, 0),
        _ => return false,
    };
    server.agent.level.store(level, Relaxed);
    force(runtime, server, state, origin);
    true
}

fn force(runtime: &Runtime, server: &Arc<Server>, state: Operational, origin: AdminOrigin) {
    if let Some(proxy) = backend(&runtime.view(), server) {
        let notify = |proxy: &Proxy, level, text: &str| runtime.report(proxy, level, text);
        transition::decide(&proxy.state, server, state, origin.text(), now_ms(), &notify);
    }
}

/// `disable health`: a server that is not checked is up, unless its agent has reported it down (management manual, `disable
/// health`).
pub(crate) fn disable_checks(runtime: &Runtime, server: &Arc<Server>, origin: AdminOrigin) {
    server.checked.store(false, Relaxed);
    if !server.admin().in_maintenance() && !server.agent_says_down() {
        force(runtime, server, Operational::Running, origin);
    }
}

/// `enable health`.
pub(crate) fn enable_checks(runtime: &Runtime, server: &Arc<Server>, origin: AdminOrigin) {
    if let Some(state) = server.enable_checks() {
        force(runtime, server, state, origin);
    }
}
