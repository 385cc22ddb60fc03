//! The unique id of a stream (`unique-id-format`) that a rule uses before the request is sent. The
//! transaction holds it; `Env::unique_id` makes it.

use std::cell::{Cell, OnceCell};

/// The id, once it is made.
#[derive(Debug, Default)]
pub struct EarlyId {
    text: OnceCell<Box<[u8]>>,
    is_being_made: Cell<bool>,
}

impl EarlyId {
    /// Takes it.
    pub fn take(&mut self) -> Option<Box<[u8]>> {
        self.text.take()
    }

    /// The id, made by `make` if it was not used before; `None` while `make` runs, as the format may
    /// contain the id itself.
    pub(crate) fn get_or_make(&self, make: impl FnOnce(&mut Vec<u8>)) -> Option<&[u8]> {
        if self.text.get().is_none() {
            if self.is_being_made.replace(true) {
                return None;
            }
            let mut id = Vec::new();
            make(&mut id);
            self.is_being_made.set(false);
            let _ = self.text.set(id.into());
        }
        self.text.get().map(|id| &**id)
    }
}
