//! Resumption on the server side: ticket keys, and the session cache for clients without tickets.
//!
//! A ticket is `name | nonce | encrypted (time, session)`. The encryption key is derived from a configured key and the nonce, so
//! that long-lived keys shared by several processes never use the same key and nonce twice.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use base::clock::WallTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::load_error::LoadError;

/// The minimum number of keys in a file, and the number of keys kept (`TLS_TICKETS_NO`).
pub const KEYS: usize = 3;

/// How many seconds a generated key encrypts new tickets.
const RENEWED_AFTER: u64 = 12 * 3600;

const NAME: usize = 16;
const NONCE: usize = 16;
const TIME: usize = 8;
const TAG: usize = 16;

fn now() -> u64 {
    WallTime::now().seconds.cast_unsigned()
}

/// A key: 48 or 80 bytes, including a 16-byte name.
#[derive(Clone)]
struct TicketKey {
    bytes: Box<[u8]>,
}

impl TicketKey {
    fn new(bytes: &[u8]) -> Option<Self> {
        matches!(bytes.len(), 48 | 80).then(|| Self { bytes: bytes.into() })
    }

    fn random() -> Result<Self, String> {
        let mut bytes = [0; 80];
        rand::fill(&mut bytes).map_err(|_| "the system provided no random bytes")?;
        Ok(Self { bytes: bytes[..].into() })
    }

    fn name(&self) -> &[u8] {
        &self.bytes[..NAME]
    }

    fn sealer(&self, nonce: &[u8]) -> Option<LessSafeKey> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &self.bytes[NAME..]);
        let derived = hmac::sign(&secret, nonce);
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, derived.as_ref()).ok()?))
    }
}

/// Ticket keys, shared by the listeners with the same file, oldest first. The last but one is used for encryption, all for
/// decryption.
pub struct TicketKeys {
    keys: RwLock<Vec<TicketKey>>,
    /// When generated keys are replaced; 0 for keys from a file. Written by the thread that replaces them.
    renew_at: AtomicU64,
    /// Lifetime of a ticket, in seconds (`tune.ssl.lifetime`).
    lifetime: u32,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// Creates random keys, which are rotated periodically.
    ///
    /// # Errors
    /// The system provided no random bytes.
    pub fn random(lifetime: u32) -> Result<Self, String> {
        let keys = (0..KEYS).map(|_| TicketKey::random()).collect::<Result<Vec<_>, _>>()?;
        let renew_at = AtomicU64::new(now() + RENEWED_AFTER);
        Ok(Self { keys: RwLock::new(keys), renew_at, lifetime })
    }

    /// Parses the text of a key file, one base64 key per line (`tls-ticket-keys`).
    ///
    /// # Errors
    /// A line is not a valid key, keys have different lengths, or there are too few.
    pub fn from_text(file: &str, text: &str, lifetime: u32) -> Result<Self, LoadError> {
        let mut keys: Vec<TicketKey> = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fault = |what: &str| {
                let number = index + 1;
                LoadError::at(
                    file,
                    number,
                    format!("{what} in tls ticket key file '{file}' at line {number}"),
                )
            };
            let bytes = STANDARD.decode(line.trim()).map_err(|_| fault("unable to decode base64 key"))?;
            let key = TicketKey::new(&bytes).ok_or_else(|| fault("invalid key size"))?;
            if keys.first().is_some_and(|first| first.bytes.len() != key.bytes.len()) {
                return Err(fault("keys of different sizes"));
            }
            keys.push(key);
        }
        if keys.len() < KEYS {
            let cause = format!("please supply at least {KEYS} keys in the tls-tickets-file '{file}'");
            return Err(LoadError::new(file, cause));
        }
        keys.drain(..keys.len() - KEYS);
        Ok(Self { keys: RwLock::new(keys), renew_at: AtomicU64::new(0), lifetime })
    }

    /// Adds a key after the others and drops the oldest (`set ssl tls-key`). Returns `false` if its length differs from that of the
    /// others.
    pub fn push(&self, bytes: &[u8]) -> bool {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.first().is_some_and(|first| first.bytes.len() != bytes.len()) {
            return false;
        }
        let Some(key) = TicketKey::new(bytes) else { return false };
        keys.remove(0);
        keys.push(key);
        true
    }

    /// Returns all keys, oldest first (`show tls-keys`).
    pub fn all(&self) -> Vec<Box<[u8]>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| key.bytes.clone()).collect()
    }

    /// Returns the lifetime of a ticket, in seconds.
    pub fn lifetime(&self) -> u32 {
        self.lifetime
    }

    /// Replaces the oldest key when it is due.
    fn renew(&self) {
        let due = self.renew_at.load(Relaxed);
        if due == 0 || now() < due {
            return;
        }
        let next = now() + RENEWED_AFTER;
        // Only one thread replaces the key.
        if self.renew_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
            && let Ok(key) = TicketKey::random()
        {
            let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            keys.remove(0);
            keys.push(key);
        }
    }

    /// Returns the ticket for a session.
    pub(crate) fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.renew();
        let key = {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            keys[keys.len().saturating_sub(2)].clone()
        };
        let mut nonce = [0; NONCE];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME + NONCE + TIME + session.len() + TAG);
        ticket.extend_from_slice(key.name());
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(&now().to_be_bytes());
        ticket.extend_from_slice(session);
        let (head, text) = ticket.split_at_mut(NAME + NONCE);
        let zero = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let tag = key.sealer(&nonce)?.seal_in_place_separate_tag(zero, Aad::from(&*head), text).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// Returns the session in a ticket, if the ticket was created with one of the keys and has not expired.
    pub(crate) fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (head, sealed) = ticket.split_at_checked(NAME + NONCE)?;
        let key = {
            let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
            keys.iter().find(|key| key.name() == &head[..NAME])?.clone()
        };
        let zero = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let mut text = sealed.to_vec();
        let opened = key.sealer(&head[NAME..])?.open_in_place(zero, Aad::from(head), &mut text).ok()?;
        let (time, session) = opened.split_first_chunk()?;
        let age = now().saturating_sub(u64::from_be_bytes(*time));
        (age <= u64::from(self.lifetime)).then(|| session.to_vec())
    }
}

/// The nominal size of a cache block, in bytes.
const BLOCK: usize = 200;

/// Number of cache lookups, and of misses. Written with each lookup.
static LOOKUPS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Returns the number of lookups in the session caches of this process (`SslCacheLookups`), and of misses (`SslCacheMisses`).
pub fn lookups() -> (u64, u64) {
    (LOOKUPS[0].load(Relaxed), LOOKUPS[1].load(Relaxed))
}

fn looked_up<T>(found: Option<T>) -> Option<T> {
    LOOKUPS[0].fetch_add(1, Relaxed);
    if found.is_none() {
        LOOKUPS[1].fetch_add(1, Relaxed);
    }
    found
}

/// Sessions of all listeners (`tune.ssl.cachesize`). The oldest are evicted when there is no room.
#[derive(Debug)]
pub struct SessionCache {
    blocks: usize,
    lifetime: u64,
    inner: Mutex<Cached>,
}

#[derive(Debug, Default)]
struct Cached {
    sessions: HashMap<Box<[u8]>, TicketStore>,
    /// Keys in insertion order, with the number of their session. Keys of removed sessions are skipped.
    order: VecDeque<(Box<[u8]>, u64)>,
    /// The number of the next session.
    next: u64,
    /// Blocks in use.
    used: usize,
}

#[derive(Debug)]
struct TicketStore {
    number: u64,
    since: u64,
    session: Box<[u8]>,
}

impl SessionCache {
    /// Creates a cache with `blocks` blocks of about 200 bytes. Sessions are valid for `lifetime` seconds.
    pub fn new(blocks: usize, lifetime: u32) -> Self {
        Self { blocks, lifetime: lifetime.into(), inner: Mutex::default() }
    }

    /// Returns the size of the cache in blocks.
    #[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "OpenSSL keeps as many sessions"))]
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).sessions.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn put(&self, key: &[u8], session: &[u8]) -> bool {
        let needed = session.len().div_ceil(BLOCK);
        if needed > self.blocks {
            return false;
        }
        let mut cached = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        cached.take(key);
        if cached.order.len() >= self.blocks.saturating_mul(2) {
            let Cached { sessions, order, .. } = &mut *cached;
            order.retain(|(key, number)| sessions.get(key).is_some_and(|kept| kept.number == *number));
        }
        // Each new session evicts up to two expired ones, even if there is room.
        let mut expired = 2_usize;
        while cached.used + needed > self.blocks || (expired > 0 && self.has_expired(&cached)) {
            expired = expired.saturating_sub(1);
            let Some((oldest, number)) = cached.order.pop_front() else { break };
            if cached.sessions.get(&oldest).is_some_and(|kept| kept.number == number) {
                cached.take(&oldest);
            }
        }
        let number = cached.next;
        cached.next += 1;
        cached.used += needed;
        cached.order.push_back((key.into(), number));
        cached.sessions.insert(key.into(), TicketStore { number, since: now(), session: session.into() });
        true
    }

    /// Whether the oldest session has expired, or was removed.
    fn has_expired(&self, cached: &Cached) -> bool {
        cached.order.front().is_some_and(|(key, number)| {
            let kept = cached.sessions.get(key).filter(|kept| kept.number == *number);
            kept.is_none_or(|kept| !self.is_good(kept))
        })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let cached = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = cached.sessions.get(key).filter(|kept| self.is_good(kept));
        looked_up(kept.map(|kept| kept.session.to_vec()))
    }

    pub(crate) fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let kept = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take(key);
        looked_up(kept.filter(|kept| self.is_good(kept)).map(|kept| kept.session.into()))
    }

    fn is_good(&self, kept: &TicketStore) -> bool {
        now().saturating_sub(kept.since) <= self.lifetime
    }
}

impl Cached {
    fn take(&mut self, key: &[u8]) -> Option<TicketStore> {
        let kept = self.sessions.remove(key)?;
        self.used -= kept.session.len().div_ceil(BLOCK);
        Some(kept)
    }
}

/// The means for clients to resume sessions.
#[derive(Clone, Debug, Default)]
pub struct Resumption {
    /// The ticket keys; `None` with `no-tls-tickets`.
    pub tickets: Option<Arc<TicketKeys>>,
    /// The session cache, which keeps the sessions of different listeners separate.
    pub sessions: Option<Arc<SessionCache>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_open_until_they_expire_or_their_key_is_dropped() {
        let keys = TicketKeys::random(300).unwrap();
        let ticket = keys.seal(b"session").unwrap();
        assert_eq!(keys.open(&ticket).as_deref(), Some(&b"session"[..]));
        for place in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[place] ^= 1;
            assert_eq!(keys.open(&forged), None, "{place}");
            assert_eq!(keys.open(&ticket[..place]), None, "{place}");
        }
        assert_ne!(keys.seal(b"session").unwrap(), ticket);
        // The ticket was created with the last key but one.
        assert!(keys.push(&[1; 80]) && keys.open(&ticket).is_some());
        assert!(keys.push(&[2; 80]) && keys.open(&ticket).is_none());
        assert!(!keys.push(&[3; 48]) && !keys.push(&[3; 79]));
        assert_eq!(keys.all().iter().map(|key| key[0]).collect::<Vec<_>>()[1..], [1, 2]);
    }

    #[test]
    fn key_files_are_accepted_or_rejected_with_a_line() {
        let line = |byte: u8, length| STANDARD.encode(vec![byte; length]) + "\n";
        let text = [line(1, 48), line(2, 48), "\n".to_owned(), line(3, 48), line(4, 48)].concat();
        let keys = TicketKeys::from_text("keys", &text, 300).unwrap();
        assert_eq!(keys.all().iter().map(|key| key[0]).collect::<Vec<_>>(), [2, 3, 4]);
        for (text, at) in [
            (line(1, 48) + &line(2, 48), 0),
            (line(1, 48) + &line(2, 80), 2),
            (line(1, 47), 1),
            (line(1, 48) + "*\n", 2),
        ] {
            assert_eq!(TicketKeys::from_text("keys", &text, 300).map(drop).unwrap_err().line, at, "{text}");
        }
    }

    #[test]
    fn expired_sessions_leave_a_cache_with_room() {
        let cache = SessionCache::new(usize::MAX, 300);
        for n in 0..30u8 {
            assert!(cache.put(&[n], &[n]));
        }
        cache.inner.lock().unwrap().sessions.values_mut().for_each(|kept| kept.since = 0);
        cache.put(b"new", b"new");
        assert_eq!(cache.len(), 29);
        for n in 0..15u8 {
            assert!(cache.put(&[100, n], &[n]));
        }
        assert_eq!(cache.len(), 16);
    }

    #[test]
    fn a_full_cache_evicts_the_oldest() {
        let cache = SessionCache::new(10, 300);
        for n in 0..30u8 {
            assert!(cache.put(&[n], &[n; 250]));
        }
        assert_eq!(cache.len(), 5);
        assert_eq!((cache.get(&[24]), cache.get(&[25])), (None, Some(vec![25; 250])));
        assert_eq!((cache.take(&[29]), cache.take(&[29])), (Some(vec![29; 250]), None));
        assert!(!cache.put(&[1], &[0; 2001]));
        for _ in 0..1000 {
            assert!(cache.put(&[7], &[1]));
        }
        let cached = cache.inner.lock().unwrap();
        assert!(cached.order.len() <= 20 && cached.used == 2 * 4 + 1, "{cached:?}");
        drop(cached);
        let brief = SessionCache { lifetime: 0, ..SessionCache::new(10, 0) };
        assert!(brief.put(b"k", b"v") && brief.get(b"k").is_some());
    }
}
