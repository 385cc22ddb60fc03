//! An entry that is held, and its values.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

use runtime::Local;
use runtime::shared::note_write;

use super::layout::{Column, DataType, ValueForm, head};
use super::shard::EntryWords;
use super::{EntrySlot, KeyType, Table, rate};

/// The values of an entry that is held elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct EntryValues<'t> {
    pub(super) table: &'t Table,
    pub(super) row: EntryWords<'t>,
    pub(super) slot: EntrySlot,
}

/// An entry that is held. It is not removed until it is released.
#[derive(Debug)]
pub struct TableEntry<'t> {
    pub(super) view: EntryValues<'t>,
}

impl<'t> Deref for TableEntry<'t> {
    type Target = EntryValues<'t>;
    #[inline]
    fn deref(&self) -> &EntryValues<'t> {
        &self.view
    }
}

impl Drop for TableEntry<'_> {
    #[inline]
    fn drop(&mut self) {
        note_write();
        self.view.row.words[head::HELD].fetch_sub(1, Release);
    }
}

impl TableEntry<'_> {
    /// Returns the identifier of the entry in `show table`, for [`Table::by_pointer`].
    pub fn pointer(&self) -> u64 {
        let EntrySlot { shard, at } = self.view.slot;
        ((u64::from(self.view.table.number) + 1) << 44) + (u64::from(shard) << 32) + u64::from(at)
    }
}

impl<'t> EntryValues<'t> {
    /// Returns the table of the entry.
    pub fn table(&self) -> &'t Table {
        self.table
    }

    /// Appends the key: an address in network order, a number, text, or bytes.
    pub fn key(&self, out: &mut Vec<u8>) {
        let words = &self.row.words[head::WORDS..head::WORDS + self.table.layout.key_words];
        let (length, words) = match (self.table.settings.kind, words) {
            (KeyType::Str, [length, rest @ ..]) => (length.load(Relaxed) as usize, rest),
            _ => (self.table.settings.key_length, words),
        };
        let end = out.len() + length;
        for word in words {
            out.extend_from_slice(&word.load(Relaxed).to_be_bytes());
        }
        out.truncate(end);
    }

    /// Returns the number of holders, including the caller.
    pub fn holders(&self) -> u32 {
        self.row.word(head::HELD)
    }

    /// Returns the remaining lifetime in milliseconds; 0 in a table without `expire`.
    pub fn expires_in(&self, now_ms: u64) -> u32 {
        self.table.settings.expire_ms.saturating_sub(self.idle(now_ms))
    }

    /// Returns the time since the entry was touched, in milliseconds.
    pub fn idle(&self, now_ms: u64) -> u32 {
        let since = (now_ms as u32).wrapping_sub(self.row.word(head::TOUCHED));
        // Another worker's clock may be ahead.
        if (since as i32) < 0 { 0 } else { since }
    }

    /// Marks the entry as used, which restarts its lifetime, and as changed.
    #[inline]
    pub fn touch(&self, now_ms: u64) {
        if self.row.word(head::TOUCHED) != now_ms as u32 {
            note_write();
            self.row.put(head::TOUCHED, now_ms as u32);
        }
        self.note_update();
    }

    /// Sets the remaining lifetime.
    pub fn expire_in(&self, left_ms: u32, now_ms: u64) {
        self.row.put(head::TOUCHED, self.table.touched_at(left_ms, now_ms));
    }

    /// Marks the entry as changed, so that peers get it again, without restarting its lifetime.
    pub fn mark_changed(&self) {
        self.note_update();
    }

    /// Whether this process has changed the entry, so that peers may have values from it.
    pub fn was_changed(&self) -> bool {
        self.row.word(head::UPDATE) != 0
    }

    /// Marks the entry as changed, for peers.
    #[inline]
    pub(super) fn note_update(&self) {
        if let Some(updates) = &self.table.updates {
            updates.note(&self.row, self.slot);
        }
    }

    #[inline]
    fn column(&self, data: DataType, element: u32) -> Option<(&'t Column, usize)> {
        let column = self.table.column(data)?;
        (element < column.count).then_some((column, element as usize))
    }

    /// Returns the current value of element `element` of `data`: a number, the events in a period, or the number of a string. In
    /// an aggregate table, it is the sum of all parts. Returns `None` if the table does not store the type.
    #[inline]
    pub fn get(&self, data: DataType, element: u32, now_ms: u64) -> Option<u64> {
        let (column, element) = self.column(data, element)?;
        Some(self.read(column, element, now_ms))
    }

    /// Like [`get`](Self::get), without the parts of other members.
    pub fn get_own(&self, data: DataType, element: u32, now_ms: u64) -> Option<u64> {
        let (column, element) = self.column(data, element)?;
        Some(self.own(column, element, now_ms))
    }

    /// Returns the current value of element `element` of a column. In an aggregate table, it is the sum of all parts.
    #[inline]
    pub fn read(&self, column: &Column, element: usize, now_ms: u64) -> u64 {
        self.own(column, element, now_ms).saturating_add(self.others(column, element, now_ms))
    }

    /// Returns the current value of element `element` of a column, without the parts of other members.
    pub fn own(&self, column: &Column, element: usize, now_ms: u64) -> u64 {
        self.read_at(column.word as usize + element, column.long as usize + element, column, now_ms)
    }

    /// Returns the value of an element at these places of the row.
    #[inline]
    pub(super) fn read_at(&self, word: usize, long: usize, column: &Column, now_ms: u64) -> u64 {
        match column.data.form() {
            ValueForm::Word | ValueForm::Text => u64::from(self.row.word(word)),
            ValueForm::Long => self.row.longs[long].load(Relaxed),
            ValueForm::Rate => {
                let (current, previous) = (&self.row.longs[long], &self.row.words[word]);
                u64::from(rate::read(current, previous, column.period_ms, now_ms as u32))
            }
        }
    }

    /// Adds to a value. Returns the new value, without the parts of other members; for rates, the events of the current period.
    /// `None` if the table does not store the type.
    #[inline]
    pub fn add(&self, data: DataType, element: u32, amount: u64, now_ms: u64) -> Option<u64> {
        let (column, element) = self.column(data, element)?;
        let (word, long) = (column.word as usize + element, column.long as usize + element);
        note_write();
        Some(match data.form() {
            ValueForm::Word | ValueForm::Text => {
                let amount = amount as u32;
                u64::from(self.row.words[word].fetch_add(amount, Relaxed).wrapping_add(amount))
            }
            ValueForm::Long => self.row.longs[long].fetch_add(amount, Relaxed).wrapping_add(amount),
            ValueForm::Rate => {
                let (current, previous) = (&self.row.longs[long], &self.row.words[word]);
                let events = u32::try_from(amount).unwrap_or(u32::MAX);
                u64::from(rate::count(current, previous, column.period_ms, now_ms as u32, events))
            }
        })
    }

    /// Decrements a number, unless it is zero.
    pub fn take(&self, data: DataType) {
        if let Some((column, _)) = self.column(data, 0) {
            note_write();
            let word = &self.row.words[column.word as usize];
            // If an operator has set the value to 0, it stays 0.
            let _ = word.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
        }
    }

    /// Sets a value; for a rate, the number of events in a period that begins now. Returns `false` if the table does not store the
    /// type.
    pub fn set(&self, data: DataType, element: u32, value: u64, now_ms: u64) -> bool {
        let Some((column, element)) = self.column(data, element) else { return false };
        let (word, long) = (column.word as usize + element, column.long as usize + element);
        note_write();
        match data.form() {
            ValueForm::Word | ValueForm::Text => self.row.put(word, value as u32),
            ValueForm::Long => self.row.longs[long].store(value, Relaxed),
            ValueForm::Rate => {
                rate::set(&self.row.longs[long], &self.row.words[word], now_ms as u32, value as u32);
            }
        }
        true
    }

    /// Sets a 32-bit number and returns the previous value.
    pub fn swap(&self, data: DataType, element: u32, value: u32) -> Option<u32> {
        let (column, element) = self.column(data, element)?;
        note_write();
        Some(self.row.words[column.word as usize + element].swap(value, Relaxed))
    }

    /// Returns the parts of a rate: the age of the period, the events in it, and the events of the previous period.
    pub fn rate_parts(&self, column: &Column, element: usize, now_ms: u64) -> (u32, u32, u32) {
        let (word, long) = (column.word as usize + element, column.long as usize + element);
        rate::parts(&self.row.longs[long], &self.row.words[word], now_ms as u32)
    }

    /// Sets the parts of a rate.
    pub fn set_rate_parts(&self, column: &Column, element: usize, parts: (u32, u32, u32), now_ms: u64) {
        let (word, long) = (column.word as usize + element, column.long as usize + element);
        rate::set_parts(&self.row.longs[long], &self.row.words[word], now_ms as u32, parts);
    }

    /// Adds the events of another process's rate, given by its parts, to this rate. The events in `known`, the parts of an earlier
    /// call, are already included.
    pub fn add_rate_parts(
        &self,
        column: &Column,
        element: usize,
        received: (u32, u32, u32),
        known: Option<(u32, u32, u32)>,
        now_ms: u64,
    ) {
        let (word, long) = (column.word as usize + element, column.long as usize + element);
        let period = column.period_ms;
        let (current, previous) = (&self.row.longs[long], &self.row.words[word]);
        rate::add_parts(current, previous, period, now_ms as u32, received, known);
    }

    /// Returns the text of `server_key`.
    pub fn server_key(&self) -> Option<&'t Arc<str>> {
        let (column, _) = self.column(DataType::ServerKey, 0)?;
        self.table.dictionary.text(self.row.word(column.word as usize))
    }

    /// Sets `server_key`. An empty text stands for none.
    pub fn set_server_key(&self, text: &str) {
        if let Some((column, _)) = self.column(DataType::ServerKey, 0) {
            let number = if text.is_empty() { 0 } else { self.table.dictionary.number(text) };
            self.row.put(column.word as usize, number);
        }
    }
}

thread_local! {
    /// The tables used by this worker, by number.
    static LOCALS: RefCell<Vec<Option<Local<Table>>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the worker's own reference to a table.
pub(super) fn local(table: &Arc<Table>) -> Local<Table> {
    LOCALS.with_borrow_mut(|all| {
        let number = table.number as usize;
        if all.len() <= number {
            all.resize(number + 1, None);
        }
        all[number].get_or_insert_with(|| Local::new(table.clone())).clone()
    })
}

/// An entry tracked by a connection or a request. Dropping it releases the entry.
#[derive(Debug)]
pub struct Tracked {
    table: Local<Table>,
    slot: EntrySlot,
}

impl Tracked {
    /// Returns the entry of a key, creating it if necessary. `None` if there is no room for it.
    pub fn get(table: &Arc<Table>, key: &[u8], now_ms: u64) -> Option<Self> {
        let entry = table.get(key, now_ms)?;
        let slot = entry.view.slot;
        // The new value continues to hold the entry.
        std::mem::forget(entry);
        Some(Self { table: local(table), slot })
    }

    /// Returns the entry of a key, if there is one.
    pub fn find(table: &Arc<Table>, key: &[u8], now_ms: u64) -> Option<Self> {
        let entry = table.find(key, now_ms)?;
        let slot = entry.view.slot;
        // The new value continues to hold the entry.
        std::mem::forget(entry);
        Some(Self { table: local(table), slot })
    }

    /// Returns the values of the entry.
    #[inline]
    pub fn view(&self) -> EntryValues<'_> {
        self.table.view(self.slot)
    }

    /// Returns the table of the entry.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        note_write();
        self.table.view(self.slot).row.words[head::HELD].fetch_sub(1, Release);
    }
}
