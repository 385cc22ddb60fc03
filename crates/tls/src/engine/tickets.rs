//! Tickets and the session cache, behind the rustls traits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, ProducesTickets, StoresServerSessions};

use super::session_extras::{self, VerifyRules};
use crate::settings::ClientVerify;
use crate::tickets::{Resumption, SessionCache, TicketKeys};

/// Resumption state shared by the certificates of a listener, or by all listeners.
#[derive(Clone, Debug)]
pub(crate) struct SharedResumption {
    /// The session cache, for clients without tickets, and the listener's number in the cache.
    sessions: Option<(Arc<SessionCache>, u64)>,
    /// The ticket keys; `None` with `no-tls-tickets`.
    tickets: Option<Arc<TicketKeys>>,
    /// Set for a line with changed client verification.
    generation: Option<[u8; 16]>,
}

impl SharedResumption {
    pub(crate) fn new(resumption: &Resumption) -> Self {
        /// The number of listeners created so far. Written when a listener is created.
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let place = |cache: &Arc<SessionCache>| (cache.clone(), PLACES.fetch_add(1, Relaxed));
        Self {
            sessions: resumption.sessions.as_ref().map(place),
            tickets: resumption.tickets.clone(),
            generation: None,
        }
    }

    /// Returns the state for a line with changed client verification. Earlier sessions and tickets are not resumed.
    pub(super) fn within(&self, generation: [u8; 16]) -> Self {
        Self { generation: Some(generation), ..self.clone() }
    }

    /// Returns the store for sessions of clients that were verified in this way.
    pub(super) fn sessions(&self, verify: &ClientVerify) -> Arc<dyn StoresServerSessions> {
        let Some((cache, place)) = &self.sessions else { return Arc::new(NoServerSessionStorage {}) };
        let inner: Arc<dyn StoresServerSessions> = Arc::new(ListenerCache {
            cache: cache.clone(),
            place: place.to_ne_bytes(),
            rules: session_extras::rules(verify),
        });
        match self.generation {
            Some(generation) => Arc::new(Within { inner, generation }),
            None => inner,
        }
    }

    /// Returns the ticket producer for these sessions, or `None` if tickets are disabled.
    pub(super) fn tickets(&self, verify: &ClientVerify) -> Option<Arc<dyn ProducesTickets>> {
        let keys = self.tickets.clone()?;
        let inner: Arc<dyn ProducesTickets> =
            Arc::new(Tickets { keys, rules: session_extras::rules(verify) });
        Some(match self.generation {
            Some(generation) => Arc::new(Within { inner, generation }),
            None => inner,
        })
    }
}

/// The sessions or tickets of one generation of a line.
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

#[derive(Debug)]
struct Tickets {
    keys: Arc<TicketKeys>,
    rules: VerifyRules,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.seal(&session_extras::with(&self.rules, plain)?)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        session_extras::without(&self.rules, &self.keys.open(cipher)?)
    }
}

/// The cache of one listener. Sessions that another listener verified are never resumed.
struct ListenerCache {
    cache: Arc<SessionCache>,
    place: [u8; 8],
    rules: VerifyRules,
}

impl fmt::Debug for ListenerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

impl ListenerCache {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.place, key].concat()
    }
}

impl StoresServerSessions for ListenerCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        session_extras::with(&self.rules, &value).is_some_and(|value| self.cache.put(&self.key(&key), &value))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        session_extras::without(&self.rules, &self.cache.get(&self.key(key))?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        session_extras::without(&self.rules, &self.cache.take(&self.key(key))?)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// The sessions of a `server` line. rustls stores the last group for each name, which is also used for the TLS 1.2 session of
/// that name.
#[derive(Debug)]
pub(super) struct OfServer(pub(super) ClientSessionMemoryCache);

impl ClientSessionStore for OfServer {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        if session_extras::group() != 0 {
            self.0.set_kx_hint(name.clone(), session_extras::group().into());
        }
        self.0.set_tls12_session(name, session);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let session = self.0.tls12_session(name)?;
        session_extras::set_group(self.0.kx_hint(name).map_or(0, u16::from));
        Some(session)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.0.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(name, ticket);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(name)
    }
}
