//! Attributes of resources, spans, records and data points.

use crate::wire;

/// The longest attribute value in bytes; the rest is cut off.
const LONGEST: usize = 2048;

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
    fn long_values_are_cut_between_characters() {
        let text = format!("{}é", "x".repeat(LONGEST - 1));
        assert_eq!(shortened(text.as_bytes()).len(), LONGEST - 1);
        assert_eq!(shortened("é".repeat(LONGEST).as_bytes()).len(), LONGEST);
        assert_eq!(shortened(b"abc"), b"abc");
    }
}
