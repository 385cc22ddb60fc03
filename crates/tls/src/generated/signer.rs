//! What an authority signs certificates with: always over SHA-256, as HAProxy does, or Ed25519.

use std::fmt;

use aws_lc_rs::digest::{self, Digest, SHA256, SHA384};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA256_ASN1_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};

use crate::engine::key::{KeyKind, PrivateKey};
use crate::legacy;

/// The AlgorithmIdentifiers of the signatures: sha256WithRSAEncryption, ecdsa-with-SHA256, Ed25519.
const RSA: &[u8] = &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, 5, 0];
const ECDSA: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const ED25519: &[u8] = &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70];

/// A key, made ready.
pub(super) enum Signer {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    P521(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    /// A key of a size or curve that only OpenSSL has.
    Elsewhere(PrivateKey),
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// # Errors
    /// The key is of a kind that signs no certificates here.
    pub(super) fn new(key: &PrivateKey) -> Result<Self, &'static str> {
        let der = key.pkcs8();
        let signer = match key.kind() {
            KeyKind::Rsa | KeyKind::Ecdsa if key.needs_openssl() => Some(Self::Elsewhere(key.clone())),
            KeyKind::Rsa => RsaKeyPair::from_pkcs8(der).ok().map(Self::Rsa),
            KeyKind::Ecdsa => {
                let of = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der).ok();
                of(&ECDSA_P256_SHA256_ASN1_SIGNING)
                    .map(Self::P256)
                    .or_else(|| of(&ECDSA_P384_SHA384_ASN1_SIGNING).map(Self::P384))
                    .or_else(|| of(&ECDSA_P521_SHA256_ASN1_SIGNING).map(Self::P521))
            }
            KeyKind::Ed25519 => Ed25519KeyPair::from_pkcs8(der).ok().map(Self::Ed25519),
            KeyKind::Dsa => None,
        };
        let signer = signer.ok_or("unsupported key type: use RSA, ECDSA or Ed25519")?;
        signer.sign(b"trial").ok_or("its key cannot create signatures")?;
        Ok(signer)
    }

    /// The AlgorithmIdentifier of its signatures.
    pub(super) fn algorithm(&self) -> &'static [u8] {
        match self {
            Self::Rsa(_) => RSA,
            Self::P256(_) | Self::P384(_) | Self::P521(_) => ECDSA,
            Self::Ed25519(_) => ED25519,
            Self::Elsewhere(key) if key.kind() == KeyKind::Rsa => RSA,
            Self::Elsewhere(_) => ECDSA,
        }
    }

    /// Its signature over `message`.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Self::P256(key) | Self::P521(key) => Some(key.sign(&random, message).ok()?.as_ref().to_vec()),
            Self::P384(key) => Some(key.sign_digest(&widened(message)?).ok()?.as_ref().to_vec()),
            Self::Ed25519(key) => Some(key.sign(message).as_ref().to_vec()),
            Self::Elsewhere(key) => legacy::sign(key, message),
        }
    }
}

/// The SHA-256 digest of `message`, padded to the length of a SHA-384 digest, which is the only one that the library signs
/// with P-384. ECDSA reads the digest as a number, so leading zeros do not change the signature. A digest that is not longer
/// than the order of the curve is not truncated (FIPS 186-5, 6.4.1).
fn widened(message: &[u8]) -> Option<Digest> {
    let short = digest::digest(&SHA256, message);
    let mut long = [0; 48];
    long[16..].copy_from_slice(short.as_ref());
    Digest::import_less_safe(&long, &SHA384).ok()
}
