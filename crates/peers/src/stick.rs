//! The stick tables of a `peers` section, converted for the group: rows of entries, in both directions. The plan defines the tables
//! and their names.

use std::collections::HashMap;
use std::sync::Arc;

use state::table::{self, DataType, EntryValues, KeyType, Table};

use crate::{DataColumn, DataKind, Definition, EntryOrigin, EntryValue, KeyKind, PeerEntry, Rate, Tables};

/// The tables of a section, in the order of their definitions.
#[derive(Debug)]
pub struct Stick {
    tables: Vec<Arc<Table>>,
    /// For each table, the last values that the predecessor sent for its entries.
    before: Vec<HashMap<Box<[u8]>, StickValues>>,
    /// Memory for the entry being sent.
    key: Vec<u8>,
    values: Vec<EntryValue>,
}

/// The values of an entry as a peer sent them.
#[derive(Debug)]
struct StickValues {
    /// In milliseconds.
    at: u64,
    values: Box<[EntryValue]>,
}

impl StickValues {
    /// Returns a value with its current age.
    fn value(&self, at: usize, now: u64) -> table::TableValue<'_> {
        let since = u32::try_from(now.saturating_sub(self.at)).unwrap_or(u32::MAX);
        match self.values.get(at) {
            Some(EntryValue::Rate(rate)) => {
                table::TableValue::Rate(rate.age.saturating_add(since), rate.current, rate.previous)
            }
            Some(value) => to_table_value(value),
            None => table::TableValue::Absent,
        }
    }
}

/// Returns the definition of a table, with its `name` among peers.
pub fn definition(table: &Table, name: &str) -> Definition {
    let key = match table.settings.kind {
        KeyType::Ip4 => KeyKind::Ipv4,
        KeyType::Ip6 => KeyKind::Ipv6,
        KeyType::Int => KeyKind::Integer,
        KeyType::Str => KeyKind::String,
        KeyType::Bin => KeyKind::Binary,
    };
    let columns = table.columns().map(|column| DataColumn {
        kind: kind(column.data),
        count: column.count,
        period: column.period_ms,
    });
    let settings = &table.settings;
    Definition::new(name.as_bytes(), key, settings.key_length, settings.expire_ms, columns.collect())
}

/// Both types use the protocol's numbers.
fn kind(data: DataType) -> DataKind {
    DataKind::all().nth(data as usize).unwrap_or(DataKind::ServerId)
}

impl Stick {
    /// Creates the adapter for these tables.
    pub fn new(tables: Vec<Arc<Table>>) -> Stick {
        Stick {
            before: tables.iter().map(|_| HashMap::new()).collect(),
            tables,
            key: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Returns the tables.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }
}

/// Passes an entry to `take` as a row, which borrows the buffers.
fn row<R>(
    entry: &EntryValues<'_>,
    now: u64,
    key: &mut Vec<u8>,
    values: &mut Vec<EntryValue>,
    take: impl FnOnce(&PeerEntry<'_>) -> R,
) -> R {
    key.clear();
    entry.key(key);
    values.clear();
    entry.values(now).for_each(|value| {
        values.push(match value {
            table::TableValue::Absent => EntryValue::Absent,
            table::TableValue::Number(number) => EntryValue::Number(number),
            table::TableValue::Rate(age, current, previous) => {
                EntryValue::Rate(Rate { age, current, previous })
            }
            // Shared, not copied.
            table::TableValue::Text(_) => {
                EntryValue::Name(entry.server_key().cloned().map(Arc::<[u8]>::from))
            }
        });
    });
    take(&PeerEntry { key, expire: Some(entry.expires_in(now)), values })
}

/// Converts a peer's value.
fn to_table_value(value: &EntryValue) -> table::TableValue<'_> {
    match value {
        EntryValue::Absent => table::TableValue::Absent,
        EntryValue::Number(number) => table::TableValue::Number(*number),
        EntryValue::Rate(rate) => table::TableValue::Rate(rate.age, rate.current, rate.previous),
        EntryValue::Name(name) => {
            table::TableValue::Text(name.as_deref().and_then(|name| std::str::from_utf8(name).ok()))
        }
    }
}

impl Tables for Stick {
    fn latest(&self, table: usize) -> u64 {
        self.tables[table].last_change()
    }

    fn changed(
        &mut self,
        table: usize,
        after: u64,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    ) {
        let Stick { tables, key, values, .. } = self;
        tables[table]
            .changes(after, now, |number, entry| row(entry, now, key, values, |row| take(number, row)));
    }

    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64> {
        let Stick { tables, key, values, .. } = self;
        let next = tables[table].walk(cursor.into(), now, |entry| row(entry, now, key, values, &mut *take));
        next.map(u64::from)
    }

    // A resync may contain older data than an entry has. The remaining lifetime reveals this.
    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64) {
        let told_now = |at: usize| row.values.get(at).map_or(table::TableValue::Absent, to_table_value);
        let told_again = match origin {
            EntryOrigin::Successor => return,
            EntryOrigin::Predecessor => {
                let known = self.before[table].get(row.key);
                let known = |at| known.map_or(table::TableValue::Absent, |known| known.value(at, now));
                if self.tables[table].learn_from_predecessor(row.key, row.expire, now, told_now, known) {
                    self.before[table]
                        .insert(row.key.into(), StickValues { at: now, values: row.values.into() });
                }
                return;
            }
            EntryOrigin::Local => true,
            EntryOrigin::Remote { resync, .. } => resync,
        };
        self.tables[table].learn(row.key, row.expire, told_again, now, told_now);
    }

    fn forget_predecessor(&mut self) {
        self.before.iter_mut().for_each(|known| *known = HashMap::new());
    }
}
