//! Variable-length integers of HAProxy's peers and stream processing protocols (doc/peers.txt and doc/SPOE.txt, "variable-length
//! integers").
//!
//! A number below 240 is a single byte. Otherwise the first byte holds 4 bits and each further byte 7 bits. Each byte is added to
//! the value of the previous ones, so that every number has only one encoding.

/// The maximum length of an encoded 64-bit number.
pub const LONGEST: usize = 10;

/// An invalid encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The input ends within the number.
    Short,
    /// The number exceeds 64 bits.
    Big,
}

/// Whether a number is encoded as a single byte with the same value.
#[inline]
pub fn is_short(value: u64) -> bool {
    value < 0xf0
}

/// Appends a number.
#[inline]
pub fn write(out: &mut Vec<u8>, value: u64) {
    if is_short(value) {
        out.push(value as u8);
        return;
    }
    write_long(out, value);
}

fn write_long(out: &mut Vec<u8>, value: u64) {
    out.push(value as u8 | 0xf0);
    let mut rest = (value - 0xf0) >> 4;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest = (rest - 0x80) >> 7;
    }
    out.push(rest as u8);
}

/// Reads a number from the beginning of `bytes`; returns its value and its length.
#[inline]
pub fn read(bytes: &[u8]) -> Result<(u64, usize), Flaw> {
    match bytes {
        [] => Err(Flaw::Short),
        [first, ..] if is_short(u64::from(*first)) => Ok((u64::from(*first), 1)),
        [first, ..] => read_long(u64::from(*first), bytes),
    }
}

fn read_long(mut value: u64, bytes: &[u8]) -> Result<(u64, usize), Flaw> {
    let mut shift = 4;
    for (place, byte) in bytes.iter().enumerate().skip(1) {
        let part = u64::from(*byte);
        if shift >= u64::BITS || part > u64::MAX >> shift {
            return Err(Flaw::Big);
        }
        value = value.checked_add(part << shift).ok_or(Flaw::Big)?;
        if *byte < 0x80 {
            return Ok((value, place + 1));
        }
        shift += 7;
    }
    Err(if bytes.len() >= LONGEST { Flaw::Big } else { Flaw::Short })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, value);
        out
    }

    #[test]
    fn encodings_match_the_protocol() {
        let cases: [(u64, &[u8]); 9] = [
            (0, &[0]),
            (239, &[239]),
            (240, &[0xf0, 0]),
            (0x1234, &[0xf4, 0x94, 0x01]),
            (2287, &[0xff, 0x7f]),
            (2288, &[0xf0, 0x80, 0]),
            (264_431, &[0xff, 0xff, 0x7f]),
            (33_818_863, &[0xff, 0xff, 0xff, 0x7f]),
            (4_328_786_159, &[0xff, 0xff, 0xff, 0xff, 0x7f]),
        ];
        for (value, bytes) in cases {
            assert_eq!(written(value), bytes, "{value}");
            assert_eq!(read(bytes), Ok((value, bytes.len())), "{value}");
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let most = written(u64::MAX);
        assert_eq!((read(&most), most.len()), (Ok((u64::MAX, LONGEST)), LONGEST));
        let mut more = most.clone();
        *more.last_mut().unwrap() += 1;
        assert_eq!(read(&more), Err(Flaw::Big));
        assert_eq!(read(&[0xff; 10]), Err(Flaw::Big));
        assert_eq!(read(&[0xff; 9]), Err(Flaw::Short));
        assert_eq!(read(&[]), Err(Flaw::Short));
    }

    proptest! {
        #[test]
        fn every_number_round_trips_whatever_follows(value: u64, shift in 0u32..64, rest: Vec<u8>) {
            let value = value >> shift;
            let mut bytes = written(value);
            let length = bytes.len();
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(read(&bytes), Ok((value, length)));
            for cut in 0..length {
                prop_assert_eq!(read(&bytes[..cut]), Err(Flaw::Short));
            }
        }

        #[test]
        fn a_number_has_one_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Ok((value, length)) = read(&bytes) {
                prop_assert_eq!(written(value), bytes[..length].to_vec());
            }
        }
    }
}
