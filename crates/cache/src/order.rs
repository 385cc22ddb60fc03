//! In which order objects make room: those that were used the longest time ago first. What takes
//! memory is counted here, what is being filled too.
//!
//! Under one lock, which who looks up never takes: a use is a store in the object, and the order
//! learns of it when the object's turn to leave would come.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::object::Object;
use crate::vary::Variant;

/// So many objects that turn out to be in use are passed over in one go.
const MOST_PASSED_OVER: usize = 64;

/// The order.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Blocks that nothing takes.
    pub(crate) free: u32,
    /// Blocks that hints take.
    pub(crate) hint_blocks: u32,
    /// Whole objects, by when they were used, as far as is known here, and by number.
    by_use: BTreeMap<(u64, u64), Arc<Object>>,
    /// Hints, by number.
    hints: BTreeMap<u64, Arc<Object>>,
    /// The last number given.
    number: u64,
    /// What is being filled, by the hash of its key.
    filling: HashMap<u64, Vec<Mark>>,
}

/// Something that is being filled.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    key: Box<[u8]>,
    variant: Variant,
}

impl Order {
    pub(crate) fn new(blocks: u32) -> Self {
        Self { free: blocks, ..Self::default() }
    }

    /// The number of a new object.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Adds an object, whose blocks were taken.
    pub(crate) fn add(&mut self, object: Arc<Object>) {
        if object.is_hints {
            self.hint_blocks += object.blocks;
            self.hints.insert(object.number, object);
        } else {
            self.by_use.insert((object.placed_ms.load(Relaxed), object.number), object);
        }
    }

    /// Takes an object out, and gives back its blocks.
    pub(crate) fn remove(&mut self, object: &Object) {
        let found = if object.is_hints {
            self.hints.remove(&object.number).is_some()
        } else {
            self.by_use.remove(&(object.placed_ms.load(Relaxed), object.number)).is_some()
        };
        if found {
            self.free += object.blocks;
            self.hint_blocks -= if object.is_hints { object.blocks } else { 0 };
        }
    }

    /// The whole object that was used the longest time ago.
    pub(crate) fn least_used(&mut self) -> Option<Arc<Object>> {
        for _ in 0..MOST_PASSED_OVER {
            let first = self.by_use.first_entry()?;
            let (placed, number) = *first.key();
            let used = first.get().used_ms.load(Relaxed);
            if used <= placed {
                return Some(first.get().clone());
            }
            let object = first.remove();
            object.placed_ms.store(used, Relaxed);
            self.by_use.insert((used, number), object);
        }
        self.by_use.first_key_value().map(|(_, object)| object.clone())
    }

    /// The oldest hints.
    pub(crate) fn oldest_hints(&self) -> Option<Arc<Object>> {
        self.hints.first_key_value().map(|(_, object)| object.clone())
    }

    /// Every object.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.by_use.values().chain(self.hints.values())
    }

    /// Marks something as being filled; false where it is already.
    pub(crate) fn begin(&mut self, hash: u64, key: &[u8], variant: &Variant) -> bool {
        let marks = self.filling.entry(hash).or_default();
        let is_new = !marks.iter().any(|mark| *mark.key == *key && mark.variant == *variant);
        if is_new {
            marks.push(Mark { key: key.into(), variant: variant.clone() });
        }
        is_new
    }

    /// Takes that mark away.
    pub(crate) fn end(&mut self, hash: u64, key: &[u8], variant: &Variant) {
        if let Some(marks) = self.filling.get_mut(&hash) {
            marks.retain(|mark| !(*mark.key == *key && mark.variant == *variant));
            if marks.is_empty() {
                self.filling.remove(&hash);
            }
        }
    }

    /// What must hold between changes, for an order of so many blocks of which `filling` are being
    /// filled.
    #[cfg(test)]
    pub(crate) fn check(&self, blocks: u32, filling: u32) {
        let taken: u32 = self.all().map(|object| object.blocks).sum();
        assert_eq!(taken + self.free + filling, blocks);
        assert_eq!(self.hint_blocks, self.hints.values().map(|object| object.blocks).sum::<u32>());
        assert!(self.filling.values().all(|marks| !marks.is_empty()));
    }
}
