//! Settings that most sections and lines take over unchanged from their defaults.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that is shared with the defaults it was inherited from until it is changed.
#[derive(Debug, Default)]
pub struct Inherited<T>(Arc<T>);

impl<T> Inherited<T> {
    /// Returns the value for the plan.
    pub fn shared(&self) -> Arc<T> {
        self.0.clone()
    }
}

impl<T> From<T> for Inherited<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Inherited<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Inherited<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Inherited<T> {
    /// Copies the value first if it is shared.
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_do_not_affect_the_defaults() {
        let defaults = Inherited::<Vec<u8>>::default();
        let mut own = defaults.clone();
        assert!(Arc::ptr_eq(&defaults.shared(), &own.shared()));
        own.push(1);
        assert_eq!((defaults.len(), own.len()), (0, 1));
    }
}
