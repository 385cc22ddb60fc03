//! `acme` sections and the certificates that they order (configuration manual, 12.8).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sample::pattern::List;
use tls::keygen::NewKey;

/// An `acme` section.
#[derive(Debug, Clone)]
pub struct AcmeSection {
    /// The name of the section.
    pub name: Box<str>,
    /// `directory`: a URL.
    pub directory: Box<str>,
    /// `contact`: an email address.
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

/// The key of an account, and its file.
#[derive(Clone)]
pub struct AccountKey {
    /// The file of the key.
    pub file: PathBuf,
    /// The key as PKCS #8, which is secret.
    pub pkcs8: Arc<[u8]>,
    /// Whether the key is new and must be written to its file.
    pub is_new: bool,
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AccountKey({})", self.file.display())
    }
}

/// How the CA validates that Weir controls a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Challenge {
    /// A file on port 80 (RFC 8555, 8.3).
    #[default]
    Http,
    /// A DNS record (RFC 8555, 8.4).
    Dns,
    /// A persistent DNS record (draft-ietf-acme-dns-persist).
    DnsPersist,
    /// A certificate on port 443 (RFC 8737).
    TlsAlpn,
}

impl Challenge {
    /// Returns the name of the challenge.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::Dns => "dns-01",
            Self::DnsPersist => "dns-persist-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }
}

/// The conditions for starting the validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadyWhen {
    /// `cli`: confirmation on the runtime socket.
    pub cli: bool,
    /// `delay`: a delay.
    pub delay: bool,
    /// `dns`: the record is visible in DNS.
    pub dns: bool,
}

/// The external account binding.
#[derive(Clone)]
pub struct Eab {
    /// The key identifier.
    pub key_id: Box<str>,
    /// The key, which is secret.
    pub mac_key: Box<[u8]>,
    /// The signature algorithm of the key.
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

/// An ordered certificate.
#[derive(Debug, Clone)]
pub struct AcmeOrder {
    /// The section that orders the certificate.
    pub section: Arc<AcmeSection>,
    /// The name of the certificate in the TLS files.
    pub certificate: Box<str>,
    /// The file of the certificate.
    pub file: Box<str>,
    /// The file of the private key, if it is separate.
    pub key_file: Option<Box<str>>,
    /// `domains`, in order.
    pub domains: Vec<Box<str>>,
    /// `ips`.
    pub addresses: Vec<IpAddr>,
    /// The state for the runtime socket.
    pub state: Arc<state::acme::Order>,
}
