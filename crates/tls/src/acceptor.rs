//! The TLS settings of a `bind` line, and the selection of a certificate for each ClientHello.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use base::clock::WallTime;

use crate::capture::Keep;
use crate::challenges::Challenges;
use crate::choice::{ClientKeyKinds, NameIndex};
use crate::details::{Details, Lacks};
use crate::engine::side::{RustlsServerSide, ServedCertificate};
use crate::engine::tickets::SharedResumption;
use crate::entry::{CertificateEntry, EntryOptions, PreparedEntry};
use crate::error::{Error, Reason};
use crate::generated::{self, Generating};
use crate::hello::{Hello, numbers};
use crate::settings::{Limits, Parameters};
use crate::store::Certificate;
use crate::tickets::Resumption;
use crate::{TLS12, TLS13, legacy, quic_options, rustls_fit, x509};

/// SSL 3.0, which is not supported.
const SSL3: u16 = 0x0300;

/// Returns the chain up to the first self-issued certificate.
fn without_roots(chain: &[Arc<[u8]>]) -> Vec<Arc<[u8]>> {
    let is_sent = |(at, der): &(usize, &Arc<[u8]>)| {
        *at == 0 || !x509::CertificateFields::parse(der).is_ok_and(|facts| facts.is_self_issued())
    };
    chain.iter().enumerate().filter(is_sent).map(|(_, der)| der.clone()).collect()
}

/// The TLS settings of a `bind` line.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    /// The certificates of the line, in order. The first is the default, unless others are marked as default.
    pub entries: Vec<CertificateEntry>,
    /// Whether there is no default certificate (`strict-sni`).
    pub strict_sni: bool,
    /// Sessions and tickets.
    pub resumption: Resumption,
    /// The limits for each connection.
    pub limits: Limits,
    /// The handshake data to keep for fetches.
    pub keep: Keep,
    /// ACME challenges over TLS, or `None` if no challenges are possible.
    pub challenges: Option<Arc<Challenges>>,
    /// Generates certificates for names that match no configured certificate (`generate-certificates`).
    pub generating: Option<Generating>,
    /// Whether the clients use QUIC.
    pub is_quic: bool,
}

/// A `bind` line with TLS. Its certificates may change while it serves connections.
#[derive(Debug)]
pub struct Acceptor {
    current: RwLock<AcceptorState>,
    strict_sni: bool,
    shared: SharedResumption,
    resumption: Resumption,
    limits: Limits,
    keep: Keep,
    challenges: Option<Arc<Challenges>>,
    generating: Option<Generating>,
    is_quic: bool,
    /// Identifies the listener's generated certificates.
    number: u64,
}

/// The number of the next listener.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The certificates of a listener. Written when a certificate is changed at run time, read once per handshake.
#[derive(Debug, Default)]
struct AcceptorState {
    /// The certificates by index, or `None` for a removed one.
    entries: Vec<Option<Arc<PreparedEntry>>>,
    index: NameIndex,
}

/// The answer to a ClientHello, created by [`Acceptor::choose`].
#[derive(Debug)]
pub struct Chosen {
    /// The configuration for the handshake, or the reason to refuse the client.
    pub config: Result<ServerConfig, Error>,
    /// The server name, the version and the certificate, which are also set for clients that are refused. The results of the
    /// handshake are empty.
    pub details: Details,
}

/// A certificate with the settings of its line, ready for handshakes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerConfig(pub(crate) Engine);

/// The library that performs the handshake.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Rustls(RustlsServerSide),
    OpenSsl(legacy::ServerSide),
}

impl Acceptor {
    /// Creates the settings of a listener.
    ///
    /// # Errors
    /// The engine's reason for rejecting the line's options.
    pub fn new(listening: Listening) -> Result<Self, String> {
        let Listening { entries, strict_sni, resumption, limits, keep, challenges, generating, is_quic } =
            listening;
        let shared = SharedResumption::new(&resumption);
        let current = RwLock::default();
        let number = NEXT.fetch_add(1, Relaxed);
        let acceptor = Self {
            current,
            strict_sni,
            shared,
            resumption,
            limits,
            keep,
            challenges,
            generating,
            is_quic,
            number,
        };
        // Certificates with the same options are checked once.
        let mut tried: Vec<Arc<EntryOptions>> = Vec::new();
        for entry in entries {
            let prepared = acceptor.prepared(entry);
            let options = &prepared.entry.options;
            // OpenSSL validates each certificate itself.
            if prepared.needs_openssl() || !tried.iter().any(|tried| Arc::ptr_eq(tried, options)) {
                tried.push(options.clone());
                acceptor.try_out(&prepared)?;
            }
            acceptor.write().add(prepared);
        }
        Ok(acceptor)
    }

    fn write(&self) -> RwLockWriteGuard<'_, AcceptorState> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a certificate after the others (`add ssl crt-list`). Returns its index.
    ///
    /// # Errors
    /// The engine's reason for rejecting the options.
    pub fn add(&self, entry: CertificateEntry) -> Result<u32, String> {
        Ok(self.put_one(self.prepare_one(entry)?))
    }

    /// Returns an entry with the options that the transport requires.
    fn prepared(&self, entry: CertificateEntry) -> PreparedEntry {
        let fitted = if self.is_quic { quic_options::fitted(&entry.options) } else { None };
        PreparedEntry::new(match fitted {
            Some(options) => CertificateEntry { options: Arc::new(options), ..entry },
            None => entry,
        })
    }

    /// Prepares another entry, to be added later.
    pub(crate) fn prepare_one(&self, entry: CertificateEntry) -> Result<PreparedEntry, String> {
        let prepared = self.prepared(entry);
        self.try_out(&prepared)?;
        Ok(prepared)
    }

    /// Adds a prepared entry. Returns its index.
    pub(crate) fn put_one(&self, prepared: PreparedEntry) -> u32 {
        self.write().add(prepared)
    }

    /// Removes the certificate at this index (`del ssl crt-list`). Connections that already use it continue.
    pub fn remove(&self, place: u32) {
        self.write().remove(place);
    }

    /// Whether the certificate at this index is used for clients without a matching name. This is the first one, unless such
    /// clients are refused.
    pub(crate) fn falls_back_on(&self, place: u32) -> bool {
        place == 0 && !self.strict_sni
    }

    /// Replaces the certificate called `name` with `new` (`commit ssl cert`). Returns the number of entries that changed. Open
    /// connections keep the old certificate.
    ///
    /// # Errors
    /// The engine's reason for rejecting the certificate. In this case nothing has changed.
    pub fn replace(&self, name: &str, new: &Arc<Certificate>) -> Result<usize, String> {
        let changed = self.prepare(&|entry| {
            let is_it = *entry.certificate.name == *name;
            is_it.then(|| CertificateEntry { certificate: new.clone(), ..entry.clone() })
        })?;
        let count = changed.len();
        self.put(changed);
        Ok(count)
    }

    /// Prepares the entries for which `change` returns a new version. They are put in place later.
    pub(crate) fn prepare(
        &self,
        change: &dyn Fn(&CertificateEntry) -> Option<CertificateEntry>,
    ) -> Result<Vec<(u32, PreparedEntry)>, String> {
        let mut changed = Vec::new();
        for (place, entry) in self.entries() {
            if let Some(entry) = change(&entry) {
                let prepared = self.prepared(entry);
                self.try_out(&prepared)?;
                changed.push((place, prepared));
            }
        }
        Ok(changed)
    }

    /// Puts all prepared entries in place in one step.
    pub(crate) fn put(&self, changed: Vec<(u32, PreparedEntry)>) {
        let mut current = self.write();
        for (place, prepared) in changed {
            current.put(place, prepared);
        }
    }

    /// Returns all certificates with their indexes (`show ssl sni`, `show ssl crt-list`).
    pub fn entries(&self) -> Vec<(u32, CertificateEntry)> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let all = (0..).zip(&current.entries);
        all.filter_map(|(place, one)| Some((place, one.as_ref()?.entry.clone()))).collect()
    }

    /// Checks that the engines can use the certificate.
    fn try_out(&self, prepared: &PreparedEntry) -> Result<(), String> {
        if prepared.needs_openssl() {
            if self.is_quic {
                return Err("the kind or size of the key is not supported by QUIC listeners".to_owned());
            }
            let side = self.make_legacy(prepared)?;
            let _ = prepared.legacy.set(Some(side));
        }
        if prepared.serves_with_rustls() { self.make(prepared, true, true).map(drop) } else { Ok(()) }
    }

    /// Creates OpenSSL's configuration for a certificate.
    fn make_legacy(&self, prepared: &PreparedEntry) -> Result<legacy::ServerSide, String> {
        let CertificateEntry { certificate, options, .. } = &prepared.entry;
        let served = self.served(prepared, true, false);
        let mut resumption = self.resumption.clone();
        if !prepared.needs_openssl() {
            // OpenSSL serves few clients, and its cache would exist once more for each certificate.
            resumption.sessions = None;
        }
        legacy::ServerSide::new(&options.parameters, &served, certificate.ocsp.as_ref(), &resumption)
    }

    /// Creates the rustls configuration for a certificate.
    fn make(
        &self,
        prepared: &PreparedEntry,
        agrees: bool,
        staples: bool,
    ) -> Result<RustlsServerSide, String> {
        let parameters = &prepared.entry.options.parameters;
        if let Some(base) = &prepared.base {
            let side = base.side(agrees, false).get_or_init(|| self.make(base, agrees, false).ok());
            let side = side.as_ref().ok_or("its default certificate cannot be used")?;
            return side.with(&self.served(prepared, agrees, false), &parameters.sigalgs);
        }
        let served = self.served(prepared, agrees, staples);
        if parameters.legacy.is_some() {
            // OpenSSL serves older versions.
            let min = parameters.min.max(TLS12);
            let parameters = Parameters { min, ..parameters.clone() };
            return RustlsServerSide::new(&parameters, &served, &self.shared);
        }
        RustlsServerSide::new(parameters, &served, &self.shared)
    }

    fn served<'a>(&self, prepared: &'a PreparedEntry, agrees: bool, staples: bool) -> ServedCertificate<'a> {
        let CertificateEntry { certificate, options, .. } = &prepared.entry;
        ServedCertificate {
            chain: if options.skips_roots {
                without_roots(&certificate.chain).into()
            } else {
                certificate.chain.as_slice().into()
            },
            key: &certificate.key,
            ocsp: certificate.ocsp.as_ref().filter(|_| staples).map(|ocsp| &*ocsp.der),
            // As in HAProxy, it is not an error if the two sides have no protocol in common; in that case, none is negotiated.
            alpn: if agrees { &options.alpn } else { &[] },
            verify: &options.verify,
            early_data: options.early_data,
        }
    }

    pub(crate) fn keep(&self) -> Keep {
        self.keep
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Chooses the certificate, the protocols and the engine that answer a ClientHello.
    pub fn choose(&self, hello: &Hello<'_>) -> Chosen {
        let mut details = Details {
            sni: hello.server_name.map(|name| String::from_utf8_lossy(name).into()),
            ..Details::default()
        };
        let config = self.engine(hello, &mut details);
        let is_too_old = matches!(&config, Err(error) if error.reason == Reason::UnsupportedProtocol);
        if is_too_old || matches!(config, Ok(Engine::Rustls(_))) {
            details.lacks = rustls_fit::lacks(hello);
        }
        let config = config.and_then(|engine| match details.lacks {
            // rustls would report a different error first.
            Some(Lacks::Suite(_)) => Err(Error::handshake(Reason::NoSharedCipher)),
            _ => Ok(ServerConfig(engine)),
        });
        Chosen { config, details }
    }

    /// Returns the engine for a ClientHello. Records the version and the certificate in `details`.
    fn engine(&self, hello: &Hello<'_>, details: &mut Details) -> Result<Engine, Error> {
        if let Some(side) = self.challenges.as_ref().and_then(|all| all.find(hello)) {
            details.is_challenge = true;
            details.version = hello.version_up_to(TLS13);
            return Ok(Engine::Rustls(side));
        }
        let name = hello.server_name.and_then(|name| str::from_utf8(name).ok()).unwrap_or("");
        let mut prepared =
            self.fitting(name, hello, TLS13).ok_or(Error::handshake(Reason::CallbackFailed))?;
        let max = prepared.entry.options.parameters.max;
        if max < TLS13 {
            prepared = self.fitting(name, hello, max).unwrap_or(prepared);
        }
        let options = &prepared.entry.options;
        details.own = Some(prepared.entry.certificate.clone());
        details.version = hello.version_up_to(options.parameters.max);
        let failed = Error::handshake(Reason::InternalError);
        if !prepared.is_for_rustls(hello) {
            let side = prepared.legacy.get_or_init(|| self.make_legacy(&prepared).ok());
            return side.clone().map(Engine::OpenSsl).ok_or(failed);
        }
        if details.version < options.parameters.min {
            // As in OpenSSL, because SSL 3.0 has no alert for versions.
            let is_ssl3 = hello.version_up_to(TLS13) <= SSL3;
            return Err(Error::handshake(if is_ssl3 {
                Reason::VersionTooLow
            } else {
                Reason::UnsupportedProtocol
            }));
        }
        // QUIC requires a common protocol (RFC 9001, 8.1): the engine refuses clients without one.
        let agrees = self.is_quic || hello.speaks_any(&options.alpn);
        let staples = prepared
            .entry
            .certificate
            .ocsp
            .as_ref()
            .is_some_and(|ocsp| ocsp.is_current(WallTime::now().seconds));
        let side = prepared.side(agrees, staples);
        let side = side.get_or_init(|| self.make(&prepared, agrees, staples).ok());
        side.clone().map(Engine::Rustls).ok_or(failed)
    }

    /// Returns the certificate for a name, for clients with the newest version `max`. If none matches, returns one generated for
    /// the name.
    fn fitting(&self, name: &str, hello: &Hello<'_>, max: u16) -> Option<Arc<PreparedEntry>> {
        let wanted = wanted(hello, max);
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let choose = |name, strict| current.entries[current.index.choose(name, wanted, strict)?].clone();
        let generating = self.generating.as_ref().filter(|_| generated::is_host(name));
        let Some(generating) = generating else { return choose(name, self.strict_sni) };
        if let Some(own) = choose(name, true) {
            return Some(own);
        }
        let base = choose("", false)?;
        drop(current);
        let made = self.generate(generating, &name.to_ascii_lowercase(), &base);
        made.or_else(|| Some(base).filter(|_| !self.strict_sni))
    }

    /// Returns a certificate for `name` with the key of `base`, reusing an earlier one if possible.
    fn generate(
        &self,
        generating: &Generating,
        name: &str,
        base: &Arc<PreparedEntry>,
    ) -> Option<Arc<PreparedEntry>> {
        let now = WallTime::now().seconds;
        let Generating { authority, cache } = generating;
        if let Some(known) = cache.find(self.number, name, base, now) {
            return Some(known);
        }
        let certificate = Arc::new(authority.make(name, &base.entry.certificate)?);
        let options = base.entry.options.clone();
        let mut prepared = PreparedEntry::new(CertificateEntry {
            certificate,
            filters: Vec::new(),
            is_default: false,
            options,
        });
        prepared.base = Some(base.clone());
        let prepared = Arc::new(prepared);
        cache.put(self.number, name, base, &prepared, now);
        Some(prepared)
    }
}

impl AcceptorState {
    fn add(&mut self, prepared: PreparedEntry) -> u32 {
        let place = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.index.add(place, prepared.names());
        self.entries.push(Some(Arc::new(prepared)));
        place
    }

    fn remove(&mut self, place: u32) {
        let slot = self.entries.get_mut(place as usize);
        if let Some(old) = slot.and_then(Option::take) {
            self.index.remove(place, old.names());
        }
    }

    fn put(&mut self, place: u32, prepared: PreparedEntry) {
        // The entry may have been removed in the meantime.
        if let Some(slot @ Some(_)) = self.entries.get_mut(place as usize) {
            if let Some(old) = slot {
                self.index.remove(place, old.names());
            }
            self.index.add(place, prepared.names());
            *slot = Some(Arc::new(prepared));
        }
    }
}

/// Returns the kinds of certificates that the client accepts. `max` is the newest version that can be negotiated.
fn wanted(hello: &Hello<'_>, max: u16) -> ClientKeyKinds {
    let Some(signatures) = hello.signatures else {
        return ClientKeyKinds { ecdsa: false, rsa: true };
    };
    // Before TLS 1.3, the low byte was the algorithm: 1 for RSA, 3 for ECDSA. 0x0804 to 0x080b are variants of RSA-PSS.
    let rsa = numbers(signatures).any(|scheme| scheme & 0xff == 1 || (0x0804..=0x080b).contains(&scheme));
    let signs_ecdsa = numbers(signatures).any(|scheme| scheme & 0xff == 3 || scheme == 0x0807);
    let ecdsa_suites =
        [0xc02b, 0xc02c, 0xcca9, 0xc023, 0xc024, 0xc009, 0xc00a, 0xc0ac, 0xc0ad, 0xc0ae, 0xc0af];
    // TLS 1.3 suites work with any kind of key.
    let is_tls13 = hello.version_up_to(max) == TLS13;
    let fits = |suite: u16| is_tls13 && suite >> 8 == 0x13 || ecdsa_suites.contains(&suite);
    let has_suite = numbers(hello.suites).any(fits);
    ClientKeyKinds { ecdsa: signs_ecdsa && has_suite, rsa }
}
