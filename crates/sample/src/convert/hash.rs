//! Converters that compute hashes and message digests.

use base::hash;

use super::encode::b64;
use super::{Convert, digest, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

const AVALANCHE: &[Spec] = &[opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    // name arguments takes gives description
    row("crc32",  AVALANCHE,                                      Type::Bin,  Type::Int,  "CRC-32",                           crc32),
    row("crc32c", AVALANCHE,                                      Type::Bin,  Type::Int,  "CRC-32C",                          crc32c),
    row("djb2",   AVALANCHE,                                      Type::Bin,  Type::Int,  "computes the djb2 hash",           djb2),
    row("sdbm",   AVALANCHE,                                      Type::Bin,  Type::Int,  "computes the sdbm hash",           sdbm),
    row("wt6",    AVALANCHE,                                      Type::Bin,  Type::Int,  "computes the wt6 hash",            wt6),
    row("xxh32",  &[opt(ArgKind::Int)],                              Type::Bin,  Type::Int,  "computes the XXH32 hash, with an optional seed", xxh32),
    row("xxh64",  &[opt(ArgKind::Int)],                              Type::Bin,  Type::Int,  "computes the XXH64 hash, with an optional seed", xxh64),
    row("xxh3",   &[opt(ArgKind::Int)],                              Type::Bin,  Type::Int,  "computes the XXH3 hash, with an optional seed", xxh3),
    row("sha1",   &[],                                            Type::Bin,  Type::Bin,  "computes the SHA-1 digest",        digest).prepared(prepare_sha1),
    row("sha2",   &[opt(ArgKind::Int)],                              Type::Bin,  Type::Bin,  "computes a SHA-2 digest, 256 bits by default", digest).prepared(prepare_sha2),
    row("digest", &[arg(ArgKind::Str)],                              Type::Bin,  Type::Bin,  "computes a digest by name",        digest).prepared(prepare_digest),
    row("hmac",   &[arg(ArgKind::Str), arg(ArgKind::StrOrVariable)],    Type::Bin,  Type::Bin,  "computes an HMAC with a base64 key",hmac).prepared(prepare_hmac),
];

fn hashed<'a>(value: &Value<'a>, args: &Args, hash: fn(&[u8]) -> u32) -> Option<Value<'a>> {
    let hash = hash(value.bytes()?);
    let mixed = if args.int(0).unwrap_or(0) == 0 { hash } else { hash::avalanche(hash) };
    Some(Value::Int(i64::from(mixed)))
}

fn crc32<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    hashed(&value, args, hash::crc32)
}

fn crc32c<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    hashed(&value, args, hash::crc32c)
}

fn djb2<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    hashed(&value, args, hash::djb2)
}

fn sdbm<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    hashed(&value, args, hash::sdbm)
}

fn wt6<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    hashed(&value, args, hash::wt6)
}

fn xxh32<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let seed = args.int(0).unwrap_or(0) as u32;
    Some(Value::Int(i64::from(hash::xxh32(value.bytes()?, seed))))
}

fn xxh64<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let seed = args.int(0).unwrap_or(0) as u64;
    Some(Value::Int(hash::xxh64(value.bytes()?, seed) as i64))
}

fn xxh3<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let seed = args.int(0).unwrap_or(0) as u64;
    Some(Value::Int(hash::xxh3(value.bytes()?, seed) as i64))
}

fn digested<'a>(place: i64, bytes: &[u8]) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    digest::at(place)?.digest(bytes, &mut out);
    Some(Value::Bin(out.into()))
}

fn place_of(name: &str) -> Result<Arg, String> {
    digest::find(name).map(|place| Arg::Int(place as i64))
}

fn prepare_sha1(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    args.push(place_of("sha1")?);
    Ok(())
}

fn prepare_sha2(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    args[0] = place_of(match args[0] {
        Arg::Int(224) => "sha224",
        Arg::Missing | Arg::Int(256) => "sha256",
        Arg::Int(384) => "sha384",
        Arg::Int(512) => "sha512",
        _ => return Err("the digest size must be 224, 256, 384 or 512 bits".into()),
    })?;
    Ok(())
}

fn prepare_digest(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    args[0] = place_of(&String::from_utf8_lossy(text_of(&args[0])))?;
    Ok(())
}

/// `sha1`, `sha2` and `digest` only differ in how the algorithm is chosen.
fn digest<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    digested(args.int(0)?, value.bytes()?)
}

fn prepare_hmac(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let name = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    prepare_digest(args, scope)?;
    if let Arg::Int(place) = args[0]
        && !digest::at(place).is_some_and(digest::DigestAlgorithm::has_hmac)
    {
        return Err(format!("no HMAC with `{name}`: its output has no fixed length"));
    }
    if let Arg::Bytes(key) = &args[1] {
        let mut decoded = Vec::new();
        b64(key, &mut decoded).ok_or("the key is not valid base64")?;
        args[1] = Arg::Bytes(decoded.into());
    }
    Ok(())
}

fn hmac<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let mut key = Scratch::new();
    match args.get(1) {
        Arg::Bytes(decoded) => key.extend_from_slice(decoded),
        Arg::Var(var) => b64(&var.get(env)?.into_bin()?, &mut key)?,
        _ => return None,
    }
    let mut out = Scratch::new();
    digest::at(args.int(0)?)?.hmac(&key, value.bytes()?, &mut out);
    Some(Value::Bin(out.into()))
}
