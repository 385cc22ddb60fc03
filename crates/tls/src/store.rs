//! Certificates with their keys, as loaded from files (`crt`, `crt-list`, `crt-store`).

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::key::{KeyKind, PrivateKey};
#[cfg(feature = "legacy-tls")]
use crate::legacy;
use crate::load_error::LoadError;
use crate::pem::{self, PemBlock};
use crate::{ocsp, passphrase, x509};

/// A certificate, its chain and its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The name of the certificate: the path as configured.
    pub name: Box<str>,
    /// The chain as DER, starting with the certificate itself.
    pub chain: Vec<Arc<[u8]>>,
    /// The private key.
    pub key: PrivateKey,
    /// The host names for which the certificate is valid, in lower case.
    pub names: Box<[Box<str>]>,
    /// The start and the end of the validity, in seconds since 1970.
    pub validity: (i64, i64),
    /// The OCSP response, as DER (`.ocsp`).
    pub ocsp: Option<ocsp::Response>,
    /// Signed certificate timestamps (`.sctl`).
    pub sctl: Option<Arc<[u8]>>,
    /// The issuer's certificate, if the chain does not contain it (`.issuer`).
    pub issuer: Option<Arc<[u8]>>,
    /// The files of the certificate.
    pub sources: Sources,
    /// A warning that was issued during loading.
    pub warning: Option<Box<str>>,
}

/// The files from which a certificate was read, or would have been read if they existed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The certificate.
    pub certificate: Option<Box<str>>,
    /// The private key.
    pub key: Option<Box<str>>,
    /// The OCSP response.
    pub ocsp: Option<Box<str>>,
    /// The issuer's certificate.
    pub issuer: Option<Box<str>>,
    /// The signed certificate timestamps.
    pub sctl: Option<Box<str>>,
    /// The file with the chain, if the certificate's own file has none (`issuers-chain-path`).
    pub chain: Option<Box<str>>,
}

/// Returns the passphrase of the encrypted key in a file.
type PassphrasePrompt = dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync;

/// The passphrases of encrypted keys (`ssl-passphrase-cmd`). Earlier passphrases are tried first.
pub struct Passphrases {
    ask: Box<PassphrasePrompt>,
    known: Mutex<Vec<Vec<u8>>>,
}

impl std::fmt::Debug for Passphrases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passphrases").finish_non_exhaustive()
    }
}

impl Passphrases {
    /// Creates a set that calls `ask` with the name of a file.
    pub fn new(ask: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self { ask: Box::new(ask), known: Mutex::default() }
    }

    /// Calls `open` with passphrases until one works.
    fn open<T>(
        &self,
        file: &str,
        open: impl Fn(&[u8]) -> Result<T, &'static str>,
    ) -> Result<T, &'static str> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = known.iter().find_map(|passphrase| open(passphrase).ok()) {
            return Ok(opened);
        }
        let given = (self.ask)(file).ok_or("no passphrase was provided")?;
        let opened = open(&given)?;
        known.push(given);
        Ok(opened)
    }
}

/// The parts of a PEM file, in any order.
#[derive(Debug, Default)]
pub struct PemParts {
    /// Certificates, as DER.
    pub certificates: Vec<Arc<[u8]>>,
    /// Revocation lists, as DER.
    pub crls: Vec<Arc<[u8]>>,
    /// The first private key.
    pub key: Option<PrivateKey>,
}

impl PemParts {
    /// Adds the parts of another file.
    pub(crate) fn merge(&mut self, other: Self) {
        self.certificates.extend(other.certificates);
        self.crls.extend(other.crls);
        self.key = self.key.take().or(other.key);
    }

    /// Parses the text of the file called `file`. Blocks of other kinds, such as parameters, are skipped.
    ///
    /// # Errors
    /// The invalid part, with its line.
    pub fn read(file: &str, text: &[u8]) -> Result<Self, LoadError> {
        Self::read_with(file, text, None)
    }

    /// Like [`read`](Self::read), with passphrases for encrypted keys.
    ///
    /// # Errors
    /// The invalid part, with its line.
    pub fn read_with(file: &str, text: &[u8], passphrases: Option<&Passphrases>) -> Result<Self, LoadError> {
        let fault = |line: usize, what: &str| {
            let cause = format!("unable to load certificate from file '{file}': {what} at line {line}.");
            LoadError::at(file, line, cause)
        };
        let blocks = pem::blocks(text).map_err(|malformed| fault(malformed.line, malformed.what))?;
        let mut parts = Self::default();
        for block in blocks {
            match block.label {
                "CERTIFICATE" | "TRUSTED CERTIFICATE" | "X509 CERTIFICATE" => {
                    x509::CertificateFields::parse(&block.data).map_err(|cause| fault(block.line, cause))?;
                    parts.certificates.push(block.data.into());
                }
                "X509 CRL" => {
                    if !x509::is_revocation_list(&block.data) {
                        return Err(fault(block.line, "not a revocation list"));
                    }
                    parts.crls.push(block.data.into());
                }
                // OpenSSL uses the first one.
                "PRIVATE KEY"
                | "RSA PRIVATE KEY"
                | "EC PRIVATE KEY"
                | "ENCRYPTED PRIVATE KEY"
                | "DSA PRIVATE KEY"
                    if parts.key.is_none() =>
                {
                    parts.key = Some(key(file, &block, passphrases)?);
                }
                _ => {}
            }
        }
        Ok(parts)
    }
}

fn key(file: &str, block: &PemBlock<'_>, passphrases: Option<&Passphrases>) -> Result<PrivateKey, LoadError> {
    let line = block.line;
    let failed = |what: &str| {
        LoadError::at(
            file,
            line,
            format!("unable to load the private key at line {line} of '{file}': {what}."),
        )
    };
    if block.encryption.is_none() && block.label != "ENCRYPTED PRIVATE KEY" {
        return key_of(&block.data).map_err(failed);
    }
    let Some(passphrases) = passphrases else {
        let cause = format!(
            "the private key at line {line} of '{file}' is protected by a passphrase, and no \
             'ssl-passphrase-cmd' is defined."
        );
        return Err(LoadError::at(file, line, cause));
    };
    let open = |passphrase: &[u8]| key_of(&passphrase::open(block, passphrase)?);
    passphrases.open(file, open).map_err(failed)
}

/// Returns a key for rustls if possible, otherwise a key for OpenSSL.
fn key_of(der: &[u8]) -> Result<PrivateKey, &'static str> {
    let key = PrivateKey::from_der(der);
    #[cfg(feature = "legacy-tls")]
    if key.is_err()
        && let Some(facts) = legacy::key_facts(der)
    {
        return Ok(PrivateKey::elsewhere(der, facts));
    }
    key
}

impl Certificate {
    /// Creates a certificate from a PEM text with all its parts.
    ///
    /// # Errors
    /// A part is invalid, or the parts do not belong together.
    pub fn from_pem(name: &str, text: &[u8]) -> Result<Self, LoadError> {
        let parts = PemParts::read(name, text)?;
        let key =
            parts.key.ok_or_else(|| LoadError::new(name, format!("No Private Key found in '{name}'.")))?;
        Self::new(name, parts.certificates, key)
    }

    /// Combines a chain and a key. The key's certificate need not be the first.
    ///
    /// # Errors
    /// There is no certificate, or none for the key.
    pub fn new(name: &str, mut chain: Vec<Arc<[u8]>>, key: PrivateKey) -> Result<Self, LoadError> {
        if chain.is_empty() {
            return Err(LoadError::new(
                name,
                format!("unable to load certificate from file '{name}': no start line."),
            ));
        }
        if key.belongs_to(&chain[0]) == Some(false) {
            let own = chain.iter().position(|der| key.belongs_to(der) == Some(true));
            let Some(own) = own else {
                let cause = format!("inconsistencies between private key and certificate loaded '{name}'.");
                return Err(LoadError::new(name, cause));
            };
            chain[..=own].rotate_right(1);
        }
        let facts = x509::CertificateFields::parse(&chain[0]).map_err(|cause| LoadError::new(name, cause))?;
        let names = facts.names().into_iter().map(|name| name.to_ascii_lowercase().into()).collect();
        let validity = facts.validity();
        Ok(Self {
            name: name.into(),
            chain,
            key,
            names,
            validity,
            ocsp: None,
            sctl: None,
            issuer: None,
            sources: Sources::default(),
            warning: None,
        })
    }

    /// Returns the certificate of the issuer, if known.
    pub fn issuer_der(&self) -> Option<&[u8]> {
        self.issuer.as_deref().or(self.chain.get(1).map(|der| &**der))
    }

    /// Sets the OCSP response to staple until it expires. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The reason for not stapling it, with HAProxy's wording.
    pub fn staple(&mut self, response: &[u8], now: i64) -> Result<(), &'static str> {
        let response = ocsp::Response::parse(response)?;
        let issuer = self.issuer_der().ok_or("OCSP issuer not found")?;
        response.check(&self.chain[0], issuer, now)?;
        self.ocsp = Some(response);
        Ok(())
    }

    /// Returns the signature algorithm of the key.
    pub fn kind(&self) -> KeyKind {
        self.key.kind()
    }
}
