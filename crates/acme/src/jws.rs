//! Signed requests (RFC 7515 as used by RFC 8555, 6.2): the account's key, its public form, its thumbprint (RFC 7638), and the
//! external account binding (RFC 8555, 7.3.4).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plan::acme::{Eab, MacAlgorithm};
use serde_json::{Value, json};

/// Base64 as used throughout ACME.
pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An account key.
pub(crate) struct AccountKey {
    key: Signing,
    algorithm: &'static str,
    /// The public key. Its members are in the order that a thumbprint requires.
    jwk: Value,
    thumbprint: String,
}

enum Signing {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// The curves: for each, the signature algorithm, its name, and the curve's name.
const CURVES: [(&EcdsaSigningAlgorithm, &str, &str); 3] = [
    (&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256", "P-256"),
    (&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384", "P-384"),
    (&ECDSA_P521_SHA512_FIXED_SIGNING, "ES512", "P-521"),
];

impl AccountKey {
    /// Parses a PKCS #8 key.
    ///
    /// # Errors
    /// The key type is not supported for accounts.
    pub(crate) fn from_pkcs8(der: &[u8]) -> Result<Self, &'static str> {
        for (algorithm, name, curve) in CURVES {
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(algorithm, der) {
                let point = key.public_key().as_ref();
                // The point is 0x04 followed by both coordinates.
                let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
                let jwk = json!({"crv": curve, "kty": "EC", "x": base64url(x), "y": base64url(y)});
                return Ok(Self::new(Signing::Ecdsa(key), name, jwk));
            }
        }
        let key = RsaKeyPair::from_pkcs8(der).map_err(|_| "neither an RSA nor an ECDSA key")?;
        let public: &rsa::PublicKey = key.public_key();
        let modulus = public.modulus().big_endian_without_leading_zero();
        let exponent = public.exponent().big_endian_without_leading_zero();
        let jwk = json!({"e": base64url(exponent), "kty": "RSA", "n": base64url(modulus)});
        Ok(Self::new(Signing::Rsa(key), "RS256", jwk))
    }

    fn new(key: Signing, algorithm: &'static str, jwk: Value) -> Self {
        // Values are serialized with sorted members and without blanks, as a thumbprint requires.
        let thumbprint = base64url(digest(&SHA256, jwk.to_string().as_bytes()));
        Self { key, algorithm, jwk, thumbprint }
    }

    /// The public key's thumbprint.
    pub(crate) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// The key authorization for a challenge (RFC 8555, 8.1).
    pub(crate) fn authorization(&self, token: &str) -> String {
        format!("{token}.{}", self.thumbprint)
    }

    /// Signs a request to `url`; an empty payload means a POST-as-GET. `account` is the account's URL. Without it, the key itself
    /// is included.
    ///
    /// # Errors
    /// Signing failed.
    pub(crate) fn sign(
        &self,
        url: &str,
        nonce: &str,
        account: Option<&str>,
        payload: &str,
    ) -> Result<Vec<u8>, &'static str> {
        let mut header = json!({"alg": self.algorithm, "nonce": nonce, "url": url});
        match account {
            Some(account) => header["kid"] = account.into(),
            None => header["jwk"] = self.jwk.clone(),
        }
        let (protected, payload) = (base64url(header.to_string()), base64url(payload));
        let input = format!("{protected}.{payload}");
        let random = SystemRandom::new();
        let signature = match &self.key {
            Signing::Ecdsa(key) => key
                .sign(&random, input.as_bytes())
                .map_err(|_| "the account key cannot create signatures")?
                .as_ref()
                .to_vec(),
            Signing::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, input.as_bytes(), &mut signature)
                    .map_err(|_| "the account key cannot create signatures")?;
                signature
            }
        };
        Ok(flattened(&protected, &payload, &signature).to_string().into_bytes())
    }

    /// Binds this key to an external account known to the authority, for `url` (newAccount).
    pub(crate) fn bind(&self, url: &str, eab: &Eab) -> Value {
        let (algorithm, name) = match eab.algorithm {
            MacAlgorithm::Hs256 => (hmac::HMAC_SHA256, "HS256"),
            MacAlgorithm::Hs384 => (hmac::HMAC_SHA384, "HS384"),
            MacAlgorithm::Hs512 => (hmac::HMAC_SHA512, "HS512"),
        };
        let header = json!({"alg": name, "kid": &*eab.key_id, "url": url});
        let (protected, payload) = (base64url(header.to_string()), base64url(self.jwk.to_string()));
        let key = hmac::Key::new(algorithm, &eab.mac_key);
        let tag = hmac::sign(&key, format!("{protected}.{payload}").as_bytes());
        flattened(&protected, &payload, tag.as_ref())
    }
}

fn flattened(protected: &str, payload: &str, signature: &[u8]) -> Value {
    json!({"protected": protected, "payload": payload, "signature": base64url(signature)})
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{self, UnparsedPublicKey};
    use tls::keygen::{self, Curve, NewKey};

    use super::*;

    fn decoded(value: &Value) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(value.as_str().expect("a text")).expect("base64url")
    }

    #[test]
    fn signatures_of_every_key_type_verify() {
        for (kind, name, verified) in [
            (NewKey::Ecdsa(Curve::P256), "ES256", &signature::ECDSA_P256_SHA256_FIXED),
            (NewKey::Ecdsa(Curve::P384), "ES384", &signature::ECDSA_P384_SHA384_FIXED),
            (NewKey::Ecdsa(Curve::P521), "ES512", &signature::ECDSA_P521_SHA512_FIXED),
        ] {
            let made = keygen::key(kind).expect("a key");
            let key = AccountKey::from_pkcs8(made.pkcs8()).expect("a key of an account");
            let signed = key.sign("https://a.test/x", "n", Some("https://a.test/1"), "{}").expect("it signs");
            let signed: Value = serde_json::from_slice(&signed).expect("JSON");
            let header: Value = serde_json::from_slice(&decoded(&signed["protected"])).expect("JSON");
            assert_eq!(header["alg"], name);
            assert_eq!((&header["kid"], &header["jwk"]), (&json!("https://a.test/1"), &Value::Null));
            let input = format!(
                "{}.{}",
                signed["protected"].as_str().expect("a text"),
                signed["payload"].as_str().expect("a text")
            );
            let point = [vec![4], decoded(&key.jwk["x"]), decoded(&key.jwk["y"])].concat();
            let public = UnparsedPublicKey::new(verified, point);
            public.verify(input.as_bytes(), &decoded(&signed["signature"])).expect("the signature is right");
        }
    }

    #[test]
    fn the_thumbprint_matches_the_standard() {
        // The key and the thumbprint in RFC 7638, 3.1.
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let jwk = json!({"e": "AQAB", "kty": "RSA", "n": n});
        let print = base64url(digest(&SHA256, jwk.to_string().as_bytes()));
        assert_eq!(print, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }

    #[test]
    fn an_rsa_key_signs_and_binds() {
        let made = keygen::key(NewKey::Rsa(2048)).expect("a key");
        let key = AccountKey::from_pkcs8(made.pkcs8()).expect("a key of an account");
        assert!(key.sign("https://a.test/x", "n", None, "").is_ok());
        assert_eq!(key.algorithm, "RS256");
        let eab = Eab { key_id: "me".into(), mac_key: [7; 64].into(), algorithm: MacAlgorithm::Hs512 };
        let bound = key.bind("https://a.test/new", &eab);
        let header: Value = serde_json::from_slice(&decoded(&bound["protected"])).expect("JSON");
        assert_eq!(header, json!({"alg": "HS512", "kid": "me", "url": "https://a.test/new"}));
        assert_eq!(decoded(&bound["signature"]).len(), 64);
    }
}
