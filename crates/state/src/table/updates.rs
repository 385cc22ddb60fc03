//! What has changed in a table that peers share: entries get numbers in the order of their changes, and
//! those above a number are asked for. Tables without peers have nothing of this.
//!
//! Whoever changes an entry marks it, and notes its place once however often it changes: numbers are
//! given when peers ask. An entry has one number, of its last change.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::{Mutex, MutexGuard, OnceLock};

use super::layout::{Column, DataType, ValueForm, head};
use super::shard::EntryWords;
use super::{EntrySlot, EntryValues, Table, TableCursor, TableEntry};

/// The number of an entry whose change has none yet.
const PENDING: u32 = u32::MAX;

/// From so many numbers on that nothing has any more they are forgotten.
const FORGOTTEN: usize = 1024;

#[derive(Debug, Default)]
struct Log {
    /// The last number.
    last: u64,
    /// Numbers in rising order, and the entries that have them or had them.
    numbered: VecDeque<(u64, EntrySlot)>,
    /// What is kept of memory for entries that changed.
    spare: Vec<EntrySlot>,
}

/// The changes of a table.
#[derive(Default)]
pub(super) struct Updates {
    /// Entries that changed since numbers were last given.
    pending: Mutex<Vec<EntrySlot>>,
    log: Mutex<Log>,
    /// Told when there is a change to give a number to.
    waker: OnceLock<Waker>,
}

/// Who tells peers.
pub type Waker = Box<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates")
            .field("pending", &self.pending)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that could panic leaves it half changed.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Updates {
    /// Notes that an entry has changed.
    #[inline]
    pub(super) fn note(&self, row: &EntryWords<'_>, slot: EntrySlot) {
        // Also where it is marked: who gives it a number meanwhile sees what was changed before.
        if row.words[head::UPDATE].swap(PENDING, AcqRel) != PENDING {
            self.add(slot);
        }
    }

    fn add(&self, slot: EntrySlot) {
        let mut pending = locked(&self.pending);
        let is_first = pending.is_empty();
        pending.push(slot);
        drop(pending);
        // Further changes are found with the first.
        if is_first && let Some(waker) = self.waker.get() {
            waker();
        }
    }
}

/// One element of what an entry holds, as peers tell each other of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableValue<'a> {
    /// Nothing is said of it.
    Absent,
    /// A number.
    Number(u64),
    /// How long ago its period began, its events, those of the period before.
    Rate(u32, u32, u32),
    /// A text; `None` for none.
    Text(Option<&'a str>),
}

impl EntryValues<'_> {
    /// Everything that it holds, in the order of the table's columns, an element after the other.
    pub fn values(&self, now_ms: u64) -> impl Iterator<Item = TableValue<'_>> {
        self.table().columns().flat_map(move |column| {
            (0..column.count as usize).map(move |element| match column.data.form() {
                ValueForm::Rate => {
                    let (ago, events, before) = self.rate_parts(column, element, now_ms);
                    TableValue::Rate(ago, events, before)
                }
                ValueForm::Text => TableValue::Text(self.server_key().map(|text| &**text)),
                ValueForm::Word | ValueForm::Long => TableValue::Number(self.read(column, element, now_ms)),
            })
        })
    }
}

impl Table {
    /// How many changes of entries got a number so far, those among them that happened since peers last
    /// asked. It begins again after `u32::MAX`, as HAProxy's does.
    pub fn local_updates(&self) -> u32 {
        self.last_change() as u32
    }

    /// The number of the last change; 0 if there was none.
    pub fn last_change(&self) -> u64 {
        let Some(updates) = &self.updates else { return 0 };
        let mut log = locked(&updates.log);
        self.number_changes(updates, &mut log);
        log.last
    }

    /// Gives numbers to what has changed.
    fn number_changes(&self, updates: &Updates, log: &mut Log) {
        // Those who change entries find room for many of them.
        let mut pending = std::mem::take(&mut log.spare);
        std::mem::swap(&mut pending, &mut *locked(&updates.pending));
        for slot in pending.drain(..) {
            let row = self.view(slot).row;
            // What is gone meanwhile has no mark any more.
            if row.word(head::UPDATE) == PENDING {
                log.last += 1;
                if matches!(log.last as u32, 0 | PENDING) {
                    // These say something else in an entry.
                    log.last += 1 + u64::from(log.last as u32 == PENDING);
                }
                row.words[head::UPDATE].swap(log.last as u32, AcqRel);
                log.numbered.push_back((log.last, slot));
            }
        }
        log.spare = pending;
        if log.numbered.len() > self.used() as usize * 2 + FORGOTTEN {
            log.numbered.retain(|(number, slot)| self.view(*slot).row.word(head::UPDATE) == *number as u32);
        }
    }

    /// Has `waker` called when there is something to tell peers of, until they ask; it is called where
    /// entries change, and set once. Nothing in a table without peers.
    pub fn wakes(&self, waker: Waker) {
        if let Some(updates) = &self.updates {
            let _ = updates.waker.set(waker);
        }
    }

    /// Gives the entries that changed after number `after` to `take` with their numbers, in rising order,
    /// until `take` says no; the entry that it says no to is taken all the same. Entries that are gone
    /// are left out.
    pub fn changes(&self, after: u64, now_ms: u64, mut take: impl FnMut(u64, &EntryValues<'_>) -> bool) {
        let Some(updates) = &self.updates else { return };
        let mut log = locked(&updates.log);
        self.number_changes(updates, &mut log);
        let first = log.numbered.partition_point(|(number, _)| *number <= after);
        for (number, slot) in log.numbered.range(first..) {
            let Some(entry) = self.at(*slot, now_ms) else { continue };
            if entry.row.word(head::UPDATE) == *number as u32 && !take(*number, &entry) {
                return;
            }
        }
    }

    /// Gives all entries to `take`, from `from` on, until `take` says no; the entry that it says no to is
    /// taken all the same. Where to go on, `None` when these were all.
    pub fn walk(
        &self,
        from: TableCursor,
        now_ms: u64,
        mut take: impl FnMut(&EntryValues<'_>) -> bool,
    ) -> Option<TableCursor> {
        let mut cursor = from;
        loop {
            let (entry, next) = self.next(cursor, now_ms, usize::MAX).ok()?;
            cursor = next;
            if !take(&entry) {
                return Some(cursor);
            }
        }
    }

    /// Takes in what a peer says of an entry: how long it still lives, `None` for as long as entries of the
    /// table do, and what it holds: element after element in the order of columns, `told` by their
    /// places. What it does not tell stays. It is no change of ours that others are told of.
    ///
    /// The last word counts, but in a resync (`told_again`) of an entry that was used here since the
    /// peer last heard of it: this one lives longer. Of such, what is counted becomes the larger of
    /// both, and what was noted here (servers, tags) stays.
    pub fn learn<'v>(
        &self,
        key: &[u8],
        expire_ms: Option<u32>,
        told_again: bool,
        now_ms: u64,
        told: impl Fn(usize) -> TableValue<'v>,
    ) {
        let left = expire_ms.unwrap_or(self.settings.expire_ms);
        if let Some((entry, own)) = self.fetch(key, now_ms, self.touched_at(left, now_ms)) {
            let newer = own.filter(|own| told_again && expire_ms.is_some_and(|told| *own > told));
            entry.expire_in(newer.unwrap_or(left), now_ms);
            // What counts connections here is not what a peer counts.
            let wanted = |data| data != DataType::ConnCur || self.settings.recv_only;
            match newer {
                Some(_) => self.put(self, &entry, now_ms, &told, wanted, Self::older),
                None => self.put(self, &entry, now_ms, &told, wanted, |_, _, _, _, value| value),
            }
        }
        self.learn_target(key, expire_ms, now_ms, &told);
    }

    /// Takes in an entry of the process that this one replaces, as [`learn`](Self::learn). Both
    /// processes count at the same time: the difference between `told` and `known`, the values from
    /// its previous message (`Absent` without one), is added. Tags and servers stay if they were set
    /// here and not changed there. `false` if the table has no room for the entry.
    pub fn learn_from_predecessor<'v>(
        &self,
        key: &[u8],
        expire_ms: Option<u32>,
        now_ms: u64,
        told: impl Fn(usize) -> TableValue<'v>,
        known: impl Fn(usize) -> TableValue<'v>,
    ) -> bool {
        let left = expire_ms.unwrap_or(self.settings.expire_ms);
        let Some((entry, own)) = self.fetch(key, now_ms, self.touched_at(left, now_ms)) else { return false };
        entry.expire_in(own.map_or(left, |own| own.max(left)), now_ms);
        let wanted = |data| data != DataType::ConnCur || self.settings.recv_only;
        let is_first = Cell::new(false);
        self.put(self, &entry, now_ms, &told, wanted, |entry, column, place, now_ms, value| {
            is_first.set(is_first.get() || known(place) == TableValue::Absent);
            Self::added(entry, column, now_ms, value, known(place))
        });
        // The predecessor has left the other peers: this process has to pass its changes on.
        if !is_first.get() {
            entry.note_update();
        }
        self.learn_target(key, expire_ms, now_ms, &told);
        true
    }

    /// Puts the values of an entry into the table of `write-to`.
    fn learn_target<'v>(
        &self,
        key: &[u8],
        expire_ms: Option<u32>,
        now_ms: u64,
        told: &impl Fn(usize) -> TableValue<'v>,
    ) {
        if let Some(target) = self.write_to.get()
            && let left = expire_ms.unwrap_or(target.settings.expire_ms)
            && let Some((entry, _)) = target.fetch(key, now_ms, target.touched_at(left, now_ms))
        {
            entry.expire_in(left, now_ms);
            // What is calculated with stays the target's own.
            let wanted = |data| {
                matches!(data, DataType::ServerId | DataType::ServerKey | DataType::Gpt | DataType::Gpt0)
            };
            self.put(target, &entry, now_ms, told, wanted, |_, _, _, _, value| value);
            entry.note_update();
        }
    }

    /// What becomes of a value that is older than the entry: nothing where the entry has one of its
    /// own that is not counted.
    fn older<'v>(
        entry: &TableEntry<'_>,
        (column, element): (&Column, u32),
        _: usize,
        now_ms: u64,
        value: TableValue<'v>,
    ) -> TableValue<'v> {
        let is_tag = matches!(column.data, DataType::ServerId | DataType::Gpt | DataType::Gpt0);
        let own = |data| entry.get(data, element, now_ms).unwrap_or(0);
        let keeps = match (value, column.data.form()) {
            (TableValue::Number(number), _) if is_tag => own(column.data) != 0 || number == 0,
            (TableValue::Number(number), _) => own(column.data) >= number,
            (TableValue::Rate(_, events, before), ValueForm::Rate) => {
                let (_, own_events, own_before) = entry.rate_parts(column, element as usize, now_ms);
                u64::from(own_events) + u64::from(own_before) >= u64::from(events) + u64::from(before)
            }
            (TableValue::Text(_), _) => entry.server_key().is_some(),
            (TableValue::Absent | TableValue::Rate(..), _) => true,
        };
        if keeps { TableValue::Absent } else { value }
    }

    /// Adds a count of the predecessor to the entry. A value that is not a count is returned if it is
    /// to replace the entry's.
    fn added<'v>(
        entry: &TableEntry<'_>,
        (column, element): (&Column, u32),
        now_ms: u64,
        value: TableValue<'v>,
        known: TableValue<'_>,
    ) -> TableValue<'v> {
        let is_tag = matches!(column.data, DataType::ServerId | DataType::Gpt | DataType::Gpt0);
        let keeps = |has_own: bool| if known == TableValue::Absent { has_own } else { known == value };
        match (value, column.data.form()) {
            (TableValue::Number(_), _) if is_tag => {
                if keeps(entry.get(column.data, element, now_ms) != Some(0)) {
                    TableValue::Absent
                } else {
                    value
                }
            }
            (TableValue::Text(_), _) => {
                if keeps(entry.server_key().is_some()) {
                    TableValue::Absent
                } else {
                    value
                }
            }
            (TableValue::Number(number), ValueForm::Word | ValueForm::Long) => {
                let known = if let TableValue::Number(known) = known { known } else { 0 };
                // A count that was cleared there keeps its value here.
                entry.add(column.data, element, number.saturating_sub(known), now_ms);
                TableValue::Absent
            }
            (TableValue::Rate(ago, events, before), ValueForm::Rate) => {
                let known = if let TableValue::Rate(ago, events, before) = known {
                    Some((ago, events, before))
                } else {
                    None
                };
                entry.add_rate_parts(column, element as usize, (ago, events, before), known, now_ms);
                TableValue::Absent
            }
            (other, _) => other,
        }
    }

    /// Puts what is told of this table into an entry of that one.
    fn put<'v>(
        &self,
        table: &Self,
        entry: &TableEntry<'_>,
        now_ms: u64,
        told: &impl Fn(usize) -> TableValue<'v>,
        wanted: impl Fn(DataType) -> bool,
        settle: impl Fn(&TableEntry<'_>, (&Column, u32), usize, u64, TableValue<'v>) -> TableValue<'v>,
    ) {
        let mut first = 0;
        for own in self.columns() {
            let place = first;
            first += own.count as usize;
            if !wanted(own.data) {
                continue;
            }
            let Some(column) = table.column(own.data) else { continue };
            for element in 0..own.count.min(column.count) {
                let place = place + element as usize;
                let told = told(place);
                if told == TableValue::Absent {
                    break;
                }
                match (settle(entry, (column, element), place, now_ms, told), own.data.form()) {
                    (TableValue::Rate(ago, events, before), ValueForm::Rate) => {
                        entry.set_rate_parts(column, element as usize, (ago, events, before), now_ms);
                    }
                    (TableValue::Text(text), ValueForm::Text) => {
                        entry.set_server_key(text.unwrap_or_default());
                    }
                    (TableValue::Number(number), ValueForm::Word) => {
                        entry.set(own.data, element, number.min(u32::MAX.into()), now_ms);
                    }
                    (TableValue::Number(number), ValueForm::Long) => {
                        entry.set(own.data, element, number, now_ms);
                    }
                    // A peer that means something else by it.
                    _ => {}
                }
            }
        }
    }
}
