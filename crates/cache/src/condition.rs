//! Conditional requests (RFC 9110, 13): whether the client has what is kept.

use http::{Head, KnownName};

/// Whether `request` asks for what is kept, with this head and changed last then (in seconds since
/// 1970), unless it is what the client has, and it is.
/// `If-None-Match` counts before `If-Modified-Since` (RFC 9110, 13.2.2).
pub fn is_unchanged(request: &Head, kept: &Head, modified: i64) -> bool {
    if request.get_known(KnownName::IfNoneMatch).is_some() {
        let own = kept.get_known(KnownName::Etag).map(opaque);
        let matches = |value: &[u8]| value == b"*" || own.is_some() && own == Some(opaque(value));
        return request.any_value(&KnownName::IfNoneMatch.into(), matches);
    }
    let since = request.get_known(KnownName::IfModifiedSince).and_then(http::date::parse);
    since.is_some_and(|since| modified <= since)
}

/// A tag without its weakness: the comparison is the weak one (RFC 9110, 8.8.3.2).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}
