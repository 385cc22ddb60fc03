//! What all blocks that are read have in common: the run through the fields, and their limits.

use http::{Head, KnownName};

use super::{Cause, Refusal, Rules};
use crate::Code;
use crate::hpack::{Decoder, Field, FieldName, Pseudo};

/// Decodes a block, with limits: `pseudo` gets the pseudo-fields, which come first and once,
/// `field` the others. The first cause ends it, though not the decoding.
pub(super) fn fields<T>(
    decoder: &mut Decoder,
    block: &[u8],
    rules: &Rules,
    reader: &mut T,
    mut pseudo: impl FnMut(&mut T, Pseudo, &[u8]) -> Result<(), Cause>,
    mut field: impl FnMut(&mut T, &Field<'_>) -> Result<(), Cause>,
) -> Result<(), Refusal> {
    let mut limits = Limits { bytes: rules.max_bytes, fields: rules.max_fields, seen: 0, late: false };
    let mut cause = None;
    let decoded = decoder.decode(block, &mut |one| {
        let outcome = match one.name {
            FieldName::Pseudo(name) => {
                limits.pseudo(name, one.value).and_then(|()| pseudo(reader, name, one.value))
            }
            _ => limits.field(&one).and_then(|()| field(reader, &one)),
        };
        cause = outcome.err();
        cause.is_none()
    });
    if decoded.is_err() {
        return Err(Refusal::Connection(Code::CompressionError));
    }
    cause.map_or(Ok(()), super::cause::refuse)
}

/// What is left of the limits, which count before anything is stored.
struct Limits {
    bytes: usize,
    fields: usize,
    /// Pseudo-fields seen, a bit each.
    seen: u8,
    /// Whether a field came.
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

/// Adds a field to the head, without the blanks around its value.
#[inline(always)]
pub(super) fn push(head: &mut Head, field: &Field<'_>) -> Result<(), Cause> {
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

/// The value without blanks around it. The RFC would have them refused (9113, 8.2.1); HAProxy takes
/// them off.
#[inline(always)]
pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Fields that only a connection of HTTP/1 has (RFC 9113 section 8.2.2).
#[inline(always)]
pub(super) fn is_connection_specific(name: KnownName) -> bool {
    matches!(
        name,
        KnownName::Connection
            | KnownName::KeepAlive
            | KnownName::ProxyConnection
            | KnownName::TransferEncoding
            | KnownName::Upgrade
    )
}
