//! Texts that entries hold by number: the keys of servers. A text stays once it was taken in, so that
//! reading one takes no lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// How many texts the first run has; each further one has twice as many as that before.
const FIRST: usize = 64;

/// How many runs there may be: what comes beyond is not kept.
const RUNS: usize = 14;

type WordBlock = Box<[OnceLock<Arc<str>>]>;

/// Texts and their numbers, from 1 on.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    numbers: Mutex<HashMap<Arc<str>, u32>>,
    runs: [OnceLock<WordBlock>; RUNS],
}

/// The run of the text at `index`, and its place there.
fn place(index: usize) -> (usize, usize) {
    let run = (index / FIRST + 1).ilog2() as usize;
    (run, index - FIRST * ((1 << run) - 1))
}

impl Dictionary {
    /// The number of `text`, which is taken in if need be; 0 where there is no room.
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
        // Nobody else fills it: the lock is held.
        let _ = texts[at].set(text.clone());
        numbers.insert(text, number);
        number
    }

    /// The text of a number.
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
    fn texts_keep_their_numbers_however_many_there_are() {
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
