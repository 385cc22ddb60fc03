//! The members' parts of the keys that this member owns or received directly, and the sums of these parts.
//!
//! A sum is sent to each member without the member's own part: the total is computed once, and the receiver's part is subtracted
//! from it. The periods of rates begin at different times, so a total contains the sums of the counts and the weighted sums of
//! the ages. One rate with the average age decays like all of them until the first of their periods ends.

use std::collections::{HashMap, VecDeque};

use state::table::{Table, UNCHANGED};

use crate::owners;
use crate::row::{EntryValue, Rate};

/// The maximum number of outdated numbers in the log in addition to those that are in use.
const FORGOTTEN: usize = 1024;

/// The parts of the members for one table, by key.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    index: HashMap<Box<[u8]>, u32>,
    records: Vec<Option<SumRecord>>,
    free: Vec<u32>,
    /// Change numbers in ascending order, each with the record that has or had it.
    log: VecDeque<(u64, u32)>,
    last: u64,
    stamps: u64,
    swept: usize,
    checked: usize,
}

#[derive(Debug)]
struct SumRecord {
    key: Box<[u8]>,
    /// The place of the key, which determines its owners.
    place: usize,
    parts: Vec<MemberPart>,
    /// The number of the last change.
    number: u64,
    /// Whether there were ever parts of two members.
    is_shared: bool,
    total: Option<Total>,
}

#[derive(Debug)]
struct MemberPart {
    member: u16,
    /// The generation of the member's parts when it was received.
    generation: u32,
    /// When it was received, in milliseconds.
    at: u64,
    /// For each value that cannot be added, the number of the member's last change among those of all members; 0 without one.
    stamps: Box<[u64]>,
    values: Box<[EntryValue]>,
}

#[derive(Debug)]
struct Total {
    at: u64,
    values: Box<[TotalValue]>,
}

#[derive(Debug, Clone, Copy)]
enum TotalValue {
    Count(u64),
    Rate(RateTotal),
    /// A value that cannot be added.
    Last,
}

#[derive(Debug, Clone, Copy, Default)]
struct RateTotal {
    current: u64,
    previous: u64,
    /// The ages, weighted by the counts.
    current_age: u128,
    previous_age: u128,
}

impl RateTotal {
    fn of(rate: Rate, since: u64, period: u32) -> RateTotal {
        let age = rate.age.saturating_add(u32::try_from(since).unwrap_or(u32::MAX));
        let (age, current, previous) = match age.checked_sub(period) {
            None => (age, rate.current, rate.previous),
            Some(age) if age < period => (age, 0, rate.current),
            Some(_) => (0, 0, 0),
        };
        let (current, previous) = (u64::from(current), u64::from(previous));
        RateTotal {
            current,
            previous,
            current_age: u128::from(current) * u128::from(age),
            previous_age: u128::from(previous) * u128::from(age),
        }
    }

    fn add(&mut self, other: RateTotal) {
        self.current += other.current;
        self.previous += other.previous;
        self.current_age += other.current_age;
        self.previous_age += other.previous_age;
    }

    fn without(self, other: RateTotal) -> RateTotal {
        RateTotal {
            current: self.current - other.current,
            previous: self.previous - other.previous,
            current_age: self.current_age - other.current_age,
            previous_age: self.previous_age - other.previous_age,
        }
    }

    fn rate(self, since: u64) -> Rate {
        let (weighted, count) = if self.previous > 0 {
            (self.previous_age, self.previous)
        } else {
            (self.current_age, self.current)
        };
        let Some(age) = weighted.checked_div(u128::from(count)) else {
            return Rate { age: u32::MAX, ..Rate::default() };
        };
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let age = u64::try_from(age).unwrap_or(u64::MAX).saturating_add(since);
        Rate { age: small(age), current: small(self.current), previous: small(self.previous) }
    }
}

/// The period of each rate, and whether the other values can be added, element by element.
fn elements(table: &Table) -> impl Iterator<Item = (u32, bool)> {
    table
        .columns()
        .flat_map(|column| (0..column.count).map(move |_| (column.period_ms, column.data.is_summed())))
}

/// The indexes of values that cannot be added.
pub(crate) fn tags(table: &Table) -> impl Iterator<Item = usize> {
    elements(table).enumerate().filter(|(_, (_, is_summed))| !is_summed).map(|(at, _)| at)
}

/// Returns the part with the last change of a tag. `tag` is its position among the tags.
fn latest<'a>(parts: impl Iterator<Item = &'a MemberPart>, tag: usize) -> Option<(u64, &'a MemberPart)> {
    let stamps = parts.filter_map(|part| Some((*part.stamps.get(tag)?, part)));
    stamps.filter(|(stamp, _)| *stamp > 0).max_by_key(|(stamp, _)| *stamp)
}

pub(crate) fn is_tag_set(value: &EntryValue) -> bool {
    !matches!(value, EntryValue::Absent | EntryValue::Number(0) | EntryValue::Name(None))
}

/// Whether a member has sent no value for a tag because it has not changed it.
pub(crate) fn is_tag_unchanged(value: &EntryValue) -> bool {
    matches!(value, EntryValue::Absent | EntryValue::Number(UNCHANGED..) | EntryValue::Name(None))
}

impl MemberPart {
    /// Creates a part without values.
    fn new(member: usize, table: &Table) -> MemberPart {
        let (stamps, values) =
            (vec![0; tags(table).count()], vec![EntryValue::Absent; elements(table).count()]);
        MemberPart {
            member: member as u16,
            generation: 0,
            at: 0,
            stamps: stamps.into(),
            values: values.into(),
        }
    }
}

impl SumRecord {
    /// Returns the sum of the parts of all members except one. A tag that no other member has changed after this one is
    /// [`UNCHANGED`].
    fn without(&mut self, member: usize, table: &Table, now: u64) -> Vec<EntryValue> {
        let total = match self.total.take() {
            Some(total) if total.at == now => total,
            _ => Total::of(&self.parts, table, now),
        };
        let own = self.parts.iter().find(|part| usize::from(part.member) == member);
        let others = || self.parts.iter().filter(|part| usize::from(part.member) != member);
        let mut tag = 0..;
        let values =
            total.values.iter().zip(elements(table)).enumerate().map(|(at, (value, (period, _)))| {
                let own_value = own.and_then(|own| Some((own.values.get(at)?, now.saturating_sub(own.at))));
                match (*value, own_value) {
                    (TotalValue::Count(total), Some((EntryValue::Number(own), _))) => {
                        EntryValue::Number(total.saturating_sub(*own))
                    }
                    (TotalValue::Count(total), _) => EntryValue::Number(total),
                    (TotalValue::Rate(total), Some((EntryValue::Rate(own), since))) => {
                        EntryValue::Rate(total.without(RateTotal::of(*own, since, period)).rate(0))
                    }
                    (TotalValue::Rate(total), _) => EntryValue::Rate(total.rate(0)),
                    (TotalValue::Last, _) => {
                        let tag = tag.next().unwrap_or_default();
                        let own = own.and_then(|own| own.stamps.get(tag)).copied().unwrap_or(0);
                        let last = latest(others(), tag).filter(|(stamp, _)| *stamp > own);
                        let value = last.and_then(|(_, last)| last.values.get(at));
                        value.cloned().unwrap_or(EntryValue::Number(UNCHANGED))
                    }
                }
            });
        let values = values.collect();
        self.total = Some(total);
        values
    }
}

impl Total {
    fn of(parts: &[MemberPart], table: &Table, now: u64) -> Total {
        let values = elements(table).enumerate().map(|(at, (period, is_summed))| {
            let values = parts.iter().filter_map(|part| Some((part.values.get(at)?, part.at)));
            if !is_summed {
                return TotalValue::Last;
            }
            if period == 0 {
                let numbers =
                    values.map(|(value, _)| if let EntryValue::Number(own) = value { *own } else { 0 });
                return TotalValue::Count(numbers.fold(0, u64::saturating_add));
            }
            let mut total = RateTotal::default();
            for (value, at) in values {
                if let EntryValue::Rate(rate) = value {
                    total.add(RateTotal::of(*rate, now.saturating_sub(at), period));
                }
            }
            TotalValue::Rate(total)
        });
        Total { at: now, values: values.collect() }
    }
}

impl Sums {
    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Stores a member's part of a key. Returns whether the member has changed a value that cannot be added.
    pub(crate) fn put(
        &mut self,
        table: &Table,
        (member, generation): (usize, u32),
        (name, key): (&[u8], &[u8]),
        values: &[EntryValue],
        now: u64,
    ) -> bool {
        self.sweep(table, 2, now);
        let at = match self.index.get(key) {
            Some(at) => *at,
            None => self.add(owners::place(name, key), key),
        };
        let Some(SumRecord { parts, is_shared, .. }) = &mut self.records[at as usize] else { return false };
        let own = parts.iter().position(|part| usize::from(part.member) == member).unwrap_or_else(|| {
            parts.push(MemberPart::new(member, table));
            parts.len() - 1
        });
        let mut has_changed = false;
        for (tag, at) in tags(table).enumerate() {
            let (before, value) = (&parts[own].values[at], &values[at]);
            let is_new = if is_tag_unchanged(before) { is_tag_set(value) } else { before != value };
            // A member may repeat the change of another one.
            let is_repeated = || latest(parts.iter(), tag).is_some_and(|(_, last)| last.values[at] == *value);
            if is_new && !is_tag_unchanged(value) && !is_repeated() {
                self.stamps += 1;
                parts[own].stamps[tag] = self.stamps;
                has_changed = true;
            }
        }
        let part = &mut parts[own];
        for ((stored, value), (_, is_summed)) in part.values.iter_mut().zip(values).zip(elements(table)) {
            if is_summed || !is_tag_unchanged(value) {
                stored.clone_from(value);
            }
        }
        (part.at, part.generation) = (now, generation);
        *is_shared |= parts.len() > 1;
        self.note(at, table);
        has_changed
    }

    fn add(&mut self, place: usize, key: &[u8]) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            (self.records.len() - 1) as u32
        });
        let record =
            SumRecord { key: key.into(), place, parts: Vec::new(), number: 0, is_shared: false, total: None };
        self.records[at as usize] = Some(record);
        self.index.insert(key.into(), at);
        at
    }

    /// Gives a record the next number.
    fn note(&mut self, at: u32, table: &Table) {
        self.last += 1;
        if let Some(record) = &mut self.records[at as usize] {
            record.number = self.last;
            record.total = None;
        }
        self.log.push_back((self.last, at));
        if self.log.len() > 2 * self.index.len() + FORGOTTEN {
            let records = &self.records;
            self.log.retain(|(number, at)| {
                records[*at as usize].as_ref().is_some_and(|record| record.number == *number)
            });
        }
        debug_assert!(table.aggregate().is_some());
    }

    /// Marks the sum of a key as changed. Returns whether there are parts of it.
    pub(crate) fn renew(&mut self, table: &Table, key: &[u8]) -> bool {
        let at = self.index.get(key).copied();
        at.inspect(|at| self.note(*at, table)).is_some()
    }

    /// Drops records without an entry in the table, out of the next `count`.
    pub(crate) fn sweep(&mut self, table: &Table, count: usize, now: u64) {
        for _ in 0..count.min(self.records.len()) {
            self.swept = (self.swept + 1) % self.records.len();
            let gone = self.records[self.swept].take_if(|record| table.find(&record.key, now).is_none());
            if let Some(record) = gone {
                self.index.remove(&record.key);
                self.free.push(self.swept as u32);
            }
        }
    }

    /// Checks the next `count` records, and drops parts in places that this process does not keep, if they were received before
    /// `before` and their members are present. These send changes to other members, so the parts become outdated, and must not be
    /// returned to a member that was restarted.
    pub(crate) fn drop_unkept(
        &mut self,
        (count, before): (usize, u64),
        mut is_kept: impl FnMut(usize) -> bool,
        is_present: impl Fn(usize) -> bool,
    ) {
        for _ in 0..count.min(self.records.len()) {
            self.checked = (self.checked + 1) % self.records.len();
            let record = &mut self.records[self.checked];
            let Some(own) = record.as_mut().filter(|own| !is_kept(own.place)) else { continue };
            own.parts.retain(|part| part.at >= before || !is_present(usize::from(part.member)));
            own.total = None;
            if let Some(record) = record.take_if(|own| own.parts.is_empty()) {
                self.index.remove(&record.key);
                self.free.push(self.checked as u32);
            }
        }
    }

    /// Drops the parts of earlier generations.
    pub(crate) fn drop_gone(&mut self, table: &Table, generations: &[u32]) {
        for at in 0..self.records.len() {
            let Some(record) = &mut self.records[at] else { continue };
            let before = record.parts.len();
            record.parts.retain(|part| generations.get(usize::from(part.member)) == Some(&part.generation));
            if record.parts.len() != before {
                self.note(at as u32, table);
            }
        }
    }

    /// Moves the parts of a member to other sums of the same table. There, they have this generation.
    pub(crate) fn move_parts(
        &mut self,
        (member, generation): (usize, u32),
        target: &mut Sums,
        table: &Table,
        now: u64,
    ) {
        for at in 0..self.records.len() {
            let Some(record) = &mut self.records[at] else { continue };
            let own = record.parts.iter().position(|part| usize::from(part.member) == member);
            let Some(own) = own.filter(|_| table.find(&record.key, now).is_some()) else { continue };
            let part = MemberPart { generation, ..record.parts.swap_remove(own) };
            target.insert(record.place, &record.key, part, table);
            self.note(at as u32, table);
        }
    }

    /// Stores a part in place of the one that the member has.
    fn insert(&mut self, place: usize, key: &[u8], mut part: MemberPart, table: &Table) {
        let at = self.index.get(key).copied().unwrap_or_else(|| self.add(place, key));
        let Some(record) = &mut self.records[at as usize] else { return };
        for stamp in part.stamps.iter_mut().filter(|stamp| **stamp > 0) {
            self.stamps += 1;
            *stamp = self.stamps;
        }
        record.parts.retain(|other| other.member != part.member);
        record.parts.push(part);
        record.is_shared |= record.parts.len() > 1;
        self.note(at, table);
    }

    /// Calls `take` for each key that changed after number `after`, up to number `until`, with the sum without the part of
    /// `member`, until `take` returns false. Skips keys that only that member has, and keys in places that are not `wanted`.
    pub(crate) fn changed(
        &mut self,
        table: &Table,
        (after, until): (u64, u64),
        member: usize,
        (mut wanted, now): (impl FnMut(usize) -> bool, u64),
        mut take: impl FnMut(u64, usize, &[u8], &[EntryValue]) -> bool,
    ) {
        let first = self.log.partition_point(|(number, _)| *number <= after);
        for (number, at) in self.log.range(first..) {
            if *number > until {
                return;
            }
            let Some(record) = self.records[*at as usize].as_mut().filter(|record| record.number == *number)
            else {
                continue;
            };
            let is_empty = record.parts.is_empty();
            let is_alone = !record.is_shared
                && !is_empty
                && record.parts.iter().all(|part| usize::from(part.member) == member);
            // Members have the sum of parts that were dropped, unless the entry has expired.
            let is_gone = is_empty && table.find(&record.key, now).is_none();
            if is_alone || is_gone || !wanted(record.place) {
                continue;
            }
            let values = record.without(member, table, now);
            if !take(*number, record.place, &record.key, &values) {
                return;
            }
        }
    }

    /// Calls `take` for each key from position `from` on, with the values of `member`'s part, until `take` returns false. Those of
    /// `tags` that the member has never sent are [`UNCHANGED`]. Returns the position at which to continue, or `None` if all keys were
    /// visited.
    pub(crate) fn walk_parts(
        &self,
        tags: &[usize],
        member: usize,
        from: usize,
        now: u64,
        mut take: impl FnMut(&[u8], &[EntryValue]) -> bool,
    ) -> Option<usize> {
        for (at, record) in self.records.iter().enumerate().skip(from) {
            let Some(record) = record else { continue };
            let Some(part) = record.parts.iter().find(|part| usize::from(part.member) == member) else {
                continue;
            };
            let since = u32::try_from(now.saturating_sub(part.at)).unwrap_or(u32::MAX);
            let mut values: Vec<EntryValue> = part.values.iter().map(|value| value.older(since)).collect();
            for at in tags {
                if is_tag_unchanged(&values[*at]) {
                    values[*at] = EntryValue::Number(UNCHANGED);
                }
            }
            if !take(&record.key, &values) {
                return Some(at + 1);
            }
        }
        None
    }

    /// Like [`walk_parts`](Self::walk_parts), with the sums without the part of `member`.
    pub(crate) fn walk(
        &mut self,
        table: &Table,
        member: usize,
        from: usize,
        now: u64,
        mut take: impl FnMut(&[u8], &[EntryValue]) -> bool,
    ) -> Option<usize> {
        for at in from..self.records.len() {
            let Some(record) = &mut self.records[at] else { continue };
            let values = record.without(member, table, now);
            if !take(&record.key, &values) {
                return Some(at + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
