//! A set of numbers as sorted ranges.

use std::ops::Range;

use smallvec::SmallVec;

/// Sorted ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges(SmallVec<[Range<u64>; 1]>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> {
        self.0.iter()
    }

    pub(crate) fn first(&self) -> Option<&Range<u64>> {
        self.0.first()
    }

    pub(crate) fn last(&self) -> Option<&Range<u64>> {
        self.0.last()
    }

    pub(crate) fn pop_first(&mut self) -> Option<Range<u64>> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// The first range that ends at `at` or later.
    fn position(&self, at: u64) -> usize {
        // New numbers are mostly the largest.
        match self.0.last() {
            Some(last) if last.start <= at => self.0.len() - usize::from(last.end >= at),
            _ => self.0.partition_point(|range| range.end < at),
        }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.get(self.position(number + 1)).is_some_and(|range| range.contains(&number))
    }

    /// The ranges that have numbers in common with `range`.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> &[Range<u64>] {
        let after = &self.0[self.0.partition_point(|own| own.end <= range.start)..];
        &after[..after.partition_point(|own| own.start < range.end)]
    }

    /// Adds a range; returns whether any number of it is new.
    pub(crate) fn insert(&mut self, new: Range<u64>) -> bool {
        if new.is_empty() {
            return false;
        }
        let from = self.position(new.start);
        let Some(first) = self.0.get_mut(from).filter(|first| first.start <= new.end) else {
            self.0.insert(from, new);
            return true;
        };
        if first.start <= new.start && first.end >= new.end {
            return false;
        }
        first.start = first.start.min(new.start);
        first.end = first.end.max(new.end);
        let mut end = first.end;
        let mut to = from + 1;
        while let Some(next) = self.0.get(to).filter(|next| next.start <= end) {
            end = end.max(next.end);
            to += 1;
        }
        self.0[from].end = end;
        self.0.drain(from + 1..to);
        true
    }

    /// Removes a range.
    pub(crate) fn remove(&mut self, gone: Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let mut at = self.0.partition_point(|range| range.end <= gone.start);
        while let Some(range) = self.0.get_mut(at).filter(|range| range.start < gone.end) {
            match (range.start < gone.start, range.end > gone.end) {
                (true, true) => {
                    let right = gone.end..range.end;
                    range.end = gone.start;
                    self.0.insert(at + 1, right);
                    return;
                }
                (true, false) => {
                    range.end = gone.start;
                    at += 1;
                }
                (false, true) => {
                    range.start = gone.end;
                    return;
                }
                (false, false) => {
                    self.0.remove(at);
                }
            }
        }
    }

    /// Gives back memory that an empty set does not need.
    pub(crate) fn shrink(&mut self) {
        if self.0.is_empty() {
            self.0 = SmallVec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn list(ranges: &Ranges) -> Vec<Range<u64>> {
        ranges.iter().cloned().collect()
    }

    #[test]
    fn neighbours_are_joined() {
        let mut ranges = Ranges::default();
        assert!(ranges.insert(5..6) && ranges.insert(7..8) && ranges.insert(1..2));
        assert_eq!(list(&ranges), [1..2, 5..6, 7..8]);
        assert!(ranges.insert(6..7));
        assert_eq!(list(&ranges), [1..2, 5..8]);
        assert!(!ranges.insert(5..7));
        assert!(ranges.insert(0..9));
        assert_eq!((ranges.len(), ranges.first()), (1, Some(&(0..9))));
    }

    /// All operations agree with a set of single numbers.
    #[test]
    fn ranges_agree_with_a_set_of_numbers() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
        for _ in 0..4000 {
            let start = next(60);
            let range = start..start + next(9);
            if next(3) == 0 {
                ranges.remove(range.clone());
                numbers.retain(|number| !range.contains(number));
            } else {
                let is_new = range.clone().any(|number| !numbers.contains(&number));
                assert_eq!(ranges.insert(range.clone()), is_new, "{range:?}");
                numbers.extend(range);
            }
            assert!((0..70).all(|number| ranges.contains(number) == numbers.contains(&number)));
            let all = list(&ranges);
            assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start), "{all:?}");
            assert!(all.iter().all(|range| !range.is_empty()), "{all:?}");
            let start = next(70);
            let within = start..start + 1 + next(9);
            let shared = all.into_iter().filter(|own| own.start < within.end && own.end > within.start);
            assert_eq!(ranges.overlapping(&within), shared.collect::<Vec<_>>(), "{within:?}");
        }
    }
}
