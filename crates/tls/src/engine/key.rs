//! Private keys and their certificates, in the form that rustls uses for signing.

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
    /// DSA, which only OpenSSL supports.
    Dsa,
}

/// A private key.
#[derive(Clone)]
pub struct PrivateKey {
    key: Signing,
    kind: KeyKind,
    /// The key as PKCS #8, for display to an administrator (`dump ssl cert`).
    pkcs8: Arc<[u8]>,
    /// The key as DER, for OpenSSL.
    #[cfg(feature = "legacy-tls")]
    der: Arc<[u8]>,
}

#[derive(Clone)]
enum Signing {
    Here(Arc<dyn SigningKey>),
    /// A key that only OpenSSL can use. Holds the public key as DER.
    #[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "nothing else signs with it"))]
    Elsewhere(Arc<[u8]>),
}

/// The information that OpenSSL provides about a private key that rustls does not support.
#[cfg(feature = "legacy-tls")]
pub(crate) struct KeyFacts {
    /// The signature algorithm of the key.
    pub(crate) kind: KeyKind,
    /// The public key as DER.
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

    /// Returns the key as PKCS #8. The result is secret.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// Creates a key that rustls does not support (a small size, an unusual curve, DSA) from OpenSSL's information about it.
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

    /// Whether only OpenSSL can sign with the key.
    pub fn needs_openssl(&self) -> bool {
        matches!(self.key, Signing::Elsewhere(_))
    }

    /// Returns the signature algorithm of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Whether the key can sign for a peer that supports `schemes`, given as TLS numbers.
    pub fn serves(&self, schemes: impl Iterator<Item = u16>) -> bool {
        let schemes: Vec<SignatureScheme> = schemes.map(SignatureScheme::from).collect();
        match &self.key {
            Signing::Here(key) => key.choose_scheme(&schemes).is_some(),
            Signing::Elsewhere(_) => false,
        }
    }

    /// Whether the key belongs to this certificate. Returns `None` if that cannot be determined.
    pub fn belongs_to(&self, certificate: &[u8]) -> Option<bool> {
        let facts = crate::x509::CertificateFields::parse(certificate).ok()?;
        Some(match &self.key {
            Signing::Here(key) => key.public_key()?.as_ref() == facts.key_info(),
            Signing::Elsewhere(public) => **public == *facts.key_info(),
        })
    }

    /// Returns the key with its chain, for a handshake. `schemes` limits the signature schemes, unless it is empty. Returns `None`
    /// for a key that only OpenSSL can use.
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
