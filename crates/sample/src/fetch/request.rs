//! Fetches for the request line, the status line and the user's identity (manual, 7.3.6).

use std::borrow::Cow;

use http::uri;

use super::header::{host, request};
use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, arg, opt};
use crate::auth;
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value, parse_ip};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    // name arguments gives where description
    row("method",          &[],                                                  Type::Method, Columns::REQUEST_KEPT, "request method",                                method),
    row("path",            &[],                                                  Type::Str,    Columns::REQUEST,      "path without host and query",                   path),
    row("pathq",           &[],                                                  Type::Str,    Columns::REQUEST,      "path with query",                               pathq),
    row("query",           &[opt(ArgKind::Str)],                                    Type::Str,    Columns::REQUEST,      "query string, optionally with the question mark", query).prepared(prepare_query),
    row("url",             &[],                                                  Type::Str,    Columns::REQUEST,      "request target",                                url),
    row("url_ip",          &[],                                                  Type::Ip4,    Columns::REQUEST,      "IP address in the target",                      url_ip),
    row("url_port",        &[],                                                  Type::Int,    Columns::REQUEST,      "port in an absolute target, 0 for none",                url_port),
    row("url32",           &[],                                                  Type::Int,    Columns::REQUEST,      "hash of host and URL with its parameters",                         url32),
    row("url32+src",       &[],                                                  Type::Bin,    Columns::REQUEST,      "the same hash, followed by the client's address", url32_src),
    row("url_param",       &[opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],    Type::Str,    Columns::REQUEST,      "query parameter",                               urlp),
    row("urlp",            &[opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],    Type::Str,    Columns::REQUEST,      "query parameter",                               urlp),
    row("urlp_val",        &[opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],    Type::Int,    Columns::REQUEST,      "query parameter, as a number",                  urlp_val),
    row("base",            &[],                                                  Type::Str,    Columns::REQUEST,      "host and path",                                 base_str),
    row("baseq",           &[],                                                  Type::Str,    Columns::REQUEST,      "host, path and query",                          baseq),
    row("base32",          &[],                                                  Type::Int,    Columns::REQUEST,      "hash of host and path",                         base32),
    row("base32+src",      &[],                                                  Type::Bin,    Columns::REQUEST,      "the same hash, followed by the client's address", base32_src),
    row("req.ver",         &[],                                                  Type::Str,    Columns::REQUEST_KEPT, "HTTP version, such as 1.1",                     req_ver),
    row("req_ver",         &[],                                                  Type::Str,    Columns::REQUEST_KEPT, "HTTP version, such as 1.1",                     req_ver),
    row("req.proto_http",  &[],                                                  Type::Bool,   Columns::REQUEST_KEPT, "whether the request is HTTP",                   req_proto_http),
    row("req_proto_http",  &[],                                                  Type::Bool,   Columns::REQUEST_KEPT, "whether the request is HTTP",                   req_proto_http),
    row("http_first_req",  &[],                                                  Type::Bool,   Columns::REQUEST_KEPT, "whether it is the first request of the connection", http_first_req),
    row("status",          &[],                                                  Type::Int,    Columns::RESPONSE_KEPT,"status of the response",                        status),
    row("server_status",   &[],                                                  Type::Int,    Columns::RESPONSE_KEPT,"status sent by the server",                     server_status),
    row("txn.status",      &[],                                                  Type::Int,    Columns::RESPONSE_KEPT,"status sent to the client",                     txn_status),
    row("res.ver",         &[],                                                  Type::Str,    Columns::RESPONSE_KEPT,"HTTP version of the response",                  res_ver),
    row("resp_ver",        &[],                                                  Type::Str,    Columns::RESPONSE_KEPT,"HTTP version of the response",                  res_ver),
    row("http_auth",       &[arg(ArgKind::Userlist)],                               Type::Bool,   Columns::REQUEST,      "whether the credentials match a userlist",      http_auth),
    row("http_auth_bearer",&[opt(ArgKind::HeaderName)],                             Type::Str,    Columns::REQUEST,      "bearer token",                                  http_auth_bearer),
    row("http_auth_group", &[arg(ArgKind::Userlist)],                               Type::Str,    Columns::REQUEST,      "user name if the password is valid, to match with groups",                                http_auth_group),
    row("http_auth_pass",  &[],                                                  Type::Str,    Columns::REQUEST,      "password of basic authentication",              http_auth_pass),
    row("http_auth_type",  &[],                                                  Type::Str,    Columns::REQUEST,      "authentication scheme",                         http_auth_type),
    row("http_auth_user",  &[],                                                  Type::Str,    Columns::REQUEST,      "user name of basic authentication",             http_auth_user),
];

fn target<'a>(env: &Env<'a>) -> Option<uri::Split<'a>> {
    request(env).map(|head| uri::split(head.target()))
}

fn method<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    match request(env) {
        Some(head) => Some(Value::Method(head.method().into())),
        // The request line that is kept for the log still has the method.
        None => {
            let line = transaction.kept(transaction.request_line)?;
            line.split(|byte| *byte == b' ').next().map(|method| Value::Method(method.into()))
        }
    }
}

fn path<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    target(env)?.path().map(Value::str)
}

fn pathq<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    target(env)?.pathq().map(Value::str)
}

fn query<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    // A target that a rule has set need not have a path before the query.
    let target = request(env)?.target();
    let mark = memchr::memchr(b'?', target)?;
    let query = &target[mark + 1..];
    let with_mark = args.bytes(0) == Some(b"with_qm") && !query.is_empty();
    Some(Value::str(if with_mark { &target[mark..] } else { query }))
}

fn prepare_query(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match crate::args::text_of(&args[0]) {
        b"" | b"with_qm" => Ok(()),
        other => Err(format!("unknown option `{}`; use `with_qm`", String::from_utf8_lossy(other))),
    }
}

fn url<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    request(env).map(|head| Value::str(head.target()))
}

fn url_ip<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    match parse_ip(target(env)?.host())? {
        std::net::IpAddr::V4(v4) => Some(Value::Ip4(v4)),
        std::net::IpAddr::V6(_) => None,
    }
}

fn url_port<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let split = target(env).filter(|split| split.form == uri::TargetForm::Absolute)?;
    let port = split.port().and_then(crate::value::parse_int);
    Some(Value::Int(port.unwrap_or(0)))
}

/// HAProxy's hash for `base32` and `url32`: sdbm over the bytes, then mixed.
fn hash32(parts: [&[u8]; 2]) -> u32 {
    let bytes = parts.into_iter().flatten();
    let hash = bytes.fold(0u32, |hash, byte| {
        u32::from(*byte).wrapping_add(hash << 6).wrapping_add(hash << 16).wrapping_sub(hash)
    });
    base::hash::avalanche(hash)
}

fn base_hash(env: &Env<'_>) -> Option<u32> {
    let split = target(env)?;
    Some(hash32([host(env).unwrap_or_default(), split.path().unwrap_or_default()]))
}

fn url_hash(env: &Env<'_>) -> Option<u32> {
    let split = target(env)?;
    Some(hash32([host(env).unwrap_or_default(), split.pathq().unwrap_or_default()]))
}

fn with_source<'a>(env: &'a Env<'a>, hash: u32) -> Option<Value<'a>> {
    let mut out = Scratch::copy(&hash.to_be_bytes());
    match super::connection::source(env)?.ip()? {
        std::net::IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        std::net::IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
    Some(Value::Bin(out.into()))
}

fn url32<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    url_hash(env).map(|hash| Value::Int(i64::from(hash)))
}

fn url32_src<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    with_source(env, url_hash(env)?)
}

fn base32<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    base_hash(env).map(|hash| Value::Int(i64::from(hash)))
}

fn base32_src<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    with_source(env, base_hash(env)?)
}

fn base_str<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let split = target(env)?;
    let path = split.path().unwrap_or_default();
    let Some(host) = host(env) else { return split.path().map(Value::str) };
    let mut out = Scratch::copy(host);
    out.extend_from_slice(path);
    Some(Value::made(out))
}

fn baseq<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let split = target(env)?;
    let mut out = Scratch::copy(host(env).unwrap_or_default());
    out.extend_from_slice(split.pathq().unwrap_or_default());
    Some(Value::made(out))
}

fn urlp<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    let head = request(env)?;
    let delimiter = args.bytes(1).and_then(<[u8]>::first).copied();
    let name = args.bytes(0).filter(|name| !name.is_empty());
    let ignore_case = args.bytes(2) == Some(b"i");
    let text = uri::param_text(head.target(), delimiter)?;
    let mut found = uri::params(text, true, delimiter)
        .filter(|(other, _)| match name {
            None => true,
            Some(name) if ignore_case => other.eq_ignore_ascii_case(name),
            Some(name) => *other == name,
        })
        .filter_map(|(_, value)| value);
    let value = if cursor.all { cursor.pick(found) } else { found.next() };
    value.map(Value::str)
}

fn urlp_val<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(urlp(env, args, cursor)?.to_int().unwrap_or(0)))
}

/// The version number in a request line that was kept, such as `HTTP/1.1`.
fn version(line: &[u8]) -> Option<&[u8]> {
    line.rsplit(|byte| *byte == b' ').next()?.strip_prefix(b"HTTP/")
}

fn version_text(version: http::Version) -> Scratch {
    let (major, minor) = version.numbers();
    Scratch::copy(&[b'0' + major % 10, b'.', b'0' + minor % 10])
}

fn req_ver<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    match request(env) {
        Some(head) => Some(Value::made(version_text(head.version()))),
        None => version(transaction.kept(transaction.request_line)?).map(Value::str),
    }
}

fn req_proto_http<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    if transaction.is_http {
        return Some(Value::Bool(true));
    }
    // In TCP mode the first bytes are examined.
    let mut head = http::Head::new();
    Some(Value::Bool(
        match http::parse_request(env.request_bytes, &mut head, &http::ParseOptions::default()) {
            Ok(http::ParseStatus::Complete { .. }) => true,
            Ok(_) => {
                env.may_change.set(true);
                return None;
            }
            Err(error) => error.kind == http::ErrorKind::Preface,
        },
    ))
}

fn http_first_req<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(env.session?.requests.get() <= 1))
}

fn status<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    let status = if transaction.has_response { transaction.response.status() } else { transaction.status };
    (status > 0).then_some(Value::Int(i64::from(status)))
}

fn server_status<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let status = env.transaction?.server_status;
    (status > 0).then_some(Value::Int(i64::from(status)))
}

fn txn_status<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    // A request that could not be parsed has no stream, regardless of the response.
    if transaction.is_http && transaction.request.method().is_empty() {
        return None;
    }
    match transaction.status {
        0 => status(env, args, cursor),
        sent => Some(Value::Int(i64::from(sent))),
    }
}

fn res_ver<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction.filter(|transaction| transaction.has_response)?;
    Some(Value::made(version_text(transaction.response.version())))
}

/// The request's authorization header. If the client uses Weir as a proxy, this is the one for proxies.
fn authorization<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
    let head = request(env)?;
    match env.transaction?.to_proxy {
        true => head.get_known(http::KnownName::ProxyAuthorization),
        false => head.get_known(http::KnownName::Authorization),
    }
}

/// The user in the request's credentials, and whether the password matches. `None` if the header is missing or malformed.
fn user(env: &Env<'_>, args: &Args) -> Option<(Vec<u8>, bool)> {
    let Arg::Userlist(list) = args.get(0) else { return None };
    let (user, password) = auth::basic(authorization(env)?)?;
    let right = list.check(&user, &password);
    Some((user, right))
}

fn http_auth<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    user(env, args).map(|(_, right)| Value::Bool(right))
}

/// In a condition, matches any of the user's groups. As a value, returns the user, as in HAProxy.
fn http_auth_group<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    let Arg::Userlist(list) = args.get(0) else { return None };
    let (user, _) = user(env, args).filter(|(_, right)| *right)?;
    if !cursor.all {
        return Some(Value::made(Scratch::copy(&user)));
    }
    cursor.pick(list.groups(&user).iter()).map(|group| match base::raw::bytes_of(group) {
        Cow::Borrowed(group) => Value::str(group),
        Cow::Owned(group) => Value::made(Scratch::copy(&group)),
    })
}

fn http_auth_bearer<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let value = match args.name(0) {
        Some(name) => request(env)?.get(name)?,
        None => authorization(env)?,
    };
    let (scheme, token) = value.split_at_checked(value.iter().position(|byte| *byte == b' ')?)?;
    scheme.eq_ignore_ascii_case(b"bearer").then(|| Value::str(token.trim_ascii()))
}

fn http_auth_pass<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let (_, password) = auth::basic(authorization(env)?)?;
    Some(Value::made(Scratch::copy(&password)))
}

fn http_auth_user<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let (user, _) = auth::basic(authorization(env)?)?;
    Some(Value::made(Scratch::copy(&user)))
}

fn http_auth_type<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let value = authorization(env)?;
    // A scheme without anything after it does not count.
    let scheme = &value[..value.iter().position(|byte| *byte == b' ')?];
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(Value::str(b"Bearer"));
    }
    auth::basic(value).map(|_| Value::str(b"Basic"))
}
