//! What is kept in the order of its use: what was used the longest time ago leaves first.
//!
//! A use is a store in the thing itself, by whoever looks it up; the order learns of it when the
//! thing's turn to leave would come. It stands under its owner's lock, in [`Order`](crate::order) and
//! [`Files`](crate::StoreFiles).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many that turn out to be in use are passed over in one go.
const MOST_PASSED_OVER: usize = 64;

/// Something that is used.
pub(crate) trait UsedItem {
    /// The number that tells it from others, which is given once.
    fn number(&self) -> u64;

    /// When it was used last, in ms. Written by any worker.
    fn used_ms(&self) -> &AtomicU64;

    /// Under what instant it stands in the order. Written under the lock of that.
    fn placed_ms(&self) -> &AtomicU64;
}

/// Things by when they were used, as far as is known here, and by number.
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

    /// The one that was used the longest time ago, or nearly so where many were used meanwhile.
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
