//! Conditional requests (RFC 9110, 13): whether the client already has the stored response.

use http::{Head, KnownName};

/// Whether the conditions of `request` show that the client has the stored response, with this head and last modified at `modified`
/// (in seconds since 1970). `If-None-Match` takes precedence over `If-Modified-Since` (RFC 9110, 13.2.2).
pub fn is_unchanged(request: &Head, kept: &Head, modified: i64) -> bool {
    if request.get_known(KnownName::IfNoneMatch).is_some() {
        let own = kept.get_known(KnownName::Etag).map(opaque);
        let matches = |value: &[u8]| value == b"*" || own.is_some() && own == Some(opaque(value));
        return request.any_value(&KnownName::IfNoneMatch.into(), matches);
    }
    let since = request.get_known(KnownName::IfModifiedSince).and_then(http::date::parse);
    since.is_some_and(|since| modified <= since)
}

/// Returns a tag without its weakness prefix, for weak comparison (RFC 9110, 8.8.3.2).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}
