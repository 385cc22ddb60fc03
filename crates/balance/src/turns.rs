//! The order in which weighted servers take turns (`roundrobin`), computed for a set of weights. The order is the same as in
//! HAProxy.
//!
//! With a total weight of `total`, the turns of a server of weight w are total/w positions apart. At each position, the server
//! whose turn was due earliest is next. If none is due, a server that has had no turn yet is next, the heaviest first. Of turns
//! that are due at the same position, the one with the larger fraction of a position, in units of the server's weight, is first,
//! then the one that was queued first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The maximum length of a table. Larger sums of weights are scaled down to it.
const LONGEST: u64 = 1 << 18;

/// Servers (index, weight) in the order of their turns. Empty if every weight is 0.
pub fn turns(weights: &[(usize, u32)]) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |divisor, &(_, weight)| crate::map::gcd(divisor, weight)).max(1);
    let weighted = || weights.iter().filter(|(_, weight)| *weight > 0);
    if weighted().all(|(_, weight)| weight / divisor == 1) {
        return weighted().map(|&(index, _)| index as u32).collect();
    }
    let whole: u64 = weighted().map(|(_, weight)| u64::from(weight / divisor)).sum();
    let scale = whole.div_ceil(LONGEST).max(1);
    let shares: Vec<(u32, u64)> = weighted()
        .map(|&(index, weight)| (index as u32, (u64::from(weight / divisor) / scale).max(1)))
        .collect();
    let total: u64 = shares.iter().map(|(_, share)| share).sum();
    let mut line = Rotation::new(shares);
    let first: Vec<u32> = (0..total).map(|place| line.take(place, total)).collect();
    // In the first round, some servers may get a turn too early, at the expense of others. All later rounds are the same.
    if line.is_even(&first) {
        first
    } else {
        (total..2 * total).map(|place| line.take(place, total)).collect()
    }
}

/// A server's next turn: the position, the remaining fraction in units of the server's weight minus that weight, and when the turn
/// was queued.
type ServerTurn = (u64, i64, u64);

/// The servers during the computation.
struct Rotation {
    /// Index and weight.
    shares: Vec<(u32, u64)>,
    /// Servers that have had no turn yet, the next one last.
    fresh: Vec<usize>,
    queued: BinaryHeap<Reverse<(ServerTurn, usize)>>,
    count: u64,
}

impl Rotation {
    fn new(shares: Vec<(u32, u64)>) -> Self {
        let mut fresh: Vec<usize> = (0..shares.len()).collect();
        fresh.sort_by_key(|server| Reverse(shares[*server].1));
        fresh.reverse();
        Self { shares, fresh, queued: BinaryHeap::new(), count: 0 }
    }

    /// The server at `place`.
    fn take(&mut self, place: u64, total: u64) -> u32 {
        let waits = self.queued.peek().is_some_and(|Reverse(((due, ..), _))| *due <= place);
        let fresh = if waits { None } else { self.fresh.pop() };
        let next = fresh.map(|server| (server, place, 0)).or_else(|| {
            let Reverse(((due, rest, _), server)) = self.queued.pop()?;
            Some((server, due, (rest + self.shares[server].1 as i64) as u64))
        });
        // There is always a server, because servers are never removed.
        let Some((server, due, rest)) = next else { return 0 };
        let (index, share) = self.shares[server];
        let rest = rest + total % share;
        let due = due + total / share + rest / share;
        self.count += 1;
        self.queued.push(Reverse(((due, (rest % share) as i64 - share as i64, self.count), server)));
        index
    }

    /// Whether every server has as many turns in `round` as its weight.
    fn is_even(&self, round: &[u32]) -> bool {
        let mut left: HashMap<u32, u64> = self.shares.iter().copied().collect();
        round.iter().all(|index| {
            left.get_mut(index).is_some_and(|left| left.checked_sub(1).map(|less| *left = less).is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_take_turns_in_the_order_of_the_configuration() {
        assert_eq!(turns(&[(0, 100), (2, 100), (3, 100)]), [0, 2, 3]);
    }

    #[test]
    fn heavier_servers_get_their_share_spread_out() {
        assert_eq!(turns(&[(0, 5), (1, 1), (2, 1)]), [0, 0, 0, 1, 0, 0, 2]);
    }

    #[test]
    fn the_order_matches_haproxy() {
        // HAProxy 3.5's order for these weights. If the first round differs, this is the second round.
        for (weights, order) in [
            (&[1, 10][..], "11111111110"),
            (&[3, 2], "00101"),
            (&[1, 2, 3], "212021"),
            (&[7, 3, 2], "001020100012"),
            (&[13, 7], "00100100101001001001"),
            (&[7, 13, 5], "1101201102110121011201102"),
            (&[17, 5, 3], "0001002010000102001000201"),
            (&[11, 1, 1, 1, 1], "000100020003004"),
            (&[6, 6, 6, 1], "0120120120120120123"),
            (&[8, 4, 2, 1], "001020103010201"),
            (&[2, 0, 1], "002"),
            (&[128, 64, 32], "0010201"),
            (&[3, 3, 2, 2], "3120130210"),
        ] {
            let list: Vec<(usize, u32)> = weights.iter().copied().enumerate().collect();
            let own: String = turns(&list).iter().map(u32::to_string).collect();
            assert_eq!(own, order, "{weights:?}");
        }
    }

    #[test]
    fn every_server_gets_exactly_its_share_of_a_round() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..100 {
            let weights: Vec<(usize, u32)> =
                (0..random.usize(1..20)).map(|index| (index, random.u32(1..257))).collect();
            let table = turns(&weights);
            let divisor = weights.iter().fold(0, |divisor, &(_, weight)| crate::map::gcd(divisor, weight));
            for &(index, weight) in &weights {
                let share = table.iter().filter(|turn| **turn == index as u32).count();
                assert_eq!(share as u32, weight / divisor, "{weights:?}");
            }
        }
    }

    #[test]
    fn a_weight_of_zero_gets_no_turn() {
        assert_eq!(turns(&[(0, 0), (1, 3)]), [1]);
        assert!(turns(&[(0, 0)]).is_empty());
    }

    #[test]
    fn very_large_sums_are_bounded_and_keep_every_server() {
        let weights: Vec<(usize, u32)> =
            (0..10_000).map(|index| (index, 1 + (index as u32 * 7) % 256)).collect();
        let table = turns(&weights);
        assert!(table.len() as u64 <= LONGEST + 10_000);
        let seen: std::collections::HashSet<u32> = table.into_iter().collect();
        assert_eq!(seen.len(), 10_000);
    }
}
