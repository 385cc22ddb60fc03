//! Keys that all workers, and with `cluster-secret` all nodes, have in common.

use std::sync::Arc;

use aws_lc_rs::{aead, hkdf, hmac, rand};

/// The keys of stateless reset tokens and of address tokens.
#[derive(Clone)]
pub struct SharedKeys(Arc<DerivedKeys>);

struct DerivedKeys {
    /// Derives stateless reset tokens (RFC 9000, 10.3).
    reset: hmac::Key,
    /// Encrypts Retry and NEW_TOKEN tokens.
    token: aead::RandomizedNonceKey,
}

impl SharedKeys {
    /// Derives the keys from a secret.
    ///
    /// # Panics
    /// The cryptographic library lacks AES-256-GCM or HKDF, which are built in.
    pub fn new(secret: &[u8]) -> Self {
        let derived = |label: &[u8]| {
            let mut key = [0; 32];
            let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, label).extract(secret);
            let filled = prk.expand(&[b"key"], hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut key));
            debug_assert!(filled.is_ok(), "32 bytes are one block");
            key
        };
        let token = aead::RandomizedNonceKey::new(&aead::AES_256_GCM, &derived(b"weir quic address token"));
        Self(Arc::new(DerivedKeys {
            reset: hmac::Key::new(hmac::HMAC_SHA256, &derived(b"weir quic stateless reset")),
            token: token.unwrap_or_else(|_| unreachable!("the key has the cipher's length")),
        }))
    }

    /// Returns keys from a random secret.
    pub fn random() -> Self {
        let mut secret = [0; 32];
        fill_random(&mut secret);
        Self::new(&secret)
    }

    /// Returns the token that proves that we have lost a connection with this ID.
    pub(crate) fn reset_token(&self, id: &[u8]) -> [u8; 16] {
        let mut token = [0; 16];
        token.copy_from_slice(&hmac::sign(&self.0.reset, id).as_ref()[..16]);
        token
    }

    /// Encrypts a token, with its nonce at the end.
    pub(crate) fn seal(&self, token: &mut Vec<u8>) -> Option<()> {
        let nonce = self.0.token.seal_in_place_append_tag(aead::Aad::empty(), token).ok()?;
        token.extend_from_slice(nonce.as_ref());
        Some(())
    }

    /// Decrypts a token in place.
    pub(crate) fn open<'a>(&self, token: &'a mut [u8]) -> Option<&'a [u8]> {
        let (sealed, nonce) = token.split_last_chunk_mut::<{ aead::NONCE_LEN }>()?;
        let nonce = aead::Nonce::from(&*nonce);
        self.0.token.open_in_place(nonce, aead::Aad::empty(), sealed).ok().map(|plain| &*plain)
    }
}

impl std::fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedKeys")
    }
}

pub(crate) fn fill_random(bytes: &mut [u8]) {
    let filled = rand::fill(bytes);
    debug_assert!(filled.is_ok(), "the generator cannot fail after it has started");
}
