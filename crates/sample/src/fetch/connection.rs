//! Fetches about the client connection, its PROXY protocol header and the server connection (manual, 7.3.3 and 7.3.4).

use state::Mode;

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, arg};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::session::{Endpoint, Session};
use crate::transaction::{StreamFacts, Transaction};
use crate::value::{Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                arguments          gives       where                    description
    row("src",              &[],               Type::Addr, Columns::CLIENT,         "address of the client",                             src),
    row("src_port",         &[],               Type::Int,  Columns::CLIENT,         "port of the client",                                src_port),
    row("src_is_local",     &[],               Type::Bool, Columns::CLIENT,         "whether the client's address is a local address",src_is_local),
    row("dst",              &[],               Type::Addr, Columns::CLIENT,         "destination address of the client",                 dst),
    row("dst_port",         &[],               Type::Int,  Columns::CLIENT,         "destination port of the client",                    dst_port),
    row("fc_src",           &[],               Type::Addr, Columns::CLIENT,         "source address of the connection, without PROXY headers", fc_src),
    row("fc_src_port",      &[],               Type::Int,  Columns::CLIENT,         "its source port",                                   fc_src_port),
    row("fc_dst",           &[],               Type::Addr, Columns::CLIENT,         "its destination address",                           fc_dst),
    row("fc_dst_port",      &[],               Type::Int,  Columns::CLIENT,         "its destination port",                              fc_dst_port),
    row("fc_rcvd_proxy",    &[],               Type::Bool, Columns::CLIENT,         "whether it started with a PROXY protocol header",   fc_rcvd_proxy),
    row("fc_pp_authority",  &[],               Type::Str,  Columns::CLIENT,         "authority in that header",                          fc_pp_authority),
    row("fc_pp_unique_id",  &[],               Type::Str,  Columns::CLIENT,         "unique ID in that header",                          fc_pp_unique_id),
    row("fc_pp_tlv",        &[arg(ArgKind::Str)], Type::Str,  Columns::CLIENT_SESSION, "TLV in that header, by type",                       fc_pp_tlv).prepared(prepare_tlv),
    row("fc_http_major",    &[],               Type::Int,  Columns::CLIENT,         "major HTTP version on it, 1 to 3",                  fc_http_major),
    row("fc_glitches",      &[],               Type::Int,  Columns::CLIENT,         "protocol anomalies on it",                          fc_glitches),
    row("bc_reused",        &[],               Type::Bool, Columns::RESPONSE_KEPT,  "whether the server connection was reused",          bc_reused),
    row("bc_src",           &[],               Type::Addr, Columns::RESPONSE_KEPT,  "local address of the server connection",            bc_src).prepared(ask_source),
    row("bc_src_port",      &[],               Type::Int,  Columns::RESPONSE_KEPT,  "local port of the server connection",               bc_src_port).prepared(ask_source),
    row("bc_dst",           &[],               Type::Addr, Columns::RESPONSE_KEPT,  "address of the server",                             bc_dst),
    row("bc_dst_port",      &[],               Type::Int,  Columns::RESPONSE_KEPT,  "port of the server",                                bc_dst_port),
    row("bc_http_major",    &[],               Type::Int,  Columns::RESPONSE_KEPT,  "major HTTP version on it",                          bc_http_major),
    row("bc_glitches",      &[],               Type::Int,  Columns::RESPONSE_KEPT,  "protocol anomalies on it",                          bc_glitches),
    row("bc_srv_queue",     &[],               Type::Int,  Columns::RESPONSE_KEPT,  "requests ahead of this one in the server's queue",  bc_srv_queue),
    row("bc_be_queue",      &[],               Type::Int,  Columns::RESPONSE_KEPT,  "requests ahead of this one in the backend's queue", bc_be_queue),
    row("dst_is_local",     &[],               Type::Bool, Columns::CLIENT,         "whether the destination address is a local address", dst_is_local),
    row("fc_src_is_local",  &[],               Type::Bool, Columns::CLIENT,         "whether the source address of the connection is local", fc_src_is_local),
    row("fc_dst_is_local",  &[],               Type::Bool, Columns::CLIENT,         "whether the destination address of the connection is local", fc_dst_is_local),
    row("fc_nb_streams",    &[],               Type::Int,  Columns::CLIENT,         "number of open streams on it, 1 with HTTP/1",       fc_nb_streams),
    row("bc_nb_streams",    &[],               Type::Int,  Columns::RESPONSE_KEPT,  "number of open streams on it, 1 with HTTP/1",       bc_nb_streams),
    row("fc_settings_streams_limit", &[],      Type::Int,  Columns::CLIENT_SESSION, "maximum number of concurrent streams on it, 1 with HTTP/1", fc_settings_streams_limit),
    row("bc_settings_streams_limit", &[],      Type::Int,  Columns::RESPONSE_KEPT,  "maximum number of concurrent streams on it, 1 with HTTP/1", bc_settings_streams_limit),
    row("res.comp",         &[],               Type::Bool, Columns::RESPONSE_KEPT,  "whether the response was compressed",               res_comp),
    row("res.comp_algo",    &[],               Type::Str,  Columns::RESPONSE_KEPT,  "compression algorithm",                             res_comp_algo),
    row("res.cache_hit",    &[],               Type::Bool, Columns::SERVER,         "whether the response came from a cache",            cache_hit),
    row("res.cache_name",   &[],               Type::Str,  Columns::SERVER,         "name of the cache",                                 cache_name),
];

/// The client's address, including changes by rules.
pub(crate) fn source(env: &Env<'_>) -> Option<Endpoint> {
    env.source()
}

/// The destination address, including changes by rules.
pub(crate) fn destination(env: &Env<'_>) -> Option<Endpoint> {
    let changed = env.transaction.and_then(|transaction| transaction.destination);
    changed.or_else(|| env.session.map(|session| session.destination()))
}

/// The session of a client connection, or `None` without a client.
pub(super) fn connection<'a>(env: &Env<'a>) -> Option<&'a Session> {
    env.session.filter(|session| session.is_connected())
}

fn address<'a>(end: Option<Endpoint>) -> Option<Value<'a>> {
    end?.ip().map(Value::ip)
}

fn port<'a>(end: Option<Endpoint>) -> Option<Value<'a>> {
    end?.port().map(|port| Value::Int(i64::from(port)))
}

fn src<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    address(source(env))
}

fn src_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    port(source(env))
}

/// Whether an address belongs to this system, so that a socket can be bound to it.
fn is_local<'a>(end: Option<Endpoint>) -> Option<Value<'a>> {
    let address = end?.ip()?;
    Some(Value::Bool(address.is_loopback() || std::net::UdpSocket::bind((address, 0)).is_ok()))
}

fn src_is_local<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    is_local(source(env))
}

fn dst_is_local<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    is_local(destination(env))
}

fn fc_src_is_local<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    is_local(connection(env).map(|session| session.connection_source()))
}

fn fc_dst_is_local<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    is_local(connection(env).map(|session| session.connection_destination()))
}

/// A counter of the streams on the client connection if it is multiplexed; 1 with HTTP/1 and TCP.
fn of_client<'a>(env: &'a Env<'a>, of: fn(&StreamFacts) -> u32) -> Option<Value<'a>> {
    connection(env)?;
    let stream = env.transaction.and_then(|transaction| transaction.client_stream.as_ref());
    Some(Value::Int(stream.map_or(1, of).into()))
}

/// A counter of the server connection's streams.
fn of_server<'a>(env: &'a Env<'a>, of: fn(&StreamFacts) -> u32) -> Option<Value<'a>> {
    server_end(env, true)?;
    let stream = env.transaction?.server_stream.as_ref();
    Some(Value::Int(stream.map_or(1, of).into()))
}

fn fc_nb_streams<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    of_client(env, |stream| stream.open)
}

fn bc_nb_streams<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    of_server(env, |stream| stream.open)
}

fn fc_settings_streams_limit<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    of_client(env, |stream| stream.most)
}

fn bc_settings_streams_limit<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    of_server(env, |stream| stream.most)
}

fn dst<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    address(destination(env))
}

fn dst_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    port(destination(env))
}

fn fc_src<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    address(connection(env).map(|session| session.connection_source()))
}

fn fc_src_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    port(connection(env).map(|session| session.connection_source()))
}

fn fc_dst<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    address(connection(env).map(|session| session.connection_destination()))
}

fn fc_dst_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    port(connection(env).map(|session| session.connection_destination()))
}

fn fc_rcvd_proxy<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(connection(env)?.received_proxy.get()))
}

/// A TLV of the PROXY protocol header by its type (PROXY protocol specification, section 2.2).
fn tlv<'a>(env: &'a Env<'a>, kind: u8, cursor: &mut Cursor) -> Option<Value<'a>> {
    let tlvs = env.session?.tlvs();
    let mut same = tlvs.iter().filter(|tlv| tlv.kind == kind);
    let value = match cursor.all {
        true => cursor.pick(same),
        false => same.next(),
    };
    value.map(|tlv| Value::str(&tlv.value))
}

fn fc_pp_authority<'a>(env: &'a Env<'a>, _: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    tlv(env, 0x02, cursor)
}

fn fc_pp_unique_id<'a>(env: &'a Env<'a>, _: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    tlv(env, 0x05, cursor)
}

fn fc_pp_tlv<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    tlv(env, args.int(0)? as u8, cursor)
}

/// TLV types by their names in the manual.
const TLV_TYPES: &[(&[u8], i64)] = &[
    (b"ALPN", 0x01),
    (b"AUTHORITY", 0x02),
    (b"CRC32C", 0x03),
    (b"NETNS", 0x30),
    (b"NOOP", 0x04),
    (b"SSL", 0x20),
    (b"SSL_CIPHER", 0x23),
    (b"SSL_CN", 0x22),
    (b"SSL_KEY_ALG", 0x25),
    (b"SSL_SIG_ALG", 0x24),
    (b"SSL_VERSION", 0x21),
    (b"UNIQUE_ID", 0x05),
];

fn prepare_tlv(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let text = crate::args::text_of(&args[0]);
    let named = TLV_TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, kind)| *kind);
    let number = || {
        let text = std::str::from_utf8(text).ok()?;
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        digits.map_or_else(|| text.parse().ok(), |digits| i64::from_str_radix(digits, 16).ok())
    };
    let kind = named.or_else(number).filter(|kind| (0..=255).contains(kind));
    args[0] = Arg::Int(kind.ok_or("the type must be a number from 0x00 to 0xff or a standard type name")?);
    Ok(())
}

fn fc_http_major<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    connection(env).map(|session| Value::Int(session.http_major.get().into()))
}

fn cache_hit<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(env.transaction?.cache.is_some()))
}

fn cache_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(env.transaction?.cache.as_ref()?.settings.name.as_bytes()))
}

fn res_comp<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(env.transaction?.compressed.is_some()))
}

fn res_comp_algo<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(env.transaction?.compressed?.as_bytes()))
}

/// An end of the server connection. After a failed attempt, only the remote end is known.
pub(crate) fn server_end(env: &Env<'_>, theirs: bool) -> Option<Endpoint> {
    let transaction = env.transaction?;
    if let Some(target) = transaction.server_target {
        return theirs.then_some(target);
    }
    transaction.server_ends.map(|(ours, other)| if theirs { other } else { ours })
}

fn fc_glitches<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    connection(env).map(|session| Value::Int(session.glitches.get().into()))
}

fn bc_glitches<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction.filter(|transaction| !is_question(transaction))?;
    Some(Value::Int(transaction.server_glitches.into()))
}

/// Whether the stream is a query to an SPOE agent, over a connection without HTTP.
fn is_question(transaction: &Transaction) -> bool {
    transaction.backend.as_ref().is_some_and(|backend| backend.mode == Mode::Spop)
}

fn bc_reused<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Bool(transaction.server_uses > 1))
}

/// The kernel is only queried for the address if an expression uses it.
fn ask_source(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_backend_source();
    Ok(())
}

fn bc_src<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    address(server_end(env, false))
}

fn bc_src_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    port(server_end(env, false))
}

fn bc_dst<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    address(server_end(env, true))
}

fn bc_dst_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    port(server_end(env, true))
}

fn bc_http_major<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction.filter(|transaction| !is_question(transaction))?;
    let major = transaction.server_stream.map_or(1, |stream| stream.major);
    server_end(env, true).map(|_| Value::Int(major.into()))
}

fn bc_srv_queue<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(i64::from(transaction.server_queue)))
}

fn bc_be_queue<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(i64::from(transaction.backend_queue)))
}
