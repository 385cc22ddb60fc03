//! Whether a response may be stored, and how long it is fresh (RFC 9111, 3 and 4.2), with HAProxy's restrictions: status 200, and
//! an explicit lifetime or a validator.

use http::{Head, KnownName};

use crate::settings::CacheSettings;

/// The current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of the monotonic clock.
    pub ms: u64,
    /// The wall-clock time, in seconds since 1970.
    pub wall: i64,
}

/// Maximum lifetime (RFC 9111, 1.2.2), in seconds.
const LONGEST: u32 = 1 << 31;

/// How long a response may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The remaining freshness lifetime, in seconds; not 0.
    pub left: u32,
    /// The age of the response when it was received, in seconds.
    pub age: u32,
    /// The date for `If-Modified-Since`, in seconds since 1970.
    pub modified: i64,
    /// How long the response may be used after its lifetime during a refresh, in seconds.
    pub while_revalidate: u32,
    /// How long the response may be used after errors, in seconds.
    pub if_error: u32,
}

/// The directives in `Cache-Control`.
#[derive(Default)]
struct Directives {
    forbidden: bool,
    is_public: bool,
    shared: Option<u32>,
    lifetime: Option<u32>,
    must_revalidate: bool,
    while_revalidate: Option<u32>,
    if_error: Option<u32>,
}

impl Directives {
    /// Returns how long a stale response may be used: the section's limit, or the server's if that is shorter (RFC 5861).
    /// `s-maxage` forbids it, unless the server explicitly allows it (RFC 9111, 5.2.2.10).
    fn beyond(&self, lifetime: Option<u32>, allowed: u32) -> u32 {
        match lifetime {
            _ if self.must_revalidate => 0,
            Some(lifetime) => lifetime.min(allowed),
            None if self.shared.is_some() => 0,
            None => allowed,
        }
    }
}

impl Lifetime {
    /// Returns the lifetime of a response with this head, limited by the section; `None` if it must not be stored.
    pub fn of(response: &Head, settings: &CacheSettings, now: Now) -> Option<Self> {
        let longest = settings.max_age;
        if response.status() != 200 {
            return None;
        }
        let control = directives(response);
        // A cookie belongs to one user, unless the server declares the response as public.
        let has_cookie = response.get_known(KnownName::SetCookie).is_some();
        if control.forbidden || has_cookie && !control.is_public && control.shared.is_none() {
            return None;
        }
        let no_cache = |value: &[u8]| value.eq_ignore_ascii_case(b"no-cache");
        if response.any_value(&KnownName::Pragma.into(), no_cache) {
            return None;
        }
        let explicit = control.shared.or(control.lifetime).or_else(|| expires(response, now.wall));
        let is_validated = [KnownName::Etag, KnownName::LastModified]
            .into_iter()
            .any(|name| response.get_known(name).is_some());
        if explicit.is_none() && !is_validated {
            return None;
        }
        let age = age(response)?;
        let left = explicit.map_or(longest, |lifetime| lifetime.saturating_sub(age)).min(longest);
        (left > 0).then(|| Self {
            left,
            age,
            modified: modified(response, now.wall),
            while_revalidate: control.beyond(control.while_revalidate, settings.stale_while_revalidate),
            if_error: control.beyond(control.if_error, settings.stale_if_error),
        })
    }
}

fn directives(response: &Head) -> Directives {
    let mut control = Directives::default();
    for value in response.values(&KnownName::CacheControl.into()) {
        let (name, argument) = match value.iter().position(|byte| *byte == b'=') {
            Some(at) => (value[..at].trim_ascii(), Some(&value[at + 1..])),
            None => (value, None),
        };
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        if is(b"no-store") || is(b"no-cache") || is(b"private") {
            control.forbidden = true;
        } else if is(b"public") {
            control.is_public = true;
        } else if is(b"s-maxage") {
            shorten(&mut control.shared, argument);
        } else if is(b"must-revalidate") || is(b"proxy-revalidate") {
            control.must_revalidate = true;
        } else if is(b"stale-while-revalidate") {
            shorten(&mut control.while_revalidate, argument);
        } else if is(b"stale-if-error") {
            shorten(&mut control.if_error, argument);
        } else if is(b"max-age") {
            shorten(&mut control.lifetime, argument);
        }
    }
    control
}

/// If there are several lifetimes, the shortest applies (RFC 9111, 4.2.1).
fn shorten(kept: &mut Option<u32>, argument: Option<&[u8]>) {
    let seconds = seconds(argument.unwrap_or_default()).unwrap_or(0);
    *kept = Some(kept.map_or(seconds, |kept| kept.min(seconds)));
}

/// Parses a number of seconds, with or without quotes; values above the maximum are clamped.
fn seconds(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let longer = |all: u64, digit: &u8| (all * 10 + u64::from(digit - b'0')).min(LONGEST.into());
    u32::try_from(text.iter().fold(0, longer)).ok()
}

/// Returns the lifetime from `Expires`. An invalid date is treated as past (RFC 9111, 5.3).
fn expires(response: &Head, now: i64) -> Option<u32> {
    let text = response.get_known(KnownName::Expires)?;
    let at = http::date::parse(text).unwrap_or(0);
    Some(u32::try_from(at.saturating_sub(now).clamp(0, LONGEST.into())).unwrap_or(LONGEST))
}

/// Returns the value of `Age`; `None` if it is invalid, in which case the age is unknown.
fn age(response: &Head) -> Option<u32> {
    response.get_known(KnownName::Age).map_or(Some(0), seconds)
}

fn modified(response: &Head, now: i64) -> i64 {
    let date = |name| response.get_known(name).and_then(http::date::parse);
    date(KnownName::LastModified).or_else(|| date(KnownName::Date)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { ms: 1, wall: 784_111_777 };

    fn left(fields: &[(&str, &str)]) -> Option<u32> {
        let mut head = Head::new();
        head.start_response(200, None);
        for (name, value) in fields {
            head.append(name.as_bytes(), value.as_bytes());
        }
        Lifetime::of(&head, &CacheSettings::new("c", 1024), NOW).map(|lifetime| lifetime.left)
    }

    #[test]
    fn lifetimes_combine_the_response_and_the_section() {
        const CONTROL: &str = "Cache-Control";
        const TAG: (&str, &str) = ("ETag", "\"a\"");
        type Fields = &'static [(&'static str, &'static str)];
        let cases: &[(Fields, Option<u32>)] = &[
            (&[], None),
            (&[TAG], Some(60)),
            (&[("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(60)),
            (&[(CONTROL, "max-age=5")], Some(5)),
            (&[(CONTROL, "max-age=\"5\"")], Some(5)),
            (&[(CONTROL, "max-age=500")], Some(60)),
            (&[(CONTROL, "max-age=99999999999999999999")], Some(60)),
            (&[(CONTROL, "max-age=0"), TAG], None),
            (&[(CONTROL, "max-age=x"), TAG], None),
            (&[(CONTROL, "max-age=0, s-maxage=5")], Some(5)),
            (&[(CONTROL, "max-age=7, max-age=5")], Some(5)),
            (&[(CONTROL, "max-age=5"), ("Expires", "0")], Some(5)),
            (&[("Expires", "Sun, 06 Nov 1994 08:49:47 GMT")], Some(10)),
            (&[("Expires", "Sun, 06 Nov 1994 08:49:27 GMT"), TAG], None),
            (&[("Expires", "0"), TAG], None),
            (&[(CONTROL, "max-age=500"), ("Age", "450")], Some(50)),
            (&[(CONTROL, "max-age=5"), ("Age", "5")], None),
            (&[(CONTROL, "max-age=5"), ("Age", "abc")], None),
            (&[(CONTROL, "public, no-store"), TAG], None),
            (&[(CONTROL, "Private=\"x\""), TAG], None),
            (&[(CONTROL, "no-cache=\"set-cookie\""), TAG], None),
            (&[("Pragma", "no-cache"), TAG], None),
            (&[("Set-Cookie", "a=b"), (CONTROL, "max-age=5")], None),
            (&[("Set-Cookie", "a=b"), (CONTROL, "public, max-age=5")], Some(5)),
            (&[("Set-Cookie", "a=b"), (CONTROL, "s-maxage=5")], Some(5)),
        ];
        for (fields, wanted) in cases {
            assert_eq!(left(fields), *wanted, "{fields:?}");
        }
    }

    #[test]
    fn stale_use_is_limited_by_server_and_section() {
        let cases: &[(&str, (u32, u32))] = &[
            ("max-age=5", (30, 300)),
            ("max-age=5, stale-while-revalidate=10", (10, 300)),
            ("max-age=5, stale-while-revalidate=99, stale-if-error=0", (30, 0)),
            ("max-age=5, must-revalidate, stale-while-revalidate=10", (0, 0)),
            ("max-age=5, proxy-revalidate", (0, 0)),
            ("s-maxage=5", (0, 0)),
            ("s-maxage=5, stale-if-error=9", (0, 9)),
        ];
        let settings = CacheSettings {
            stale_while_revalidate: 30,
            stale_if_error: 300,
            ..CacheSettings::new("c", 1024)
        };
        for (control, wanted) in cases {
            let mut head = Head::new();
            head.start_response(200, None);
            head.append(b"Cache-Control", control.as_bytes());
            let own = Lifetime::of(&head, &settings, NOW).unwrap();
            assert_eq!((own.while_revalidate, own.if_error), *wanted, "{control}");
        }
    }

    #[test]
    fn other_statuses_are_not_stored() {
        let mut head = Head::new();
        head.start_response(404, None);
        head.append(b"Cache-Control", b"max-age=5");
        assert_eq!(Lifetime::of(&head, &CacheSettings::new("c", 1024), NOW), None);
    }
}
