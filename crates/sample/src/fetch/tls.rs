//! TLS fetches for the client and the server connection (manual, 7.3.4). Certificate fetches are in `certificate`, and ClientHello
//! fetches in `hello`.

use ::tls::Details;

use super::{Cursor, Fetch, row};
use crate::args::Args;
use crate::env::Env;
use crate::place::Columns;
use crate::value::{Bytes, Scratch, Type, Value};

const F: Columns = Columns::CLIENT_SESSION;
const B: Columns = Columns::RESPONSE_KEPT;

/// NPN was superseded by ALPN.
const NO_NPN: &str =
    "never available: NPN is obsolete, and HAProxy with OpenSSL 3 does not support it either";

/// The table rows.
#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    row("ssl_fc",             &[], Type::Bool, F, "whether the client's connection uses TLS",   is_tls::<Front>),
    row("ssl_fc_protocol",    &[], Type::Str,  F, "TLS version",                                protocol::<Front>),
    row("ssl_fc_cipher",      &[], Type::Str,  F, "cipher suite",                               cipher::<Front>),
    row("ssl_fc_alg_keysize", &[], Type::Int,  F, "size of the cipher key in bits",             key_size::<Front>),
    row("ssl_fc_use_keysize", &[], Type::Int,  F, "number of key bits in use",                  key_size::<Front>),
    row("ssl_fc_curve",       &[], Type::Str,  F, "key exchange group",                         curve::<Front>),
    row("ssl_fc_has_sni",     &[], Type::Bool, F, "whether the client sent SNI",                ssl_fc_has_sni),
    row("ssl_fc_sni",         &[], Type::Str,  F, "server name sent by the client (SNI)",       sni::<Front>),
    row("ssl_fc_alpn",        &[], Type::Str,  F, "protocol negotiated with ALPN",              alpn::<Front>),
    row("ssl_fc_npn",         &[], Type::Str,  F, "protocol negotiated with NPN",               npn).partial(NO_NPN),
    row("ssl_fc_is_resumed",  &[], Type::Bool, F, "whether a TLS session was resumed",          is_resumed::<Front>),
    row("ssl_fc_has_early",   &[], Type::Bool, F, "whether early data was received before the handshake completed", ssl_fc_has_early),
    row("ssl_fc_early_rcvd",  &[], Type::Bool, F, "whether early data was received",            ssl_fc_early_rcvd),
    row("ssl_fc_err",         &[], Type::Int,  F, "TLS error code",                             err::<Front>),
    row("ssl_fc_err_str",     &[], Type::Str,  F, "description of the TLS error",               err_str::<Front>),
    row("ssl_fc_crtname",     &[], Type::Str,  F, "name of the certificate presented to the client", ssl_fc_crtname),
    row("ssl_bc",             &[], Type::Bool, B, "whether the connection to the server uses TLS", is_tls::<Back>),
    row("ssl_bc_protocol",    &[], Type::Str,  B, "TLS version",                                protocol::<Back>),
    row("ssl_bc_cipher",      &[], Type::Str,  B, "cipher suite",                               cipher::<Back>),
    row("ssl_bc_alg_keysize", &[], Type::Int,  B, "size of the cipher key in bits",             key_size::<Back>),
    row("ssl_bc_use_keysize", &[], Type::Int,  B, "number of key bits in use",                  key_size::<Back>),
    row("ssl_bc_curve",       &[], Type::Str,  B, "key exchange group",                         curve::<Back>),
    row("ssl_bc_sni",         &[], Type::Str,  B, "server name sent to the server (SNI)",       sni::<Back>),
    row("ssl_bc_alpn",        &[], Type::Str,  B, "protocol negotiated with ALPN",              alpn::<Back>),
    row("ssl_bc_npn",         &[], Type::Str,  B, "protocol negotiated with NPN",               npn).partial(NO_NPN),
    row("ssl_bc_is_resumed",  &[], Type::Bool, B, "whether a TLS session was resumed",          is_resumed::<Back>),
    row("ssl_bc_err",         &[], Type::Int,  B, "TLS error code",                             err::<Back>),
    row("ssl_bc_err_str",     &[], Type::Str,  B, "description of the TLS error",               err_str::<Back>),
];

/// The client or the server side of a stream.
pub(super) trait TlsSide {
    /// The TLS details of that side's connection.
    fn details<'a>(env: &Env<'a>) -> Option<&'a Details>;

    /// Whether that side has a connection.
    fn exists(env: &Env<'_>) -> bool;
}

/// The client side.
pub(super) struct Front;

/// The server side.
pub(super) struct Back;

impl TlsSide for Front {
    fn details<'a>(env: &Env<'a>) -> Option<&'a Details> {
        env.session?.tls().map(|details| &**details)
    }

    fn exists(env: &Env<'_>) -> bool {
        env.session.is_some()
    }
}

impl TlsSide for Back {
    fn details<'a>(env: &Env<'a>) -> Option<&'a Details> {
        env.transaction?.server_tls.as_deref()
    }

    fn exists(env: &Env<'_>) -> bool {
        env.transaction.is_some()
    }
}

/// The details of a completed handshake.
fn complete<'a, S: TlsSide>(env: &Env<'a>) -> Option<&'a Details> {
    S::details(env).filter(|details| details.failure.is_none())
}

/// The text, if not empty.
fn text(text: &str) -> Option<Value<'_>> {
    (!text.is_empty()).then(|| Value::str(text.as_bytes()))
}

fn is_tls<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    S::exists(env).then(|| Value::Bool(S::details(env).is_some()))
}

fn protocol<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(S::details(env)?.version_name())
}

fn cipher<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(S::details(env)?.cipher_name()?)
}

fn key_size<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(S::details(env)?.key_bits()?.into()))
}

fn curve<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(S::details(env)?.group_name()?)
}

fn ssl_fc_has_sni<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(Front::details(env).is_some_and(|details| details.sni.is_some())))
}

fn sni<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(S::details(env)?.sni.as_deref()?)
}

fn alpn<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(S::details(env)?.alpn.as_deref()?))
}

fn npn<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    None
}

fn ssl_fc_has_early<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Front::details(env).map(|details| Value::Bool(details.early.is_pending()))
}

fn ssl_fc_early_rcvd<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Front::details(env).map(|details| Value::Bool(details.early.came()))
}

fn is_resumed<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    S::exists(env).then(|| Value::Bool(complete::<S>(env).is_some_and(|details| details.is_resumed)))
}

fn err<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let failure = S::details(env)?.error();
    Some(Value::Int(failure.map_or(0, |error| error.code()).into()))
}

fn err_str<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let words = S::details(env)?.error()?.text();
    (!words.is_empty()).then(|| Value::Str(Bytes::Made(Scratch::copy(words.as_bytes()))))
}

fn ssl_fc_crtname<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    text(&Front::details(env)?.own.as_ref()?.name)
}
