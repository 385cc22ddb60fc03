//! Determines whether caches may store a response (RFC 9111, 3), for `option checkcache` and `cookie … nocache`.

use http::{Head, KnownName, Method, begins_ignore_case};

/// Statuses that are cacheable by default (manual, `option checkcache`).
const CACHEABLE: &[u16] = &[200, 203, 204, 206, 300, 301, 404, 405, 410, 414, 501];

/// Which parts of a response are cacheable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cacheability {
    /// The response.
    pub(crate) response: bool,
    /// The response as a whole, including its cookies.
    pub(crate) cookie: bool,
}

/// Determines the cacheable parts of the response to a `method` request. As in HAProxy, the last directive applies if directives
/// conflict.
pub(crate) fn of(method: Method, response: &Head) -> Cacheability {
    let by_default = matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
        && CACHEABLE.contains(&response.status());
    let mut found = Cacheability { response: by_default, cookie: by_default };
    if response.get_all(&http::Name::new(b"pragma")).any(|line| has(line, b"no-cache")) {
        return Cacheability { response: false, cookie: false };
    }
    let known = |name: KnownName| response.get_known(name).is_some();
    let named = |name: &[u8]| response.get(&http::Name::new(name)).is_some();
    // A response without a validator and without a lifetime is not stored (RFC 9111, 4.2.2 and 4.3).
    let mut lasts = known(KnownName::Etag) || named(b"last-modified") || named(b"expires");
    for line in response.get_all(&KnownName::CacheControl.into()) {
        for value in http::list_values(line) {
            let begins = |word: &[u8]| begins_ignore_case(value, word);
            // As in HAProxy, only the first field in a `no-cache` list matters.
            let of_cookie = b"no-cache=\"set-cookie";
            if value.eq_ignore_ascii_case(b"public") {
                found = Cacheability { response: true, cookie: true };
            } else if begins(of_cookie) && matches!(value.get(of_cookie.len()), None | Some(b'"' | b',')) {
                found.cookie = false;
            } else if begins(b"no-cache") || begins(b"private") || value.eq_ignore_ascii_case(b"no-store") {
                found = Cacheability { response: false, cookie: false };
            } else if [&b"s-maxage=0"[..], b"max-age=0"].iter().any(|none| value.eq_ignore_ascii_case(none)) {
                found.response = false;
            } else if begins(b"s-maxage=") || begins(b"max-age=") {
                lasts = true;
            }
        }
    }
    found.response &= lasts;
    found
}

fn has(line: &[u8], word: &[u8]) -> bool {
    http::list_values(line).any(|value| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cacheability_matches_haproxy() {
        type Fields = &'static [(&'static str, &'static str)];
        const TAG: (&str, &str) = ("etag", "\"a\"");
        let cases: &[(Method, u16, Fields, (bool, bool))] = &[
            (Method::Get, 200, &[], (false, true)),
            (Method::Get, 200, &[TAG], (true, true)),
            (Method::Get, 200, &[("last-modified", "Thu, 01 Jan 2009 00:00:00 GMT")], (true, true)),
            (Method::Get, 200, &[("expires", "0")], (true, true)),
            (Method::Get, 200, &[("cache-control", "max-age=5")], (true, true)),
            (Method::Get, 200, &[("cache-control", "max-age=0")], (false, true)),
            (Method::Get, 200, &[("cache-control", "max-age=0"), TAG], (false, true)),
            (Method::Get, 200, &[("cache-control", "s-maxage=5")], (true, true)),
            (Method::Get, 200, &[("cache-control", "s-maxage=0"), TAG], (false, true)),
            (Method::Get, 200, &[("cache-control", "no-store"), TAG], (false, false)),
            (Method::Get, 200, &[("cache-control", "no-store, public"), TAG], (true, true)),
            (Method::Get, 200, &[("cache-control", "public, no-store"), TAG], (false, false)),
            (Method::Get, 200, &[("cache-control", "Private"), TAG], (false, false)),
            (Method::Get, 200, &[("cache-control", "private=\"x\""), TAG], (false, false)),
            (Method::Get, 200, &[("cache-control", "no-cache=\"x\""), TAG], (false, false)),
            (Method::Get, 200, &[("cache-control", "no-cache=\"set-cookie\""), TAG], (true, false)),
            (Method::Get, 200, &[("cache-control", "no-cache=\"set-cookie, x\""), TAG], (true, false)),
            (Method::Get, 200, &[("pragma", "no-cache"), TAG], (false, false)),
            (Method::Get, 302, &[TAG], (false, false)),
            (Method::Get, 302, &[("cache-control", "public"), TAG], (true, true)),
            (Method::Post, 200, &[TAG], (false, false)),
            (Method::Post, 200, &[("cache-control", "public"), TAG], (true, true)),
            (Method::Head, 404, &[TAG], (true, true)),
            (Method::Get, 308, &[TAG], (false, false)),
        ];
        for (method, status, fields, (response, cookie)) in cases {
            let mut head = Head::new();
            head.start_response(*status, None);
            for (name, value) in *fields {
                head.append(name.as_bytes(), value.as_bytes());
            }
            let wanted = Cacheability { response: *response, cookie: *cookie };
            assert_eq!(of(*method, &head), wanted, "{method:?} {status} {fields:?}");
        }
    }
}
