//! Prefix integers (RFC 7541 section 5.1, RFC 9204 section 4.1.1).

use crate::coding::CodingError;

/// The largest integer that [`take`] accepts: larger than any length or index in a section that fits into memory.
pub const MAX: usize = 1 << 28;

/// Takes an integer that starts in `first`, the byte before `rest`. `mask` selects the bits of `first` that belong to the integer.
///
/// # Errors
/// `rest` ends within the integer, or the integer is larger than [`MAX`].
#[inline(always)]
pub fn take(first: u8, mask: u8, rest: &mut &[u8]) -> Result<usize, CodingError> {
    let prefix = first & mask;
    if prefix < mask { Ok(prefix as usize) } else { long(mask, rest) }
}

#[inline(never)]
fn long(mask: u8, rest: &mut &[u8]) -> Result<usize, CodingError> {
    let (mut value, mut shift) = (u64::from(mask), 0);
    loop {
        let (&byte, left) = rest.split_first().ok_or(CodingError::Truncated)?;
        *rest = left;
        // Four bytes suffice for `MAX`. A fifth is allowed if it adds nothing.
        if shift > 28 {
            return Err(CodingError::Integer);
        }
        value += u64::from(byte & 0x7f) << shift;
        shift += 7;
        if value > MAX as u64 {
            return Err(CodingError::Integer);
        }
        if byte & 0x80 == 0 {
            return Ok(value as usize);
        }
    }
}

/// Appends an integer. `mask` selects the bits of the first byte that belong to the integer; `first` contains the bits above them.
#[inline(always)]
pub fn put(value: usize, mask: u8, first: u8, out: &mut Vec<u8>) {
    if value < mask as usize {
        out.push(first | value as u8);
        return;
    }
    put_long(value - mask as usize, first | mask, out);
}

#[inline(never)]
fn put_long(mut value: usize, first: u8, out: &mut Vec<u8>) {
    out.push(first);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(mut bytes: &[u8], mask: u8) -> Result<(usize, usize), CodingError> {
        let (first, mut rest) = bytes.split_first().unwrap();
        let value = take(*first, mask, &mut rest)?;
        bytes = rest;
        Ok((value, bytes.len()))
    }

    #[test]
    fn integers_match_the_rfc_and_are_bounded() {
        for (bytes, mask, outcome) in [
            (&[0b1110_1010][..], 0x1f, Ok((10, 0))),
            (&[0b1111_1111, 0b1001_1010, 0b0000_1010, 9], 0x1f, Ok((1337, 1))),
            (&[42], 0xff, Ok((42, 0))),
            (&[0x7f], 0x7f, Err(CodingError::Truncated)),
            (&[0x7f, 0x80], 0x7f, Err(CodingError::Truncated)),
            (&[0x7f, 0x80, 0x80, 0x80, 0x00], 0x7f, Ok((127, 0))),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00], 0x7f, Ok((127, 0))),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 0x7f, Err(CodingError::Integer)),
            (&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f], 0x7f, Err(CodingError::Integer)),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
                0x7f,
                Err(CodingError::Integer),
            ),
        ] {
            assert_eq!(taken(bytes, mask), outcome, "{bytes:x?}");
        }
    }

    #[test]
    fn integers_round_trip() {
        for mask in [0x0f, 0x1f, 0x3f, 0x7f] {
            for value in (0..600).chain([4096, 16_383, 16_384, 65_535, 1 << 20]) {
                let mut out = Vec::new();
                put(value, mask, 0, &mut out);
                assert_eq!(taken(&out, mask), Ok((value, 0)));
            }
        }
    }
}
