//! The unique ID of a stream (`unique-id-format`) if a rule uses it before the request is sent. The transaction stores the ID;
//! `Env::unique_id` generates it.

use std::cell::{Cell, OnceCell};

/// The ID, generated lazily.
#[derive(Debug, Default)]
pub struct EarlyId {
    text: OnceCell<Box<[u8]>>,
    is_being_made: Cell<bool>,
}

impl EarlyId {
    /// Takes the ID, if it was generated.
    pub fn take(&mut self) -> Option<Box<[u8]>> {
        self.text.take()
    }

    /// Returns the ID, which `make` generates on first use. Returns `None` while `make` runs, because the format may refer to the
    /// ID itself.
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
