//! Generated certificates, with what the engines made of them: those that were asked for last
//! (`tune.ssl.ssl-ctx-cache-size`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::entry::PreparedEntry;

/// A listener, and a name in lower case.
type CacheKey = (u64, Box<str>);

/// How long a certificate is served, in seconds. It is replaced long before it expires.
const SERVED: i64 = super::LIFETIME / 2;

/// A generated certificate.
#[derive(Debug)]
struct GeneratedCertificate {
    /// Whose key and options it has: it is useless once that entry has been replaced.
    base: Arc<PreparedEntry>,
    /// What serves it.
    prepared: Arc<PreparedEntry>,
    /// When it was made, in seconds since 1970.
    since: i64,
}

/// The generated certificates of all listeners of a configuration, up to a maximum number. Written when a client asks for a name
/// for which its line has no certificate.
#[derive(Debug)]
pub struct Cache {
    most: usize,
    kept: Mutex<CachedCertificate>,
}

#[derive(Debug, Default)]
struct CachedCertificate {
    all: HashMap<CacheKey, (u64, GeneratedCertificate)>,
    /// By when they were asked for.
    order: BTreeMap<u64, CacheKey>,
    /// The number of the next question.
    next: u64,
}

impl Cache {
    /// For so many certificates.
    pub fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one of a listener for `name`, made from `base` and still good at `now`.
    pub(crate) fn find(
        &self,
        listener: u64,
        name: &str,
        base: &Arc<PreparedEntry>,
        now: i64,
    ) -> Option<Arc<PreparedEntry>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let CachedCertificate { all, order, next } = &mut *kept;
        let key = (listener, Box::from(name));
        let (asked, made) = all.get_mut(&key)?;
        if !Arc::ptr_eq(&made.base, base) || !(0..SERVED).contains(&(now - made.since)) {
            return None;
        }
        order.remove(asked);
        *asked = *next;
        order.insert(*next, key);
        *next += 1;
        Some(made.prepared.clone())
    }

    /// Stores a certificate that was generated from `base`. If there are too many, it replaces the one that was unused for the
    /// longest time.
    pub(crate) fn put(
        &self,
        listener: u64,
        name: &str,
        base: &Arc<PreparedEntry>,
        prepared: &Arc<PreparedEntry>,
        now: i64,
    ) {
        if self.most == 0 {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let CachedCertificate { all, order, next } = &mut *kept;
        let key: CacheKey = (listener, name.into());
        let made = GeneratedCertificate { base: base.clone(), prepared: prepared.clone(), since: now };
        if let Some((asked, _)) = all.insert(key.clone(), (*next, made)) {
            order.remove(&asked);
        }
        order.insert(*next, key);
        *next += 1;
        while all.len() > self.most {
            let Some((_, oldest)) = order.pop_first() else { break };
            all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{CertificateEntry, EntryOptions};
    use crate::keygen::temporary;

    fn prepared() -> Arc<PreparedEntry> {
        let certificate = Arc::new(temporary("a.test").unwrap());
        let options = Arc::new(EntryOptions::default());
        Arc::new(PreparedEntry::new(CertificateEntry {
            certificate,
            filters: Vec::new(),
            is_default: false,
            options,
        }))
    }

    #[test]
    fn those_that_were_asked_for_last_stay() {
        let (base, other, cache) = (prepared(), prepared(), Cache::new(3));
        for name in ["a", "b", "c"] {
            cache.put(1, name, &base, &base, 0);
        }
        assert!(cache.find(1, "a", &base, 1).is_some());
        cache.put(1, "d", &base, &base, 0);
        let has = |name| cache.find(1, name, &base, 1).is_some();
        assert_eq!(["a", "b", "c", "d"].map(has), [true, false, true, true]);
        assert!(cache.find(2, "a", &base, 1).is_none(), "of another listener");
        assert!(cache.find(1, "a", &other, 1).is_none(), "with another key");
        assert!(cache.find(1, "a", &base, SERVED).is_none(), "too old");
        for _ in 0..10 {
            cache.put(1, "d", &base, &base, 0);
        }
        let kept = cache.kept.lock().unwrap();
        assert_eq!((kept.all.len(), kept.order.len()), (3, 3));
    }

    #[test]
    fn a_cache_with_capacity_zero_stays_empty() {
        let (base, cache) = (prepared(), Cache::new(0));
        cache.put(1, "a", &base, &base, 0);
        assert!(cache.is_empty());
    }
}
