//! Text that may hold bytes which are no UTF-8: configuration words with `\xE0`, files in another
//! encoding.
//!
//! Words are `str` all over the house, and nearly always plain text. A byte that is no part of
//! UTF-8 is written as a character of a private range, U+10FF00 plus the byte, and becomes the byte
//! again where the text turns into bytes that leave. Both ways lose nothing: the few genuine
//! characters of that range are taken apart into bytes as well.

use std::borrow::Cow;

/// The two bytes that the characters of U+10FF00 to U+10FFFF begin with.
const LEAD: [u8; 2] = [0xf4, 0x8f];

/// The character that stands for a byte.
fn stand_in(byte: u8) -> char {
    char::from_u32(0x10_ff00 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character of text stands for.
#[must_use]
pub fn byte_of(c: char) -> Option<u8> {
    u32::from(c).checked_sub(0x10_ff00).and_then(|byte| u8::try_from(byte).ok())
}

/// Text that [`bytes_of`] makes `bytes` of again.
#[must_use]
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !may_stand_in(bytes)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                None => text.push(c),
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(stand_in)),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| stand_in(*byte)));
    }
    Cow::Owned(text)
}

/// The bytes that `text` was made of.
#[must_use]
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !may_stand_in(text.as_bytes()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Whether a character of the range, or of the one below it, is among `bytes`.
fn may_stand_in(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == LEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_as_they_were() {
        let all: Vec<u8> = (0..=255).collect();
        let cases: &[&[u8]] = &[
            b"",
            b"plain",
            "é € 𝄞".as_bytes(),
            b"-\xe0-",
            b"\xff\xfe",
            "genuine \u{10ff41} \u{10feff} \u{10ffff}".as_bytes(),
            &all,
        ];
        for bytes in cases {
            assert_eq!(&*bytes_of(&text_of(bytes)), *bytes, "{bytes:?}");
        }
    }

    #[test]
    fn plain_text_is_borrowed_both_ways() {
        assert!(matches!(text_of("né".as_bytes()), Cow::Borrowed("né")));
        assert!(matches!(bytes_of("né"), Cow::Borrowed(_)));
    }
}
