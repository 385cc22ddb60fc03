//! A worker's own handle to an object shared by all workers.
//!
//! Changing a reference count writes a cache line. If every request did so on the same few objects, that line would move between
//! all cores. Instead, each worker holds one reference and counts its own users.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::shared::note_write;

/// A reference of this worker to a shared object. Clones are only counted by this worker.
pub struct Local<T>(Rc<LocalHold<T>>);

struct LocalHold<T> {
    shared: Arc<T>,
}

impl<T> Drop for LocalHold<T> {
    fn drop(&mut self) {
        note_write();
    }
}

impl<T> Local<T> {
    /// Takes a reference for this worker. Creating and dropping it write the shared count.
    pub fn new(shared: Arc<T>) -> Self {
        note_write();
        Self(Rc::new(LocalHold { shared }))
    }

    /// The shared reference, for other workers.
    #[inline]
    pub fn shared(&self) -> &Arc<T> {
        &self.0.shared
    }
}

impl<T> Clone for Local<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.shared
    }
}

impl<T: fmt::Debug> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_do_not_change_the_shared_count() {
        let shared = Arc::new(7);
        let held = Local::new(shared.clone());
        let copies = vec![held.clone(); 10];
        assert_eq!((*copies[9], Arc::strong_count(&shared)), (7, 2));
        drop((held, copies));
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
