//! The order in which weighted servers take turns (`roundrobin`), worked out once for a set of weights.
//!
//! The k-th turn of a server of weight w may begin once k/w of the round has passed and is due when (k+1)/w has:
//! of those that may begin, the one due first takes the turn. That spreads each server's turns as evenly as its
//! weight allows and needs one heap operation or two a turn.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The longest table kept: larger sums of weights are scaled down to it.
const LONGEST: u64 = 1 << 18;

/// Servers (index, weight) in the order of their turns. Empty when every weight is 0.
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
    // Instants are counted in 1/total of a round, scaled so that a server's own grain fits: total/share of them
    // lie between its turns. Rounding moves a turn by less than one place.
    const GRAIN: u64 = 1 << 16;
    let instant = |server: usize, turn: u64| turn * total * GRAIN / shares[server].1;
    let mut resting: BinaryHeap<Reverse<(u64, usize, u64)>> =
        (0..shares.len()).map(|server| Reverse((0, server, 0))).collect();
    let mut ready: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    (0..total)
        .map(|now| {
            while resting.peek().is_some_and(|Reverse((start, ..))| *start <= now * GRAIN) {
                let Some(Reverse((_, server, turn))) = resting.pop() else { break };
                ready.push(Reverse((instant(server, turn + 1), server, turn)));
            }
            // Rounding may leave a place before the next may begin: it begins early then.
            let (server, turn) = match ready.pop().or_else(|| resting.pop()) {
                Some(Reverse((_, server, turn))) => (server, turn),
                None => (0, 0),
            };
            resting.push(Reverse((instant(server, turn + 1), server, turn + 1)));
            shares[server].0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_take_turns_in_the_order_of_the_configuration() {
        assert_eq!(turns(&[(0, 100), (2, 100), (3, 100)]), [0, 2, 3]);
    }

    #[test]
    fn a_heavier_server_gets_its_share_and_not_all_at_once() {
        assert_eq!(turns(&[(0, 5), (1, 1), (2, 1)]), [0, 1, 0, 0, 2, 0, 0]);
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
    fn very_large_sums_stay_bounded_and_keep_everyone() {
        let weights: Vec<(usize, u32)> =
            (0..10_000).map(|index| (index, 1 + (index as u32 * 7) % 256)).collect();
        let table = turns(&weights);
        assert!(table.len() as u64 <= LONGEST + 10_000);
        let seen: std::collections::HashSet<u32> = table.into_iter().collect();
        assert_eq!(seen.len(), 10_000);
    }
}
