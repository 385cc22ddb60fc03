//! The work after owners have changed: this process sends its parts to the new owners, and its sums of keys that it owns to all
//! members.
//!
//! A process that becomes an owner already has the parts, so it sends its sums although no part changes. A member accepts them
//! only if it knows the new owner. It may notice later than this process that the former one is gone, so the sums are repeated.

use super::{ALL_NOTICED, FleetTable};
use crate::owners::{self, Owners};

/// How many entries are checked in one step, and how long to wait before the next step, in milliseconds.
const STEP: usize = 2_000;
const PAUSE: u64 = 10;

/// The entries of a table that are checked because of new owners.
#[derive(Debug, Default)]
pub(super) struct Moves {
    first: Option<Pass>,
    repeated: Option<Pass>,
    /// The places to check again after those in `repeated`.
    later: Option<Vec<u64>>,
}

/// One pass over the entries of a table.
#[derive(Debug)]
struct Pass {
    /// The places to check, as bits.
    places: Vec<u64>,
    /// The position in the table, and when to continue.
    cursor: u64,
    at: u64,
}

impl Pass {
    fn new(places: Vec<u64>, at: u64) -> Pass {
        Pass { places, cursor: 0, at }
    }
}

/// Returns the places that are in either of two sets.
fn with(mut places: Vec<u64>, others: &[u64]) -> Vec<u64> {
    places.iter_mut().zip(others).for_each(|(place, other)| *place |= other);
    places
}

impl Moves {
    /// Begins to check the entries of places that have other owners now.
    pub(super) fn begin(&mut self, places: Vec<u64>, now: u64) {
        let before = self.first.take().map(|pass| pass.places).unwrap_or_default();
        self.first = Some(Pass::new(with(places, &before), now));
    }

    /// Plans the repetition for places of which all entries were checked.
    fn repeat(&mut self, places: Vec<u64>, now: u64) {
        if self.repeated.is_none() {
            self.repeated = Some(Pass::new(places, now + ALL_NOTICED));
        } else {
            let later = self.later.take().unwrap_or_default();
            self.later = Some(with(places, &later));
        }
    }

    /// Returns when to continue.
    pub(super) fn next(&self) -> Option<u64> {
        self.first.iter().chain(&self.repeated).map(|pass| pass.at).min()
    }
}

impl FleetTable {
    /// Checks some of the entries with new owners.
    pub(super) fn go_on_moving(&mut self, owners: &mut Owners, local: usize, now: u64) {
        if let Some(mut pass) = self.moves.first.take_if(|pass| now >= pass.at) {
            if self.check_moved(&mut pass, true, (owners, local), now) {
                self.moves.repeat(pass.places, now);
            } else {
                self.moves.first = Some(pass);
            }
        }
        if let Some(mut pass) = self.moves.repeated.take_if(|pass| now >= pass.at) {
            self.moves.repeated = if self.check_moved(&mut pass, false, (owners, local), now) {
                self.moves.later.take().map(|places| Pass::new(places, now + ALL_NOTICED))
            } else {
                Some(pass)
            };
        }
    }

    /// Marks entries and sums in the places of a pass as changed. Returns whether all were checked.
    fn check_moved(
        &mut self,
        pass: &mut Pass,
        is_first: bool,
        (owners, local): (&mut Owners, usize),
        now: u64,
    ) -> bool {
        let FleetTable { table, key, name, owned, .. } = self;
        let (mut left, mut has_sums) = (STEP, false);
        let next = table.walk(pass.cursor.into(), now, |entry| {
            key.clear();
            entry.key(key);
            let place = owners::place(name, key);
            if pass.places[place / 64] >> (place % 64) & 1 == 1 {
                // A part that has become zero may replace a former one.
                if is_first && (entry.is_counted() || entry.was_changed()) {
                    entry.mark_changed();
                }
                has_sums |= owners.pair(place).contains(&Some(local)) && owned.renew(table, key);
            }
            left -= 1;
            left > 0
        });
        if has_sums {
            self.schedule(now);
        }
        (pass.cursor, pass.at) = (next.map_or(0, u64::from), now + PAUSE);
        next.is_none()
    }
}
