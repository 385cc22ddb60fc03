//! Requests for the statistics page (configuration manual, `stats enable` and `stats admin`): forms change servers, and
//! `statistics` renders everything else. `proxy` matches the URI, authenticates and sends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use runtime::{shard, worker};
use state::sessions::{self, Kill};
use state::{Admin, Server};
use statistics::ProxyView;
use statistics::page::{self, ActionOutcome, PageRequest, PageResponse, PageSettings, decode};

use crate::admin::{self, AdminOrigin};
use crate::process::Runtime;

/// Responds to a request for the page. A POST changes servers and redirects to the page, any other method shows it.
pub fn respond(runtime: &Arc<Runtime>, settings: &PageSettings, request: &PageRequest<'_>) -> PageResponse {
    if request.method == http::Method::Post {
        return page::redirect(settings, request, act(runtime, settings, request));
    }
    page::show(&runtime.statistics, settings, request)
}

/// An action: its name in forms and its function, which returns whether there was anything to do.
struct FormAction(&'static str, fn(&Arc<Runtime>, &ProxyView, &Arc<Server>) -> bool);

/// All actions, including the actions of older pages.
#[rustfmt::skip]
const ACTIONS: &[FormAction] = &[
    FormAction("ready",    |runtime, _, server| admin::set_state(runtime, server, "ready")),
    FormAction("drain",    |runtime, _, server| admin::set_state(runtime, server, "drain")),
    FormAction("maint",    |runtime, _, server| admin::set_state(runtime, server, "maint")),
    FormAction("disable",  |runtime, _, server| mark(runtime, server, Admin::FORCED_MAINT, true)),
    FormAction("enable",   |runtime, _, server| mark(runtime, server, Admin::FORCED_MAINT, false)),
    FormAction("stop",     |runtime, _, server| mark(runtime, server, Admin::FORCED_DRAIN, true)),
    FormAction("start",    |runtime, _, server| mark(runtime, server, Admin::FORCED_DRAIN, false)),
    FormAction("dhlth",    |runtime, _, server| checks(runtime, server, false)),
    FormAction("ehlth",    |runtime, _, server| checks(runtime, server, true)),
    FormAction("hrunn",    |runtime, _, server| health(runtime, server, "up")),
    FormAction("hnolb",    |runtime, _, server| health(runtime, server, "stopping")),
    FormAction("hdown",    |runtime, _, server| health(runtime, server, "down")),
    FormAction("dagent",   |_, _, server| agent(server, false)),
    FormAction("eagent",   |_, _, server| agent(server, true)),
    FormAction("arunn",    |runtime, _, server| answer(runtime, server, "up")),
    FormAction("adown",    |runtime, _, server| answer(runtime, server, "down")),
    FormAction("shutdown", |_, _, server| shut_down(server)),
];

fn mark(runtime: &Runtime, server: &Arc<Server>, flag: u32, on: bool) -> bool {
    if (server.admin().0 & flag != 0) == on {
        return false;
    }
    admin::set_flag(runtime, server, flag, on);
    true
}

fn checks(runtime: &Runtime, server: &Arc<Server>, on: bool) -> bool {
    if !server.health.configured.load(Relaxed) {
        return false;
    }
    if on {
        admin::enable_checks(runtime, server, AdminOrigin::StatisticsPage);
    } else {
        admin::disable_checks(runtime, server, AdminOrigin::StatisticsPage);
    }
    true
}

fn health(runtime: &Runtime, server: &Arc<Server>, state: &str) -> bool {
    server.tracked().is_none() && admin::set_health(runtime, server, state, AdminOrigin::StatisticsPage)
}

fn agent(server: &Server, on: bool) -> bool {
    let configured = server.agent.is_configured();
    if configured {
        server.agent_checked.store(on, Relaxed);
    }
    configured
}

fn answer(runtime: &Runtime, server: &Arc<Server>, word: &str) -> bool {
    server.agent_checked.load(Relaxed) && admin::set_agent(runtime, server, word, AdminOrigin::StatisticsPage)
}

fn shut_down(server: &Arc<Server>) -> bool {
    for index in 0..shard::workers() {
        let server = server.clone();
        worker::post(index, move || {
            sessions::kill_server(Kill::Operator, &server);
        });
    }
    true
}

/// The maximum size of a form.
const MAX_FORM: usize = 64 * 1024;

/// Carries out `s=<server>&…&action=<action>&b=<backend>`.
fn act(runtime: &Arc<Runtime>, settings: &PageSettings, request: &PageRequest<'_>) -> ActionOutcome {
    if !request.admin {
        return ActionOutcome::Deny;
    }
    let Some(body) = request.body.filter(|body| body.len() <= MAX_FORM) else {
        return ActionOutcome::TooLarge;
    };
    let (mut servers, mut action, mut backend) = (Vec::new(), None, None);
    for (name, value) in http::uri::params(body, false, None) {
        let value = decode(&String::from_utf8_lossy(value.unwrap_or_default()));
        match name {
            b"s" => servers.push(value),
            b"action" => action = Some(value),
            b"b" => backend = Some(value),
            _ => {}
        }
    }
    let view = runtime.view();
    let proxy = match &backend {
        None => None,
        Some(name) => {
            let found = view.backend(name);
            let visible = |proxy: &ProxyView| settings.scope.contains(&proxy.state.name);
            // A client that may not see a backend must not learn whether it exists.
            if !settings.scope.is_empty() && !found.is_some_and(visible) {
                return ActionOutcome::Deny;
            }
            match found {
                None => return ActionOutcome::Error,
                found => found,
            }
        }
    };
    let action = match &action {
        None => None,
        Some(name) => match ACTIONS.iter().find(|action| action.0 == name) {
            None => return ActionOutcome::Error,
            found => found,
        },
    };
    let (Some(proxy), Some(FormAction(_, run))) = (proxy, action) else { return ActionOutcome::None };
    let (mut done, mut failed) = (0, 0);
    for name in &servers {
        match proxy.state.server(name).map(|server| run(runtime, proxy, &server)) {
            Some(true) => done += 1,
            // Not counted.
            Some(false) => {}
            None => failed += 1,
        }
    }
    match (done, failed) {
        (0, 0) => ActionOutcome::None,
        (0, _) => ActionOutcome::Error,
        (_, 0) => ActionOutcome::Done,
        _ => ActionOutcome::Part,
    }
}
