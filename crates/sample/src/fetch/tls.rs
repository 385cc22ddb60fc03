//! Fetches about TLS on the client's connection (manual, 7.3.4 and 7.3.3).

use sha1::{Digest, Sha1};

use super::{Cursor, Fetch, row};
use crate::args::Args;
use crate::env::Env;
use crate::place::Columns;
use crate::session::TlsFacts;
use crate::value::{Bytes, Scratch, Type, Value};

/// The rows.
#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    row("ssl_fc",             &[], Type::Bool, Columns::CLIENT_SESSION, "whether the client's connection uses TLS",        ssl_fc),
    row("ssl_fc_protocol",    &[], Type::Str,  Columns::CLIENT_SESSION, "the TLS version",                                 ssl_fc_protocol),
    row("ssl_fc_cipher",      &[], Type::Str,  Columns::CLIENT_SESSION, "the cipher",                                      ssl_fc_cipher),
    row("ssl_fc_alg_keysize", &[], Type::Int,  Columns::CLIENT_SESSION, "bits of the cipher's key",                        ssl_fc_keysize),
    row("ssl_fc_use_keysize", &[], Type::Int,  Columns::CLIENT_SESSION, "bits of it that are used",                        ssl_fc_keysize),
    row("ssl_fc_curve",       &[], Type::Str,  Columns::CLIENT_SESSION, "the group of the key exchange",                   ssl_fc_curve),
    row("ssl_fc_has_sni",     &[], Type::Bool, Columns::CLIENT_SESSION, "whether the client named a server",               ssl_fc_has_sni),
    row("ssl_fc_sni",         &[], Type::Str,  Columns::CLIENT_SESSION, "the server the client named",                     ssl_fc_sni),
    row("ssl_fc_alpn",        &[], Type::Str,  Columns::CLIENT_SESSION, "the protocol negotiated",                         ssl_fc_alpn),
    row("ssl_fc_is_resumed",  &[], Type::Bool, Columns::CLIENT_SESSION, "whether a TLS session was resumed",               ssl_fc_is_resumed),
    row("ssl_fc_err",         &[], Type::Int,  Columns::CLIENT_SESSION, "the TLS error",                                   ssl_fc_err),
    row("ssl_fc_err_str",     &[], Type::Str,  Columns::CLIENT_SESSION, "the TLS error in words",                          ssl_fc_err_str),
    row("ssl_fc_has_crt",     &[], Type::Bool, Columns::CLIENT_SESSION, "whether the client sent a certificate on this connection", ssl_fc_has_crt),
    row("ssl_c_used",         &[], Type::Bool, Columns::CLIENT_SESSION, "whether the client has a certificate",            ssl_c_used),
    row("ssl_c_err",          &[], Type::Int,  Columns::CLIENT_SESSION, "the error of the client's certificate",           ssl_c_err),
    row("ssl_c_ca_err",       &[], Type::Int,  Columns::CLIENT_SESSION, "the error of its chain",                          ssl_c_ca_err),
    row("ssl_c_ca_err_depth", &[], Type::Int,  Columns::CLIENT_SESSION, "how far above the certificate it is",             ssl_c_ca_err_depth),
    row("ssl_c_verify",       &[], Type::Int,  Columns::CLIENT_SESSION, "the result of its verification",                  ssl_c_verify),
    row("ssl_c_der",          &[], Type::Bin,  Columns::CLIENT_SESSION, "the certificate",                                 ssl_c_der),
    row("ssl_c_chain_der",    &[], Type::Bin,  Columns::CLIENT_SESSION, "the certificate with those above it",             ssl_c_chain_der),
    row("ssl_c_sha1",         &[], Type::Bin,  Columns::CLIENT_SESSION, "its fingerprint",                                 ssl_c_sha1),
    row("ssl_f_der",          &[], Type::Bin,  Columns::CLIENT_SESSION, "the certificate shown to the client",             ssl_f_der),
    row("ssl_f_sha1",         &[], Type::Bin,  Columns::CLIENT_SESSION, "its fingerprint",                                 ssl_f_sha1),
];

fn facts<'a>(env: &Env<'a>) -> Option<&'a TlsFacts> {
    env.session?.tls()
}

/// Text that is there at all.
fn text(text: &str) -> Option<Value<'_>> {
    (!text.is_empty()).then(|| Value::str(text.as_bytes()))
}

fn ssl_fc<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(facts(env).is_some()))
}

fn ssl_fc_protocol<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(facts(env)?.version)
}

fn ssl_fc_cipher<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(facts(env)?.cipher)
}

fn ssl_fc_keysize<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let bits = facts(env)?.bits;
    (bits > 0).then(|| Value::Int(bits.into()))
}

fn ssl_fc_curve<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(facts(env)?.curve)
}

fn ssl_fc_has_sni<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(facts(env).is_some_and(|facts| facts.sni.is_some())))
}

fn ssl_fc_sni<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(facts(env)?.sni.as_deref()?)
}

fn ssl_fc_alpn<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(facts(env)?.alpn.as_deref()?))
}

fn ssl_fc_is_resumed<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(facts(env).is_some_and(|facts| facts.is_resumed)))
}

fn ssl_fc_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(facts(env)?.error.into()))
}

fn ssl_fc_err_str<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(&facts(env)?.error_text)
}

fn ssl_fc_has_crt<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let facts = facts(env)?;
    Some(Value::Bool(!facts.peer.is_empty() && !facts.is_resumed))
}

fn ssl_c_used<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(!facts(env)?.peer.is_empty()))
}

fn ssl_c_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(facts(env)?.own_error.into()))
}

fn ssl_c_ca_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(facts(env)?.chain_error.0.into()))
}

fn ssl_c_ca_err_depth<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(facts(env)?.chain_error.1.into()))
}

/// What was found first, whether it was forgiven or not.
fn ssl_c_verify<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let facts = facts(env)?;
    let code = if facts.chain_error.0 != 0 { facts.chain_error.0 } else { facts.own_error };
    Some(Value::Int(code.into()))
}

fn ssl_c_der<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::bin(facts(env)?.peer.first()?))
}

fn ssl_c_chain_der<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let peer = &facts(env)?.peer;
    (!peer.is_empty()).then(|| Value::Bin(Bytes::Made(Scratch::copy(&peer.concat()))))
}

fn fingerprint<'a>(der: &[u8]) -> Value<'a> {
    Value::Bin(Bytes::Made(Scratch::copy(&Sha1::digest(der))))
}

fn ssl_c_sha1<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(fingerprint(facts(env)?.peer.first()?))
}

fn ssl_f_der<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::bin(facts(env)?.own.as_deref()?))
}

fn ssl_f_sha1<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(fingerprint(facts(env)?.own.as_deref()?))
}
