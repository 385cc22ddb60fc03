//! `option checkcache`: a response that sets a cookie and may be kept by a cache is refused, so that no session ends
//! up with another user. Called by `exchange` between the rules and our own cookie.

use http::{Head, KnownName, Method};
use plan::Proxy;

use crate::answers::page;
use crate::client::Client;
use crate::evaluate;
use crate::exchange::{Exchange, Stop};
use crate::log::Line;

/// Statuses that a cache may keep without being told to (manual, `option checkcache`).
const CACHEABLE: &[u16] = &[200, 203, 204, 206, 300, 301, 404, 405, 410, 414, 501];

/// Words of `Cache-Control` that keep a response, or its cookie, out of caches.
const SAFE: &[&[u8]] = &[b"private", b"no-cache", b"no-store", b"max-age=0", b"s-maxage=0"];

/// Refuses the response with a 502 where its cookie might be cached, and says so in the log.
pub(crate) fn check(client: &Client, x: &mut Exchange, backend: &Proxy) -> Result<(), Stop> {
    if !is_risky(x.txn.request.method_id(), &x.txn.response) {
        return Ok(());
    }
    evaluate::count_denied_response(client, x, backend);
    let server = x.txn.server.as_ref().map_or("<NOSRV>", |server| &server.name);
    let name = &backend.state.name;
    let text = format!("Blocking cacheable cookie in response from instance {name}, server {server}.");
    const ALERT: u8 = 1;
    let line = Line::own(ALERT, &backend.log_tag, text.as_bytes());
    let worker = &client.worker;
    worker.outbox.borrow_mut().send_all(&worker.shared, &backend.loggers, &line);
    x.txn.termination.set(sample::Cause::Proxy, sample::Phase::Headers);
    page::error(client, x, 502);
    Err(Stop::Reply)
}

/// Whether the response sets a cookie and a cache may keep both.
fn is_risky(method: Method, response: &Head) -> bool {
    if response.get_known(KnownName::SetCookie).is_none() {
        return false;
    }
    let mut public = false;
    for line in response.get_all(&KnownName::CacheControl.into()) {
        for value in http::list_values(line) {
            public |= value.eq_ignore_ascii_case(b"public");
            let named = |safe: &&[u8]| value.eq_ignore_ascii_case(safe);
            // Of the fields that `no-cache` may name only the first matters, as in HAProxy.
            let of_cookie = b"no-cache=\"set-cookie";
            let begins = value.len() >= of_cookie.len()
                && value[..of_cookie.len()].eq_ignore_ascii_case(of_cookie)
                && matches!(value.get(of_cookie.len()), None | Some(b'"' | b','));
            if SAFE.iter().any(named) || begins {
                return false;
            }
        }
    }
    let pragma = response
        .get_all(&http::Name::new(b"pragma"))
        .any(|line| http::list_values(line).any(|value| value.eq_ignore_ascii_case(b"no-cache")));
    if pragma {
        return false;
    }
    let by_default = matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
        && CACHEABLE.contains(&response.status());
    public || by_default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cookies_that_a_cache_might_keep_are_refused() {
        type Fields = &'static [(&'static str, &'static str)];
        let cases: &[(Method, u16, Fields, bool)] = &[
            (Method::Get, 200, &[], true),
            (Method::Get, 302, &[], false),
            (Method::Post, 200, &[], false),
            (Method::Post, 200, &[("cache-control", "public")], true),
            (Method::Get, 302, &[("cache-control", "max-age=5, public")], true),
            (Method::Get, 200, &[("cache-control", "max-age=5")], true),
            (Method::Get, 200, &[("pragma", "no-cache")], false),
            (Method::Get, 200, &[("cache-control", "Private")], false),
            (Method::Get, 200, &[("cache-control", "x, max-age=0")], false),
            (Method::Get, 200, &[("cache-control", "s-maxage=0")], false),
            (Method::Get, 200, &[("cache-control", "no-cache=\"set-cookie\"")], false),
            (Method::Get, 200, &[("cache-control", "no-cache=\"set-cookie, x\"")], false),
            (Method::Get, 200, &[("cache-control", "no-cache=\"x\"")], true),
        ];
        for (method, status, fields, wanted) in cases {
            let mut head = Head::new();
            head.start_response(*status, None);
            head.append(b"set-cookie", b"sid=1");
            for (name, value) in *fields {
                head.append(name.as_bytes(), value.as_bytes());
            }
            assert_eq!(is_risky(*method, &head), *wanted, "{method:?} {status} {fields:?}");
        }
        let mut head = Head::new();
        head.start_response(200, None);
        assert!(!is_risky(Method::Get, &head), "no cookie, no risk");
    }
}
