//! Matches whole strings, prefixes and suffixes: hash tables of slots, which do not store the keys again.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::entries::{LineSlot, Texts};

/// For up to this number of patterns, a simple loop is faster than any index.
pub(super) const FEW: usize = 6;

type Hasher = foldhash::fast::RandomState;

/// Slots by the hash of their key. Equal keys are adjacent; the first one in list order is returned.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    table: HashTable<LineSlot>,
    hasher: Hasher,
    ignore_case: bool,
}

/// Passes `bytes` in lower case to `look`, without allocating if they fit on the stack.
pub(super) fn with_lower<R>(bytes: &[u8], look: impl FnOnce(&[u8]) -> R) -> R {
    let mut lower: SmallVec<[u8; 256]> = SmallVec::from_slice(bytes);
    lower.make_ascii_lowercase();
    look(&lower)
}

fn hash(hasher: &Hasher, ignore_case: bool, bytes: &[u8]) -> u64 {
    match ignore_case {
        false => hasher.hash_one(bytes),
        true => with_lower(bytes, |lower| hasher.hash_one(lower)),
    }
}

impl Keys {
    pub(crate) fn new(ignore_case: bool) -> Self {
        Self { ignore_case, ..Self::default() }
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        hash(&self.hasher, self.ignore_case, bytes)
    }

    fn same(&self, left: &[u8], right: &[u8]) -> bool {
        if self.ignore_case { left.eq_ignore_ascii_case(right) } else { left == right }
    }

    pub(crate) fn reserve(&mut self, more: usize, texts: &impl Texts) {
        self.table.reserve(more, |slot| hash(&self.hasher, self.ignore_case, texts.text(*slot)));
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) {
        let at = self.hash(texts.text(slot));
        self.table.insert_unique(at, slot, |slot| hash(&self.hasher, self.ignore_case, texts.text(*slot)));
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        let hash = self.hash(texts.text(slot));
        if let Ok(found) = self.table.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
    }

    /// The first slot in list order with that key.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], texts: &impl Texts) -> Option<LineSlot> {
        let mut found = self.all(bytes, texts);
        let first = found.next()?;
        Some(found.fold(first, |best, slot| if texts.order(slot) < texts.order(best) { slot } else { best }))
    }

    /// All slots with that key, in no particular order.
    pub(crate) fn all<'a>(
        &'a self,
        bytes: &'a [u8],
        texts: &'a impl Texts,
    ) -> impl Iterator<Item = LineSlot> + 'a {
        let hash = self.hash(bytes);
        self.table.iter_hash(hash).copied().filter(move |slot| self.same(texts.text(*slot), bytes))
    }
}

/// Strings compared whole.
#[derive(Debug)]
pub(crate) struct Exact {
    few: Vec<(Box<[u8]>, LineSlot)>,
    /// The index of all patterns, if there are more than [`FEW`].
    many: Option<Keys>,
    ignore_case: bool,
}

impl Exact {
    pub(crate) fn new(ignore_case: bool) -> Self {
        Self { few: Vec::new(), many: None, ignore_case }
    }

    pub(crate) fn reserve(&mut self, more: usize, texts: &impl Texts) {
        if more > FEW {
            self.many.get_or_insert_with(|| Keys::new(self.ignore_case)).reserve(more, texts);
        }
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) {
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push((texts.text(slot).into(), slot));
            return;
        }
        let many = self.many.get_or_insert_with(|| Keys::new(self.ignore_case));
        self.few.drain(..).for_each(|(_, slot)| many.insert(slot, texts));
        many.insert(slot, texts);
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        self.few.retain(|(_, other)| *other != slot);
        if let Some(many) = &mut self.many {
            many.remove(slot, texts);
        }
    }

    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], texts: &impl Texts) -> Option<LineSlot> {
        let Some(many) = &self.many else {
            let same = |key: &[u8]| match self.ignore_case {
                false => *key == *bytes,
                true => key.eq_ignore_ascii_case(bytes),
            };
            return self.few.iter().find(|(key, _)| same(key)).map(|(_, slot)| *slot);
        };
        many.find(bytes, texts)
    }
}

/// Prefixes or suffixes.
#[derive(Debug)]
pub(crate) struct Affix {
    few: Vec<(Box<[u8]>, LineSlot)>,
    many: Option<Keys>,
    /// The pattern lengths in `many`, longest first, with the number of patterns of each.
    lengths: Vec<(usize, u32)>,
    at_end: bool,
    ignore_case: bool,
}

impl Affix {
    pub(crate) fn new(at_end: bool, ignore_case: bool) -> Self {
        Self { few: Vec::new(), many: None, lengths: Vec::new(), at_end, ignore_case }
    }

    pub(crate) fn reserve(&mut self, more: usize, texts: &impl Texts) {
        if more > FEW {
            self.many.get_or_insert_with(|| Keys::new(self.ignore_case)).reserve(more, texts);
        }
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) {
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push((texts.text(slot).into(), slot));
            return;
        }
        let few: Vec<LineSlot> = self.few.drain(..).map(|(_, slot)| slot).collect();
        for slot in few.into_iter().chain([slot]) {
            self.many.get_or_insert_with(|| Keys::new(self.ignore_case)).insert(slot, texts);
            let length = texts.text(slot).len();
            match self.lengths.binary_search_by(|(other, _)| length.cmp(other)) {
                Ok(at) => self.lengths[at].1 += 1,
                Err(at) => self.lengths.insert(at, (length, 1)),
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        self.few.retain(|(_, other)| *other != slot);
        let Some(many) = &mut self.many else { return };
        many.remove(slot, texts);
        let length = texts.text(slot).len();
        if let Ok(at) = self.lengths.binary_search_by(|(other, _)| length.cmp(other)) {
            self.lengths[at].1 -= 1;
            if self.lengths[at].1 == 0 {
                self.lengths.remove(at);
            }
        }
    }

    fn part<'b>(&self, bytes: &'b [u8], length: usize) -> Option<&'b [u8]> {
        match self.at_end {
            true => bytes.get(bytes.len().checked_sub(length)?..),
            false => bytes.get(..length),
        }
    }

    /// Returns the longest matching prefix, or the first matching suffix in list order, as HAProxy's maps do.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], texts: &impl Texts) -> Option<LineSlot> {
        match &self.many {
            None => self.find_among_few(bytes),
            Some(many) => self.find_among_many(many, bytes, texts),
        }
    }

    #[inline]
    fn find_among_few(&self, bytes: &[u8]) -> Option<LineSlot> {
        let mut best: Option<(LineSlot, usize)> = None;
        for (key, slot) in &self.few {
            let Some(part) = self.part(bytes, key.len()) else { continue };
            let same = match self.ignore_case {
                false => *part == **key,
                true => part.eq_ignore_ascii_case(key),
            };
            if same && self.at_end {
                return Some(*slot);
            }
            if same && best.is_none_or(|(_, length)| length < key.len()) {
                best = Some((*slot, key.len()));
            }
        }
        best.map(|(slot, _)| slot)
    }

    fn find_among_many(&self, many: &Keys, bytes: &[u8], texts: &impl Texts) -> Option<LineSlot> {
        let fitting = self.lengths.iter().filter_map(|(length, _)| self.part(bytes, *length));
        let mut found = fitting.filter_map(|part| many.find(part, texts));
        if self.at_end { found.min_by_key(|slot| texts.order(*slot)) } else { found.next() }
    }
}
