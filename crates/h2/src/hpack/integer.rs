//! Integers and strings of a header block (RFC 7541 section 5).

use super::recall::Recall;
use super::{Error, huffman};

/// The largest that is taken: beyond any length or index of a block that fits into memory.
const MOST: u64 = 1 << 28;

/// Takes an integer whose prefix are the low bits of `first` that `mask` has.
#[inline(always)]
pub(crate) fn take(first: u8, mask: u8, rest: &mut &[u8]) -> Result<usize, Error> {
    let prefix = first & mask;
    if prefix < mask { Ok(prefix as usize) } else { long(mask, rest) }
}

#[inline(never)]
fn long(mask: u8, rest: &mut &[u8]) -> Result<usize, Error> {
    let (mut value, mut shift) = (u64::from(mask), 0);
    loop {
        let (&byte, left) = rest.split_first().ok_or(Error::Truncated)?;
        *rest = left;
        // Four bytes are enough for what is taken; a fifth may be there if it adds nothing.
        if shift > 28 {
            return Err(Error::Integer);
        }
        value += u64::from(byte & 0x7f) << shift;
        shift += 7;
        if value > MOST {
            return Err(Error::Integer);
        }
        if byte & 0x80 == 0 {
            return Ok(value as usize);
        }
    }
}

/// Appends an integer whose first byte has the bits of `first` above `mask`.
#[inline(always)]
pub(crate) fn put(value: usize, mask: u8, first: u8, out: &mut Vec<u8>) {
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

/// Appends a string as it stands, without the Huffman code.
#[inline(always)]
pub(crate) fn put_string(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len(), 0x7f, 0, out);
    out.extend_from_slice(bytes);
}

/// A string of a block: where it stands plainly.
#[derive(Clone, Copy)]
pub(crate) enum Text<'a> {
    /// In the block.
    Raw(&'a [u8]),
    /// In the scratch memory, from and to here.
    Decoded(usize, usize),
}

impl<'a> Text<'a> {
    #[inline(always)]
    pub(crate) fn bytes(self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Raw(bytes) => bytes,
            Text::Decoded(start, end) => &scratch[start..end],
        }
    }
}

/// Takes a string, decoding it into `scratch` if it has the Huffman code.
#[inline(always)]
pub(crate) fn take_string<'a>(
    rest: &mut &'a [u8],
    scratch: &mut Vec<u8>,
    recall: &mut Option<Recall>,
) -> Result<Text<'a>, Error> {
    let (&first, left) = rest.split_first().ok_or(Error::Truncated)?;
    *rest = left;
    let length = take(first, 0x7f, rest)?;
    let (string, left) = rest.split_at_checked(length).ok_or(Error::Truncated)?;
    *rest = left;
    if first & 0x80 == 0 {
        return Ok(Text::Raw(string));
    }
    let start = scratch.len();
    match recall {
        Some(recall) => recall.decode(string, scratch)?,
        None => huffman::decode(string, scratch)?,
    }
    Ok(Text::Decoded(start, scratch.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(mut bytes: &[u8], mask: u8) -> Result<(usize, usize), Error> {
        let (first, mut rest) = bytes.split_first().unwrap();
        let value = take(*first, mask, &mut rest)?;
        bytes = rest;
        Ok((value, bytes.len()))
    }

    #[test]
    fn integers_are_those_of_the_rfc_and_bounded() {
        for (bytes, mask, outcome) in [
            (&[0b1110_1010][..], 0x1f, Ok((10, 0))),
            (&[0b1111_1111, 0b1001_1010, 0b0000_1010, 9], 0x1f, Ok((1337, 1))),
            (&[42], 0xff, Ok((42, 0))),
            (&[0x7f], 0x7f, Err(Error::Truncated)),
            (&[0x7f, 0x80], 0x7f, Err(Error::Truncated)),
            (&[0x7f, 0x80, 0x80, 0x80, 0x00], 0x7f, Ok((127, 0))),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00], 0x7f, Ok((127, 0))),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 0x7f, Err(Error::Integer)),
            (&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f], 0x7f, Err(Error::Integer)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], 0x7f, Err(Error::Integer)),
        ] {
            assert_eq!(taken(bytes, mask), outcome, "{bytes:x?}");
        }
    }

    #[test]
    fn what_is_put_is_taken() {
        for mask in [0x0f, 0x1f, 0x3f, 0x7f] {
            for value in (0..600).chain([4096, 16_383, 16_384, 65_535, 1 << 20]) {
                let mut out = Vec::new();
                put(value, mask, 0, &mut out);
                assert_eq!(taken(&out, mask), Ok((value, 0)));
            }
        }
    }
}
