//! Attributes of resources, spans, records and data points.

use crate::wire;

/// The longest attribute value in bytes; the rest is cut off.
const LONGEST: usize = 2048;

/// The length of a name with its value up to which all lengths in their encoding are below 128.
const SHORT: usize = 120;

/// Appends attributes to a record.
#[derive(Debug)]
pub struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    field: u32,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, field: u32) -> Self {
        Self { out, field }
    }

    /// Appends a text of at most 2048 bytes; longer ones are truncated. Invalid UTF-8 is replaced.
    #[inline]
    pub fn text(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let value = shortened(value.as_ref());
        // The messages around a short text have known lengths of one byte each.
        let (name_length, length) = (name.len(), value.len());
        if name_length + length < SHORT && self.field < 16 && std::str::from_utf8(value).is_ok() {
            let all = (name_length + length + 6) as u8;
            self.out.reserve(usize::from(all) + 2);
            self.out.extend_from_slice(&[(self.field as u8) << 3 | 2, all, 10, name_length as u8]);
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(&[18, length as u8 + 2, 10, length as u8]);
            self.out.extend_from_slice(value);
            return;
        }
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::message(out, 2, |out| wire::text(out, 1, value));
        });
    }

    /// Appends a number.
    #[inline]
    pub fn number(&mut self, name: &str, value: i64) {
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::message(out, 2, |out| wire::number(out, 3, value.cast_unsigned()));
        });
    }
}

/// The start of a text that is not longer than an attribute may be, without cutting a character.
fn shortened(text: &[u8]) -> &[u8] {
    if text.len() <= LONGEST {
        return text;
    }
    let is_inside = |byte: u8| byte & 0xc0 == 0x80;
    let end = (LONGEST - 3..=LONGEST).rev().find(|end| !is_inside(text[*end])).unwrap_or(LONGEST);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_values_have_the_same_encoding() {
        for length in [0, 1, 60, 110, 111, 112, 113, 114, 130, 300] {
            let value = vec![b'v'; length];
            let (mut written, mut expected) = (Vec::new(), Vec::new());
            Attributes::new(&mut written, 9).text("the.name", &value);
            wire::message(&mut expected, 9, |out| {
                wire::bytes(out, 1, b"the.name");
                wire::message(out, 2, |out| wire::text(out, 1, &value));
            });
            assert_eq!(written, expected, "{length}");
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let text = format!("{}é", "x".repeat(LONGEST - 1));
        assert_eq!(shortened(text.as_bytes()).len(), LONGEST - 1);
        assert_eq!(shortened("é".repeat(LONGEST).as_bytes()).len(), LONGEST);
        assert_eq!(shortened(b"abc"), b"abc");
    }
}
