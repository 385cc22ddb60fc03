//! JSON Web Tokens in compact form (RFC 7515): looking into them, and verifying their signature.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use sha2::{Sha256, Sha384, Sha512};

use super::encode::URL_LENIENT;
use super::{Convert, json, row};
use crate::args::{Arg, Args, Kind, Prepared, Spec, arg, opt, text_of};
use crate::env::{Env, Scope};
use crate::value::{Scratch, Type, Value};

const QUERY: &[Spec] = &[opt(Kind::Str), opt(Kind::Str)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name                   arguments                                              takes       gives       what it does
    row("jwt_header_query",    QUERY,                                                 Type::Str,  Type::Any,  "a token's header, or what a JSON path finds in it",  jwt_header_query).prepared(prepare_query),
    row("jwt_payload_query",   QUERY,                                                 Type::Str,  Type::Any,  "a token's payload, or what a JSON path finds in it", jwt_payload_query).prepared(prepare_query),
    row("jwt_verify",          &[arg(Kind::StrOrVariable), arg(Kind::StrOrVariable)], Type::Str,  Type::Int,  "1 if a token's signature is right",                  jwt_verify).prepared(prepare_verify),
];

/// Verification results beside 1 and 0.
const UNKNOWN_ALGORITHM: i64 = -1;
const UNMANAGED_ALGORITHM: i64 = -2;
const INVALID_TOKEN: i64 = -3;
const UNKNOWN_KEY: i64 = -5;

fn prepare_query(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    match args[0] {
        Arg::Missing => Ok(()),
        _ => json::prepare_query(args, scope),
    }
}

/// The decoded part of a token, or what the path in the arguments finds in it.
fn query<'a>(value: &Value<'a>, part: usize, args: &'a Args) -> Option<Value<'a>> {
    let mut parts = value.bytes()?.split(|byte| *byte == b'.');
    let encoded = parts.nth(part)?;
    // What follows the payload is the signature; without it this is no token.
    parts.nth(1 - part)?;
    let mut decoded = Scratch::new();
    URL_LENIENT.decode_vec(encoded, &mut decoded).ok()?;
    match args.get(0) {
        Arg::Missing => Some(Value::made(decoded)),
        _ => json::query(&decoded, args),
    }
}

fn jwt_header_query<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    query(&value, 0, args)
}

fn jwt_payload_query<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    query(&value, 1, args)
}

/// A public key: of RSA as PKCS #1, of a curve as its point.
#[derive(Debug)]
struct PublicKey(Box<[u8]>);

impl Prepared for PublicKey {}

/// The contents of the first element of DER, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(*first), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

/// The key in a PEM file: `PUBLIC KEY` holds it behind the name of its algorithm, `RSA PUBLIC KEY` by itself.
fn parse_pem(text: &str) -> Option<PublicKey> {
    let inner = text.split("-----BEGIN ").nth(1)?;
    let (kind, rest) = inner.split_once("-----")?;
    let encoded: String = rest.split("-----END").next()?.split_whitespace().collect();
    let der = STANDARD.decode(encoded).ok()?;
    match kind {
        "RSA PUBLIC KEY" => Some(PublicKey(der.into())),
        "PUBLIC KEY" => {
            let (_, info, _) = element(&der)?;
            let (_, _, after_algorithm) = element(info)?;
            let (tag, bits, _) = element(after_algorithm)?;
            // A string of bits whose first byte counts the unused ones.
            (tag == 3).then(|| PublicKey(bits.get(1..).unwrap_or_default().into()))
        }
        _ => None,
    }
}

/// Reads the key where it is a file's name; what is no file is a secret. A variable is looked at when it is used.
fn prepare_verify(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let algorithm = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    if matches!(args[0], Arg::Bytes(_))
        && kind_of(algorithm.as_bytes()).is_err_and(|code| code == UNKNOWN_ALGORITHM)
    {
        return Err(format!("unknown algorithm `{algorithm}`"));
    }
    if algorithm.starts_with("HS") || algorithm == "none" {
        return Ok(());
    }
    let Arg::Bytes(path) = &args[1] else { return Ok(()) };
    let path = String::from_utf8_lossy(path).into_owned();
    match scope.names.read_file(&path) {
        Ok(bytes) => {
            let key = parse_pem(&String::from_utf8_lossy(&bytes));
            args.push(Arg::Prepared(Arc::new(
                key.ok_or_else(|| format!("`{path}` holds no public key in PEM"))?,
            )));
            Ok(())
        }
        // The algorithm will be known later: this may be a secret.
        Err(_) if matches!(args[0], Arg::Var(_)) => Ok(()),
        Err(error) => Err(format!("cannot read the public key `{path}`: {error}")),
    }
}

enum Algorithm {
    Hmac(u16),
    Public(&'static dyn VerificationAlgorithm),
    None,
}

fn kind_of(name: &[u8]) -> Result<Algorithm, i64> {
    Ok(match name {
        b"HS256" => Algorithm::Hmac(256),
        b"HS384" => Algorithm::Hmac(384),
        b"HS512" => Algorithm::Hmac(512),
        b"RS256" => Algorithm::Public(&signature::RSA_PKCS1_2048_8192_SHA256),
        b"RS384" => Algorithm::Public(&signature::RSA_PKCS1_2048_8192_SHA384),
        b"RS512" => Algorithm::Public(&signature::RSA_PKCS1_2048_8192_SHA512),
        b"PS256" => Algorithm::Public(&signature::RSA_PSS_2048_8192_SHA256),
        b"PS384" => Algorithm::Public(&signature::RSA_PSS_2048_8192_SHA384),
        b"PS512" => Algorithm::Public(&signature::RSA_PSS_2048_8192_SHA512),
        b"ES256" => Algorithm::Public(&signature::ECDSA_P256_SHA256_FIXED),
        b"ES384" => Algorithm::Public(&signature::ECDSA_P384_SHA384_FIXED),
        b"none" => Algorithm::None,
        b"ES512" => return Err(UNMANAGED_ALGORITHM),
        _ => return Err(UNKNOWN_ALGORITHM),
    })
}

/// A text argument, or what its variable holds now.
fn text<'a>(arg: &'a Arg, env: &Env<'_>) -> Option<crate::value::Bytes<'a>> {
    match arg {
        Arg::Bytes(bytes) => Some(crate::value::Bytes::Borrowed(bytes)),
        Arg::Var(var) => var.get(env)?.into_bin(),
        _ => None,
    }
}

fn jwt_verify<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let token = value.bytes()?;
    Some(Value::Int(verify(token, args, env).unwrap_or_else(|code| code)))
}

fn verify(token: &[u8], args: &Args, env: &Env<'_>) -> Result<i64, i64> {
    let algorithm = text(args.get(0), env).ok_or(UNKNOWN_ALGORITHM)?;
    let algorithm = kind_of(&algorithm)?;
    let parts = token.iter().filter(|byte| **byte == b'.').count() + 1;
    let last = token.iter().rposition(|byte| *byte == b'.').filter(|_| parts == 3).ok_or(INVALID_TOKEN)?;
    let (signed, encoded) = (&token[..last], &token[last + 1..]);
    if matches!(algorithm, Algorithm::None) {
        return Ok(i64::from(encoded.is_empty()));
    }
    let signature = URL_LENIENT.decode(encoded).map_err(|_| INVALID_TOKEN)?;
    match algorithm {
        Algorithm::Hmac(bits) => {
            let secret = text(args.get(1), env).ok_or(UNKNOWN_KEY)?;
            Ok(i64::from(verify_hmac(bits, &secret, signed, &signature)))
        }
        Algorithm::Public(algorithm) => {
            let key: &PublicKey = args.prepared(2).ok_or(UNKNOWN_KEY)?;
            Ok(i64::from(UnparsedPublicKey::new(algorithm, &*key.0).verify(signed, &signature).is_ok()))
        }
        Algorithm::None => Ok(0),
    }
}

fn verify_hmac(bits: u16, secret: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    macro_rules! verify {
        ($digest:ty) => {
            Hmac::<$digest>::new_from_slice(secret).is_ok_and(|mut mac| {
                mac.update(signed);
                mac.verify_slice(signature).is_ok()
            })
        };
    }
    match bits {
        256 => verify!(Sha256),
        384 => verify!(Sha384),
        _ => verify!(Sha512),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_is_found_in_its_pem() {
        // An Ed25519 key serves as well: what counts is the frame.
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
        assert_eq!(parse_pem(pem).map(|key| key.0.len()), Some(32));
        assert!(parse_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_none());
        assert!(parse_pem("nothing").is_none());
    }

    #[test]
    fn the_example_of_rfc_7515_verifies() {
        let secret = URL_LENIENT
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap();
        let signed = b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let signature = URL_LENIENT.decode("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").unwrap();
        assert!(verify_hmac(256, &secret, signed, &signature));
        assert!(!verify_hmac(256, &secret, &signed[1..], &signature));
    }
}
