//! The storage of a stick table: each shard has some of the keys, with entries of equal size in slabs.
//!
//! The shard's lock is held during a lookup or an insertion. It protects the index, the free list and the age order. The values
//! of an entry are atomic and need no lock: the entry stays in place while it is held (`head::HELD`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use hashbrown::HashTable;

use super::NEIGHBOURS;
use super::layout::{Layout, head};

/// How many entries are allocated together.
const CHUNK: usize = 64;

/// The index that stands for no entry.
pub(super) const NONE: u32 = u32::MAX;

/// How many entries in order of age are checked to find the position of an entry.
const STEPS: usize = 64;

/// A block of entries.
#[derive(Debug)]
struct Chunk {
    words: Box<[AtomicU32]>,
    longs: Box<[AtomicU64]>,
}

/// The index and the order of a shard's entries.
#[derive(Debug)]
pub(super) struct ShardIndex {
    /// The positions of entries, by hash. The map stores one byte of each hash separately, and the whole hash next to the position,
    /// so neither a lookup of a missing key nor a rehash touches entries.
    places: HashTable<EntryPosition>,
    /// Free entries, as a stack.
    free: u32,
    /// The first entry that was never used.
    unused: u32,
    oldest: u32,
    newest: u32,
}

/// The position of an entry, and the hash of its key.
#[derive(Debug, Clone, Copy)]
struct EntryPosition {
    hash: u32,
    at: u32,
}

impl EntryPosition {
    /// Returns the hash in the width of the map. The map uses the lower bits to choose the bucket and the upper bits to distinguish
    /// keys. The lower bits are the upper bits of the hash, which neighbouring keys share, and the upper bits are its lower bits.
    fn widened(&self) -> u64 {
        u64::from(self.hash.rotate_right(NEIGHBOURS.ilog2())) << 32 | u64::from(self.hash / NEIGHBOURS)
    }
}

impl ShardIndex {
    /// Returns how many positions were ever used.
    pub(super) fn unused(&self) -> u32 {
        self.unused
    }
}

/// A part of a table.
#[derive(Debug)]
pub(super) struct Shard {
    index: Mutex<ShardIndex>,
    /// Allocated with the first entry, because a table may be far larger than its actual content.
    chunks: OnceLock<Box<[OnceLock<Chunk>]>>,
    /// The maximum number of entries.
    most: u32,
    /// How much younger the entries in front of an entry may be, in ms. This delays the expiry of the entry by at most this time.
    /// Entries of about the same age can then be added without searching the position of each.
    slack: u32,
}

/// The words and longs of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryWords<'t> {
    pub(super) words: &'t [AtomicU32],
    pub(super) longs: &'t [AtomicU64],
}

impl EntryWords<'_> {
    #[inline]
    pub(super) fn word(&self, at: usize) -> u32 {
        self.words[at].load(Relaxed)
    }

    #[inline]
    pub(super) fn put(&self, at: usize, value: u32) {
        self.words[at].store(value, Relaxed);
    }
}

impl Shard {
    pub(super) fn new(most: u32, slack: u32) -> Self {
        let index =
            ShardIndex { places: HashTable::new(), free: NONE, unused: 0, oldest: NONE, newest: NONE };
        Self { index: Mutex::new(index), chunks: OnceLock::new(), most, slack }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ShardIndex> {
        // No step that could panic leaves the index partially changed.
        self.index.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the entry at a position that is or was in use.
    #[inline]
    pub(super) fn row(&self, layout: &Layout, at: u32) -> EntryWords<'_> {
        let (chunk, within) = (at as usize / CHUNK, at as usize % CHUNK);
        let Some(chunk) = self.chunks.get().and_then(|all| all.get(chunk)?.get()) else {
            return EntryWords { words: &[], longs: &[] };
        };
        let (words, longs) = (within * layout.words, within * layout.longs);
        EntryWords {
            words: &chunk.words[words..words + layout.words],
            longs: &chunk.longs[longs..longs + layout.longs],
        }
    }

    /// Returns the position of the entry with these key words.
    pub(super) fn find(&self, index: &ShardIndex, layout: &Layout, hash: u32, key: &[u32]) -> Option<u32> {
        let is_it = |found: &EntryPosition| found.hash == hash && has_key(&self.row(layout, found.at), key);
        index.places.find(EntryPosition { hash, at: NONE }.widened(), is_it).map(|found| found.at)
    }

    /// Adds an entry with this key and all values zero, not held, touched at `touched`. `None` if there is no room.
    pub(super) fn insert(
        &self,
        index: &mut ShardIndex,
        layout: &Layout,
        hash: u32,
        key: &[u32],
        touched: u32,
    ) -> Option<u32> {
        let at = self.take_place(index, layout)?;
        let row = self.row(layout, at);
        row.words.iter().for_each(|word| word.store(0, Relaxed));
        row.longs.iter().for_each(|long| long.store(0, Relaxed));
        row.put(head::HASH, hash);
        for (place, part) in row.words[head::WORDS..].iter().zip(key) {
            place.store(*part, Relaxed);
        }
        let found = EntryPosition { hash, at };
        index.places.insert_unique(found.widened(), found, EntryPosition::widened);
        row.put(head::TOUCHED, touched);
        self.place(index, layout, at, touched);
        Some(at)
    }

    fn take_place(&self, index: &mut ShardIndex, layout: &Layout) -> Option<u32> {
        if index.free != NONE {
            let at = index.free;
            index.free = self.row(layout, at).word(head::NEWER);
            return Some(at);
        }
        if index.unused >= self.most {
            return None;
        }
        let at = index.unused;
        let count = (self.most as usize).div_ceil(CHUNK);
        let chunks = self.chunks.get_or_init(|| (0..count).map(|_| OnceLock::new()).collect());
        let chunk = chunks.get(at as usize / CHUNK)?;
        chunk.get_or_init(|| {
            let entries = CHUNK.min((self.most as usize).saturating_sub(at as usize / CHUNK * CHUNK));
            Chunk {
                words: (0..entries * layout.words).map(|_| AtomicU32::new(0)).collect(),
                longs: (0..entries * layout.longs).map(|_| AtomicU64::new(0)).collect(),
            }
        });
        index.unused += 1;
        Some(at)
    }

    /// Removes an entry and frees its position. It must not be held.
    pub(super) fn remove(&self, index: &mut ShardIndex, layout: &Layout, at: u32) {
        let row = self.row(layout, at);
        let found = EntryPosition { hash: row.word(head::HASH), at };
        if let Ok(place) = index.places.find_entry(found.widened(), |other| other.at == at) {
            place.remove();
        }
        self.unlink(index, layout, at);
        // Readers that access the position see that the entry is gone.
        row.put(head::HASH, 0);
        row.put(head::UPDATE, 0);
        row.put(head::PLACED, 0);
        row.put(head::OLDER, at);
        row.put(head::NEWER, index.free);
        index.free = at;
    }

    /// Whether there is an entry at that position. A free one is its own elder.
    pub(super) fn is_live(&self, index: &ShardIndex, layout: &Layout, at: u32) -> bool {
        at < index.unused && self.row(layout, at).word(head::OLDER) != at
    }

    fn unlink(&self, index: &mut ShardIndex, layout: &Layout, at: u32) {
        let row = self.row(layout, at);
        let (older, newer) = (row.word(head::OLDER), row.word(head::NEWER));
        match older {
            NONE => index.oldest = newer,
            older => self.row(layout, older).put(head::NEWER, newer),
        }
        match newer {
            NONE => index.newest = older,
            newer => self.row(layout, newer).put(head::OLDER, older),
        }
    }

    /// Inserts an entry into the age order at `when`, or close to it.
    fn place(&self, index: &mut ShardIndex, layout: &Layout, at: u32, when: u32) {
        let (mut older, mut newer) = (index.newest, NONE);
        for _ in 0..STEPS {
            if older == NONE {
                break;
            }
            let row = self.row(layout, older);
            if (when.wrapping_add(self.slack).wrapping_sub(row.word(head::PLACED)) as i32) >= 0 {
                break;
            }
            newer = older;
            older = row.word(head::OLDER);
        }
        let row = self.row(layout, at);
        row.put(head::PLACED, when);
        row.put(head::OLDER, older);
        row.put(head::NEWER, newer);
        match older {
            NONE => index.oldest = at,
            older => self.row(layout, older).put(head::NEWER, at),
        }
        match newer {
            NONE => index.newest = at,
            newer => self.row(layout, newer).put(head::OLDER, at),
        }
    }

    /// Moves an entry to the position for `when`.
    pub(super) fn move_to(&self, index: &mut ShardIndex, layout: &Layout, at: u32, when: u32) {
        if self.row(layout, at).word(head::PLACED) == when {
            return;
        }
        self.unlink(index, layout, at);
        self.place(index, layout, at, when);
    }

    /// Returns the oldest entry that is not held, if it is among the first `most`. Entries that were touched since they got their
    /// position are moved on the way.
    pub(super) fn oldest(
        &self,
        index: &mut ShardIndex,
        layout: &Layout,
        now: u32,
        mut most: usize,
    ) -> Option<u32> {
        let mut at = index.oldest;
        while at != NONE && most > 0 {
            most -= 1;
            let row = self.row(layout, at);
            let next = row.word(head::NEWER);
            let touched = row.word(head::TOUCHED);
            if row.words[head::HELD].load(Acquire) > 0 {
                self.move_to(index, layout, at, now);
            } else if touched != row.word(head::PLACED) {
                self.move_to(index, layout, at, touched);
                if index.oldest == at {
                    return Some(at);
                }
            } else {
                return Some(at);
            }
            at = if next == NONE { NONE } else { index.oldest };
        }
        None
    }
}

fn has_key(row: &EntryWords<'_>, key: &[u32]) -> bool {
    row.words[head::WORDS..].iter().zip(key).all(|(own, part)| own.load(Relaxed) == *part)
}
