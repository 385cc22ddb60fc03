//! The part of a server's state that request tasks write: requests, connections, and response latency.
//!
//! It is separate from the rest of the server. Servers that are created consecutively have this state in contiguous memory, so a
//! balancer that compares random servers finds most of it in the cache, even with many servers.

use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use crate::latency::Latency;
use crate::recent::Recent;

/// The load has its own cache lines, because every worker that uses the server writes it on each request.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ServerLoad {
    pub(crate) count: AtomicU32,
    /// Current connections, in use and idle. Written when one is opened or closed.
    pub open: AtomicU32,
    /// Response latency. Written by request tasks if the balancing algorithm uses it.
    pub latency: Latency,
    /// Requests in the last second. Written by request tasks if the balancing algorithm uses it.
    pub recent: Recent,
}

impl Deref for ServerLoad {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        &self.count
    }
}

/// The number of servers per chunk.
const CHUNK: usize = 64;

#[derive(Debug)]
struct Chunk([ServerLoad; CHUNK]);

/// The slot of one [`ServerLoad`] in its chunk. The chunk is kept as long as one of its slots is in use.
#[derive(Debug, Clone)]
pub struct ServerLoadSlot {
    chunk: Arc<Chunk>,
    at: usize,
}

impl Deref for ServerLoadSlot {
    type Target = ServerLoad;

    #[inline]
    fn deref(&self) -> &ServerLoad {
        &self.chunk.0[self.at % CHUNK]
    }
}

/// The loads of several servers, by index. Loads of consecutively created servers, such as those of a backend, are located by
/// computing their position in a list of chunks, which is small enough to stay in the L1 cache. A list of slots would cost one more
/// cache line per lookup.
#[derive(Debug)]
pub struct LoadGroup {
    chunks: Box<[Arc<Chunk>]>,
    /// The index of the first server in the first chunk.
    offset: usize,
    /// The number of consecutive servers.
    run: usize,
    /// The loads of the other servers, which were added later.
    rest: Box<[ServerLoadSlot]>,
}

impl LoadGroup {
    /// Creates a group of these slots.
    pub fn new(places: impl IntoIterator<Item = ServerLoadSlot>) -> Self {
        let places: Vec<ServerLoadSlot> = places.into_iter().collect();
        let offset = places.first().map_or(0, |place| place.at);
        let mut chunks: Vec<Arc<Chunk>> = Vec::new();
        let mut run = 0;
        for place in &places {
            let expected = offset + run;
            if place.at != expected % CHUNK {
                break;
            }
            if expected / CHUNK == chunks.len() {
                chunks.push(place.chunk.clone());
            } else if !chunks.last().is_some_and(|chunk| Arc::ptr_eq(chunk, &place.chunk)) {
                break;
            }
            run += 1;
        }
        Self { chunks: chunks.into(), offset, run, rest: places.into_iter().skip(run).collect() }
    }
}

impl std::ops::Index<usize> for LoadGroup {
    type Output = ServerLoad;

    #[inline]
    fn index(&self, number: usize) -> &ServerLoad {
        if number >= self.run {
            return &self.rest[number - self.run];
        }
        let at = self.offset + number;
        &self.chunks[at / CHUNK].0[at % CHUNK]
    }
}

/// A server's own [`ServerLoad`], which its balancers also hold.
#[derive(Debug, Clone)]
pub struct CountedLoad(pub ServerLoadSlot);

impl Default for CountedLoad {
    /// Takes the next slot of the current chunk. Called once per server, at startup or by the runtime socket.
    fn default() -> Self {
        static FILLING: Mutex<Option<ServerLoadSlot>> = Mutex::new(None);
        let mut filling = FILLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = match filling.take() {
            Some(last) if last.at + 1 < CHUNK => ServerLoadSlot { chunk: last.chunk, at: last.at + 1 },
            _ => ServerLoadSlot {
                chunk: Arc::new(Chunk(std::array::from_fn(|_| ServerLoad::default()))),
                at: 0,
            },
        };
        *filling = Some(next.clone());
        Self(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn every_server_counts_for_itself() {
        let all: Vec<CountedLoad> = (0..3 * CHUNK).map(|_| CountedLoad::default()).collect();
        for (number, one) in all.iter().enumerate() {
            one.0.store(number as u32, Relaxed);
        }
        let same = all[5].clone();
        assert!(all.iter().enumerate().all(|(number, one)| one.0.load(Relaxed) == number as u32));
        same.0.fetch_add(1, Relaxed);
        assert_eq!(all[5].0.load(Relaxed), 6);
    }

    #[test]
    fn groups_find_all_members_despite_gaps() {
        let mut random = fastrand::Rng::with_seed(4);
        // Other tests create servers at the same time, which may interrupt a run anywhere.
        let made: Vec<CountedLoad> = (0..5 * CHUNK).map(|_| CountedLoad::default()).collect();
        for step in 0..3 {
            let start = random.usize(..2 * CHUNK);
            let mut chosen: Vec<&CountedLoad> = made[start..].iter().collect();
            (0..step).for_each(|_| {
                let gap = random.usize(..chosen.len());
                chosen.remove(gap);
            });
            let row = LoadGroup::new(chosen.iter().map(|one| one.0.clone()));
            for (number, one) in chosen.iter().enumerate() {
                assert!(std::ptr::eq(&row[number], &*one.0), "{number} from {start} on, {step} left out");
            }
        }
        let none = LoadGroup::new([]);
        assert_eq!((none.run, none.rest.len()), (0, 0));
    }
}
