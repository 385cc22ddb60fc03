//! The `stick …` rules (configuration manual, 4.2): they choose the server that a stick table contains for a key, and store the
//! server that served a request.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use plan::proxy::{StickRule, StickRules};
use plan::servers::ServerAt;
use runtime::timer::now_ms;
use sample::{Env, Scratch, track};
use state::server::ServerAddress;
use state::table::{DataType, ServerKey, Table, TableEntry};

use crate::client::Client;
use crate::exchange::view::{self, holds};
use crate::exchange::{BoundServer, CookieServer, Exchange};
use crate::server::Upstream;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// The maximum number of keys stored per request.
const MOST: usize = 8;

/// Chooses the server of the first key that is known, unless a server is already chosen. Also records the keys to store.
pub(crate) fn of_request(client: &Client, x: &mut Exchange, backend: &LocalProxy) {
    if let Some(rules) = &backend.stick {
        look(client, x, backend, rules);
    }
}

fn look(client: &Client, x: &mut Exchange, backend: &LocalProxy, rules: &StickRules) {
    for (number, rule) in rules.of_request.iter().enumerate() {
        // If several rules use the same table, only the first one stores a key.
        if rule.stores && is_kept(x, rules, rule) {
            continue;
        }
        let Some(key) = view::with(client, x, |env| key_of(rule, env)) else { continue };
        if rule.matches
            && let Some(entry) = rule.table.find(&key, now_ms())
        {
            if x.choice.bound.is_none() {
                x.choice.bound = server_of(client, x, backend, &entry);
                if let Some(bound) = &x.choice.bound {
                    // The client needs no cookie for this server.
                    x.choice.cookie = CookieServer::Server(bound.server.clone());
                }
            }
            entry.touch(now_ms());
        }
        if rule.stores && x.sticky.len() < MOST {
            x.sticky.push((number, key));
        }
    }
}

fn is_kept(x: &Exchange, rules: &StickRules, rule: &StickRule) -> bool {
    let table = |number: usize| rule_at(rules, number).map(|other| other.table.number);
    x.sticky.iter().any(|(number, _)| table(*number) == Some(rule.table.number))
}

/// Returns the rule with this number. Response rules are numbered after request rules.
fn rule_at(rules: &StickRules, number: usize) -> Option<&StickRule> {
    rules.of_request.iter().chain(&rules.of_response).nth(number)
}

/// Returns the key that a rule computes, if its condition holds.
fn key_of(rule: &StickRule, env: &Env<'_>) -> Option<Scratch> {
    if !holds(rule.condition.as_ref(), env) {
        return None;
    }
    let value = rule.key.eval(env)?;
    track::with_key(value, rule.table.settings.kind, Scratch::copy)
}

/// Returns the server in an entry, if it is usable.
fn server_of(
    client: &Client,
    x: &Exchange,
    backend: &LocalProxy,
    entry: &TableEntry<'_>,
) -> Option<BoundServer> {
    let here = |server: &ServerAt<'_>| !server.state.removed.load(Relaxed);
    let by_key = entry.server_key().and_then(|key| {
        let is_it = |server: &ServerAt<'_>| {
            here(server) && is_named(entry.table().settings.server_key, &server.state, key)
        };
        backend.servers.iter().find(is_it)
    });
    let by_number = || {
        let id = entry.get(DataType::ServerId, 0, 0).filter(|id| *id > 0)?;
        backend.servers.iter().find(|server| here(server) && u64::from(server.state.id) == id)
    };
    let server = backend.server(by_key.or_else(by_number)?.index)?;
    let up = server.state.is_up();
    let forced =
        || view::with(client, x, |env| backend.force_persist.iter().any(|when| holds(Some(when), env)));
    (up || backend.options.persist || forced()).then(|| BoundServer { server, even_down: !up, again: false })
}

fn is_named(by: ServerKey, server: &state::Server, key: &str) -> bool {
    match by {
        ServerKey::Name => *server.name == *key,
        ServerKey::Address => match &**server.address.load() {
            ServerAddress::Ip(address) => key.parse() == Ok(*address),
            _ => false,
        },
    }
}

/// Stores the server in the entries of all keys, including keys from the response.
pub(crate) fn of_response(client: &Client, x: &mut Exchange, backend: &LocalProxy, server: &Rc<LocalServer>) {
    let Some(rules) = &backend.stick else { return };
    for (number, rule) in (rules.of_request.len()..).zip(&rules.of_response) {
        if x.sticky.len() < MOST
            && !is_kept(x, rules, rule)
            && let Some(key) = view::with(client, x, |env| key_of(rule, env))
        {
            x.sticky.push((number, key));
        }
    }
    note(x, rules, server);
}

/// Stores the server of a TCP stream. Keys may come from the server's first bytes.
pub(crate) fn of_stream(
    client: &Client,
    x: &mut Exchange,
    backend: &LocalProxy,
    server: &Rc<LocalServer>,
    upstream: &Upstream,
) {
    let Some(rules) = &backend.stick else { return };
    for (number, rule) in (rules.of_request.len()..).zip(&rules.of_response) {
        if x.sticky.len() < MOST && !is_kept(x, rules, rule) {
            let key = view::with(client, x, |env| {
                let env = Env { response_bytes: upstream.received(), may_change: false.into(), ..*env };
                key_of(rule, &env)
            });
            x.sticky.extend(key.map(|key| (number, key)));
        }
    }
    note(x, rules, server);
}

fn note(x: &mut Exchange, rules: &StickRules, server: &LocalServer) {
    if !server.non_stick {
        for (number, key) in &x.sticky {
            if let Some(rule) = rule_at(rules, *number) {
                enter(&rule.table, key, server);
            }
        }
    }
    x.sticky.clear();
}

/// Stores a server in a key's entry.
fn enter(table: &Table, key: &[u8], server: &LocalServer) {
    let now = now_ms();
    let Some(entry) = table.get(key, now) else { return };
    entry.set(DataType::ServerId, 0, server.state.id.into(), now);
    let by = table.settings.server_key;
    // Usually the entry already contains this server.
    if !entry.server_key().is_some_and(|key| is_named(by, &server.state, key)) {
        match by {
            ServerKey::Name => entry.set_server_key(&server.state.name),
            ServerKey::Address => {
                if let ServerAddress::Ip(address) = &**server.state.address.load() {
                    entry.set_server_key(&address.to_string());
                }
            }
        }
    }
    entry.touch(now);
}
