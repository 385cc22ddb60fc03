//! Stick tables (configuration manual, chapter 11): values stored per key, for a limited time.
//!
//! A table is split into shards by the hash of the key. Finding and adding an entry briefly takes the lock of its shard. The values
//! of a held entry ([`TableEntry`], [`Tracked`]) are accessed without a lock. Held entries neither expire nor are evicted. This
//! module has no I/O and no clock: time is passed in, in milliseconds of the monotonic clock. As in HAProxy, only the lower 32 bits
//! are used.
//!
//! Rules and request processing change tables (`sample`, `rules`, `proxy`), expressions read them, and the runtime socket shows and
//! changes them.

mod dictionary;
mod entry;
mod layout;
mod operator;
mod owner_slots;
mod parts;
mod rate;
mod shard;
mod sums;
mod updates;
mod written;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use runtime::shard::Padded;
use runtime::shared::note_write;

use crate::journal::{EventTopic, RepeatedEvent};

pub use entry::{EntryValues, TableEntry, Tracked};
pub use layout::{Column, DataType, KeyType, MOST_ELEMENTS, TYPES, ValueForm};
pub use operator::Operator;
pub use owner_slots::{MOST_MEMBERS, OWNERS, UNCHANGED};
pub use parts::{Aggregate, MESH, MemberState};
pub use updates::{TableValue, Waker};

use dictionary::Dictionary;
use layout::{Layout, head};
use parts::Parts;
use shard::{Shard, ShardIndex};
use updates::Updates;

/// How `server_key` identifies servers (`srvkey`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerKey {
    /// By name.
    #[default]
    Name,
    /// By address and port.
    Address,
}

/// The settings of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSettings {
    /// The name of the table: the name of its proxy, or `section/name`.
    pub name: Box<str>,
    /// The type of the keys.
    pub kind: KeyType,
    /// The length of keys in bytes; for text, the maximum length.
    pub key_length: usize,
    /// The maximum number of entries.
    pub size: u32,
    /// Lifetime of an entry after it was touched, in milliseconds; 0 for unlimited.
    pub expire_ms: u32,
    /// Whether a full table rejects new entries.
    pub nopurge: bool,
    /// Whether only peers update the table.
    pub recv_only: bool,
    /// The content of `server_key`.
    pub server_key: ServerKey,
    /// The unit of byte rates in bytes.
    pub bytes_factor: u32,
    /// The stored data types.
    pub columns: Vec<Column>,
    /// The `peers` section that shares the table.
    pub peers: Option<Box<str>>,
    /// Whether the counts of all members of that section are added up (`aggregate`).
    pub aggregate: Option<Aggregate>,
}

/// A stick table.
#[derive(Debug)]
pub struct Table {
    /// The settings of the table.
    pub settings: TableSettings,
    /// The table's index among all tables of the process.
    pub number: u32,
    /// The table that also gets updates from peers (`write-to`). Set once, by the configuration.
    pub write_to: OnceLock<Arc<Self>>,
    layout: Layout,
    hasher: RandomState,
    shards: Box<[Padded<Shard>]>,
    /// The number of entries in all shards. Written when one is added or removed.
    used: Padded<AtomicU32>,
    /// The next shard to be swept.
    swept: AtomicU32,
    dictionary: Dictionary,
    updates: Option<Updates>,
    /// The other members' parts, in an aggregate table.
    parts: Option<Parts>,
    /// New keys found the table full.
    full: RepeatedEvent,
}

/// The position of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySlot {
    shard: u32,
    at: u32,
}

impl EntrySlot {
    /// Returns the next position in a walk, which visits [`RUN`] entries of a shard, then the same number of the next shard.
    fn behind(self) -> Self {
        let at = self.at + 1;
        if at.is_multiple_of(RUN) {
            Self { shard: self.shard + 1, at: at - RUN }
        } else {
            Self { at, ..self }
        }
    }
}

/// Number of tables created so far.
static TABLES: AtomicU32 = AtomicU32::new(0);

/// The maximum number of shards.
const MOST_SHARDS: u32 = 256;

/// A table has one shard per this many entries.
const SHARD_SIZE: u32 = 1024;

/// How many entries of a full shard are considered for eviction.
const LOOKS: usize = 1024;

/// How many expired entries are removed when an entry is added.
const GOES: usize = 2;

/// The lifetime of an entry may be exceeded by this fraction.
const SLACK: u32 = 64;

/// The number of entries of a shard that are visited before those of the next shard, matching the memory layout.
const RUN: u32 = 16;

/// The number of keys, differing only in their last bits, that are adjacent in memory.
const NEIGHBOURS: u32 = 16;

/// Approximate index memory per entry: nine bytes per position, of which half to seven eighths are used.
const PLACE: usize = 16;

/// Maximum key length.
const LONGEST_KEY: usize = 256;

impl Table {
    /// Creates an empty table.
    pub fn new(settings: TableSettings) -> Arc<Self> {
        let slots = settings.aggregate.as_ref().map_or(0, Parts::slots);
        let layout = Layout::new(settings.kind, settings.key_length, &settings.columns, slots);
        let shards = (settings.size / SHARD_SIZE).clamp(1, MOST_SHARDS).next_power_of_two();
        // Keys are distributed roughly evenly, so a shard has room for more than its share.
        let share = settings.size / shards;
        let most = if shards == 1 { settings.size } else { share.saturating_add(share / 4 + 1024) };
        let shards = (0..shards)
            .map(|_| Padded(Shard::new(most.min(settings.size), settings.expire_ms / SLACK)))
            .collect();
        Arc::new(Self {
            number: TABLES.fetch_add(1, Relaxed),
            write_to: OnceLock::new(),
            layout,
            hasher: RandomState::new(),
            shards,
            used: Padded::default(),
            swept: AtomicU32::new(0),
            dictionary: Dictionary::default(),
            updates: settings.peers.is_some().then(Updates::default),
            parts: settings.aggregate.as_ref().map(Parts::new),
            full: RepeatedEvent::new(),
            settings,
        })
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the column of a data type, if the table stores it.
    #[inline]
    pub fn column(&self, data: DataType) -> Option<&Column> {
        self.layout.column(data)
    }

    /// Returns the stored data types, in order.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.layout.columns()
    }

    /// Returns the number of entries.
    pub fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Returns the size of an entry in bytes, including its share of the index.
    pub fn entry_bytes(&self) -> usize {
        self.layout.words * 4 + self.layout.longs * 8 + PLACE
    }

    /// Returns the size in bytes of the full table.
    pub fn full_bytes(&self) -> u64 {
        u64::from(self.settings.size) * self.entry_bytes() as u64
    }

    /// Returns the entry of a key, if there is one that has not expired.
    pub fn find(&self, key: &[u8], now_ms: u64) -> Option<TableEntry<'_>> {
        let mut words = [0; LONGEST_KEY / 4 + 1];
        self.with_key(key, &mut words, |table, key| {
            let (hash, number) = table.place_of(key);
            let shard = &table.shards[number as usize];
            let index = &mut shard.lock();
            let at = table.find_in(shard, index, hash, key, now_ms as u32)?;
            Some(table.hold(number, at))
        })
    }

    /// Returns the entry for a key, and creates it if necessary. Returns `None` if the table has no room for it. Finding an entry
    /// refreshes it. Peers are notified only when the entry is [touched](EntryValues::touch), which must be the last step of a
    /// change: otherwise, a resync could replace the finished entry with an unfinished one.
    #[inline]
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<TableEntry<'_>> {
        self.fetch(key, now_ms, now_ms as u32).map(|(entry, _)| entry)
    }

    /// Like `get`, but also returns the remaining lifetime in milliseconds of an existing entry, or `None` for a new entry, which
    /// counts as touched at `touched`.
    fn fetch(&self, key: &[u8], now_ms: u64, touched: u32) -> Option<(TableEntry<'_>, Option<u32>)> {
        let mut words = [0; LONGEST_KEY / 4 + 1];
        let now = now_ms as u32;
        self.with_key(key, &mut words, |table, key| {
            let (hash, number) = table.place_of(key);
            let shard = &table.shards[number as usize];
            note_write();
            let mut index = shard.lock();
            if let Some(at) = table.find_in(shard, &mut index, hash, key, now) {
                let entry = table.hold(number, at);
                let left = entry.expires_in(now_ms);
                entry.view.row.put(head::TOUCHED, now);
                shard.move_to(&mut index, &table.layout, at, now);
                return Some((entry, Some(left)));
            }
            for _ in 0..GOES {
                if !table.drop_expired(shard, &mut index, now) {
                    break;
                }
            }
            if !table.take_room(shard, &mut index, now) {
                drop(index);
                if table.settings.nopurge || !table.make_room_elsewhere(number, now) {
                    return None;
                }
                index = shard.lock();
                // Another thread may have created the entry in the meantime.
                if let Some(at) = table.find_in(shard, &mut index, hash, key, now) {
                    table.used.fetch_sub(1, Relaxed);
                    let entry = table.hold(number, at);
                    let left = entry.expires_in(now_ms);
                    return Some((entry, Some(left)));
                }
            }
            let mut made = shard.insert(&mut index, &table.layout, hash, key, touched);
            if made.is_none() && !table.settings.nopurge && table.evict(shard, &mut index, now) {
                table.used.fetch_sub(1, Relaxed);
                made = shard.insert(&mut index, &table.layout, hash, key, touched);
            }
            let Some(at) = made else {
                table.used.fetch_sub(1, Relaxed);
                return None;
            };
            Some((table.hold(number, at), None))
        })
    }

    /// Returns when an entry with this remaining lifetime was last touched.
    fn touched_at(&self, left_ms: u32, now_ms: u64) -> u32 {
        (now_ms as u32).wrapping_sub(self.settings.expire_ms.saturating_sub(left_ms))
    }

    /// Calls `look` with the key in the form stored in entries.
    fn with_key<'t, R>(
        &'t self,
        key: &[u8],
        words: &mut [u32; LONGEST_KEY / 4 + 1],
        look: impl FnOnce(&'t Self, &[u32]) -> R,
    ) -> R {
        let count = self.layout.key_words;
        if count > words.len() {
            let mut long = vec![0; count];
            self.pack(key, &mut long);
            return look(self, &long);
        }
        self.pack(key, &mut words[..count]);
        look(self, &words[..count])
    }

    fn pack(&self, key: &[u8], words: &mut [u32]) {
        let key = &key[..key.len().min(self.settings.key_length)];
        let places = if self.settings.kind == KeyType::Str {
            words[0] = key.len() as u32;
            &mut words[1..]
        } else {
            words
        };
        for (place, part) in places.iter_mut().zip(key.chunks(4)) {
            let mut bytes = [0; 4];
            bytes[..part.len()].copy_from_slice(part);
            *place = u32::from_be_bytes(bytes);
        }
    }

    /// Returns the hash of a key, and its shard.
    ///
    /// Keys that differ only in their last bits, such as neighbouring addresses, have the same shard and the same hash except for
    /// those bits. If such keys are processed in order, each finds its data in the cache lines of the previous one.
    fn place_of(&self, key: &[u32]) -> (u32, u32) {
        let (hash, last) = match key {
            [only] => (self.hasher.hash_one(only / NEIGHBOURS), only),
            [before @ .., last] => (self.hasher.hash_one((before, last / NEIGHBOURS)), last),
            [] => return (0, 0),
        };
        let shard = (hash >> 32) as u32 & (self.shards.len() as u32 - 1);
        (hash as u32 ^ (last % NEIGHBOURS), shard)
    }

    fn find_in(
        &self,
        shard: &Shard,
        index: &mut ShardIndex,
        hash: u32,
        key: &[u32],
        now: u32,
    ) -> Option<u32> {
        let at = shard.find(index, &self.layout, hash, key)?;
        if self.is_expired(shard, at, now) {
            self.remove_in(shard, index, at);
            return None;
        }
        Some(at)
    }

    fn is_expired(&self, shard: &Shard, at: u32, now: u32) -> bool {
        let row = shard.row(&self.layout, at);
        let since = now.wrapping_sub(row.word(head::TOUCHED)) as i32;
        let expire = self.settings.expire_ms;
        expire > 0 && since >= expire as i32 && row.word(head::HELD) == 0
    }

    fn remove_in(&self, shard: &Shard, index: &mut ShardIndex, at: u32) {
        shard.remove(index, &self.layout, at);
        self.used.fetch_sub(1, Relaxed);
    }

    /// Removes the oldest entry if it has expired. Returns whether it was removed.
    fn drop_expired(&self, shard: &Shard, index: &mut ShardIndex, now: u32) -> bool {
        if self.settings.expire_ms == 0 {
            return false;
        }
        match shard.oldest(index, &self.layout, now, GOES) {
            Some(at) if self.is_expired(shard, at, now) => {
                self.remove_in(shard, index, at);
                true
            }
            _ => false,
        }
    }

    /// Counts one more entry, if allowed. If the table is full and may evict entries, the shard's oldest entry is replaced.
    fn take_room(&self, shard: &Shard, index: &mut ShardIndex, now: u32) -> bool {
        let size = self.settings.size;
        if self.used.fetch_update(Relaxed, Relaxed, |used| (used < size).then_some(used + 1)).is_ok() {
            return true;
        }
        self.full.note(EventTopic::Limits, || {
            let effect = if self.settings.nopurge {
                "new keys are rejected"
            } else {
                "the oldest entries are evicted"
            };
            (self.name().to_owned(), format!("The stick table is full with {size} entries: {effect}."))
        });
        !self.settings.nopurge && self.evict(shard, index, now)
    }

    /// Evicts the shard's oldest entry that is not held. The total count does not change, because a new entry replaces it.
    fn evict(&self, shard: &Shard, index: &mut ShardIndex, now: u32) -> bool {
        let oldest = shard.oldest(index, &self.layout, now, LOOKS);
        if let Some(at) = oldest {
            shard.remove(index, &self.layout, at);
        }
        oldest.is_some()
    }

    /// Evicts the oldest entry of the next shard that has one. The total count does not change, because an entry of the caller's
    /// shard replaces it.
    fn make_room_elsewhere(&self, own: u32, now: u32) -> bool {
        let count = self.shards.len() as u32;
        (1..count).any(|step| {
            let shard = &self.shards[((own + step) & (count - 1)) as usize];
            let index = &mut shard.lock();
            self.evict(shard, index, now)
        })
    }

    /// Holds an entry of a locked shard.
    fn hold(&self, shard: u32, at: u32) -> TableEntry<'_> {
        let row = self.shards[shard as usize].row(&self.layout, at);
        note_write();
        row.words[head::HELD].fetch_add(1, AcqRel);
        TableEntry { view: EntryValues { table: self, row, slot: EntrySlot { shard, at } } }
    }

    fn view(&self, slot: EntrySlot) -> EntryValues<'_> {
        EntryValues { table: self, row: self.shards[slot.shard as usize].row(&self.layout, slot.at), slot }
    }

    /// Removes up to `most` expired entries. Returns their number. Drops the parts of members that are gone.
    pub fn sweep(&self, now_ms: u64, most: usize) -> usize {
        let (now, mut gone) = (now_ms as u32, 0);
        self.drop_gone(now_ms);
        for _ in 0..self.shards.len() {
            let number = self.swept.load(Relaxed) as usize % self.shards.len();
            let shard = &self.shards[number];
            let mut index = shard.lock();
            while gone < most && self.drop_expired(shard, &mut index, now) {
                gone += 1;
            }
            if gone >= most {
                break;
            }
            self.swept.store(number as u32 + 1, Relaxed);
        }
        gone
    }

    /// Removes an entry, unless something else holds it. If other members of an aggregate table have the entry too, only this
    /// process's part is cleared. Returns whether the entry was removed or cleared.
    pub fn remove(&self, entry: TableEntry<'_>) -> bool {
        let slot = entry.view.slot;
        let shard = &self.shards[slot.shard as usize];
        let mut index = shard.lock();
        let row = shard.row(&self.layout, slot.at);
        let alone = row.word(head::HELD) == 1;
        if alone && self.clear_own_part(&entry) {
            drop(index);
            entry.note_update();
            return true;
        }
        drop(entry);
        if alone {
            self.remove_in(shard, &mut index, slot.at);
        }
        alone
    }

    /// Returns the entry with this identifier in `show table`.
    pub fn by_pointer(&self, pointer: u64, now_ms: u64) -> Option<TableEntry<'_>> {
        let rest = pointer.checked_sub((u64::from(self.number) + 1) << 44)?;
        self.at(EntrySlot { shard: u32::try_from(rest >> 32).ok()?, at: rest as u32 }, now_ms)
    }

    /// Returns the entry at a position, if there is one that has not expired.
    fn at(&self, slot: EntrySlot, now_ms: u64) -> Option<TableEntry<'_>> {
        let shard = self.shards.get(slot.shard as usize)?;
        let index = shard.lock();
        let is_there =
            shard.is_live(&index, &self.layout, slot.at) && !self.is_expired(shard, slot.at, now_ms as u32);
        is_there.then(|| self.hold(slot.shard, slot.at))
    }

    /// Returns the next entry after the position `from`, and the position after it. All entries are visited one by one, roughly in
    /// order of insertion, so that a receiver that adds them to its own table in that order finds their positions at the end of its
    /// order of age. Checks at most `most` positions.
    ///
    /// # Errors
    /// The position to continue from if no entry was found in `most` positions, or `None` after the last entry.
    pub fn next(
        &self,
        from: TableCursor,
        now_ms: u64,
        mut most: usize,
    ) -> Result<(TableEntry<'_>, TableCursor), Option<TableCursor>> {
        let TableCursor(mut slot) = from;
        loop {
            let Some(shard) = self.shards.get(slot.shard as usize) else {
                slot = EntrySlot { shard: 0, at: slot.at + RUN };
                if self.shards.iter().all(|shard| shard.lock().unused() <= slot.at) {
                    return Err(None);
                }
                continue;
            };
            if most == 0 {
                return Err(Some(TableCursor(slot)));
            }
            most -= 1;
            let index = shard.lock();
            if slot.at >= index.unused() {
                slot = EntrySlot { shard: slot.shard + 1, at: slot.at / RUN * RUN };
                continue;
            }
            let this = slot;
            slot = slot.behind();
            if shard.is_live(&index, &self.layout, this.at) && !self.is_expired(shard, this.at, now_ms as u32)
            {
                return Ok((self.hold(this.shard, this.at), TableCursor(slot)));
            }
        }
    }
}

/// The position of a walk through a table.
#[derive(Debug, Clone, Copy)]
pub struct TableCursor(EntrySlot);

impl From<u64> for TableCursor {
    /// Converts the number of a cursor; 0 stands for the beginning.
    fn from(number: u64) -> Self {
        Self(EntrySlot { shard: (number >> 32) as u32, at: number as u32 })
    }
}

impl From<TableCursor> for u64 {
    fn from(TableCursor(slot): TableCursor) -> Self {
        Self::from(slot.shard) << 32 | Self::from(slot.at)
    }
}

impl Default for TableCursor {
    fn default() -> Self {
        Self(EntrySlot { shard: 0, at: 0 })
    }
}

#[cfg(test)]
mod tests;
