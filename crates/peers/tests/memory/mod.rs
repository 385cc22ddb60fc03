//! A minimal table implementation: entries in a map, changes in another. For the tests of this crate.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peers::{
    DataColumn, DataKind, Definition, EntryOrigin, EntryValue, KeyKind, PeerEntry, PeersSection, Tables,
};

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) values: Vec<EntryValue>,
    /// Expiry time; `u64::MAX` for never.
    pub(crate) expires: u64,
    /// The number of the entry's last local change; 0 if it was received.
    number: u64,
    /// Whether a resync was the last to update it.
    old: bool,
}

/// One table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
    changes: BTreeMap<u64, Vec<u8>>,
    latest: u64,
    expire: u32,
    width: usize,
}

/// All tables of a section.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) tables: Vec<Table>,
    /// How many entries were learned.
    pub(crate) learned: u64,
    pub(crate) origins: HashMap<String, u64>,
    /// Whether resync data may replace newer data, as in the tables of [`peers::Stick`].
    pub(crate) overwrites: bool,
}

impl Memory {
    pub(crate) fn new(definitions: &[Definition]) -> Memory {
        let table = |definition: &Definition| Table {
            expire: definition.expire,
            width: definition.values(),
            ..Table::default()
        };
        Memory {
            tables: definitions.iter().map(table).collect(),
            learned: 0,
            origins: HashMap::new(),
            overwrites: false,
        }
    }

    /// Creates or changes an entry locally.
    pub(crate) fn set(&mut self, table: usize, key: &[u8], values: &[EntryValue], now: u64) {
        let table = &mut self.tables[table];
        table.latest += 1;
        let expires = if table.expire == 0 { u64::MAX } else { now + u64::from(table.expire) };
        let entry = Entry { values: values.to_vec(), expires, number: table.latest, old: false };
        if let Some(before) = table.entries.insert(key.to_vec(), entry) {
            table.changes.remove(&before.number);
        }
        table.changes.insert(table.latest, key.to_vec());
    }

    /// Sets an entry in a table with a single number.
    pub(crate) fn count(&mut self, table: usize, key: &[u8], number: u64, now: u64) {
        self.set(table, key, &[EntryValue::Number(number)], now);
    }

    /// Returns the number in an entry of a table with a single number.
    pub(crate) fn counted(&self, table: usize, key: &[u8]) -> Option<u64> {
        match self.tables[table].entries.get(key)?.values.first()? {
            EntryValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the contents of the tables, without expiry times.
    pub(crate) fn contents(&self) -> Vec<BTreeMap<Vec<u8>, Vec<EntryValue>>> {
        let of = |table: &Table| {
            table.entries.iter().map(|(key, entry)| (key.clone(), entry.values.clone())).collect()
        };
        self.tables.iter().map(of).collect()
    }
}

fn left(entry: &Entry, now: u64) -> Option<u32> {
    Some(entry.expires.saturating_sub(now).min(u64::from(u32::MAX)) as u32)
        .filter(|_| entry.expires != u64::MAX)
}

impl Tables for Memory {
    fn latest(&self, table: usize, _: Option<usize>) -> u64 {
        self.tables[table].latest
    }

    fn changed(
        &mut self,
        table: usize,
        after: u64,
        _: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    ) {
        let table = &self.tables[table];
        for (number, key) in table.changes.range(after + 1..) {
            let Some(entry) = table.entries.get(key) else { continue };
            let row = PeerEntry { key, expire: left(entry, now), values: &entry.values };
            if !take(*number, &row) {
                return;
            }
        }
    }

    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        _: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64> {
        for (place, (key, entry)) in self.tables[table].entries.iter().enumerate().skip(cursor as usize) {
            let row = PeerEntry { key, expire: left(entry, now), values: &entry.values };
            if !take(&row) {
                return Some(place as u64 + 1);
            }
        }
        None
    }

    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64) {
        self.learned += 1;
        *self.origins.entry(format!("{origin:?}")).or_default() += 1;
        let overwrites = self.overwrites;
        let table = &mut self.tables[table];
        let lives = row.expire.unwrap_or(table.expire);
        let expires = if table.expire == 0 { u64::MAX } else { now + u64::from(lives) };
        let width = table.width;
        let entry = table.entries.entry(row.key.to_vec()).or_insert_with(|| Entry {
            values: vec![EntryValue::Absent; width],
            expires,
            number: 0,
            old: true,
        });
        // Each key has one writer in these tests, so a writer's own data is newer than that from others.
        let resync = matches!(origin, EntryOrigin::Remote { resync: true, .. });
        if resync && !entry.old && !overwrites {
            return;
        }
        entry.old = resync;
        entry.expires = expires;
        for (own, told) in entry.values.iter_mut().zip(row.values) {
            if *told != EntryValue::Absent {
                *own = told.clone();
            }
        }
    }
}

/// Returns a table of strings with one number each.
pub(crate) fn counters(name: &str, expire: u32) -> Definition {
    let column = DataColumn { kind: DataKind::Gpc0, count: 1, period: 0 };
    Definition::new(name.as_bytes(), KeyKind::String, 31, expire, vec![column])
}

/// Returns a section with the given peers, as seen by `local`.
pub(crate) fn section(local: &str, peers: &[&str], tables: Vec<Definition>) -> Arc<PeersSection> {
    let ids = tables.iter().map(|table| table.name.clone()).collect();
    Arc::new(PeersSection {
        local: local.as_bytes().into(),
        peers: peers.iter().map(|name| name.as_bytes().into()).collect(),
        tables: tables.into(),
        ids,
        at_once: 200,
        features: 0,
    })
}
