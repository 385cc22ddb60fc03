//! The protocol buffers wire format: the few field types that messages of OpenTelemetry and Prometheus use.

/// A field of variable length: a string, bytes or a message.
const LENGTH_DELIMITED: u64 = 2;
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const FIXED32: u64 = 5;

/// Appends a number of variable length without a field number: seven bits in each byte, the lowest first.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes of a variable-length number.
fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn tag(out: &mut Vec<u8>, field: u32, kind: u64) {
    varint(out, u64::from(field) << 3 | kind);
}

/// Appends a number or an enumeration value.
pub fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

/// Appends a signed number in the encoding that keeps small negative numbers short (`sint32`, `sint64`).
pub fn signed(out: &mut Vec<u8>, field: u32, value: i64) {
    number(out, field, zigzag(value));
}

/// Returns the number that encodes a signed one, also in packed fields: 0, -1, 1, -2 become 0, 1, 2, 3.
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Appends a floating-point number (`double`).
pub fn double(out: &mut Vec<u8>, field: u32, value: f64) {
    fixed64(out, field, value.to_bits());
}

/// Appends eight bytes: a time, a count or a floating-point number.
pub fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends four bytes: flags.
pub fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends bytes.
#[inline]
pub fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    tag(out, field, LENGTH_DELIMITED);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a string. Invalid UTF-8 is replaced, because readers refuse it.
pub fn text(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    match std::str::from_utf8(value) {
        Ok(value) => bytes(out, field, value.as_bytes()),
        Err(_) => bytes(out, field, String::from_utf8_lossy(value).as_bytes()),
    }
}

/// Appends a message that `write` encodes.
#[inline]
pub fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LENGTH_DELIMITED);
    // Most messages are short, so one byte is reserved for the length.
    let start = out.len();
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    let more = varint_length(length as u64) - 1;
    if more > 0 {
        let end = out.len();
        out.resize(end + more, 0);
        out.copy_within(start + 1..end, start + 1 + more);
    }
    let mut left = length as u64;
    for at in 0..=more {
        out[start + at] = left as u8 & 0x7f | if at < more { 0x80 } else { 0 };
        left >>= 7;
    }
}

/// The length of the field at the start of `bytes`, which must be one of variable length; `None` if it is incomplete.
pub fn field_length(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let key = read_varint(&mut rest)?;
    let length = usize::try_from(read_varint(&mut rest)?).ok()?;
    let whole = (bytes.len() - rest.len()).checked_add(length)?;
    (key & 7 == LENGTH_DELIMITED && whole <= bytes.len()).then_some(whole)
}

/// The value of a field that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number of variable length.
    Number(u64),
    /// Bytes, text or a message, or the bytes of a number of fixed length.
    Bytes(&'a [u8]),
}

/// Reads the fields of a message with their numbers. Ends at the first malformed byte.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = (u64, FieldValue<'_>)> {
    checked_fields(bytes).map_while(|field| field)
}

/// Reads the fields of a message with their numbers. A malformed field is `None`, and the last item.
pub fn checked_fields(mut rest: &[u8]) -> impl Iterator<Item = Option<(u64, FieldValue<'_>)>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = read_field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

fn read_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, FieldValue<'a>)> {
    let key = read_varint(rest)?;
    let value = match key & 7 {
        VARINT => FieldValue::Number(read_varint(rest)?),
        FIXED64 => FieldValue::Bytes(take(rest, 8)?),
        FIXED32 => FieldValue::Bytes(take(rest, 4)?),
        LENGTH_DELIMITED => {
            let length = read_varint(rest)?;
            FieldValue::Bytes(take(rest, usize::try_from(length).ok()?)?)
        }
        _ => return None,
    };
    Some((key >> 3, value))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_length_are_read_back() {
        for length in [0, 1, 125, 126, 127, 128, 16_381, 16_384, 70_000] {
            let mut out = b"before".to_vec();
            message(&mut out, 2, |out| bytes(out, 1, &vec![b'x'; length]));
            assert_eq!(field_length(&out[6..]), Some(out.len() - 6), "{length}");
            let FieldValue::Bytes(inner) = fields(&out[6..]).next().expect("a field").1 else {
                panic!("a message has bytes")
            };
            let inner: Vec<_> = fields(inner).collect();
            assert_eq!(inner, [(1, FieldValue::Bytes(&vec![b'x'; length]))], "{length}");
        }
    }

    #[test]
    fn signed_numbers_stay_short() {
        for (value, encoded) in
            [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)]
        {
            assert_eq!(zigzag(value), encoded);
        }
        let mut out = Vec::new();
        signed(&mut out, 5, -3);
        assert_eq!(out, [5 << 3, 5]);
    }

    #[test]
    fn malformed_input_ends_the_reading() {
        for bytes in [
            &b"\x0a\x05ab"[..],
            b"\x0a",
            b"\x0b",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        ] {
            assert_eq!(fields(bytes).count(), 0, "{bytes:?}");
            assert_eq!(field_length(bytes), None, "{bytes:?}");
        }
    }
}
