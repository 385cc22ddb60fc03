//! The ring of consistent hashing (manual, 4.2 `hash-type consistent`): each server has 16 points per unit of weight, at the same
//! positions as in HAProxy, so that both map a key to the same server.
//!
//! The ring is built once per state of the servers and then only read. For each point, the end of its arc is stored, which is half
//! way to the next point, so that the nearest point is found without comparing two. Points are spread evenly, so an index over the
//! top bits finds the cache line of the wanted end, whatever the number of servers. [`crate::table`] builds the ring, and
//! [`crate::picker`] queries it.

use base::hash;
use state::Server;
use state::server::ServerAddress;

use crate::settings::HashKey;

/// The points of all servers in order.
///
/// On a large ring, the cost is determined by cache misses. Therefore a point is a single word: its slice of the index implies the
/// upper bits of its end, and the word holds the lower bits and the server.
#[derive(Debug, Default)]
pub struct Ring {
    /// The lower bits of the end of the point's arc, then the server. Points are ordered by end, which is the order of positions,
    /// except that the last point comes first if its arc wraps around. They are followed by the first point again, and by padding
    /// words.
    points: Box<[u32]>,
    /// The number of points.
    count: usize,
    /// The index of the point with the lowest position.
    first: usize,
    /// The first point of each slice, followed by the number of points.
    index: Box<[u32]>,
    /// The number of bits of an end below its slice.
    shift: u32,
    /// The number of bits of a word that hold the server. It is less than the number of bits that the slices leave.
    server_bits: u32,
}

/// The number of words examined per slice. It is constant, because mispredicting the end of a loop costs more. Hardly any slice has
/// more words.
const WINDOW: usize = 16;

/// The range of numbers reserved per ID: the points of the maximum weight, 256 × 16.
const RANGE: u32 = 256 * 16;

/// The base for the points of `server` (manual, 5.2 `hash-key`). If the address is unknown or the GUID is missing, the ID is used.
pub fn base_of(server: &Server, key: HashKey, guid: Option<&str>) -> u32 {
    let id = server.id.wrapping_mul(RANGE);
    match key {
        HashKey::Id => id,
        // The bytes of the ID in network order, read as a little-endian number, as HAProxy does on most machines.
        HashKey::Id32 => hash::avalanche(server.id.swap_bytes()),
        HashKey::Guid => guid.map_or(id, |guid| hash::xxh32(guid.as_bytes(), 0)),
        HashKey::Addr | HashKey::AddrPort => match &**server.address.load() {
            ServerAddress::Ip(address) => {
                let port = if key == HashKey::AddrPort { hash::avalanche(address.port().into()) } else { 0 };
                match address.ip() {
                    std::net::IpAddr::V4(ip) => {
                        hash::avalanche(port.wrapping_add(u32::from_le_bytes(ip.octets())))
                    }
                    std::net::IpAddr::V6(ip) => hash::xxh32(&ip.octets(), port),
                }
            }
            _ => id,
        },
    }
}

impl Ring {
    /// Builds a ring of servers: index, base of the points, and number of points (weight × 16).
    pub fn new(servers: impl Iterator<Item = (usize, u32, u32)>) -> Self {
        let mut points: Vec<(u32, u32)> = servers
            .flat_map(|(index, base, count)| {
                (0..count).map(move |point| (hash::avalanche(base.wrapping_add(point)), index as u32))
            })
            .collect();
        // Servers at the same position (with the same address) stay in configuration order.
        points.sort_by_key(|(place, _)| *place);
        let first = ends(&mut points);
        let last = points.iter().map(|(_, server)| *server).max().unwrap_or(0);
        let server_bits = u32::BITS - last.leading_zeros();
        // About six points per slice, which is less than a cache line; the index has a sixth of the size.
        let bits = (points.len() / 8).next_power_of_two().trailing_zeros().clamp(server_bits + 1, 28);
        let shift = u32::BITS - bits;
        let mut index = Vec::with_capacity((1 << bits) + 1);
        for (at, (end, _)) in points.iter().enumerate() {
            while index.len() <= (end >> shift) as usize {
                index.push(at as u32);
            }
        }
        index.resize((1 << bits) + 1, points.len() as u32);
        let mask = (1 << shift) - 1;
        let count = points.len();
        let words = points.iter().map(|(end, server)| (end & mask) << server_bits | server);
        let behind = points.first().map_or(0, |(_, server)| *server);
        let points = words.chain([behind]).chain([0; WINDOW - 1]).collect();
        Self { points, count, first, index: index.into(), shift, server_bits }
    }

    /// The number of points.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the ring has no points.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The server at point `at` in order of position, wrapping around.
    pub fn at(&self, at: usize) -> Option<usize> {
        (self.count > 0).then(|| self.server((self.first + at) % self.count))
    }

    #[inline]
    fn server(&self, at: usize) -> usize {
        (self.points[at] & ((1 << self.server_bits) - 1)) as usize
    }

    /// The point nearest to `hash`; at equal distance, the preceding one. A result equal to the number of points stands for the
    /// first one.
    #[inline]
    fn nearest(&self, hash: u32) -> usize {
        let slice = (hash >> self.shift) as usize;
        let (low, high) = (self.index[slice] as usize, self.index[slice + 1] as usize);
        let wanted = (hash & ((1 << self.shift) - 1)) << self.server_bits;
        // Counted without a branch on loaded data, so that a cache miss of one request does not stall the next.
        let below = count_below(&self.points[low..], high - low, wanted)
            .unwrap_or_else(|| self.points[low..high].partition_point(|end| *end < wanted));
        low + below
    }

    /// The server nearest to `hash` that `accepts` permits, continuing around the ring. If none is permitted, the server at the end
    /// of the ring, as in HAProxy. `None` only for an empty ring.
    #[inline]
    pub fn find(&self, hash: u32, mut accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let start = self.nearest(hash);
        let first = self.server(start);
        if accepts(first) {
            return Some(first);
        }
        self.walk(start, accepts)
    }

    #[cold]
    fn walk(&self, start: usize, mut accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut refused = self.server(start);
        for at in (start + 1..self.count).chain(0..start) {
            let server = self.server(at);
            if server != refused {
                if accepts(server) {
                    return Some(server);
                }
                refused = server;
            }
        }
        self.at(self.count - 1)
    }
}

/// How many of the first `own` words are less than `wanted`; `None` if there are more words than the window. The highest bit of
/// words is zero, so that they can be compared as signed integers, which vector instructions support.
#[inline]
fn count_below(words: &[u32], own: usize, wanted: u32) -> Option<usize> {
    const COUNTED: [i32; 2 * WINDOW] = {
        let mut counted = [0; 2 * WINDOW];
        let mut at = 0;
        while at < WINDOW {
            counted[at] = 1;
            at += 1;
        }
        counted
    };
    let window = words.first_chunk::<WINDOW>()?;
    let counted = COUNTED.get(WINDOW.checked_sub(own)?..)?.first_chunk::<WINDOW>()?;
    let wanted = wanted as i32;
    let less = window.iter().zip(counted).map(|(word, one)| i32::from((*word as i32) < wanted) & one);
    Some(less.sum::<i32>() as usize)
}

/// Converts sorted positions to ends of arcs, and returns the index of the point with the lowest position. An arc ends half way to
/// the next point; the exact middle belongs to the preceding point.
fn ends(points: &mut [(u32, u32)]) -> usize {
    let Some(&(least, _)) = points.first() else { return 0 };
    for at in 0..points.len() {
        let next = points.get(at + 1).map_or(least, |(place, _)| *place);
        let place = &mut points[at].0;
        *place = place.wrapping_add(next.wrapping_sub(*place) / 2);
    }
    let round = points.len() > 1 && points[points.len() - 1].0 < points[0].0;
    if round {
        points.rotate_right(1);
    }
    usize::from(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(servers: impl Iterator<Item = (usize, u32)>) -> Ring {
        Ring::new(servers.map(|(index, weight)| (index, (index as u32 + 1) * RANGE, weight * 16)))
    }

    #[test]
    fn removing_a_server_moves_only_its_keys() {
        let all = of((0..5).map(|index| (index, 100)));
        let less = of((0..4).map(|index| (index, 100)));
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
    fn unusable_servers_are_skipped() {
        let ring = of((0..2).map(|index| (index, 1)));
        for key in 0..100 {
            assert_eq!(ring.find(hash::avalanche(key), |index| index == 1), Some(1));
        }
        let last = ring.at(ring.len() - 1);
        assert_eq!(ring.find(7, |_| false), last);
        assert_eq!(Ring::new(std::iter::empty()).find(7, |_| true), None);
    }

    #[test]
    fn the_index_matches_a_plain_search() {
        for servers in [1, 2, 3, 50, 400] {
            let weights = || (0..servers).map(|index: u32| (index, 1 + index % 7));
            let ring = of(weights().map(|(index, weight)| (index as usize, weight)));
            let mut points: Vec<(u32, usize)> = weights()
                .flat_map(|(index, weight)| (0..weight * 16).map(move |point| (index, point)))
                .map(|(index, point)| (hash::avalanche((index + 1) * RANGE + point), index as usize))
                .collect();
            points.sort();
            let count = points.len();
            assert!((0..2 * count).all(|at| ring.at(at) == Some(points[at % count].1)));
            let edges = [0, 1, u32::MAX].into_iter().chain((0..count).flat_map(|at| {
                let (place, next) = (points[at].0, points[(at + 1) % count].0);
                let middle = place.wrapping_add(next.wrapping_sub(place) / 2);
                [place.wrapping_sub(1), place, place.wrapping_add(1), middle, middle.wrapping_add(1)]
            }));
            for hash in edges {
                let next = points.partition_point(|(place, _)| *place < hash) % count;
                let previous = (next + count - 1) % count;
                let before = hash.wrapping_sub(points[previous].0) <= points[next].0.wrapping_sub(hash);
                let start = if before { previous } else { next };
                // From that point on, in order of position.
                let mut wanted: Vec<usize> =
                    (0..count.min(100)).map(|at| points[(start + at) % count].1).collect();
                wanted.dedup();
                wanted.truncate(4);
                let mut met = Vec::new();
                ring.find(hash, |server| {
                    met.push(server);
                    met.len() == wanted.len()
                });
                assert_eq!(met, wanted, "{hash}");
            }
        }
    }

    #[test]
    fn equal_positions_split_hashes_by_side() {
        // Two servers hashed by the same address: the first one gets hashes below their positions, the second one those above.
        let ring = Ring::new([(0, 7, 16), (1, 7, 16), (2, 70_000, 16)].into_iter());
        let place = hash::avalanche(7 + 3);
        assert_eq!(ring.find(place, |_| true), Some(0));
        assert_eq!(ring.find(place.wrapping_sub(1), |_| true), Some(0));
        assert_eq!(ring.find(place.wrapping_add(1), |_| true), Some(1));
    }
}
