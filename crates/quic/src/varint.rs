//! Variable-length integers (RFC 9000, 16) and a reader of wire formats.

/// The largest number that can be encoded.
pub const MAX: u64 = (1 << 62) - 1;

/// Returns the number of bytes that `value` takes.
pub const fn length(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends `value`, which is at most [`MAX`].
pub fn write(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= MAX, "{value}");
    // The casts cannot truncate within their ranges.
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends several numbers.
pub fn write_all(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| write(out, *value));
}

/// Reads fields from the front of a buffer. All methods return `None` if it is too short.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// Reads a number of variable length.
    pub fn number(&mut self) -> Option<u64> {
        let &first = self.0.first()?;
        let value = match first >> 6 {
            0 => {
                self.0 = &self.0[1..];
                return Some(first.into());
            }
            1 => u64::from(u16::from_be_bytes(self.array()?)),
            2 => u64::from(u32::from_be_bytes(self.array()?)),
            _ => u64::from_be_bytes(self.array()?),
        };
        let bits = [0, 14, 30, 62][usize::from(first >> 6)];
        Some(value & ((1 << bits) - 1))
    }

    /// Returns how many bytes are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// Reads the rest.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Reads a length and the bytes after it.
    pub fn prefixed(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_length_are_read_as_written() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!(out.len(), length(value), "{value}");
            let mut reader = Reader(&out);
            assert_eq!(reader.number(), Some(value));
            assert!(reader.is_empty());
            for end in 0..out.len() {
                assert_eq!(Reader(&out[..end]).number(), None, "{value} cut at {end}");
            }
        }
    }

    #[test]
    fn examples_of_the_rfc() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(Reader(bytes).number(), Some(value));
        }
    }
}
