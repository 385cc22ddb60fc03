//! Chooses the backend (`use_backend`, `default_backend`) and the server by rule (`use-server`), and hashes the key for `balance`.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use balance::key;
use plan::proxy::{BackendTarget, ServerTarget, UseBackend};
use plan::servers::ServerAt;
use plan::{Backends, Proxy};
use runtime::trace::TraceSource;
use sample::{Env, TimeoutSlot};
use state::Mode;
use state::server::ServerAddress;

use crate::client::Client;
use crate::exchange::BoundServer;
use crate::exchange::Exchange;
use crate::exchange::trace;
use crate::exchange::view::{self, holds};
use crate::fault::Fault;
use crate::server::per_worker::LocalProxy;

/// The maximum length of an unknown backend's name that is recorded, in bytes.
const UNKNOWN_NAME: usize = 256;

/// Chooses the backend and counts the session there.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
pub(crate) fn choose(client: &Client, x: &mut Exchange) -> Result<Rc<LocalProxy>, Fault> {
    let frontend = &client.frontend;
    let shared = &client.worker.shared;
    let forced = !frontend.force_be_switch.is_empty()
        && view::with(client, x, |env| frontend.force_be_switch.iter().any(|when| holds(Some(when), env)));
    // Disabled and unpublished backends are skipped, unless the backend is this proxy itself.
    let eligible = |index: usize| {
        let plan = &shared.proxies[index].plan;
        forced || index == frontend.index || !(plan.disabled || plan.state.unpublished.load(Relaxed))
    };
    let mut by_rule = None;
    if !frontend.use_backends.is_empty() {
        by_rule = view::with(client, x, |env| choose_by_rule(frontend, &shared.plan.backends, env, eligible));
    }
    let index = by_rule
        .or(frontend.default_backend.filter(|index| eligible(*index)))
        .ok_or_else(|| no_backend(client, x))?;
    let backend = client.worker.local(index);
    if x.txn.is_http && backend.mode != Mode::Http {
        // A stream that was upgraded to HTTP cannot return to TCP.
        return Err(no_backend(client, x));
    }
    if backend.index != client.frontend.index {
        // Server timeouts set by the frontend's rules are for the backend side of the same proxy.
        for slot in [TimeoutSlot::Server, TimeoutSlot::Connect, TimeoutSlot::Queue, TimeoutSlot::Tunnel] {
            x.txn.timeouts[slot as usize] = None;
        }
        x.txn.max_retries = None;
    }
    client.entry.set_backend(&backend.held);
    x.txn.backend = Some(backend.held.clone());
    x.backend = Some(backend.clone());
    let traffic = &backend.state.backend.mine().traffic;
    traffic.sessions.up();
    traffic.sessions_total.add(1);
    traffic.session_rate.tick(x.txn.times.request / 1000);
    if backend.mode == Mode::Http {
        backend.state.backend.mine().requests_total.add(1);
    }
    Ok(backend)
}

/// Returns the backend of the first `use_backend` rule that matches. If it computes a name at run time that is not the name of a
/// backend, the search ends.
fn choose_by_rule(
    frontend: &Proxy,
    backends: &Backends,
    env: &Env<'_>,
    eligible: impl Fn(usize) -> bool,
) -> Option<usize> {
    let traced = runtime::trace::is_on(TraceSource::Rules) && trace::rules::is_wanted(env);
    let applies = |rule: &&UseBackend| {
        if traced { trace::rules::applies(rule, env) } else { holds(rule.condition.as_ref(), env) }
    };
    for rule in frontend.use_backends.iter().filter(applies) {
        let index = match &rule.target {
            BackendTarget::Fixed(index) => *index,
            BackendTarget::Named(format) => {
                let mut name = Vec::new();
                format.render(env, &mut name);
                backends.get(std::str::from_utf8(&name).ok()?)?
            }
        };
        if eligible(index) {
            return Some(index);
        }
    }
    None
}

/// `use-server`: binds the request to the server of the first rule that matches and has a usable server (with `force-persist` or
/// `option persist`, any server). If a rule computes a name at run time that is not the name of a server, the search ends.
/// Overrides cookies.
pub(crate) fn bind_server(client: &Client, x: &mut Exchange, backend: &LocalProxy) {
    if x.choice.bound.is_some() {
        return;
    }
    if !backend.use_servers.is_empty() {
        x.choice.bound = by_rule(client, x, backend);
    }
    if x.choice.bound.is_none() && backend.rdp_persistence.is_some() {
        x.choice.bound = by_rdp_token(client, x, backend);
    }
}

/// Records that no backend was found, and the name that a rule computed if no backend has it. The log line of such a request has
/// no request time (`%TR`, `%Tq`), because that time ends only when the backend is chosen.
#[cold]
fn no_backend(client: &Client, x: &mut Exchange) -> Fault {
    x.txn.times.request = 0;
    let (rules, backends) = (&client.frontend.use_backends, &client.worker.shared.plan.backends);
    x.txn.unknown_backend = view::with(client, x, |env| {
        let named = rules.iter().find(|rule| {
            matches!(rule.target, BackendTarget::Named(_)) && holds(rule.condition.as_ref(), env)
        })?;
        let BackendTarget::Named(format) = &named.target else { return None };
        let mut name = Vec::new();
        format.render(env, &mut name);
        name.truncate(UNKNOWN_NAME);
        let name = String::from_utf8_lossy(&name);
        backends.get(&name).is_none().then(|| name.into())
    });
    Fault::NoBackend
}

/// Returns the server chosen by `use-server`.
fn by_rule(client: &Client, x: &Exchange, backend: &LocalProxy) -> Option<BoundServer> {
    view::with(client, x, |env| {
        let forced = || backend.force_persist.iter().any(|when| holds(Some(when), env));
        for rule in backend.use_servers.iter().filter(|rule| holds(rule.condition.as_ref(), env)) {
            let place = match &rule.target {
                ServerTarget::Fixed(index) => *index,
                ServerTarget::Named(format) => {
                    let mut name = Vec::new();
                    format.render(env, &mut name);
                    let named = |server: &ServerAt<'_>| {
                        server.state.name.as_bytes() == name && !server.state.removed.load(Relaxed)
                    };
                    backend.servers.iter().find(named)?.index
                }
            };
            let server = backend.server(place)?;
            let up = server.state.is_up();
            if up || backend.options.persist || forced() {
                return Some(BoundServer { server, even_down: !up, again: false });
            }
        }
        None
    })
}

/// Returns the server with the address in the client's RDP cookie.
fn by_rdp_token(client: &Client, x: &Exchange, backend: &LocalProxy) -> Option<BoundServer> {
    let name = backend.rdp_persistence.as_deref()?;
    let token = key::rdp_cookie(x.request_bytes(client), name)?;
    let address = SocketAddr::V4(key::rdp_server(token)?);
    let is_it = |server: &ServerAt<'_>| {
        matches!(&**server.state.address.load(), ServerAddress::Ip(own) if *own == address)
            && !server.state.removed.load(Relaxed)
            && (server.state.is_up() || backend.options.persist)
    };
    let server = backend.server(backend.servers.iter().find(is_it)?.index)?;
    let even_down = !server.state.is_up();
    Some(BoundServer { server, even_down, again: false })
}

/// Returns the hash of this request's key, or `None` if the algorithm uses no key or the request has none.
pub(crate) fn hash(client: &Client, x: &Exchange, backend: &Proxy) -> Option<u32> {
    if !backend.balance.algorithm.hashes() {
        return None;
    }
    view::with(client, x, |env| backend.balance.key_hash(env))
}
