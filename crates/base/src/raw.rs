//! Text that may contain invalid UTF-8: configuration words with `\xE0`, and files in other encodings.
//!
//! Words are `str` everywhere, and nearly always plain text. A byte that is not valid UTF-8 is represented by a character in a
//! private range, U+10FF00 plus the byte, and converted back when the text is output as bytes. The conversion is lossless in both
//! directions, because genuine characters of that range are also replaced, byte by byte.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The first two bytes of the characters U+10FF00 to U+10FFFF.
const LEAD: [u8; 2] = [0xf4, 0x8f];

/// The character that represents a byte.
fn placeholder(byte: u8) -> char {
    char::from_u32(0x10_ff00 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte represented by a character.
#[must_use]
pub fn byte_of(c: char) -> Option<u8> {
    u32::from(c).checked_sub(0x10_ff00).and_then(|byte| u8::try_from(byte).ok())
}

/// Converts bytes to text that [`bytes_of`] converts back.
#[must_use]
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !may_contain_placeholder(bytes)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                None => text.push(c),
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(placeholder)),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| placeholder(*byte)));
    }
    Cow::Owned(text)
}

/// Converts text back to the original bytes.
#[must_use]
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !may_contain_placeholder(text.as_bytes()) {
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

/// Converts a path written as text to the path that the system knows.
#[must_use]
pub fn path_of<P: AsRef<Path> + ?Sized>(text: &P) -> Cow<'_, Path> {
    let text = text.as_ref();
    match text.to_str().map(bytes_of) {
        Some(Cow::Owned(bytes)) => Cow::Owned(OsString::from_vec(bytes).into()),
        Some(Cow::Borrowed(_)) | None => Cow::Borrowed(text),
    }
}

/// Converts a path to text that [`path_of`] converts back.
#[must_use]
pub fn text_of_path(path: &Path) -> Cow<'_, str> {
    text_of(path.as_os_str().as_bytes())
}

/// Whether `bytes` may contain a character of the range, or of the range before it.
fn may_contain_placeholder(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == LEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_bytes_round_trip() {
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
    fn paths_round_trip() {
        for bytes in [&b"/tmp/plain"[..], b"/tmp/\xe9.map", "/tmp/é".as_bytes()] {
            let path = Path::new(std::ffi::OsStr::from_bytes(bytes));
            assert_eq!(path_of(&*text_of_path(path)), path);
            assert_eq!(path_of(path), path, "a path of the system is not changed");
        }
    }

    #[test]
    fn plain_text_is_borrowed_in_both_directions() {
        assert!(matches!(text_of("né".as_bytes()), Cow::Borrowed("né")));
        assert!(matches!(bytes_of("né"), Cow::Borrowed(_)));
    }
}
