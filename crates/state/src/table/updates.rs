//! What has changed in a table that peers share: entries get numbers in the order of their changes, and
//! those above a number are asked for. Tables without peers have nothing of this.
//!
//! Whoever changes an entry marks it, and notes its place once however often it changes: numbers are
//! given when peers ask. An entry has one number, of its last change.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use super::layout::{Data, Form, head};
use super::shard::Row;
use super::{Column, Cursor, Entry, Slot, Table, View};

/// The number of an entry whose change has none yet.
const PENDING: u32 = u32::MAX;

/// From so many numbers on that nothing has any more they are forgotten.
const FORGOTTEN: usize = 1024;

#[derive(Debug, Default)]
struct Log {
    /// The last number.
    last: u64,
    /// Numbers in rising order, and the entries that have them or had them.
    numbered: VecDeque<(u64, Slot)>,
}

/// The changes of a table.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// Entries that changed since numbers were last given.
    pending: Mutex<Vec<Slot>>,
    log: Mutex<Log>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that could panic leaves it half changed.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Updates {
    /// Notes that an entry has changed.
    #[inline]
    pub(super) fn note(&self, row: &Row<'_>, slot: Slot) {
        if row.word(head::UPDATE) != PENDING
            && row.words[head::UPDATE].swap(PENDING, std::sync::atomic::Ordering::AcqRel) != PENDING
        {
            locked(&self.pending).push(slot);
        }
    }
}

/// An entry as peers tell each other of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Its key: an address or a number in network order, text, or bytes.
    pub key: Vec<u8>,
    /// How long it still lives, in milliseconds; `None` as long as entries of the table do.
    pub expire_ms: Option<u32>,
    /// What it holds, in the order of the table's columns, an element after the other.
    pub values: Vec<(Data, Vec<Value>)>,
}

/// One element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// How long ago its period began, its events, those of the period before.
    Rate(u32, u32, u32),
    /// A text; `None` for none.
    Text(Option<Arc<str>>),
}

impl Update {
    /// An entry as it is now.
    fn of(entry: &View<'_>, now_ms: u64) -> Self {
        let mut key = Vec::new();
        entry.key(&mut key);
        let of_column = |column: &Column| {
            let value = |element: usize| match column.data.form() {
                Form::Rate => {
                    let (ago, events, before) = entry.rate_parts(column, element, now_ms);
                    Value::Rate(ago, events, before)
                }
                Form::Text => Value::Text(entry.server_key().cloned()),
                Form::Word | Form::Long => Value::Number(entry.read(column, element, now_ms)),
            };
            (column.data, (0..column.count as usize).map(value).collect())
        };
        let values = entry.table().columns().map(of_column).collect();
        Self { key, expire_ms: Some(entry.expires_in(now_ms)), values }
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
        let pending = std::mem::take(&mut *locked(&updates.pending));
        for slot in pending {
            let row = self.view(slot).row;
            // What is gone meanwhile has no mark any more.
            if row.word(head::UPDATE) == PENDING {
                log.last += 1;
                if matches!(log.last as u32, 0 | PENDING) {
                    // These say something else in an entry.
                    log.last += 1 + u64::from(log.last as u32 == PENDING);
                }
                row.put(head::UPDATE, log.last as u32);
                log.numbered.push_back((log.last, slot));
            }
        }
        if log.numbered.len() > self.used() as usize * 2 + FORGOTTEN {
            log.numbered.retain(|(number, slot)| self.view(*slot).row.word(head::UPDATE) == *number as u32);
        }
    }

    /// Gives the entries that changed after number `after` to `take` with their numbers, in rising order,
    /// until `take` says no; the entry that it says no to is taken all the same. Entries that are gone
    /// are left out.
    pub fn changes(&self, after: u64, now_ms: u64, mut take: impl FnMut(u64, Update) -> bool) {
        let Some(updates) = &self.updates else { return };
        let mut log = locked(&updates.log);
        self.number_changes(updates, &mut log);
        let first = log.numbered.partition_point(|(number, _)| *number <= after);
        for (number, slot) in log.numbered.range(first..) {
            let Some(entry) = self.at(*slot, now_ms) else { continue };
            if entry.row.word(head::UPDATE) == *number as u32 && !take(*number, Update::of(&entry, now_ms)) {
                return;
            }
        }
    }

    /// Gives all entries to `take`, from `from` on, until `take` says no; the entry that it says no to is
    /// taken all the same. Where to go on, `None` when these were all.
    pub fn walk(&self, from: Cursor, now_ms: u64, mut take: impl FnMut(Update) -> bool) -> Option<Cursor> {
        let mut cursor = from;
        loop {
            let (entry, next) = self.next(cursor, now_ms, usize::MAX).ok()?;
            cursor = next;
            if !take(Update::of(&entry, now_ms)) {
                return Some(cursor);
            }
        }
    }

    /// Takes in what a peer says of an entry: values that it does not tell stay. It is no change of ours
    /// that others are told of.
    pub fn learn(&self, update: &Update, now_ms: u64) {
        if let Some(entry) = self.get_quietly(&update.key, now_ms) {
            // What counts connections here is not what a peer counts.
            self.put(&entry, update, now_ms, |data| data != Data::ConnCur || self.settings.recv_only);
        }
        if let Some(target) = self.write_to.get()
            && let Some(entry) = target.get(&update.key, now_ms)
        {
            // What is calculated with stays the target's own.
            target.put(&entry, update, now_ms, |data| {
                matches!(data, Data::ServerId | Data::ServerKey | Data::Gpt | Data::Gpt0)
            });
        }
    }

    fn put(&self, entry: &Entry<'_>, update: &Update, now_ms: u64, wanted: impl Fn(Data) -> bool) {
        match update.expire_ms {
            Some(left) => entry.expire_in(left, now_ms),
            None => entry.expire_in(self.settings.expire_ms, now_ms),
        }
        for (data, values) in update.values.iter().filter(|(data, _)| wanted(*data)) {
            let Some(column) = self.column(*data) else { continue };
            for (element, value) in values.iter().enumerate().take(column.count as usize) {
                match (value, data.form()) {
                    (Value::Rate(ago, events, before), Form::Rate) => {
                        entry.set_rate_parts(column, element, (*ago, *events, *before), now_ms);
                    }
                    (Value::Text(text), Form::Text) => {
                        entry.set_server_key(text.as_deref().unwrap_or_default());
                    }
                    (Value::Number(number), Form::Word | Form::Long) => {
                        entry.set(*data, element as u32, *number, now_ms);
                    }
                    // A peer that means something else by it.
                    _ => {}
                }
            }
        }
    }
}
