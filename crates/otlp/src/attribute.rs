//! Attributes of resources, spans, records and data points.

use base::protobuf as wire;

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
    // Always inlined, so that the lengths of constant names are constants.
    #[inline(always)]
    pub fn text(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        // The messages around a short text have known lengths of one byte each.
        let (name_length, length) = (name.len(), value.len());
        if name_length + length < SHORT && self.field < 16 && value.is_ascii() {
            let all = (name_length + length + 6) as u8;
            self.out.reserve(usize::from(all) + 2);
            self.out.extend_from_slice(&[(self.field as u8) << 3 | 2, all, 10, name_length as u8]);
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(&[18, length as u8 + 2, 10, length as u8]);
            self.out.extend_from_slice(value);
            return;
        }
        self.long_text(name, value);
    }

    #[inline(never)]
    fn long_text(&mut self, name: &str, value: &[u8]) {
        let value = shortened(value);
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::message(out, 2, |out| wire::text(out, 1, value));
        });
    }

    /// Appends an attribute that is true.
    pub fn flag(&mut self, name: &str) {
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::message(out, 2, |out| wire::number(out, 2, 1));
        });
    }

    /// Appends a number.
    #[inline(always)]
    pub fn number(&mut self, name: &str, value: i64) {
        // Small numbers take one to three bytes.
        if let Ok(small) = u16::try_from(value)
            && self.field < 16
            && name.len() < SHORT
        {
            let [low, middle, high] = [small as u8 & 0x7f, (small >> 7) as u8 & 0x7f, (small >> 14) as u8];
            let digits = [[low, 0, 0], [low | 0x80, middle, 0], [low | 0x80, middle | 0x80, high]];
            let more = usize::from(small >= 1 << 7) + usize::from(small >= 1 << 14);
            let inner = more as u8 + 2;
            let all = name.len() as u8 + inner + 4;
            self.out.reserve(usize::from(all) + 2);
            self.out.extend_from_slice(&[(self.field as u8) << 3 | 2, all, 10, name.len() as u8]);
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(&[18, inner, 24]);
            self.out.extend_from_slice(&digits[more][..=more]);
            return;
        }
        self.long_number(name, value);
    }

    #[inline(never)]
    fn long_number(&mut self, name: &str, value: i64) {
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
        for value in [0, 1, 127, 128, 16_383, 16_384, 65_535, 65_536, i64::MAX, -1, i64::MIN] {
            let (mut written, mut expected) = (Vec::new(), Vec::new());
            Attributes::new(&mut written, 9).number("the.name", value);
            Attributes::new(&mut expected, 9).long_number("the.name", value);
            assert_eq!(written, expected, "{value}");
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
