//! Keys for JSON Web Tokens, from PEM files, certificates and JSON Web Keys (RFC 7517), and the certificates that expressions may
//! name. Used by the `jwt_…` converters; independent of the token format.

mod der;
mod details;
mod jwk;
mod store;

use aws_lc_rs::agreement::{self, ECDH_P256, ECDH_P384, ECDH_P521};
use aws_lc_rs::rsa::PrivateDecryptingKey;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub use details::Details;
pub use jwk::parse_jwk;
pub(crate) use jwk::point;
pub use store::{CertificateCell, Certificates};

/// A public key: PKCS #1 for RSA, the point for EC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(pub Box<[u8]>);

/// A curve of RFC 7518, 6.2.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// The size of a coordinate in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// Looks up a curve by its name in RFC 7518.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "P-256" => Self::P256,
            "P-384" => Self::P384,
            "P-521" => Self::P521,
            _ => return None,
        })
    }

    /// The key agreement algorithm for the curve.
    pub fn agreement(self) -> &'static agreement::Algorithm {
        match self {
            Self::P256 => &ECDH_P256,
            Self::P384 => &ECDH_P384,
            Self::P521 => &ECDH_P521,
        }
    }
}

/// A decryption key.
#[derive(Debug)]
pub enum PrivateKey {
    /// A shared secret.
    Secret(Box<[u8]>),
    /// RSA.
    Rsa(Box<PrivateDecryptingKey>),
    /// The secret scalar of an EC key.
    Curve(Curve, agreement::PrivateKey),
}

/// A certificate, as used for tokens.
#[derive(Debug)]
pub struct Certificate {
    /// Its public key.
    pub public: PublicKey,
    /// The matching private key, if this file or another one contains it.
    pub private: Option<PrivateKey>,
    /// The certificate and its issuers in DER; empty if the file held only a key.
    pub chain: Vec<Vec<u8>>,
    /// The PEM text from which the private key was read.
    pub(crate) key_text: Option<Box<str>>,
}

impl Certificate {
    /// Parses PEM: a certificate, and its key in the same text or in `key`.
    ///
    /// # Errors
    /// The certificate is missing or cannot be parsed.
    pub fn from_pem(text: &str, key: Option<&str>) -> Result<Self, String> {
        let public = blocks(text).find_map(|(kind, der)| match kind {
            "CERTIFICATE" => der::certificate_key(&der),
            "PUBLIC KEY" => der::public_key(&der),
            "RSA PUBLIC KEY" => Some(PublicKey(der.into())),
            _ => None,
        });
        let public = public.ok_or("no certificate in PEM format")?;
        let private = match key {
            Some(key) => Some(
                private_key(key)
                    .ok_or("no private key in PEM format that is RSA or uses a supported curve")?,
            ),
            None => private_key(text),
        };
        let key_text = key_block(key.unwrap_or(text)).map(Into::into);
        let chain = blocks(text).filter(|(kind, _)| *kind == "CERTIFICATE").map(|(_, der)| der).collect();
        Ok(Self { public, private, chain, key_text })
    }

    /// The details for `show ssl cert`, or `None` for a bare key or an unreadable certificate.
    pub fn details(&self) -> Option<Details> {
        Details::of(&self.chain)
    }

    /// Everything in PEM, the key first.
    pub fn to_pem(&self) -> String {
        let mut out = self.key_text.as_deref().unwrap_or_default().to_owned();
        for der in &self.chain {
            out.push_str("-----BEGIN CERTIFICATE-----\n");
            let encoded = STANDARD.encode(der);
            for line in encoded.as_bytes().chunks(64) {
                out.push_str(&String::from_utf8_lossy(line));
                out.push('\n');
            }
            out.push_str("-----END CERTIFICATE-----\n");
        }
        out
    }
}

/// The public key in a PEM file. In `PUBLIC KEY` blocks, the key follows its algorithm; `RSA PUBLIC KEY` blocks contain only the
/// key.
pub fn public_key(text: &str) -> Option<PublicKey> {
    blocks(text).find_map(|(kind, der)| match kind {
        "RSA PUBLIC KEY" => Some(PublicKey(der.into())),
        "PUBLIC KEY" => der::public_key(&der),
        _ => None,
    })
}

/// The private key in a PEM file, in any container format.
fn private_key(text: &str) -> Option<PrivateKey> {
    blocks(text).find_map(|(kind, der)| match kind {
        "PRIVATE KEY" => der::private_key(&der),
        "RSA PRIVATE KEY" => rsa(&der::wrap_rsa(&der)),
        "EC PRIVATE KEY" => der::curve_of_sec1(&der).and_then(|curve| curve_key(curve, &der)),
        _ => None,
    })
}

/// The first PEM block that holds a private key, verbatim.
fn key_block(text: &str) -> Option<String> {
    let start = text.match_indices("-----BEGIN ").map(|(at, _)| at);
    let mut keys =
        start.filter(|at| text[*at..].lines().next().is_some_and(|line| line.contains("PRIVATE KEY")));
    let block = &text[keys.next()?..];
    let end = block.find("-----END ")?;
    let rest = &block[end..];
    let line = rest.split(['\r', '\n']).next().unwrap_or(rest);
    Some(format!("{}{line}\n", &block[..end]))
}

/// Parses an RSA key in PKCS #8.
fn rsa(pkcs8: &[u8]) -> Option<PrivateKey> {
    PrivateDecryptingKey::from_pkcs8(pkcs8).ok().map(|key| PrivateKey::Rsa(Box::new(key)))
}

/// Parses an EC key in PKCS #8 or SEC 1.
fn curve_key(curve: Curve, der: &[u8]) -> Option<PrivateKey> {
    let key = agreement::PrivateKey::from_private_key_der(curve.agreement(), der).ok()?;
    Some(PrivateKey::Curve(curve, key))
}

/// The blocks of a PEM text: label and DER.
fn blocks(text: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    text.split("-----BEGIN ").skip(1).filter_map(|block| {
        let (kind, rest) = block.split_once("-----")?;
        let encoded: String = rest.split("-----END").next()?.split_whitespace().collect();
        Some((kind, STANDARD.decode(encoded).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_keys_are_found_in_pem() {
        // An Ed25519 key is sufficient, because only the container is tested.
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
        assert_eq!(public_key(pem).map(|key| key.0.len()), Some(32));
        assert!(public_key("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_none());
        assert!(public_key("nothing").is_none());
        assert!(
            Certificate::from_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None)
                .is_err()
        );
    }
}
