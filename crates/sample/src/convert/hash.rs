//! Hashes and message digests.

use base::hash;
use hmac::{Hmac, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Convert, row};
use crate::args::{Arg, Args, Kind, Spec, arg, opt, text_of};
use crate::env::{Env, Scope};
use crate::value::{Scratch, Type, Value};

const AVALANCHE: &[Spec] = &[opt(Kind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name      arguments                                       takes       gives       what it does
    row("crc32",  AVALANCHE,                                      Type::Bin,  Type::Int,  "CRC-32",                           crc32),
    row("crc32c", AVALANCHE,                                      Type::Bin,  Type::Int,  "CRC-32C",                          crc32c),
    row("djb2",   AVALANCHE,                                      Type::Bin,  Type::Int,  "the hash djb2",                    djb2),
    row("sdbm",   AVALANCHE,                                      Type::Bin,  Type::Int,  "the hash sdbm",                    sdbm),
    row("wt6",    AVALANCHE,                                      Type::Bin,  Type::Int,  "the hash wt6",                     wt6),
    row("xxh32",  &[opt(Kind::Int)],                              Type::Bin,  Type::Int,  "the hash XXH32, with a seed",      xxh32),
    row("xxh64",  &[opt(Kind::Int)],                              Type::Bin,  Type::Int,  "the hash XXH64, with a seed",      xxh64),
    row("xxh3",   &[opt(Kind::Int)],                              Type::Bin,  Type::Int,  "the hash XXH3, with a seed",       xxh3),
    row("sha1",   &[],                                            Type::Bin,  Type::Bin,  "the digest SHA-1",                 sha1),
    row("sha2",   &[opt(Kind::Int)],                              Type::Bin,  Type::Bin,  "a digest SHA-2, of 256 bits by default", sha2).prepared(prepare_sha2),
    row("digest", &[arg(Kind::Str)],                              Type::Bin,  Type::Bin,  "a digest, by name",                digest).prepared(prepare_digest),
    row("hmac",   &[arg(Kind::Str), arg(Kind::StrOrVariable)],    Type::Bin,  Type::Bin,  "an HMAC, by digest and base64 key",hmac).prepared(prepare_hmac),
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

/// Digests by name, as OpenSSL names them.
const DIGESTS: &[&str] = &["sha1", "sha224", "sha256", "sha384", "sha512", "md5"];

fn digest_of<'a>(number: i64, bytes: &[u8]) -> Option<Value<'a>> {
    let out = match number {
        0 => Scratch::copy(&Sha1::digest(bytes)),
        1 => Scratch::copy(&Sha224::digest(bytes)),
        2 => Scratch::copy(&Sha256::digest(bytes)),
        3 => Scratch::copy(&Sha384::digest(bytes)),
        4 => Scratch::copy(&Sha512::digest(bytes)),
        5 => Scratch::copy(&Md5::digest(bytes)),
        _ => return None,
    };
    Some(Value::Bin(out.into()))
}

fn sha1<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    digest_of(0, value.bytes()?)
}

fn prepare_sha2(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    args[0] = Arg::Int(match args[0] {
        Arg::Int(224) => 1,
        Arg::Missing | Arg::Int(256) => 2,
        Arg::Int(384) => 3,
        Arg::Int(512) => 4,
        _ => return Err("the digest has 224, 256, 384 or 512 bits".into()),
    });
    Ok(())
}

fn sha2<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    digest_of(args.int(0)?, value.bytes()?)
}

fn prepare_digest(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let name = String::from_utf8_lossy(text_of(&args[0])).to_ascii_lowercase().replace('-', "");
    let number = DIGESTS.iter().position(|known| *known == name);
    let number = number.ok_or_else(|| {
        format!("the digest `{name}` is not supported yet; known are {}", DIGESTS.join(", "))
    })?;
    args[0] = Arg::Int(number as i64);
    Ok(())
}

fn digest<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    digest_of(args.int(0)?, value.bytes()?)
}

fn prepare_hmac(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare_digest(args, scope)?;
    if let Arg::Bytes(key) = &args[1] {
        args[1] = Arg::Bytes(decode_key(key).ok_or("the key is not in base64")?.into());
    }
    Ok(())
}

fn decode_key(text: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

fn hmac<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let key: Vec<u8> = match args.get(1) {
        Arg::Bytes(key) => key.to_vec(),
        Arg::Var(var) => decode_key(&var.get(env)?.into_bin()?)?,
        _ => return None,
    };
    let bytes = value.bytes()?;
    macro_rules! mac {
        ($digest:ty) => {{
            let mut mac = Hmac::<$digest>::new_from_slice(&key).ok()?;
            mac.update(bytes);
            Scratch::copy(&mac.finalize().into_bytes())
        }};
    }
    let out = match args.int(0)? {
        0 => mac!(Sha1),
        1 => mac!(Sha224),
        2 => mac!(Sha256),
        3 => mac!(Sha384),
        4 => mac!(Sha512),
        5 => mac!(Md5),
        _ => return None,
    };
    Some(Value::Bin(out.into()))
}
