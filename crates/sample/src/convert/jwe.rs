//! Encrypted JSON Web Tokens in compact form (RFC 7516), which have five parts. The second part is the encrypted key for the
//! fourth. The header's `alg` determines how that key is obtained, and `enc` how the contents are decrypted (RFC 7518, 4.1 and
//! 5.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use aes::{Aes128, Aes192, Aes256};
use aes_kw::Kek;
use aws_lc_rs::agreement::{UnparsedPublicKey, agree};
use aws_lc_rs::rsa::{
    OAEP_SHA1_MGF1SHA1, OAEP_SHA256_MGF1SHA256, OaepAlgorithm, OaepPrivateDecryptingKey,
    Pkcs1PrivateDecryptingKey, PrivateDecryptingKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::{Convert, cipher, gcm, row};
use crate::args::{Arg, ArgKind, Args, Prepared, Spec, arg};
use crate::env::Env;
use crate::keys::{CertificateCell, Certificates, PrivateKey, parse_jwk, point};
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

const KEY: &[Spec] = &[arg(ArgKind::StrOrVariable)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name                 arguments  takes       gives      description
    row("jwt_decrypt_jwk",    KEY,      Type::Str,  Type::Bin, "decrypts a token with a JSON Web Key",           jwt_decrypt_jwk).prepared(prepare_jwk),
    row("jwt_decrypt_secret", KEY,      Type::Str,  Type::Bin, "decrypts a token with a base64 secret",          jwt_decrypt_secret).prepared(prepare_secret),
    row("jwt_decrypt_cert",   KEY,      Type::Str,  Type::Bin, "decrypts a token with the private key of a certificate", jwt_decrypt_cert).prepared(prepare_cert),
];

/// The key management algorithms. The index is the bit in `jwt.decrypt_alg_list`.
pub const ALGORITHMS: &[&str] = &[
    "dir",
    "A128KW",
    "A192KW",
    "A256KW",
    "A128GCMKW",
    "A192GCMKW",
    "A256GCMKW",
    "RSA-OAEP",
    "RSA-OAEP-256",
    "ECDH-ES",
    "ECDH-ES+A128KW",
    "ECDH-ES+A192KW",
    "ECDH-ES+A256KW",
    "RSA1_5",
];

/// The content encryptions. The index is the bit in `jwt.decrypt_enc_list`.
pub const ENCRYPTIONS: &[&str] =
    &["A128CBC-HS256", "A192CBC-HS384", "A256CBC-HS512", "A128GCM", "A192GCM", "A256GCM"];

/// Initially all except RSA1_5, which RFC 8725 advises against.
static ALLOWED_ALGORITHMS: AtomicU32 = AtomicU32::new((1 << 13) - 1);
static ALLOWED_ENCRYPTIONS: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the allowed algorithms and encryptions (`jwt.decrypt_alg_list`, `jwt.decrypt_enc_list`) as bits. Called at startup.
pub fn allow(algorithms: u32, encryptions: u32) {
    ALLOWED_ALGORITHMS.store(algorithms, Relaxed);
    ALLOWED_ENCRYPTIONS.store(encryptions, Relaxed);
}

/// The default of the allowed algorithms and encryptions.
pub const DEFAULT_ALLOWED: (u32, u32) = ((1 << 13) - 1, u32::MAX);

/// A key given in the configuration.
#[derive(Debug)]
struct Fixed(PrivateKey);

impl Prepared for Fixed {}

/// The certificate named in the configuration, or all certificates if a variable holds the name.
#[derive(Debug)]
struct NamedCertificate(Option<Arc<CertificateCell>>, Arc<Certificates>);

impl Prepared for NamedCertificate {}

fn prepare_jwk(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    if let Arg::Bytes(text) = &args[0] {
        let key = parse_jwk(text).ok_or(
            "not a JSON Web Key for decryption: it must be an `oct`, `RSA` or `EC` key with its private part",
        )?;
        args.push(Arg::Prepared(Arc::new(Fixed(key))));
    }
    Ok(())
}

fn prepare_secret(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    if let Arg::Bytes(text) = &args[0] {
        let secret = secret_of(text).ok_or("the secret is not valid base64")?;
        args.push(Arg::Prepared(Arc::new(Fixed(PrivateKey::Secret(secret.into())))));
    }
    Ok(())
}

fn prepare_cert(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let all = scope.names.certificates();
    let certificate = match &args[0] {
        Arg::Bytes(name) => Some(super::jwt::certificate(&base::raw::text_of(name), &all, scope)?),
        _ => None,
    };
    let held = certificate.as_ref().and_then(|stored| stored.certificate());
    if held.is_some_and(|certificate| certificate.private.is_none()) {
        return Err("the certificate has no private key".into());
    }
    args.push(Arg::Prepared(Arc::new(NamedCertificate(certificate, all))));
    Ok(())
}

/// Decodes base64 with either alphabet, with or without padding.
fn secret_of(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD
        .decode(text)
        .or_else(|_| STANDARD_NO_PAD.decode(text))
        .or_else(|_| URL_SAFE_NO_PAD.decode(text))
        .ok()
}

/// Any decryption failure yields no value. The manual specifies an empty string, but in HAProxy `-m found` shows that there is no
/// value.
fn decrypted<'a>(token: &Value<'_>, key: Option<&PrivateKey>) -> Option<Value<'a>> {
    let contents = decrypt(token.bytes()?, key?)?;
    Some(Value::Bin(Bytes::Made(Scratch::copy(&contents))))
}

/// The current value of an argument's variable.
fn held<'e>(arg: &Arg, env: &'e Env<'_>) -> Option<Bytes<'e>> {
    match arg {
        Arg::Var(var) => var.get(env)?.into_bin(),
        _ => None,
    }
}

fn jwt_decrypt_jwk<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    if let Some(Fixed(key)) = args.prepared(1) {
        return decrypted(&value, Some(key));
    }
    let key = held(args.get(0), env).and_then(|text| parse_jwk(&text));
    decrypted(&value, key.as_ref())
}

fn jwt_decrypt_secret<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    if let Some(Fixed(key)) = args.prepared(1) {
        return decrypted(&value, Some(key));
    }
    let secret = held(args.get(0), env).and_then(|text| secret_of(&text));
    decrypted(&value, secret.map(|secret| PrivateKey::Secret(secret.into())).as_ref())
}

fn jwt_decrypt_cert<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let NamedCertificate(fixed, all) = args.prepared(1)?;
    let stored = fixed.clone().or_else(|| {
        let name = held(args.get(0), env)?;
        all.find(std::str::from_utf8(&name).ok()?)
    });
    let certificate = stored.and_then(|stored| stored.certificate());
    decrypted(&value, certificate.as_ref().and_then(|certificate| certificate.private.as_ref()))
}

/// A parsed token.
struct Token<'a> {
    header: serde_json::Value,
    /// The encoded header, which the tag of the contents authenticates.
    covered: &'a [u8],
    key: Vec<u8>,
    vector: Vec<u8>,
    contents: Vec<u8>,
    tag: Vec<u8>,
}

fn parse(token: &[u8]) -> Option<Token<'_>> {
    let mut parts = token.split(|byte| *byte == b'.');
    let covered = parts.next()?;
    let mut part = || URL_SAFE_NO_PAD.decode(parts.next()?).ok();
    let (key, vector, contents, tag) = (part()?, part()?, part()?, part()?);
    if parts.next().is_some() {
        return None;
    }
    let header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(covered).ok()?).ok()?;
    Some(Token { header, covered, key, vector, contents, tag })
}

/// The position of `name` in `names`, if its bit is set.
fn allowed(name: &str, names: &[&str], bits: &AtomicU32) -> bool {
    names.iter().position(|known| *known == name).is_some_and(|bit| bits.load(Relaxed) & 1 << bit != 0)
}

fn decrypt(token: &[u8], key: &PrivateKey) -> Option<Vec<u8>> {
    let token = parse(token)?;
    let algorithm = token.header.get("alg")?.as_str()?;
    let encryption = token.header.get("enc")?.as_str()?;
    if !allowed(algorithm, ALGORITHMS, &ALLOWED_ALGORITHMS)
        || !allowed(encryption, ENCRYPTIONS, &ALLOWED_ENCRYPTIONS)
    {
        return None;
    }
    let length = key_length(encryption);
    let contents_key = contents_key(&token, algorithm, encryption, key, length)?;
    if contents_key.len() != length {
        return None;
    }
    open(&token, encryption, &contents_key)
}

/// The key length of an encryption in bytes. If the tag is a MAC, this is the length of two keys.
fn key_length(encryption: &str) -> usize {
    match encryption {
        "A128GCM" => 16,
        "A192GCM" => 24,
        "A256GCM" | "A128CBC-HS256" => 32,
        "A192CBC-HS384" => 48,
        _ => 64,
    }
}

/// The content encryption key, obtained with the header's algorithm from a key of the matching kind. A secret that is too long is
/// truncated.
fn contents_key(
    token: &Token<'_>,
    algorithm: &str,
    encryption: &str,
    key: &PrivateKey,
    length: usize,
) -> Option<Vec<u8>> {
    match (algorithm, key) {
        ("dir", PrivateKey::Secret(secret)) if token.key.is_empty() => Some(secret.get(..length)?.to_vec()),
        ("A128KW" | "A192KW" | "A256KW", PrivateKey::Secret(secret)) => {
            unwrap(secret.get(..wrapping_length(algorithm))?, &token.key)
        }
        ("A128GCMKW" | "A192GCMKW" | "A256GCMKW", PrivateKey::Secret(secret)) => {
            let text = |name| URL_SAFE_NO_PAD.decode(token.header.get(name)?.as_str()?).ok();
            let (vector, tag) = (text("iv")?, text("tag")?);
            let mut wrapped = token.key.clone();
            gcm::open(secret.get(..wrapping_length(algorithm))?, &vector, &[], &tag, &mut wrapped)?;
            Some(wrapped)
        }
        ("RSA-OAEP", PrivateKey::Rsa(key)) => open_oaep(key, &OAEP_SHA1_MGF1SHA1, &token.key),
        ("RSA-OAEP-256", PrivateKey::Rsa(key)) => open_oaep(key, &OAEP_SHA256_MGF1SHA256, &token.key),
        ("RSA1_5", PrivateKey::Rsa(key)) => Some(open_pkcs1(key, &token.key, length)),
        ("ECDH-ES", PrivateKey::Curve(..)) => agreed(token, encryption, key, length),
        (_, PrivateKey::Curve(..)) => {
            let bytes = wrapping_length(algorithm.strip_prefix("ECDH-ES+")?);
            unwrap(&agreed(token, algorithm, key, bytes)?, &token.key)
        }
        _ => None,
    }
}

/// The length of the wrapping key in bytes.
fn wrapping_length(algorithm: &str) -> usize {
    match &algorithm[..4.min(algorithm.len())] {
        "A128" => 16,
        "A192" => 24,
        _ => 32,
    }
}

/// AES key unwrap (RFC 3394).
fn unwrap(key: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    match key.len() {
        16 => Kek::<Aes128>::try_from(key).ok()?.unwrap_vec(wrapped).ok(),
        24 => Kek::<Aes192>::try_from(key).ok()?.unwrap_vec(wrapped).ok(),
        32 => Kek::<Aes256>::try_from(key).ok()?.unwrap_vec(wrapped).ok(),
        _ => None,
    }
}

fn open_oaep(key: &PrivateDecryptingKey, algorithm: &'static OaepAlgorithm, text: &[u8]) -> Option<Vec<u8>> {
    let key = OaepPrivateDecryptingKey::new(key.clone()).ok()?;
    let mut out = vec![0; key.min_output_size()];
    key.decrypt(algorithm, text, &mut out, None).ok().map(|key| key.to_vec())
}

/// Invalid padding yields an unusable key instead of an error, because the sender must not be able to distinguish the two (RFC
/// 7516, 11.5).
fn open_pkcs1(key: &PrivateDecryptingKey, text: &[u8], length: usize) -> Vec<u8> {
    let opened = Pkcs1PrivateDecryptingKey::new(key.clone()).ok().and_then(|key| {
        let mut out = vec![0; key.min_output_size()];
        key.decrypt(text, &mut out).ok().map(|key| key.to_vec())
    });
    opened.filter(|key| key.len() == length).unwrap_or_else(|| {
        let mut random = vec![0; length];
        // Random bytes or all zeros; neither decrypts anything.
        let _ = aws_lc_rs::rand::fill(&mut random);
        random
    })
}

/// The shared secret of a Diffie-Hellman exchange, processed by the Concat KDF with SHA-256 in each round (RFC 7518, 4.6.2).
fn agreed(token: &Token<'_>, purpose: &str, key: &PrivateKey, length: usize) -> Option<Vec<u8>> {
    let PrivateKey::Curve(curve, secret) = key else { return None };
    let peer = point(token.header.get("epk")?, *curve)?;
    let party = |name: &str| match token.header.get(name) {
        None => Some(Vec::new()),
        Some(text) => URL_SAFE_NO_PAD.decode(text.as_str()?).ok(),
    };
    let (ours, theirs) = (party("apu")?, party("apv")?);
    agree(secret, UnparsedPublicKey::new(curve.agreement(), peer), (), |shared| {
        let mut derived = Vec::new();
        for round in 1u32.. {
            if derived.len() >= length {
                break;
            }
            let mut digest = Sha256::new();
            digest.update(round.to_be_bytes());
            digest.update(shared);
            for info in [purpose.as_bytes(), &ours, &theirs] {
                digest.update((info.len() as u32).to_be_bytes());
                digest.update(info);
            }
            digest.update((length as u32 * 8).to_be_bytes());
            derived.extend_from_slice(&digest.finalize());
        }
        derived.truncate(length);
        Ok(derived)
    })
    .ok()
}

/// Decrypts the contents if their tag matches.
fn open(token: &Token<'_>, encryption: &str, key: &[u8]) -> Option<Vec<u8>> {
    if encryption.ends_with("GCM") {
        let mut contents = token.contents.clone();
        gcm::open(key, &token.vector, token.covered, &token.tag, &mut contents)?;
        return Some(contents);
    }
    let (mac_key, cipher_key) = key.split_at(key.len() / 2);
    let covered =
        [token.covered, &token.vector, &token.contents, &(token.covered.len() as u64 * 8).to_be_bytes()];
    let right = match encryption {
        "A128CBC-HS256" => has_tag::<Hmac<Sha256>>(mac_key, &covered, &token.tag),
        "A192CBC-HS384" => has_tag::<Hmac<Sha384>>(mac_key, &covered, &token.tag),
        _ => has_tag::<Hmac<Sha512>>(mac_key, &covered, &token.tag),
    };
    right.then(|| cipher::open_cbc(cipher_key, &token.vector, &token.contents))?
}

/// Checks in constant time a tag that is the first half of a MAC (RFC 7518, 5.2.2.1).
fn has_tag<M: Mac + hmac::digest::KeyInit>(key: &[u8], covered: &[&[u8]], tag: &[u8]) -> bool {
    let Ok(mut mac) = <M as Mac>::new_from_slice(key) else { return false };
    covered.iter().for_each(|part| mac.update(part));
    tag.len() == key.len() && mac.verify_truncated_left(tag).is_ok()
}
