//! Items in order of use: the least recently used one is evicted first.
//!
//! A lookup only stores the time of use in the item itself; the order is updated when the item is about to be evicted. The owner's
//! lock protects the order, in [`Order`](crate::order) and [`Files`](crate::StoreFiles).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many items that turn out to be in use are skipped in one pass.
const MOST_PASSED_OVER: usize = 64;

/// An item with a time of use.
pub(crate) trait UsedItem {
    /// Returns the item's unique number, which is assigned once.
    fn number(&self) -> u64;

    /// Returns the time of the item's last use, in ms. Any worker may set it.
    fn used_ms(&self) -> &AtomicU64;

    /// Returns the time under which the item is in the order. Set while the order's lock is held.
    fn placed_ms(&self) -> &AtomicU64;
}

/// Items, keyed by their time in the order and their number.
#[derive(Debug)]
pub(crate) struct ByUse<T>(BTreeMap<(u64, u64), Arc<T>>);

impl<T> Default for ByUse<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: UsedItem> ByUse<T> {
    pub(crate) fn insert(&mut self, thing: Arc<T>) {
        self.0.insert((thing.placed_ms().load(Relaxed), thing.number()), thing);
    }

    pub(crate) fn remove(&mut self, thing: &T) {
        self.0.remove(&(thing.placed_ms().load(Relaxed), thing.number()));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the least recently used item, or one nearly so if many were used in the meantime.
    pub(crate) fn least_used(&mut self) -> Option<Arc<T>> {
        for _ in 0..MOST_PASSED_OVER {
            let first = self.0.first_entry()?;
            let used = first.get().used_ms().load(Relaxed);
            if used <= first.key().0 {
                return Some(first.get().clone());
            }
            let thing = first.remove();
            thing.placed_ms().store(used, Relaxed);
            self.insert(thing);
        }
        self.0.first_key_value().map(|(_, thing)| thing.clone())
    }
}
