//! Variable-length integers (RFC 9000 section 16).

/// The largest integer.
pub const MAX: u64 = (1 << 62) - 1;
/// The longest encoding, in bytes.
pub const LONGEST: usize = 8;

/// The length of the encoding that starts with `first`.
#[inline]
#[must_use]
pub fn length(first: u8) -> usize {
    1 << (first >> 6)
}

/// Takes an integer from the start of `input`; `None` if it is incomplete.
#[inline]
pub fn take(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    let (more, left) = rest.split_at_checked(length(first) - 1)?;
    *input = left;
    Some(more.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

/// The length of the shortest encoding of `value`, which is at most [`MAX`].
#[inline]
#[must_use]
pub fn size(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes `value` at the start of `out`, which must have room for it; returns the length.
#[inline]
pub fn write(value: u64, out: &mut [u8]) -> usize {
    let length = size(value);
    let marked = value << (64 - 8 * length as u32) | u64::from(length.trailing_zeros()) << 62;
    out[..length].copy_from_slice(&marked.to_be_bytes()[..length]);
    length
}

/// Appends `value`, at most [`MAX`].
pub fn put(value: u64, out: &mut Vec<u8>) {
    let mut bytes = [0; LONGEST];
    let length = write(value, &mut bytes);
    out.extend_from_slice(&bytes[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_match_the_rfc() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut rest = bytes;
            assert_eq!((take(&mut rest), rest.len()), (Some(value), 0));
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take(&mut &[0x40, 0x25][..]), Some(37), "longer than necessary");
    }

    #[test]
    fn integers_round_trip() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!((out.len(), take(&mut &out[..])), (size(value), Some(value)));
        }
    }
}
