//! Flags of format items, and how they affect the output of strings.

use crate::encode::Encoding;

/// The flags of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags {
    /// `+Q`: in double quotes.
    pub quote: bool,
    /// `+X`: numbers and addresses in hexadecimal.
    pub hex: bool,
    /// `+E`: a backslash before `"`, `\` and `]`.
    pub escape: bool,
    /// Prints `-` for a missing value.
    pub dash: bool,
    /// Control characters as `%XX`.
    pub percent: bool,
    /// Binary values are written raw, without escaping or cutting at a NUL: `+bin` was given, or the format is used for binary
    /// data.
    pub bin: bool,
    /// `+bin` was given, so CBOR is not written in hexadecimal.
    pub raw: bool,
    /// `+json` or `+cbor`: the encoding of named items, or of a single item's value.
    pub encoding: Encoding,
}

/// Adds quotes if the flags ask for them.
pub(crate) fn quoted(flags: Flags, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if flags.quote {
        out.push(b'"');
    }
    write(out);
    if flags.quote {
        out.push(b'"');
    }
}

/// Writes a string: quoted, escaped, or as `-` if empty.
pub(crate) fn write_bytes(bytes: &[u8], flags: Flags, out: &mut Vec<u8>) {
    if bytes.is_empty() && !flags.quote {
        if flags.dash {
            out.push(b'-');
        }
        return;
    }
    quoted(flags, out, |out| match flags {
        Flags { escape: true, .. } => {
            for byte in bytes {
                if matches!(byte, b'"' | b'\\' | b']') {
                    out.push(b'\\');
                }
                out.push(*byte);
            }
        }
        Flags { percent: true, bin: false, .. } => escaped(bytes, b'%', is_forbidden_in_header, out),
        _ => out.extend_from_slice(bytes),
    });
}

fn is_forbidden_in_header(byte: u8) -> bool {
    matches!(byte, 0..=8 | 10..=31 | 127)
}

/// Writes `bytes`. Each byte that matches `forbidden` is written as `escape` and two hexadecimal digits.
pub(crate) fn escaped(bytes: &[u8], escape: u8, forbidden: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if forbidden(byte) {
            out.extend_from_slice(&[escape, DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        } else {
            out.push(byte);
        }
    }
}
