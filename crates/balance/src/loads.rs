//! Servers ordered by load (`leastconn`) or by their ids and whether they have room (`first`).
//!
//! Up to sixteen servers are simply looked at: their counters stand on lines of their own, and a further shared
//! line would only be one more to fight over. More of them are kept in a [`Least`], moved whenever a request
//! comes or goes. [`crate::picker`] owns one for these two algorithms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use state::Server;
use state::served::Row;

use crate::least::{Least, NEVER};
use crate::map::gcd;
use crate::table::Table;

/// The key of a server that can take no more: after all that can.
const FULL: u32 = NEVER - 1;

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

/// The order.
#[derive(Debug)]
pub struct Loads {
    by: By,
    servers: Vec<Arc<Server>>,
    served: Row,
    /// The server of each place in the order of ties, and the place of each server.
    server_at: Vec<u32>,
    place_of: Vec<u32>,
    /// What one request weighs, by server; 0 for who must not be chosen.
    units: Vec<AtomicU32>,
    keys: Option<Least>,
}

impl Loads {
    /// An order in which nobody may be chosen until [`weigh`](Self::weigh) says who may.
    pub fn new(by: By, servers: Vec<Arc<Server>>) -> Self {
        let mut server_at: Vec<u32> = (0..servers.len() as u32).collect();
        if by == By::Room {
            server_at.sort_by_key(|&server| servers[server as usize].id);
        }
        let mut place_of = vec![0; servers.len()];
        for (place, &server) in server_at.iter().enumerate() {
            place_of[server as usize] = place as u32;
        }
        Self {
            by,
            units: servers.iter().map(|_| AtomicU32::new(0)).collect(),
            served: Row::new(servers.iter().map(|server| server.served.0.clone())),
            keys: (servers.len() > FEW).then(|| Least::new(servers.len())),
            servers,
            server_at,
            place_of,
        }
    }

    /// Takes over who may be chosen and the weights.
    pub fn weigh(&self, table: &Table) {
        let divisor = table.weights.iter().copied().fold(0, gcd).max(1);
        let heaviest = table.weights.iter().copied().max().unwrap_or(0) / divisor;
        // Of equal weights a request is simply one. Otherwise its share of the heaviest server's, in 1/256.
        let whole = if table.usable.iter().all(|&at| table.weights[at as usize] / divisor == heaviest) {
            1
        } else {
            heaviest * 256
        };
        for (server, &weight) in table.weights.iter().enumerate() {
            let unit = if weight == 0 { 0 } else { (whole / (weight / divisor)).max(1) };
            self.units[server].store(unit, Relaxed);
            self.moved(server);
        }
    }

    /// The key of `server` as it is now.
    #[inline]
    fn key(&self, server: usize) -> u32 {
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
                // What the load would be with one more, but idle servers of whatever weight come first.
                if requests == 0 { 0 } else { (requests + 1).saturating_mul(unit).min(FULL - 1) }
            }
        }
    }

    /// Says that the requests of `server`, or what it may take, changed.
    #[inline]
    pub fn moved(&self, server: usize) {
        let Some(keys) = &self.keys else { return };
        let place = self.place_of[server] as usize;
        loop {
            let key = self.key(server);
            keys.set(place, key);
            // Another may have moved it at the same time and written before: the last writer looks again.
            if self.key(server) == key {
                return;
            }
        }
    }

    /// The best server; of equals the first from place `from` on, going round. Returns it and the place behind.
    #[inline]
    pub fn best(&self, from: usize, avoid: Option<usize>) -> Option<(usize, usize)> {
        let from = if self.by == By::Room { 0 } else { from };
        if self.keys.is_some() {
            self.look_again();
        }
        let place = match &self.keys {
            Some(keys) if avoid.is_none() => keys.find(from).map(|(place, _)| place),
            _ => self.scan(from, avoid),
        }?;
        Some((self.server_at[place] as usize, place + 1))
    }

    /// Now and then one server's key is worked out anew. It is right already, unless a request came or went just while
    /// a picker over more servers took another's place: nothing else would ever tell of that.
    #[inline]
    fn look_again(&self) {
        let random = fastrand::u32(..);
        if random.is_multiple_of(16) {
            self.moved(((u64::from(random) * self.servers.len() as u64) >> 32) as usize);
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
