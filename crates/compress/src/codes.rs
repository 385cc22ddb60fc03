//! The fixed Huffman code of deflate (RFC 1951, 3.2.5 and 3.2.6) as tables, with bits in the order in which they are written: the
//! first bit of a code is the lowest one, and its extra bits follow.

/// The length of the longest match.
pub(crate) const LONGEST: usize = 258;

/// By literal: the code with the first bit lowest, and above 12 bits its length.
pub(crate) static LITERALS: [u16; 256] = literals();
/// By length: the code with the extra bits, and above 24 bits their total number.
pub(crate) static LENGTHS: [u32; LONGEST + 1] = lengths();
/// By distance - 1 below 256, above that by its bits from the eighth on: the code; above 8 bits the number of bits, including extra
/// ones; and above 16 bits the symbol's lowest distance.
pub(crate) static DISTANCES: [u32; 512] = distances();

const LENGTH_BASE: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
    227, 258,
];
const LENGTH_EXTRA: [u8; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASE: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
    4097, 6145, 8193, 12289, 16385, 24577,
];
const DISTANCE_EXTRA: [u8; 30] =
    [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];

const fn reversed(code: u32, bits: u32) -> u32 {
    code.reverse_bits() >> (32 - bits)
}

/// The fixed code of a symbol, and its length.
const fn fixed(symbol: u32) -> (u32, u32) {
    match symbol {
        0..=143 => (reversed(0x30 + symbol, 8), 8),
        144..=255 => (reversed(0x190 + symbol - 144, 9), 9),
        256..=279 => (reversed(symbol - 256, 7), 7),
        _ => (reversed(0xc0 + symbol - 280, 8), 8),
    }
}

const fn literals() -> [u16; 256] {
    let mut all = [0; 256];
    let mut symbol = 0;
    while symbol < 256 {
        let (code, bits) = fixed(symbol as u32);
        all[symbol] = (code | bits << 12) as u16;
        symbol += 1;
    }
    all
}

const fn lengths() -> [u32; LONGEST + 1] {
    let mut all = [0; LONGEST + 1];
    let mut index = 0;
    while index < 29 {
        let (code, bits) = fixed(257 + index as u32);
        let (base, extra) = (LENGTH_BASE[index] as usize, LENGTH_EXTRA[index] as u32);
        let mut more = 0;
        while more < 1 << extra && base + more <= LONGEST {
            all[base + more] = code | (more as u32) << bits | (bits + extra) << 24;
            more += 1;
        }
        index += 1;
    }
    all
}

const fn distances() -> [u32; 512] {
    let mut all = [0; 512];
    let mut index = 0;
    let mut symbol = 0;
    while index < 512 {
        // Indexes 256 and 257 stand for distances that are in the lower half.
        let distance = if index < 256 { index } else { (index - 256) << 7 } + 1;
        if index == 256 {
            symbol = 0;
        }
        while symbol < 29 && DISTANCE_BASE[symbol + 1] as usize <= distance {
            symbol += 1;
        }
        let bits = 5 + DISTANCE_EXTRA[symbol] as u32;
        all[index] = reversed(symbol as u32, 5) | bits << 8 | (DISTANCE_BASE[symbol] as u32) << 16;
        index += 1;
    }
    all
}

/// The index of a distance in `DISTANCES`.
#[inline(always)]
pub(crate) fn distance_index(distance: usize) -> usize {
    let at = distance.wrapping_sub(1);
    (if at < 256 { at } else { 256 + (at >> 7) }) & 511
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_lengths_and_distances_match_the_standard() {
        for (length, packed) in LENGTHS.iter().enumerate().take(LONGEST + 1).skip(3) {
            let symbol = LENGTH_BASE.iter().rposition(|base| usize::from(*base) <= length).unwrap();
            let (code, bits) = fixed(257 + symbol as u32);
            let more = (length - usize::from(LENGTH_BASE[symbol])) as u32;
            let all = bits + u32::from(LENGTH_EXTRA[symbol]);
            assert_eq!(*packed, code | (more << bits) | (all << 24), "{length}");
        }
        for distance in 1..=32 * 1024 {
            let symbol = DISTANCE_BASE.iter().rposition(|base| usize::from(*base) <= distance).unwrap();
            let all = 5 + u32::from(DISTANCE_EXTRA[symbol]);
            let expected = reversed(symbol as u32, 5) | all << 8 | u32::from(DISTANCE_BASE[symbol]) << 16;
            assert_eq!(DISTANCES[distance_index(distance)], expected, "{distance}");
        }
    }
}
