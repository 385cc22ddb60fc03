//! AES in the modes GCM and CBC. Nonces, keys, tags and associated data are given in base64, as they stand or in
//! variables.

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{AesGcm, aes::cipher::consts::U12};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};

use super::{Convert, row};
use crate::args::{Arg, Args, Kind, Spec, arg, opt};
use crate::env::{Env, Scope};
use crate::value::{Bytes, Scratch, Type, Value};

const GCM: &[Spec] = &[
    arg(Kind::Int),
    arg(Kind::StrOrVariable),
    arg(Kind::StrOrVariable),
    arg(Kind::StrOrVariable),
    opt(Kind::StrOrVariable),
];
const CBC: &[Spec] =
    &[arg(Kind::Int), arg(Kind::StrOrVariable), arg(Kind::StrOrVariable), opt(Kind::StrOrVariable)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name            arguments  takes       gives       what it does
    row("aes_gcm_enc",  GCM,       Type::Bin,  Type::Bin,  "encrypted; its tag is put into a variable", aes_gcm_enc).prepared(prepare_enc),
    row("aes_gcm_dec",  GCM,       Type::Bin,  Type::Bin,  "decrypted, if its tag is right",            aes_gcm_dec).prepared(prepare_bits),
    row("aes_cbc_enc",  CBC,       Type::Bin,  Type::Bin,  "encrypted",                                 aes_cbc_enc).prepared(prepare_cbc),
    row("aes_cbc_dec",  CBC,       Type::Bin,  Type::Bin,  "decrypted",                                 aes_cbc_dec).prepared(prepare_cbc),
];

fn prepare_bits(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args[0] {
        Arg::Int(128 | 192 | 256) => Ok(()),
        _ => Err("a key has 128, 192 or 256 bits".into()),
    }
}

fn prepare_cbc(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare_bits(args, scope)?;
    match args[3] {
        Arg::Missing => Ok(()),
        _ => Err("associated data in the mode CBC are not supported yet".into()),
    }
}

fn prepare_enc(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare_bits(args, scope)?;
    match args[3] {
        Arg::Var(_) => Ok(()),
        _ => Err("the fourth argument is the variable that gets the tag".into()),
    }
}

/// An argument as it stands, or what its variable holds.
fn text<'a>(arg: &'a Arg, env: &Env<'_>) -> Option<Bytes<'a>> {
    match arg {
        Arg::Bytes(bytes) => Some(Bytes::Borrowed(bytes)),
        Arg::Var(var) => var.get(env)?.into_bin(),
        _ => None,
    }
}

/// It without its base64.
fn decoded(arg: &Arg, env: &Env<'_>) -> Option<Vec<u8>> {
    STANDARD.decode(&*text(arg, env)?).ok()
}

/// The data that the tag covers besides; none where the argument is missing.
fn associated(arg: &Arg, env: &Env<'_>) -> Option<Vec<u8>> {
    if matches!(arg, Arg::Missing) { Some(Vec::new()) } else { decoded(arg, env) }
}

/// Calls `$with` with the cipher for a key of that many bits.
macro_rules! by_bits {
    ($bits:expr, $cipher:ident => $with:expr) => {
        match $bits {
            128 => {
                type $cipher = Aes128;
                $with
            }
            192 => {
                type $cipher = Aes192;
                $with
            }
            _ => {
                type $cipher = Aes256;
                $with
            }
        }
    };
}

fn aes_gcm_enc<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (nonce, key) = (decoded(args.get(1), env)?, decoded(args.get(2), env)?);
    let extra = associated(args.get(4), env)?;
    let mut out = value.into_bin()?.into_scratch();
    if nonce.len() != 12 {
        return None;
    }
    let nonce = GenericArray::from_slice(&nonce);
    let tag = by_bits!(args.int(0)?, Cipher => {
        let cipher = AesGcm::<Cipher, U12>::new_from_slice(&key).ok()?;
        cipher.encrypt_in_place_detached(nonce, &extra, &mut out).ok()?
    });
    let Arg::Var(var) = args.get(3) else { return None };
    var.set(env, &Value::str(STANDARD.encode(tag).as_bytes()));
    Some(Value::Bin(out.into()))
}

fn aes_gcm_dec<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (nonce, key, tag) =
        (decoded(args.get(1), env)?, decoded(args.get(2), env)?, decoded(args.get(3), env)?);
    let extra = associated(args.get(4), env)?;
    let mut out = value.into_bin()?.into_scratch();
    if nonce.len() != 12 || tag.len() != 16 {
        return None;
    }
    let (nonce, tag) = (GenericArray::from_slice(&nonce), GenericArray::from_slice(&tag));
    by_bits!(args.int(0)?, Cipher => {
        let cipher = AesGcm::<Cipher, U12>::new_from_slice(&key).ok()?;
        cipher.decrypt_in_place_detached(nonce, &extra, &mut out, tag).ok()?;
    });
    Some(Value::Bin(out.into()))
}

fn aes_cbc_enc<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (nonce, key) = (decoded(args.get(1), env)?, decoded(args.get(2), env)?);
    let bytes = value.bytes()?;
    let out = by_bits!(args.int(0)?, Cipher => {
        cbc::Encryptor::<Cipher>::new_from_slices(&key, &nonce).ok()?.encrypt_padded_vec_mut::<Pkcs7>(bytes)
    });
    Some(Value::Bin(Scratch::copy(&out).into()))
}

fn aes_cbc_dec<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (nonce, key) = (decoded(args.get(1), env)?, decoded(args.get(2), env)?);
    let bytes = value.bytes()?;
    let out = by_bits!(args.int(0)?, Cipher => {
        cbc::Decryptor::<Cipher>::new_from_slices(&key, &nonce).ok()?.decrypt_padded_vec_mut::<Pkcs7>(bytes).ok()?
    });
    Some(Value::Bin(Scratch::copy(&out).into()))
}
