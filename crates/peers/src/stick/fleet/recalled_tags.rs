//! The tags of this process's parts that peers returned after a restart. Other members may have changed them since, so they are not
//! sent as changes of this process. Later, the owners' sums have replaced them, and they are forgotten.

use std::collections::HashMap;

use state::table::{Table, UNCHANGED};

use crate::row::EntryValue;
use crate::stick::make_room;
use crate::sums;

/// The recalled tags of a table, by key.
#[derive(Debug, Default)]
pub(super) struct RecalledTags {
    keys: HashMap<Box<[u8]>, Box<[EntryValue]>>,
    /// The indexes of the tags among the values of an entry.
    places: Vec<usize>,
    end: Option<u64>,
}

impl RecalledTags {
    /// Stores the tags of a key.
    pub(super) fn insert(&mut self, table: &Table, key: &[u8], values: &[EntryValue], now: u64) {
        if self.places.is_empty() {
            self.places = sums::tags(table).collect();
        }
        if self.places.is_empty() {
            return;
        }
        make_room(&mut self.keys, table, now);
        let tags = self.places.iter().map(|at| values.get(*at).cloned().unwrap_or(EntryValue::Absent));
        self.keys.insert(key.into(), tags.collect());
    }

    /// Sets when the tags are dropped.
    pub(super) fn end_at(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// Drops the tags after the time that was set.
    pub(super) fn expire(&mut self, now: u64) {
        if self.end.take_if(|end| now >= *end).is_some() {
            self.keys = HashMap::new();
        }
    }

    /// Replaces the tags that this process has not changed since by [`UNCHANGED`].
    pub(super) fn hide(&self, key: &[u8], values: &mut [EntryValue]) {
        let Some(tags) = self.keys.get(key) else { return };
        for (tag, at) in tags.iter().zip(&self.places) {
            if values.get(*at) == Some(tag) || sums::is_tag_unchanged(tag) && !sums::is_tag_set(&values[*at])
            {
                values[*at] = EntryValue::Number(UNCHANGED);
            }
        }
    }
}
