//! A hierarchical timing wheel of numbered entries: putting one in, moving it and taking it out
//! cost the same however many there are. Knows instants in ms, not what happens then;
//! [`crate::timer`] does.
//!
//! Level 0 has a slot a millisecond for the next 64, each level above one for 64 times as long. An
//! entry lies on the level of the highest digit, in base 64, in which its instant differs from the
//! present; when its slot begins, it moves down.

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// 64⁷ ms are 139 years: what lies further ahead is looked at again then.
const LEVELS: usize = 7;
const FURTHEST: u64 = (1 << (BITS as usize * LEVELS)) - 1;
const NONE: u32 = u32::MAX;
/// In place of a level: the entry is in no slot.
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

/// Entries by when they are due.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The present: everything due before was handed out.
    now: u64,
    /// A bit for each slot that holds something.
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

    /// Puts `entry` in, or moves it: due at `at`.
    pub(crate) fn set(&mut self, entry: u32, at: u64) {
        if self.links.len() <= entry as usize {
            self.links.resize(entry as usize + 1, FREE);
        }
        self.remove(entry);
        // What is late already is due at once; what is too far ahead is looked at as late as can be
        // told.
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

    /// Takes `entry` out, if it is in.
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

    /// The first slot that holds something: its level, its number, when it begins.
    fn earliest(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        // Slots that lie behind are empty: nothing on a level is further ahead than one turn of it.
        let slot = self.occupied[level].trailing_zeros() as usize;
        let shift = BITS as usize * level;
        let turn = self.now >> shift >> BITS << BITS;
        Some((level, slot, (turn | slot as u64) << shift))
    }

    /// When to look again: nothing is due before.
    pub(crate) fn next(&self) -> Option<u64> {
        self.earliest().map(|(_, _, begins)| begins.max(self.now))
    }

    /// Takes out an entry that is due at `now` or before.
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
            // The slot has begun: nearer now, all that it holds belongs to lower levels.
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
        fn entries_come_out_when_they_are_due_and_as_a_sorted_list_would_give_them(steps in prop::collection::vec(step(), 1..200)) {
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
                // It never sleeps past what is due, and what it wakes for lies ahead.
                let due = model.values().min();
                prop_assert_eq!(wheel.next().is_some(), due.is_some());
                prop_assert!(wheel.next().unwrap_or(0) <= due.copied().unwrap_or(0).max(now));
            }
        }
    }

    #[test]
    fn what_is_far_ahead_is_looked_at_a_few_times_only() {
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
