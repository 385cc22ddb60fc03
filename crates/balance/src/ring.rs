//! The ring of consistent hashing (manual, 4.2 `hash-type consistent`): each server stands on it at 16 points a
//! unit of weight, at HAProxy's places, so that both map a key to the same server.
//!
//! Made once for a state of the servers and only read afterwards: a sorted array with an index over the top bits
//! of the places. Places are spread evenly, so the index leads to within a line of cache of the point looked for,
//! whatever the number of servers. [`crate::table`] makes it, [`crate::picker`] asks it.

use base::hash;
use state::Server;
use state::server::ServerAddress;

use crate::settings::HashKey;

/// Points of all servers in order.
///
/// What costs time on a large ring is memory that is not in the cache. So a point is one word: the slice that it
/// lies in gives the upper bits of its place, the word holds the lower ones and the server.
#[derive(Debug, Default)]
pub struct Ring {
    /// The lower bits of the place, then the server.
    points: Box<[u32]>,
    /// The first point of each slice, and the number of points.
    index: Box<[u32]>,
    /// How many bits of a place lie below the slice.
    shift: u32,
    /// How many bits of a word hold the server; not more than the slices leave.
    server_bits: u32,
}

/// The numbers that one id reserves: the points of the largest weight, 256 × 16.
const RANGE: u32 = 256 * 16;

/// Where the first point of `server` is taken from (manual, 5.2 `hash-key`); addresses that are unknown, and a
/// guid that is not set, fall back on the id.
pub fn base_of(server: &Server, key: HashKey, guid: Option<&str>) -> u32 {
    let id = server.id.wrapping_mul(RANGE);
    match key {
        HashKey::Id => id,
        // The bytes of the id in network order, read as a little-endian number: what HAProxy does on most machines.
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
    /// A ring of servers: index, where its points are taken from, how many (weight × 16).
    pub fn new(servers: impl Iterator<Item = (usize, u32, u32)>) -> Self {
        let mut points: Vec<(u32, u32)> = servers
            .flat_map(|(index, base, count)| {
                (0..count).map(move |point| (hash::avalanche(base.wrapping_add(point)), index as u32))
            })
            .collect();
        // Servers that share a place (the same address twice) stay in the order of the configuration.
        points.sort_by_key(|(place, _)| *place);
        let last = points.iter().map(|(_, server)| *server).max().unwrap_or(0);
        let server_bits = u32::BITS - last.leading_zeros();
        // About eight points a slice: a line of cache, and an index an eighth as large.
        let bits = (points.len() / 8).next_power_of_two().trailing_zeros().clamp(server_bits.max(1), 28);
        let shift = u32::BITS - bits;
        let mut index = Vec::with_capacity((1 << bits) + 1);
        for (at, (place, _)) in points.iter().enumerate() {
            while index.len() <= (place >> shift) as usize {
                index.push(at as u32);
            }
        }
        index.resize((1 << bits) + 1, points.len() as u32);
        let mask = (1 << shift) - 1;
        let points =
            points.into_iter().map(|(place, server)| (place & mask) << server_bits | server).collect();
        Self { points, index: index.into(), shift, server_bits }
    }

    /// How many points stand on it.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether no server stands on it.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The server at point `at` in the order of places, going round.
    pub fn at(&self, at: usize) -> Option<usize> {
        let count = self.points.len();
        (count > 0).then(|| self.server(at % count))
    }

    #[inline]
    fn server(&self, at: usize) -> usize {
        (self.points[at] & ((1 << self.server_bits) - 1)) as usize
    }

    /// The point nearest to `hash`; of two at the same distance the one before.
    #[inline]
    fn nearest(&self, hash: u32) -> usize {
        let count = self.points.len();
        let slice = (hash >> self.shift) as usize;
        let (low, high) = (self.index[slice] as usize, self.index[slice + 1] as usize);
        let wanted = (hash & ((1 << self.shift) - 1)) << self.server_bits;
        let points = &self.points[low..high];
        // Counted without a branch on what is loaded: one request's miss does not hold up the next.
        let below = if points.len() <= 32 {
            points.iter().map(|point| usize::from(*point < wanted)).sum()
        } else {
            points.partition_point(|point| *point < wanted)
        };
        let next = low + below;
        let after = match next {
            _ if next < high => {
                (self.points[next] >> self.server_bits | (slice as u32) << self.shift).wrapping_sub(hash)
            }
            _ => self.place_from(next % count, slice).wrapping_sub(hash),
        };
        let previous = if next == 0 { count - 1 } else { next - 1 };
        let before = match next {
            _ if next > low => {
                hash.wrapping_sub(self.points[previous] >> self.server_bits | (slice as u32) << self.shift)
            }
            _ => hash.wrapping_sub(self.place_from(previous, slice)),
        };
        if before <= after { previous } else { next % count }
    }

    /// The place of point `at`, which lies in a slice near `slice`, going round.
    fn place_from(&self, at: usize, mut slice: usize) -> u32 {
        let slices = self.index.len() - 1;
        let forward = self.index[slice + 1] as usize <= at;
        // The nearest point is a slice or two away, unless hardly any point stands on the ring.
        while !(self.index[slice] as usize <= at && at < self.index[slice + 1] as usize) {
            slice = if forward { slice + 1 } else { slice + slices - 1 } % slices;
        }
        self.points[at] >> self.server_bits | (slice as u32) << self.shift
    }

    /// The server nearest to `hash` that `accepts` takes, going on around the ring until one does. When none
    /// does, the one at the end of the ring, as in HAProxy; `None` only of an empty ring.
    #[inline]
    pub fn find(&self, hash: u32, mut accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        if self.points.is_empty() {
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
        for at in (start + 1..self.points.len()).chain(0..start) {
            let server = self.server(at);
            if server != refused {
                if accepts(server) {
                    return Some(server);
                }
                refused = server;
            }
        }
        self.points.len().checked_sub(1).map(|last| self.server(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(servers: impl Iterator<Item = (usize, u32)>) -> Ring {
        Ring::new(servers.map(|(index, weight)| (index, (index as u32 + 1) * RANGE, weight * 16)))
    }

    #[test]
    fn taking_a_server_away_moves_only_its_own_keys() {
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
    fn an_unusable_server_is_passed_over() {
        let ring = of((0..2).map(|index| (index, 1)));
        for key in 0..100 {
            assert_eq!(ring.find(hash::avalanche(key), |index| index == 1), Some(1));
        }
        let last = ring.at(ring.len() - 1);
        assert_eq!(ring.find(7, |_| false), last);
        assert_eq!(Ring::new(std::iter::empty()).find(7, |_| true), None);
    }

    fn place(ring: &Ring, at: usize) -> u32 {
        let slice = ring.index.partition_point(|first| *first as usize <= at) - 1;
        ring.points[at] >> ring.server_bits | (slice as u32) << ring.shift
    }

    #[test]
    fn the_index_finds_what_a_plain_search_finds() {
        for servers in [1, 2, 3, 50, 400] {
            let ring = of((0..servers).map(|index| (index, 1 + index as u32 % 7)));
            let places: Vec<u32> = (0..ring.len()).map(|at| place(&ring, at)).collect();
            assert!(places.is_sorted());
            let edges = [0, u32::MAX].into_iter().chain(places.iter().flat_map(|place| {
                [place.wrapping_sub(1), *place, place.wrapping_add(1), place.wrapping_add(1 << 20)]
            }));
            for hash in edges {
                let next = places.partition_point(|place| *place < hash) % places.len();
                let previous = (next + places.len() - 1) % places.len();
                let before = hash.wrapping_sub(places[previous]) <= places[next].wrapping_sub(hash);
                assert_eq!(ring.nearest(hash), if before { previous } else { next }, "{hash}");
            }
        }
    }
}
