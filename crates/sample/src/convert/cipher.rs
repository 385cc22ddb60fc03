//! AES in GCM and CBC mode. Nonces, keys, tags and associated data are in base64, and are given literally or in variables.

use aes::{Aes128, Aes192, Aes256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};

use super::encode::b64;
use super::{Convert, gcm, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

const GCM: &[Spec] = &[
    arg(ArgKind::Int),
    arg(ArgKind::StrOrVariable),
    arg(ArgKind::StrOrVariable),
    arg(ArgKind::StrOrVariable),
    opt(ArgKind::StrOrVariable),
];
const CBC: &[Spec] = &[
    arg(ArgKind::Int),
    arg(ArgKind::StrOrVariable),
    arg(ArgKind::StrOrVariable),
    opt(ArgKind::StrOrVariable),
];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name            arguments  takes       gives       description
    row("aes_gcm_enc",  GCM,       Type::Bin,  Type::Bin,  "encrypts with AES-GCM and stores the tag in a variable", aes_gcm_enc).prepared(prepare_enc),
    row("aes_gcm_dec",  GCM,       Type::Bin,  Type::Bin,  "decrypts with AES-GCM and verifies the tag", aes_gcm_dec).prepared(prepare),
    row("aes_cbc_enc",  CBC,       Type::Bin,  Type::Bin,  "encrypted",                                 aes_cbc_enc).prepared(prepare),
    row("aes_cbc_dec",  CBC,       Type::Bin,  Type::Bin,  "decrypted",                                 aes_cbc_dec).prepared(prepare),
];

/// Decodes the base64 of literal arguments at startup.
fn prepare(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    if !matches!(args[0], Arg::Int(128 | 192 | 256)) {
        return Err("the key must have 128, 192 or 256 bits".into());
    }
    for (number, arg) in args.iter_mut().enumerate().skip(1) {
        if let Arg::Bytes(text) = arg {
            let mut bytes = Vec::new();
            b64(text, &mut bytes).ok_or_else(|| format!("argument {} is not valid base64", number + 1))?;
            *text = bytes.into();
        }
    }
    Ok(())
}

fn prepare_enc(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare(args, scope)?;
    match args[3] {
        Arg::Var(_) => Ok(()),
        _ => Err("the fourth argument is the variable for the tag".into()),
    }
}

/// An argument, or the value of its variable, decoded from base64.
fn decoded<'a>(arg: &'a Arg, env: &Env<'_>) -> Option<Bytes<'a>> {
    match arg {
        Arg::Bytes(bytes) => Some(Bytes::Borrowed(bytes)),
        Arg::Var(var) => {
            let mut bytes = Scratch::new();
            b64(&var.get(env)?.into_bin()?, &mut bytes)?;
            Some(Bytes::Made(bytes))
        }
        _ => None,
    }
}

/// The associated data covered by the tag; empty if the argument is missing.
fn associated<'a>(arg: &'a Arg, env: &Env<'_>) -> Option<Bytes<'a>> {
    if matches!(arg, Arg::Missing) { Some(Bytes::Borrowed(b"")) } else { decoded(arg, env) }
}

/// A key of `bits` bits. Excess bytes are ignored.
fn key<'a>(arg: &'a Arg, env: &Env<'_>, bits: i64) -> Option<Bytes<'a>> {
    let key = decoded(arg, env)?;
    let length = bits as usize / 8;
    (key.len() >= length).then(|| key.slice(0, length))
}

/// A CBC initialisation vector: 16 bytes, padded with zeros.
fn vector(arg: &Arg, env: &Env<'_>) -> Option<[u8; 16]> {
    let nonce = decoded(arg, env)?;
    let mut vector = [0; 16];
    let length = nonce.len().min(16);
    vector[..length].copy_from_slice(&nonce[..length]);
    Some(vector)
}

/// Calls `$with` with the cipher for a key of that length.
macro_rules! by_length {
    ($key:expr, $cipher:ident => $with:expr) => {
        match $key.len() {
            16 => {
                type $cipher = Aes128;
                $with
            }
            24 => {
                type $cipher = Aes192;
                $with
            }
            32 => {
                type $cipher = Aes256;
                $with
            }
            _ => return None,
        }
    };
}

fn aes_gcm_enc<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let bits = args.int(0)?;
    let (nonce, key) = (decoded(args.get(1), env)?, key(args.get(2), env, bits)?);
    let extra = associated(args.get(4), env)?;
    let mut out = value.into_bin()?.into_scratch();
    let tag = gcm::seal(&key, &nonce, &extra, &mut out)?;
    let Arg::Var(var) = args.get(3) else { return None };
    var.set(env, &Value::str(STANDARD.encode(tag).as_bytes()));
    Some(Value::Bin(out.into()))
}

fn aes_gcm_dec<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let bits = args.int(0)?;
    let (nonce, key) = (decoded(args.get(1), env)?, key(args.get(2), env, bits)?);
    let tag = decoded(args.get(3), env)?;
    let extra = associated(args.get(4), env)?;
    let mut out = value.into_bin()?.into_scratch();
    gcm::open(&key, &nonce, &extra, &tag, &mut out)?;
    Some(Value::Bin(out.into()))
}

/// CBC has no associated data. An argument for it must be valid but has no effect.
fn aes_cbc_enc<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (vector, key) = (vector(args.get(1), env)?, key(args.get(2), env, args.int(0)?)?);
    associated(args.get(3), env)?;
    let bytes = value.bytes()?;
    let out = by_length!(key, Cipher => {
        cbc::Encryptor::<Cipher>::new_from_slices(&key, &vector).ok()?.encrypt_padded_vec_mut::<Pkcs7>(bytes)
    });
    Some(Value::Bin(Scratch::copy(&out).into()))
}

fn aes_cbc_dec<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (vector, key) = (vector(args.get(1), env)?, key(args.get(2), env, args.int(0)?)?);
    associated(args.get(3), env)?;
    open_cbc(&key, &vector, value.bytes()?).map(|out| Value::Bin(Scratch::copy(&out).into()))
}

/// Decrypts `bytes`, which are padded as in PKCS #7.
pub(super) fn open_cbc(key: &[u8], vector: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    by_length!(key, Cipher => {
        cbc::Decryptor::<Cipher>::new_from_slices(key, vector).ok()?.decrypt_padded_vec_mut::<Pkcs7>(bytes).ok()
    })
}
