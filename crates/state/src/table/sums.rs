//! Aggregate tables of large groups: each key has two owners among the members, which add up the parts and send the sums to all.
//!
//! An entry has three slots, however many members there are: a sum from each of the two owners, and a sum of the parts that were
//! received directly, from members that cannot send theirs to owners. Both owners have all parts, so their sums are equal unless
//! one of them was restarted or is separated from some members; then the larger one counts.

use super::layout::Column;
use super::owner_slots::{DIRECT, OWNERS, sender, stamp};
use super::parts::Parts;
use super::updates::TableValue;
use super::{Table, TableEntry};

impl TableEntry<'_> {
    /// Returns the slot for a sum from a member: its own, or one with a sum of a former owner. `None` if the member is no
    /// owner and has no slot.
    fn slot_for(&self, parts: &Parts, member: usize, owners: [Option<usize>; OWNERS]) -> Option<usize> {
        let of = |slot: usize| {
            let word = self.row.word(self.table.layout.part_word(slot));
            sender(word).filter(|_| self.has_part_in(parts, slot))
        };
        let slots = || 0..OWNERS;
        slots().find(|slot| of(*slot) == Some(member)).or_else(|| {
            slots().find(|slot| of(*slot).is_none()).or_else(|| {
                let is_owner = owners.contains(&Some(member));
                slots().find(|slot| is_owner && !owners.contains(&of(*slot)))
            })
        })
    }
}

impl Table {
    /// Returns the number that identifies this process among the members. It follows the numbers of the others.
    pub fn own_number(&self) -> usize {
        self.aggregate().map_or(0, |aggregate| aggregate.members.len())
    }

    /// Ensures that there is an entry that lives at least `expire_ms` (`None` for the table's default). Returns `false` if there is
    /// no room for it.
    pub fn keep(&self, key: &[u8], expire_ms: Option<u32>, now_ms: u64) -> bool {
        self.kept(key, expire_ms, now_ms).is_some()
    }

    fn kept(&self, key: &[u8], expire_ms: Option<u32>, now_ms: u64) -> Option<TableEntry<'_>> {
        let left = expire_ms.unwrap_or(self.settings.expire_ms);
        let (entry, own) = self.fetch(key, now_ms, self.touched_at(left, now_ms))?;
        entry.expire_in(own.map_or(left, |own| own.max(left)), now_ms);
        Some(entry)
    }

    /// Applies the sum of the other members' parts of an entry, as one of its owners has computed it: the remaining lifetime (`None`
    /// for the table's default), and the elements in column order, which `received` returns by index. `member` is the number of the
    /// owner, and `owners` are those that are known here. Returns `false` if the table has no room for the entry.
    pub fn learn_sum<'v>(
        &self,
        (member, owners): (usize, [Option<usize>; OWNERS]),
        (key, expire_ms): (&[u8], Option<u32>),
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
    ) -> bool {
        let Some(parts) = self.parts.as_ref().filter(|parts| parts.has_owners) else { return true };
        let Some(entry) = self.kept(key, expire_ms, now_ms) else { return false };
        let Some(slot) = entry.slot_for(parts, member, owners) else { return true };
        let word = self.layout.part_word(slot);
        let is_known = entry.has_part_in(parts, slot) && sender(entry.row.word(word)) == Some(member);
        // Only tags that another member has changed after this one have values.
        self.put_all(&entry, slot, (is_known, true), now_ms, received);
        entry.row.put(word, stamp(member, parts.generation(member)));
        true
    }

    /// Applies the sum of the parts of an entry that were received directly, like [`learn_sum`](Self::learn_sum). `is_change` is
    /// whether a member has just changed the entry.
    pub fn learn_direct<'v>(
        &self,
        is_change: bool,
        (key, expire_ms): (&[u8], Option<u32>),
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
    ) -> bool {
        let Some(parts) = self.parts.as_ref().filter(|parts| parts.has_owners) else { return true };
        let Some(entry) = self.kept(key, expire_ms, now_ms) else { return false };
        let is_known = entry.has_part_in(parts, DIRECT);
        self.put_all(&entry, DIRECT, (is_known, is_change), now_ms, received);
        let own = self.own_number();
        entry.row.put(self.layout.part_word(DIRECT), stamp(own, parts.generation(own)));
        true
    }

    /// Returns the generation of a member's parts, which changes when all of them are dropped.
    pub fn generation(&self, member: usize) -> u32 {
        self.parts.as_ref().map_or(0, |parts| parts.generation(member))
    }

    /// Drops the parts of a member that has sent them directly, or the sums from it.
    pub fn drop_member(&self, member: usize) {
        if let Some(parts) = &self.parts {
            let _lock = parts.lock();
            parts.drop_all(member);
        }
    }
}

impl super::EntryValues<'_> {
    /// Returns the sum of the other members' parts of a value, if the key has owners.
    pub(super) fn sum_of_owners(&self, parts: &Parts, column: &Column, element: usize, now_ms: u64) -> u64 {
        let value = |slot: usize| {
            let is_there = self.has_part_in(parts, slot);
            if is_there { self.read_part(slot, column, element, now_ms) } else { 0 }
        };
        let of_owners = (0..OWNERS).map(value).max().unwrap_or(0);
        of_owners.saturating_add(value(DIRECT))
    }
}
