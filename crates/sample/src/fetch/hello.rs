//! Fetches about the client's ClientHello (manual, 7.3.4), the input of JA3 and JA4 fingerprints. Up to
//! `tune.ssl.capture-buffer-size` bytes of its lists are kept.

use ::tls::capture::{CapturedList, Lists};
use ::tls::suite_names;

use super::tls::{Front, TlsSide};
use super::{Cursor, Fetch, row};
use crate::args::{ArgKind, Args, Spec, opt};
use crate::env::Env;
use crate::place::Columns;
use crate::value::{Bytes, Scratch, Type, Value};

const F: Columns = Columns::CLIENT_SESSION;
const FILTER: &[Spec] = &[opt(ArgKind::Int)];

/// The rows of the table. The types are those of HAProxy, which treats bytes as strings and digits as bytes.
#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    row("ssl_fc_protocol_hello_id",      &[],    Type::Int, F, "version in the ClientHello",               ssl_fc_protocol_hello_id),
    row("ssl_fc_cipherlist_bin",         FILTER, Type::Str, F, "cipher suites offered by the client",      ssl_fc_cipherlist_bin),
    row("ssl_fc_cipherlist_hex",         FILTER, Type::Bin, F, "cipher suites offered by the client, in hexadecimal", ssl_fc_cipherlist_hex),
    row("ssl_fc_cipherlist_str",         FILTER, Type::Str, F, "names of the cipher suites offered by the client", ssl_fc_cipherlist_str),
    row("ssl_fc_cipherlist_xxh",         &[],    Type::Int, F, "XXH64 hash of the cipher suites",          ssl_fc_cipherlist_xxh),
    row("ssl_fc_extlist_bin",            FILTER, Type::Str, F, "extension types in the ClientHello",       ssl_fc_extlist_bin),
    row("ssl_fc_eclist_bin",             FILTER, Type::Str, F, "groups offered by the client",             ssl_fc_eclist_bin),
    row("ssl_fc_ecformats_bin",          &[],    Type::Str, F, "point formats offered by the client",      ssl_fc_ecformats_bin),
    row("ssl_fc_sigalgs_bin",            FILTER, Type::Bin, F, "signature schemes offered by the client",  ssl_fc_sigalgs_bin),
    row("ssl_fc_supported_versions_bin", FILTER, Type::Bin, F, "TLS versions offered by the client",       ssl_fc_supported_versions_bin),
];

fn lists<'a>(env: &Env<'a>) -> Option<&'a Lists> {
    Front::details(env)?.captured.as_ref()?.lists.as_deref()
}

/// A list of numbers, if not empty; GREASE values (RFC 8701) are excluded if `args` ask for it.
fn numbers<'a>(env: &Env<'a>, args: &Args, list: CapturedList) -> Option<Bytes<'a>> {
    let bytes = lists(env)?.get(list);
    if bytes.is_empty() {
        return None;
    }
    if args.int(0).unwrap_or(0) == 0 {
        return Some(Bytes::Borrowed(bytes));
    }
    let mut kept = Scratch::new();
    for pair in bytes.chunks(2) {
        if !matches!(pair, [high, low] if high == low && high & 0x0f == 0x0a) {
            kept.extend_from_slice(pair);
        }
    }
    Some(Bytes::Made(kept))
}

fn ssl_fc_protocol_hello_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(lists(env)?.version.into()))
}

fn ssl_fc_cipherlist_bin<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    numbers(env, args, CapturedList::Suites).map(Value::Str)
}

fn ssl_fc_cipherlist_hex<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let bytes = numbers(env, args, CapturedList::Suites)?;
    let mut digits = Scratch::new();
    for byte in &*bytes {
        digits.extend_from_slice(format!("{byte:02X}").as_bytes());
    }
    Some(Value::Bin(Bytes::Made(digits)))
}

fn ssl_fc_cipherlist_str<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let bytes = numbers(env, args, CapturedList::Suites)?;
    let mut names = Scratch::new();
    for number in ::tls::hello::numbers(&bytes) {
        if !names.is_empty() {
            names.push(b',');
        }
        match suite_names::name(number) {
            Some(name) => names.extend_from_slice(name.as_bytes()),
            None => names.extend_from_slice(format!("UNKNOWN({number:04x})").as_bytes()),
        }
    }
    Some(Value::Str(Bytes::Made(names)))
}

fn ssl_fc_cipherlist_xxh<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(lists(env)?.suites_hash.cast_signed()))
}

fn ssl_fc_extlist_bin<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    numbers(env, args, CapturedList::Extensions).map(Value::Str)
}

fn ssl_fc_eclist_bin<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    numbers(env, args, CapturedList::Groups).map(Value::Str)
}

fn ssl_fc_ecformats_bin<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    numbers(env, args, CapturedList::PointFormats).map(Value::Str)
}

fn ssl_fc_sigalgs_bin<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    numbers(env, args, CapturedList::Signatures).map(Value::Bin)
}

fn ssl_fc_supported_versions_bin<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    numbers(env, args, CapturedList::Versions).map(Value::Bin)
}
