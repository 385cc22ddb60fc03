//! JSON Web Keys (RFC 7517; RFC 7518, 6): `oct`, `RSA` and `EC`.

use aws_lc_rs::agreement;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Curve, PrivateKey, der, rsa};

/// Parses a JSON Web Key for decryption, or `None` if it is invalid or public.
pub fn parse_jwk(text: &[u8]) -> Option<PrivateKey> {
    let key: serde_json::Value = serde_json::from_slice(text).ok()?;
    match key.get("kty")?.as_str()? {
        "oct" => bytes(&key, "k").map(|secret| PrivateKey::Secret(secret.into())),
        "RSA" => {
            let number = |name| bytes(&key, name);
            let (n, e, d, p, q) = (number("n")?, number("e")?, number("d")?, number("p")?, number("q")?);
            let (dp, dq, qi) = (number("dp")?, number("dq")?, number("qi")?);
            rsa(&der::wrap_rsa(&der::rsa_key([&n, &e, &d, &p, &q, &dp, &dq, &qi])))
        }
        "EC" => {
            let curve = Curve::named(key.get("crv")?.as_str()?)?;
            let secret = padded(bytes(&key, "d")?, curve.size())?;
            let secret = agreement::PrivateKey::from_private_key(curve.agreement(), &secret).ok()?;
            Some(PrivateKey::Curve(curve, secret))
        }
        _ => None,
    }
}

/// The uncompressed point of a public EC key, as found in a token's header (`epk`).
pub(crate) fn point(key: &serde_json::Value, curve: Curve) -> Option<Vec<u8>> {
    if key.get("kty")?.as_str()? != "EC" || Curve::named(key.get("crv")?.as_str()?)? != curve {
        return None;
    }
    let mut point = vec![4];
    point.extend(padded(bytes(key, "x")?, curve.size())?);
    point.extend(padded(bytes(key, "y")?, curve.size())?);
    Some(point)
}

fn bytes(key: &serde_json::Value, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(key.get(name)?.as_str()?.trim_end_matches('=')).ok()
}

/// Some implementations drop leading zeros.
fn padded(number: Vec<u8>, size: usize) -> Option<Vec<u8>> {
    let mut whole = vec![0; size.checked_sub(number.len())?];
    whole.extend(number);
    Some(whole)
}
