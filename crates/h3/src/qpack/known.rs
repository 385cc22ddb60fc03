//! The static table (RFC 9204, appendix A), by index and by name.

use fields::{Field, FieldName, NameKind, Pseudo};
use http::KnownName;

/// An entry: the kind of its name, the text of a name without a number, and the value.
type StaticEntry = (NameKind, &'static str, &'static str);

const fn pseudo(name: Pseudo, value: &'static str) -> StaticEntry {
    (NameKind::Pseudo(name), "", value)
}

const fn known(name: KnownName, value: &'static str) -> StaticEntry {
    (NameKind::Known(name), "", value)
}

const fn other(name: &'static str, value: &'static str) -> StaticEntry {
    (NameKind::Other, name, value)
}

/// Entries 0 to 98.
const ENTRIES: [StaticEntry; 99] = [
    pseudo(Pseudo::Authority, ""),
    pseudo(Pseudo::Path, "/"),
    known(KnownName::Age, "0"),
    known(KnownName::ContentDisposition, ""),
    known(KnownName::ContentLength, "0"),
    known(KnownName::Cookie, ""),
    known(KnownName::Date, ""),
    known(KnownName::Etag, ""),
    known(KnownName::IfModifiedSince, ""),
    known(KnownName::IfNoneMatch, ""),
    known(KnownName::LastModified, ""),
    known(KnownName::Link, ""),
    known(KnownName::Location, ""),
    known(KnownName::Referer, ""),
    known(KnownName::SetCookie, ""),
    pseudo(Pseudo::Method, "CONNECT"),
    pseudo(Pseudo::Method, "DELETE"),
    pseudo(Pseudo::Method, "GET"),
    pseudo(Pseudo::Method, "HEAD"),
    pseudo(Pseudo::Method, "OPTIONS"),
    pseudo(Pseudo::Method, "POST"),
    pseudo(Pseudo::Method, "PUT"),
    pseudo(Pseudo::Scheme, "http"),
    pseudo(Pseudo::Scheme, "https"),
    pseudo(Pseudo::Status, "103"),
    pseudo(Pseudo::Status, "200"),
    pseudo(Pseudo::Status, "304"),
    pseudo(Pseudo::Status, "404"),
    pseudo(Pseudo::Status, "503"),
    known(KnownName::Accept, "*/*"),
    known(KnownName::Accept, "application/dns-message"),
    known(KnownName::AcceptEncoding, "gzip, deflate, br"),
    known(KnownName::AcceptRanges, "bytes"),
    other("access-control-allow-headers", "cache-control"),
    other("access-control-allow-headers", "content-type"),
    known(KnownName::AccessControlAllowOrigin, "*"),
    known(KnownName::CacheControl, "max-age=0"),
    known(KnownName::CacheControl, "max-age=2592000"),
    known(KnownName::CacheControl, "max-age=604800"),
    known(KnownName::CacheControl, "no-cache"),
    known(KnownName::CacheControl, "no-store"),
    known(KnownName::CacheControl, "public, max-age=31536000"),
    known(KnownName::ContentEncoding, "br"),
    known(KnownName::ContentEncoding, "gzip"),
    known(KnownName::ContentType, "application/dns-message"),
    known(KnownName::ContentType, "application/javascript"),
    known(KnownName::ContentType, "application/json"),
    known(KnownName::ContentType, "application/x-www-form-urlencoded"),
    known(KnownName::ContentType, "image/gif"),
    known(KnownName::ContentType, "image/jpeg"),
    known(KnownName::ContentType, "image/png"),
    known(KnownName::ContentType, "text/css"),
    known(KnownName::ContentType, "text/html; charset=utf-8"),
    known(KnownName::ContentType, "text/plain"),
    known(KnownName::ContentType, "text/plain;charset=utf-8"),
    known(KnownName::Range, "bytes=0-"),
    known(KnownName::StrictTransportSecurity, "max-age=31536000"),
    known(KnownName::StrictTransportSecurity, "max-age=31536000; includesubdomains"),
    known(KnownName::StrictTransportSecurity, "max-age=31536000; includesubdomains; preload"),
    known(KnownName::Vary, "accept-encoding"),
    known(KnownName::Vary, "origin"),
    other("x-content-type-options", "nosniff"),
    other("x-xss-protection", "1; mode=block"),
    pseudo(Pseudo::Status, "100"),
    pseudo(Pseudo::Status, "204"),
    pseudo(Pseudo::Status, "206"),
    pseudo(Pseudo::Status, "302"),
    pseudo(Pseudo::Status, "400"),
    pseudo(Pseudo::Status, "403"),
    pseudo(Pseudo::Status, "421"),
    pseudo(Pseudo::Status, "425"),
    pseudo(Pseudo::Status, "500"),
    known(KnownName::AcceptLanguage, ""),
    other("access-control-allow-credentials", "FALSE"),
    other("access-control-allow-credentials", "TRUE"),
    other("access-control-allow-headers", "*"),
    other("access-control-allow-methods", "get"),
    other("access-control-allow-methods", "get, post, options"),
    other("access-control-allow-methods", "options"),
    other("access-control-expose-headers", "content-length"),
    other("access-control-request-headers", "content-type"),
    other("access-control-request-method", "get"),
    other("access-control-request-method", "post"),
    known(KnownName::AltSvc, "clear"),
    known(KnownName::Authorization, ""),
    known(KnownName::ContentSecurityPolicy, "script-src 'none'; object-src 'none'; base-uri 'none'"),
    known(KnownName::EarlyData, "1"),
    other("expect-ct", ""),
    known(KnownName::Forwarded, ""),
    known(KnownName::IfRange, ""),
    known(KnownName::Origin, ""),
    other("purpose", "prefetch"),
    known(KnownName::Server, ""),
    other("timing-allow-origin", "*"),
    known(KnownName::UpgradeInsecureRequests, "1"),
    known(KnownName::UserAgent, ""),
    known(KnownName::XForwardedFor, ""),
    other("x-frame-options", "deny"),
    other("x-frame-options", "sameorigin"),
];

/// No entry.
pub(crate) const NONE: usize = 255;

/// The field at an index.
#[inline(always)]
pub(crate) fn field(index: usize) -> Option<Field<'static>> {
    let (kind, name, value) = ENTRIES.get(index)?;
    let name = kind.name(name.as_bytes());
    Some(Field { name, value: value.as_bytes(), sound: true, never_indexed: false })
}

/// The name at an index: its kind, and its text if it has no number.
#[inline(always)]
pub(crate) fn name(index: usize) -> Option<(NameKind, &'static [u8])> {
    ENTRIES.get(index).map(|entry| (entry.0, entry.1.as_bytes()))
}

const fn is_same_text(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

const fn is_same_name(one: &StaticEntry, two: &StaticEntry) -> bool {
    match (one.0, two.0) {
        (NameKind::Pseudo(a), NameKind::Pseudo(b)) => a as u8 == b as u8,
        (NameKind::Known(a), NameKind::Known(b)) => a as u8 == b as u8,
        (NameKind::Other, NameKind::Other) => is_same_text(one.1, two.1),
        _ => false,
    }
}

/// The next entry with the same name.
static NEXT: [u8; ENTRIES.len()] = {
    let mut next = [NONE as u8; ENTRIES.len()];
    let mut at = 0;
    while at < ENTRIES.len() {
        let mut after = at + 1;
        while after < ENTRIES.len() && next[at] == NONE as u8 {
            if is_same_name(&ENTRIES[at], &ENTRIES[after]) {
                next[at] = after as u8;
            }
            after += 1;
        }
        at += 1;
    }
    next
};

/// The first entry of each known name.
static BY_NAME: [u8; 128] = {
    let mut first = [NONE as u8; 128];
    let mut at = ENTRIES.len();
    while at > 0 {
        at -= 1;
        if let NameKind::Known(name) = ENTRIES[at].0 {
            first[name as usize] = at as u8;
        }
    }
    first
};

/// The first entries of names without a number.
const OTHERS: [usize; 12] = [33, 61, 62, 73, 76, 79, 80, 81, 87, 91, 93, 97];

/// The index of the first entry with this name, or [`NONE`].
#[inline(always)]
pub(crate) fn index_of(name: FieldName<'_>) -> usize {
    match name {
        FieldName::Known(known) => BY_NAME[known as usize] as usize,
        FieldName::Pseudo(Pseudo::Authority) => 0,
        FieldName::Pseudo(Pseudo::Path) => 1,
        FieldName::Pseudo(Pseudo::Method) => 15,
        FieldName::Pseudo(Pseudo::Scheme) => 22,
        FieldName::Pseudo(Pseudo::Status) => 24,
        FieldName::Pseudo(Pseudo::Protocol) => NONE,
        FieldName::Other(bytes) => {
            let is_it = |index: &usize| ENTRIES[*index].1.as_bytes().eq_ignore_ascii_case(bytes);
            OTHERS.into_iter().find(is_it).unwrap_or(NONE)
        }
    }
}

/// The index of the entry with this value among those with the same name, or [`NONE`]. `at` is the result of [`index_of`].
#[inline(always)]
pub(crate) fn whole(at: usize, value: &[u8]) -> usize {
    let mut index = at;
    while index != NONE && ENTRIES[index].2.as_bytes() != value {
        index = NEXT[index] as usize;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_name_and_value() {
        for index in 0..ENTRIES.len() {
            let field = field(index).unwrap();
            let first = index_of(field.name);
            assert!(first <= index, "{index}");
            assert_eq!(whole(first, field.value), index);
            assert_eq!(whole(first, b"another value"), NONE);
            let text = field.name.bytes();
            assert_eq!(NameKind::of(text).name(text), field.name, "a name with a number goes by it");
        }
        assert_eq!((index_of(FieldName::Other(b"x-own")), name(99)), (NONE, None));
        assert_eq!(index_of(FieldName::Other(b"X-Frame-Options")), 97);
    }
}
