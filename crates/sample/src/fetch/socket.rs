//! Fetches for the kernel's metrics of connections, and for connection errors (manual, 7.3.3).

use super::connection::connection;
use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, Spec, opt, text_of};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::socket::{ConnectionError, TcpFacts};
use crate::value::{Bytes, Scratch, Type, Value};

const UNIT: &[Spec] = &[opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name             arguments  gives      where                   description
    row("fc_rtt",        UNIT,      Type::Int, Columns::CLIENT,        "round-trip time to the client, in ms or us",         fc_rtt).prepared(prepare_unit),
    row("fc_rttvar",     UNIT,      Type::Int, Columns::CLIENT,        "its variance, in ms or us",                          fc_rttvar).prepared(prepare_unit),
    row("fc_unacked",    UNIT,       Type::Int, Columns::CLIENT,        "unacknowledged segments sent to the client",         fc_unacked).prepared(prepare_unit),
    row("fc_sacked",     UNIT,       Type::Int, Columns::CLIENT,        "selectively acknowledged segments",                  fc_sacked).prepared(prepare_unit),
    row("fc_retrans",    UNIT,       Type::Int, Columns::CLIENT,        "retransmitted segments",                             fc_retrans).prepared(prepare_unit),
    row("fc_fackets",    UNIT,       Type::Int, Columns::CLIENT,        "forward acknowledged segments",                      fc_fackets).prepared(prepare_unit),
    row("fc_lost",       UNIT,       Type::Int, Columns::CLIENT,        "lost segments",                                      fc_lost).prepared(prepare_unit),
    row("fc_reordering", UNIT,       Type::Int, Columns::CLIENT,        "reordering distance of segments",                    fc_reordering).prepared(prepare_unit),
    row("fc_saved_syn",  &[],       Type::Bin, Columns::CLIENT,        "SYN packet of the connection (`tcp-ss`)",            fc_saved_syn),
    row("bc_rtt",        UNIT,      Type::Int, Columns::CLIENT,        "round-trip time to the server, in ms or us",         bc_rtt).prepared(prepare_server_unit),
    row("bc_rttvar",     UNIT,      Type::Int, Columns::CLIENT,        "its variance, in ms or us",                          bc_rttvar).prepared(prepare_server_unit),
    row("fc_err",        &[],       Type::Int, Columns::CLIENT,        "error code of the client connection, 0 for none",    fc_err),
    row("fc_err_name",   &[],       Type::Str, Columns::CLIENT,        "name of that error",                                 fc_err_name),
    row("fc_err_str",    &[],       Type::Str, Columns::CLIENT,        "description of that error",                          fc_err_str),
    row("bc_err",        &[],       Type::Int, Columns::RESPONSE_KEPT, "error code of the server connection, 0 for none",    bc_err),
    row("bc_err_name",   &[],       Type::Str, Columns::RESPONSE_KEPT, "name of that error",                                 bc_err_name),
    row("bc_err_str",    &[],       Type::Str, Columns::RESPONSE_KEPT, "description of that error",                          bc_err_str),
];

/// Converts the unit into its length in µs. As in HAProxy, counters also accept a unit, without effect.
fn prepare_unit(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    args[0] = Arg::Int(match text_of(&args[0]) {
        b"" | b"ms" => 1000,
        b"us" => 1,
        other => return Err(format!("unknown unit `{}`; use ms or us", String::from_utf8_lossy(other))),
    });
    Ok(())
}

/// Logs read the value after the server connection was released, so it must be sampled before.
fn prepare_server_unit(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_server_tcp();
    prepare_unit(args, scope)
}

fn client(env: &Env<'_>) -> Option<TcpFacts> {
    env.sockets?.client_tcp()
}

fn server(env: &Env<'_>) -> Option<TcpFacts> {
    env.sockets?.server_tcp()
}

fn int<'a>(value: u32) -> Option<Value<'a>> {
    Some(Value::Int(i64::from(value)))
}

fn time<'a>(us: u32, args: &Args) -> Option<Value<'a>> {
    Some(Value::Int(i64::from(us) / args.int(0)?))
}

fn fc_rtt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    time(client(env)?.rtt_us, args)
}

fn fc_rttvar<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    time(client(env)?.rttvar_us, args)
}

fn bc_rtt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    time(server(env)?.rtt_us, args)
}

fn bc_rttvar<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    time(server(env)?.rttvar_us, args)
}

fn fc_unacked<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client(env)?.unacked?)
}

fn fc_sacked<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client(env)?.sacked?)
}

fn fc_retrans<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client(env)?.retrans?)
}

fn fc_fackets<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client(env)?.fackets?)
}

fn fc_lost<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client(env)?.lost)
}

fn fc_reordering<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client(env)?.reordering)
}

fn fc_saved_syn<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let packet = env.sockets?.saved_syn()?;
    Some(Value::Bin(Bytes::Made(Scratch::copy(&packet))))
}

fn client_error(env: &Env<'_>) -> Option<ConnectionError> {
    connection(env).map(|session| session.error.get())
}

/// The error of the last connection attempt, or `None` before the first attempt.
fn server_error(env: &Env<'_>) -> Option<ConnectionError> {
    let transaction = env.transaction?;
    let attempted =
        transaction.server_ends.is_some() || transaction.server_error != ConnectionError::default();
    attempted.then_some(transaction.server_error)
}

fn fc_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(client_error(env)?.0.into())
}

fn bc_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(server_error(env)?.0.into())
}

fn name<'a>(error: ConnectionError) -> Option<Value<'a>> {
    Some(Value::str(error.name().as_bytes()))
}

fn message<'a>(error: ConnectionError) -> Option<Value<'a>> {
    Some(Value::str(error.message().as_bytes()))
}

fn fc_err_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    name(client_error(env)?)
}

fn fc_err_str<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    message(client_error(env)?)
}

fn bc_err_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    name(server_error(env)?)
}

fn bc_err_str<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    message(server_error(env)?)
}
