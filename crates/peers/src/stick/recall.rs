//! The part of this process as a predecessor or a peer sends it.

use state::table::{self, UNCHANGED};

use super::{Stick, TableRole, remember, to_table_value};
use crate::{EntryOrigin, EntryValue, PeerEntry, sums};

impl Stick {
    /// Applies an entry of this process's part from a predecessor or from a peer.
    pub(super) fn recall(&mut self, table: usize, row: &PeerEntry<'_>, origin: EntryOrigin, now: u64) {
        let is_predecessor = origin == EntryOrigin::Predecessor;
        let is_late = self.is_synchronized
            || matches!(origin, EntryOrigin::Successor | EntryOrigin::Remote { resync: false, .. });
        if is_late && !is_predecessor {
            if matches!(origin, EntryOrigin::Remote { resync: true, .. }) {
                self.replace_former(table, row, now);
            }
            return;
        }
        let own = &self.tables[table].table;
        let tags: Vec<usize> = sums::tags(own).collect();
        let received = |at: usize| match row.values.get(at) {
            // The peer has never received the tag.
            Some(EntryValue::Number(UNCHANGED..)) if tags.contains(&at) => table::TableValue::Absent,
            value => value.map_or(table::TableValue::Absent, to_table_value),
        };
        let before = self.before[table].get(row.key);
        let included = if is_predecessor { before } else { self.recalled[table].get(row.key).or(before) };
        let known = |at| included.map_or(table::TableValue::Absent, |known| known.value(at, now));
        if own.learn_own_part((row.key, row.expire), now, received, known) {
            // A peer may return earlier values than those that are already included.
            let included = included.filter(|_| !is_predecessor);
            let values = included.map(|known| known.with(own, row.values, now));
            let row = PeerEntry { values: values.as_deref().unwrap_or(row.values), ..*row };
            let of_origin = if is_predecessor { &mut self.before } else { &mut self.recalled };
            remember(&mut of_origin[table], own, &row, now);
            if let TableRole::OwnerPart(at) = self.tables[table].role
                && !is_predecessor
            {
                self.fleet.note_recalled(at, row.key, row.values, now);
            }
        }
    }

    /// Ensures that a peer gets this process's part of an entry, although the process has not changed it: the peer has returned a
    /// part of an earlier process too late, and would keep it.
    fn replace_former(&self, table: usize, row: &PeerEntry<'_>, now: u64) {
        let own = &self.tables[table].table;
        if own.keep(row.key, row.expire, now)
            && let Some(entry) = own.find(row.key, now)
            && !entry.was_changed()
        {
            entry.mark_changed();
        }
    }
}
