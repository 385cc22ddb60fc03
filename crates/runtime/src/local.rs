//! A worker's own hold of something that all workers share.
//!
//! Taking and giving back a reference count writes a cache line. Where every request does so to the
//! same few things, as many cores as there are pass that line around. Holding the thing once for
//! the worker, and counting who uses it there, leaves the shared count alone.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::shared::note_write;

/// Something shared, held for this worker: copies are counted by this worker alone.
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
    /// Holds `shared` for this worker. Making it and ending it are writes to something shared.
    pub fn new(shared: Arc<T>) -> Self {
        note_write();
        Self(Rc::new(LocalHold { shared }))
    }

    /// The thing as other workers may hold it too.
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
    fn copies_leave_the_shared_count_alone() {
        let shared = Arc::new(7);
        let held = Local::new(shared.clone());
        let copies = vec![held.clone(); 10];
        assert_eq!((*copies[9], Arc::strong_count(&shared)), (7, 2));
        drop((held, copies));
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
