//! Finds the server with the lowest key among many, without a scan and without a lock: the basis of `leastconn` and `first`. A key
//! is either stored, or computed from a count that is stored in its place ([`Term`]).
//!
//! # Why this structure
//! A scan is acceptable for a dozen servers but not for ten thousand; HAProxy keeps a sorted tree under a lock. In this structure,
//! every server has a key in an array, with sixteen keys per cache line. The level above holds the minimum of each line, again with
//! sixteen minima per line, and so on up to a single root line; 10,000 servers take four levels.
//! - A pick follows the minimum from the root: sixteen comparisons per level, which only load and never store.
//! - A key change stores the key and checks whether the minimum of its line has changed. Usually it has not, because other servers
//!   have the same load, and nothing else is written. The upper levels, which every pick reads, are therefore rarely written, which
//!   prevents contention between 64 threads. A list per load (as in HAProxy) is written twice per request, at its head.
//! - Ties rotate: the search starts after the server that was picked last, so servers of equal load take turns in order. With one
//!   thread, every pick is exactly the lowest key, and among equals the next in turn.
//!
//! # Why it is correct with many threads
//! A writer exchanges a minimum and then computes it again. If it has changed in between, the writer writes it again. The last
//! writer of a minimum has therefore seen keys that are no older than its own write, and a thread that changes a key after that
//! read updates the minimum itself. Once all writers have finished, all minima are correct. Until then, a pick may follow a minimum
//! that no longer exists. It then repairs that line and starts over, a few times, and finally uses the entry it found, which is
//! only off by the concurrent change.
//!
//! [`crate::loads`] defines the meaning of keys; this module does not know servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use runtime::shared::note_write;

/// The key of an entry that must not be picked.
pub const NEVER: u32 = u32::MAX;

/// The key of an entry at capacity. It sorts after all entries that have room.
pub const FULL: u32 = NEVER - 1;

const WIDTH: usize = 16;

/// Sixteen keys, or the minima of sixteen lines: one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct CacheLine([AtomicU32; WIDTH]);

impl Default for CacheLine {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(NEVER)))
    }
}

impl CacheLine {
    #[inline]
    fn minimum(&self) -> u32 {
        self.0.iter().fold(NEVER, |least, key| least.min(key.load(SeqCst)))
    }

    /// The first entry at or after `from` with this key.
    #[inline]
    fn find(&self, from: usize, key: u32) -> Option<usize> {
        (from..WIDTH).find(|&at| self.0[at].load(SeqCst) == key)
    }
}

/// The parameters for computing a key from a count. Written when weights or limits change.
#[derive(Debug, Default)]
pub struct Term {
    /// The weight of one request; 0 for an entry that must not be picked.
    pub unit: AtomicU32,
    /// The count at which the entry is full; 0 for never.
    pub most: AtomicU32,
}

impl Term {
    /// The load with one more request. Idle entries come first, whatever their weight.
    #[inline]
    fn key(&self, count: u32) -> u32 {
        let (unit, most) = (self.unit.load(Relaxed), self.most.load(Relaxed));
        match (unit, count) {
            (0, _) => NEVER,
            _ if most > 0 && count >= most => FULL,
            (_, 0) => 0,
            _ => count.saturating_add(1).saturating_mul(unit).min(FULL - 1),
        }
    }
}

/// The number of lines of counts allocated together.
const TOGETHER: usize = 16;

/// Counts by index, which several trees may share.
#[derive(Debug, Clone, Default)]
pub struct CountTree(Vec<Arc<[CacheLine; TOGETHER]>>);

impl CountTree {
    /// Returns a tree of `count` counts, which shares the existing ones.
    #[must_use]
    pub fn grown(&self, count: usize) -> Self {
        let mut all = self.0.clone();
        let empty = || CacheLine(std::array::from_fn(|_| AtomicU32::new(0)));
        all.resize_with(count.div_ceil(WIDTH * TOGETHER), || Arc::new(std::array::from_fn(|_| empty())));
        Self(all)
    }

    #[inline]
    fn line(&self, line: usize) -> &CacheLine {
        &self.0[line / TOGETHER][line % TOGETHER]
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<&AtomicU32> {
        Some(&self.0.get(at / WIDTH / TOGETHER)?[at / WIDTH % TOGETHER].0[at % WIDTH])
    }

    /// The count at `at`.
    #[inline]
    pub fn get(&self, at: usize) -> u32 {
        self.slot(at).map_or(0, |slot| slot.load(SeqCst))
    }

    /// Increments the count at `at`. Ignored beyond the end, for example for a server that was just added.
    #[inline]
    pub fn add(&self, at: usize) {
        if let Some(slot) = self.slot(at) {
            note_write();
            // A read-modify-write, because the following reads of other counts must not happen before other threads can see this
            // one.
            slot.fetch_add(1, SeqCst);
        }
    }

    /// Decrements the count at `at`.
    #[inline]
    pub fn sub(&self, at: usize) {
        // A request that arrived while its count had no room is not included.
        if let Some(slot) = self.slot(at).filter(|slot| slot.load(SeqCst) > 0) {
            note_write();
            slot.fetch_sub(1, SeqCst);
        }
    }
}

/// The source of the keys.
#[derive(Debug)]
enum Base {
    /// Stored keys.
    Keys(Box<[CacheLine]>),
    /// Keys computed from counts.
    Counts {
        counts: CountTree,
        terms: Box<[Term]>,
        /// Whether all entries may be picked, have weight one, and no limit.
        plain: AtomicBool,
    },
}

/// Keys by index, and the levels of minima above them.
#[derive(Debug)]
pub struct Least {
    base: Base,
    /// The minima of the base's lines first, the single root line last.
    levels: Vec<Box<[CacheLine]>>,
    count: usize,
}

impl Least {
    /// Creates a tree with `count` keys, all [`NEVER`].
    pub fn of_keys(count: usize) -> Self {
        let lines = count.div_ceil(WIDTH).max(1);
        Self::over(Base::Keys((0..lines).map(|_| CacheLine::default()).collect()), count)
    }

    /// Creates a tree over `count` counts. None of them may be picked until [`weigh`](Self::weigh) sets their weights.
    pub fn of_counts(counts: CountTree, count: usize) -> Self {
        let whole = count.div_ceil(WIDTH).max(1) * WIDTH;
        let terms = (0..whole).map(|_| Term::default()).collect();
        let counts = counts.grown(whole);
        Self::over(Base::Counts { counts, terms, plain: AtomicBool::new(false) }, count)
    }

    fn over(base: Base, count: usize) -> Self {
        let mut levels = Vec::new();
        let mut lines = count.div_ceil(WIDTH).max(1);
        loop {
            lines = lines.div_ceil(WIDTH);
            levels.push((0..lines).map(|_| CacheLine::default()).collect());
            if lines == 1 {
                return Self { base, levels, count };
            }
        }
    }

    /// The underlying counts, if any.
    pub fn counts(&self) -> Option<&CountTree> {
        match &self.base {
            Base::Keys(_) => None,
            Base::Counts { counts, .. } => Some(counts),
        }
    }

    /// The key at `at`.
    pub fn key(&self, at: usize) -> u32 {
        match &self.base {
            Base::Keys(lines) => lines[at / WIDTH].0[at % WIDTH].load(SeqCst),
            Base::Counts { counts, terms, .. } => terms[at].key(counts.get(at)),
        }
    }

    /// Sets the key at `at`. For counts, use [`add`](Self::add).
    #[inline]
    pub fn set(&self, at: usize, key: u32) {
        let Base::Keys(lines) = &self.base else { return };
        let slot = &lines[at / WIDTH].0[at % WIDTH];
        // A read-modify-write, because the following reads of other keys must not happen before other threads can see this one.
        if slot.load(SeqCst) == key {
            return;
        }
        note_write();
        if slot.swap(key, SeqCst) != key {
            self.mend_base(at / WIDTH);
        }
    }

    /// Increments or decrements the count at `at`.
    #[inline]
    pub fn count(&self, at: usize, more: bool) {
        let Base::Counts { counts, .. } = &self.base else { return };
        if at >= self.count {
            return;
        }
        if more {
            counts.add(at)
        } else {
            counts.sub(at)
        }
        self.mend_base(at / WIDTH);
    }

    /// Sets the weight and limit of each count, by index. All other counts get weight 0.
    pub fn weigh(&self, terms: impl IntoIterator<Item = (u32, u32)>) {
        let Base::Counts { terms: own, plain, .. } = &self.base else { return };
        plain.store(false, SeqCst);
        let mut all_plain = self.count.is_multiple_of(WIDTH);
        for (own, (unit, most)) in own.iter().zip(terms) {
            own.unit.store(unit, Relaxed);
            own.most.store(most, Relaxed);
            all_plain &= (unit, most) == (1, 0);
        }
        plain.store(all_plain, SeqCst);
        (0..self.count.div_ceil(WIDTH)).for_each(|line| self.mend_base(line));
    }

    /// Recomputes the minimum above `at`, because another tree with the same counts may have changed a count.
    pub fn look_again(&self, at: usize) {
        self.mend_base(at / WIDTH);
    }

    #[inline]
    fn base_minimum(&self, line: usize) -> u32 {
        match &self.base {
            Base::Keys(lines) => lines[line].minimum(),
            Base::Counts { counts, terms, plain } => {
                let counts = counts.line(line);
                if plain.load(Relaxed) {
                    let least = counts.minimum();
                    return if least == 0 { 0 } else { (least + 1).min(FULL - 1) };
                }
                let terms = &terms[line * WIDTH..][..WIDTH];
                let keys = terms.iter().zip(&counts.0).map(|(term, count)| term.key(count.load(SeqCst)));
                keys.fold(NEVER, u32::min)
            }
        }
    }

    /// The first entry in a line of the base at or after `from` with this key.
    #[inline]
    fn base_find(&self, line: usize, from: usize, key: u32) -> Option<usize> {
        match &self.base {
            Base::Keys(lines) => lines[line].find(from, key),
            Base::Counts { counts, terms, plain } => {
                let counts = counts.line(line);
                if plain.load(Relaxed) {
                    return counts.find(from, key.saturating_sub(1));
                }
                let terms = &terms[line * WIDTH..][..WIDTH];
                (from..WIDTH).find(|&at| terms[at].key(counts.0[at].load(SeqCst)) == key)
            }
        }
    }

    /// Updates the minimum of a base line, and the minima above as long as they change.
    #[inline]
    fn mend_base(&self, line: usize) {
        self.mend(0, line, |line| self.base_minimum(line));
    }

    /// Updates the minimum of a line at `level`.
    fn mend_level(&self, level: usize, line: usize) {
        if level + 1 < self.levels.len() {
            self.mend(level + 1, line, |line| self.levels[level][line].minimum());
        }
    }

    /// Updates the minimum stored at `level` for `line`.
    fn mend(&self, level: usize, line: usize, minimum: impl Fn(usize) -> u32) {
        let summary = &self.levels[level][line / WIDTH].0[line % WIDTH];
        let mut least = minimum(line);
        if summary.load(SeqCst) == least {
            return;
        }
        loop {
            note_write();
            summary.swap(least, SeqCst);
            let again = minimum(line);
            if again == least {
                break;
            }
            least = again;
        }
        self.mend_level(level, line / WIDTH);
    }

    /// The lowest key and its index. Among equals, the first at or after `from` is returned, wrapping around. `None` if all keys
    /// are [`NEVER`].
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
        // Other threads change keys faster than this thread finds them, so any eligible entry is used.
        let keys = (0..self.count).map(|at| (self.key(at), at));
        keys.min().filter(|(key, _)| *key != NEVER).map(|(key, at)| (at, key))
    }

    /// The first entry at or after `from` with this key, without wrapping around. Goes up until a line has the key further right,
    /// then down.
    #[inline]
    fn behind(&self, from: usize, key: u32) -> Option<usize> {
        if let Some(found) = self.base_find(from / WIDTH, from % WIDTH, key) {
            return Some(from / WIDTH * WIDTH + found);
        }
        let mut at = from / WIDTH + 1;
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

    /// The first entry with this key in the line (of a level or the base) that entry `entry` of `level` summarizes. Repairs that
    /// minimum if the key is gone.
    #[inline]
    fn below(&self, level: usize, entry: usize, key: u32) -> Option<usize> {
        if level > 0 {
            return self.descend(level - 1, entry, 0, key);
        }
        let found = self.base_find(entry, 0, key);
        if found.is_none() {
            self.mend_base(entry);
        }
        found.map(|found| entry * WIDTH + found)
    }

    /// The first entry with this key below a line of a level. Repairs minima if the key is gone.
    fn descend(&self, mut level: usize, mut line: usize, from: usize, key: u32) -> Option<usize> {
        loop {
            let Some(found) = self.levels[level][line].find(from, key) else {
                self.mend_level(level, line);
                return None;
            };
            let entry = line * WIDTH + found;
            if level == 0 {
                return self.below(0, entry, key);
            }
            (level, line) = (level - 1, entry);
        }
    }

    /// Checks that every minimum is correct. For tests, while nothing writes.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for line in 0..self.count.div_ceil(WIDTH) {
            let summary = self.levels[0][line / WIDTH].0[line % WIDTH].load(SeqCst);
            assert_eq!(summary, self.base_minimum(line), "line {line} of the base");
        }
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
    fn finds_match_a_scan_at_every_size() {
        for count in [1, 2, 15, 16, 17, 100, 256, 257, 5_000] {
            let mut random = fastrand::Rng::with_seed(count as u64);
            let least = Least::of_keys(count);
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
    fn minima_are_correct_after_all_threads_finish() {
        let least = Least::of_keys(300);
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

    /// The keys, computed without the tree.
    fn keys_of(counts: &[u32], terms: &[(u32, u32)]) -> Vec<u32> {
        let key = |(&count, &(unit, most)): (&u32, &(u32, u32))| match (unit, count) {
            (0, _) => NEVER,
            _ if most > 0 && count >= most => FULL,
            (_, 0) => 0,
            _ => (count + 1) * unit,
        };
        counts.iter().zip(terms).map(key).collect()
    }

    #[test]
    fn weighted_counts_match_a_scan() {
        for count in [1, 16, 17, 256, 257, 1_000] {
            let mut random = fastrand::Rng::with_seed(count as u64);
            let mut least = Least::of_counts(CountTree::default(), count);
            assert_eq!(least.find(0), None, "nobody may be picked yet");
            let mut counts = vec![0u32; count];
            for round in 0..6 {
                let uniform = round % 2 == 0;
                let terms: Vec<(u32, u32)> = (0..count)
                    .map(|_| if uniform { (1, 0) } else { (random.u32(..4), random.u32(..6)) })
                    .collect();
                if round == 4 {
                    // Replaces the tree by another over the same counts.
                    least = Least::of_counts(least.counts().expect("counts").clone(), count);
                }
                least.weigh(terms.iter().copied());
                for _ in 0..500 {
                    let at = random.usize(..count);
                    let more = counts[at] == 0 || random.bool();
                    counts[at] = if more { counts[at] + 1 } else { counts[at] - 1 };
                    least.count(at, more);
                    let from = random.usize(..count);
                    let keys = keys_of(&counts, &terms);
                    let wanted = keys.iter().min().copied().filter(|key| *key != NEVER).map(|key| {
                        let at = (from..count).chain(0..from).find(|at| keys[*at] == key).unwrap();
                        (at, key)
                    });
                    assert_eq!(least.find(from), wanted, "{count} of them, round {round}");
                }
                least.check_invariants();
            }
        }
    }

    #[test]
    fn counts_and_minima_are_correct_after_all_threads_finish() {
        let least = Least::of_counts(CountTree::default(), 300);
        least.weigh((0..300).map(|at| (1 + at % 3, 0)));
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let least = &least;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut held = Vec::new();
                    for _ in 0..50_000 {
                        if random.bool() {
                            let (at, _) = least.find(random.usize(..300)).expect("one of them");
                            least.count(at, true);
                            held.push(at);
                        } else if let Some(at) = held.pop() {
                            least.count(at, false);
                        }
                    }
                    held.into_iter().for_each(|at| least.count(at, false));
                });
            }
        });
        least.check_invariants();
        assert!((0..300).all(|at| least.key(at) == 0));
    }
}
