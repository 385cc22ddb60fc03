//! The static map (manual, 4.2 `hash-type map-based`, `static-rr`): one slot per unit of weight, each with a server. The order is
//! HAProxy's, so that both map a hash to the same server.
//!
//! HAProxy's rule for each slot is: every server gains its weight. The first server that has saved up two rounds takes the slot; if
//! there is none, the first one that owes nothing. That server then pays the sum of all weights. A literal implementation costs
//! slots × servers. In this one, each server waits for the step at which it owes nothing or has saved up two rounds, so a slot
//! costs a few heap operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Converts servers (index, weight) in configuration order to the server of each slot. `all` are the weights of all servers of the
/// backend, usable or not; their common divisor shortens the map.
pub fn map(usable: &[(usize, u32)], all: impl Iterator<Item = u32>) -> Vec<u32> {
    let divisor = u64::from(all.fold(0, gcd).max(1));
    let servers: Vec<(u32, u64)> = usable
        .iter()
        .filter(|(_, weight)| *weight > 0)
        .map(|&(index, weight)| (index as u32, u64::from(weight).div_ceil(divisor)))
        .collect();
    let total: u64 = servers.iter().map(|(_, weight)| weight).sum();
    let mut turns: Vec<u64> = vec![0; servers.len()];
    // The step at which the weights that the server has gained add up to `turns` rounds.
    let step = |server: usize, turns: u64| (turns * total).div_ceil(servers[server].1);
    let mut waiting: BinaryHeap<Reverse<(u64, usize)>> =
        (0..servers.len()).map(|server| Reverse((0, server))).collect();
    let mut saving: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<(usize, u64)>> = BinaryHeap::new();
    let mut rich: BinaryHeap<Reverse<(usize, u64)>> = BinaryHeap::new();
    let mut places = Vec::with_capacity(total as usize);
    for now in 1..=total {
        while let Some(Reverse((_, server))) = pop_due(&mut waiting, |entry| entry.0 <= now) {
            free.push(Reverse((server, turns[server])));
            saving.push(Reverse((step(server, turns[server] + 1), server, turns[server])));
        }
        while let Some(Reverse((_, server, taken))) = pop_due(&mut saving, |entry| entry.0 <= now) {
            rich.push(Reverse((server, taken)));
        }
        let chosen = pop_current(&mut rich, &turns).or_else(|| pop_current(&mut free, &turns));
        // The scores add up to one whole before each turn, so at least one server owes nothing.
        let Some(server) = chosen else { break };
        turns[server] += 1;
        waiting.push(Reverse((step(server, turns[server]), server)));
        places.push(servers[server].0);
    }
    places
}

fn pop_due<T: Ord + Copy>(heap: &mut BinaryHeap<Reverse<T>>, due: impl Fn(&T) -> bool) -> Option<Reverse<T>> {
    heap.peek().is_some_and(|Reverse(entry)| due(entry)).then(|| heap.pop()).flatten()
}

/// The first server of a heap, skipping entries for turns that were already taken.
fn pop_current(heap: &mut BinaryHeap<Reverse<(usize, u64)>>, turns: &[u64]) -> Option<usize> {
    while let Some(Reverse((server, taken))) = heap.pop() {
        if turns[server] == taken {
            return Some(server);
        }
    }
    None
}

/// The greatest common divisor; `gcd(0, n)` is `n`.
pub fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The literal implementation.
    fn literal(weights: &[u32]) -> Vec<u32> {
        let divisor = weights.iter().copied().fold(0, gcd).max(1);
        let weights: Vec<i64> = weights.iter().map(|weight| i64::from(weight / divisor)).collect();
        let total: i64 = weights.iter().sum();
        let mut scores = vec![0i64; weights.len()];
        (0..total)
            .map(|_| {
                let mut best: Option<(usize, i64)> = None;
                for (server, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
                    scores[server] += weight;
                    let rounds = (scores[server] + total) / total;
                    if best.is_none_or(|(_, most)| rounds > most) {
                        best = Some((server, rounds));
                    }
                }
                let (server, _) = best.unwrap();
                scores[server] -= total;
                server as u32
            })
            .collect()
    }

    #[test]
    fn the_map_matches_a_literal_implementation() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..300 {
            let count = random.usize(1..12);
            let most = if round % 2 == 0 { 8 } else { 257 };
            let mut weights: Vec<u32> = (0..count).map(|_| random.u32(0..most)).collect();
            weights[0] = weights[0].max(1);
            let usable: Vec<(usize, u32)> = weights.iter().copied().enumerate().collect();
            assert_eq!(map(&usable, weights.iter().copied()), literal(&weights), "{weights:?}");
        }
    }

    #[test]
    fn equal_weights_get_one_slot_each() {
        assert_eq!(map(&[(0, 100), (2, 100)], [100, 100, 100].into_iter()), [0, 2]);
        assert!(map(&[], [100].into_iter()).is_empty());
    }

    #[test]
    fn weights_of_down_servers_count_for_the_divisor() {
        // Weights 2 and 4 alone would shrink to 1 and 2; the third server's 5 prevents that.
        assert_eq!(map(&[(0, 2), (1, 4)], [2, 4, 5].into_iter()).len(), 6);
    }
}
