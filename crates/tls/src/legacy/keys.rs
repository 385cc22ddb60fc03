//! Keys in OpenSSL.

use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use openssl::sign::Signer;
use openssl::x509::X509;

use super::is_montgomery;
use crate::engine::key::{KeyFacts, KeyKind, PrivateKey};

/// Parses a private key of any kind, as DER: PKCS #8, PKCS #1, SEC 1, or the format for DSA.
pub(super) fn private(der: &[u8]) -> Option<PKey<Private>> {
    PKey::private_key_from_der(der).ok()
}

/// Decrypts the private key in an encrypted PEM block, to PKCS #8.
pub(crate) fn open_key(pem: &str, passphrase: &[u8]) -> Option<Vec<u8>> {
    PKey::private_key_from_pem_passphrase(pem.as_bytes(), passphrase).ok()?.private_key_to_pkcs8().ok()
}

/// Returns the facts about a private key. Returns `None` for a key that cannot be used for signing.
pub(crate) fn facts(der: &[u8]) -> Option<KeyFacts> {
    let key = private(der)?;
    let kind = match key.id() {
        Id::RSA | Id::RSA_PSS => KeyKind::Rsa,
        Id::DSA => KeyKind::Dsa,
        Id::EC => KeyKind::Ecdsa,
        Id::ED25519 | Id::ED448 => KeyKind::Ed25519,
        _ => return None,
    };
    let (public, pkcs8) = (key.public_key_to_der().ok()?, key.private_key_to_pkcs8().ok()?);
    Some(KeyFacts { kind, public: public.into(), pkcs8: pkcs8.into() })
}

/// Signs the SHA-256 digest of `message` with an RSA or ECDSA key.
pub(crate) fn sign(key: &PrivateKey, message: &[u8]) -> Option<Vec<u8>> {
    let key = private(key.der())?;
    Signer::new(MessageDigest::sha256(), &key).ok()?.sign_oneshot_to_vec(message).ok()
}

/// Formats a certificate as text (`openssl x509 -text`).
pub(crate) fn certificate_text(der: &[u8]) -> Option<String> {
    let text = X509::from_der(der).ok()?.to_text().ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns OpenSSL's name of an ephemeral key's group.
pub(super) fn group<T: HasPublic>(key: &PKeyRef<T>) -> Option<&'static str> {
    is_montgomery(key.id()).or_else(|| match key.ec_key().ok()?.group().curve_name()? {
        Nid::X9_62_PRIME256V1 => Some("P-256"),
        Nid::SECP384R1 => Some("P-384"),
        Nid::SECP521R1 => Some("P-521"),
        _ => None,
    })
}
