//! The server with the least key among many, found without looking at all of them and without a lock: what
//! `leastconn` and `first` stand on.
//!
//! # Why this structure
//! A scan is fine for a dozen servers and out of the question for ten thousand; HAProxy keeps a sorted tree under
//! a lock. Here every server has a key in an array, sixteen to a cache line, and over each line stands its
//! minimum, sixteen minima to a line again, up to a line that is the root: 10,000 servers are four levels.
//! - A pick follows the minimum from the root: sixteen comparisons a level, all loads, nothing written.
//! - A change of one key writes it and looks whether its line's minimum changed; mostly it did not, since other
//!   servers have the same load, and nothing further is written. So the upper levels, which every pick reads, are
//!   rarely written: that is what keeps 64 threads from fighting over them. A list per load (as HAProxy's) is
//!   written twice by every request, at its head.
//! - Ties rotate: the search begins behind the server picked last, so servers of the same load take turns in
//!   order. With one thread every pick is exactly the least key, and of those the next in turn.
//!
//! # Why it stays right with many threads
//! A minimum is written by exchange and then computed again; if it changed meanwhile, the writer writes again.
//! The last to write a minimum therefore saw keys no older than its own write, and whoever changes a key after
//! that look writes the minimum itself: once all writers are done, all minima are right. While they are not, a
//! pick may follow a minimum that is no longer there; it then mends that line and begins anew, a few times, and
//! at last takes what it found, which is off by the change that raced with it.
//!
//! [`crate::picker`] says what a key means; nothing here knows servers.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use runtime::shared::note_write;

/// The key of what must not be picked.
pub const NEVER: u32 = u32::MAX;

const WIDTH: usize = 16;

/// Sixteen keys, or minima of sixteen lines each: one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU32; WIDTH]);

impl Default for Line {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(NEVER)))
    }
}

impl Line {
    #[inline]
    fn minimum(&self) -> u32 {
        self.0.iter().fold(NEVER, |least, key| least.min(key.load(SeqCst)))
    }

    /// The first at or behind `from` with this key.
    #[inline]
    fn find(&self, from: usize, key: u32) -> Option<usize> {
        (from..WIDTH).find(|&at| self.0[at].load(SeqCst) == key)
    }
}

/// Keys by number, and the minima above them.
#[derive(Debug)]
pub struct Least {
    /// The keys first, one line as the root last.
    levels: Vec<Box<[Line]>>,
    count: usize,
}

impl Least {
    /// `count` keys, all [`NEVER`].
    pub fn new(count: usize) -> Self {
        let mut levels = Vec::new();
        let mut lines = count.div_ceil(WIDTH).max(1);
        loop {
            levels.push((0..lines).map(|_| Line::default()).collect());
            if lines == 1 {
                return Self { levels, count };
            }
            lines = lines.div_ceil(WIDTH);
        }
    }

    /// The key of `at`.
    pub fn key(&self, at: usize) -> u32 {
        self.levels[0][at / WIDTH].0[at % WIDTH].load(SeqCst)
    }

    /// Changes the key of `at`.
    #[inline]
    pub fn set(&self, at: usize, key: u32) {
        let slot = &self.levels[0][at / WIDTH].0[at % WIDTH];
        // By exchange: the look at the other keys must not come before the others can see this one.
        if slot.load(SeqCst) == key {
            return;
        }
        note_write();
        if slot.swap(key, SeqCst) != key {
            self.mend(0, at / WIDTH);
        }
    }

    /// Brings the minimum of a line up to date, and those above as far as they change.
    fn mend(&self, mut level: usize, mut line: usize) {
        while let Some(above) = self.levels.get(level + 1) {
            let summary = &above[line / WIDTH].0[line % WIDTH];
            let mut least = self.levels[level][line].minimum();
            if summary.load(SeqCst) == least {
                return;
            }
            loop {
                note_write();
                summary.swap(least, SeqCst);
                let again = self.levels[level][line].minimum();
                if again == least {
                    break;
                }
                least = again;
            }
            (level, line) = (level + 1, line / WIDTH);
        }
    }

    /// The least key and who has it: of several the first at or behind `from`, going round. `None` when all are
    /// [`NEVER`].
    #[inline]
    pub fn find(&self, from: usize) -> Option<(usize, u32)> {
        let root = self.levels.len() - 1;
        let from = if from < self.count { from } else { 0 };
        for _ in 0..4 {
            let least = self.levels[root][0].minimum();
            if least == NEVER {
                return None;
            }
            if let Some(found) = self.behind(from, least).or_else(|| self.descend(root, 0, 0, least)) {
                return Some((found, least));
            }
        }
        // Others change keys faster than they are found: any that may be picked will do.
        let keys = (0..self.count).map(|at| (self.key(at), at));
        keys.min().filter(|(key, _)| *key != NEVER).map(|(key, at)| (at, key))
    }

    /// The first at or behind `from` with this key, without going round: up until a line has it further right,
    /// then down again.
    #[inline]
    fn behind(&self, from: usize, key: u32) -> Option<usize> {
        let mut at = from;
        for (level, lines) in self.levels.iter().enumerate() {
            let line = at / WIDTH;
            if line >= lines.len() {
                return None;
            }
            if let Some(found) = lines[line].find(at % WIDTH, key) {
                return self.below(level, line * WIDTH + found, key);
            }
            at = line + 1;
        }
        None
    }

    /// The first with this key below entry `entry` of a level.
    #[inline]
    fn below(&self, level: usize, entry: usize, key: u32) -> Option<usize> {
        match level {
            0 => Some(entry),
            _ => self.descend(level - 1, entry, 0, key),
        }
    }

    /// The first with this key at or below a line; mends the line where the key is gone.
    fn descend(&self, mut level: usize, mut line: usize, from: usize, key: u32) -> Option<usize> {
        loop {
            let Some(found) = self.levels[level][line].find(from, key) else {
                self.mend(level, line);
                return None;
            };
            if level == 0 {
                return Some(line * WIDTH + found);
            }
            (level, line) = (level - 1, line * WIDTH + found);
        }
    }

    /// Whether every minimum is what it should be. For tests, when nobody writes.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for level in 1..self.levels.len() {
            for (line, below) in self.levels[level - 1].iter().enumerate() {
                let summary = self.levels[level][line / WIDTH].0[line % WIDTH].load(SeqCst);
                assert_eq!(summary, below.minimum(), "level {level}, line {line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_scan_finds_at_every_size() {
        for count in [1, 2, 15, 16, 17, 100, 256, 257, 5_000] {
            let mut random = fastrand::Rng::with_seed(count as u64);
            let least = Least::new(count);
            let mut keys = vec![NEVER; count];
            assert_eq!(least.find(0), None);
            for _ in 0..2_000 {
                let at = random.usize(..count);
                keys[at] = if random.u32(..10) == 0 { NEVER } else { random.u32(..6) };
                least.set(at, keys[at]);
                let from = random.usize(..count);
                let wanted = keys.iter().min().copied().filter(|key| *key != NEVER).map(|key| {
                    let at = (from..count).chain(0..from).find(|at| keys[*at] == key).unwrap();
                    (at, key)
                });
                assert_eq!(least.find(from), wanted);
            }
            least.check_invariants();
        }
    }

    #[test]
    fn the_minima_are_right_once_all_threads_are_done() {
        let least = Least::new(300);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let least = &least;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..100_000 {
                        least.set(random.usize(..300), random.u32(..5));
                        assert!(least.find(random.usize(..300)).is_none_or(|(at, _)| at < 300));
                    }
                });
            }
        });
        least.check_invariants();
        assert!((0..300).all(|at| least.key(at) == NEVER || least.key(at) < 5));
    }
}
