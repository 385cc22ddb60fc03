//! Deflate at level 1, optimized for speed (RFC 1951).
//!
//! The input arrives in pieces, each of which becomes one block. For every position a single earlier position is examined, which a
//! hash table provides. Equal bytes become a reference, everything else literals, in the fixed code. After some positions without
//! matches, positions are skipped. A piece that would grow is stored uncompressed.
//!
//! Most of the time is spent on mispredicted branches and on the dependency chain from a position through the table to the earlier
//! position and on to the next one, so both are kept few and short. The table excludes nearly all positions that do not match.
//! Matches have at least six bytes except at the beginning of a body (shorter ones that are far back save few bits compared with
//! literals). Literals are written seven at a time. The buffer is a ring, so that the table can contain positions directly.
//!
//! Called by `pool`, for level 1 only: higher levels use zlib (`zlib`).

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::Until;
use crate::codes::{DISTANCES, LENGTHS, LITERALS as LITERAL_CODES, LONGEST, distance_index};

/// The maximum distance of a match.
const WINDOW: usize = 32 * 1024;
/// The size of the ring of history and current input. Positions are 16-bit numbers.
const BUFFER: usize = 1 << 16;
/// The size of a read. The beginning of the ring is repeated after its end, to permit reads across it.
const SLACK: usize = 16;
/// The amount that is coded at a time, as one block.
pub(crate) const PIECE: usize = 16 * 1024;
/// The number of hash bits.
const HASH_BITS: u32 = 12;
/// The minimum match at the beginning of a body, up to this length, where matches are near and few.
const SHORTEST_EARLY: usize = 4;
const EARLY: usize = 3 * PIECE;
/// The minimum match after that.
const SHORTEST_LATER: usize = 6;
/// The number of literals written at once. Together with the rest of a byte they fit into 64 bits.
const LITERALS: usize = 7;
/// The number of consecutive runs of `LITERALS` positions without a match after which positions are skipped.
const PATIENCE: usize = 2;
/// The maximum size of a block, plus room for a word after it.
const SCRATCH: usize = PIECE + PIECE / 8 + 64;

/// The memory of a state.
pub(crate) const MEMORY: usize = size_of::<Quick>() + BUFFER + SLACK + (4 << HASH_BITS) + SCRATCH;

/// The state of a stream.
pub(crate) struct Quick {
    buffer: Box<Window>,
    /// The end of new data in the ring. Older data follows, up to the end of the ring.
    filled: usize,
    /// The position up to which the input was coded.
    coded: usize,
    is_early: bool,
    /// Ring positions by hash, in the lower half of each entry. A stale entry does no harm: bytes are compared, and positions
    /// outside the window are ignored. In a new body all entries refer to its beginning. The upper half contains more bits of the
    /// hash, which exclude nearly all different positions without reading them, because they are in more distant memory than the
    /// table.
    table: Box<CodeTable>,
    /// Bits that do not yet fill a byte.
    bits: u64,
    count: u32,
    scratch: Box<[u8; SCRATCH]>,
}

type Window = [u8; BUFFER + SLACK];
type CodeTable = [u32; 1 << HASH_BITS];

/// Reads eight bytes from a position on. The remainder, which is computed by a mask, avoids a branch.
#[inline(always)]
fn load8(buffer: &Window, at: usize) -> u64 {
    let at = at % BUFFER;
    buffer[at..at + 8].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline(always)]
fn load16(buffer: &Window, at: usize) -> u128 {
    let at = at % BUFFER;
    buffer[at..at + 16].first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

/// Hashes the first of eight bytes, as many as the minimum match has. The highest bits of the product are the best ones.
#[inline(always)]
fn hash<const SHORTEST: usize>(word: u64) -> u64 {
    (word << (64 - 8 * SHORTEST)).wrapping_mul(0x9e37_79b1_85eb_ca87)
}

/// Repeats a byte in all eight bytes of a word.
const fn bytes(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Writes bits to memory with enough room.
struct Bits<'a> {
    out: &'a mut [u8; SCRATCH],
    at: usize,
    bits: u64,
    count: u32,
}

impl Bits<'_> {
    /// Adds up to about 32 bits, for which there is room.
    #[inline(always)]
    fn add(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
    }

    /// Flushes whole bytes: fewer than 8 bits remain.
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

    /// Works on a copy, for calls that are not inlined, because a value whose address is taken does not stay in registers.
    #[inline(always)]
    fn apart(&mut self, work: impl FnOnce(&mut Bits<'_>)) {
        let mut copy = Bits { out: self.out, ..*self };
        work(&mut copy);
        (self.at, self.bits, self.count) = (copy.at, copy.bits, copy.count);
    }

    /// Adds the first `count` bytes of a word, up to `LITERALS`, as literals.
    #[inline(always)]
    fn literals(&mut self, word: u64, count: usize) {
        let mask = (1u64 << (8 * count)).wrapping_sub(1);
        let word = word & mask;
        // From 144 on, codes have nine bits. This is detected by the highest bit and the carry of the others.
        if word & ((word & bytes(0x7f)) + bytes(0x70)) & bytes(0x80) != 0 {
            return self.apart(|bits| bits.long_literals(word, count));
        }
        // Below 144, a code has eight bits: the byte plus 0x30, highest bit first.
        let codes = (word + bytes(0x30)).reverse_bits().swap_bytes();
        self.add(codes & mask, 8 * count as u32);
        self.put();
    }

    #[inline(never)]
    fn long_literals(&mut self, word: u64, count: usize) {
        for byte in word.to_le_bytes().into_iter().take(count) {
            let code = LITERAL_CODES[usize::from(byte)];
            self.add(u64::from(code & 0xfff), u32::from(code >> 12));
            self.put();
        }
    }

    /// Adds the bytes between two positions as literals.
    #[inline(never)]
    fn plain(&mut self, buffer: &Window, mut at: usize, end: usize) {
        while at < end {
            let count = LITERALS.min(end - at);
            self.literals(load8(buffer, at), count);
            at += count;
        }
    }

    #[inline(always)]
    fn copy(&mut self, length: usize, distance: usize) {
        let code = LENGTHS[length];
        self.add(u64::from(code & 0xff_ffff), code >> 24);
        let code = DISTANCES[distance_index(distance)];
        let extra = distance.wrapping_sub((code >> 16) as usize) as u64;
        self.add(u64::from(code & 31) | extra << 5, code >> 8 & 31);
        self.put();
    }
}

impl Quick {
    pub(crate) fn new() -> Self {
        Self {
            buffer: Box::new([0; BUFFER + SLACK]),
            filled: 0,
            coded: 0,
            is_early: true,
            table: Box::new([0; 1 << HASH_BITS]),
            bits: 0,
            count: 0,
            scratch: Box::new([0; SCRATCH]),
        }
    }

    pub(crate) fn reset(&mut self) {
        // The result for a body must not depend on earlier bodies.
        self.table.fill(0);
        (self.filled, self.coded, self.is_early, self.bits, self.count) = (0, 0, true, 0, 0);
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
                // A block never crosses the end of the ring.
                if self.coded < self.filled {
                    self.block(false, out);
                }
                (self.filled, self.coded) = (0, 0);
            }
            let room = (BUFFER - self.filled).min(PIECE - (self.filled - self.coded));
            let taken = room.min(data.len());
            self.buffer[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            if self.filled < SLACK {
                self.buffer.copy_within(..SLACK, BUFFER);
            }
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
        // An empty stored block.
        self.stored(0..0, false, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.block(true, out);
        if self.count > 0 {
            out.push(self.bits as u8);
        }
        (self.bits, self.count) = (0, 0);
    }

    /// Writes a stored block.
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

    /// Codes the pending input as one block.
    fn block(&mut self, last: bool, out: &mut Vec<u8>) {
        let (start, end) = (self.coded, self.filled);
        let Self { buffer, table, scratch, .. } = self;
        let mut bits = Bits { out: scratch, at: 0, bits: self.bits, count: self.count };
        bits.add(u64::from(last) | 2, 3);
        bits.put();
        if self.is_early {
            content::<SHORTEST_EARLY>(buffer, table, start, end, &mut bits);
            self.is_early = end < EARLY;
        } else {
            content::<SHORTEST_LATER>(buffer, table, start, end, &mut bits);
        }
        // The end-of-block code: seven zeros.
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

/// An earlier position that may match, and the eight bytes to compare.
struct Candidate {
    entry: u32,
    own: u32,
    word: u64,
}

impl Candidate {
    /// Takes the table's entry for a position, and replaces it with that position.
    #[inline(always)]
    fn of<const SHORTEST: usize>(buffer: &Window, table: &mut CodeTable, at: usize) -> Self {
        let word = load8(buffer, at);
        let hash = hash::<SHORTEST>(word);
        let own = (hash >> 16) as u32 & 0xffff_0000 | u32::from(at as u16);
        let slot = &mut table[(hash >> (64 - HASH_BITS)) as usize];
        Self { entry: std::mem::replace(slot, own), own, word }
    }

    /// Returns the match, if the candidate is one. Candidates with equal hashes almost always are.
    #[inline(always)]
    fn found<const SHORTEST: usize>(&self, buffer: &Window) -> Option<Match> {
        if (self.entry ^ self.own) >> 16 != 0 {
            return None;
        }
        let before = usize::from(self.entry as u16);
        let different = load8(buffer, before) ^ self.word;
        let distance = usize::from((self.own as u16).wrapping_sub(self.entry as u16));
        let is_match = different << (64 - 8 * SHORTEST) == 0 && distance.wrapping_sub(1) < WINDOW;
        is_match.then_some(Match { before, different, distance })
    }
}

/// A matching earlier position, the difference of the first eight bytes, and the distance.
struct Match {
    before: usize,
    different: u64,
    distance: usize,
}

impl Match {
    /// Writes the match and returns its length. Sixteen bytes are compared without a branch.
    #[inline(always)]
    fn write<const NEAR_END: bool>(
        self,
        buffer: &Window,
        at: usize,
        end: usize,
        bits: &mut Bits<'_>,
    ) -> usize {
        let before = self.before;
        let more = load8(buffer, at + 8) ^ load8(buffer, before + 8);
        let (short, long) = (self.different.trailing_zeros(), 64 + more.trailing_zeros());
        let mut length = select_unpredictable(self.different == 0, long, short) as usize / 8;
        if self.different | more == 0 {
            let most = LONGEST.min(end - at);
            while length < most {
                let different = load16(buffer, at + length) ^ load16(buffer, before + length);
                length += different.trailing_zeros() as usize / 8;
                if different != 0 {
                    break;
                }
            }
            length = length.min(most);
        } else if NEAR_END {
            length = length.min(end - at);
        }
        bits.copy(length, self.distance);
        length
    }
}

/// Writes the input between two positions.
#[inline(never)]
fn content<const SHORTEST: usize>(
    buffer: &Window,
    table: &mut CodeTable,
    start: usize,
    end: usize,
    bits: &mut Bits<'_>,
) {
    bits.apart(|bits| {
        // Far from the end, no comparison with the end is needed.
        let at = matches::<SHORTEST, false>(buffer, table, start, end, bits);
        let at = matches::<SHORTEST, true>(buffer, table, at, end, bits);
        bits.apart(|bits| bits.plain(buffer, at, end));
    });
}

/// Writes matches and the literals between them, and returns the position reached, slightly before `end`.
///
/// A match is often followed directly by another one, without literals in between. If not, the loop over the following positions
/// has a fixed number of rounds, so that it is unrolled and each round has its own branch. A match is therefore never preceded by
/// more literals than fit in a word.
#[inline(always)]
fn matches<const SHORTEST: usize, const NEAR_END: bool>(
    buffer: &Window,
    table: &mut CodeTable,
    start: usize,
    end: usize,
    bits: &mut Bits<'_>,
) -> usize {
    // The number of positions examined, plus the bytes compared at the last one without a branch.
    let margin = LITERALS + if NEAR_END { SHORTEST } else { 16 };
    let limit = end.saturating_sub(margin);
    let mut at = start;
    'matches: while at < limit {
        let candidate = Candidate::of::<SHORTEST>(buffer, table, at);
        if let Some(found) = candidate.found::<SHORTEST>(buffer) {
            at += found.write::<NEAR_END>(buffer, at, end, bits);
            continue;
        }
        let mut missed = 0;
        while at < limit {
            let word = load8(buffer, at);
            for count in 1..=LITERALS {
                let candidate = Candidate::of::<SHORTEST>(buffer, table, at + count);
                if let Some(found) = candidate.found::<SHORTEST>(buffer) {
                    bits.literals(word, count);
                    at += count;
                    at += found.write::<NEAR_END>(buffer, at, end, bits);
                    continue 'matches;
                }
            }
            bits.literals(word, LITERALS);
            at += LITERALS;
            missed += 1;
            if missed > PATIENCE {
                let next = (at + missed * missed / 4).min(limit);
                bits.apart(|bits| bits.plain(buffer, at, next));
                at = at.max(next);
            }
        }
    }
    at
}
