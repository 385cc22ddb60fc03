//! Searches for many substrings at once. A hash table holds a short, rare gram of each pattern, and every position of
//! a text is looked up in it. Patterns are added and removed without a rebuild.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use memchr::memmem::Finder;

use super::entries::{LineSlot, Texts};
use super::exact::with_lower;

type Hasher = foldhash::fast::RandomState;

/// Gram lengths. A pattern is indexed by the longest gram that fits into it.
const SIZES: [usize; 4] = [8, 4, 2, 1];
/// Filter bits per pattern, which are tested before the table.
const BITS_EACH: usize = 16;
/// The number of positions in a pattern at which the rarest gram is searched for.
const TRIED: usize = 16;

#[derive(Debug)]
struct Gram {
    value: u64,
    slot: LineSlot,
    /// The gram's offset in the pattern.
    at: u32,
}

/// The patterns indexed by grams of one length.
#[derive(Debug, Default)]
struct Grams {
    table: HashTable<Gram>,
    /// A bit for each hash in the table. Bits of removed patterns may remain.
    bits: Vec<u64>,
    hasher: Hasher,
}

/// Reads the first `N` bytes as a number.
fn load(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Grams {
    fn place(&self, hash: u64) -> (usize, u64) {
        // Uses other bits of the hash than the table.
        let bit = (hash >> 25) as usize & (self.bits.len() * 64 - 1);
        (bit / 64, 1 << (bit % 64))
    }

    fn insert(&mut self, slot: LineSlot, pattern: &[u8], size: usize) {
        let last = pattern.len() - size;
        let step = (last + 1).div_ceil(TRIED);
        let sharing = |at: usize| {
            let value = load(&pattern[at..at + size]);
            self.table.iter_hash(self.hasher.hash_one(value)).take(64).count()
        };
        let at = (0..=last).step_by(step).min_by_key(|at| sharing(*at)).unwrap_or(0);
        let value = load(&pattern[at..at + size]);
        let hash = self.hasher.hash_one(value);
        let hasher = &self.hasher;
        let gram = Gram { value, slot, at: at as u32 };
        self.table.insert_unique(hash, gram, |gram| hasher.hash_one(gram.value));
        if self.table.len() * BITS_EACH > self.bits.len() * 64 {
            self.bits = vec![0; (self.table.len() * 2 * BITS_EACH / 64).next_power_of_two().max(16)];
            let all: Vec<u64> = self.table.iter().map(|gram| hasher.hash_one(gram.value)).collect();
            all.into_iter().for_each(|hash| self.set(hash));
        }
        self.set(hash);
    }

    fn set(&mut self, hash: u64) {
        let (word, bit) = self.place(hash);
        self.bits[word] |= bit;
    }

    fn remove(&mut self, slot: LineSlot, pattern: &[u8], size: usize) {
        for at in 0..=pattern.len() - size {
            let hash = self.hasher.hash_one(load(&pattern[at..at + size]));
            if let Ok(found) = self.table.find_entry(hash, |gram| gram.slot == slot) {
                found.remove();
                return;
            }
        }
    }

    /// Passes each pattern that occurs in `text` to `visit` until it returns true.
    #[inline]
    fn each<const SIZE: usize>(
        &self,
        text: &[u8],
        same: impl Fn(LineSlot, usize) -> bool,
        visit: &mut impl FnMut(LineSlot) -> bool,
    ) -> bool {
        if self.table.is_empty() {
            return false;
        }
        for (place, window) in text.windows(SIZE).enumerate() {
            let value = load(window);
            let hash = self.hasher.hash_one(value);
            let (word, bit) = self.place(hash);
            if self.bits[word] & bit == 0 {
                continue;
            }
            for gram in self.table.iter_hash(hash).filter(|gram| gram.value == value) {
                let start = place.checked_sub(gram.at as usize);
                if start.is_some_and(|start| same(gram.slot, start)) && visit(gram.slot) {
                    return true;
                }
            }
        }
        false
    }
}

/// The substrings of a list.
#[derive(Debug)]
pub(crate) struct Substrings {
    ignore_case: bool,
    count: usize,
    /// The only pattern, if there is just one.
    alone: Option<(Box<Finder<'static>>, LineSlot)>,
    grams: [Grams; SIZES.len()],
    /// Empty patterns, which occur in every text.
    empty: Vec<LineSlot>,
}

impl Substrings {
    pub(crate) fn new(ignore_case: bool) -> Self {
        Self { ignore_case, count: 0, alone: None, grams: Default::default(), empty: Vec::new() }
    }

    fn put(&mut self, slot: LineSlot, pattern: &[u8]) {
        let Some(class) = SIZES.iter().position(|size| *size <= pattern.len()) else {
            self.empty.push(slot);
            return;
        };
        let grams = &mut self.grams[class];
        match self.ignore_case {
            false => grams.insert(slot, pattern, SIZES[class]),
            true => with_lower(pattern, |pattern| grams.insert(slot, pattern, SIZES[class])),
        }
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) {
        self.count += 1;
        let pattern = texts.text(slot);
        if self.count == 1 && !self.ignore_case {
            self.alone = Some((Box::new(Finder::new(pattern).into_owned()), slot));
            return;
        }
        if let Some((_, first)) = self.alone.take() {
            self.put(first, texts.text(first));
        }
        self.put(slot, pattern);
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        self.count -= 1;
        if self.alone.take_if(|(_, alone)| *alone == slot).is_some() {
            return;
        }
        let pattern = texts.text(slot);
        let Some(class) = SIZES.iter().position(|size| *size <= pattern.len()) else {
            self.empty.retain(|other| *other != slot);
            return;
        };
        match self.ignore_case {
            false => self.grams[class].remove(slot, pattern, SIZES[class]),
            true => with_lower(pattern, |pattern| self.grams[class].remove(slot, pattern, SIZES[class])),
        }
    }

    /// Passes the slot of each pattern that occurs in `text` to `visit`, possibly more than once, until it returns true.
    pub(crate) fn each(&self, text: &[u8], texts: &impl Texts, mut visit: impl FnMut(LineSlot) -> bool) {
        if let Some((finder, slot)) = &self.alone {
            if finder.find(text).is_some() {
                visit(*slot);
            }
            return;
        }
        if self.count == 0 || self.empty.iter().any(|slot| visit(*slot)) {
            return;
        }
        match self.ignore_case {
            false => self.scan(text, &mut visit, |slot, start| {
                let pattern = texts.text(slot);
                text.get(start..start + pattern.len()).is_some_and(|part| part == pattern)
            }),
            true => with_lower(text, |text| {
                self.scan(text, &mut visit, |slot, start| {
                    let pattern = texts.text(slot);
                    text.get(start..start + pattern.len())
                        .is_some_and(|part| part.eq_ignore_ascii_case(pattern))
                });
            }),
        }
    }

    fn scan(
        &self,
        text: &[u8],
        visit: &mut impl FnMut(LineSlot) -> bool,
        same: impl Fn(LineSlot, usize) -> bool + Copy,
    ) {
        let [eight, four, two, one] = &self.grams;
        let _ = eight.each::<8>(text, same, visit)
            || four.each::<4>(text, same, visit)
            || two.each::<2>(text, same, visit)
            || one.each::<1>(text, same, visit);
    }

    /// Any pattern that occurs in `text`, or the first in list order.
    #[inline]
    pub(crate) fn find(&self, text: &[u8], first: bool, texts: &impl Texts) -> Option<LineSlot> {
        let mut found: Option<LineSlot> = None;
        self.each(text, texts, |slot| {
            if found.is_none_or(|best| texts.order(slot) < texts.order(best)) {
                found = Some(slot);
            }
            !first
        });
        found
    }
}
