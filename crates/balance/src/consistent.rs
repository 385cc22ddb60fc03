//! The ring of consistent hashing: each server stands on it at as many points as its weight asks for.

use base::hash;

/// Points of the ring in order: place, server.
#[derive(Debug, Default)]
pub struct Ring(Vec<(u32, u32)>);

/// Points a unit of weight.
const POINTS: u32 = 16;
/// The most points of one server: 256 × 16.
const RANGE: u32 = 256 * POINTS;

impl Ring {
    /// A ring of servers: index, key (the server's id), weight.
    pub fn new(servers: impl Iterator<Item = (usize, u32, u32)>) -> Self {
        let mut points: Vec<(u32, u32)> = servers
            .flat_map(|(index, key, weight)| {
                (0..weight * POINTS).map(move |point| {
                    (hash::avalanche(key.wrapping_mul(RANGE).wrapping_add(point)), index as u32)
                })
            })
            .collect();
        points.sort_unstable();
        points.dedup_by_key(|(place, _)| *place);
        Self(points)
    }

    /// The server nearest to `hash` that `accepts` takes, going on around the ring until one does.
    pub fn find(&self, hash: u32, mut accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        let count = self.0.len();
        if count == 0 {
            return None;
        }
        let next = self.0.partition_point(|&(place, _)| place < hash) % count;
        let previous = (next + count - 1) % count;
        let after = self.0[next].0.wrapping_sub(hash);
        let before = hash.wrapping_sub(self.0[previous].0);
        let start = if before <= after { previous } else { next };
        let mut last = usize::MAX;
        (0..count).map(|step| self.0[(start + step) % count].1 as usize).find(|&index| {
            let fresh = index != last;
            last = index;
            fresh && accepts(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_a_server_away_moves_only_its_own_keys() {
        let all = Ring::new((0..5).map(|index| (index, index as u32 + 1, 100)));
        let less = Ring::new((0..4).map(|index| (index, index as u32 + 1, 100)));
        let mut moved = 0;
        for key in 0..10_000u32 {
            let hash = hash::avalanche(key);
            let before = all.find(hash, |_| true).unwrap();
            let after = less.find(hash, |_| true).unwrap();
            if before != 4 {
                assert_eq!(before, after);
            } else {
                moved += 1;
            }
        }
        assert!((1_000..3_500).contains(&moved), "{moved} keys of 10,000 were on the fifth server");
    }

    #[test]
    fn an_unusable_server_is_passed_over() {
        let ring = Ring::new((0..2).map(|index| (index, index as u32 + 1, 1)));
        for key in 0..100 {
            assert_eq!(ring.find(hash::avalanche(key), |index| index == 1), Some(1));
        }
        assert_eq!(ring.find(7, |_| false), None);
    }
}
