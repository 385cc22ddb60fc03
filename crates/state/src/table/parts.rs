//! Tables that add up the counts of all members of a `peers` section (`aggregate`).
//!
//! An entry of such a table has the values that this process counts, which are its own part, and a slot for the part of each other
//! member. A member sends its part, which replaces the previous one; reading a value adds up all parts. Types that cannot be added
//! (servers, tags) are stored in the own part, and have the value of the member that changed them last.
//!
//! A slot has a generation, which is also written to each entry that has a part in the slot. Parts of earlier generations do not
//! count, so all parts of a member can be dropped in one step. Only the task of the `peers` section writes parts; anything may
//! read them.
//!
//! In groups of more than [`MESH`] members, entries have other slots (`sums`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use super::entry::EntryValues;
use super::layout::{Column, DataType, ValueForm};
use super::owner_slots::{UNCHANGED, UNKNOWN};
use super::updates::TableValue;
use super::{Table, TableCursor, TableEntry, owner_slots, rate};

/// The settings of a table that adds up the parts of several members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// How often this process sends its changes, in milliseconds.
    pub every_ms: u32,
    /// The names of the other members. The index of a member is its slot.
    pub members: Box<[Box<str>]>,
}

/// The maximum number of members that send their parts to all others, including this process. In a larger group, each key has
/// owners, which add them up.
pub const MESH: usize = 8;

impl Aggregate {
    /// Whether each key has owners, which add up the parts of all members.
    pub fn has_owners(&self) -> bool {
        self.members.len() >= MESH
    }
}

/// The state of the slots of a table.
#[derive(Debug)]
pub(super) struct Parts {
    /// By the number of the member. With owners, the last one is this process.
    members: Box<[PartSlot]>,
    /// The number of slots of an entry.
    slots: usize,
    /// Whether each key has owners.
    pub(super) has_owners: bool,
    /// Held while a member comes or goes, or its parts are dropped. Other threads may drop the parts of members that are gone.
    presence: Mutex<()>,
}

#[derive(Debug)]
struct PartSlot {
    /// The generation of the parts that count. Never 0, which marks an empty slot in an entry.
    generation: AtomicU32,
    /// When the connection to the member ended, or when its parts were last dropped, in milliseconds with the lowest bit set; 0
    /// while the member is connected.
    gone: AtomicU32,
    /// Whether parts were dropped since the last connection.
    dropped: AtomicBool,
    /// How long the last measured change took to the member and its acknowledgement back, in milliseconds.
    delay: AtomicU32,
    /// The share of the keys that the member owns, in thousandths.
    share: AtomicU32,
    /// The bytes of messages to the member and of those with its parts.
    sent: AtomicU64,
    received: AtomicU64,
}

impl PartSlot {
    /// Whether the member has been gone for the lifetime of an entry.
    fn is_due(&self, expire_ms: u32, now_ms: u64) -> bool {
        let gone = self.gone.load(Relaxed);
        gone != 0 && (now_ms as u32).wrapping_sub(gone) as i32 >= expire_ms as i32
    }
}

/// The state of a member's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberState {
    /// Whether there is a connection to the member.
    pub is_present: bool,
    /// Whether its parts were dropped since the last connection.
    pub is_dropped: bool,
    /// How long the last measured change took to the member and its acknowledgement back, in milliseconds; 0 before the first.
    pub delay_ms: u32,
    /// The share of the keys that the member owns, in thousandths. 0 if keys have no owners.
    pub owner_share: u32,
    /// The bytes of messages with this process's part that were sent to the member.
    pub sent: u64,
    /// The bytes of messages with the member's part that were received.
    pub received: u64,
}

impl Parts {
    pub(super) fn new(aggregate: &Aggregate) -> Self {
        let slot = || PartSlot {
            generation: AtomicU32::new(1),
            gone: AtomicU32::new(0),
            dropped: AtomicBool::new(false),
            delay: AtomicU32::new(0),
            share: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        };
        let (members, has_owners) = (aggregate.members.len(), aggregate.has_owners());
        Self {
            members: (0..members + usize::from(has_owners)).map(|_| slot()).collect(),
            slots: Self::slots(aggregate),
            has_owners,
            presence: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.presence.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Drops the parts of members that have been gone for `expire_ms`.
    fn drop_gone(&self, expire_ms: u32, now_ms: u64, _lock: &MutexGuard<'_, ()>) {
        for (slot, own) in self.members.iter().enumerate().filter(|(_, own)| own.is_due(expire_ms, now_ms)) {
            own.gone.store(now_ms as u32 | 1, Relaxed);
            own.dropped.store(true, Relaxed);
            self.drop_all(slot);
        }
    }

    /// Returns the number of slots of an entry.
    pub(super) fn slots(aggregate: &Aggregate) -> usize {
        if aggregate.has_owners() { owner_slots::SLOTS } else { aggregate.members.len() }
    }

    pub(super) fn generation(&self, slot: usize) -> u32 {
        self.members[slot].generation.load(Relaxed)
    }

    pub(super) fn drop_all(&self, slot: usize) {
        let next = self.generation(slot).wrapping_add(1).max(1);
        self.members[slot].generation.store(next, Relaxed);
    }
}

impl DataType {
    /// Whether values of this type are added up over the members of an aggregate table.
    pub fn is_summed(self) -> bool {
        !matches!(self, Self::ServerId | Self::ServerKey | Self::Gpt | Self::Gpt0)
    }
}

impl EntryValues<'_> {
    /// Returns the sum of the other members' parts of a value; 0 in a table that is not an aggregate.
    #[inline]
    pub fn others(&self, column: &Column, element: usize, now_ms: u64) -> u64 {
        match &self.table.parts {
            None => 0,
            Some(parts) => self.sum(parts, column, element, now_ms),
        }
    }

    /// Whether this process has counted anything, or set a value.
    pub fn is_counted(&self) -> bool {
        let (words, longs) = self.table.layout.own_values();
        self.row.words[words].iter().any(|word| word.load(Relaxed) != 0)
            || self.row.longs[longs].iter().any(|long| long.load(Relaxed) != 0)
    }

    fn sum(&self, parts: &Parts, column: &Column, element: usize, now_ms: u64) -> u64 {
        if !column.data.is_summed() {
            return 0;
        }
        if parts.has_owners {
            return self.sum_of_owners(parts, column, element, now_ms);
        }
        let slots = (0..parts.slots).filter(|slot| self.has_part_in(parts, *slot));
        slots.map(|slot| self.read_part(slot, column, element, now_ms)).fold(0, u64::saturating_add)
    }

    /// Whether there is a part in a slot of this entry.
    pub(super) fn has_part_in(&self, parts: &Parts, slot: usize) -> bool {
        let word = self.row.word(self.table.layout.part_word(slot));
        if !parts.has_owners {
            return word == parts.generation(slot);
        }
        owner_slots::sender(word)
            .is_some_and(|member| word == owner_slots::stamp(member, parts.generation(member)))
    }

    /// Returns a value of a member's part, or `None` if the member has no part of this entry.
    pub fn part(&self, slot: usize, column: &Column, element: usize, now_ms: u64) -> Option<u64> {
        let parts = self.table.parts.as_ref().filter(|parts| slot < parts.slots)?;
        self.has_part_in(parts, slot).then(|| self.read_part(slot, column, element, now_ms))
    }

    pub(super) fn read_part(&self, slot: usize, column: &Column, element: usize, now_ms: u64) -> u64 {
        let (word, long) = self.table.layout.place_in_part(slot, column, element);
        self.read_at(word, long, column, now_ms)
    }

    /// Returns all values of a member's part, element by element in column order.
    pub fn part_values(&self, slot: usize, now_ms: u64) -> impl Iterator<Item = TableValue<'_>> {
        self.table.columns().flat_map(move |column| {
            (0..column.count as usize).map(move |element| {
                let (word, long) = self.table.layout.place_in_part(slot, column, element);
                match column.data.form() {
                    ValueForm::Rate => {
                        let row = &self.row;
                        let (ago, events, before) =
                            rate::parts(&row.longs[long], &row.words[word], now_ms as u32);
                        TableValue::Rate(ago, events, before)
                    }
                    ValueForm::Text => {
                        let text = self.table.dictionary.text(self.row.word(word));
                        TableValue::Text(text.map(|text| &**text))
                    }
                    ValueForm::Word | ValueForm::Long => {
                        TableValue::Number(self.read_part(slot, column, element, now_ms))
                    }
                }
            })
        })
    }
}

impl Table {
    /// Returns the settings of an aggregate table, or `None` for other tables.
    pub fn aggregate(&self) -> Option<&Aggregate> {
        self.settings.aggregate.as_ref()
    }

    /// Calls `take` for each entry of which a member has a part, from `from` on, until `take` returns false; that entry counts as
    /// taken. Returns the position at which to continue, or `None` at the end.
    pub fn walk_parts(
        &self,
        slot: usize,
        from: TableCursor,
        now_ms: u64,
        mut take: impl FnMut(&EntryValues<'_>) -> bool,
    ) -> Option<TableCursor> {
        let parts = self.parts.as_ref()?;
        self.walk(from, now_ms, |entry| !entry.has_part_in(parts, slot) || take(entry))
    }

    /// Applies a member's part of an entry: the remaining lifetime (`None` for the table's default), and the elements in column
    /// order, which `received` returns by index. `is_own` is whether the member itself has sent it; a part from a third member is
    /// only used in an empty slot. `is_change` is whether the member has just changed the entry, so that its tags and server
    /// replace those of the entry. Returns `false` if the table has no room for the entry.
    pub fn learn_part<'v>(
        &self,
        slot: usize,
        (key, expire_ms): (&[u8], Option<u32>),
        (is_own, is_change): (bool, bool),
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
    ) -> bool {
        let Some(parts) = self.parts.as_ref().filter(|parts| slot < parts.slots) else { return true };
        let left = expire_ms.unwrap_or(self.settings.expire_ms);
        let Some((entry, own)) = self.fetch(key, now_ms, self.touched_at(left, now_ms)) else { return false };
        entry.expire_in(own.map_or(left, |own| own.max(left)), now_ms);
        let is_known = entry.has_part_in(parts, slot);
        if is_known && !is_own {
            return true;
        }
        self.put_all(&entry, slot, (is_known, is_change), now_ms, received);
        entry.row.put(self.layout.part_word(slot), parts.generation(slot));
        true
    }

    /// Whether the slots of entries have sums.
    fn has_sums(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.has_owners)
    }

    /// Stores the values of a part. `is_known` is whether they replace others of the same sender, and `is_change` whether a member
    /// has just changed the entry.
    pub(super) fn put_all<'v>(
        &self,
        entry: &TableEntry<'_>,
        slot: usize,
        (is_known, is_change): (bool, bool),
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
    ) {
        let mut first = 0;
        for column in self.columns() {
            let place = first;
            first += column.count as usize;
            for element in 0..column.count as usize {
                let value = match received(place + element) {
                    TableValue::Number(UNCHANGED..) | TableValue::Text(None)
                        if self.has_sums() && !column.data.is_summed() =>
                    {
                        TableValue::Absent
                    }
                    value => value,
                };
                let changed = self.put_part(entry, slot, (column, element), is_known, value, now_ms);
                if !column.data.is_summed() && changed {
                    Self::apply_last(entry, (column, element), is_known || is_change, value, now_ms);
                }
            }
        }
    }

    /// Stores a value of a part. An absent one is zero, or unknown if it is a tag in a sum. Returns whether it differs from the
    /// previous one.
    fn put_part(
        &self,
        entry: &TableEntry<'_>,
        slot: usize,
        (column, element): (&Column, usize),
        is_known: bool,
        value: TableValue<'_>,
        now_ms: u64,
    ) -> bool {
        let (word, long) = self.layout.place_in_part(slot, column, element);
        let row = &entry.row;
        let number = match (value, column.data.form()) {
            (TableValue::Rate(ago, events, before), ValueForm::Rate) => {
                let parts = (ago, events, before);
                rate::set_parts(&row.longs[long], &row.words[word], now_ms as u32, parts);
                return true;
            }
            (_, ValueForm::Rate) => {
                rate::set(&row.longs[long], &row.words[word], now_ms as u32, 0);
                return true;
            }
            (TableValue::Number(number), ValueForm::Word) => number.min(u32::MAX.into()),
            (TableValue::Number(number), ValueForm::Long) => number,
            (TableValue::Text(Some(text)), ValueForm::Text) => self.dictionary.number(text).into(),
            _ => 0,
        };
        if column.data.form() == ValueForm::Long {
            row.longs[long].store(number, Relaxed);
            return true;
        }
        let is_tag = self.has_sums() && !column.data.is_summed();
        let none = if is_tag { UNKNOWN } else { 0 };
        let number = if is_tag && value == TableValue::Absent { UNKNOWN } else { number as u32 };
        let before = if is_known { row.word(word) } else { none };
        row.put(word, number);
        before != number
    }

    /// Applies a tag or a server that a member has changed. If the time of the change is unknown, it does not replace a value of
    /// this process.
    fn apply_last(
        entry: &TableEntry<'_>,
        (column, element): (&Column, usize),
        is_newer: bool,
        value: TableValue<'_>,
        now_ms: u64,
    ) {
        if !is_newer && entry.own(column, element, now_ms) != 0 {
            return;
        }
        match value {
            TableValue::Text(text) => entry.set_server_key(text.unwrap_or_default()),
            TableValue::Number(number) => {
                entry.set(column.data, element as u32, number.min(u32::MAX.into()), now_ms);
            }
            TableValue::Absent | TableValue::Rate(..) => {}
        }
    }

    /// Applies this process's own part as another process received it before this process was started: its counts are added to
    /// those made since. `known` returns the values of an earlier call for the same entry (`Absent` if this is the first call),
    /// which are already included. Returns `false` if the table has no room for the entry.
    pub fn learn_own_part<'v>(
        &self,
        (key, expire_ms): (&[u8], Option<u32>),
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
        known: impl Fn(usize) -> TableValue<'v>,
    ) -> bool {
        let is_learned = self.learn_from_predecessor(key, expire_ms, now_ms, received, known);
        // Others still have the number of connections of the previous process.
        if is_learned && let Some(entry) = self.find(key, now_ms) {
            entry.note_update();
        }
        is_learned
    }

    /// Clears this process's part of an entry, so that the other members can be informed. Returns `false` and changes nothing if
    /// it is already clear and no other member has a part, or if the table is not an aggregate.
    pub(super) fn clear_own_part(&self, entry: &TableEntry<'_>) -> bool {
        let Some(parts) = &self.parts else { return false };
        let (words, longs) = self.layout.own_values();
        let (words, longs) = (&entry.row.words[words], &entry.row.longs[longs]);
        if !entry.is_counted() && !(0..parts.slots).any(|slot| entry.has_part_in(parts, slot)) {
            return false;
        }
        words.iter().for_each(|word| word.store(0, Relaxed));
        longs.iter().for_each(|long| long.store(0, Relaxed));
        true
    }

    /// Records how long a change took to a member and its acknowledgement back.
    pub fn note_delay(&self, slot: usize, delay_ms: u32) {
        if let Some(own) = self.parts.as_ref().and_then(|parts| parts.members.get(slot)) {
            own.delay.store(delay_ms, Relaxed);
        }
    }

    /// Records the share of the keys that a member owns, in thousandths.
    pub fn note_share(&self, slot: usize, share: u32) {
        if let Some(own) = self.parts.as_ref().and_then(|parts| parts.members.get(slot)) {
            own.share.store(share, Relaxed);
        }
    }

    /// Counts bytes of messages that were sent to a member and received about it. Called on the worker of the section only.
    pub fn note_traffic(&self, slot: usize, sent: u64, received: u64) {
        if let Some(own) = self.parts.as_ref().and_then(|parts| parts.members.get(slot)) {
            own.sent.store(own.sent.load(Relaxed) + sent, Relaxed);
            own.received.store(own.received.load(Relaxed) + received, Relaxed);
        }
    }

    /// Returns the state of a member's parts, or `None` in a table that is not an aggregate.
    pub fn member(&self, slot: usize) -> Option<MemberState> {
        let own = self.parts.as_ref()?.members.get(slot)?;
        Some(MemberState {
            is_present: own.gone.load(Relaxed) == 0,
            is_dropped: own.dropped.load(Relaxed),
            delay_ms: own.delay.load(Relaxed),
            owner_share: own.share.load(Relaxed),
            sent: own.sent.load(Relaxed),
            received: own.received.load(Relaxed),
        })
    }

    /// Returns for how many milliseconds other members may not know about a request: the sending interval plus the longest round
    /// trip to a member. Returns `None` if the table is not an aggregate. Also returns `None` while a member that counts is not
    /// connected, because the time is then unlimited.
    pub fn excess_ms(&self) -> Option<u64> {
        let aggregate = self.aggregate()?;
        let members = (0..aggregate.members.len()).filter_map(|slot| self.member(slot));
        let most = members
            .filter(|member| member.is_present || !member.is_dropped)
            .map(|member| member.is_present.then_some(u64::from(member.delay_ms)))
            .try_fold(0, |most, delay| Some(delay?.max(most)));
        most.map(|delay: u64| delay + u64::from(aggregate.every_ms))
    }

    /// Records that the connection to a member was established or has ended. Returns whether all parts of the member were dropped
    /// in between, so that they must be requested again.
    pub fn note_presence(&self, slot: usize, is_present: bool, now_ms: u64) -> bool {
        let Some(parts) = &self.parts else { return false };
        let Some(own) = parts.members.get(slot) else { return false };
        let lock = parts.lock();
        if !is_present {
            own.gone.store(now_ms as u32 | 1, Relaxed);
            return false;
        }
        parts.drop_gone(self.settings.expire_ms, now_ms, &lock);
        own.gone.store(0, Relaxed);
        own.dropped.swap(false, Relaxed)
    }

    /// Drops the parts of members that have been gone for the lifetime of an entry.
    pub(super) fn drop_gone(&self, now_ms: u64) {
        let (Some(parts), expire_ms) = (&self.parts, self.settings.expire_ms) else { return };
        if parts.members.iter().any(|own| own.is_due(expire_ms, now_ms)) {
            parts.drop_gone(expire_ms, now_ms, &parts.lock());
        }
    }
}

#[cfg(test)]
mod tests;
