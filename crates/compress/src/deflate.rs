//! Deflate at level 1: quick above all (RFC 1951).
//!
//! Text comes in, in pieces, and becomes one block each. For every place one earlier place is looked
//! at, that which a table of hashes remembers; what is equal becomes a reference, all else literals,
//! in the fixed code. Where nothing is found for a while places are passed over. A piece that would
//! grow is written as it is.
//!
//! Called by `pool`, for level 1 alone: the levels above are zlib's (`zlib`).

use std::ops::Range;

use crate::Until;

/// How far back a match may be.
const WINDOW: usize = 32 * 1024;
/// History and what is being coded.
const BUFFER: usize = 2 * WINDOW;
/// What is read eight bytes at a time may be read behind its end.
const SLACK: usize = 8;
/// So much is coded at a time, as one block.
const PIECE: usize = 16 * 1024;
/// Bits of a hash.
const HASH_BITS: u32 = 13;
/// After so many places without a match, as a power of two, one more is passed over each time.
const SKIP: u32 = 4;
/// The longest match.
const LONGEST: usize = 258;
/// So close to the end of a piece nothing is looked for.
const MARGIN: usize = 8;
/// The longest that a block becomes, and room for a word behind it.
const SCRATCH: usize = PIECE + PIECE / 8 + 64;

/// What a state takes.
pub(crate) const MEMORY: usize = size_of::<Quick>() + BUFFER + (2 << HASH_BITS) + SCRATCH;

/// By literal: its code, the first bit lowest, and above 12 bits how many bits it has.
static LITERALS: [u16; 256] = literals();
/// By length: its code with the extra bits, and above 24 bits how many these are.
static LENGTHS: [u32; LONGEST + 1] = lengths();
/// The symbol of a distance: by the distance less 1 below 256, above by its bits from the eighth on.
static DISTANCES: [u8; 512] = distances();

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

const fn distances() -> [u8; 512] {
    let mut all = [0; 512];
    let mut distance = 1;
    let mut code = 0;
    while distance <= WINDOW {
        while code < 29 && DISTANCE_BASE[code + 1] as usize <= distance {
            code += 1;
        }
        let at = distance - 1;
        if at < 256 {
            all[at] = code as u8;
        } else {
            all[256 + (at >> 7)] = code as u8;
        }
        distance += 1;
    }
    all
}

/// By symbol of a distance: its code, how many extra bits there are, and the least of its distances.
static DISTANCE_CODES: [(u8, u8, u16); 30] = {
    let mut all = [(0, 0, 0); 30];
    let mut code = 0;
    while code < 30 {
        all[code] = (reversed(code as u32, 5) as u8, DISTANCE_EXTRA[code], DISTANCE_BASE[code]);
        code += 1;
    }
    all
};

/// One stream's state.
pub(crate) struct Quick {
    buffer: Box<[u8; BUFFER + SLACK]>,
    /// Bytes in the buffer.
    filled: usize,
    /// Those of them that were coded.
    coded: usize,
    /// Places by hash: in the buffer, with what was moved out of it added, and of that the lowest 16
    /// bits. One that is out of date does no harm: bytes are compared, and what is before the buffer is
    /// not looked at.
    table: Box<[u16; 1 << HASH_BITS]>,
    /// What was moved out of the buffer so far.
    base: u16,
    /// Bits that do not fill a byte yet.
    bits: u64,
    count: u32,
    scratch: Box<[u8; SCRATCH]>,
}

#[inline(always)]
fn load1(buffer: &[u8; BUFFER + SLACK], at: usize) -> u8 {
    buffer[at % BUFFER]
}

/// Eight bytes from a place on. Places are within the buffer: the remainder, which is a mask, spares
/// a branch.
#[inline(always)]
fn load8(buffer: &[u8; BUFFER + SLACK], at: usize) -> u64 {
    let at = at % BUFFER;
    buffer[at..at + 8].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The hash of the first four of eight bytes.
#[inline(always)]
fn hash(word: u64) -> usize {
    ((word as u32).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

/// Writes bits to memory that has room for them.
struct Bits<'a> {
    out: &'a mut [u8; SCRATCH],
    at: usize,
    bits: u64,
    count: u32,
}

impl Bits<'_> {
    /// Adds so many bits, of which there is room for, up to 32 or so.
    #[inline(always)]
    fn add(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
    }

    /// Hands whole bytes out: fewer than 8 bits are left.
    #[inline(always)]
    fn put(&mut self) {
        if let Some(to) = self.out.get_mut(self.at..self.at + 8) {
            to.copy_from_slice(&self.bits.to_le_bytes());
        }
        let bytes = self.count >> 3;
        self.at += bytes as usize;
        self.bits >>= bytes * 8;
        self.count &= 7;
    }

    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        let code = LITERALS[byte as usize];
        self.add(u64::from(code & 0xfff), u32::from(code >> 12));
        self.put();
    }

    #[inline(always)]
    fn copy(&mut self, length: usize, distance: usize) {
        let code = LENGTHS[length];
        self.add(u64::from(code & 0xff_ffff), code >> 24);
        let at = distance - 1;
        let symbol = DISTANCES[if at < 256 { at } else { 256 + (at >> 7) } & 511];
        let (code, extra, base) = DISTANCE_CODES[symbol as usize];
        let value = u64::from(code) | ((distance - usize::from(base)) as u64) << 5;
        self.add(value, 5 + u32::from(extra));
        self.put();
    }
}

impl Quick {
    pub(crate) fn new() -> Self {
        Self {
            buffer: Box::new([0; BUFFER + SLACK]),
            filled: 0,
            coded: 0,
            table: Box::new([0; 1 << HASH_BITS]),
            base: 0,
            bits: 0,
            count: 0,
            scratch: Box::new([0; SCRATCH]),
        }
    }

    pub(crate) fn reset(&mut self) {
        // What becomes of a body must not depend on those before it.
        self.table.fill(0);
        (self.filled, self.coded, self.base, self.bits, self.count) = (0, 0, 0, 0, 0);
    }

    pub(crate) fn write(&mut self, data: &[u8], until: Until, out: &mut Vec<u8>) {
        self.take(data, out);
        match until {
            Until::Later => {}
            Until::Flushed => self.flush(out),
            Until::Finished => self.finish(out),
        }
    }

    fn take(&mut self, mut data: &[u8], out: &mut Vec<u8>) {
        while !data.is_empty() {
            if self.filled == BUFFER {
                self.slide();
            }
            let room = (BUFFER - self.filled).min(PIECE - (self.filled - self.coded));
            let taken = room.min(data.len());
            self.buffer[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled - self.coded == PIECE {
                self.block(false, out);
            }
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.filled > self.coded {
            self.block(false, out);
        }
        // An empty block of bytes as they are.
        self.stored(0..0, false, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.block(true, out);
        if self.count > 0 {
            out.push(self.bits as u8);
        }
        (self.bits, self.count) = (0, 0);
    }

    /// Moves what matches may still be in to the front.
    fn slide(&mut self) {
        self.buffer.copy_within(WINDOW.., 0);
        self.filled -= WINDOW;
        self.coded -= WINDOW;
        self.base = self.base.wrapping_add(WINDOW as u16);
    }

    /// Writes a block of bytes as they are.
    fn stored(&mut self, data: Range<usize>, last: bool, out: &mut Vec<u8>) {
        self.bits |= u64::from(last) << self.count;
        let bytes = (self.count + 3).div_ceil(8) as usize;
        out.extend_from_slice(&self.bits.to_le_bytes()[..bytes]);
        (self.bits, self.count) = (0, 0);
        let length = data.len() as u16;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(&self.buffer[data]);
    }

    /// Codes what was not coded yet as one block.
    fn block(&mut self, last: bool, out: &mut Vec<u8>) {
        let (start, end) = (self.coded, self.filled);
        let Self { buffer, table, scratch, base, .. } = self;
        let mut bits = Bits { out: scratch, at: 0, bits: self.bits, count: self.count };
        bits.add(u64::from(last) | 2, 3);
        bits.put();
        matches(buffer, table, *base, start, end, &mut bits);
        // The end of the block: seven zeros.
        bits.add(0, 7);
        bits.put();
        self.coded = end;
        if bits.at > end - start + 5 {
            self.stored(start..end, last, out);
            return;
        }
        let (at, rest, count) = (bits.at, bits.bits, bits.count);
        (self.bits, self.count) = (rest, count);
        out.extend_from_slice(&self.scratch[..at]);
    }
}

/// Finds what is equal between `start` and `end` to what was before, and writes it all. What one
/// place costs is the way from its bytes over the table to the earlier place and back, and each
/// branch that is not foreseen; so there is one for whether a place matches, and none for how many
/// literals stand between matches.
#[inline(always)]
fn matches(
    buffer: &[u8; BUFFER + SLACK],
    table: &mut [u16; 1 << HASH_BITS],
    base: u16,
    start: usize,
    end: usize,
    bits: &mut Bits<'_>,
) {
    let limit = end.saturating_sub(MARGIN);
    let mut at = start;
    let mut missed = 0;
    while at < limit {
        let word = load8(buffer, at);
        let place = base.wrapping_add(at as u16);
        let slot = &mut table[hash(word)];
        let distance = usize::from(place.wrapping_sub(*slot));
        *slot = place;
        let before = at.wrapping_sub(distance);
        let mut different = load8(buffer, before) ^ word;
        let is_near = (distance.wrapping_sub(1) < WINDOW) & (distance <= at);
        if !is_near | (different as u32 != 0) {
            missed += 1;
            let next = (at + 1 + (missed >> SKIP)).min(limit);
            while at < next {
                bits.literal(load1(buffer, at));
                at += 1;
            }
            continue;
        }
        missed = 0;
        let most = LONGEST.min(end - at);
        let mut length = 0;
        while different == 0 && length + 8 < most {
            length += 8;
            different = load8(buffer, at + length) ^ load8(buffer, before + length);
        }
        length = (length + different.trailing_zeros() as usize / 8).min(most);
        bits.copy(length, distance);
        at += length;
        let back = at - 2;
        table[hash(load8(buffer, back))] = base.wrapping_add(back as u16);
    }
    for at in at..end {
        bits.literal(load1(buffer, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_distance_has_the_code_of_the_standard() {
        for (length, told) in LENGTHS.iter().enumerate().take(LONGEST + 1).skip(3) {
            let symbol = LENGTH_BASE.iter().rposition(|base| usize::from(*base) <= length).unwrap();
            let (code, bits) = fixed(257 + symbol as u32);
            let more = (length - usize::from(LENGTH_BASE[symbol])) as u32;
            let all = bits + u32::from(LENGTH_EXTRA[symbol]);
            assert_eq!(*told, code | (more << bits) | (all << 24), "{length}");
        }
        for distance in 1..=WINDOW {
            let at = distance - 1;
            let symbol = DISTANCES[if at < 256 { at } else { 256 + (at >> 7) }];
            let expected = DISTANCE_BASE.iter().rposition(|base| usize::from(*base) <= distance).unwrap();
            assert_eq!(usize::from(symbol), expected, "{distance}");
        }
    }
}
