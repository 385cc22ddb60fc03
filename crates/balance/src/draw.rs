//! A weighted draw in constant time (`random`, `peak-ewma`): the alias method of Walker and Vose.
//!
//! Every usable server owns one column of equal width. A column represents the server itself up to a threshold, and another server
//! above it. A draw is therefore one random number and one column lookup, whatever the weights and the number of servers.

/// Columns: the threshold, the owner and the other server.
#[derive(Debug, Default)]
pub struct Draw(Box<[DrawColumn]>);

#[derive(Debug, Clone, Copy)]
struct DrawColumn {
    threshold: u32,
    own: u32,
    other: u32,
}

impl Draw {
    /// Creates columns for servers (index, weight). Servers of weight 0 are never drawn.
    pub fn new(weights: &[(usize, u32)]) -> Self {
        let servers: Vec<(u32, u64)> = weights
            .iter()
            .filter(|(_, weight)| *weight > 0)
            .map(|&(index, weight)| (index as u32, weight.into()))
            .collect();
        let count = servers.len() as u64;
        let total: u64 = servers.iter().map(|(_, weight)| weight).sum();
        // Each server contributes weight × count; a column has room for `total`.
        let mut left: Vec<u64> = servers.iter().map(|(_, weight)| weight * count).collect();
        let mut columns: Vec<DrawColumn> =
            servers.iter().map(|&(own, _)| DrawColumn { threshold: u32::MAX, own, other: own }).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
            (0..servers.len()).partition(|&server| left[server] < total);
        while let (Some(taker), Some(giver)) = (poor.pop(), rich.pop()) {
            columns[taker].threshold = ((left[taker] << 32) / total) as u32;
            columns[taker].other = servers[giver].0;
            left[giver] -= total - left[taker];
            if left[giver] < total { poor.push(giver) } else { rich.push(giver) }
        }
        Self(columns.into())
    }

    /// Draws a server with `random`, which must have 64 random bits; `None` if the set is empty.
    #[inline]
    pub fn draw(&self, random: u64) -> Option<usize> {
        let at = ((random >> 32) * self.0.len() as u64) >> 32;
        let column = self.0.get(at as usize)?;
        Some((if random as u32 <= column.threshold { column.own } else { column.other }) as usize)
    }

    /// A server other than `index`, near the column hit by `random`; `None` if there is no other.
    pub fn other_than(&self, index: usize, random: u64) -> Option<usize> {
        let count = self.0.len();
        let start = ((random >> 32) * count as u64) >> 32;
        (0..count).map(|step| self.0[(start as usize + step) % count].own as usize).find(|own| *own != index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_weights() {
        let weights: [(usize, u32); 5] = [(0, 1), (1, 256), (2, 0), (3, 17), (4, 100)];
        let draw = Draw::new(&weights);
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = [0u32; 5];
        const DRAWS: u32 = 1_000_000;
        for _ in 0..DRAWS {
            counts[draw.draw(random.u64(..)).unwrap()] += 1;
        }
        for (index, weight) in weights {
            let wanted = f64::from(weight) / 374.0;
            let got = f64::from(counts[index]) / f64::from(DRAWS);
            assert!((wanted - got).abs() < 0.002, "server {index}: {got} instead of {wanted}");
        }
    }

    #[test]
    fn drawing_from_an_empty_set_yields_none() {
        assert_eq!(Draw::new(&[(0, 0)]).draw(5), None);
        let one = Draw::new(&[(3, 7)]);
        assert_eq!((one.draw(u64::MAX), one.other_than(3, 9)), (Some(3), None));
        let two = Draw::new(&[(3, 7), (4, 1)]);
        assert_eq!(two.other_than(3, 0), Some(4));
    }
}
