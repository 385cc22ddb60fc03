//! JSON Web Tokens in compact form (RFC 7515): extracting claims and verifying signatures.

use std::sync::Arc;

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384, Sha512};

use super::encode::URL_LENIENT;
use super::{Convert, json, row};
use crate::args::{Arg, ArgKind, Args, Prepared, Spec, arg, opt, text_of};
use crate::env::Env;
use crate::keys::{self, Certificate, CertificateCell, Certificates, PublicKey};
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

const QUERY: &[Spec] = &[opt(ArgKind::Str), opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    // name arguments takes gives description
    row("jwt_header_query",    QUERY,                                                 Type::Str,  Type::Any,  "returns a token's header, or a value in it by JSON path", jwt_header_query).prepared(prepare_query),
    row("jwt_payload_query",   QUERY,                                                 Type::Str,  Type::Any,  "returns a token's payload, or a value in it by JSON path", jwt_payload_query).prepared(prepare_query),
    row("jwt_verify",          &[arg(ArgKind::StrOrVariable), arg(ArgKind::StrOrVariable)], Type::Str,  Type::Int,  "verifies a token's signature; 1 if it is valid",     jwt_verify).prepared(prepare_verify),
    row("jwt_verify_cert",     &[arg(ArgKind::StrOrVariable), arg(ArgKind::StrOrVariable)], Type::Str,  Type::Int,  "verifies a token's signature with the public key of a certificate; 1 if it is valid", jwt_verify_cert).prepared(prepare_verify_cert),
];

/// Verification results other than 1 and 0.
const UNKNOWN_ALGORITHM: i64 = -1;
const UNMANAGED_ALGORITHM: i64 = -2;
const INVALID_TOKEN: i64 = -3;
const UNKNOWN_KEY: i64 = -5;
const NOT_FOR_TOKENS: i64 = -7;

fn prepare_query(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    match args[0] {
        Arg::Missing => Ok(()),
        _ => json::prepare_query(args, scope),
    }
}

/// The decoded part of a token, or the value at the path in the arguments.
fn query<'a>(value: &Value<'a>, part: usize, args: &'a Args) -> Option<Value<'a>> {
    // Parts after this one are ignored; verification checks whether the token is valid.
    let encoded = value.bytes()?.split(|byte| *byte == b'.').nth(part)?;
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

/// The public key named in the configuration, and all keys for names held by variables.
#[derive(Debug)]
struct Public(Option<Arc<PublicKey>>, Arc<Certificates>);

impl Prepared for Public {}

/// The certificate named in the configuration, or all certificates if a variable holds the name.
#[derive(Debug)]
struct NamedCertificate(Option<Arc<CertificateCell>>, Arc<Certificates>);

impl Prepared for NamedCertificate {}

/// Reads the key if the argument names a file. Otherwise, the argument is a secret. A variable is evaluated at run time, and may
/// contain the name of a file that appears elsewhere in the configuration.
fn prepare_verify(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let algorithm = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    if matches!(args[0], Arg::Bytes(_)) && kind_of(algorithm.as_bytes()).is_err() {
        return Err(format!("unknown algorithm `{algorithm}`"));
    }
    if algorithm.starts_with("HS") || algorithm == "none" {
        return Ok(());
    }
    let all = scope.names.certificates();
    let Arg::Bytes(path) = &args[1] else {
        args.push(Arg::Prepared(Arc::new(Public(None, all))));
        return Ok(());
    };
    let path = base::raw::text_of(path).into_owned();
    let key = match scope.names.read_file(&path) {
        Ok(bytes) => {
            let key = keys::public_key(&String::from_utf8_lossy(&bytes))
                .ok_or_else(|| format!("`{path}` contains no public key in PEM format"))?;
            let key = Arc::new(key);
            all.insert_public(&path, &key);
            Some(key)
        }
        // The algorithm is only known at run time, so this may be a secret.
        Err(_) if matches!(args[0], Arg::Var(_)) => None,
        Err(error) => return Err(format!("cannot read the public key `{path}`: {error}")),
    };
    args.push(Arg::Prepared(Arc::new(Public(key, all))));
    Ok(())
}

/// The certificate of that name. A file that is not in the store is read now.
pub(super) fn certificate(
    name: &str,
    all: &Certificates,
    scope: &Scope<'_>,
) -> Result<Arc<CertificateCell>, String> {
    if let Some(known) = all.find(name) {
        // Naming the certificate here allows its use with tokens.
        known.set_for_tokens(true);
        return Ok(known);
    }
    if name.starts_with('@') {
        return Err(format!("no `crt-store` section loads `{name}`"));
    }
    let text = scope
        .names
        .read_file(name)
        .map_err(|error| format!("cannot read the certificate `{name}`: {error}"))?;
    let read = Certificate::from_pem(&String::from_utf8_lossy(&text), None);
    let read = read.map_err(|error| format!("`{name}`: {error}"))?;
    if read.chain.is_empty() {
        return Err(format!(
            "`{name}` contains a public key instead of a certificate; use `jwt_verify` for public keys"
        ));
    }
    Ok(all.insert(&[name], read, true))
}

fn prepare_verify_cert(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    if let Arg::Bytes(name) = &args[0] {
        match kind_of(name) {
            Ok(JwtAlgorithm::Public(_) | JwtAlgorithm::Curve(_) | JwtAlgorithm::None) => {}
            _ => {
                return Err(format!(
                    "algorithm `{}` does not use certificates",
                    String::from_utf8_lossy(name)
                ));
            }
        }
    }
    let all = scope.names.certificates();
    let fixed = match &args[1] {
        Arg::Bytes(name) => Some(certificate(&base::raw::text_of(name), &all, scope)?),
        _ => None,
    };
    args.push(Arg::Prepared(Arc::new(NamedCertificate(fixed, all))));
    Ok(())
}

enum JwtAlgorithm {
    Hmac(u16),
    /// RSA.
    Public(&'static dyn VerificationAlgorithm),
    /// ECDSA: a signature is two numbers of equal length.
    Curve(&'static dyn VerificationAlgorithm),
    None,
}

fn kind_of(name: &[u8]) -> Result<JwtAlgorithm, i64> {
    Ok(match name {
        b"HS256" => JwtAlgorithm::Hmac(256),
        b"HS384" => JwtAlgorithm::Hmac(384),
        b"HS512" => JwtAlgorithm::Hmac(512),
        b"RS256" => JwtAlgorithm::Public(&signature::RSA_PKCS1_2048_8192_SHA256),
        b"RS384" => JwtAlgorithm::Public(&signature::RSA_PKCS1_2048_8192_SHA384),
        b"RS512" => JwtAlgorithm::Public(&signature::RSA_PKCS1_2048_8192_SHA512),
        b"PS256" => JwtAlgorithm::Public(&signature::RSA_PSS_2048_8192_SHA256),
        b"PS384" => JwtAlgorithm::Public(&signature::RSA_PSS_2048_8192_SHA384),
        b"PS512" => JwtAlgorithm::Public(&signature::RSA_PSS_2048_8192_SHA512),
        b"ES256" => JwtAlgorithm::Curve(&signature::ECDSA_P256_SHA256_FIXED),
        b"ES384" => JwtAlgorithm::Curve(&signature::ECDSA_P384_SHA384_FIXED),
        b"ES512" => JwtAlgorithm::Curve(&signature::ECDSA_P521_SHA512_FIXED),
        b"none" => JwtAlgorithm::None,
        _ => return Err(UNKNOWN_ALGORITHM),
    })
}

/// A text argument, or the current value of its variable, or `None` if empty.
fn text<'a>(arg: &'a Arg, env: &Env<'_>) -> Option<Bytes<'a>> {
    let text = match arg {
        Arg::Bytes(bytes) => Bytes::Borrowed(bytes),
        Arg::Var(var) => var.get(env)?.into_str()?,
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn jwt_verify<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    run(&value, args, env, verify)
}

fn jwt_verify_cert<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    run(&value, args, env, verify_cert)
}

/// Verifies a signature: takes the signed data, the algorithm, the key's name and the arguments.
type Check = fn(Signed<'_>, JwtAlgorithm, &[u8], &Args) -> Result<bool, i64>;

/// Without an algorithm or a key name, there is no result.
fn run<'a>(value: &Value<'a>, args: &Args, env: &Env<'_>, check: Check) -> Option<Value<'a>> {
    let token = value.bytes()?;
    let (algorithm, key) = (text(args.get(0), env)?, text(args.get(1), env)?);
    let verify = || match kind_of(&algorithm)? {
        JwtAlgorithm::None => unsigned(token),
        algorithm => check(signed(token)?, algorithm, &key, args),
    };
    Some(Value::Int(verify().map_or_else(|code| code, i64::from)))
}

/// A token with three parts and no algorithm must have an empty signature.
fn unsigned(token: &[u8]) -> Result<bool, i64> {
    let mut parts = token.split(|byte| *byte == b'.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (_, Some(_), Some(signature), None) => Ok(signature.is_empty()),
        _ => Err(INVALID_TOKEN),
    }
}

/// The signed data, and the signature.
type Signed<'t> = (&'t [u8], Vec<u8>);

/// Splits a signed token.
fn signed(token: &[u8]) -> Result<Signed<'_>, i64> {
    let parts = token.iter().filter(|byte| **byte == b'.').count() + 1;
    let last = token.iter().rposition(|byte| *byte == b'.').filter(|_| parts == 3).ok_or(INVALID_TOKEN)?;
    // RFC 7515, 2: base64 without padding. As in HAProxy, padding counts as digits, so that the signature does not match.
    let encoded: Vec<u8> =
        token[last + 1..].iter().map(|byte| if *byte == b'=' { b'_' } else { *byte }).collect();
    let signature = URL_LENIENT.decode(encoded).map_err(|_| INVALID_TOKEN)?;
    if signature.is_empty() { Err(INVALID_TOKEN) } else { Ok((&token[..last], signature)) }
}

fn verify(token: Signed<'_>, algorithm: JwtAlgorithm, key: &[u8], args: &Args) -> Result<bool, i64> {
    if let JwtAlgorithm::Hmac(bits) = algorithm {
        return Ok(verify_hmac(bits, key, token.0, &token.1));
    }
    let Public(fixed, all) = args.prepared(2).ok_or(UNKNOWN_KEY)?;
    let found = || all.find_public(std::str::from_utf8(key).ok()?);
    let key = fixed.clone().or_else(found).ok_or(UNKNOWN_KEY)?;
    verify_public(algorithm, &key, token)
}

fn verify_cert(token: Signed<'_>, algorithm: JwtAlgorithm, name: &[u8], args: &Args) -> Result<bool, i64> {
    if matches!(algorithm, JwtAlgorithm::Hmac(_)) {
        return Err(UNMANAGED_ALGORITHM);
    }
    let NamedCertificate(fixed, all) = args.prepared(2).ok_or(UNKNOWN_KEY)?;
    let found = || all.find(std::str::from_utf8(name).ok()?);
    let stored = fixed.clone().or_else(found).filter(|stored| stored.exists()).ok_or(UNKNOWN_KEY)?;
    if !stored.for_tokens() {
        return Err(NOT_FOR_TOKENS);
    }
    let certificate = stored.certificate().ok_or(UNKNOWN_KEY)?;
    verify_public(algorithm, &certificate.public, token)
}

fn verify_public(algorithm: JwtAlgorithm, key: &PublicKey, token: Signed<'_>) -> Result<bool, i64> {
    let (signed, signature) = token;
    let algorithm = match algorithm {
        JwtAlgorithm::Public(algorithm) => algorithm,
        JwtAlgorithm::Curve(_) if signature.len() % 2 == 1 => return Err(INVALID_TOKEN),
        JwtAlgorithm::Curve(algorithm) => algorithm,
        JwtAlgorithm::Hmac(_) | JwtAlgorithm::None => return Err(UNMANAGED_ALGORITHM),
    };
    Ok(UnparsedPublicKey::new(algorithm, &*key.0).verify(signed, &signature).is_ok())
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
