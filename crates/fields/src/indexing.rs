//! The choice of fields that enter a dynamic table.

use http::KnownName;

use crate::{FieldName, Pseudo};

/// Cookies shorter than this could be guessed byte by byte by an observer of sizes (RFC 7541 section 7.1.3, RFC 9204 section 7.1.3).
const SHORT_COOKIE: usize = 20;

/// The representation of a field that is in no table: secrets and fields with ever-changing values enter none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// It may be inserted.
    Insert,
    /// It is not worth an entry.
    Plain,
    /// No intermediary may insert it either.
    Never,
}

impl Indexing {
    /// Chooses the representation of a field.
    #[inline(always)]
    #[must_use]
    pub fn of(name: FieldName<'_>, value: &[u8]) -> Indexing {
        match name {
            FieldName::Known(
                KnownName::Authorization | KnownName::ProxyAuthorization | KnownName::SetCookie,
            ) => Indexing::Never,
            FieldName::Known(KnownName::Cookie) if value.len() < SHORT_COOKIE => Indexing::Never,
            FieldName::Known(
                KnownName::Cookie
                | KnownName::ContentLength
                | KnownName::ContentRange
                | KnownName::Etag
                | KnownName::IfModifiedSince
                | KnownName::IfNoneMatch
                | KnownName::LastModified
                | KnownName::Location
                | KnownName::XRequestId
                | KnownName::XUniqueId,
            )
            | FieldName::Pseudo(Pseudo::Path) => Indexing::Plain,
            _ => Indexing::Insert,
        }
    }
}
