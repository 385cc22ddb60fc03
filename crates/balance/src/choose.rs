//! The choice of a server by each algorithm, based on a table (manual, 4.2 `balance`). Called by [`crate::Picker::pick`].

use std::sync::atomic::Ordering::Relaxed;

use runtime::shared::Shared as _;
use state::Server;

use crate::picker::{Core, PickMethod, Wish};
use crate::settings::PreserveAffinity;
use crate::table::BalanceTable;

impl Core {
    #[inline]
    pub(crate) fn choose(
        &self,
        table: &BalanceTable,
        wish: Wish,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        match self.method {
            PickMethod::Turns => self.next_turn(table, wish.avoid, limit),
            PickMethod::Map => match wish.hash {
                Some(hash) if !table.order.is_empty() => {
                    let index = table.order[hash as usize % table.order.len()] as usize;
                    // HAProxy would retry the server that just failed.
                    if Some(index) == wish.avoid {
                        self.next_turn(table, wish.avoid, limit)
                    } else {
                        Some(index)
                    }
                }
                _ => self.next_turn(table, wish.avoid, limit),
            },
            PickMethod::Ring => match wish.hash {
                Some(hash) => table.ring.find(hash, |index| self.fits(table, index, wish, limit)),
                None => self.next_around(table, wish.avoid, limit),
            },
            PickMethod::Loads => {
                let position = self.position();
                let (index, next) = self.loads.as_ref()?.best(position.load(Relaxed), wish.avoid)?;
                position.store(next, Relaxed);
                Some(index)
            }
            PickMethod::Random(draws) => self.random(table, draws, wish, limit),
            PickMethod::PeakEwma { decay_us } => self.peak_ewma(table, decay_us, wish, limit),
            PickMethod::Sticky => table.usable.first().map(|&index| index as usize),
        }
    }

    /// Whether `index` would serve a request immediately.
    #[inline]
    fn has_room(&self, table: &BalanceTable, index: usize, limit: &impl Fn(&Server) -> u32) -> bool {
        // If no server has a limit, none has to be checked.
        if !table.limited {
            return true;
        }
        let server = &self.servers[index];
        server.maxconn.load(Relaxed) == 0 || (server.queue.is_empty() && server.serves_fewer(limit(server)))
    }

    /// The next server in a round robin list, skipping full ones.
    #[inline]
    fn next_turn(
        &self,
        table: &BalanceTable,
        avoid: Option<usize>,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        let order = &table.order;
        if order.is_empty() {
            return None;
        }
        let at = self.position().add(1) % order.len();
        let index = order[at] as usize;
        if Some(index) != avoid && self.has_room(table, index, limit) {
            return Some(index);
        }
        self.later_turn(table, at, avoid, limit)
    }

    #[cold]
    fn later_turn(
        &self,
        table: &BalanceTable,
        at: usize,
        avoid: Option<usize>,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        let order = &table.order;
        let around = || order[at..].iter().chain(&order[..at]).map(|&index| index as usize);
        let mut passed = 0;
        let free = around().find(|&index| {
            passed += 1;
            Some(index) != avoid && self.has_room(table, index, limit)
        });
        if free.is_some() {
            self.position().add(passed - 1);
            return free;
        }
        // All servers are full, so the request waits for the server that has its turn.
        around().find(|index| Some(*index) != avoid)
    }

    /// Chooses the next server around the ring for a request without a key, as in HAProxy.
    fn next_around(
        &self,
        table: &BalanceTable,
        avoid: Option<usize>,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        let start = self.position().add(1);
        let others = || {
            (0..table.ring.len())
                .filter_map(|step| table.ring.at(start + step))
                .filter(|at| Some(*at) != avoid)
        };
        others().find(|&index| self.has_room(table, index, limit)).or_else(|| others().next())
    }

    /// Whether a consistent hash may stop at `index`.
    #[inline]
    fn fits(&self, table: &BalanceTable, index: usize, wish: Wish, limit: &impl Fn(&Server) -> u32) -> bool {
        if Some(index) == wish.avoid || !self.within_factor(table, index, wish.now_us) {
            return false;
        }
        if self.preserve == PreserveAffinity::Always {
            return true;
        }
        let server = &self.servers[index];
        if server.maxconn.load(Relaxed) == 0 {
            return true;
        }
        match self.preserve {
            PreserveAffinity::MaxQueue if server.maxqueue == 0 => true,
            PreserveAffinity::MaxQueue => {
                let places = limit(server).saturating_add(server.maxqueue);
                server.serves_fewer(places.saturating_sub(server.queue.len()))
            }
            _ => server.serves_fewer(limit(server)),
        }
    }

    /// `hash-balance-factor`: whether the server has less than its share of all requests including the new one.
    ///
    /// As in HAProxy, shares are whole requests: a whole number per unit of weight, with the remainder distributed over the servers
    /// in order, and at least one each.
    #[inline]
    fn within_factor(&self, table: &BalanceTable, index: usize, now_us: u64) -> bool {
        let Some(in_flight) = &self.in_flight else { return true };
        let served = u64::from(self.load(index));
        if served == 0 {
            return true;
        }
        let requests = u64::from(in_flight.total(now_us)) + 1;
        let places = (requests * u64::from(self.balance_factor)).div_ceil(100);
        let total = u64::from(table.total.max(1));
        let (weight, before) = table.shares[index];
        let (weight, before) = (u64::from(weight), u64::from(before));
        let (each, rest) = (places / total, places % total);
        let share = weight * each + (before + weight) * rest / total - before * rest / total;
        served < share.max(1)
    }

    /// Draws several servers by weight and chooses the least loaded. At equal load, the less recently used one is chosen.
    fn random(
        &self,
        table: &BalanceTable,
        draws: u32,
        wish: Wish,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        let mut best = self.drawn(table, None, wish, limit)?;
        for _ in 1..draws {
            let Some(other) = self.drawn(table, Some(best), wish, limit) else { break };
            let load = |index: usize, against: usize| {
                let requests = self.load(index);
                u64::from(requests) * u64::from(table.weights[against])
            };
            let (own, others) = (load(best, other), load(other, best));
            if others < own || (others == own && self.used_less(table, other, best, wish.now_us)) {
                best = other;
            }
        }
        Some(best)
    }

    /// One weighted draw. Avoids the failed server and `last` if possible.
    #[inline]
    fn drawn(
        &self,
        table: &BalanceTable,
        last: Option<usize>,
        wish: Wish,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        let index = table.draw.draw(fastrand::u64(..))?;
        if Some(index) != wish.avoid && Some(index) != last && self.within_factor(table, index, wish.now_us) {
            return Some(index);
        }
        self.drawn_again(table, index, last, wish, limit)
    }

    #[cold]
    fn drawn_again(
        &self,
        table: &BalanceTable,
        index: usize,
        last: Option<usize>,
        wish: Wish,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        for _ in 0..4 {
            let other = table.draw.draw(fastrand::u64(..))?;
            if Some(other) != last && self.fits(table, other, wish, limit) {
                return Some(other);
            }
        }
        // There are few servers, or one outweighs all others, so the next suitable one is taken.
        let count = table.usable.len();
        let start = table.usable.partition_point(|&at| (at as usize) < index);
        let mut around = (1..=count).map(|step| table.usable[(start + step) % count] as usize);
        around.find(|&other| Some(other) != last && self.fits(table, other, wish, limit))
    }

    /// Whether `other` had fewer requests than `best` within the last second, by weight.
    fn used_less(&self, table: &BalanceTable, other: usize, best: usize, now_us: u64) -> bool {
        let rate = |index: usize, against: usize| {
            self.served[index].recent.per_second(now_us) * u64::from(table.weights[against])
        };
        rate(other, best) < rate(best, other)
    }

    /// Draws two servers by weight and chooses the one with the lower expected cost: its response time times its outstanding
    /// requests, divided by its weight.
    fn peak_ewma(
        &self,
        table: &BalanceTable,
        decay_us: u32,
        wish: Wish,
        limit: &impl Fn(&Server) -> u32,
    ) -> Option<usize> {
        let one = self.drawn(table, None, wish, limit)?;
        let Some(two) = self.drawn(table, Some(one), wish, limit) else { return Some(one) };
        let cost = |index: usize| {
            let served = &self.served[index];
            let waiting = self.load(index);
            let taken = match served.latency.read(wish.now_us, decay_us, waiting > 0) {
                Some(taken) => taken + 1.0,
                // Nothing is known about the server yet. One request probes it while the others use different servers.
                None if waiting == 0 => 0.0,
                None => UNKNOWN_US,
            };
            let full = if self.has_room(table, index, limit) { 1.0 } else { FULL };
            taken * (waiting + 1) as f32 * full
        };
        // By weight, multiplying crosswise instead of dividing.
        let weight = |index: usize| table.weights[index] as f32;
        Some(if cost(two) * weight(one) < cost(one) * weight(two) { two } else { one })
    }
}

/// The assumed response time of a server that has not responded yet. It is longer than any measured time.
const UNKNOWN_US: f32 = 1e12;
/// The penalty of a full server, at which the request would have to wait.
const FULL: f32 = 1e6;
