//! Deflate at level 1: quick above all (RFC 1951).
//!
//! Text comes in, in pieces, and becomes one block each. For every place one earlier place is looked
//! at, that which a table of hashes remembers; what is equal becomes a reference, all else literals,
//! in the fixed code. Where nothing is found for a while places are passed over. A piece that would
//! grow is written as it is.
//!
//! Its time goes into branches that are not foreseen and into the way from a place over the table to
//! the earlier place and to the next one, so that both are few and short: the table tells nearly all
//! places apart that do not match, matches of six bytes are the shortest but at the beginning of a
//! body (shorter ones save few bits beside literals where they are far back), literals are written
//! seven at a time, and the buffer is a ring, whose places the table holds as they are.
//!
//! Called by `pool`, for level 1 alone: the levels above are zlib's (`zlib`).

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::Until;
use crate::codes::{DISTANCES, LENGTHS, LITERALS as LITERAL_CODES, LONGEST, distance_index};

/// How far back a match may be.
const WINDOW: usize = 32 * 1024;
/// The ring of history and what is being coded: its places are numbers of 16 bits.
const BUFFER: usize = 1 << 16;
/// So much is read at a time, so that behind the ring's end its beginning is repeated.
const SLACK: usize = 16;
/// So much is coded at a time, as one block.
pub(crate) const PIECE: usize = 16 * 1024;
/// Bits of a hash.
const HASH_BITS: u32 = 12;
/// The shortest match at the beginning of a body, as long as this, where matches are near and few.
const SHORTEST_EARLY: usize = 4;
const EARLY: usize = 3 * PIECE;
/// The shortest match from there on.
const SHORTEST_LATER: usize = 6;
/// Literals that are written at once: with what a byte has left over they fit in 64 bits.
const LITERALS: usize = 7;
/// So many times all of `LITERALS` places in a row match nothing before places are passed over.
const PATIENCE: usize = 2;
/// The longest that a block becomes, and room for a word behind it.
const SCRATCH: usize = PIECE + PIECE / 8 + 64;

/// What a state takes.
pub(crate) const MEMORY: usize = size_of::<Quick>() + BUFFER + SLACK + (4 << HASH_BITS) + SCRATCH;

/// One stream's state.
pub(crate) struct Quick {
    buffer: Box<Window>,
    /// How far the ring is filled: to here, and to the end what was there before.
    filled: usize,
    /// Up to where it was coded.
    coded: usize,
    is_early: bool,
    /// Places in the ring by hash, each in the lower half of its entry. One that is out of date does no
    /// harm: bytes are compared, and what is out of the window is not taken. Of a new body all are its
    /// beginning. The upper half is more of the hash, which tells nearly all that differ apart without
    /// a look at the place: that is in farther memory than the table.
    table: Box<CodeTable>,
    /// Bits that do not fill a byte yet.
    bits: u64,
    count: u32,
    scratch: Box<[u8; SCRATCH]>,
}

type Window = [u8; BUFFER + SLACK];
type CodeTable = [u32; 1 << HASH_BITS];

/// Eight bytes from a place on. The remainder, which is a mask, spares a branch.
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

/// The hash of the first bytes of eight, as many as the shortest match has: the highest bits are best.
#[inline(always)]
fn hash<const SHORTEST: usize>(word: u64) -> u64 {
    (word << (64 - 8 * SHORTEST)).wrapping_mul(0x9e37_79b1_85eb_ca87)
}

/// All eight bytes of a word.
const fn bytes(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
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

    /// Works on a copy, for what is not inlined: a value whose address is taken does not stay in
    /// registers.
    #[inline(always)]
    fn apart(&mut self, work: impl FnOnce(&mut Bits<'_>)) {
        let mut copy = Bits { out: self.out, ..*self };
        work(&mut copy);
        (self.at, self.bits, self.count) = (copy.at, copy.bits, copy.count);
    }

    /// Adds the first so many bytes of a word, up to `LITERALS`, as literals.
    #[inline(always)]
    fn literals(&mut self, word: u64, count: usize) {
        let mask = (1u64 << (8 * count)).wrapping_sub(1);
        let word = word & mask;
        // From 144 on codes have nine bits: the highest bit, and what a carry makes of the others.
        if word & ((word & bytes(0x7f)) + bytes(0x70)) & bytes(0x80) != 0 {
            return self.apart(|bits| bits.long_literals(word, count));
        }
        // Below, a code is eight bits: the byte and 0x30, the highest bit first.
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

    /// Adds what is between two places as literals.
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
        // What becomes of a body must not depend on those before it.
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
                // No block goes over the end.
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

/// An earlier place that may match, and the eight bytes that are to.
struct Candidate {
    entry: u32,
    own: u32,
    word: u64,
}

impl Candidate {
    /// What the table has for a place, which takes its turn there.
    #[inline(always)]
    fn of<const SHORTEST: usize>(buffer: &Window, table: &mut CodeTable, at: usize) -> Self {
        let word = load8(buffer, at);
        let hash = hash::<SHORTEST>(word);
        let own = (hash >> 16) as u32 & 0xffff_0000 | u32::from(at as u16);
        let slot = &mut table[(hash >> (64 - HASH_BITS)) as usize];
        Self { entry: std::mem::replace(slot, own), own, word }
    }

    /// The match, if it is one. Of those whose hashes are equal hardly any is not.
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

/// An earlier place that matches, how eight bytes differ there, and how far back it is.
struct Match {
    before: usize,
    different: u64,
    distance: usize,
}

impl Match {
    /// Writes the match, and tells how long it is. Sixteen bytes are compared without a branch.
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

/// Writes what is between two places.
#[inline(never)]
fn content<const SHORTEST: usize>(
    buffer: &Window,
    table: &mut CodeTable,
    start: usize,
    end: usize,
    bits: &mut Bits<'_>,
) {
    bits.apart(|bits| {
        // Far from the end nothing has to be compared with it.
        let at = matches::<SHORTEST, false>(buffer, table, start, end, bits);
        let at = matches::<SHORTEST, true>(buffer, table, at, end, bits);
        bits.apart(|bits| bits.plain(buffer, at, end));
    });
}

/// Writes matches and what is between them, and tells how far it came: some places before `end`.
///
/// Right behind a match comes the next one more often than not, without literals between them. If it
/// does not, the loop over the following places has a fixed number of rounds, so that it is unrolled
/// and each has a branch of its own, and no match has more literals before it than fit in a word.
#[inline(always)]
fn matches<const SHORTEST: usize, const NEAR_END: bool>(
    buffer: &Window,
    table: &mut CodeTable,
    start: usize,
    end: usize,
    bits: &mut Bits<'_>,
) -> usize {
    // As far as places are looked at from one on, and what is compared of the last without a branch.
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
