//! String literals (RFC 7541 section 5.2, RFC 9204 section 4.1.2): a Huffman flag, a length and bytes.

use crate::coding::CodingError;
use crate::memo::Memo;
use crate::{huffman, integer};

/// A decoded string.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    /// The string is part of the input.
    Raw(&'a [u8]),
    /// The string was decoded into the scratch buffer, at this start and end.
    Decoded(usize, usize),
}

impl<'a> Text<'a> {
    /// The bytes of the string. `scratch` is the buffer passed to [`take`].
    #[inline(always)]
    #[must_use]
    pub fn bytes(self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Raw(bytes) => bytes,
            Text::Decoded(start, end) => &scratch[start..end],
        }
    }
}

/// Takes a string from `rest`. `first` is the preceding byte: the bits in `mask` are the start of the length, and the bit above
/// them is the Huffman flag. A Huffman string is decoded into `scratch`, using `memo` if there is one.
///
/// # Errors
/// The length or the Huffman code is invalid, or the string is longer than `rest`.
#[inline(always)]
pub fn take<'a>(
    first: u8,
    mask: u8,
    rest: &mut &'a [u8],
    scratch: &mut Vec<u8>,
    memo: &mut Option<Memo>,
) -> Result<Text<'a>, CodingError> {
    let length = integer::take(first, mask, rest)?;
    let (string, left) = rest.split_at_checked(length).ok_or(CodingError::Truncated)?;
    *rest = left;
    if first & (mask + 1) == 0 {
        return Ok(Text::Raw(string));
    }
    let start = scratch.len();
    match memo {
        Some(memo) => memo.decode(string, scratch)?,
        None => huffman::decode(string, scratch)?,
    }
    Ok(Text::Decoded(start, scratch.len()))
}

/// Appends a string without Huffman coding. `mask` selects the bits of the first byte that hold the length; `first` contains the
/// bits above them.
#[inline(always)]
pub fn put(bytes: &[u8], mask: u8, first: u8, out: &mut Vec<u8>) {
    integer::put(bytes.len(), mask, first, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_and_huffman_strings_of_any_prefix_are_read() {
        // The Huffman code of `www`, after the prefixes of HPACK (7 bits) and QPACK (5 and 3 bits).
        for (mask, flag) in [(0x7f, 0x80), (0x1f, 0x20), (0x07, 0x08)] {
            for (first, string, text) in [(0, &b"abc"[..], b"abc"), (flag, &[0xf1, 0xe3, 0xc7][..], b"www")] {
                let (mut scratch, mut memo) = (b"before".to_vec(), None);
                let mut rest = &[string, b"rest"].concat()[..];
                let taken = take(first | 3, mask, &mut rest, &mut scratch, &mut memo).unwrap();
                assert_eq!((taken.bytes(&scratch), rest), (&text[..], &b"rest"[..]), "{mask:x} {first:x}");
            }
            let short = take(3, mask, &mut &b"ab"[..], &mut Vec::new(), &mut None);
            assert_eq!(short.err(), Some(CodingError::Truncated));
        }
    }

    #[test]
    fn strings_round_trip() {
        for (mask, above) in [(0x7f, 0), (0x1f, 0x40), (0x07, 0x20)] {
            for length in [0, 1, 6, 7, 8, 30, 31, 32, 126, 127, 128, 5000] {
                let (string, mut out) = (vec![b'x'; length], Vec::new());
                put(&string, mask, above, &mut out);
                let (first, mut rest) = out.split_first().unwrap();
                assert_eq!(first & above, above);
                let taken = take(*first, mask, &mut rest, &mut Vec::new(), &mut None).unwrap();
                assert!(taken.bytes(&[]) == string && rest.is_empty(), "{mask:x} {length}");
            }
        }
    }
}
