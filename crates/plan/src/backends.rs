//! Backends by name: those of the configuration, or the current set if backends were added or removed at run time.

use std::collections::HashMap;
use std::ops::Index;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;

use crate::ProxyIndex;

type BackendNames = HashMap<Box<str>, ProxyIndex>;

/// Indexes of backends by name. Reading takes no lock.
#[derive(Debug, Default)]
pub struct Backends {
    fixed: Arc<BackendNames>,
    /// The current set, if a backend was added or removed.
    changed: ArcSwapOption<BackendNames>,
    /// Whether a backend was added or removed. Checked first, because this is rare. Written under the lock.
    is_changed: AtomicBool,
    changing: Mutex<()>,
}

impl Backends {
    /// Returns the index of the backend with that name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<ProxyIndex> {
        if self.is_changed.load(Acquire) { self.now(name) } else { self.fixed.get(name).copied() }
    }

    #[cold]
    fn now(&self, name: &str) -> Option<ProxyIndex> {
        self.changed.load().as_ref().and_then(|names| names.get(name).copied())
    }

    /// Returns all names, in no particular order.
    pub fn names(&self) -> Vec<Box<str>> {
        match &*self.changed.load() {
            Some(names) => names.keys().cloned().collect(),
            None => self.fixed.keys().cloned().collect(),
        }
    }

    /// Returns the number of configured backends.
    pub fn len(&self) -> usize {
        self.fixed.len()
    }

    /// Whether no backends are configured.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty()
    }

    /// Whether backends were added or removed at run time.
    pub fn is_changed(&self) -> bool {
        self.is_changed.load(Acquire)
    }

    /// Returns the configured backends, shared with this list.
    #[must_use]
    pub fn configured(&self) -> Self {
        Self { fixed: self.fixed.clone(), ..Self::default() }
    }

    /// Adds the name of an added backend.
    pub fn insert(&self, name: &str, place: ProxyIndex) {
        self.change(|names| names.insert(name.into(), place));
    }

    /// Removes the name of a removed backend.
    pub fn remove(&self, name: &str) {
        self.change(|names| names.remove(name));
    }

    fn change(&self, change: impl FnOnce(&mut BackendNames) -> Option<ProxyIndex>) {
        // The change is atomic, so the names are valid even if the lock is poisoned.
        let _changing = self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut names = self.changed.load().as_deref().unwrap_or(&self.fixed).clone();
        change(&mut names);
        self.changed.store(Some(Arc::new(names)));
        self.is_changed.store(true, Release);
    }
}

impl From<BackendNames> for Backends {
    fn from(fixed: BackendNames) -> Self {
        Self { fixed: Arc::new(fixed), ..Self::default() }
    }
}

impl Index<&str> for Backends {
    type Output = ProxyIndex;

    /// Returns the index of a configured backend.
    fn index(&self, name: &str) -> &ProxyIndex {
        &self.fixed[name]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go_but_indexes_stay() {
        let names = Backends::from(HashMap::from([("a".into(), 0), ("b".into(), 2)]));
        assert_eq!((names.get("a"), names.get("c")), (Some(0), None));
        names.insert("c", 7);
        names.remove("a");
        assert_eq!((names.get("a"), names.get("b"), names.get("c")), (None, Some(2), Some(7)));
        names.insert("a", 8);
        assert_eq!(names.get("a"), Some(8));
        let mut all = names.names();
        all.sort();
        assert_eq!(all, ["a".into(), "b".into(), "c".into()]);
    }
}
