//! Changes to a table that is shared with peers. Entries are numbered in the order of their changes, and queried by number. Tables
//! without peers have none of this state.
//!
//! A change marks its entry and records the entry's position, only once for several changes. Numbers are assigned when peers ask
//! for changes. An entry has only one number: the number of its last change.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::{Mutex, MutexGuard, OnceLock};

use super::layout::{Column, DataType, ValueForm, head};
use super::shard::EntryWords;
use super::{EntrySlot, EntryValues, Table, TableCursor, TableEntry};

/// The number of an entry whose change is not numbered yet.
const PENDING: u32 = u32::MAX;

/// Numbers that are outdated are dropped once there are this many of them.
const FORGOTTEN: usize = 1024;

#[derive(Debug, Default)]
struct Log {
    /// The last number.
    last: u64,
    /// Ascending numbers, and the entries that have or had these numbers.
    numbered: VecDeque<(u64, EntrySlot)>,
    /// Spare memory for recording changed entries.
    spare: Vec<EntrySlot>,
}

/// The changes of a table.
#[derive(Default)]
pub(super) struct Updates {
    /// Entries changed since numbers were last assigned.
    pending: Mutex<Vec<EntrySlot>>,
    log: Mutex<Log>,
    /// Woken when there is a change to be numbered.
    waker: OnceLock<Waker>,
}

/// Wakes the peers' task.
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
    // No step that could panic leaves the data partially changed.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Updates {
    /// Records a change of an entry.
    #[inline]
    pub(super) fn note(&self, row: &EntryWords<'_>, slot: EntrySlot) {
        // Done even if the entry is already marked, so that a thread that numbers it now sees the earlier changes.
        if row.words[head::UPDATE].swap(PENDING, AcqRel) != PENDING {
            self.add(slot);
        }
    }

    fn add(&self, slot: EntrySlot) {
        let mut pending = locked(&self.pending);
        let is_first = pending.is_empty();
        pending.push(slot);
        drop(pending);
        // Further changes are found together with the first.
        if is_first && let Some(waker) = self.waker.get() {
            waker();
        }
    }
}

/// One element of an entry's values, as exchanged with peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableValue<'a> {
    /// No value.
    Absent,
    /// A number.
    Number(u64),
    /// A rate: the age of the period, the events in it, and the events of the previous period.
    Rate(u32, u32, u32),
    /// A text, or none.
    Text(Option<&'a str>),
}

impl EntryValues<'_> {
    /// Returns all values of the entry, element by element in column order, without the parts of other members.
    pub fn values(&self, now_ms: u64) -> impl Iterator<Item = TableValue<'_>> {
        self.table().columns().flat_map(move |column| {
            (0..column.count as usize).map(move |element| match column.data.form() {
                ValueForm::Rate => {
                    let (ago, events, before) = self.rate_parts(column, element, now_ms);
                    TableValue::Rate(ago, events, before)
                }
                ValueForm::Text => TableValue::Text(self.server_key().map(|text| &**text)),
                ValueForm::Word | ValueForm::Long => TableValue::Number(self.own(column, element, now_ms)),
            })
        })
    }
}

impl Table {
    /// Returns the number of changes so far, including those since the last query by peers. It wraps after `u32::MAX`, as in
    /// HAProxy.
    pub fn local_updates(&self) -> u32 {
        self.last_change() as u32
    }

    /// Returns the number of the last change; 0 if there was none.
    pub fn last_change(&self) -> u64 {
        let Some(updates) = &self.updates else { return 0 };
        let mut log = locked(&updates.log);
        self.number_changes(updates, &mut log);
        log.last
    }

    /// Numbers the recorded changes.
    fn number_changes(&self, updates: &Updates, log: &mut Log) {
        // The list that is handed to the threads that change entries has room for many.
        let mut pending = std::mem::take(&mut log.spare);
        std::mem::swap(&mut pending, &mut *locked(&updates.pending));
        for slot in pending.drain(..) {
            let row = self.view(slot).row;
            // Removed entries are no longer marked.
            if row.word(head::UPDATE) == PENDING {
                log.last += 1;
                if matches!(log.last as u32, 0 | PENDING) {
                    // These numbers have special meanings in an entry.
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

    /// Sets the waker for changes to send to peers. The thread that changes an entry calls it, until the changes are queried. Set
    /// once. Does nothing in a table without peers.
    pub fn wakes(&self, waker: Waker) {
        if let Some(updates) = &self.updates {
            let _ = updates.waker.set(waker);
        }
    }

    /// Calls `take` for each entry that changed after number `after`, with its number, in ascending order, until `take` returns
    /// false; that entry counts as taken. Removed entries are skipped.
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

    /// Calls `take` with all entries, starting at `from`, until it returns false; the last entry counts as taken. Returns the
    /// position to continue from, or `None` at the end.
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

    /// Applies a peer's values of an entry: the remaining lifetime (`None` for the table's default), and the elements in column
    /// order, which `received` returns by index. Absent elements are unchanged. This does not count as a local change that must be
    /// sent to others.
    ///
    /// The last update wins, except in a resync (`told_again`) if the entry was used here after the peer last updated it, so that
    /// the local one lives longer. In that case, counts become the maximum of both, and stored values (servers, tags) are kept.
    pub fn learn<'v>(
        &self,
        key: &[u8],
        expire_ms: Option<u32>,
        told_again: bool,
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
    ) {
        let left = expire_ms.unwrap_or(self.settings.expire_ms);
        if let Some((entry, own)) = self.fetch(key, now_ms, self.touched_at(left, now_ms)) {
            let newer = own.filter(|own| told_again && expire_ms.is_some_and(|received| *own > received));
            entry.expire_in(newer.unwrap_or(left), now_ms);
            // The local number of connections is independent of the peer's.
            let wanted = |data| data != DataType::ConnCur || self.settings.recv_only;
            match newer {
                Some(_) => self.put(self, &entry, now_ms, &received, wanted, Self::older),
                None => self.put(self, &entry, now_ms, &received, wanted, |_, _, _, _, value| value),
            }
        }
        self.learn_target(key, expire_ms, now_ms, &received);
    }

    /// Applies an entry of the process that this one replaces, like [`learn`](Self::learn). Both processes count at the same time,
    /// so the difference between `received` and `known`, the values from the predecessor's previous message (`Absent` without one),
    /// is added. Tags and servers are kept if they were set here and the predecessor has not changed them. Returns `false` if the
    /// table has no room for the entry.
    pub fn learn_from_predecessor<'v>(
        &self,
        key: &[u8],
        expire_ms: Option<u32>,
        now_ms: u64,
        received: impl Fn(usize) -> TableValue<'v>,
        known: impl Fn(usize) -> TableValue<'v>,
    ) -> bool {
        let left = expire_ms.unwrap_or(self.settings.expire_ms);
        let Some((entry, own)) = self.fetch(key, now_ms, self.touched_at(left, now_ms)) else { return false };
        entry.expire_in(own.map_or(left, |own| own.max(left)), now_ms);
        let wanted = |data| data != DataType::ConnCur || self.settings.recv_only;
        let is_first = Cell::new(false);
        self.put(self, &entry, now_ms, &received, wanted, |entry, column, place, now_ms, value| {
            is_first.set(is_first.get() || known(place) == TableValue::Absent);
            Self::added(entry, column, now_ms, value, known(place))
        });
        // The predecessor has disconnected from the other peers, so this process must forward its changes.
        if !is_first.get() {
            entry.note_update();
        }
        self.learn_target(key, expire_ms, now_ms, &received);
        true
    }

    /// Applies the values of an entry to the `write-to` table.
    fn learn_target<'v>(
        &self,
        key: &[u8],
        expire_ms: Option<u32>,
        now_ms: u64,
        received: &impl Fn(usize) -> TableValue<'v>,
    ) {
        if let Some(target) = self.write_to.get()
            && let left = expire_ms.unwrap_or(target.settings.expire_ms)
            && let Some((entry, _)) = target.fetch(key, now_ms, target.touched_at(left, now_ms))
        {
            entry.expire_in(left, now_ms);
            // The target table keeps its own counts.
            let wanted = |data| {
                matches!(data, DataType::ServerId | DataType::ServerKey | DataType::Gpt | DataType::Gpt0)
            };
            // The entry is not announced: peers write their own target tables, and would overwrite newer values of others.
            self.put(target, &entry, now_ms, received, wanted, |_, _, _, _, value| value);
        }
    }

    /// Returns the value to apply if the received value is older than the entry: none if the entry has its own value and the value
    /// is not a count.
    fn older<'v>(
        entry: &TableEntry<'_>,
        (column, element): (&Column, u32),
        _: usize,
        now_ms: u64,
        value: TableValue<'v>,
    ) -> TableValue<'v> {
        let is_tag = matches!(column.data, DataType::ServerId | DataType::Gpt | DataType::Gpt0);
        let own = |data| entry.get_own(data, element, now_ms).unwrap_or(0);
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

    /// Adds a count from the predecessor to the entry. If a value is not a count and should replace the entry's value, it is
    /// returned instead.
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
                let most = if column.data.form() == ValueForm::Word { u32::MAX.into() } else { u64::MAX };
                let room = most.saturating_sub(entry.own(column, element as usize, now_ms));
                // A count that the predecessor has cleared keeps its local value. The sum does not wrap.
                entry.add(column.data, element, number.saturating_sub(known).min(room), now_ms);
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

    /// Applies values of this table to an entry of `target`'s table.
    fn put<'v>(
        &self,
        table: &Self,
        entry: &TableEntry<'_>,
        now_ms: u64,
        received: &impl Fn(usize) -> TableValue<'v>,
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
                let received = received(place);
                if received == TableValue::Absent {
                    break;
                }
                match (settle(entry, (column, element), place, now_ms, received), own.data.form()) {
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
                    // The peer uses a different format for this type.
                    _ => {}
                }
            }
        }
    }
}
