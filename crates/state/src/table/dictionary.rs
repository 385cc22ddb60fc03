//! Strings to which entries refer by number: server keys. Strings are never removed, so reading one takes no lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Size of the first run. Each further run is twice as large as the previous one.
const FIRST: usize = 64;

/// The maximum number of runs. Further strings are not stored.
const RUNS: usize = 14;

type WordBlock = Box<[OnceLock<Arc<str>>]>;

/// Strings and their numbers, starting at 1.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    numbers: Mutex<HashMap<Arc<str>, u32>>,
    runs: [OnceLock<WordBlock>; RUNS],
}

/// Returns the run that contains the string at `index`, and the index of the string in the run.
fn place(index: usize) -> (usize, usize) {
    let run = (index / FIRST + 1).ilog2() as usize;
    (run, index - FIRST * ((1 << run) - 1))
}

impl Dictionary {
    /// Returns the number of `text`, adding it if necessary; 0 if there is no room.
    pub(super) fn number(&self, text: &str) -> u32 {
        let mut numbers = self.numbers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(number) = numbers.get(text) {
            return *number;
        }
        let index = numbers.len();
        let (run, at) = place(index);
        let Some(texts) = self.runs.get(run) else { return 0 };
        let texts = texts.get_or_init(|| (0..FIRST << run).map(|_| OnceLock::new()).collect());
        let (text, number): (Arc<str>, _) = (text.into(), index as u32 + 1);
        // No other thread can set it while the lock is held.
        let _ = texts[at].set(text.clone());
        numbers.insert(text, number);
        number
    }

    /// Returns the text with a number.
    #[inline]
    pub(super) fn text(&self, number: u32) -> Option<&Arc<str>> {
        let (run, at) = place((number as usize).checked_sub(1)?);
        self.runs.get(run)?.get()?.get(at)?.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_numbers_as_more_are_added() {
        let dictionary = Dictionary::default();
        let numbers: Vec<u32> = (0..1000).map(|text| dictionary.number(&format!("s{text}"))).collect();
        assert_eq!(numbers, (1..=1000).collect::<Vec<u32>>());
        assert_eq!(dictionary.number("s7"), 8);
        assert!(
            (0..1000)
                .all(|text| { dictionary.text(text + 1).is_some_and(|own| **own == *format!("s{text}")) })
        );
        assert!(dictionary.text(0).is_none() && dictionary.text(1001).is_none());
        assert!(dictionary.text(u32::MAX).is_none());
    }
}
