//! The static Huffman code (RFC 7541 appendix B): decoding by table, several bits at a time, and encoding.
//!
//! The code is canonical, so the tables are computed from its lengths at compile time. HPACK never
//! encodes strings: that would cost more than the bytes it saves. QPACK does so if configured.

use crate::coding::CodingError;

/// Code lengths in bits by symbol; 256 is EOS, which must not occur in a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The number of bits that are looked up at once: two short codes, or one longer code.
const WIDTH: u32 = 11;
const LONGEST: usize = 30;
const END: u16 = 256;

/// The one or two symbols with which the next [`WIDTH`] bits begin, the number of bits of the first, and that of both. Zero bits
/// mean that the code is longer.
#[derive(Clone, Copy)]
struct Step {
    symbols: [u8; 2],
    first: u8,
    /// The number of bits of all symbols; the highest bit is set if there are two symbols.
    both: u8,
}

const TWO: u8 = 0x80;

/// The code in canonical order, by length. Codes are left-aligned in 32 bits.
struct Canonical {
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
    /// The first code of each length, left-aligned, and the index of its symbol.
    first: [u32; LONGEST + 2],
    index: [u16; LONGEST + 2],
}

const CANONICAL: Canonical = {
    let mut made = Canonical { symbols: [0; 257], first: [0; LONGEST + 2], index: [0; LONGEST + 2] };
    let (mut length, mut code, mut at) = (1, 0u64, 0);
    while length <= LONGEST + 1 {
        // The entry after the last code is all ones plus one, so that no value reaches it.
        made.first[length] = if code > u32::MAX as u64 { u32::MAX } else { code as u32 };
        made.index[length] = at as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                made.symbols[at] = symbol as u16;
                at += 1;
                code += 1 << (32 - length);
            }
            symbol += 1;
        }
        length += 1;
    }
    assert!(code == 1 << 32, "the code uses up all bits");
    made
};

/// Returns the symbol that the left-aligned `bits` begin with, and its length.
const fn symbol(bits: u32, from: usize) -> (u16, usize) {
    let mut length = from;
    while length < LONGEST && bits >= CANONICAL.first[length + 1] {
        length += 1;
    }
    let offset = (bits - CANONICAL.first[length]) >> (32 - length);
    (CANONICAL.symbols[CANONICAL.index[length] as usize + offset as usize], length)
}

static STEPS: [Step; 1 << WIDTH] = {
    let mut steps = [Step { symbols: [0; 2], first: 0, both: 0 }; 1 << WIDTH];
    let mut bits = 0;
    while bits < steps.len() {
        let left = (bits as u32) << (32 - WIDTH);
        let (one, first) = symbol(left, 1);
        if first <= WIDTH as usize {
            let (two, second) = symbol(left << first, 1);
            steps[bits] = if first + second <= WIDTH as usize {
                Step {
                    symbols: [one as u8, two as u8],
                    first: first as u8,
                    both: TWO | (first + second) as u8,
                }
            } else {
                Step { symbols: [one as u8, 0], first: first as u8, both: first as u8 }
            };
        }
        bits += 1;
    }
    steps
};

/// The right-aligned code of each byte.
static CODES: [u32; 256] = {
    let mut codes = [0; 256];
    let mut at = 0;
    while at < 257 {
        let symbol = CANONICAL.symbols[at] as usize;
        if symbol < 256 {
            let length = LENGTHS[symbol] as usize;
            let offset = at as u32 - CANONICAL.index[length] as u32;
            codes[symbol] = (CANONICAL.first[length] >> (32 - length)) + offset;
        }
        at += 1;
    }
    codes
};

/// The length of the code of `plain` in bytes, with its padding.
#[must_use]
pub fn coded_len(plain: &[u8]) -> usize {
    plain.iter().map(|byte| LENGTHS[*byte as usize] as usize).sum::<usize>().div_ceil(8)
}

/// Encodes `plain` and appends the result to `out`.
pub fn encode(plain: &[u8], out: &mut Vec<u8>) {
    // Unwritten bits, right-aligned, and their number: less than 32 between two bytes.
    let (mut bits, mut held) = (0u64, 0u32);
    for byte in plain {
        let length = u32::from(LENGTHS[*byte as usize]);
        bits = bits << length | u64::from(CODES[*byte as usize]);
        held += length;
        if held >= 32 {
            held -= 32;
            out.extend_from_slice(&((bits >> held) as u32).to_be_bytes());
        }
    }
    let padding = held.wrapping_neg() % 8;
    let rest = (bits << padding | ((1 << padding) - 1)) as u32;
    let left = ((held + padding) / 8) as usize;
    out.extend_from_slice(&rest.to_be_bytes()[4 - left..]);
}

/// Decodes `coded` and appends the result to `out`.
///
/// # Errors
/// The string contains EOS, or its padding is longer than seven bits or not all ones (RFC 7541
/// section 5.2). `out` is unchanged.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
    let start = out.len();
    // No code is shorter than five bits; two symbols are written at a time.
    out.resize(start + coded.len() * 8 / 5 + 2, 0);
    let written = run(coded, &mut out[start..]);
    out.truncate(start + written.unwrap_or_default());
    written.map(drop)
}

/// Like [`decode`], into a slice that is long enough; returns the number of bytes written.
fn run(coded: &[u8], out: &mut [u8]) -> Result<usize, CodingError> {
    let (mut rest, mut at) = (coded, 0);
    // Unread bits, left-aligned, and their number.
    let (mut bits, mut held) = (0u64, 0u32);
    loop {
        if let Some(chunk) = rest.first_chunk::<8>() {
            bits |= u64::from_be_bytes(*chunk) >> held;
            let bytes = (63 - held) / 8;
            rest = &rest[bytes as usize..];
            held += bytes * 8;
        } else {
            while held <= 56
                && let [byte, left @ ..] = rest
            {
                bits |= u64::from(*byte) << (56 - held);
                held += 8;
                rest = left;
            }
        }
        if held < LONGEST as u32 {
            break;
        }
        while held >= LONGEST as u32 {
            let step = STEPS[(bits >> (64 - WIDTH)) as usize];
            let taken = if step.both == 0 {
                let (symbol, length) = long(bits)?;
                out[at] = symbol;
                at += 1;
                length
            } else {
                out[at..at + 2].copy_from_slice(&step.symbols);
                at += 1 + (step.both >> 7) as usize;
                u32::from(step.both & !TWO)
            };
            bits <<= taken;
            held -= taken;
        }
    }
    tail(bits, held, out, at)
}

/// Decodes a code that is too long for a `Step`.
#[cold]
fn long(bits: u64) -> Result<(u8, u32), CodingError> {
    let (symbol, length) = symbol((bits >> 32) as u32, WIDTH as usize + 1);
    if symbol == END { Err(CodingError::Huffman) } else { Ok((symbol as u8, length as u32)) }
}

/// Decodes the last symbols and checks the padding.
fn tail(mut bits: u64, mut held: u32, out: &mut [u8], mut at: usize) -> Result<usize, CodingError> {
    while held > 0 {
        let step = STEPS[(bits >> (64 - WIDTH)) as usize];
        let (symbol, length) = match step.first {
            0 => {
                let (symbol, length) = symbol((bits >> 32) as u32, WIDTH as usize + 1);
                if symbol == END && length as u32 <= held {
                    return Err(CodingError::Huffman);
                }
                (symbol as u8, length as u32)
            }
            first => (step.symbols[0], u32::from(first)),
        };
        if length > held {
            break;
        }
        out[at] = symbol;
        at += 1;
        bits <<= length;
        held -= length;
    }
    let ones = held == 0 || bits >> (64 - held) == (1 << held) - 1;
    if held > 7 || !ones { Err(CodingError::Padding) } else { Ok(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn rfc_examples_decode() {
        let cases: &[(&[u8], &str)] = &[
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
            (&[0x64, 0x02], "302"),
            (&[], ""),
        ];
        for (coded, text) in cases {
            assert_eq!(plain(coded).as_deref(), Ok(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn strings_round_trip() {
        let mut random = fastrand::Rng::with_seed(3);
        for length in 0..300 {
            let text: Vec<u8> = (0..length).map(|_| random.u8(..) & [0x7f, 0xff][length % 2]).collect();
            let mut coded = b"before".to_vec();
            encode(&text, &mut coded);
            assert_eq!(coded.len() - 6, coded_len(&text));
            assert_eq!(plain(&coded[6..]), Ok(text));
        }
        let mut coded = Vec::new();
        encode(b"www.example.com", &mut coded);
        assert_eq!(coded, [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]);
    }

    #[test]
    fn long_padding_and_eos_are_refused() {
        // `0` is 00000, `a` is 00011.
        for (coded, outcome) in [
            (&[0b0000_0111][..], Ok(b"0".to_vec())),
            (&[0b0000_0110], Err(CodingError::Padding)),
            (&[0b0000_0000], Err(CodingError::Padding)),
            (&[0b0000_0111, 0xff], Err(CodingError::Padding)),
            (&[0xff], Err(CodingError::Padding)),
            (&[0xff, 0xff], Err(CodingError::Padding)),
            (&[0xff, 0xff, 0xff], Err(CodingError::Padding)),
            (&[0xff, 0xff, 0xff, 0xff], Err(CodingError::Huffman)),
            (&[0xff, 0xff, 0xff, 0xfc], Err(CodingError::Huffman)),
            (&[0xff, 0xff, 0xff, 0xff, 0x07, 0xff, 0xff, 0xff, 0xff], Err(CodingError::Huffman)),
            (&[0xff, 0xff, 0xff, 0xf0], Err(CodingError::Padding)),
            // LF has 30 bits: all ones except the last four, 1100.
            (&[0xff, 0xff, 0xff, 0xf3], Ok(b"\n".to_vec())),
        ] {
            assert_eq!(plain(coded), outcome, "{coded:x?}");
        }
    }
}
