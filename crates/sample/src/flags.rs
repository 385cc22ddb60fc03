//! Flags of the items of a format, and how text is written with them.

use crate::encode::Encoding;

/// The flags of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags {
    /// `+Q`: in double quotes.
    pub quote: bool,
    /// `+X`: numbers and addresses in hexadecimal.
    pub hex: bool,
    /// `+E`: `"`, `\` and `]` behind a backslash.
    pub escape: bool,
    /// `-` where there is no value.
    pub dash: bool,
    /// Control characters as `%XX`.
    pub percent: bool,
    /// Bytes pass as they are: `+bin`, or what the format is for.
    pub bin: bool,
    /// `+bin` was said: CBOR is not shown in hexadecimal digits.
    pub raw: bool,
    /// `+json` or `+cbor`: how named items are encoded, or of one item its value.
    pub encoding: Encoding,
}

/// Writes within quotes if the flags say so.
pub(crate) fn quoted(flags: Flags, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if flags.quote {
        out.push(b'"');
    }
    write(out);
    if flags.quote {
        out.push(b'"');
    }
}

/// Writes text: quoted, escaped, or `-` when it is empty.
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

/// Writes `bytes`, those that `forbidden` names as `escape` and two hexadecimal digits.
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
