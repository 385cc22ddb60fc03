//! Aggregate tables of groups in which each key has owners (`owners`): which parts go to which member, and the sums that this
//! process sends as an owner.
//!
//! Such a table has three definitions. Under `table@member`, a member sends its part to the owners of each key, and to members that
//! do not know owners. Under `table@`, an owner sends the sums to all members that know owners. A message about a key goes at most
//! once per half of the interval, so a count reaches all members within the interval and two latencies.

mod moves;
mod recalled_tags;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use moves::Moves;
use recalled_tags::RecalledTags;
use state::table::{self, EntryValues, Table};

use super::{TableRole, append_values, to_table_value};
use crate::owners::{self, OwnerPair, Owners};
use crate::row::{EntryValue, PeerEntry};
use crate::session::TIMEOUT;
use crate::sums::{self, Sums};

/// How long a member that is gone remains an owner, in milliseconds. The other owner has the same sums.
const GRACE: u64 = 2_000;

/// How often the parts of members that are gone are dropped, in milliseconds.
const CHECK: u64 = 1_000;

/// How long it takes until all members have noticed that another is gone or present, at most, in milliseconds.
const ALL_NOTICED: u64 = TIMEOUT + 1_000;

/// How many records are checked in one such step.
const SWEPT: usize = 256;

/// The bit that distinguishes the positions of parts that were received directly.
const OF_DIRECT: u64 = 1 << 40;

/// How a member exchanges counts with this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberMode {
    Unknown,
    /// The member sends its part of each key, and gets the part of this process.
    Direct,
    /// It sends its part of each key to the owners, and sends sums of the keys that it owns.
    Owner,
}

/// The members, and the tables that they share.
#[derive(Debug)]
pub(super) struct FleetTables {
    owners: Owners,
    local: usize,
    modes: Vec<MemberMode>,
    /// Members that are gone, and until when they remain owners.
    leaving: Vec<(usize, u64)>,
    /// The members for which there is something to send.
    due: Vec<bool>,
    checked: u64,
    tables: Vec<FleetTable>,
}

/// A table with owners.
#[derive(Debug)]
struct FleetTable {
    table: Arc<Table>,
    name: Box<[u8]>,
    /// The number of each peer among the members of the table.
    numbers: Vec<usize>,
    /// For each peer, the number of the last change of this process that concerns it.
    concerns: Vec<u64>,
    routed: u64,
    /// The parts of keys that this process owns, and those that were received directly.
    owned: Sums,
    direct: Sums,
    /// The last change number of `owned` that may be sent.
    released: u64,
    /// The last change numbers of `owned` and `direct` that were added to the table.
    applied: [u64; 2],
    released_at: u64,
    release_due: Option<u64>,
    /// The interval of sending in each direction.
    every: u64,
    generations: Vec<u32>,
    moves: Moves,
    recalled: RecalledTags,
    key: Vec<u8>,
    values: Vec<EntryValue>,
}

impl FleetTables {
    pub(super) fn new(names: &[&str], local: usize) -> FleetTables {
        FleetTables {
            owners: Owners::new(names.iter().copied(), local),
            local,
            modes: vec![MemberMode::Unknown; names.len()],
            leaving: Vec::new(),
            due: vec![true; names.len()],
            checked: 0,
            tables: Vec::new(),
        }
    }

    /// Adds a table with this name among the peers.
    pub(super) fn add(&mut self, table: &Arc<Table>, name: &str, peers: &[&str]) -> usize {
        let members = table.aggregate().map_or(&[][..], |aggregate| &aggregate.members);
        let known: HashMap<&str, usize> =
            members.iter().enumerate().map(|(number, member)| (&**member, number)).collect();
        let number = |peer: &&str| known.get(*peer).copied().unwrap_or_else(|| table.own_number());
        let every = table.aggregate().map_or(1, |aggregate| u64::from(aggregate.every_ms).div_ceil(2));
        self.tables.push(FleetTable {
            table: table.clone(),
            name: name.as_bytes().into(),
            numbers: peers.iter().map(number).collect(),
            concerns: vec![0; peers.len()],
            routed: 0,
            owned: Sums::default(),
            direct: Sums::default(),
            released: 0,
            applied: [0; 2],
            released_at: 0,
            release_due: None,
            every,
            generations: (0..=members.len()).map(|member| table.generation(member)).collect(),
            moves: Moves::default(),
            recalled: RecalledTags::default(),
            key: Vec::new(),
            values: Vec::new(),
        });
        self.tables.len() - 1
    }

    /// Returns the number of a peer among the members of a table.
    pub(super) fn number(&self, at: usize, peer: usize) -> Option<usize> {
        self.tables[at].numbers.get(peer).copied()
    }

    /// Returns the number of keys for which this process keeps the parts.
    pub(super) fn keys(&self, at: usize) -> usize {
        self.tables[at].owned.len()
    }

    /// Whether there is something to send to a peer, since the last call.
    pub(super) fn take_due(&mut self, peer: usize) -> bool {
        self.due.get_mut(peer).is_none_or(std::mem::take)
    }

    pub(super) fn sends_sums_to(&self, peer: usize) -> bool {
        self.modes.get(peer) == Some(&MemberMode::Owner)
    }

    /// Returns the number of the last change of this process's part that a peer needs; `released` is the last that may be sent.
    pub(super) fn latest_part(&self, at: usize, peer: Option<usize>, released: u64) -> u64 {
        let Some(peer) = peer.filter(|peer| *peer != self.local) else { return released };
        match self.modes[peer] {
            MemberMode::Unknown => 0,
            MemberMode::Direct => released,
            MemberMode::Owner => self.tables[at].concerns[peer].min(released),
        }
    }

    /// Passes this process's part of a key to `take`, if the peer needs it. Returns whether to continue.
    pub(super) fn own_part(
        &mut self,
        at: usize,
        entry: &EntryValues<'_>,
        peer: Option<usize>,
        now: u64,
        (key, values): (&mut Vec<u8>, &mut Vec<EntryValue>),
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> bool {
        key.clear();
        entry.key(key);
        if !self.is_for(at, key, peer) {
            return true;
        }
        append_values(entry, TableRole::OwnerPart(at), now, values);
        if peer.is_some_and(|peer| self.sends_sums_to(peer)) {
            self.tables[at].recalled.hide(key, values);
        }
        take(&PeerEntry { key, expire: Some(entry.expires_in(now)), values })
    }

    /// Whether a peer gets this process's part of a key.
    fn is_for(&mut self, at: usize, key: &[u8], peer: Option<usize>) -> bool {
        let Some(peer) = peer.filter(|peer| *peer != self.local) else { return true };
        match self.modes[peer] {
            MemberMode::Unknown => false,
            MemberMode::Direct => true,
            MemberMode::Owner => {
                self.owners.keepers(owners::place(&self.tables[at].name, key)).contains(&Some(peer))
            }
        }
    }

    pub(super) fn latest_sum(&self, at: usize, peer: Option<usize>) -> u64 {
        if peer.is_some_and(|peer| self.sends_sums_to(peer)) { self.tables[at].released } else { 0 }
    }

    /// Calls `take` with the sums that changed after `after`, without the part of a peer.
    pub(super) fn changed_sums(
        &mut self,
        at: usize,
        after: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(u64, &PeerEntry<'_>) -> bool,
    ) {
        let Some(peer) = peer.filter(|peer| self.sends_sums_to(*peer)) else { return };
        let FleetTables { owners, local, tables, .. } = self;
        let FleetTable { table, numbers, owned, released, .. } = &mut tables[at];
        let is_owner = |place| owners.pair(place).contains(&Some(*local));
        owned.changed(table, (after, *released), numbers[peer], (is_owner, now), |number, _, key, values| {
            take(number, &PeerEntry { key, expire: left(table, key, now), values })
        });
    }

    /// Calls `take` with all sums, like [`Tables::walk`](crate::Tables::walk).
    pub(super) fn walk_sums(
        &mut self,
        at: usize,
        cursor: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64> {
        let peer = peer.filter(|peer| self.sends_sums_to(*peer))?;
        let FleetTable { table, numbers, owned, .. } = &mut self.tables[at];
        let next = owned.walk(table, numbers[peer], cursor as usize, now, |key, values| {
            take(&PeerEntry { key, expire: left(table, key, now), values })
        });
        next.map(|next| next as u64)
    }

    /// Calls `take` with the parts of a peer that it has sent.
    pub(super) fn walk_parts(
        &self,
        at: usize,
        cursor: u64,
        peer: Option<usize>,
        now: u64,
        take: &mut dyn FnMut(&PeerEntry<'_>) -> bool,
    ) -> Option<u64> {
        let peer = peer.filter(|peer| *peer != self.local)?;
        let FleetTable { table, numbers, owned, direct, .. } = &self.tables[at];
        let mut take = |key: &[u8], values: &[EntryValue]| {
            take(&PeerEntry { key, expire: left(table, key, now), values })
        };
        // Only members with owners know values for unchanged tags.
        let tags: Vec<usize> =
            if self.sends_sums_to(peer) { sums::tags(table).collect() } else { Vec::new() };
        let member = numbers[peer];
        if cursor & OF_DIRECT == 0 {
            return match owned.walk_parts(&tags, member, cursor as usize, now, &mut take) {
                Some(next) => Some(next as u64),
                None => Some(OF_DIRECT),
            };
        }
        let next = direct.walk_parts(&tags, member, (cursor & !OF_DIRECT) as usize, now, &mut take);
        next.map(|next| next as u64 | OF_DIRECT)
    }

    /// Stores a peer's part of a key.
    pub(super) fn learn_part(
        &mut self,
        at: usize,
        (peer, resync): (usize, bool),
        row: &PeerEntry<'_>,
        now: u64,
    ) {
        let mode = self.modes[peer];
        let own = &mut self.tables[at];
        if !own.table.keep(row.key, row.expire, now) {
            return;
        }
        let member = own.numbers[peer];
        let sender = (member, own.table.generation(member));
        match mode {
            MemberMode::Unknown => {}
            MemberMode::Owner => {
                own.owned.put(&own.table, sender, (&own.name, row.key), row.values, now);
                own.schedule(now);
            }
            MemberMode::Direct => {
                let has_changed = own.direct.put(&own.table, sender, (&own.name, row.key), row.values, now);
                own.apply_direct(has_changed && !resync, now);
            }
        }
    }

    /// Records this process's part of a key as peers have returned it, before [`is_synchronized`](Self::is_synchronized).
    pub(super) fn note_recalled(&mut self, at: usize, key: &[u8], values: &[EntryValue], now: u64) {
        let own = &mut self.tables[at];
        own.recalled.insert(&own.table, key, values, now);
    }

    /// Records that all peers have returned this process's part.
    pub(super) fn is_synchronized(&mut self, now: u64) {
        self.tables.iter_mut().for_each(|own| own.recalled.end_at(now + ALL_NOTICED));
    }

    /// Stores a sum from an owner.
    pub(super) fn learn_sum(&mut self, at: usize, peer: usize, row: &PeerEntry<'_>, now: u64) {
        let own = &self.tables[at];
        let pair = self.owners.pair(owners::place(&own.name, row.key));
        let owners = own.numbers_of(pair);
        let received = |at: usize| row.values.get(at).map_or(table::TableValue::Absent, to_table_value);
        own.table.learn_sum((own.numbers[peer], owners), (row.key, row.expire), now, received);
    }

    /// Determines which peers need the changes of this process up to number `released`.
    pub(super) fn route(&mut self, at: usize, released: u64, now: u64) {
        let FleetTables { owners, local, due, modes, tables, .. } = self;
        let own = &mut tables[at];
        let (after, table) = (std::mem::replace(&mut own.routed, released), own.table.clone());
        let member = own.numbers[*local];
        let generation = table.generation(member);
        let mut has_own = false;
        table.changes(after, now, |number, entry| {
            if number > released {
                return false;
            }
            own.key.clear();
            entry.key(&mut own.key);
            for owner in owners.keepers(owners::place(&own.name, &own.key)).into_iter().flatten() {
                if owner == *local {
                    append_values(entry, TableRole::Own, now, &mut own.values);
                    own.recalled.hide(&own.key, &mut own.values);
                    let (name, sender) = ((&*own.name, &*own.key), (member, generation));
                    own.owned.put(&table, sender, name, &own.values, now);
                    has_own = true;
                } else {
                    own.concerns[owner] = number;
                    due[owner] = true;
                }
            }
            true
        });
        for (peer, mode) in modes.iter().enumerate() {
            due[peer] |= *mode == MemberMode::Direct || peer == *local;
        }
        if has_own {
            own.schedule(now);
        }
    }

    /// Records that a session with a peer was established or has ended.
    pub(super) fn note_presence(&mut self, peer: usize, is_present: bool, now: u64) {
        self.leaving.retain(|(other, _)| *other != peer);
        if !is_present && self.owners.is_present(peer) && peer != self.local {
            self.leaving.push((peer, now + GRACE));
        }
        self.due[peer] = true;
    }

    /// Records how a peer with a session exchanges counts.
    pub(super) fn note_program(&mut self, peer: usize, has_owners: bool, now: u64) {
        if peer == self.local {
            return;
        }
        let mode = if has_owners { MemberMode::Owner } else { MemberMode::Direct };
        let before = std::mem::replace(&mut self.modes[peer], mode);
        if before != MemberMode::Unknown && before != mode {
            self.tables.iter_mut().for_each(|own| own.change_mode(peer, mode, now));
            self.checked = 0;
        }
        self.leaving.retain(|(other, _)| *other != peer);
        self.owners.set_present(peer, has_owners);
        self.begin_moves(now);
        self.due[peer] = true;
    }

    /// Gives a member another name, and drops the parts of the member that had the former one.
    pub(super) fn rename(&mut self, peer: usize, name: &str, now: u64) {
        self.owners.rename(peer, name);
        self.leaving.retain(|(other, _)| *other != peer);
        self.modes[peer] = MemberMode::Unknown;
        for own in &mut self.tables {
            own.table.drop_member(own.numbers[peer]);
            own.concerns[peer] = 0;
        }
        self.checked = 0;
        self.begin_moves(now);
    }

    fn note_shares(&mut self) {
        if self.tables.is_empty() {
            return;
        }
        let shares = self.owners.shares();
        for own in &self.tables {
            for (number, share) in own.numbers.iter().zip(&shares) {
                own.table.note_share(*number, *share);
            }
        }
    }

    fn begin_moves(&mut self, now: u64) {
        let Some(moved) = self.owners.take_moved() else { return };
        for own in &mut self.tables {
            own.moves.begin(moved.clone(), now);
        }
    }

    /// Returns when to call [`tick`](Self::tick).
    pub(super) fn next(&self) -> Option<u64> {
        let tables = self.tables.iter();
        let of_tables = tables.flat_map(|own| [own.release_due, own.moves.next()]);
        let leaving = self.leaving.iter().map(|(_, at)| *at);
        let check = (!self.tables.is_empty()).then_some(self.checked + CHECK);
        of_tables.flatten().chain(leaving).chain(check).min()
    }

    /// Processes the passing of time. Returns whether there is something to send.
    pub(super) fn tick(&mut self, now: u64) -> bool {
        let gone: Vec<usize> =
            self.leaving.iter().filter(|(_, at)| now >= *at).map(|(peer, _)| *peer).collect();
        self.leaving.retain(|(_, at)| now < *at);
        for peer in gone {
            self.owners.set_present(peer, false);
        }
        self.begin_moves(now);
        let is_check = now >= self.checked + CHECK;
        if is_check {
            self.checked = now;
            self.note_shares();
        }
        let mut is_released = false;
        for own in &mut self.tables {
            if is_check {
                own.drop_gone(now);
                own.drop_unkept(&mut self.owners, self.local, now);
                own.recalled.expire(now);
            }
            own.go_on_moving(&mut self.owners, self.local, now);
            if own.release_due.is_some_and(|due| now >= due) {
                own.release_due = None;
                own.released_at = now;
                own.apply_owned(&mut self.owners, self.local, now);
                own.released = own.owned.last();
                is_released = true;
            }
        }
        if is_released {
            for (peer, mode) in self.modes.iter().enumerate() {
                self.due[peer] |= *mode == MemberMode::Owner;
            }
        }
        is_released
    }
}

impl FleetTable {
    fn numbers_of(&self, pair: OwnerPair) -> OwnerPair {
        pair.map(|owner| owner.map(|peer| self.numbers[peer]))
    }

    fn schedule(&mut self, now: u64) {
        self.release_due.get_or_insert((self.released_at + self.every).max(now));
    }

    /// Adds the sums of the keys that this process owns to its table.
    fn apply_owned(&mut self, owners: &mut Owners, local: usize, now: u64) {
        let member = self.numbers[local];
        let (after, until) = (self.applied[0], self.owned.last());
        self.applied[0] = until;
        let mut owned = std::mem::take(&mut self.owned);
        let owners = RefCell::new(owners);
        let is_owner = |place| owners.borrow_mut().pair(place).contains(&Some(local));
        owned.changed(&self.table, (after, until), member, (is_owner, now), |_, place, key, values| {
            let pair = self.numbers_of(owners.borrow_mut().pair(place));
            let received = |at: usize| values.get(at).map_or(table::TableValue::Absent, to_table_value);
            // The lifetime was extended when the part arrived.
            self.table.learn_sum((member, pair), (key, Some(0)), now, received);
            true
        });
        self.owned = owned;
    }

    /// Adds the sums of the parts that were received directly to the table.
    fn apply_direct(&mut self, is_change: bool, now: u64) {
        let (after, until) = (self.applied[1], self.direct.last());
        self.applied[1] = until;
        let table = &self.table;
        self.direct.changed(table, (after, until), usize::MAX, (|_| true, now), |_, _, key, values| {
            let received = |at: usize| values.get(at).map_or(table::TableValue::Absent, to_table_value);
            table.learn_direct(is_change, (key, Some(0)), now, received);
            true
        });
    }

    /// Drops the sums of a peer that exchanges counts in another mode now. Its parts still count until it sends them in this mode.
    /// If it was restarted, it gets them back before that.
    fn change_mode(&mut self, peer: usize, mode: MemberMode, now: u64) {
        let FleetTable { table, numbers, owned, direct, .. } = self;
        let member = numbers[peer];
        table.drop_member(member);
        let sender = (member, table.generation(member));
        match mode {
            MemberMode::Direct => owned.move_parts(sender, direct, table, now),
            MemberMode::Owner | MemberMode::Unknown => direct.move_parts(sender, owned, table, now),
        }
        self.schedule(now);
        self.apply_direct(false, now);
    }

    /// Drops the parts of members that have been gone for the lifetime of an entry.
    fn drop_gone(&mut self, now: u64) {
        let table = &self.table;
        let generations: Vec<u32> =
            (0..self.generations.len()).map(|member| table.generation(member)).collect();
        if generations != self.generations {
            self.generations = generations;
            self.owned.drop_gone(table, &self.generations);
            self.direct.drop_gone(table, &self.generations);
            self.schedule(now);
            self.apply_direct(false, now);
        }
        self.owned.sweep(&self.table, SWEPT, now);
        self.direct.sweep(&self.table, SWEPT, now);
    }

    /// Drops parts of keys that other members keep now. Parts that have arrived recently remain: the sender may have noticed earlier
    /// than this process that it keeps the key.
    fn drop_unkept(&mut self, owners: &mut Owners, local: usize, now: u64) {
        let present = self.present(owners);
        let is_kept = |place| owners.keepers(place).contains(&Some(local));
        self.owned.drop_unkept((SWEPT, now.saturating_sub(ALL_NOTICED)), is_kept, |member| present[member]);
    }

    /// Returns which members are present, by number.
    fn present(&self, owners: &Owners) -> Vec<bool> {
        let mut present = vec![false; self.generations.len()];
        for (peer, member) in self.numbers.iter().enumerate() {
            present[*member] |= owners.is_present(peer);
        }
        present
    }
}

/// Returns the remaining lifetime of an entry.
fn left(table: &Table, key: &[u8], now: u64) -> Option<u32> {
    table.find(key, now).map(|entry| entry.expires_in(now))
}
