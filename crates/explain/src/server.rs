//! The choice of the server: `use-server`, stick tables, cookies, and the balancing algorithm.

use std::sync::atomic::Ordering::Relaxed;

use balance::Algorithm;
use base::raw::text_of;
use plan::ServerSettings;
use plan::proxy::{Proxy, ServerTarget};
use plan::servers::ServerAt;
use runtime::timer::now_ms;
use sample::{Condition, Test, track};
use state::server::{Operational, ServerAddress};
use state::table::{DataType, ServerKey};

use crate::frontend;
use crate::report::Explanation;
use crate::scene::Scene;

/// Runs the rules of the backend and chooses a server. Returns the end of the request.
pub(crate) fn of_backend(scene: &mut Scene<'_>, index: usize, report: &mut Explanation<'_>) -> String {
    let plan = scene.plan;
    let proxy: &Proxy = &plan.proxies[index];
    if index != scene.frontend.index
        && let Some(end) = frontend::of_request(scene, proxy, report)
    {
        return end;
    }
    report.heading("server");
    let is_forced = holds(scene, &proxy.force_persist);
    let persistent = by_rule(scene, proxy, is_forced, report)
        .or_else(|| by_table(scene, proxy, is_forced, report))
        .or_else(|| by_cookie(scene, proxy, is_forced, report));
    let all: Vec<ServerAt<'_>> = proxy.servers.iter().collect();
    all.iter()
        .filter(|server| !server.state.removed.load(Relaxed))
        .for_each(|server| describe(server, report));
    if let Some(index) = persistent {
        return reached(proxy, index);
    }
    by_balance(scene, proxy, report)
}

fn holds(scene: &Scene<'_>, conditions: &[Condition]) -> bool {
    let env = scene.env();
    conditions.iter().any(|condition| condition.explain(&env, false).test == Test::Yes)
}

/// Adds the state of a server.
fn describe(server: &ServerSettings, report: &mut Explanation<'_>) {
    let state = &server.state;
    let (admin, last) = (state.admin(), state.health.last.load());
    let shown = match state.operational() {
        _ if admin.in_maintenance() => "MAINT".to_owned(),
        Operational::Stopped if last.status.is_empty() => "DOWN".to_owned(),
        Operational::Stopped => format!("DOWN ({})", last.status),
        _ if admin.draining() => "DRAIN".to_owned(),
        Operational::Starting | Operational::Running | Operational::Stopping => "UP".to_owned(),
    };
    let backup = if state.backup { ", backup" } else { "" };
    let (serving, limit) = (state.serving(), state.maxconn.load(Relaxed));
    let limit = match (limit, state.fleet_room()) {
        (0, _) => String::new(),
        (limit, None) => format!(" of {limit}"),
        (limit, Some(_)) => {
            format!(" and {} at other members of the fleet, of {limit}", state.elsewhere.load(Relaxed))
        }
    };
    let text = format!(
        "{}  {shown}, weight {}, {serving}{limit} requests{backup}{}",
        state.name,
        state.effective_weight(),
        origin(server)
    );
    report.detail("", &text);
}

/// The source of a discovered server.
fn origin(server: &ServerSettings) -> String {
    let Some(own) = &server.discovered else { return String::new() };
    let (feed, phase) = (&own.feed, own.phase().name());
    let subject = if feed.query.is_empty() { String::new() } else { format!(" ({})", feed.query) };
    let zone = own.zone.as_ref().map_or_else(String::new, |zone| format!(", zone {zone}"));
    format!(", from discovery {}{subject}: {}, {phase}{zone}", feed.section, own.id)
}

/// The text for a request that gets to a server.
fn reached(proxy: &Proxy, index: usize) -> String {
    let Some(server) = proxy.servers.get(index) else { return "no server".into() };
    let address = match &**server.state.address.load() {
        ServerAddress::Ip(address) => format!(" ({address})"),
        ServerAddress::Unix(path) => format!(" ({})", path.display()),
        ServerAddress::Unresolved => " (address not resolved)".to_owned(),
        _ => String::new(),
    };
    format!("sent to {}/{}{address}", proxy.state.name, server.state.name)
}

/// The index of a server if it may be used; otherwise reports why not.
fn usable(
    server: &ServerSettings,
    proxy: &Proxy,
    is_forced: bool,
    report: &mut Explanation<'_>,
) -> Option<usize> {
    let name = &server.state.name;
    if server.state.is_up() || proxy.options.persist || is_forced {
        report.detail("uses", name);
        return Some(server.index);
    }
    report.detail("skip", &format!("{name} is not up"));
    None
}

/// `use-server`.
fn by_rule(scene: &Scene<'_>, proxy: &Proxy, is_forced: bool, report: &mut Explanation<'_>) -> Option<usize> {
    let env = scene.env();
    let lines = report.lines("backend", &proxy.state.name, "use-server");
    for (number, rule) in proxy.use_servers.iter().enumerate() {
        if let Some((section, line)) = lines.get(number) {
            report.heading_of_line(section, line);
        }
        if let Some(condition) = &rule.condition {
            let explained = condition.explain(&env, false);
            report.condition(&explained);
            if explained.test != Test::Yes {
                continue;
            }
        }
        let server = match &rule.target {
            ServerTarget::Fixed(index) => proxy.servers.get(*index),
            ServerTarget::Named(format) if format.has_side_effects() => {
                report.detail("skip", "the name has side effects and is not evaluated");
                continue;
            }
            ServerTarget::Named(format) => {
                let mut name = Vec::new();
                format.render(&env, &mut name);
                let is_it = |server: &ServerAt<'_>| {
                    server.state.name.as_bytes() == name && !server.state.removed.load(Relaxed)
                };
                let found = proxy.servers.iter().find(is_it);
                if found.is_none() {
                    let name = String::from_utf8_lossy(&name);
                    report.detail("ends", &format!("there is no server `{name}`: the search ends"));
                    return None;
                }
                found
            }
        };
        if let Some(found) = server.and_then(|server| usable(&server, proxy, is_forced, report)) {
            return Some(found);
        }
    }
    None
}

/// `stick on`, `stick match`: the server in the table entry of the request's key.
fn by_table(
    scene: &Scene<'_>,
    proxy: &Proxy,
    is_forced: bool,
    report: &mut Explanation<'_>,
) -> Option<usize> {
    let env = scene.env();
    let rules = &proxy.stick.as_deref()?.of_request;
    for rule in rules.iter().filter(|rule| rule.matches) {
        let applies = rule.condition.as_ref().is_none_or(|when| when.explain(&env, false).test == Test::Yes);
        if !applies || rule.key.has_side_effects() {
            continue;
        }
        let (table, shown) = (&rule.table, rule.key.explain(&env));
        let Some(value) = rule.key.eval(&env) else { continue };
        let entry = track::with_key(value, table.settings.kind, |key| {
            let entry = table.find(key, now_ms())?;
            let named = |server: &ServerAt<'_>, text: &str| match table.settings.server_key {
                ServerKey::Name => *server.state.name == *text,
                ServerKey::Address => match &**server.state.address.load() {
                    ServerAddress::Ip(address) => text.parse() == Ok(*address),
                    _ => false,
                },
            };
            let by_key = entry.server_key().and_then(|text| {
                proxy.servers.iter().find(|server| named(server, text)).map(|server| server.index)
            });
            let id = entry.get(DataType::ServerId, 0, 0).filter(|id| *id > 0);
            let by_id = || {
                let id = id?;
                let is_it = |server: &ServerAt<'_>| u64::from(server.state.id) == id;
                proxy.servers.iter().find(is_it).map(|server| server.index)
            };
            by_key.or_else(by_id)
        });
        match entry.flatten().and_then(|index| proxy.servers.get(index)) {
            None => report.detail("", &format!("table `{}`: {shown} has no server", table.name())),
            Some(server) => {
                report.detail(
                    "",
                    &format!("table `{}`: {shown} has server {}", table.name(), server.state.name),
                );
                if let Some(found) = usable(&server, proxy, is_forced, report) {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// The persistence cookie. Its dates are not checked.
fn by_cookie(
    scene: &Scene<'_>,
    proxy: &Proxy,
    is_forced: bool,
    report: &mut Explanation<'_>,
) -> Option<usize> {
    let cookie = proxy.cookie.as_ref()?;
    if holds(scene, &proxy.ignore_persist) {
        report.detail("skip", "`ignore-persist` applies: the cookie is not used");
        return None;
    }
    let is_it = |(name, _): &(&[u8], &[u8])| **name == *cookie.name;
    let shown = text_of(&cookie.name);
    let Some((_, whole)) = scene.transaction.request.cookie_values().find(is_it) else {
        report.detail("", &format!("the request has no cookie `{shown}`"));
        return None;
    };
    let value = whole.split(|&byte| matches!(byte, b'|' | b'~')).next().unwrap_or_default();
    let key = proxy.state.cookie_key();
    let names = |server: &ServerAt<'_>| match (&server.cookie, &key) {
        (Some(own), _) => **own == *value,
        (None, Some(key)) => server.state.dynamic_cookie(key).is_some_and(|own| own.as_bytes() == value),
        (None, None) => false,
    };
    let named: Vec<ServerAt<'_>> = proxy.servers.iter().filter(names).collect();
    let value = text_of(value);
    let Some(server) = named.iter().find(|server| server.state.is_up()).or(named.first()) else {
        report.detail("", &format!("cookie `{shown}`: no server has the value `{value}`"));
        return None;
    };
    report.detail("", &format!("cookie `{shown}`: `{value}` is server {}", server.state.name));
    usable(server, proxy, is_forced, report)
}

/// The balancing algorithm.
fn by_balance(scene: &Scene<'_>, proxy: &Proxy, report: &mut Explanation<'_>) -> String {
    let members = proxy.members();
    let is_pure = !matches!(&proxy.balance.algorithm, Algorithm::Hash(key) if key.has_side_effects());
    let hash = if is_pure { proxy.balance.key_hash(&scene.env()) } else { None };
    let preview = balance::preview(&proxy.balance, &members, hash);
    let name = proxy.balance.algorithm.name();
    let names: Vec<&str> = preview.usable.iter().map(|index| &*members[*index].server.name).collect();
    if names.is_empty() {
        report.detail("", &format!("balance {name}: no server can be used"));
        return "status 503: no server can be used".into();
    }
    if let Some(index) = preview.by_hash {
        let hash = hash.unwrap_or_default();
        report.detail(
            "uses",
            &format!(
                "balance {name}: the key's hash is {hash:#010x}, which leads to {}",
                members[index].server.name
            ),
        );
        return reached(proxy, index);
    }
    if let [only] = preview.usable[..] {
        report.detail("uses", &format!("balance {name}: only {} can be used", names[0]));
        return reached(proxy, only);
    }
    let all = names.join(", ");
    let how = match &proxy.balance.algorithm {
        Algorithm::LeastConn => "the server with the fewest requests for its weight of",
        Algorithm::First => "the first server with a free slot of",
        Algorithm::Random { .. } => "the less loaded of the servers drawn at random from",
        Algorithm::PeakEwma { .. } => "the faster of two servers drawn at random from",
        _ if !is_pure => "the key has side effects and was not evaluated; one of",
        algorithm if algorithm.hashes() => "the request has no key, so in turn:",
        _ => "in turn:",
    };
    report.detail("uses", &format!("balance {name}: {how} {all}"));
    format!("sent to a server of {}: {how} {all}", proxy.state.name)
}
