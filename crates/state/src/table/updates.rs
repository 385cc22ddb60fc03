//! What has changed, for peers: entries get numbers in the order of their changes, and those above a
//! number are asked for. Nothing of this is there for tables without peers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::layout::head;
use super::shard::Row;
use super::{Column, Cursor, Table};

/// The number of an entry whose change has none yet.
pub(super) const PENDING: u32 = u32::MAX;

/// Whether there is anything to be told.
#[derive(Debug, Default)]
pub(super) struct Updates {
    is_pending: AtomicBool,
}

impl Updates {
    /// Notes that an entry has changed.
    #[inline]
    pub(super) fn note(&self, row: &Row<'_>) {
        if row.word(head::UPDATE) != PENDING {
            row.put(head::UPDATE, PENDING);
        }
        if !self.is_pending.load(Relaxed) {
            self.is_pending.store(true, Relaxed);
        }
    }
}

/// An entry as peers tell each other of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Its key: an address in network order, a number, text, or bytes.
    pub key: Vec<u8>,
    /// How long it still lives, in milliseconds.
    pub expire_ms: u32,
    /// What it holds, an element after the other.
    pub values: Vec<(Column, Vec<Value>)>,
}

/// One element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// How long ago its period began, its events, those of the period before.
    Rate(u32, u32, u32),
    /// A text of the dictionary; `None` for none.
    Text(Option<std::sync::Arc<str>>),
}

impl Table {
    /// Whether something has changed since this was last asked.
    pub fn take_changed(&self) -> bool {
        self.updates.as_ref().is_some_and(|updates| updates.is_pending.swap(false, Relaxed))
    }

    /// The first place of a walk through all entries.
    pub fn beginning(&self) -> Cursor {
        Cursor::default()
    }
}
