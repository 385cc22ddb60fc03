//! Cookie persistence (configuration manual, 4.2 `cookie`): reads the cookie in requests, and writes it in responses.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{KnownName, Method};
use plan::ServerSettings;
use plan::proxy::{Cookie, CookieOperation};
use plan::servers::ServerAt;

use crate::client::Client;
use crate::exchange::cache::cacheability;
use crate::exchange::view::holds;
use crate::exchange::{BoundServer, CookieServer, Dates, Exchange};
use crate::routing::assign::Lease;
use crate::server::per_worker::{LocalProxy, LocalServer};

/// The digits of dates in cookies. Each stands for six bits; the most significant digit is first.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How far in the future a date may be, in seconds, because the clocks of load balancers differ. A cookie with a later date
/// counts as too old.
const SKEW_MAX: u64 = 24 * 60 * 60;

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the current date in units of four seconds, rounded up.
fn now_units() -> u64 {
    (now_seconds() + 3) >> 2
}

fn write_date(units: u64, out: &mut Vec<u8>) {
    for shift in (0..5).rev() {
        out.push(DIGITS[(units >> (6 * shift)) as usize & 63]);
    }
}

/// Reads the five digits at the beginning of `text`. As in HAProxy, the rest is ignored.
fn read_date(text: &[u8]) -> Option<u64> {
    text.get(..5)?.iter().try_fold(0u64, |units, byte| {
        let digit = DIGITS.iter().position(|digit| digit == byte)?;
        Some(units << 6 | digit as u64)
    })
}

/// Returns the cookie value for `server`: the configured one, or one derived from its address (`dynamic`).
fn value_of(key: Option<&str>, server: &ServerSettings) -> Option<Box<[u8]>> {
    if let Some(value) = &server.cookie {
        return Some(value.clone());
    }
    server.state.dynamic_cookie(key?).map(|value| value.into_bytes().into())
}

fn find_server(backend: &LocalProxy, value: &[u8]) -> Option<Rc<LocalServer>> {
    let by_value = backend.prepared().by_cookie.get(value).copied();
    let here = |server: &ServerSettings| !server.state.removed.load(Relaxed);
    let added = || {
        let named = |server: &ServerAt<'_>| server.cookie.as_deref() == Some(value) && here(server);
        backend.servers.iter_added().find(named).map(|server| server.index)
    };
    let by_value = by_value.filter(|index| backend.servers.get(*index).is_some_and(|server| here(&server)));
    let place = by_value.or_else(added).or_else(|| {
        let key = backend.state.cookie_key()?;
        let named = |server: &ServerAt<'_>| value_of(Some(&key), server).is_some_and(|own| *own == *value);
        backend.servers.iter().find(named).map(|server| server.index)
    });
    backend.server(place?)
}

/// Returns another server that has the same cookie value and is up, if the first one is not.
fn find_other(backend: &LocalProxy, value: &[u8]) -> Option<Rc<LocalServer>> {
    let key = backend.state.cookie_key();
    let serves = |server: &ServerAt<'_>| {
        server.state.is_up()
            && value_of(key.as_ref().map(|key| &***key), server).is_some_and(|own| *own == *value)
    };
    backend.server(backend.servers.iter().find(serves)?.index)
}

/// Reads the persistence cookie, binds the request to the cookie's server, and removes the parts of the request that the server
/// must not see.
pub(crate) fn of_request(client: &Client, x: &mut Exchange, backend: &LocalProxy) {
    capture_of_client(client, x);
    let Some(cookie) = &backend.cookie else { return };
    let ignored = !backend.ignore_persist.is_empty()
        && crate::exchange::view::with(client, x, |env| {
            backend.ignore_persist.iter().any(|one| holds(Some(one), env))
        });
    let forced = !backend.force_persist.is_empty()
        && crate::exchange::view::with(client, x, |env| {
            backend.force_persist.iter().any(|one| holds(Some(one), env))
        });
    x.choice.is_ignored = ignored;
    let name = &*cookie.name;
    x.txn.termination.cookie = b'N';
    // `use-server` takes precedence. The cookie then chooses nothing, and its state is not reported.
    let is_chosen = x.choice.bound.is_some();
    if let Some(chosen) = &x.choice.bound {
        x.choice.cookie = CookieServer::Server(chosen.server.clone());
    }
    let separator = if cookie.operation == CookieOperation::Prefix { b'~' } else { b'|' };
    // If there are several cookies, the first one that names a server is used.
    let names_one = |whole: &&[u8]| {
        let value = whole.split(|&byte| byte == separator).next().unwrap_or_default();
        !value.is_empty() && find_server(backend, value).is_some()
    };
    let all = || x.txn.request.cookie_values().filter(|(own, _)| *own == name).map(|(_, value)| value);
    let Some(whole) = all().find(names_one).or_else(|| all().next()).map(<[u8]>::to_vec) else { return };
    let cut = whole.iter().position(|&byte| byte == separator);
    let (value, rest) = match cut {
        Some(at) => (&whole[..at], Some(&whole[at + 1..])),
        None => (&whole[..], None),
    };
    let dates = rest.filter(|_| cookie.operation != CookieOperation::Prefix);
    x.choice.dates = dates_of(dates);
    let age = age_of(cookie, x.choice.dates, dates.is_some());
    if matches!(age, Age::Idle | Age::Old) {
        // Dates apply only if there is a single cookie.
        x.choice.dates = Dates::default();
    }
    let found = if value.is_empty() { None } else { find_server(backend, value) };
    let mut state = match (age, &found) {
        (Age::Old, _) => b'O',
        (Age::Idle, _) => b'E',
        (_, None) => b'I',
        (_, Some(_)) => b'V',
    };
    if is_chosen || ignored {
        state = b'U';
    }
    if is_chosen {
        // The server was already chosen.
    } else if let Some(server) = found.filter(|_| state == b'V' && !ignored) {
        let stays = server.state.is_up() || forced || backend.options.persist;
        let server = if stays { server } else { find_other(backend, value).unwrap_or(server) };
        let up = server.state.is_up();
        if !up {
            state = b'D';
        }
        if up || forced || backend.options.persist {
            x.choice.bound = Some(BoundServer { server: server.clone(), even_down: !up, again: false });
            x.choice.cookie = CookieServer::Server(server);
        } else {
            x.choice.cookie = CookieServer::Other;
        }
    } else {
        x.choice.cookie = CookieServer::Other;
    }
    x.txn.termination.cookie = state;
    if cookie.operation == CookieOperation::Prefix {
        // If there are several cookies, each has a separate value or none.
        let own = |value: &[u8]| match value.iter().position(|&byte| byte == separator) {
            Some(at) => value[at + 1..].to_vec(),
            None => value.to_vec(),
        };
        x.txn.request.edit_cookies(name, |value| Some(own(value)));
    } else if cookie.operation == CookieOperation::Insert && cookie.indirect {
        x.txn.request.edit_cookies(name, |_| None);
    }
}

/// Reads the persistence cookie of a denied request for the log line: its server, and whether it is valid.
pub(crate) fn of_denied(client: &Client, x: &mut Exchange, backend: &LocalProxy) {
    of_request(client, x, backend);
    if let Some(bound) = &x.choice.bound {
        x.txn.server = Some(bound.server.held.clone());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// No limits.
    Any,
    /// The dates are within the limits.
    Fresh,
    /// Limits are set, but the cookie has no date.
    Unknown,
    /// Unused for longer than `maxidle`.
    Idle,
    /// Older than `maxlife`.
    Old,
}

/// Returns the dates in the cookie: when it was last used and when it was first set.
fn dates_of(dates: Option<&[u8]>) -> Dates {
    let mut parts = dates.unwrap_or_default().split(|&byte| byte == b'|');
    // Zero means no date.
    let date = |text: Option<&[u8]>| text.and_then(read_date).filter(|date| *date > 0);
    Dates { last: date(parts.next()), first: date(parts.next()) }
}

fn age_of(cookie: &Cookie, Dates { last, first }: Dates, dated: bool) -> Age {
    if cookie.max_idle.is_none() && cookie.max_life.is_none() {
        return Age::Any;
    }
    if !dated {
        return Age::Unknown;
    }
    let now = now_seconds();
    let over = |date: Option<u64>, limit: Option<Duration>| match (date, limit) {
        (Some(date), Some(limit)) => {
            let date = date * 4;
            now.saturating_sub(date) > limit.as_secs() || date.saturating_sub(now) > SKEW_MAX
        }
        _ => false,
    };
    if over(first, cookie.max_life) {
        Age::Old
    } else if over(last, cookie.max_idle) {
        Age::Idle
    } else {
        Age::Fresh
    }
}

/// Writes, rewrites or prefixes the cookie in the response.
pub(crate) fn of_response(client: &Client, x: &mut Exchange, backend: &LocalProxy, lease: &Lease) {
    if client.frontend.cookie_capture.is_some() {
        capture(client, x);
    }
    let Some(cookie) = &backend.cookie else { return };
    x.txn.termination.set_cookie = b'N';
    if x.choice.is_ignored {
        // The server's own cookies are forwarded unchanged (`ignore-persist`).
        return;
    }
    if cookie.indirect && cookie.operation != CookieOperation::Insert && x.choice.cookie.names(lease.server())
    {
        // The client's cookie is valid, so the client must not receive another one.
        if edit_set_cookies(x, &cookie.name, |_| None) > 0 {
            x.txn.termination.set_cookie = b'D';
        }
        return;
    }
    let own = lease.server().cookie.is_some();
    let key = if own { None } else { backend.state.cookie_key() };
    let name = &*cookie.name;
    let value = value_of(key.as_ref().map(|key| &***key), lease.server());
    let Some(value) = value else {
        // The server has no cookie value (a backup server, for example), so the client's cookie for another server is removed.
        if cookie.operation == CookieOperation::Insert {
            insert(x, cookie, None, lease.server());
        } else if sets(x, name) {
            x.txn.termination.set_cookie = b'P';
        }
        return;
    };
    match cookie.operation {
        CookieOperation::Passive => {
            if sets(x, name) {
                x.txn.termination.set_cookie = b'P';
            }
        }
        CookieOperation::Rewrite => {
            if edit_set_cookies(x, name, |_| Some(value.to_vec())) > 0 {
                x.txn.termination.set_cookie = b'R';
            }
        }
        CookieOperation::Prefix => {
            let prefixed = |old: &[u8]| Some([&value[..], b"~", old].concat());
            if edit_set_cookies(x, name, prefixed) > 0 {
                x.txn.termination.set_cookie = b'R';
            }
        }
        CookieOperation::Insert => insert(x, cookie, Some(&value), lease.server()),
    }
}

/// Inserts the cookie with `value`, or makes the client delete it.
fn insert(x: &mut Exchange, cookie: &Cookie, value: Option<&[u8]>, server: &LocalServer) {
    let name = &*cookie.name;
    if sets(x, name) {
        if cookie.preserve {
            x.txn.termination.set_cookie = b'P';
            return;
        }
        // The inserted cookie replaces the server's.
        x.txn.termination.set_cookie = b'D';
        edit_set_cookies(x, name, |_| None);
    }
    let known = x.choice.cookie.names(server);
    let post = x.txn.request.method_id() == Method::Post;
    if known && !is_stale(cookie, x.choice.dates) || cookie.postonly && !post {
        return;
    }
    // Cacheability depends on the server's original response.
    let private = cookie.nocache && cacheability::of(x.txn.request.method_id(), &x.txn.response).response;
    let line = match value {
        Some(value) => set_cookie(cookie, value, x.choice.dates),
        None => expiring(cookie),
    };
    x.txn.response.append(b"set-cookie", &line);
    x.txn.termination.set_cookie = if known { b'U' } else { b'I' };
    if private {
        x.txn.response.append(b"cache-control", b"private");
    }
}

/// Whether a cookie with these dates must be set again although it names the correct server.
fn is_stale(cookie: &Cookie, Dates { last, first }: Dates) -> bool {
    let seen_before = last.is_none_or(|last| last * 4 < now_seconds());
    (cookie.max_idle.is_some() || last.is_some()) && seen_before
        || cookie.max_life.is_some() != first.is_some()
}

/// Returns the field value that sets the cookie to `value`, with the dates that the limits require: the current date, and the
/// date when it was first set.
fn set_cookie(cookie: &Cookie, value: &[u8], dates: Dates) -> Vec<u8> {
    let dated = cookie.max_idle.is_some() || cookie.max_life.is_some();
    let mut line = [&*cookie.name, b"=", value].concat();
    if dated {
        line.push(b'|');
        write_date(now_units(), &mut line);
        if cookie.max_life.is_some() {
            line.push(b'|');
            write_date(dates.first.unwrap_or_else(now_units), &mut line);
        }
    }
    end(cookie, line)
}

/// Returns the field value that makes the client delete the cookie. The path and the domain must be the same, because they
/// identify the cookie.
fn expiring(cookie: &Cookie) -> Vec<u8> {
    end(cookie, [&*cookie.name, b"=; Expires=Thu, 01-Jan-1970 00:00:01 GMT"].concat())
}

/// Appends the configured attributes of the cookie.
fn end(cookie: &Cookie, mut line: Vec<u8>) -> Vec<u8> {
    line.extend_from_slice(b"; path=/");
    for domain in &cookie.domains {
        line.extend_from_slice(b"; domain=");
        line.extend_from_slice(domain);
    }
    if cookie.httponly {
        line.extend_from_slice(b"; HttpOnly");
    }
    if cookie.secure {
        line.extend_from_slice(b"; Secure");
    }
    for attribute in &cookie.attributes {
        line.extend_from_slice(b"; ");
        line.extend_from_slice(attribute);
    }
    line
}

/// Whether the server sets the cookie itself.
fn sets(x: &Exchange, name: &[u8]) -> bool {
    x.txn.response.get_all(&KnownName::SetCookie.into()).any(|line| {
        http::cookie::set_cookies(line).next().is_some_and(|pair| line[pair.name.clone()] == *name)
    })
}

/// Changes or removes the value of each `Set-Cookie` for `name`. Returns how many there were.
fn edit_set_cookies(x: &mut Exchange, name: &[u8], edit: impl Fn(&[u8]) -> Option<Vec<u8>>) -> usize {
    let head = &mut x.txn.response;
    let indices: Vec<usize> = head.indices(&KnownName::SetCookie.into()).collect();
    let mut changed = 0;
    for index in indices {
        let Some(line) = head.value_at(index) else { continue };
        let Some(pair) = http::cookie::set_cookies(line).next() else { continue };
        if line[pair.name.clone()] != *name {
            continue;
        }
        changed += 1;
        let value = edit(&line[pair.value.clone()]);
        match value {
            Some(value) => {
                head.splice_value_at(index, pair.value, &value);
            }
            None => {
                head.remove_at(index);
            }
        }
    }
    changed
}

/// `capture cookie` for the client's cookie. Called after rules that may change it.
fn capture_of_client(client: &Client, x: &mut Exchange) {
    let Some(cookie) = &client.frontend.cookie_capture else { return };
    let wanted = &*cookie.name;
    let found = x.txn.request.cookie_values().find_map(|(name, value)| {
        let fits = if cookie.prefix { name.starts_with(wanted) } else { name == wanted };
        fits.then(|| [name, b"=", value].concat())
    });
    if let Some(mut pair) = found {
        pair.truncate(cookie.length);
        x.txn.cookie_captures[0] = x.txn.keep(&pair);
    }
}

/// `capture cookie` for the server's cookie.
fn capture(client: &Client, x: &mut Exchange) {
    let frontend = &client.frontend;
    if let Some(cookie) = &frontend.cookie_capture {
        let wanted = &*cookie.name;
        let found = x.txn.response.get_all(&KnownName::SetCookie.into()).find_map(|line| {
            let pair = http::cookie::set_cookies(line).next()?;
            let name = &line[pair.name.clone()];
            let fits = if cookie.prefix { name.starts_with(wanted) } else { name == wanted };
            fits.then(|| [name, b"=", &line[pair.value.clone()]].concat())
        });
        if let Some(mut pair) = found {
            pair.truncate(cookie.length);
            x.txn.cookie_captures[1] = x.txn.keep(&pair);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip() {
        for units in [0, 1, 63, 64, 439_000_000] {
            let mut text = Vec::new();
            write_date(units, &mut text);
            assert_eq!(read_date(&text), Some(units));
        }
        assert_eq!(read_date(b"AAAA"), None);
        assert_eq!(read_date(b"AAAA!"), None);
        assert_eq!(read_date(b"AAABAx"), Some(64));
    }
}
