//! Reads a field section: the part common to requests, responses and trailers.

use http::{Head, KnownName};

use crate::coding::{Field, FieldSource};
use crate::name::{FieldName, Pseudo};
use crate::{Cause, Refusal, Rules};

/// Decodes a section within the limits of `rules`. `pseudo` is called for the pseudo-fields, each at most once and before all other
/// fields, and `field` for the other fields. After the first error, decoding continues without these calls.
pub(crate) fn section<S: FieldSource, T>(
    source: S,
    rules: &Rules,
    reader: &mut T,
    mut pseudo: impl FnMut(&mut T, Pseudo, &[u8]) -> Result<(), Cause>,
    mut field: impl FnMut(&mut T, &Field<'_>) -> Result<(), Cause>,
) -> Result<(), Refusal<S::Error>> {
    let mut limits = Limits { bytes: rules.max_bytes, fields: rules.max_fields, seen: 0, late: false };
    let mut cause = None;
    let decoded = source.decode(&mut |one| {
        let outcome = match one.name {
            FieldName::Pseudo(name) => {
                limits.pseudo(name, one.value).and_then(|()| pseudo(reader, name, one.value))
            }
            _ => limits.field(&one).and_then(|()| field(reader, &one)),
        };
        cause = outcome.err();
        cause.is_none()
    });
    decoded.map_err(Refusal::Coding)?;
    cause.map_or(Ok(()), |cause| Err(cause.into()))
}

/// The remaining budget. Each field is charged before it is stored.
struct Limits {
    bytes: usize,
    fields: usize,
    /// A bit for each pseudo-field that was seen.
    seen: u8,
    /// Whether a regular field was seen.
    late: bool,
}

impl Limits {
    fn take(&mut self, bytes: usize) -> Result<(), Cause> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Cause::TooLarge)?;
        Ok(())
    }

    fn pseudo(&mut self, name: Pseudo, value: &[u8]) -> Result<(), Cause> {
        let bit = 1 << name as u8;
        if self.late {
            return Err(Cause::PseudoLate);
        }
        if self.seen & bit != 0 {
            return Err(Cause::PseudoTwice);
        }
        self.seen |= bit;
        self.take(name.text().len() + value.len() + 4)
    }

    #[inline(always)]
    fn field(&mut self, field: &Field<'_>) -> Result<(), Cause> {
        self.late = true;
        self.fields = self.fields.checked_sub(1).ok_or(Cause::TooMany)?;
        self.take(field.name.bytes().len() + field.value.len() + 4)
    }
}

/// Adds a field to the head, without the whitespace around its value.
#[inline(always)]
pub(crate) fn push(head: &mut Head, field: &Field<'_>) -> Result<(), Cause> {
    let (value, secret) = (trim(field.value), field.never_indexed);
    let pushed = match field.name {
        FieldName::Known(known) if field.sound => {
            head.push_sound(known, value, secret);
            Some(true)
        }
        FieldName::Known(known) => Some(head.push_known(known, value, secret)),
        FieldName::Other(bytes) if bytes.first() == Some(&b':') => return Err(Cause::PseudoUnknown),
        other => head.push_other(other.bytes(), value, secret),
    };
    match pushed {
        Some(true) => Ok(()),
        Some(false) => Err(Cause::Value),
        None => Err(Cause::Name),
    }
}

/// The value without surrounding whitespace. RFC 9113 section 8.2.1 would refuse such a value; HAProxy trims it.
#[inline(always)]
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether a field belongs to an HTTP/1 connection (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
#[inline(always)]
pub(crate) fn is_connection_specific(name: KnownName) -> bool {
    matches!(
        name,
        KnownName::Connection
            | KnownName::KeepAlive
            | KnownName::ProxyConnection
            | KnownName::TransferEncoding
            | KnownName::Upgrade
    )
}
