//! Converters for encodings: base64, hexadecimal, percent-encoding, big-endian numbers.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE_NO_PAD};
use http::uri;

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value, write_int};

const HEX_CHUNKS: &[Spec] = &[opt(ArgKind::Str), opt(ArgKind::Int), opt(ArgKind::Int)];
const CHUNKS: &[Spec] = &[arg(ArgKind::Str), opt(ArgKind::Int), opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name        arguments          takes       gives       description
    row("base64",   &[],               Type::Bin,  Type::Str,  "encodes as base64",                                  base64_encode),
    row("b64dec",   &[],               Type::Str,  Type::Bin,  "decodes base64",                                     b64dec),
    row("ub64enc",  &[],               Type::Bin,  Type::Str,  "encodes as base64url",                               ub64enc),
    row("ub64dec",  &[],               Type::Str,  Type::Bin,  "decodes base64url",                                  ub64dec),
    row("hex",      &[],               Type::Bin,  Type::Str,  "encodes as hexadecimal",                             hex),
    row("hex2i",    &[],               Type::Str,  Type::Int,  "converts a hexadecimal number",                      hex2i),
    row("base2",    &[],               Type::Bin,  Type::Str,  "encodes as binary digits",                           base2),
    row("be2dec",   CHUNKS,            Type::Bin,  Type::Str,  "encodes chunks as decimal numbers, big-endian",      be2dec).prepared(prepare_chunks),
    row("le2dec",   CHUNKS,            Type::Bin,  Type::Str,  "encodes chunks as decimal numbers, little-endian",   le2dec).prepared(prepare_chunks),
    row("be2hex",   HEX_CHUNKS,        Type::Bin,  Type::Str,  "encodes chunks as hexadecimal, big-endian",          be2hex).prepared(prepare_hex_chunks),
    row("url_dec",  &[opt(ArgKind::Int)], Type::Str,  Type::Str,  "decodes percent encoding",                           url_dec),
    row("url_enc",  &[opt(ArgKind::Str)], Type::Str,  Type::Str,  "applies percent encoding, for a query",              url_enc).prepared(prepare_url_enc),
];

/// Base64url with optional padding; unused trailing bits may be set.
pub(super) const URL_LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Base64 with padding; unused trailing bits may be set.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

fn encode<'a>(value: &Value<'a>, engine: &GeneralPurpose) -> Option<Value<'a>> {
    let bytes = value.bytes()?;
    let mut out = Scratch::new();
    out.resize(bytes.len().div_ceil(3) * 4, 0);
    let length = engine.encode_slice(bytes, &mut out).ok()?;
    out.truncate(length);
    Some(Value::made(out))
}

fn base64_encode<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    encode(&value, &STANDARD)
}

/// Appends the decoded bytes. As in HAProxy, any group of four characters may end in padding, not only the last one, and unused
/// trailing bits may be set.
pub(super) fn b64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    if STANDARD.decode_vec(text, out).is_ok() {
        return Some(());
    }
    out.truncate(start);
    for four in text.chunks(4) {
        match four {
            [one, b'=', b'=', b'='] if *one != b'=' => drop(LENIENT.decode([*one, b'A', b'=', b'=']).ok()?),
            four => LENIENT.decode_vec(four, out).ok()?,
        }
    }
    Some(())
}

fn b64dec<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    b64(value.bytes()?, &mut out)?;
    Some(Value::Bin(out.into()))
}

fn ub64enc<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    encode(&value, &URL_SAFE_NO_PAD)
}

fn ub64dec<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    URL_LENIENT.decode_vec(value.bytes()?, &mut out).ok()?;
    Some(Value::Bin(out.into()))
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

fn hex<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    for byte in value.bytes()? {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    Some(Value::made(out))
}

fn hex2i<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut number: i64 = 0;
    for byte in value.bytes()? {
        let digit = char::from(*byte).to_digit(16)?;
        number = number << 4 | i64::from(digit);
    }
    Some(Value::Int(number))
}

fn base2<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    for byte in value.bytes()? {
        out.extend((0..8).rev().map(|bit| b'0' + (byte >> bit & 1)));
    }
    Some(Value::made(out))
}

fn prepare_chunks(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    check_truncate(args)?;
    match args[1] {
        Arg::Int(size) if (1..=8).contains(&size) => Ok(()),
        _ => Err("needs a chunk size of 1 to 8 bytes".into()),
    }
}

/// A separator requires a chunk size.
fn prepare_hex_chunks(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    check_truncate(args)?;
    match (&args[0], &args[1]) {
        (Arg::Missing, Arg::Missing) => Ok(()),
        (_, Arg::Int(size)) if *size > 0 => Ok(()),
        (separator, Arg::Int(0)) if text_of(separator).is_empty() => {
            args[1] = Arg::Missing;
            Ok(())
        }
        _ => Err("needs a chunk size greater than 0".into()),
    }
}

/// Whether an incomplete last chunk is dropped: 1 or 0.
fn check_truncate(args: &[Arg]) -> Result<(), String> {
    match args[2] {
        Arg::Missing | Arg::Int(0 | 1) => Ok(()),
        _ => Err("the last argument is 1 to omit an incomplete chunk, or 0".into()),
    }
}

fn chunks<'a>(value: &Value<'a>, args: &Args, write: impl Fn(&mut Vec<u8>, &[u8])) -> Option<Value<'a>> {
    let (separator, size) = (args.bytes(0).unwrap_or_default(), args.int(1).unwrap_or(1) as usize);
    let truncate = args.int(2) == Some(1);
    let mut out = Scratch::new();
    for (at, chunk) in value.bytes()?.chunks(size).enumerate() {
        if truncate && chunk.len() < size {
            break;
        }
        if at > 0 {
            out.extend_from_slice(separator);
        }
        write(&mut out, chunk);
    }
    Some(Value::made(out))
}

/// Writes the number unsigned, however large.
fn write_number(out: &mut Vec<u8>, number: u64) {
    match i64::try_from(number) {
        Ok(number) => write_int(out, number),
        Err(_) => out.extend_from_slice(number.to_string().as_bytes()),
    }
}

fn be2dec<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    chunks(&value, args, |out, chunk| {
        write_number(out, chunk.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    })
}

fn le2dec<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    chunks(&value, args, |out, chunk| {
        write_number(out, chunk.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    })
}

fn be2hex<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    chunks(&value, args, |out, chunk| {
        for byte in chunk {
            out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    })
}

fn url_dec<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = value.into_str()?;
    if memchr::memchr2(b'%', b'+', &bytes).is_none() {
        return Some(Value::Str(bytes));
    }
    let mut out = Scratch::new();
    uri::url_decode(&bytes, args.int(0).is_some_and(|in_form| in_form != 0), &mut out)
        .then(|| Value::made(out))
}

fn prepare_url_enc(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match text_of(&args[0]) {
        b"" | b"query" => Ok(()),
        other => Err(format!("unknown encoding `{}`; use `query`", String::from_utf8_lossy(other))),
    }
}

fn url_enc<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    uri::url_encode(value.bytes()?, &mut out);
    Some(Value::made(out))
}
