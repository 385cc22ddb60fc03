//! Tickets and the cache of sessions, as rustls asks for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustls::server::{ProducesTickets, StoresServerSessions};

use super::side::{Shared, no_sessions};
use crate::tickets::{Resumption, SessionCache, TicketKeys};

impl Shared {
    pub(crate) fn new(resumption: &Resumption) -> Self {
        /// Places in the cache that were given out. Written when a listener is made.
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let sessions: Arc<dyn StoresServerSessions> = match &resumption.sessions {
            None => no_sessions(),
            Some(cache) => {
                let place = PLACES.fetch_add(1, Relaxed);
                Arc::new(Place { cache: cache.clone(), place: place.to_ne_bytes() })
            }
        };
        Self { sessions, tickets: resumption.tickets.clone().map(|keys| keys as Arc<dyn ProducesTickets>) }
    }
}

impl Shared {
    /// For a line whose clients are verified otherwise than before: sessions and tickets of before
    /// are not resumed.
    pub(super) fn within(&self, generation: [u8; 16]) -> Self {
        let sessions = Arc::new(Within { inner: self.sessions.clone(), generation });
        let tickets = self.tickets.clone().map(|inner| {
            let tickets: Arc<dyn ProducesTickets> = Arc::new(Within { inner, generation });
            tickets
        });
        Self { sessions, tickets }
    }
}

/// Sessions or tickets of one generation of a line.
struct Within<T: ?Sized> {
    inner: Arc<T>,
    generation: [u8; 16],
}

impl<T: ?Sized> fmt::Debug for Within<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Within")
    }
}

impl<T: ?Sized> Within<T> {
    fn marked(&self, bytes: &[u8]) -> Vec<u8> {
        [&self.generation, bytes].concat()
    }
}

impl ProducesTickets for Within<dyn ProducesTickets> {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.inner.encrypt(&self.marked(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        Some(self.inner.decrypt(cipher)?.strip_prefix(&self.generation)?.to_vec())
    }
}

impl StoresServerSessions for Within<dyn StoresServerSessions> {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.inner.put(self.marked(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.inner.get(&self.marked(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.inner.take(&self.marked(key))
    }

    fn can_cache(&self) -> bool {
        self.inner.can_cache()
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        Self::lifetime(self)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher)
    }
}

/// The cache, for one listener: no listener resumes what another one has verified.
struct Place {
    cache: Arc<SessionCache>,
    place: [u8; 8],
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

impl Place {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.place, key].concat()
    }
}

impl StoresServerSessions for Place {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.cache.put(&self.key(&key), &value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        true
    }
}
