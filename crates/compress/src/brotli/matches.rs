//! Search for repetitions: a hash table provides the latest position with the same four bytes, and chains the earlier ones.

/// The window size in bits.
pub(super) const WINDOW_BITS: u32 = 17;
const WINDOW: usize = 1 << WINDOW_BITS;
/// The maximum distance of a match (RFC 7932, 9.1).
const FARTHEST: usize = WINDOW - 16;
/// The size of the buffer for history and new input.
const BUFFER: usize = 2 * WINDOW;
const HASH_BITS: u32 = 15;
/// The minimum length of a match.
pub(super) const SHORTEST: usize = 4;
/// The maximum length that is compared, which bounds the time for repetitive input.
const LONGEST: usize = 16 * 1024;
/// Marks the end of a chain.
const NONE: u32 = u32::MAX;

/// The memory of the search.
pub(super) const MEMORY: usize = BUFFER + (4 << HASH_BITS) + 4 * WINDOW;

/// A repetition of earlier input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BrotliMatch {
    pub(super) length: usize,
    pub(super) distance: usize,
    /// The number of bits that it saves, approximately.
    pub(super) score: u32,
}

impl BrotliMatch {
    pub(super) const NONE: Self = Self { length: 0, distance: 0, score: 0 };
}

/// The effort for a level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// The number of positions that are compared.
    depth: u32,
    /// Whether a match is compared with the one at the next position.
    pub(super) is_lazy: bool,
    /// The length of a match that ends the search.
    enough: usize,
}

impl Effort {
    pub(super) fn of(level: u8) -> Self {
        let level = u32::from(level.clamp(1, 9));
        Self { depth: 1 << (level - 1), is_lazy: level > 2, enough: 8 << level }
    }
}

/// The history of a stream and its tables.
#[derive(Debug)]
pub(super) struct History {
    pub(super) bytes: Box<[u8]>,
    pub(super) filled: usize,
    /// The latest position by hash.
    heads: Box<[u32]>,
    /// The previous position with the same hash, by the lower bits of the position.
    chain: Box<[u32]>,
}

/// Returns the number of equal bytes from two positions on, of which `late` is the later one.
#[inline]
fn common(bytes: &[u8], early: usize, late: usize, most: usize) -> usize {
    let (early, late) = (&bytes[early..], &bytes[late..late + most]);
    let mut length = 0;
    for (one, other) in early.chunks_exact(8).zip(late.chunks_exact(8)) {
        let one = one.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let other = other.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if one != other {
            return length + ((one ^ other).trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    length + early[length..].iter().zip(&late[length..]).take_while(|(one, other)| one == other).count()
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; BUFFER].into(),
            filled: 0,
            heads: vec![NONE; 1 << HASH_BITS].into(),
            chain: vec![NONE; WINDOW].into(),
        }
    }

    pub(super) fn reset(&mut self) {
        // The chain is reachable only through the heads.
        self.heads.fill(NONE);
        self.filled = 0;
    }

    /// Takes up to `most` bytes of input, and returns how many.
    pub(super) fn take(&mut self, data: &[u8], most: usize) -> usize {
        let taken = most.min(data.len()).min(BUFFER - self.filled);
        self.bytes[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
        self.filled += taken;
        taken
    }

    /// Whether the buffer is full.
    pub(super) fn is_full(&self) -> bool {
        self.filled == BUFFER
    }

    /// Makes room for input, which moves positions back, and returns whether it had to. The input so far must have been coded.
    pub(super) fn slide(&mut self) -> bool {
        if !self.is_full() {
            return false;
        }
        self.bytes.copy_within(WINDOW.., 0);
        self.filled = WINDOW;
        for position in self.heads.iter_mut().chain(&mut self.chain) {
            *position =
                if *position == NONE { NONE } else { position.checked_sub(WINDOW as u32).unwrap_or(NONE) };
        }
        true
    }

    fn hash(&self, at: usize) -> usize {
        let word = self.bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
    }

    /// Adds a position to the tables.
    #[inline]
    pub(super) fn add(&mut self, at: usize) {
        if at + SHORTEST <= self.filled {
            let hash = self.hash(at);
            self.chain[at % WINDOW] = self.heads[hash];
            self.heads[hash] = at as u32;
        }
    }

    /// Returns the best match at a position. Matches at one of the recent distances need few bits.
    pub(super) fn find(&self, at: usize, recent: &[usize; 4], effort: Effort) -> BrotliMatch {
        let most = (self.filled - at).min(LONGEST);
        let mut best = BrotliMatch::NONE;
        if most < SHORTEST {
            return best;
        }
        for (index, distance) in recent.iter().enumerate().take(if effort.is_lazy { 4 } else { 1 }) {
            if *distance <= at.min(FARTHEST) {
                let length = common(&self.bytes, at - distance, at, most);
                let score = (6 * length as u32 + 3).saturating_sub(if index == 0 { 0 } else { 6 });
                if length >= SHORTEST && score > best.score {
                    best = BrotliMatch { length, distance: *distance, score };
                }
            }
        }
        let mut from = self.heads[self.hash(at)];
        for _ in 0..effort.depth {
            let early = from as usize;
            if from == NONE || early >= at || at - early > FARTHEST || best.length >= effort.enough.min(most)
            {
                break;
            }
            if self.bytes[early + best.length] == self.bytes[at + best.length] {
                let distance = at - early;
                let length = common(&self.bytes, early, at, most);
                let score = (6 * length as u32).saturating_sub(distance.ilog2());
                if length >= SHORTEST && score > best.score {
                    best = BrotliMatch { length, distance, score };
                }
            }
            let earlier = self.chain[early % WINDOW];
            if earlier >= from {
                break;
            }
            from = earlier;
        }
        // Short matches far back take more bits than literals.
        if best.score < 6 * SHORTEST as u32 - 15 { BrotliMatch::NONE } else { best }
    }
}
