//! Notifications of changes to a pattern list (scripts, `Patref.event_sub`).

use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A change to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ListChange {
    /// A line was added.
    Add = 1,
    /// A line was removed.
    Delete = 2,
    /// A value was set.
    Set = 4,
    /// All lines were removed.
    Clear = 8,
    /// All lines were replaced.
    Commit = 16,
}

/// Receives notifications. Must not block.
pub trait Watcher: Send + Sync {
    /// Called after the list has changed.
    fn changed(&self, change: ListChange);
}

/// A watcher, and the changes it wants.
type Watching = (u8, Weak<dyn Watcher>);

/// The watchers of one list; most lists have none.
#[derive(Default)]
pub(super) struct Watchers(OnceLock<Mutex<Vec<Watching>>>);

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watchers")
    }
}

impl Watchers {
    /// Notifies `who` of these changes (a bitmask) as long as `who` exists.
    pub(super) fn add(&self, changes: u8, who: &Arc<dyn Watcher>) {
        let all = self.0.get_or_init(Mutex::default);
        let mut all = all.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.retain(|(_, who)| who.strong_count() > 0);
        all.push((changes, Arc::downgrade(who)));
    }

    #[inline]
    pub(super) fn notify(&self, change: ListChange) {
        if let Some(all) = self.0.get() {
            notify(all, change);
        }
    }
}

#[cold]
fn notify(all: &Mutex<Vec<Watching>>, change: ListChange) {
    let all = all.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let who: Vec<_> = all
        .iter()
        .filter(|(changes, _)| changes & change as u8 != 0)
        .filter_map(|(_, who)| who.upgrade())
        .collect();
    drop(all);
    who.iter().for_each(|who| who.changed(change));
}
