//! Which backend (`use_backend`, `default_backend`), which server by rule (`use-server`), and the hash of the
//! key that `balance` asks for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use balance::{Algorithm, HashFunction};
use base::hash;
use config::plan::Proxy;
use config::plan::proxy::{BackendTarget, ServerTarget};
use http::{Method, uri};
use sample::condition::{Condition, Test};
use sample::{Endpoint, Env, TimeoutSlot};

use crate::assign::Bound;
use crate::connection::Connection;
use crate::envs;
use crate::exchange::Exchange;
use crate::fault::Fault;

/// Whether a condition holds now; none always does.
pub(crate) fn holds(condition: Option<&Condition>, env: &Env<'_>) -> bool {
    condition.is_none_or(|condition| condition.eval(env) == Test::Yes)
}

/// Chooses the backend and counts the session there.
pub(crate) fn choose(client: &Connection, x: &mut Exchange) -> Result<Arc<Proxy>, Fault> {
    let frontend = &client.frontend;
    let shared = &client.worker.shared;
    let forced = !frontend.force_be_switch.is_empty()
        && envs::with(client, x, |env| frontend.force_be_switch.iter().any(|when| holds(Some(when), env)));
    // Backends that are disabled or unpublished are passed over, but for the proxy's own side.
    let eligible = |index: usize| {
        let plan = &shared.proxies[index].plan;
        forced || index == frontend.index || !(plan.disabled || plan.state.unpublished.load(Relaxed))
    };
    let mut by_rule = None;
    if !frontend.use_backends.is_empty() {
        by_rule = envs::with(client, x, |env| choose_by_rule(frontend, &shared.backends, env, eligible));
    }
    let index =
        by_rule.or(frontend.default_backend.filter(|index| eligible(*index))).ok_or(Fault::NoBackend)?;
    let backend = shared.proxies[index].plan.clone();
    if backend.index != client.frontend.index {
        // What rules of the frontend said about servers held for its own.
        for slot in [TimeoutSlot::Server, TimeoutSlot::Connect, TimeoutSlot::Queue, TimeoutSlot::Tunnel] {
            x.txn.timeouts[slot as usize] = None;
        }
        x.txn.max_retries = None;
    }
    client.entry.set_backend(&backend.state);
    x.txn.backend = Some(backend.state.clone());
    x.backend = Some(backend.clone());
    let traffic = &backend.state.backend.mine().traffic;
    traffic.sessions.up();
    traffic.sessions_total.add(1);
    traffic.session_rate.tick(x.txn.times.request / 1000);
    Ok(backend)
}

/// The backend of the first `use_backend` that holds. A name made at run time that is no backend's ends the search.
fn choose_by_rule(
    frontend: &Proxy,
    backends: &HashMap<Box<str>, usize>,
    env: &Env<'_>,
    eligible: impl Fn(usize) -> bool,
) -> Option<usize> {
    for rule in frontend.use_backends.iter().filter(|rule| holds(rule.condition.as_ref(), env)) {
        let index = match &rule.target {
            BackendTarget::Fixed(index) => *index,
            BackendTarget::Named(format) => {
                let mut name = Vec::new();
                format.render(env, &mut name);
                backends.get(std::str::from_utf8(&name).ok()?).copied()?
            }
        };
        if eligible(index) {
            return Some(index);
        }
    }
    None
}

/// `use-server`, unless persistence has already bound the request.
pub(crate) fn bind_server(client: &Connection, x: &mut Exchange, backend: &Proxy) {
    if x.bound.is_some() || backend.use_servers.is_empty() {
        return;
    }
    let usable = |index: usize| backend.servers[index].state.is_up();
    let found = envs::with(client, x, |env| {
        backend.use_servers.iter().filter(|rule| holds(rule.condition.as_ref(), env)).find_map(|rule| {
            let index = match &rule.target {
                ServerTarget::Fixed(index) => *index,
                ServerTarget::Named(format) => {
                    let mut name = Vec::new();
                    format.render(env, &mut name);
                    backend.servers.iter().position(|server| server.state.name.as_bytes() == name)?
                }
            };
            usable(index).then_some(index)
        })
    });
    x.bound = found.map(|server| Bound { server, even_down: false });
}

/// The hash of this request's key; `None` when the algorithm has none or the request lacks it.
pub(crate) fn hash(client: &Connection, x: &Exchange, backend: &Proxy) -> Option<u32> {
    let settings = &backend.balance;
    let function = |bytes: &[u8]| hash_of(settings, bytes);
    match &settings.algorithm {
        Algorithm::Source => match x.source(client) {
            Endpoint::Ip(address) => Some(hash_address(settings, address.ip().to_canonical())),
            Endpoint::Local => None,
        },
        Algorithm::Uri { length, depth, whole, path_only } => {
            let target = x.txn.request.target();
            let part = uri_part(target, *length, *depth, *whole, *path_only);
            Some(function(part))
        }
        Algorithm::UrlParam { name, check_post } => {
            let query = uri::split(x.txn.request.target()).query();
            let in_query = query.and_then(|query| find_parameter(query, name));
            let in_body = || find_parameter(&x.body, name);
            let posted = *check_post && x.txn.request.method_id() == Method::Post;
            in_query.or_else(|| posted.then(in_body).flatten()).map(function)
        }
        Algorithm::Header { name, domain_only } => {
            let value = x.txn.request.get(name)?;
            let value = if *domain_only { domain(value) } else { value };
            (!value.is_empty()).then(|| function(value))
        }
        Algorithm::RdpCookie { name } => {
            let bytes = client.input.as_ref()?.filled();
            rdp_cookie(bytes, name.as_bytes()).map(function)
        }
        Algorithm::Hash(expression) => {
            let mut key = Vec::new();
            envs::with(client, x, |env| expression.eval_into(env, &mut key)).then(|| function(&key))
        }
        _ => None,
    }
}

fn hash_of(settings: &balance::Settings, bytes: &[u8]) -> u32 {
    let hashed = match settings.hash.function {
        HashFunction::Sdbm => hash::sdbm(bytes),
        HashFunction::Djb2 => hash::djb2(bytes),
        HashFunction::Wt6 => hash::wt6(bytes),
        HashFunction::Crc32 => hash::crc32(bytes),
        HashFunction::None => number(bytes),
    };
    if settings.hash.avalanche { hash::avalanche(hashed) } else { hashed }
}

/// `hash-type … none`: the key is a number already.
fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0u32, |value, digit| value.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')))
}

/// Addresses are hashed as the exclusive or of their 32-bit words.
fn hash_address(settings: &balance::Settings, ip: IpAddr) -> u32 {
    let word = |bytes: &[u8]| bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    let folded = match ip {
        IpAddr::V4(ip) => word(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks(4).map(word).fold(0, |folded, word| folded ^ word),
    };
    if settings.hash.avalanche { hash::avalanche(folded) } else { folded }
}

fn uri_part(
    target: &[u8],
    length: Option<usize>,
    depth: Option<usize>,
    whole: bool,
    path_only: bool,
) -> &[u8] {
    let mut part = target;
    if path_only {
        part = uri::split(target).pathq().unwrap_or(target);
    }
    if !whole {
        let end = part.iter().position(|&byte| byte == b'?').unwrap_or(part.len());
        part = &part[..end];
    }
    if let Some(length) = length.filter(|&length| length > 0) {
        part = &part[..part.len().min(length)];
    }
    if let Some(depth) = depth.filter(|&depth| depth > 0) {
        let mut slashes = part.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        if let Some(end) = slashes.nth(depth) {
            part = &part[..end];
        }
    }
    part
}

fn find_parameter<'a>(query: &'a [u8], name: &str) -> Option<&'a [u8]> {
    query.split(|&byte| byte == b'&' || byte == b';').find_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        (!value.is_empty()).then_some(value)
    })
}

/// The last two labels of a host name but its port: `use_domain_only`.
fn domain(host: &[u8]) -> &[u8] {
    let end = host.iter().position(|&byte| byte == b':').unwrap_or(host.len());
    let host = &host[..end];
    let mut dots = host.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    let _top = dots.next();
    dots.next().map_or(host, |at| &host[at + 1..])
}

/// The value of an RDP connection request's cookie.
pub(crate) fn rdp_cookie<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let cookie = bytes.get(11..)?.strip_prefix(b"Cookie: ")?;
    let (found, rest) = cookie.split_at_checked(name.len())?;
    if !found.eq_ignore_ascii_case(name) {
        return None;
    }
    let value = rest.strip_prefix(b"=")?;
    let end = value.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `len`, `depth`, `whole`, `path-only`, and what is left to be hashed.
    type Case = (Option<usize>, Option<usize>, bool, bool, &'static [u8]);

    #[test]
    fn the_part_of_the_uri_that_is_hashed_follows_its_options() {
        let target = b"http://h/a/b/c?x=1";
        let cases: &[Case] = &[
            (None, None, false, false, b"http://h/a/b/c"),
            (None, None, true, false, target),
            (None, None, false, true, b"/a/b/c"),
            (Some(3), None, false, true, b"/a/"),
            (None, Some(2), false, true, b"/a/b"),
        ];
        for &(length, depth, whole, path_only, wanted) in cases {
            assert_eq!(uri_part(target, length, depth, whole, path_only), wanted);
        }
    }

    #[test]
    fn the_cookie_of_rdp_is_found_behind_its_header() {
        let bytes = b"\x03\0\0\x2b\x26\xe0\0\0\0\0\0Cookie: mstshash=user\r\n\x01";
        assert_eq!(rdp_cookie(bytes, b"mstshash"), Some(b"user".as_slice()));
        assert_eq!(rdp_cookie(bytes, b"other"), None);
        assert_eq!(rdp_cookie(b"short", b"mstshash"), None);
    }

    #[test]
    fn the_domain_of_a_host_is_its_last_two_labels() {
        assert_eq!(domain(b"www.example.com:80"), b"example.com");
        assert_eq!(domain(b"localhost"), b"localhost");
    }
}
