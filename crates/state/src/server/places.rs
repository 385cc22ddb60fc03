//! The request slots of a server. Counts requests, in one shared count or per worker, and enforces the limit.
//!
//! These functions never wait: a request without a slot joins the [`queue`](crate::queue). Called by `balance` and by
//! `proxy::assign`.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use runtime::shared::Shared;

use super::{FLEET_LIMIT, Server, Tally};
use crate::counters::{ServerCounters, current};

impl Server {
    /// Returns the number of current connections, used and idle.
    #[inline]
    pub fn open(&self) -> &AtomicU32 {
        &self.served.0.open
    }

    /// Returns how many requests this process may have, of a limit that holds for several processes, or `None` if this server's
    /// limit does not.
    pub fn fleet_room(&self) -> Option<u32> {
        (self.minconn == FLEET_LIMIT)
            .then(|| self.maxconn.load(Relaxed).saturating_sub(self.elsewhere.load(Relaxed)))
    }

    /// Returns the number of requests being served.
    pub fn serving(&self) -> u32 {
        if self.counts_apart.load(Relaxed) { self.apart() } else { self.served.0.load(Relaxed) }
    }

    /// Returns the number of requests counted by the workers.
    fn apart(&self) -> u32 {
        current(&self.counters, |shard| shard.traffic.sessions.get()) as u32
    }

    /// Whether fewer than `most` requests are being served.
    #[inline]
    pub fn serves_fewer(&self, most: u32) -> bool {
        let enough = self.served.0.load(Relaxed) < most && !self.limited_late.load(Relaxed);
        // Some of the taken slots may not be in use, but only be kept by workers.
        enough || (self.counts_apart.load(Relaxed) && self.apart() < most)
    }

    /// Counts one more request for this server, in the shared count.
    #[inline]
    pub fn enter(&self) {
        let served = self.served.0.count.add(1) + 1;
        self.served_max.raise(served);
    }

    /// Uncounts a request. The next request in this server's queue may then try. Must be called on the worker that called
    /// [`enter`](Self::enter).
    #[inline]
    pub fn leave(&self, tally: Tally) {
        match tally {
            Tally::Shared => {
                self.served.0.count.sub(1);
            }
            Tally::Own => self.counters.mine().traffic.sessions.down(),
            Tally::Place => {
                let own = self.counters.mine();
                own.traffic.sessions.down();
                self.give_place_back(own);
            }
        }
    }

    /// Takes a slot if `limit` allows one more (0: no limit).
    #[inline]
    pub fn try_enter(&self, limit: u32) -> Option<Tally> {
        if self.counts_apart.load(Relaxed) {
            return self.try_enter_apart(limit);
        }
        if limit == 0 {
            self.enter();
            return Some(Tally::Shared);
        }
        let before = self.served.0.count.take_below(limit).ok()?;
        self.served_max.raise(before + 1);
        Some(Tally::Shared)
    }

    #[inline]
    fn try_enter_apart(&self, limit: u32) -> Option<Tally> {
        let own = self.counters.mine();
        let tally = match limit {
            0 => Tally::Own,
            _ => {
                self.take_place(own, limit)?;
                Tally::Place
            }
        };
        if own.traffic.sessions.up() {
            self.served_max.raise(self.apart());
        }
        Some(tally)
    }

    /// Takes one of `limit` slots: one that the worker holds, or otherwise a free one.
    #[inline]
    fn take_place(&self, own: &ServerCounters, limit: u32) -> Option<()> {
        let taken = &self.served.0.count;
        if self.limited_late.load(Relaxed) {
            return self.take_place_late(limit);
        }
        // After the limit was lowered, more slots may be taken than exist.
        if taken.load(Relaxed) <= limit && own.places.take() {
            return Some(());
        }
        if taken.take_below(limit).is_ok() {
            return Some(());
        }
        self.gather();
        taken.take_below(limit).ok().map(drop)
    }

    /// Like `take_place`, for as long as there may be requests from before the limit was set. All requests are counted.
    #[cold]
    fn take_place_late(&self, limit: u32) -> Option<()> {
        self.gather();
        (self.apart() < limit).then(|| {
            self.served.0.count.add(1);
        })
    }

    /// Takes back the slots that workers keep.
    #[cold]
    fn gather(&self) {
        let kept: u32 = self.counters.all().map(|shard| shard.places.take_all()).sum();
        if kept > 0 {
            self.served.0.count.sub(kept);
        }
    }

    /// Keeps a slot for the worker's next request if a quarter of all slots is free. Otherwise the slot is returned, so that queued
    /// requests can use it.
    #[inline]
    fn give_place_back(&self, own: &ServerCounters) {
        let limit = self.maxconn.load(Relaxed);
        let few = self.served.0.load(Relaxed) <= limit - limit.div_ceil(4);
        // A limit that depends on the load of the backend may decrease.
        if few && self.minconn == 0 && !self.limited_late.load(Relaxed) {
            own.places.keep();
        } else {
            self.served.0.count.sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::server;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn a_limit_refuses_the_request_above_it() {
        let server = server();
        assert!(server.try_enter(2).is_some() && server.try_enter(2).is_some());
        assert_eq!(server.try_enter(2), None);
        server.leave(Tally::Shared);
        assert!(server.try_enter(2).is_some());
        assert_eq!((server.serving(), server.served_max.load(Relaxed)), (2, 2));
    }

    #[test]
    fn separately_counted_requests_count_against_a_later_limit() {
        let server = server();
        server.counts_apart.store(true, Relaxed);
        let tallies = [server.try_enter(0), server.try_enter(0), server.try_enter(0)];
        assert_eq!(tallies, [Some(Tally::Own); 3]);
        assert_eq!((server.serving(), server.served.0.load(Relaxed)), (3, 0));
        server.set_maxconn(3);
        assert_eq!(server.try_enter(3), None, "three are there already");
        server.leave(Tally::Own);
        assert_eq!(server.try_enter(3), Some(Tally::Place));
        assert_eq!((server.try_enter(3), server.serves_fewer(3), server.serving()), (None, false, 3));
        server.leave(Tally::Own);
        server.set_maxconn(0);
        assert_eq!(server.try_enter(0), Some(Tally::Own));
        for tally in [Tally::Place, Tally::Own, Tally::Own] {
            server.leave(tally);
        }
        assert_eq!((server.serving(), server.served_max.load(Relaxed)), (0, 3));
        assert_eq!(server.served.0.load(Relaxed), 0);
    }

    /// Returns a server that `count` workers use. Tests run in parallel, and the number of workers is process-wide.
    fn with_workers(count: usize) -> Arc<Server> {
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        runtime::shard::set_workers(count);
        let server = server();
        // The first use sets the number of copies.
        let _ = server.counters.mine();
        runtime::shard::set_workers(1);
        server
    }

    /// Returns a server with a limit and two workers counting its requests.
    fn with_two_workers(limit: u32) -> Arc<Server> {
        let server = with_workers(2);
        server.counts_apart.store(true, Relaxed);
        server.set_maxconn(limit);
        server.limited_late.store(false, Relaxed);
        server
    }

    /// Runs `work` as another worker.
    fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let other = || {
            runtime::shard::enter_worker(1);
            work()
        };
        std::thread::scope(|scope| scope.spawn(other).join().expect("the other worker"))
    }

    #[test]
    fn a_kept_slot_makes_the_next_request_free_of_shared_writes() {
        let server = with_two_workers(8);
        let tally = server.try_enter(8).expect("a place");
        server.leave(tally);
        // The single taken slot is neither returned nor joined by another one.
        for _ in 0..100 {
            let tally = server.try_enter(8).expect("a place");
            assert_eq!((server.serving(), server.served.0.load(Relaxed)), (1, 1));
            server.leave(tally);
            assert_eq!((server.serving(), server.served.0.load(Relaxed)), (0, 1));
        }
        assert!(server.serves_fewer(1), "a place that is kept is no request");
    }

    #[test]
    fn kept_slots_are_available_to_all_workers() {
        let server = with_two_workers(4);
        let own: Vec<Tally> = (0..3).map(|_| server.try_enter(4).expect("a place")).collect();
        own.into_iter().for_each(|tally| server.leave(tally));
        assert_eq!((server.serving(), server.served.0.load(Relaxed)), (0, 3), "three are kept");
        let taken = elsewhere(|| (0..5).filter(|_| server.try_enter(4).is_some()).count());
        assert_eq!((taken, server.try_enter(4), server.serving()), (4, None, 4));
        elsewhere(|| server.leave(Tally::Place));
        assert_eq!(server.try_enter(4), Some(Tally::Place));
    }

    #[test]
    fn kept_slots_do_not_exceed_a_lowered_limit() {
        let server = with_two_workers(8);
        let tallies: Vec<Tally> = (0..6).map(|_| server.try_enter(8).expect("a place")).collect();
        tallies.into_iter().for_each(|tally| server.leave(tally));
        server.set_maxconn(2);
        assert_eq!((0..5).filter(|_| server.try_enter(2).is_some()).count(), 2);
        assert_eq!((server.serving(), server.served.0.load(Relaxed)), (2, 2));
    }

    #[test]
    fn concurrent_workers_never_exceed_the_limit() {
        const LIMIT: u32 = 6;
        let server = with_workers(4);
        server.counts_apart.store(true, Relaxed);
        server.maxconn.store(LIMIT, Relaxed);
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (server, inside) = (&server, &inside);
                scope.spawn(move || {
                    runtime::shard::enter_worker(worker);
                    let mut held = Vec::new();
                    let mut random = fastrand::Rng::with_seed(worker as u64);
                    for _ in 0..20_000 {
                        if random.bool() {
                            if let Some(tally) = server.try_enter(LIMIT) {
                                assert!(inside.fetch_add(1, Acquire) < LIMIT);
                                held.push(tally);
                            }
                        } else if let Some(tally) = held.pop() {
                            inside.fetch_sub(1, Release);
                            server.leave(tally);
                        }
                    }
                    held.into_iter().for_each(|tally| {
                        inside.fetch_sub(1, Release);
                        server.leave(tally);
                    });
                });
            }
        });
        server.gather();
        assert_eq!((server.serving(), server.served.0.load(Relaxed)), (0, 0));
    }
}
