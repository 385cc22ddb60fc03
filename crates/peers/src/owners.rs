//! Decides which members add up the parts of a key, in a group with owners: rendezvous hashing over the members that are present.
//! Keys are grouped into places. When a member comes or goes, only the places that it gets or had change.
//!
//! The two members with the highest scores for a place send sums. A third member also stores the parts, so that none is lost if
//! two members are restarted at the same time.

use std::collections::HashMap;

use twox_hash::XxHash64;

/// The members that send the sums of a place.
pub(crate) type OwnerPair = [Option<usize>; 2];

/// The number of members that store the parts of a place.
const KEEPERS: usize = 3;

/// The number of places. A key is in one of them.
pub(crate) const PLACES: usize = 1 << 14;

/// The absence of an owner.
const NONE: u16 = u16::MAX;

/// The owners of all places.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The hash of each member's name, and whether it is present.
    members: Vec<(u64, bool)>,
    /// Computed when they are first needed.
    keepers: HashMap<usize, [u16; KEEPERS]>,
    /// The places that have other owners now, as bits.
    moved: Vec<u64>,
    has_moved: bool,
}

/// Returns the place of a key in a table.
pub(crate) fn place(table: &[u8], key: &[u8]) -> usize {
    XxHash64::oneshot(XxHash64::oneshot(0, table), key) as usize % PLACES
}

/// Returns a member's score for a place. The members with the highest scores are the owners. All members must compute the same
/// scores.
fn score(member: u64, place: usize) -> u64 {
    let mut mixed = member ^ (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns the members with the highest scores for a place.
fn elect(members: &[(u64, bool)], place: usize) -> [u16; KEEPERS] {
    let mut best = [(0, NONE); KEEPERS];
    for (at, (hash, _)) in members.iter().enumerate().filter(|(_, (_, is_present))| *is_present) {
        let own = (score(*hash, place), at as u16);
        if let Some(rank) = best.iter().position(|other| other.1 == NONE || own.0 > other.0) {
            best[rank..].rotate_right(1);
            best[rank] = own;
        }
    }
    best.map(|(_, member)| member)
}

impl Owners {
    /// Creates the places of a group in which only the member `local` is present.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, local: usize) -> Owners {
        let members =
            names.enumerate().map(|(at, name)| (XxHash64::oneshot(0, name.as_bytes()), at == local));
        Owners {
            members: members.collect(),
            keepers: HashMap::new(),
            moved: vec![0; PLACES / 64],
            has_moved: false,
        }
    }

    /// Whether a member may be an owner.
    pub(crate) fn is_present(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|(_, is_present)| *is_present)
    }

    /// Returns the members that store the parts of a place.
    pub(crate) fn keepers(&mut self, place: usize) -> [Option<usize>; KEEPERS] {
        let known = self.keepers.get(&place).copied();
        let keepers = known.unwrap_or_else(|| {
            let keepers = elect(&self.members, place);
            self.keepers.insert(place, keepers);
            keepers
        });
        keepers.map(|member| (member != NONE).then_some(usize::from(member)))
    }

    /// Returns the owners of a place.
    pub(crate) fn pair(&mut self, place: usize) -> OwnerPair {
        let [first, second, _] = self.keepers(place);
        [first, second]
    }

    /// Gives a member another name. It is not present until it has a session under this name.
    pub(crate) fn rename(&mut self, member: usize, name: &str) {
        self.set_present(member, false);
        self.members[member].0 = XxHash64::oneshot(0, name.as_bytes());
    }

    /// Records that a member is present or gone, and marks the places that have other owners now.
    pub(crate) fn set_present(&mut self, member: usize, is_present: bool) {
        if self.members[member].1 == is_present {
            return;
        }
        self.members[member].1 = is_present;
        let (hash, number) = (self.members[member].0, member as u16);
        for (place, keepers) in &mut self.keepers {
            let changes = if is_present {
                let own = score(hash, *place);
                keepers
                    .iter()
                    .any(|other| *other == NONE || own > score(self.members[usize::from(*other)].0, *place))
            } else {
                keepers.contains(&number)
            };
            if changes {
                *keepers = elect(&self.members, *place);
                self.moved[place / 64] |= 1 << (place % 64);
                self.has_moved = true;
            }
        }
    }

    /// Returns the places that have other owners since the last call, as bits, or `None` without such places.
    pub(crate) fn take_moved(&mut self) -> Option<Vec<u64>> {
        std::mem::replace(&mut self.has_moved, false)
            .then(|| std::mem::replace(&mut self.moved, vec![0; PLACES / 64]))
    }

    /// Returns the share of the places that each member owns, in thousandths, estimated from a sample.
    pub(crate) fn shares(&mut self) -> Vec<u32> {
        const SAMPLE: usize = 1000;
        let mut shares = vec![0; self.members.len()];
        for place in 0..SAMPLE {
            self.pair(place).into_iter().flatten().for_each(|owner| shares[owner] += 1);
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(names: &[String]) -> Owners {
        let mut owners = Owners::new(names.iter().map(String::as_str), 0);
        (1..names.len()).for_each(|member| owners.set_present(member, true));
        owners
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("n{number}")).collect()
    }

    #[test]
    fn keys_are_spread_evenly_and_views_agree() {
        let mut names = names(50);
        let mut all = owners(&names);
        let mut counts = vec![0; 50];
        for place in 0..PLACES {
            let [Some(first), Some(second)] = all.pair(place) else { panic!("two owners") };
            assert_ne!(first, second);
            counts[first] += 1;
            counts[second] += 1;
        }
        let share = 2 * PLACES / 50;
        assert!(counts.iter().all(|count| (share * 8 / 10..share * 12 / 10).contains(count)), "{counts:?}");
        // The order of the lines is irrelevant.
        let before: Vec<Option<String>> =
            (0..PLACES).map(|place| all.pair(place)[0].map(|member| names[member].clone())).collect();
        names.reverse();
        let mut all = owners(&names);
        assert!((0..PLACES).all(|place| before[place] == all.pair(place)[0].map(|at| names[at].clone())));
    }

    #[test]
    fn only_the_places_of_a_member_move() {
        let names = names(20);
        let mut all = owners(&names);
        let before: Vec<[Option<usize>; KEEPERS]> = (0..PLACES).map(|place| all.keepers(place)).collect();
        all.set_present(7, false);
        let moved = all.take_moved().expect("it was an owner");
        for place in 0..PLACES {
            let has_moved = moved[place / 64] >> (place % 64) & 1 == 1;
            assert_eq!(has_moved, before[place].contains(&Some(7)));
            // The others remain.
            let now = all.keepers(place);
            assert!(before[place].iter().all(|owner| *owner == Some(7) || now.contains(owner)));
        }
        all.set_present(7, true);
        assert!((0..PLACES).all(|place| all.keepers(place) == before[place]));
        assert!(all.take_moved().is_some() && all.take_moved().is_none());
    }

    #[test]
    fn a_renamed_member_owns_the_places_of_its_new_name() {
        let mut names = names(20);
        let mut all = owners(&names);
        for place in 0..PLACES {
            let _ = all.keepers(place);
        }
        all.rename(7, "other");
        assert!(!all.is_present(7) && all.take_moved().is_some());
        assert!((0..PLACES).all(|place| !all.keepers(place).contains(&Some(7))));
        all.set_present(7, true);
        names[7] = "other".to_owned();
        let mut wanted = owners(&names);
        assert!((0..PLACES).all(|place| all.keepers(place) == wanted.keepers(place)));
    }

    #[test]
    fn a_member_alone_has_all_keys() {
        let mut alone = Owners::new(["a", "b"].into_iter(), 1);
        assert_eq!(alone.pair(3), [Some(1), None]);
        assert_eq!(alone.shares(), [0, 1000]);
    }
}
