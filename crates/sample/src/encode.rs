//! Encodes log format items as JSON (RFC 8259) and CBOR (RFC 8949): `+json`, `+cbor` and the types of `%(name:type)` (manual,
//! 8.2.6). Called by [`crate::format`].
//!
//! The output is well-formed for any input from clients: invalid UTF-8 becomes U+FFFD in JSON, and a byte string in CBOR.

use std::borrow::Cow;

use crate::value::{Type, Value};

/// The encoding of named items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum Encoding {
    #[default]
    Plain,
    Json,
    Cbor,
}

/// The type that `%(name:type)` forces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ItemType {
    Str,
    Sint,
    Bool,
}

impl ItemType {
    /// The type names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("str", Self::Str), ("sint", Self::Sint), ("bool", Self::Bool)];

    fn of_values(self) -> Type {
        match self {
            Self::Str => Type::Str,
            Self::Sint => Type::Int,
            Self::Bool => Type::Bool,
        }
    }
}

/// An item's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Item<'a> {
    /// A missing value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Int(i64),
    /// Text, possibly with invalid UTF-8.
    Text(Cow<'a, [u8]>),
    /// Binary data.
    Bytes(Cow<'a, [u8]>),
    /// A list of strings.
    List(Vec<Vec<u8>>),
}

impl<'a> Item<'a> {
    /// A string. An empty string counts as missing, as in text logs.
    pub fn text(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::Null } else { Self::Text(bytes) }
    }

    /// A number in text form. The plus sign of a value that is still growing is dropped.
    pub fn number(text: Vec<u8>) -> Self {
        match parse_int(&text) {
            Some(number) => Self::Int(number),
            None => Self::text(text),
        }
    }

    /// The value of an expression, cast to the format's type in the same way as the input of converters. `Null` if the cast fails.
    pub fn of(value: Option<Value<'a>>, wanted: Option<ItemType>) -> Self {
        let value = match (wanted, value) {
            // All bytes, including those after a NUL.
            (Some(ItemType::Str), Some(Value::Bin(bytes))) => Some(Value::Str(bytes)),
            // An address casts to a number, but not to a boolean.
            (Some(ItemType::Bool), Some(Value::Ip4(_))) => None,
            (Some(wanted), Some(value)) => value.cast(wanted.of_values()),
            (None, value) | (_, value) => value,
        };
        match value {
            None => Self::Null,
            Some(Value::Bool(value)) => Self::Bool(value),
            Some(Value::Int(value)) => Self::Int(value),
            Some(Value::Bin(bytes)) => Self::Bytes(bytes.to_vec().into()),
            Some(value) => {
                let mut text = Vec::new();
                value.write_text(&mut text);
                Self::text(text)
            }
        }
    }

    /// Casts the value of an alias to the format's type. Strings remain strings.
    pub fn cast(self, wanted: Option<ItemType>) -> Self {
        match (wanted, self) {
            (Some(ItemType::Str), Self::Int(value)) => Self::Text(value.to_string().into_bytes().into()),
            (Some(ItemType::Bool), Self::Int(value)) => Self::Bool(value != 0),
            (_, other) => other,
        }
    }
}

fn parse_int(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_prefix('+').unwrap_or(text).parse().ok()
}

/// Appends a JSON string.
pub(crate) fn json_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // C1 controls and separators are escaped as well, so that a log line stays a single line in every viewer.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends an item as JSON; a missing value is written as an empty string, as in HAProxy.
pub(crate) fn json(item: &Item<'_>, out: &mut Vec<u8>) {
    match item {
        Item::Null => out.extend_from_slice(b"\"\""),
        Item::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Item::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Item::Text(text) | Item::Bytes(text) => json_text(text, out),
        Item::List(list) => {
            out.push(b'[');
            for (at, text) in list.iter().enumerate() {
                if at > 0 {
                    out.extend_from_slice(b", ");
                }
                json_text(text, out);
            }
            out.push(b']');
        }
    }
}

/// CBOR's major types and simple values (RFC 8949, 3.1 and 3.3).
mod major {
    pub(super) const UNSIGNED: u8 = 0 << 5;
    pub(super) const NEGATIVE: u8 = 1 << 5;
    pub(super) const BYTES: u8 = 2 << 5;
    pub(super) const TEXT: u8 = 3 << 5;
    pub(super) const ARRAY: u8 = 4 << 5;
    pub(super) const FALSE: u8 = 0xf4;
    pub(super) const TRUE: u8 = 0xf5;
    pub(super) const NULL: u8 = 0xf6;
}

/// Starts a map of indefinite length.
pub(crate) const CBOR_MAP: u8 = 0xbf;
/// The end of an indefinite-length item.
pub(crate) const CBOR_BREAK: u8 = 0xff;

/// Writes the head of a data item (its major type and a number) in the shortest form.
fn cbor_head(major: u8, number: u64, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    match number {
        0..24 => out.push(major | number as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, bytes[7]]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&bytes[6..]);
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends a CBOR text string, or a byte string if the bytes are not UTF-8.
pub(crate) fn cbor_text(bytes: &[u8], out: &mut Vec<u8>) {
    let major = if std::str::from_utf8(bytes).is_ok() { major::TEXT } else { major::BYTES };
    cbor_head(major, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends an item as CBOR.
pub(crate) fn cbor(item: &Item<'_>, out: &mut Vec<u8>) {
    match item {
        Item::Null => out.push(major::NULL),
        Item::Bool(value) => out.push(if *value { major::TRUE } else { major::FALSE }),
        Item::Int(value) if *value < 0 => cbor_head(major::NEGATIVE, !*value as u64, out),
        Item::Int(value) => cbor_head(major::UNSIGNED, *value as u64, out),
        Item::Text(text) => cbor_text(text, out),
        Item::Bytes(bytes) => {
            cbor_head(major::BYTES, bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Item::List(list) => {
            cbor_head(major::ARRAY, list.len() as u64, out);
            for text in list {
                cbor_text(text, out);
            }
        }
    }
}

/// Appends bytes as upper-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend(
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
    );
}
