//! Field names: pseudo-fields, names that [`http`] has numbers for, and all others.

use http::KnownName;

/// A field's name. Names with a number are compared without their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldName<'a> {
    /// A defined pseudo-field.
    Pseudo(Pseudo),
    /// A name with a number, received in lower case.
    Known(KnownName),
    /// Any other bytes, including known names that contain upper-case letters.
    Other(&'a [u8]),
}

impl<'a> FieldName<'a> {
    /// The bytes of the name.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            FieldName::Pseudo(pseudo) => pseudo.text(),
            FieldName::Known(known) => known.text(),
            FieldName::Other(bytes) => bytes,
        }
    }

    /// The kind of the name, and the bytes of a name without a number, as tables store them.
    #[inline(always)]
    #[must_use]
    pub fn split(self) -> (NameKind, &'a [u8]) {
        match self {
            FieldName::Pseudo(pseudo) => (NameKind::Pseudo(pseudo), b""),
            FieldName::Known(known) => (NameKind::Known(known), b""),
            FieldName::Other(name) => (NameKind::Other, name),
        }
    }
}

/// Pseudo-fields (RFC 9113 section 8.3, RFC 8441 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of the RFC")]
pub enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Status,
    Protocol,
}

const PSEUDO: [Pseudo; 6] =
    [Pseudo::Method, Pseudo::Scheme, Pseudo::Authority, Pseudo::Path, Pseudo::Status, Pseudo::Protocol];

impl Pseudo {
    /// The name, including the colon.
    #[must_use]
    pub fn text(self) -> &'static [u8] {
        match self {
            Pseudo::Method => b":method",
            Pseudo::Scheme => b":scheme",
            Pseudo::Authority => b":authority",
            Pseudo::Path => b":path",
            Pseudo::Status => b":status",
            Pseudo::Protocol => b":protocol",
        }
    }
}

/// The name of a table entry, without the bytes of an unknown name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A defined pseudo-field.
    Pseudo(Pseudo),
    /// A name with a number.
    Known(KnownName),
    /// Any other name. The table stores its bytes.
    Other,
}

impl NameKind {
    /// Classifies a name. Only lower-case bytes match pseudo-fields and known names.
    #[must_use]
    pub fn of(name: &[u8]) -> NameKind {
        if name.first() == Some(&b':') {
            let pseudo = PSEUDO.iter().find(|pseudo| pseudo.text() == name);
            return pseudo.map_or(NameKind::Other, |pseudo| NameKind::Pseudo(*pseudo));
        }
        let known = KnownName::from_token(name);
        if known != KnownName::Other && known.text() == name {
            NameKind::Known(known)
        } else {
            NameKind::Other
        }
    }

    /// The text of a pseudo-field or known name; empty for others.
    #[must_use]
    pub fn text(self) -> &'static [u8] {
        match self {
            NameKind::Pseudo(pseudo) => pseudo.text(),
            NameKind::Known(known) => known.text(),
            NameKind::Other => b"",
        }
    }

    /// The name. For [`NameKind::Other`], it consists of `bytes`.
    #[inline(always)]
    #[must_use]
    pub fn name<'a>(self, bytes: &'a [u8]) -> FieldName<'a> {
        match self {
            NameKind::Pseudo(pseudo) => FieldName::Pseudo(pseudo),
            NameKind::Known(known) => FieldName::Known(known),
            NameKind::Other => FieldName::Other(bytes),
        }
    }
}
