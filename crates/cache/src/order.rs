//! The eviction order (least recently used first), and the responses that are being filled.
//!
//! Protected by a lock that lookups never take ([`ByUse`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::by_use::ByUse;
use crate::object::Object;
use crate::vary::Variant;

/// The eviction order, and the responses that are being filled.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Number of blocks used by hints.
    pub(crate) hint_blocks: u32,
    /// Whole objects.
    by_use: ByUse<Object>,
    /// Hints, by number.
    hints: BTreeMap<u64, Arc<Object>>,
    /// The last number assigned.
    number: u64,
    /// Responses being filled, by the hash of their key.
    filling: HashMap<u64, Vec<Mark>>,
}

/// A response being filled.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    key: Box<[u8]>,
    variant: Variant,
    number: u64,
}

impl Order {
    /// Adds an object, and assigns its number.
    pub(crate) fn add(&mut self, mut object: Object) -> Arc<Object> {
        self.number += 1;
        object.number = self.number;
        let object = Arc::new(object);
        if object.is_hints {
            self.hint_blocks += object.blocks();
            self.hints.insert(object.number, object.clone());
        } else {
            self.by_use.insert(object.clone());
        }
        object
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, object: &Object) {
        if !object.is_hints {
            self.by_use.remove(object);
        } else if self.hints.remove(&object.number).is_some() {
            self.hint_blocks -= object.blocks();
        }
    }

    /// Returns the least recently used whole object.
    pub(crate) fn least_used(&mut self) -> Option<Arc<Object>> {
        self.by_use.least_used()
    }

    /// Returns the oldest hints.
    pub(crate) fn oldest_hints(&self) -> Option<Arc<Object>> {
        self.hints.first_key_value().map(|(_, object)| object.clone())
    }

    /// Iterates over all objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.by_use.iter().chain(self.hints.values())
    }

    /// Registers a response that is being filled, and returns its number; `None` if it is already being filled.
    pub(crate) fn begin(&mut self, hash: u64, key: &[u8], variant: &Variant) -> Option<u64> {
        let marks = self.filling.entry(hash).or_default();
        if marks.iter().any(|mark| *mark.key == *key && mark.variant == *variant) {
            return None;
        }
        self.number += 1;
        marks.push(Mark { key: key.into(), variant: variant.clone(), number: self.number });
        Some(self.number)
    }

    /// Returns the number of other variants that are being filled for the key.
    pub(crate) fn others(&self, hash: u64, key: &[u8], variant: &Variant) -> usize {
        let is_other =
            |mark: &&Mark| *mark.key == *key && mark.variant != *variant && !mark.variant.is_for_all();
        self.filling.get(&hash).map_or(0, |marks| marks.iter().filter(is_other).count())
    }

    /// Unregisters a filling; returns false if it was purged in the meantime.
    pub(crate) fn end(&mut self, hash: u64, number: u64) -> bool {
        let Some(marks) = self.filling.get_mut(&hash) else { return false };
        let before = marks.len();
        marks.retain(|mark| mark.number != number);
        let found = marks.len() < before;
        if marks.is_empty() {
            self.filling.remove(&hash);
        }
        found
    }

    /// Makes sure that a response that is being filled is not stored if `is_meant` holds for its key.
    pub(crate) fn forget(&mut self, is_meant: impl Fn(&[u8]) -> bool) {
        self.filling.retain(|_, marks| {
            marks.retain(|mark| !is_meant(&mark.key));
            !marks.is_empty()
        });
    }

    /// Checks the invariants; returns the number of blocks used by objects.
    #[cfg(test)]
    pub(crate) fn check(&self) -> u32 {
        let taken = |object: &Arc<Object>| object.blocks();
        assert_eq!(self.hint_blocks, self.hints.values().map(taken).sum::<u32>());
        assert!(self.filling.values().all(|marks| !marks.is_empty()));
        self.all().map(taken).sum()
    }
}
