//! Servers ordered by load (`leastconn`) or by their ids and whether they have room (`first`).
//!
//! Up to sixteen servers are simply looked at: their counters stand on lines of their own, and a
//! further shared line would only be one more to fight over. More of them are kept in a [`Least`].
//! For `leastconn` the requests of a server are counted there and nowhere else that is shared: one
//! write when a request comes and one when it goes. For `first` a key changes when a server gets
//! full or has room again. [`crate::picker`] owns one for these two algorithms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use state::Server;
use state::server_load::LoadGroup;

use crate::least::{CountTree, FULL, Least, NEVER};
use crate::map::gcd;
use crate::table::BalanceTable;

/// Servers that are looked at one by one.
const FEW: usize = 16;

/// What makes a server the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Requests served and waiting, by weight.
    Load,
    /// Room for one more, then the lower id.
    Room,
}

/// Where the servers' loads are.
#[derive(Debug)]
enum LoadOrder {
    /// With the servers, which are looked at one by one.
    Few,
    /// With the servers; keys made of them stand in a tree.
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
    /// The server of each place in the order of ties, and the place of each server.
    server_at: Vec<u32>,
    place_of: Vec<u32>,
    /// What one request weighs, by server; 0 for who must not be chosen.
    units: Vec<AtomicU32>,
    order: LoadOrder,
}

impl Loads {
    /// An order in which nobody may be chosen until [`weigh`](Self::weigh) says who may. It takes
    /// the place of `before`, which was over fewer servers: what is being served goes on to count.
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
        // Where a request was counted when it came, it has to be when it goes: that does not change
        // any more.
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

    /// Whether the requests of a server are counted here, and need not be where all workers see
    /// them.
    pub fn counts(&self) -> bool {
        matches!(self.order, LoadOrder::Counts(_))
    }

    /// Takes over who may be chosen and the weights.
    pub fn weigh(&self, table: &BalanceTable) {
        let divisor = table.weights.iter().copied().fold(0, gcd).max(1);
        let heaviest = table.weights.iter().copied().max().unwrap_or(0) / divisor;
        // Of equal weights a request is simply one. Otherwise its share of the heaviest server's,
        // in 1/256.
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

    /// The key of `server` as it is now.
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
            By::Room => u32::from(limit > 0 && (served >= limit || !state.queue.is_empty())),
            By::Load => {
                let mut requests = served;
                if limit > 0 {
                    // Only then may anyone wait for it.
                    requests += state.queue.len();
                    if requests >= limit.saturating_add(state.maxqueue) {
                        return FULL;
                    }
                }
                // What the load would be with one more, but idle servers of whatever weight come
                // first.
                if requests == 0 { 0 } else { (requests + 1).saturating_mul(unit).min(FULL - 1) }
            }
        }
    }

    /// Says that a request came to `server`, to be served or to wait there.
    #[inline]
    pub fn came(&self, server: usize) {
        match &self.order {
            LoadOrder::Few => {}
            LoadOrder::Keys(_) => self.moved(server),
            LoadOrder::Counts(tree) => tree.count(server, true),
        }
    }

    /// Says that it went.
    #[inline]
    pub fn went(&self, server: usize) {
        match &self.order {
            LoadOrder::Few => {}
            LoadOrder::Keys(_) => self.moved(server),
            LoadOrder::Counts(tree) => tree.count(server, false),
        }
    }

    /// Works the key of `server` out anew.
    #[inline]
    fn moved(&self, server: usize) {
        let LoadOrder::Keys(keys) = &self.order else { return };
        let Some(&place) = self.place_of.get(server) else { return };
        loop {
            let key = self.key(server);
            keys.set(place as usize, key);
            // Another may have moved it at the same time and written before: the last writer looks
            // again.
            if self.key(server) == key {
                return;
            }
        }
    }

    /// The best server; of equals the first from place `from` on, going round. Returns it and the
    /// place behind.
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

    /// Now and then one server's key is worked out anew. It is right already, unless a request came
    /// or went just while a picker over more servers took another's place: nothing else would ever
    /// tell of that.
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
