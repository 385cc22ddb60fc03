//! Private keys and their certificates, in the form in which rustls signs with them.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::pkcs8;

/// The signature algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA.
    Rsa,
    /// ECDSA, on any curve.
    Ecdsa,
    /// Ed25519 or another EdDSA variant.
    Ed25519,
    /// DSA, only supported by OpenSSL.
    Dsa,
}

/// A private key.
#[derive(Clone)]
pub struct PrivateKey {
    key: Signing,
    kind: KeyKind,
    /// As PKCS #8, for display to an administrator (`dump ssl cert`).
    pkcs8: Arc<[u8]>,
    /// As DER, for OpenSSL.
    #[cfg(feature = "legacy-tls")]
    der: Arc<[u8]>,
}

#[derive(Clone)]
enum Signing {
    Here(Arc<dyn SigningKey>),
    /// Only usable by OpenSSL. Its public key as DER.
    #[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "nothing else signs with it"))]
    Elsewhere(Arc<[u8]>),
}

/// OpenSSL's information about a private key that rustls does not support.
#[cfg(feature = "legacy-tls")]
pub(crate) struct KeyFacts {
    /// Its signature algorithm.
    pub(crate) kind: KeyKind,
    /// Its public key as DER.
    pub(crate) public: Box<[u8]>,
    /// The key as PKCS #8.
    pub(crate) pkcs8: Box<[u8]>,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?})", self.kind)
    }
}

impl PrivateKey {
    /// Parses a DER key: PKCS #8, PKCS #1 or SEC 1.
    ///
    /// # Errors
    /// A short reason.
    pub fn from_der(der: &[u8]) -> Result<Self, &'static str> {
        let whole = PrivateKeyDer::try_from(der).map_err(|_| "not a private key")?;
        let key = any_supported_type(&whole).map_err(|_| "unsupported type or size of private key")?;
        let pkcs8 = match &whole {
            PrivateKeyDer::Pkcs1(_) => pkcs8::of_rsa(der),
            PrivateKeyDer::Sec1(_) => pkcs8::of_curve(der).ok_or("private key without a curve name")?,
            _ => der.to_vec(),
        };
        let kind = match key.algorithm() {
            SignatureAlgorithm::RSA => KeyKind::Rsa,
            SignatureAlgorithm::ECDSA => KeyKind::Ecdsa,
            _ => KeyKind::Ed25519,
        };
        Ok(Self {
            key: Signing::Here(key),
            kind,
            pkcs8: pkcs8.into(),
            #[cfg(feature = "legacy-tls")]
            der: der.into(),
        })
    }

    /// Returns it as PKCS #8, which is secret.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// Creates a key that rustls does not support (a small size, an unusual curve, DSA), from OpenSSL's information about it.
    #[cfg(feature = "legacy-tls")]
    pub(crate) fn elsewhere(der: &[u8], facts: KeyFacts) -> Self {
        let KeyFacts { kind, public, pkcs8 } = facts;
        Self { key: Signing::Elsewhere(public.into()), kind, pkcs8: pkcs8.into(), der: der.into() }
    }

    /// Returns the key as DER.
    #[cfg(feature = "legacy-tls")]
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether only OpenSSL signs with it.
    pub fn needs_openssl(&self) -> bool {
        matches!(self.key, Signing::Elsewhere(_))
    }

    /// Returns its signature algorithm.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Whether it can sign for a peer that supports `schemes`, by their numbers in TLS.
    pub fn serves(&self, schemes: impl Iterator<Item = u16>) -> bool {
        let schemes: Vec<SignatureScheme> = schemes.map(SignatureScheme::from).collect();
        match &self.key {
            Signing::Here(key) => key.choose_scheme(&schemes).is_some(),
            Signing::Elsewhere(_) => false,
        }
    }

    /// Whether it is the key of this certificate. `None` if that cannot be determined.
    pub fn belongs_to(&self, certificate: &[u8]) -> Option<bool> {
        let facts = crate::x509::CertificateFields::parse(certificate).ok()?;
        Some(match &self.key {
            Signing::Here(key) => key.public_key()?.as_ref() == facts.key_info(),
            Signing::Elsewhere(public) => **public == *facts.key_info(),
        })
    }

    /// Returns the key with its chain, for a handshake. `schemes` limits the signature schemes, unless it is empty. `None` for a
    /// key that only OpenSSL can use.
    pub(super) fn certified(
        &self,
        chain: &[Arc<[u8]>],
        ocsp: Option<&[u8]>,
        schemes: &[u16],
    ) -> Option<Arc<CertifiedKey>> {
        let Signing::Here(own) = &self.key else { return None };
        let chain = chain.iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        let key = if schemes.is_empty() {
            own.clone()
        } else {
            let schemes = schemes.iter().copied().map(SignatureScheme::from).collect();
            Arc::new(Limited { key: own.clone(), schemes })
        };
        let mut certified = CertifiedKey::new(chain, key);
        certified.ocsp = ocsp.map(<[u8]>::to_vec);
        Some(Arc::new(certified))
    }
}

/// A key restricted to some of its signature schemes (`sigalgs`), in that order.
#[derive(Debug)]
struct Limited {
    key: Arc<dyn SigningKey>,
    schemes: Vec<SignatureScheme>,
}

impl SigningKey for Limited {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let both = self.schemes.iter().filter(|scheme| offered.contains(scheme));
        both.copied().find_map(|scheme| self.key.choose_scheme(&[scheme]))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}
