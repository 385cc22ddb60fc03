//! `acme` sections and the certificates that are ordered by them (configuration manual, 12.8).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sample::pattern::List;
use tls::keygen::NewKey;

/// An `acme` section.
#[derive(Debug, Clone)]
pub struct AcmeSection {
    /// Its name.
    pub name: Box<str>,
    /// `directory`: a URL.
    pub directory: Box<str>,
    /// `contact`: an address of electronic mail.
    pub contact: Option<Box<str>>,
    /// `account-key`.
    pub account_key: AccountKey,
    /// `challenge`.
    pub challenge: Challenge,
    /// `challenge-ready`.
    pub ready: ReadyWhen,
    /// `dns-delay`.
    pub dns_delay: Duration,
    /// `dns-timeout`.
    pub dns_timeout: Duration,
    /// `keytype`, `bits` and `curves`.
    pub key: NewKey,
    /// `reuse-key`.
    pub reuses_key: bool,
    /// `map`.
    pub map: Option<Arc<List>>,
    /// `profile`.
    pub profile: Option<Box<str>>,
    /// `provider-name`.
    pub provider: Option<Box<str>>,
    /// `acme-vars`.
    pub vars: Option<Box<str>>,
    /// `eab-key-id`, `eab-mac-key`, `eab-mac-alg`.
    pub eab: Option<Eab>,
}

/// The key of an account: its file, and what is in it.
#[derive(Clone)]
pub struct AccountKey {
    /// Its file.
    pub file: PathBuf,
    /// As PKCS #8: it is secret.
    pub pkcs8: Arc<[u8]>,
    /// Whether it was made just now and is to be written to its file.
    pub is_new: bool,
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AccountKey({})", self.file.display())
    }
}

/// How the authority sees that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Challenge {
    /// A file on port 80 (RFC 8555, 8.3).
    #[default]
    Http,
    /// A record of DNS (RFC 8555, 8.4).
    Dns,
    /// A record of DNS that stays (draft-ietf-acme-dns-persist).
    DnsPersist,
    /// A certificate on port 443 (RFC 8737).
    TlsAlpn,
}

impl Challenge {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::Dns => "dns-01",
            Self::DnsPersist => "dns-persist-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }
}

/// What is waited for before the authority is told to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadyWhen {
    /// `cli`: the runtime socket says so.
    pub cli: bool,
    /// `delay`: a time.
    pub delay: bool,
    /// `dns`: name servers have the record.
    pub dns: bool,
}

/// The binding to an account that the authority knows.
#[derive(Clone)]
pub struct Eab {
    /// The name of the key.
    pub key_id: Box<str>,
    /// The key: it is secret.
    pub mac_key: Box<[u8]>,
    /// What it signs with.
    pub algorithm: MacAlgorithm,
}

impl std::fmt::Debug for Eab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Eab({})", self.key_id)
    }
}

/// `eab-mac-alg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MacAlgorithm {
    /// HMAC over SHA-256.
    #[default]
    Hs256,
    /// Over SHA-384.
    Hs384,
    /// Over SHA-512.
    Hs512,
}

/// A certificate that is ordered.
#[derive(Debug, Clone)]
pub struct AcmeOrder {
    /// Its section.
    pub section: Arc<AcmeSection>,
    /// The name of the certificate among the files of TLS.
    pub certificate: Box<str>,
    /// Its file.
    pub file: Box<str>,
    /// The file of its key, where that is another.
    pub key_file: Option<Box<str>>,
    /// `domains`, in their order.
    pub domains: Vec<Box<str>>,
    /// `ips`.
    pub addresses: Vec<IpAddr>,
    /// What the runtime socket shows and says.
    pub state: Arc<state::acme::Order>,
}
