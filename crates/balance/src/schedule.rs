//! The order in which weighted servers take turns, worked out once for a set of weights.
//!
//! Each step every server gains its weight, the richest pays the whole and takes the turn: servers are spread
//! as evenly as their weights allow, and a table of one turn each is what a hash is mapped over as well.

/// The longest table kept: larger sums of weights are scaled down to it.
const LONGEST: u64 = 1 << 16;

/// Servers (by index) in the order of their turns. Empty when every weight is 0.
pub fn schedule(weights: &[(usize, u32)]) -> Vec<u32> {
    let weights: Vec<(usize, u64)> = weights
        .iter()
        .filter(|(_, weight)| *weight > 0)
        .map(|&(index, weight)| (index, weight.into()))
        .collect();
    let divisor = weights.iter().fold(0, |divisor, &(_, weight)| gcd(divisor, weight)).max(1);
    let total: u64 = weights.iter().map(|(_, weight)| weight / divisor).sum();
    if weights.iter().all(|(_, weight)| weight / divisor == 1) {
        return weights.iter().map(|&(index, _)| index as u32).collect();
    }
    let scale = total.div_ceil(LONGEST).max(1);
    let shares: Vec<(usize, i64)> =
        weights.iter().map(|&(index, weight)| (index, ((weight / divisor / scale).max(1)) as i64)).collect();
    let total: i64 = shares.iter().map(|(_, share)| share).sum();
    let mut scores = vec![0i64; shares.len()];
    (0..total)
        .map(|_| {
            let mut best = 0;
            for (at, (_, share)) in shares.iter().enumerate() {
                scores[at] += share;
                if scores[at] > scores[best] {
                    best = at;
                }
            }
            scores[best] -= total;
            shares[best].0 as u32
        })
        .collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_take_turns_in_the_order_of_the_configuration() {
        assert_eq!(schedule(&[(0, 100), (2, 100), (3, 100)]), [0, 2, 3]);
    }

    #[test]
    fn a_heavier_server_gets_its_share_and_not_all_at_once() {
        assert_eq!(schedule(&[(0, 5), (1, 1), (2, 1)]), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn a_weight_of_zero_gets_no_turn() {
        assert_eq!(schedule(&[(0, 0), (1, 3)]), [1]);
        assert!(schedule(&[(0, 0)]).is_empty());
    }

    #[test]
    fn very_large_sums_stay_bounded_and_keep_everyone() {
        let weights: Vec<(usize, u32)> =
            (0..2000).map(|index| (index, 1 + (index as u32 * 7) % 256)).collect();
        let table = schedule(&weights);
        assert!(table.len() as u64 <= LONGEST + 2000);
        let seen: std::collections::HashSet<u32> = table.into_iter().collect();
        assert_eq!(seen.len(), 2000);
    }
}
