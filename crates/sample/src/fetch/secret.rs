//! Fetches about the TLS keys of both connections (manual, 7.3.4), from which key log files can be created. Random bytes, session
//! IDs and session keys are stored if an expression reads any of them; TLS 1.3 secrets are stored with `tune.ssl.keylog on`.

use ::tls::capture::CapturedHandshake;

use super::tls::{Back, Front, TlsSide};
use super::{Cursor, Fetch, row};
use crate::args::{Arg, Args};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

const F: Columns = Columns::CLIENT_SESSION;
const B: Columns = Columns::RESPONSE_KEPT;

/// The table rows.
#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    row("ssl_fc_client_random", &[], Type::Bin, F, "client random",                    client_random::<Front>).prepared(want),
    row("ssl_fc_server_random", &[], Type::Bin, F, "our random",                       server_random::<Front>).prepared(want),
    row("ssl_fc_session_id",    &[], Type::Bin, F, "session ID",                       session_id::<Front>).prepared(want),
    row("ssl_fc_session_key",   &[], Type::Bin, F, "master key of the session",        session_key::<Front>).prepared(want),
    row("ssl_fc_unique_id",     &[], Type::Bin, F, "Finished message of the client, or ours if the session was resumed", unique_id::<Front, 0>).prepared(want_finished),
    row("ssl_bc_unique_id",     &[], Type::Bin, B, "Finished message of the server, or ours if the session was resumed", unique_id::<Back, 1>).prepared(want_finished),
    row("ssl_bc_client_random", &[], Type::Bin, B, "our random",                       client_random::<Back>).prepared(want),
    row("ssl_bc_server_random", &[], Type::Bin, B, "server random",                    server_random::<Back>).prepared(want),
    row("ssl_bc_session_id",    &[], Type::Bin, B, "session ID",                       session_id::<Back>).prepared(want),
    row("ssl_bc_session_key",   &[], Type::Bin, B, "master key of the session",        session_key::<Back>).prepared(want).partial(NO_TICKET),
    row("ssl_fc_client_early_traffic_secret",     &[], Type::Str, F, "early traffic secret of the client",           secret::<Front, CLIENT_EARLY>),
    row("ssl_fc_client_handshake_traffic_secret", &[], Type::Str, F, "handshake traffic secret of the client",       secret::<Front, CLIENT_HANDSHAKE>),
    row("ssl_fc_server_handshake_traffic_secret", &[], Type::Str, F, "our handshake traffic secret",                 secret::<Front, SERVER_HANDSHAKE>),
    row("ssl_fc_client_traffic_secret_0",         &[], Type::Str, F, "traffic secret of the client",                 secret::<Front, CLIENT_TRAFFIC>),
    row("ssl_fc_server_traffic_secret_0",         &[], Type::Str, F, "our traffic secret",                           secret::<Front, SERVER_TRAFFIC>),
    row("ssl_fc_exporter_secret",                 &[], Type::Str, F, "exporter secret",                              secret::<Front, EXPORTER>),
    row("ssl_fc_early_exporter_secret",           &[], Type::Str, F, "early exporter secret",                        secret::<Front, EARLY_EXPORTER>).partial(NO_EARLY),
    row("ssl_bc_client_early_traffic_secret",     &[], Type::Str, F, "early traffic secret of the client",           secret::<Back, CLIENT_EARLY>),
    row("ssl_bc_client_handshake_traffic_secret", &[], Type::Str, F, "our handshake traffic secret",                 secret::<Back, CLIENT_HANDSHAKE>),
    row("ssl_bc_server_handshake_traffic_secret", &[], Type::Str, F, "handshake traffic secret of the server",       secret::<Back, SERVER_HANDSHAKE>),
    row("ssl_bc_client_traffic_secret_0",         &[], Type::Str, F, "our traffic secret",                           secret::<Back, CLIENT_TRAFFIC>),
    row("ssl_bc_server_traffic_secret_0",         &[], Type::Str, F, "traffic secret of the server",                 secret::<Back, SERVER_TRAFFIC>),
    row("ssl_bc_exporter_secret",                 &[], Type::Str, F, "exporter secret",                              secret::<Back, EXPORTER>),
    row("ssl_bc_early_exporter_secret",           &[], Type::Str, F, "early exporter secret",                        secret::<Back, EARLY_EXPORTER>).partial(NO_EARLY),
];

const NO_EARLY: &str = "never available: rustls does not expose it";
const NO_TICKET: &str = "only with TLS 1.2: rustls does not expose resumption secrets of servers";

/// The labels of secrets in key logs.
const LABELS: [&str; 7] = [
    "CLIENT_EARLY_TRAFFIC_SECRET",
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
    "EXPORTER_SECRET",
    "EARLY_EXPORTER_SECRET",
];
const CLIENT_EARLY: usize = 0;
const CLIENT_HANDSHAKE: usize = 1;
const SERVER_HANDSHAKE: usize = 2;
const CLIENT_TRAFFIC: usize = 3;
const SERVER_TRAFFIC: usize = 4;
const EXPORTER: usize = 5;
const EARLY_EXPORTER: usize = 6;

/// Handshake data is only kept if an expression reads it.
fn want(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_tls_session();
    Ok(())
}

fn want_finished(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_tls_finished();
    Ok(())
}

fn captured<'a, S: TlsSide>(env: &Env<'a>) -> Option<&'a CapturedHandshake> {
    S::details(env)?.captured.as_deref()
}

/// The bytes, if not empty.
fn some(bytes: &[u8]) -> Option<Value<'_>> {
    (!bytes.is_empty()).then(|| Value::bin(bytes))
}

fn client_random<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    some(&captured::<S>(env)?.client_random)
}

fn server_random<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    some(&captured::<S>(env)?.server_random)
}

fn session_id<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    some(&captured::<S>(env)?.session_id)
}

fn session_key<'a, S: TlsSide>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    some(&captured::<S>(env)?.session_key)
}

/// As in HAProxy, this is on both sides the peer's Finished message, at index `PEER`, or this side's if the session was resumed.
fn unique_id<'a, S: TlsSide, const PEER: usize>(
    env: &'a Env<'a>,
    _: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    let whose = if S::details(env)?.is_resumed { 1 - PEER } else { PEER };
    some(&captured::<S>(env)?.finished[whose])
}

/// A secret in lower-case hexadecimal.
fn secret<'a, S: TlsSide, const LABEL: usize>(
    env: &'a Env<'a>,
    _: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    let secret = captured::<S>(env)?.secret(LABELS[LABEL])?;
    let mut digits = Scratch::new();
    for byte in secret {
        digits.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    Some(Value::Str(Bytes::Made(digits)))
}
