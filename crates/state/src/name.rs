//! A server's name, which the runtime socket may change (`set server … name`).

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;

/// Names set at run time. Each name is leaked once, so that readers need not hold a reference.
static GIVEN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// A name that dereferences to `str` and may be replaced while others read it.
pub struct ServerName {
    first: Arc<str>,
    given: ArcSwapOption<&'static str>,
}

impl ServerName {
    /// Returns the name from the configuration.
    pub(crate) fn first(&self) -> &Arc<str> {
        &self.first
    }

    /// Replaces the name.
    pub fn set(&self, name: &str) {
        if *name == *self.first {
            self.given.store(None);
            return;
        }
        // After a panic during an insertion, the other names are still intact.
        let mut given = GIVEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let given = given.get_or_insert_default();
        let kept = given.get(name).copied().unwrap_or_else(|| {
            let kept: &'static str = Box::leak(name.into());
            given.insert(kept);
            kept
        });
        self.given.store(Some(Arc::new(kept)));
    }
}

impl From<Arc<str>> for ServerName {
    fn from(first: Arc<str>) -> Self {
        Self { first, given: ArcSwapOption::empty() }
    }
}

impl Deref for ServerName {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        match &*self.given.load() {
            None => &self.first,
            Some(given) => **given,
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_changes_while_it_is_read() {
        let name = ServerName::from(Arc::<str>::from("one"));
        let read: &str = &name;
        name.set("two");
        assert_eq!((read, &*name), ("one", "two"));
        name.set("one");
        assert_eq!(format!("{name} {name:?} {name:>5}"), "one \"one\"   one");
        let other = ServerName::from(Arc::<str>::from("x"));
        name.set("two");
        other.set("two");
        assert!(std::ptr::eq::<str>(&*name, &*other), "a name is kept once");
    }
}
