//! The stick tables of a `peers` section, as the group wants them: rows of entries, in both
//! directions. Which tables, and under which names, the plan says.

use std::collections::HashMap;
use std::sync::Arc;

use state::table::{self, Data, KeyType, Table, View};

use crate::{Column, Definition, KeyKind, Kind, Origin, Rate, Row, Tables, Value};

/// The tables of a section, in the order of their definitions.
#[derive(Debug)]
pub struct Stick {
    tables: Vec<Arc<Table>>,
    /// For each table, the last values that the predecessor sent for its entries.
    before: Vec<HashMap<Box<[u8]>, Told>>,
    /// Memory for the entry that is told.
    key: Vec<u8>,
    values: Vec<Value>,
}

/// The values of an entry as a peer sent them.
#[derive(Debug)]
struct Told {
    /// In milliseconds.
    at: u64,
    values: Box<[Value]>,
}

impl Told {
    /// A value, with the age that it has by now.
    fn value(&self, at: usize, now: u64) -> table::Value<'_> {
        let since = u32::try_from(now.saturating_sub(self.at)).unwrap_or(u32::MAX);
        match self.values.get(at) {
            Some(Value::Rate(rate)) => {
                table::Value::Rate(rate.age.saturating_add(since), rate.current, rate.previous)
            }
            Some(value) => told(value),
            None => table::Value::Absent,
        }
    }
}

/// What a table is to peers, who know it by `name`.
pub fn definition(table: &Table, name: &str) -> Definition {
    let key = match table.settings.kind {
        KeyType::Ip4 => KeyKind::Ipv4,
        KeyType::Ip6 => KeyKind::Ipv6,
        KeyType::Int => KeyKind::Integer,
        KeyType::Str => KeyKind::String,
        KeyType::Bin => KeyKind::Binary,
    };
    let columns = table.columns().map(|column| Column {
        kind: kind(column.data),
        count: column.count,
        period: column.period_ms,
    });
    let settings = &table.settings;
    Definition::new(name.as_bytes(), key, settings.key_length, settings.expire_ms, columns.collect())
}

/// Both have the numbers of the protocol.
fn kind(data: Data) -> Kind {
    Kind::all().nth(data as usize).unwrap_or(Kind::ServerId)
}

impl Stick {
    /// These tables.
    pub fn new(tables: Vec<Arc<Table>>) -> Stick {
        Stick {
            before: tables.iter().map(|_| HashMap::new()).collect(),
            tables,
            key: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Which they are.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }
}

/// Passes an entry to `take` as a row, which borrows the buffers.
fn row<R>(
    entry: &View<'_>,
    now: u64,
    key: &mut Vec<u8>,
    values: &mut Vec<Value>,
    take: impl FnOnce(&Row<'_>) -> R,
) -> R {
    key.clear();
    entry.key(key);
    values.clear();
    entry.values(now).for_each(|value| {
        values.push(match value {
            table::Value::Absent => Value::Absent,
            table::Value::Number(number) => Value::Number(number),
            table::Value::Rate(age, current, previous) => Value::Rate(Rate { age, current, previous }),
            // Shared, not copied.
            table::Value::Text(_) => Value::Name(entry.server_key().cloned().map(Arc::<[u8]>::from)),
        });
    });
    take(&Row { key, expire: Some(entry.expires_in(now)), values })
}

/// A value that a peer tells.
fn told(value: &Value) -> table::Value<'_> {
    match value {
        Value::Absent => table::Value::Absent,
        Value::Number(number) => table::Value::Number(*number),
        Value::Rate(rate) => table::Value::Rate(rate.age, rate.current, rate.previous),
        Value::Name(name) => {
            table::Value::Text(name.as_deref().and_then(|name| std::str::from_utf8(name).ok()))
        }
    }
}

impl Tables for Stick {
    fn latest(&self, table: usize) -> u64 {
        self.tables[table].last_change()
    }

    fn changed(&mut self, table: usize, after: u64, now: u64, take: &mut dyn FnMut(u64, &Row<'_>) -> bool) {
        let Stick { tables, key, values, .. } = self;
        tables[table]
            .changes(after, now, |number, entry| row(entry, now, key, values, |row| take(number, row)));
    }

    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        now: u64,
        take: &mut dyn FnMut(&Row<'_>) -> bool,
    ) -> Option<u64> {
        let Stick { tables, key, values, .. } = self;
        let next = tables[table].walk(cursor.into(), now, |entry| row(entry, now, key, values, &mut *take));
        next.map(u64::from)
    }

    // A resync may tell what is older than what an entry has: how long an entry still lives says so.
    fn learn(&mut self, table: usize, row: &Row<'_>, origin: Origin, now: u64) {
        let told_now = |at: usize| row.values.get(at).map_or(table::Value::Absent, told);
        let told_again = match origin {
            Origin::Successor => return,
            Origin::Predecessor => {
                let known = self.before[table].get(row.key);
                let known = |at| known.map_or(table::Value::Absent, |known| known.value(at, now));
                if self.tables[table].learn_from_predecessor(row.key, row.expire, now, told_now, known) {
                    self.before[table].insert(row.key.into(), Told { at: now, values: row.values.into() });
                }
                return;
            }
            Origin::Local => true,
            Origin::Remote { resync, .. } => resync,
        };
        self.tables[table].learn(row.key, row.expire, told_again, now, told_now);
    }

    fn forget_predecessor(&mut self) {
        self.before.iter_mut().for_each(|known| *known = HashMap::new());
    }
}
