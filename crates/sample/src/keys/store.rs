//! The certificates that expressions may name, by file or by store and name, and their changes through the runtime socket
//! (management manual, 9.3: `set ssl cert` and related commands). Filled while a configuration is resolved, read by requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwapOption;

use super::{Certificate, PublicKey};

/// A certificate that can be replaced. Expressions hold the cell, so that its address is stable while the contents change.
#[derive(Debug)]
pub struct CertificateCell {
    /// The name in listings.
    pub name: Box<str>,
    current: ArcSwapOption<Certificate>,
    /// `jwt on`: whether tokens may be verified with the certificate. Written by the runtime socket.
    for_tokens: AtomicBool,
    /// Whether the cell was deleted. Deleted cells remain for the expressions that hold them.
    deleted: AtomicBool,
}

impl CertificateCell {
    fn new(name: &str, certificate: Option<Arc<Certificate>>, for_tokens: bool) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            current: ArcSwapOption::from(certificate),
            for_tokens: AtomicBool::new(for_tokens),
            deleted: AtomicBool::new(false),
        })
    }

    /// Whether the certificate exists, i.e. was not deleted.
    pub fn exists(&self) -> bool {
        !self.deleted.load(Relaxed)
    }

    /// The current certificate, if any.
    pub fn certificate(&self) -> Option<Arc<Certificate>> {
        self.current.load_full()
    }

    /// Whether tokens may be verified with the certificate.
    pub fn for_tokens(&self) -> bool {
        self.for_tokens.load(Relaxed)
    }

    /// Allows or forbids verifying tokens with the certificate.
    pub fn set_for_tokens(&self, for_tokens: bool) {
        self.for_tokens.store(for_tokens, Relaxed);
    }
}

/// A change that is not committed yet. There is at most one.
#[derive(Debug)]
struct Pending {
    stored: Arc<CertificateCell>,
    certificate: Arc<Certificate>,
}

/// All certificates of the process.
#[derive(Debug, Default)]
pub struct Certificates {
    /// Certificates by each of their names.
    known: RwLock<BTreeMap<Box<str>, Arc<CertificateCell>>>,
    /// Public keys without certificates, by file; they never change. Written while a configuration is resolved.
    public: RwLock<BTreeMap<Box<str>, Arc<PublicKey>>>,
    pending: Mutex<Option<Pending>>,
}

impl Certificates {
    // A panic while holding a lock leaves complete entries behind, so poisoning is ignored.
    fn known(&self) -> RwLockReadGuard<'_, BTreeMap<Box<str>, Arc<CertificateCell>>> {
        self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Box<str>, Arc<CertificateCell>>> {
        self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The certificate of that name.
    pub fn find(&self, name: &str) -> Option<Arc<CertificateCell>> {
        self.known().get(name).filter(|stored| stored.exists()).cloned()
    }

    /// Adds a certificate under several names. It is listed by the first one.
    pub fn insert(&self, names: &[&str], certificate: Certificate, for_tokens: bool) -> Arc<CertificateCell> {
        let stored =
            CertificateCell::new(names.first().unwrap_or(&""), Some(Arc::new(certificate)), for_tokens);
        let mut known = self.known_mut();
        for name in names {
            known.insert((*name).into(), Arc::clone(&stored));
        }
        stored
    }

    /// Stores the public key of a file, for variables that hold the name of the file later.
    pub fn insert_public(&self, path: &str, key: &Arc<PublicKey>) {
        let mut public = self.public.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        public.insert(path.into(), Arc::clone(key));
    }

    /// The public key that was read from that file.
    pub fn find_public(&self, path: &str) -> Option<Arc<PublicKey>> {
        let public = self.public.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        public.get(path).cloned()
    }

    /// All certificates by name, each once.
    pub fn all(&self) -> Vec<Arc<CertificateCell>> {
        let known = self.known();
        let own = known.iter().filter(|(name, stored)| **name == stored.name && stored.exists());
        own.map(|(_, stored)| Arc::clone(stored)).collect()
    }

    /// `new ssl cert`: adds an empty cell. Returns `false` if the name exists.
    pub fn create(&self, name: &str) -> bool {
        let mut known = self.known_mut();
        match known.get(name) {
            Some(stored) if stored.exists() => return false,
            // Expressions that hold the deleted cell use it again.
            Some(stored) => stored.deleted.store(false, Relaxed),
            None => {
                known.insert(name.into(), CertificateCell::new(name, None, false));
            }
        }
        true
    }

    /// The uncommitted change: the name and the new certificate.
    pub fn uncommitted(&self) -> Option<(Box<str>, Arc<Certificate>)> {
        self.pending().as_ref().map(|pending| (pending.stored.name.clone(), Arc::clone(&pending.certificate)))
    }

    /// `set ssl cert`: starts a change, or modifies the uncommitted one. Returns the name, and whether a change was started. If
    /// `key` is set, the text is the private key of the existing certificate.
    ///
    /// # Errors
    /// The reason in one line.
    pub fn change(&self, name: &str, text: &str, key: bool) -> Result<(Box<str>, bool), String> {
        let mut pending = self.pending();
        let (stored, before) = match &*pending {
            Some(own) if *own.stored.name != *name => {
                let about = &own.stored.name;
                return Err(format!(
                    "The ongoing transaction is about '{about}' but you are trying to set '{name}'\n"
                ));
            }
            Some(own) => (Arc::clone(&own.stored), Some(Arc::clone(&own.certificate))),
            None => {
                let stored = self
                    .find(name)
                    .ok_or("Can't replace a certificate which is not referenced by the configuration!\n")?;
                let before = stored.certificate();
                (stored, before)
            }
        };
        let read = if key {
            let before = before.ok_or("The key has no certificate\n")?;
            Certificate::from_pem(&pem_of(&before.chain), Some(text))
        } else {
            Certificate::from_pem(text, None)
        };
        let certificate = Arc::new(read.map_err(|error| format!("{error}\nCan't load the payload\n"))?);
        if certificate.chain.is_empty() {
            return Err("no certificate in PEM format\nCan't load the payload\n".to_owned());
        }
        let begun = pending.is_none();
        let name = stored.name.clone();
        *pending = Some(Pending { stored, certificate });
        Ok((name, begun))
    }

    /// `commit ssl cert`.
    ///
    /// # Errors
    /// The reason in one line.
    pub fn commit(&self, name: &str) -> Result<(), String> {
        let mut pending = self.pending();
        match pending.take() {
            None => Err("No ongoing transaction! !\n".to_owned()),
            Some(own) if *own.stored.name != *name => {
                let text = format!(
                    "The ongoing transaction is about '{}' but you are trying to set '{name}'\n",
                    own.stored.name
                );
                *pending = Some(own);
                Err(text)
            }
            Some(own) => {
                own.stored.current.store(Some(own.certificate));
                Ok(())
            }
        }
    }

    /// Replaces the certificate of that name, if it exists.
    pub fn put(&self, name: &str, certificate: Certificate) {
        if let Some(stored) = self.find(name) {
            stored.current.store(Some(Arc::new(certificate)));
        }
    }

    /// `abort ssl cert`.
    ///
    /// # Errors
    /// The reason in one line.
    pub fn abort(&self, name: &str) -> Result<(), String> {
        let mut pending = self.pending();
        match &*pending {
            None => Err("No ongoing transaction!\n".to_owned()),
            Some(own) if *own.stored.name != *name => Err(format!(
                "The ongoing transaction is about '{}' but you are trying to abort a transaction for '{name}'\n",
                own.stored.name
            )),
            Some(_) => {
                *pending = None;
                Ok(())
            }
        }
    }

    /// `del ssl cert`. The certificate must have no pending change and must not be in use for tokens.
    ///
    /// # Errors
    /// The reason.
    pub fn delete(&self, name: &str) -> Result<(), String> {
        if self.pending().as_ref().is_some_and(|pending| *pending.stored.name == *name) {
            return Err(format!("ongoing transaction for the certificate '{name}'"));
        }
        let stored = self.find(name).ok_or_else(|| format!("certificate '{name}' doesn't exist!\n"))?;
        if stored.for_tokens() {
            return Err(format!("certificate '{name}' in use for JWT validation, can't be deleted!\n"));
        }
        stored.deleted.store(true, Relaxed);
        stored.current.store(None);
        Ok(())
    }
}

fn pem_of(chain: &[Vec<u8>]) -> String {
    let bare = |chain: &[Vec<u8>]| Certificate {
        public: PublicKey(Box::default()),
        private: None,
        chain: chain.to_vec(),
        key_text: None,
    };
    bare(chain).to_pem()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Certificate {
        Certificate { public: PublicKey(Box::default()), private: None, chain: vec![], key_text: None }
    }

    #[test]
    fn deleted_certificates_disappear_and_are_recreated_empty() {
        let all = Certificates::default();
        let known = all.insert(&["@s/a", "/a"], certificate(), true);
        assert!(all.find("/a").is_some_and(|found| Arc::ptr_eq(&found, &known)));
        assert_eq!(all.all().len(), 1);
        assert!(!all.create("@s/a"));
        assert!(all.delete("@s/a").is_err_and(|text| text.contains("in use for JWT validation")));
        known.set_for_tokens(false);
        assert_eq!(all.delete("@s/a"), Ok(()));
        assert!(all.find("/a").is_none() && !known.exists());
        assert!(all.create("@s/a") && known.exists() && known.certificate().is_none());
    }

    #[test]
    fn a_transaction_covers_one_certificate() {
        let all = Certificates::default();
        assert!(all.create("a") && all.create("b"));
        assert!(all.change("c", "", false).is_err_and(|text| text.starts_with("Can't replace")));
        assert!(
            all.change("a", "nothing", false).is_err_and(|text| text.ends_with("Can't load the payload\n"))
        );
        assert!(all.commit("a").is_err() && all.abort("a").is_err());
        *all.pending() = all.find("a").map(|stored| Pending { stored, certificate: Arc::new(certificate()) });
        assert!(all.change("b", "", false).is_err_and(|text| text.contains("is about 'a'")));
        assert!(all.commit("b").is_err() && all.abort("b").is_err() && all.delete("a").is_err());
        assert_eq!(all.commit("a"), Ok(()));
        assert!(all.find("a").is_some_and(|stored| stored.certificate().is_some()));
        assert!(all.uncommitted().is_none());
    }
}
