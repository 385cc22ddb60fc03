//! The stick tables of a `peers` section, converted for the group: rows of entries, in both directions. The plan defines the tables
//! and their names.

mod fleet;
mod recall;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fleet::FleetTables;
use state::table::{self, DataType, EntryValues, KeyType, Table, UNCHANGED};

use crate::session::features;
use crate::{DataColumn, DataKind, Definition, EntryOrigin, EntryValue, KeyKind, PeerEntry, Rate, Tables};

/// The tables of a section, in the order of their definitions.
#[derive(Debug)]
pub struct Stick {
    tables: Vec<StickTable>,
    /// For each table, the last values that the predecessor sent for its entries.
    before: Vec<HashMap<Box<[u8]>, StickValues>>,
    /// For each table that is this process's part of a sum, the values that peers have sent for an earlier process. Empty after
    /// the entries of the other peers have arrived.
    recalled: Vec<HashMap<Box<[u8]>, StickValues>>,
    /// Whether the entries of the other peers have arrived.
    is_synchronized: bool,
    /// The tables with owners of keys.
    fleet: FleetTables,
    /// Memory for the entry being sent.
    key: Vec<u8>,
    values: Vec<EntryValue>,
}

/// The part of a table that has a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableRole {
    /// The whole table, with the values that were written last.
    Whole,
    /// The counts of this process, in a table that adds up the parts of all members.
    Own,
    /// The counts of another member, in a table that adds up the parts of all members.
    Part {
        slot: usize,
        peer: usize,
    },
    /// With owners: the counts of this process, those of the session's peer, and sums.
    OwnerPart(usize),
    PeerPart(usize),
    OwnerSums(usize),
}

impl TableRole {
    /// Whether the definition has the counts of this process.
    fn is_own(self) -> bool {
        matches!(self, TableRole::Own | TableRole::OwnerPart(_))
    }
}

/// A definition's table.
#[derive(Debug)]
struct StickTable {
    table: Arc<Table>,
    /// The name of the table among peers, without the name of a member.
    name: Box<str>,
    role: TableRole,
    /// The last change of this process's part that may be sent.
    released: u64,
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

    /// Returns the later of these values and those that another peer has sent for the same counts. A peer that was not connected
    /// has earlier ones.
    fn with(&self, table: &Table, received: &[EntryValue], now: u64) -> Vec<EntryValue> {
        let since = u32::try_from(now.saturating_sub(self.at)).unwrap_or(u32::MAX);
        let columns = table.columns().flat_map(|column| (0..column.count).map(move |_| column));
        let pairs = self.values.iter().zip(received).zip(columns);
        pairs
            .map(|((own, other), column)| match (own, other) {
                (EntryValue::Number(own), EntryValue::Number(other)) if column.data.is_summed() => {
                    EntryValue::Number(*own.max(other))
                }
                (EntryValue::Rate(own), EntryValue::Rate(other)) => {
                    let own = Rate { age: own.age.saturating_add(since), ..*own };
                    let is_later = own.events(column.period_ms) > other.events(column.period_ms);
                    EntryValue::Rate(if is_later { own } else { *other })
                }
                (_, EntryValue::Number(UNCHANGED..)) if !column.data.is_summed() => own.clone(),
                _ => other.clone(),
            })
            .collect()
    }
}

/// Returns the name among peers of a table, or of the part of a member.
fn part_name(table: &str, member: Option<&str>) -> String {
    member.map_or_else(|| table.to_owned(), |member| format!("{table}@{member}"))
}

/// Returns the definition of a table, with its `name` among peers.
fn definition(table: &Table, name: &str) -> Definition {
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
    /// Creates the adapter for these tables, which have these names among `peers`, and their definitions. A table that adds up the
    /// parts of all members has a definition for each member, named `table@member`.
    pub fn new<'a>(
        tables: impl IntoIterator<Item = (&'a Arc<Table>, &'a str)>,
        peers: &[&str],
        local: usize,
        now: u64,
    ) -> (Stick, Vec<Definition>) {
        let (mut all, mut definitions) = (Vec::new(), Vec::new());
        let mut fleet = FleetTables::new(peers, local);
        let mut add = |table: &Arc<Table>, name: &str, member: Option<&str>, role| {
            let of_peer = matches!(role, TableRole::PeerPart(_));
            definitions.push(Definition { of_peer, ..definition(table, &part_name(name, member)) });
            all.push(StickTable { table: table.clone(), name: name.into(), role, released: 0 });
        };
        for (table, name) in tables {
            let Some(aggregate) = table.aggregate() else {
                add(table, name, None, TableRole::Whole);
                continue;
            };
            if aggregate.has_owners() {
                (0..aggregate.members.len()).for_each(|member| {
                    table.note_presence(member, false, now);
                });
                let at = fleet.add(table, name, peers);
                add(table, name, Some(peers[local]), TableRole::OwnerPart(at));
                add(table, name, None, TableRole::PeerPart(at));
                add(table, name, Some(""), TableRole::OwnerSums(at));
                continue;
            }
            add(table, name, Some(peers[local]), TableRole::Own);
            for (slot, member) in aggregate.members.iter().enumerate() {
                if let Some(peer) = peers.iter().position(|peer| **peer == **member) {
                    table.note_presence(slot, false, now);
                    add(table, name, Some(member), TableRole::Part { slot, peer });
                }
            }
        }
        let stick = Stick {
            before: all.iter().map(|_| HashMap::new()).collect(),
            recalled: all.iter().map(|_| HashMap::new()).collect(),
            is_synchronized: false,
            tables: all,
            fleet,
            key: Vec::new(),
            values: Vec::new(),
        };
        (stick, definitions)
    }

    /// Returns the names of the tables in this process, in the order of their definitions. For a part, the name of the member
    /// follows the name of the table.
    pub fn names(&self, local: &str) -> impl Iterator<Item = String> {
        self.tables.iter().map(move |own| {
            let name = own.table.name();
            match own.role {
                TableRole::Whole => name.to_owned(),
                TableRole::Own | TableRole::OwnerPart(_) => format!("{name}@{local}"),
                TableRole::PeerPart(_) => format!("{name}@<peer>"),
                TableRole::OwnerSums(_) => format!("{name}@"),
                TableRole::Part { slot, .. } => {
                    let members = own.table.aggregate().map_or(&[][..], |aggregate| &aggregate.members);
                    format!("{name}@{}", members.get(slot).map_or("", |member| member))
                }
            }
        })
    }

    /// Returns the number of definitions.
    pub fn count(&self) -> usize {
        self.tables.len()
    }

    /// Whether a table sends its changes to all peers.
    fn has_whole(&self) -> bool {
        self.tables.iter().any(|own| matches!(own.role, TableRole::Whole | TableRole::Own))
    }

    /// Returns the features of this process that peers must know about for these tables.
    pub fn features(&self) -> u64 {
        let has = |of: fn(TableRole) -> bool| self.tables.iter().any(|own| of(own.role));
        let has_owners = has(|role| matches!(role, TableRole::OwnerPart(_)));
        let returns = if has(TableRole::is_own) { features::RETURNS_PARTS } else { 0 };
        returns | if has_owners { features::OWNERS } else { 0 }
    }

    /// Returns the definition with the part of this process in a table that adds up the parts of all members.
    pub fn own_part(&self, table: &Arc<Table>) -> Option<usize> {
        self.tables.iter().position(|own| own.role.is_own() && Arc::ptr_eq(&own.table, table))
    }

    /// Returns the slot of a peer's parts in an aggregate table.
    fn slot(&self, table: usize, peer: usize) -> Option<usize> {
        let own = self.tables.get(table)?;
        match own.role {
            TableRole::Whole => return None,
            TableRole::Part { slot, peer: member } if member == peer => return Some(slot),
            TableRole::OwnerPart(at) | TableRole::PeerPart(at) | TableRole::OwnerSums(at) => {
                return self.fleet.number(at, peer).filter(|number| *number < own.table.own_number());
            }
            TableRole::Own | TableRole::Part { .. } => {}
        }
        self.tables.iter().find_map(|part| match part.role {
            TableRole::Part { slot, peer: member }
                if member == peer && Arc::ptr_eq(&part.table, &own.table) =>
            {
                Some(slot)
            }
            _ => None,
        })
    }

    /// Returns the state of an aggregate table and a peer as text for `show peers`. Only the definition of this process's part has
    /// such a text.
    pub fn note(&self, table: usize, peer: usize) -> String {
        let own = &self.tables[table];
        let slot = self.slot(table, peer).filter(|_| own.role.is_own());
        let member = slot.and_then(|slot| own.table.member(slot));
        let (Some(member), Some(aggregate)) = (member, own.table.aggregate()) else { return String::new() };
        let mut text = format!(
            "aggregate every={}ms lag={}ms bytes_sent={} bytes_received={} dropped={}",
            aggregate.every_ms,
            member.delay_ms,
            member.sent,
            member.received,
            u8::from(member.is_dropped)
        );
        if let TableRole::OwnerPart(at) = own.role {
            let (share, keys) = (member.owner_share, self.fleet.keys(at));
            let mode = if self.fleet.sends_sums_to(peer) { "owners" } else { "direct" };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                " mode={mode} owner_share={}.{}% keys_owned_here={keys}",
                share / 10,
                share % 10
            );
        }
        text
    }
}

/// Makes room for the values of another key. A full table evicts entries, so the sender could name any number of keys: those without
/// an entry are dropped once there are twice as many as the table may have.
fn make_room<V>(known: &mut HashMap<Box<[u8]>, V>, table: &Table, now: u64) {
    if known.len() >= (table.settings.size as usize).saturating_mul(2) {
        known.retain(|key, _| table.find(key, now).is_some());
    }
}

/// Records the values that were applied to an entry.
fn remember(known: &mut HashMap<Box<[u8]>, StickValues>, table: &Table, row: &PeerEntry<'_>, now: u64) {
    make_room(known, table, now);
    known.insert(row.key.into(), StickValues { at: now, values: row.values.into() });
}

/// Passes an entry to `take` as a row, which borrows the buffers.
fn row<R>(
    entry: &EntryValues<'_>,
    role: TableRole,
    now: u64,
    (key, values): (&mut Vec<u8>, &mut Vec<EntryValue>),
    take: impl FnOnce(&PeerEntry<'_>) -> R,
) -> R {
    key.clear();
    entry.key(key);
    append_values(entry, role, now, values);
    take(&PeerEntry { key, expire: Some(entry.expires_in(now)), values })
}

/// Replaces the content of `values` with the values of an entry.
fn append_values(entry: &EntryValues<'_>, role: TableRole, now: u64, values: &mut Vec<EntryValue>) {
    values.clear();
    let mut add = |value: table::TableValue<'_>| {
        values.push(match value {
            table::TableValue::Absent => EntryValue::Absent,
            table::TableValue::Number(number) => EntryValue::Number(number),
            table::TableValue::Rate(age, current, previous) => {
                EntryValue::Rate(Rate { age, current, previous })
            }
            // Shared, not copied.
            table::TableValue::Text(_) if !matches!(role, TableRole::Part { .. }) => {
                EntryValue::Name(entry.server_key().cloned().map(Arc::<[u8]>::from))
            }
            table::TableValue::Text(text) => EntryValue::Name(text.map(|text| text.as_bytes().into())),
        });
    };
    match role {
        TableRole::Part { slot, .. } => entry.part_values(slot, now).for_each(&mut add),
        _ => entry.values(now).for_each(&mut add),
    }
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
    fn latest(&self, table: usize, peer: Option<usize>) -> u64 {
        let own = &self.tables[table];
        match own.role {
            TableRole::Whole => own.table.last_change(),
            TableRole::Own => own.released,
            TableRole::Part { .. } | TableRole::PeerPart(_) => 0,
            TableRole::OwnerPart(at) => self.fleet.latest_part(at, peer, own.released),
            TableRole::OwnerSums(at) => self.fleet.latest_sum(at, peer),
        }
    }

    fn changed(
        &mut self,
        table: usize,
        after: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    ) {
        let Stick { tables, fleet, key, values, .. } = self;
        let own = &tables[table];
        match own.role {
            TableRole::Part { .. } | TableRole::PeerPart(_) => {}
            TableRole::OwnerSums(at) => fleet.changed_sums(at, after, peer, now, take),
            TableRole::Whole | TableRole::Own => own.table.changes(after, now, |number, entry| {
                row(entry, own.role, now, (key, values), |row| take(number, row))
            }),
            TableRole::OwnerPart(at) => own.table.changes(after, now, |number, entry| {
                if number > own.released {
                    return false;
                }
                let buffers = (&mut *key, &mut *values);
                fleet.own_part(at, entry, peer, now, buffers, &mut |row| take(number, row))
            }),
        }
    }

    fn walk(
        &mut self,
        table: usize,
        cursor: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64> {
        let Stick { tables, fleet, key, values, is_synchronized, .. } = self;
        let own = &tables[table];
        if own.role.is_own() && !*is_synchronized {
            // A peer would send it back, as the part of an earlier process. It is sent as changes later.
            return None;
        }
        let mut take_entry =
            |entry: &EntryValues<'_>| row(entry, own.role, now, (&mut *key, &mut *values), &mut *take);
        let next = match own.role {
            TableRole::Whole | TableRole::Own => own.table.walk(cursor.into(), now, &mut take_entry),
            TableRole::Part { slot, .. } => own.table.walk_parts(slot, cursor.into(), now, &mut take_entry),
            TableRole::OwnerSums(at) => return fleet.walk_sums(at, cursor, peer, now, take),
            TableRole::PeerPart(at) => return fleet.walk_parts(at, cursor, peer, now, take),
            TableRole::OwnerPart(at) => own.table.walk(cursor.into(), now, |entry| {
                fleet.own_part(at, entry, peer, now, (&mut *key, &mut *values), &mut *take)
            }),
        };
        next.map(u64::from)
    }

    // A resync may contain older data than an entry has. The remaining lifetime reveals this.
    fn learn(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64) {
        let told_now = |at: usize| row.values.get(at).map_or(table::TableValue::Absent, to_table_value);
        match self.tables[table].role {
            TableRole::Whole => {}
            TableRole::Own | TableRole::OwnerPart(_) => return self.recall(table, row, origin, now),
            TableRole::PeerPart(at) => {
                if let EntryOrigin::Remote { peer, resync } = origin {
                    self.fleet.learn_part(at, (peer, resync), row, now);
                }
                return;
            }
            TableRole::OwnerSums(at) => {
                if let EntryOrigin::Remote { peer, .. } = origin {
                    self.fleet.learn_sum(at, peer, row, now);
                }
                return;
            }
            TableRole::Part { .. } if origin == EntryOrigin::Successor => return,
            TableRole::Part { slot, peer: member } => {
                let (is_own, is_change) = match origin {
                    EntryOrigin::Remote { peer, resync } => (peer == member, !resync),
                    _ => (false, false),
                };
                let entry = (row.key, row.expire);
                self.tables[table].table.learn_part(slot, entry, (is_own, is_change), now, told_now);
                return;
            }
        }
        let told_again = match origin {
            EntryOrigin::Successor => return,
            EntryOrigin::Predecessor => {
                let known = self.before[table].get(row.key);
                let known = |at| known.map_or(table::TableValue::Absent, |known| known.value(at, now));
                if self.tables[table].table.learn_from_predecessor(row.key, row.expire, now, told_now, known)
                {
                    remember(&mut self.before[table], &self.tables[table].table, row, now);
                }
                return;
            }
            EntryOrigin::Local => true,
            EntryOrigin::Remote { resync, .. } => resync,
        };
        self.tables[table].table.learn(row.key, row.expire, told_again, now, told_now);
    }

    fn forget_predecessor(&mut self) {
        for (known, recalled) in self.before.iter_mut().zip(&mut self.recalled) {
            let known = std::mem::take(known);
            // Another peer may still send the same counts.
            if !self.is_synchronized {
                recalled.extend(known);
            }
        }
    }

    fn is_part_of(&self, table: usize, peer: usize) -> bool {
        match self.tables[table].role {
            TableRole::Part { peer: member, .. } => member == peer,
            role => matches!(role, TableRole::PeerPart(_)),
        }
    }

    fn is_synchronized(&mut self, now: u64) {
        if !std::mem::replace(&mut self.is_synchronized, true) {
            self.recalled.iter_mut().for_each(|known| *known = HashMap::new());
            self.fleet.is_synchronized(now);
            self.release(None, now);
        }
    }

    fn release(&mut self, table: Option<usize>, now: u64) {
        if !self.is_synchronized {
            return;
        }
        for (place, own) in self.tables.iter_mut().enumerate() {
            if own.role.is_own() && table.is_none_or(|table| table == place) {
                own.released = own.table.last_change();
            }
            if let TableRole::OwnerPart(at) = own.role
                && table.is_none_or(|table| table == place)
            {
                self.fleet.route(at, own.released, now);
            }
        }
    }

    fn note_delay(&mut self, table: usize, peer: usize, delay: u64) {
        if let Some(slot) = self.slot(table, peer) {
            self.tables[table].table.note_delay(slot, u32::try_from(delay).unwrap_or(u32::MAX));
        }
    }

    fn note_traffic(&mut self, table: usize, peer: usize, bytes: usize, is_sent: bool) {
        let (sent, received) = if is_sent { (bytes as u64, 0) } else { (0, bytes as u64) };
        if let Some(slot) = self.slot(table, peer) {
            self.tables[table].table.note_traffic(slot, sent, received);
        }
    }

    fn note_presence(&mut self, peer: usize, is_present: bool, now: u64) -> bool {
        let mut is_wanted = false;
        for own in &self.tables {
            if let TableRole::Part { slot, peer: member } = own.role
                && member == peer
            {
                is_wanted |= own.table.note_presence(slot, is_present, now);
            }
            if let TableRole::OwnerPart(at) = own.role
                && let Some(number) = self.fleet.number(at, peer).filter(|at| *at < own.table.own_number())
            {
                is_wanted |= own.table.note_presence(number, is_present, now);
            }
        }
        self.fleet.note_presence(peer, is_present, now);
        is_wanted
    }

    fn rename(&mut self, peer: usize, name: &str, now: u64) -> Vec<(usize, Box<[u8]>)> {
        self.fleet.rename(peer, name, now);
        let mut renamed = Vec::new();
        for (at, own) in self.tables.iter().enumerate() {
            if let TableRole::Part { slot, peer: member } = own.role
                && member == peer
            {
                own.table.drop_member(slot);
                renamed.push((at, part_name(&own.name, Some(name)).into_bytes().into()));
            }
        }
        renamed
    }

    fn note_program(&mut self, peer: usize, bits: u64, now: u64) {
        self.fleet.note_program(peer, bits & features::OWNERS != 0, now);
    }

    fn is_timed(&self, table: usize, peer: Option<usize>) -> bool {
        let is_of_owners =
            matches!(self.tables[table].role, TableRole::OwnerPart(_) | TableRole::OwnerSums(_));
        is_of_owners && peer.is_some_and(|peer| self.fleet.sends_sums_to(peer))
    }

    fn next(&self) -> Option<u64> {
        self.fleet.next()
    }

    fn tick(&mut self, now: u64) -> bool {
        self.fleet.tick(now)
    }

    fn take_due(&mut self, peer: usize) -> bool {
        self.has_whole() || self.fleet.take_due(peer)
    }
}

#[cfg(test)]
mod tests;
