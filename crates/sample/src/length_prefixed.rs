//! A sequence of strings, each preceded by its length in the variable-length encoding of the SPOP specification. `req.hdrs_bin`
//! writes such sequences, and the actions on binary headers read them.

use base::varint;

/// Appends a length.
pub fn write_length(out: &mut Vec<u8>, length: usize) {
    varint::write(out, length as u64);
}

/// Reads a length from `bytes`, or `None` if it is truncated or implausibly large.
fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let (length, taken) = varint::read(bytes).ok()?;
    *bytes = &bytes[taken..];
    usize::try_from(length).ok()
}

/// Reads a string from `bytes`, or `None` if it is truncated.
pub fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(bytes)?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_round_trip() {
        for length in
            [0, 1, 239, 240, 241, 255, 256, 2287, 2288, 2289, 264_431, 264_432, 1 << 24, u32::MAX as usize]
        {
            let mut bytes = Vec::new();
            write_length(&mut bytes, length);
            let mut rest = &bytes[..];
            assert_eq!((take_length(&mut rest), rest.len()), (Some(length), 0), "{length}");
            let mut cut = &bytes[..bytes.len() - 1];
            assert_eq!(take_length(&mut cut), None, "{length}");
        }
        assert_eq!(take_length(&mut &[255; 20][..]), None);
        assert_eq!(take_text(&mut &b"\x05four"[..]), None);
    }
}
