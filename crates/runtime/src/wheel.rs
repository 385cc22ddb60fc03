//! A hierarchical timing wheel of numbered entries. Insertion, moving and removal take constant time. The wheel stores instants in
//! ms, which [`crate::timer`] interprets.
//!
//! Level 0 has a slot for each of the next 64 milliseconds; the slots of each further level are 64 times as long. An entry is on
//! the level of the highest base-64 digit in which its instant differs from the present. When its slot begins, the entry moves to a
//! lower level.

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 64⁷ ms are 139 years. Entries further ahead are checked again at that time.
const LEVELS: usize = 7;
const FURTHEST: u64 = (1 << (BITS as usize * LEVELS)) - 1;
const NONE: u32 = u32::MAX;
/// The level of an entry that is in no slot.
const NOWHERE: u8 = u8::MAX;

#[derive(Debug, Clone, Copy)]
struct WheelLink {
    at: u64,
    previous: u32,
    next: u32,
    level: u8,
    slot: u8,
}

const FREE: WheelLink = WheelLink { at: 0, previous: NONE, next: NONE, level: NOWHERE, slot: 0 };

/// Entries by due time.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The present. All entries due before this were returned.
    now: u64,
    /// A bit for each non-empty slot.
    occupied: [u64; LEVELS],
    /// The first entry of each slot.
    first: [[u32; SLOTS]; LEVELS],
    links: Vec<WheelLink>,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { now: 0, occupied: [0; LEVELS], first: [[NONE; SLOTS]; LEVELS], links: Vec::new() }
    }
}

impl Wheel {
    /// When `entry` is due; `None` if it is not in the wheel.
    #[inline]
    pub(crate) fn at(&self, entry: u32) -> Option<u64> {
        self.links.get(entry as usize).filter(|link| link.level != NOWHERE).map(|link| link.at)
    }

    /// Inserts or moves `entry`, due at `at`.
    pub(crate) fn set(&mut self, entry: u32, at: u64) {
        if self.links.len() <= entry as usize {
            self.links.resize(entry as usize + 1, FREE);
        }
        self.remove(entry);
        // Overdue entries are due immediately. Entries too far ahead are checked at the furthest instant.
        let when = at.clamp(self.now, self.now | FURTHEST);
        let differ = (self.now ^ when) | (SLOTS as u64 - 1);
        let level = ((u64::BITS - 1 - differ.leading_zeros()) / BITS) as usize;
        let slot = (when >> (BITS as usize * level)) as usize % SLOTS;
        let next = std::mem::replace(&mut self.first[level][slot], entry);
        if let Some(next) = self.links.get_mut(next as usize) {
            next.previous = entry;
        }
        self.links[entry as usize] =
            WheelLink { at, previous: NONE, next, level: level as u8, slot: slot as u8 };
        self.occupied[level] |= 1 << slot;
    }

    /// Removes `entry`, if present.
    pub(crate) fn remove(&mut self, entry: u32) {
        let Some(link) = self.links.get_mut(entry as usize) else { return };
        let WheelLink { previous, next, level, slot, .. } = std::mem::replace(link, FREE);
        if level == NOWHERE {
            return;
        }
        if let Some(next) = self.links.get_mut(next as usize) {
            next.previous = previous;
        }
        match self.links.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => {
                self.first[level as usize][slot as usize] = next;
                if next == NONE {
                    self.occupied[level as usize] &= !(1 << slot);
                }
            }
        }
    }

    /// The first non-empty slot: its level, number and start.
    fn earliest(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        // Slots in the past are empty, because nothing on a level is further ahead than one rotation.
        let slot = self.occupied[level].trailing_zeros() as usize;
        let shift = BITS as usize * level;
        let turn = self.now >> shift >> BITS << BITS;
        Some((level, slot, (turn | slot as u64) << shift))
    }

    /// The next instant to check. No entry is due before it.
    pub(crate) fn next(&self) -> Option<u64> {
        self.earliest().map(|(_, _, begins)| begins.max(self.now))
    }

    /// Removes and returns an entry due at or before `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<u32> {
        while let Some((level, slot, begins)) = self.earliest() {
            if begins > now {
                break;
            }
            self.now = self.now.max(begins);
            let mut entry = self.first[level][slot];
            if level == 0 {
                self.remove(entry);
                return Some(entry);
            }
            // The slot has begun, so all its entries now belong to lower levels.
            while let Some(WheelLink { at, next, .. }) = self.links.get(entry as usize).copied() {
                self.set(entry, at);
                entry = next;
            }
        }
        self.now = self.now.max(now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        Set(u32, u64),
        Remove(u32),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let ahead = prop_oneof![0..3u64, 0..70u64, 0..5_000u64, 0..400_000u64, Just(1 << 40), Just(u64::MAX)];
        let advance = prop_oneof![0..3u64, 60..70u64, 0..5_000u64, Just(300_000)];
        prop_oneof![
            4 => (0..20u32, ahead).prop_map(|(entry, ahead)| Step::Set(entry, ahead)),
            1 => (0..20u32).prop_map(Step::Remove),
            3 => advance.prop_map(Step::Advance),
        ]
    }

    proptest! {
        #[test]
        fn entries_are_returned_when_due_like_from_a_sorted_list(steps in prop::collection::vec(step(), 1..200)) {
            let (mut wheel, mut model, mut now) = (Wheel::default(), BTreeMap::new(), 0u64);
            for step in steps {
                match step {
                    Step::Set(entry, ahead) => {
                        let at = now.saturating_add(ahead);
                        wheel.set(entry, at);
                        model.insert(entry, at);
                    }
                    Step::Remove(entry) => {
                        wheel.remove(entry);
                        model.remove(&entry);
                    }
                    Step::Advance(by) => {
                        now += by;
                        let mut last = 0;
                        while let Some(entry) = wheel.pop(now) {
                            let at = model.remove(&entry);
                            prop_assert!(at.is_some_and(|at| last <= at && at <= now), "{entry} due {at:?} at {now}");
                            last = at.unwrap_or_default();
                        }
                        prop_assert!(model.values().all(|at| *at > now), "left behind at {now}: {model:?}");
                    }
                }
                for (entry, at) in &model {
                    prop_assert_eq!(wheel.at(*entry), Some(*at));
                }
                // The wheel never sleeps past a due entry, and the next instant is never in the past.
                let due = model.values().min();
                prop_assert_eq!(wheel.next().is_some(), due.is_some());
                prop_assert!(wheel.next().unwrap_or(0) <= due.copied().unwrap_or(0).max(now));
            }
        }
    }

    #[test]
    fn distant_entries_are_checked_only_a_few_times() {
        let mut wheel = Wheel::default();
        wheel.pop(12_345);
        wheel.set(0, 12_345 + 60_000);
        let mut looks = 0;
        loop {
            let next = wheel.next().expect("it is still in");
            looks += 1;
            if wheel.pop(next).is_some() {
                break;
            }
        }
        assert!(looks <= LEVELS, "{looks} looks");
        assert_eq!(wheel.next(), None);
    }
}
