//! Texts that entries hold by number: the keys of servers.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// The most texts. What comes beyond is not kept.
const MOST: usize = 1 << 20;

#[derive(Debug, Default)]
struct Texts {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

/// Texts and their numbers, from 1 on.
#[derive(Debug, Default)]
pub(super) struct Dictionary(RwLock<Texts>);

impl Dictionary {
    /// The number of `text`, which is taken in if need be; 0 where there is no room.
    pub(super) fn number(&self, text: &str) -> u32 {
        let known = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).numbers.get(text).copied();
        if let Some(number) = known {
            return number;
        }
        let mut texts = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(number) = texts.numbers.get(text) {
            return *number;
        }
        if texts.texts.len() >= MOST {
            return 0;
        }
        let text: Arc<str> = text.into();
        texts.texts.push(text.clone());
        let number = texts.texts.len() as u32;
        texts.numbers.insert(text, number);
        number
    }

    /// The text of a number.
    pub(super) fn text(&self, number: u32) -> Option<Arc<str>> {
        let texts = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        texts.texts.get((number as usize).checked_sub(1)?).cloned()
    }
}
