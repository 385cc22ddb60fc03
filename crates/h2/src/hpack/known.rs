//! The static table (RFC 7541, appendix A), by index and by name.

use fields::{Field, FieldName, NameKind, Pseudo};
use http::KnownName;

const fn pseudo(name: Pseudo, value: &'static str) -> (NameKind, &'static str) {
    (NameKind::Pseudo(name), value)
}

const fn known(name: KnownName) -> (NameKind, &'static str) {
    (NameKind::Known(name), "")
}

/// Entries 1 to 61.
const ENTRIES: [(NameKind, &str); 61] = [
    pseudo(Pseudo::Authority, ""),
    pseudo(Pseudo::Method, "GET"),
    pseudo(Pseudo::Method, "POST"),
    pseudo(Pseudo::Path, "/"),
    pseudo(Pseudo::Path, "/index.html"),
    pseudo(Pseudo::Scheme, "http"),
    pseudo(Pseudo::Scheme, "https"),
    pseudo(Pseudo::Status, "200"),
    pseudo(Pseudo::Status, "204"),
    pseudo(Pseudo::Status, "206"),
    pseudo(Pseudo::Status, "304"),
    pseudo(Pseudo::Status, "400"),
    pseudo(Pseudo::Status, "404"),
    pseudo(Pseudo::Status, "500"),
    known(KnownName::AcceptCharset),
    (NameKind::Known(KnownName::AcceptEncoding), "gzip, deflate"),
    known(KnownName::AcceptLanguage),
    known(KnownName::AcceptRanges),
    known(KnownName::Accept),
    known(KnownName::AccessControlAllowOrigin),
    known(KnownName::Age),
    known(KnownName::Allow),
    known(KnownName::Authorization),
    known(KnownName::CacheControl),
    known(KnownName::ContentDisposition),
    known(KnownName::ContentEncoding),
    known(KnownName::ContentLanguage),
    known(KnownName::ContentLength),
    known(KnownName::ContentLocation),
    known(KnownName::ContentRange),
    known(KnownName::ContentType),
    known(KnownName::Cookie),
    known(KnownName::Date),
    known(KnownName::Etag),
    known(KnownName::Expect),
    known(KnownName::Expires),
    known(KnownName::From),
    known(KnownName::Host),
    known(KnownName::IfMatch),
    known(KnownName::IfModifiedSince),
    known(KnownName::IfNoneMatch),
    known(KnownName::IfRange),
    known(KnownName::IfUnmodifiedSince),
    known(KnownName::LastModified),
    known(KnownName::Link),
    known(KnownName::Location),
    known(KnownName::MaxForwards),
    known(KnownName::ProxyAuthenticate),
    known(KnownName::ProxyAuthorization),
    known(KnownName::Range),
    known(KnownName::Referer),
    known(KnownName::Refresh),
    known(KnownName::RetryAfter),
    known(KnownName::Server),
    known(KnownName::SetCookie),
    known(KnownName::StrictTransportSecurity),
    known(KnownName::TransferEncoding),
    known(KnownName::UserAgent),
    known(KnownName::Vary),
    known(KnownName::Via),
    known(KnownName::WwwAuthenticate),
];

/// The number of entries in the static table.
pub(crate) const COUNT: usize = ENTRIES.len();

/// The entry at index 1 to 61.
#[inline(always)]
pub(crate) fn entry(index: usize) -> Option<(NameKind, &'static [u8])> {
    ENTRIES.get(index.wrapping_sub(1)).map(|(name, value)| (*name, value.as_bytes()))
}

/// The index of each known name, 0 if it has none.
static BY_NAME: [u8; 128] = {
    let mut indices = [0; 128];
    let mut at = COUNT;
    while at > 0 {
        if let NameKind::Known(name) = ENTRIES[at - 1].0 {
            indices[name as usize] = at as u8;
        }
        at -= 1;
    }
    indices
};

/// The index of an entry with this name, 0 if there is none.
#[inline(always)]
pub(crate) fn index_of(name: FieldName<'_>) -> usize {
    match name {
        FieldName::Known(known) => BY_NAME[known as usize] as usize,
        FieldName::Pseudo(Pseudo::Authority) => 1,
        FieldName::Pseudo(Pseudo::Method) => 2,
        FieldName::Pseudo(Pseudo::Path) => 4,
        FieldName::Pseudo(Pseudo::Scheme) => 6,
        FieldName::Pseudo(Pseudo::Status) => 8,
        FieldName::Pseudo(Pseudo::Protocol) | FieldName::Other(_) => 0,
    }
}

/// The index of the entry with this name and value, 0 if there is none. `at` is the result of [`index_of`] for the name.
#[inline(always)]
pub(crate) fn whole(name: FieldName<'_>, value: &[u8], at: usize) -> usize {
    match name {
        FieldName::Pseudo(pseudo) => {
            let mut index = at;
            while let Some((NameKind::Pseudo(named), text)) = entry(index)
                && named == pseudo
            {
                if text == value && !value.is_empty() {
                    return index;
                }
                index += 1;
            }
            0
        }
        FieldName::Known(KnownName::AcceptEncoding) if value == b"gzip, deflate" => at,
        _ => 0,
    }
}

/// The field at an index.
#[inline(always)]
pub(crate) fn field(index: usize) -> Option<Field<'static>> {
    let (name, value) = entry(index)?;
    Some(Field { name: name.name(b""), value, sound: true, never_indexed: false })
}
