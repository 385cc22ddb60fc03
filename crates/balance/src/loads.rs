//! Servers ordered by load (`leastconn`), or by room and then ID (`first`).
//!
//! Up to sixteen servers are simply scanned: their counters are on separate cache lines, and another shared line would only add
//! contention. For more servers, a [`Least`] is used. For `leastconn`, it holds the only shared request counts, with one write when
//! a request starts and one when it ends. For `first`, a key changes when a server becomes full or has room again.
//! [`crate::picker`] has one for these two algorithms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use state::Server;
use state::server_load::LoadGroup;

use crate::least::{CountTree, FULL, Least, NEVER};
use crate::map::gcd;
use crate::table::BalanceTable;

/// Up to this number, servers are scanned.
const FEW: usize = 16;

/// The criterion of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Requests active and queued, by weight.
    Load,
    /// Servers with room for one more request first, then the lower ID.
    Room,
}

/// The location of the servers' loads.
#[derive(Debug)]
enum LoadOrder {
    /// The load is in the servers, which are scanned.
    Few,
    /// The load is in the servers; a tree holds the keys that are computed from it.
    Keys(Least),
    /// In a tree.
    Counts(Least),
}

/// The order.
#[derive(Debug)]
pub struct Loads {
    by: By,
    servers: Vec<Arc<Server>>,
    served: LoadGroup,
    /// The server at each position in the order of ties, and the position of each server.
    server_at: Vec<u32>,
    place_of: Vec<u32>,
    /// The weight of one request, by server; 0 for servers that must not be chosen.
    units: Vec<AtomicU32>,
    order: LoadOrder,
}

impl Loads {
    /// Creates an order in which no server may be chosen until [`weigh`](Self::weigh) is called. It replaces `before`, which had
    /// fewer servers; requests in progress remain counted.
    pub fn new(by: By, servers: Vec<Arc<Server>>, before: Option<&Self>) -> Self {
        let count = servers.len();
        let mut server_at: Vec<u32> = (0..count as u32).collect();
        if by == By::Room {
            server_at.sort_by_key(|&server| servers[server as usize].id);
        }
        let mut place_of = vec![0; count];
        for (place, &server) in server_at.iter().enumerate() {
            place_of[server as usize] = place as u32;
        }
        // The end of a request must be counted in the same place as its start, so the kind of order cannot change any more.
        let order = match before.map(|before| &before.order) {
            None if count > FEW && by == By::Load => {
                LoadOrder::Counts(Least::of_counts(CountTree::default(), count))
            }
            Some(LoadOrder::Counts(before)) => {
                LoadOrder::Counts(Least::of_counts(before.counts().cloned().unwrap_or_default(), count))
            }
            _ if count > FEW => LoadOrder::Keys(Least::of_keys(count)),
            _ => LoadOrder::Few,
        };
        Self {
            by,
            units: servers.iter().map(|_| AtomicU32::new(0)).collect(),
            served: LoadGroup::new(servers.iter().map(|server| server.served.0.clone())),
            order,
            servers,
            server_at,
            place_of,
        }
    }

    /// Whether this order counts requests per server, so that no other shared count is needed.
    pub fn counts(&self) -> bool {
        matches!(self.order, LoadOrder::Counts(_))
    }

    /// Updates weights and eligibility.
    pub fn weigh(&self, table: &BalanceTable) {
        let divisor = table.weights.iter().copied().fold(0, gcd).max(1);
        let heaviest = table.weights.iter().copied().max().unwrap_or(0) / divisor;
        // With equal weights, a request counts as one. Otherwise it counts as its share of the heaviest server's weight, in units
        // of 1/256.
        let whole = if table.usable.iter().all(|&at| table.weights[at as usize] / divisor == heaviest) {
            1
        } else {
            heaviest * 256
        };
        let unit = |weight: u32| if weight == 0 { 0 } else { (whole / (weight / divisor)).max(1) };
        if let LoadOrder::Counts(tree) = &self.order {
            tree.weigh(self.servers.iter().zip(&table.weights).map(|(server, weight)| {
                let limit = server.maxconn.load(Relaxed);
                (unit(*weight), if limit > 0 { limit.saturating_add(server.maxqueue) } else { 0 })
            }));
            return;
        }
        for (server, &weight) in table.weights.iter().enumerate() {
            self.units[server].store(unit(weight), Relaxed);
            self.moved(server);
        }
    }

    /// The current key of `server`.
    #[inline]
    fn key(&self, server: usize) -> u32 {
        if let LoadOrder::Counts(tree) = &self.order {
            return tree.key(server);
        }
        let unit = self.units[server].load(Relaxed);
        if unit == 0 {
            return NEVER;
        }
        let state = &self.servers[server];
        let served = self.served[server].load(Relaxed);
        let limit = state.maxconn.load(Relaxed);
        match self.by {
            By::Room => {
                let is_full = || served.saturating_add(state.elsewhere.load(Relaxed)) >= limit;
                u32::from(limit > 0 && (is_full() || !state.queue.is_empty()))
            }
            By::Load => {
                let mut requests = served;
                if limit > 0 {
                    // Only in this case may a request wait for the server.
                    requests += state.queue.len();
                    requests = requests.saturating_add(state.elsewhere.load(Relaxed));
                    if requests >= limit.saturating_add(state.maxqueue) {
                        return FULL;
                    }
                }
                // The load with one more request. Idle servers come first, whatever their weight.
                if requests == 0 { 0 } else { (requests + 1).saturating_mul(unit).min(FULL - 1) }
            }
        }
    }

    /// Records that `server` got a request, to be served or queued.
    #[inline]
    pub fn came(&self, server: usize) {
        match &self.order {
            LoadOrder::Few => {}
            LoadOrder::Keys(_) => self.moved(server),
            LoadOrder::Counts(tree) => tree.count(server, true),
        }
    }

    /// Records that a request left `server`.
    #[inline]
    pub fn went(&self, server: usize) {
        match &self.order {
            LoadOrder::Few => {}
            LoadOrder::Keys(_) => self.moved(server),
            LoadOrder::Counts(tree) => tree.count(server, false),
        }
    }

    /// Recomputes the key of `server`.
    #[inline]
    fn moved(&self, server: usize) {
        let LoadOrder::Keys(keys) = &self.order else { return };
        let Some(&place) = self.place_of.get(server) else { return };
        loop {
            let key = self.key(server);
            keys.set(place as usize, key);
            // Another thread may have updated the key at the same time with an older value. The last writer checks again.
            if self.key(server) == key {
                return;
            }
        }
    }

    /// The best server. Among equals, the first at or after position `from`, wrapping around. Returns the server and the next
    /// position.
    #[inline]
    pub fn best(&self, from: usize, avoid: Option<usize>) -> Option<(usize, usize)> {
        let from = if self.by == By::Room { 0 } else { from };
        self.look_again();
        let place = match &self.order {
            LoadOrder::Keys(tree) | LoadOrder::Counts(tree) if avoid.is_none() => {
                tree.find(from).map(|(place, _)| place)
            }
            _ => self.scan(from, avoid),
        }?;
        Some((self.server_at[place] as usize, place + 1))
    }

    /// Occasionally recomputes the key of one server. The key is already correct, unless a request started or ended at the moment
    /// when another picker with more servers took over; nothing else would ever correct that.
    #[inline]
    fn look_again(&self) {
        if matches!(self.order, LoadOrder::Few) {
            return;
        }
        let random = fastrand::u32(..);
        if random.is_multiple_of(16) {
            let server = ((u64::from(random) * self.servers.len() as u64) >> 32) as usize;
            match &self.order {
                LoadOrder::Counts(tree) => tree.look_again(server),
                _ => self.moved(server),
            }
        }
    }

    fn scan(&self, from: usize, avoid: Option<usize>) -> Option<usize> {
        let count = self.server_at.len();
        let from = if from < count { from } else { 0 };
        let mut best = None;
        let mut least = NEVER;
        for place in (from..count).chain(0..from) {
            let server = self.server_at[place] as usize;
            let key = self.key(server);
            if key < least && Some(server) != avoid {
                (best, least) = (Some(place), key);
            }
        }
        best
    }
}
