//! Fetches for the raw bytes of a stream, RDP cookies and the first TLS message (manual, 7.3.5).

use std::sync::atomic::Ordering::Relaxed;

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, arg, opt};
use crate::env::Env;
use crate::place::{Columns, is_response};
use crate::scope::Scope;
use crate::transaction::Transaction;
use crate::value::{Type, Value};

const RANGE: &[crate::args::Spec] = &[arg(ArgKind::Int), arg(ArgKind::Int)];
const LENGTH_VALUE: &[crate::args::Spec] = &[arg(ArgKind::Int), arg(ArgKind::Int), opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                  arguments         gives       where              description
    row("payload",            RANGE,            Type::Bin,  Columns::EITHER,   "bytes of the request or response, by offset and length",  payload).prepared(prepare_either),
    row("payload_lv",         LENGTH_VALUE,     Type::Bin,  Columns::EITHER,   "bytes that are preceded by their length",                 payload_lv).prepared(prepare_either_length),
    row("req.len",            &[],              Type::Int,  Columns::REQUEST,  "number of request bytes received",                        req_len),
    row("req_len",            &[],              Type::Int,  Columns::REQUEST,  "number of request bytes received",                        req_len),
    row("req.payload",        RANGE,            Type::Bin,  Columns::REQUEST,  "bytes of the request, by offset and length",              req_payload).prepared(prepare),
    row("req.payload_lv",     LENGTH_VALUE,     Type::Bin,  Columns::REQUEST,  "bytes that are preceded by their length",                 req_payload_lv).prepared(prepare_length),
    row("res.len",            &[],              Type::Int,  Columns::RESPONSE, "number of response bytes received",                       res_len),
    row("res.payload",        RANGE,            Type::Bin,  Columns::RESPONSE, "bytes of the response, by offset and length",             res_payload).prepared(prepare),
    row("res.payload_lv",     LENGTH_VALUE,     Type::Bin,  Columns::RESPONSE, "bytes that are preceded by their length",                 res_payload_lv).prepared(prepare_length),
    row("rdp_cookie",         &[opt(ArgKind::Str)],Type::Str,  Columns::REQUEST,  "RDP cookie",                                              rdp_cookie),
    row("rdp_cookie_cnt",     &[opt(ArgKind::Str)],Type::Int,  Columns::REQUEST,  "whether the cookie is present",                           rdp_cookie_cnt),
    row("req.rdp_cookie",     &[opt(ArgKind::Str)],Type::Str,  Columns::REQUEST,  "RDP cookie",                                              rdp_cookie),
    row("req.rdp_cookie_cnt", &[opt(ArgKind::Str)],Type::Int,  Columns::REQUEST,  "whether the cookie is present",                           rdp_cookie_cnt),
    row("req.ssl_hello_type", &[],              Type::Int,  Columns::REQUEST,  "1 for a TLS ClientHello",                                 ssl_hello_type),
    row("req_ssl_hello_type", &[],              Type::Int,  Columns::REQUEST,  "1 for a TLS ClientHello",                                 ssl_hello_type),
    row("res.ssl_hello_type", &[],              Type::Int,  Columns::RESPONSE, "2 for a TLS ServerHello",                                 server_hello_type),
    row("rep_ssl_hello_type", &[],              Type::Int,  Columns::RESPONSE, "2 for a TLS ServerHello",                                 server_hello_type),
    row("req.ssl_ver",        &[],              Type::Int,  Columns::REQUEST,  "TLS version of a ClientHello, as two 16-bit halves",      ssl_ver),
    row("req_ssl_ver",        &[],              Type::Int,  Columns::REQUEST,  "TLS version of a ClientHello, as two 16-bit halves",      ssl_ver),
    row("req.ssl_sni",        &[],              Type::Str,  Columns::REQUEST,  "server name in a ClientHello",                            ssl_sni),
    row("req_ssl_sni",        &[],              Type::Str,  Columns::REQUEST,  "server name in a ClientHello",                            ssl_sni),
    row("req.ssl_alpn",       &[],              Type::Str,  Columns::REQUEST,  "protocols offered in a ClientHello",                      ssl_alpn),
    row("req.ssl_ec_ext",     &[],              Type::Bool, Columns::REQUEST,  "whether a ClientHello has the supported_groups extension", ssl_ec_ext),
    row("req.ssl_st_ext",     &[],              Type::Int,  Columns::REQUEST,  "session ticket extension in a ClientHello: 0 for none, 1 for empty, 2 with a ticket", ssl_st_ext),
    row("req.ssl_cipherlist",       &[],        Type::Bin,  Columns::CLIENT,   "cipher suites offered in a ClientHello",                  ssl_cipherlist),
    row("req.ssl_sigalgs",          &[],        Type::Bin,  Columns::CLIENT,   "signature algorithms offered in a ClientHello",           ssl_sigalgs),
    row("req.ssl_supported_groups", &[],        Type::Bin,  Columns::CLIENT,   "groups offered in a ClientHello",                         ssl_supported_groups),
    row("req.ssl_keyshare_groups",  &[],        Type::Bin,  Columns::CLIENT,   "groups with a key share in a ClientHello",                ssl_keyshare_groups),
    row("udp.len",            &[],              Type::Int,  Columns::REQUEST,  "size of the datagram",                                    udp_len),
    row("udp.payload",        &[],              Type::Bin,  Columns::REQUEST,  "payload of the datagram",                                 udp_payload),
];

fn prepare(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let negative = |arg: &Arg| matches!(arg, Arg::Int(value) if *value < 0);
    if args.iter().take(2).any(negative) {
        return Err("offsets and lengths must not be negative".into());
    }
    if let Some(Arg::Bytes(text)) = args.get(2) {
        let text = String::from_utf8_lossy(text);
        let relative = text.starts_with(['+', '-']);
        let offset: i64 = text.parse().map_err(|_| format!("invalid offset `{text}`"))?;
        args[2] = Arg::Int(offset);
        args.push(Arg::Int(i64::from(relative)));
    }
    Ok(())
}

/// The length field has at least one byte.
fn prepare_length(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    if matches!(args.get(1), Some(Arg::Int(0))) {
        return Err("the length field must have at least one byte".into());
    }
    prepare(args, scope)
}

fn prepare_either_length(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare_length(args, scope)?;
    note_direction(args, scope);
    Ok(())
}

fn prepare_either(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare(args, scope)?;
    note_direction(args, scope);
    Ok(())
}

fn note_direction(args: &mut Vec<Arg>, scope: &Scope<'_>) {
    // Stored after the at most four arguments of a length and value.
    args.resize_with(4, || Arg::Missing);
    args.push(Arg::Int(i64::from(is_response(scope.place))));
}

/// The received bytes of the request or the response, or `None` in HTTP mode, in which connections have no raw data. A query to an
/// agent belongs to an HTTP transaction, but it is raw data and has no method.
pub(super) fn raw<'a>(env: &Env<'a>, of_response: bool) -> Option<&'a [u8]> {
    let has_method = |of: &Transaction| of.is_http && !of.request.method().is_empty();
    let bytes = if of_response { env.response_bytes } else { env.request_bytes };
    (!env.transaction.is_some_and(has_method)).then_some(bytes)
}

fn raw_request<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
    raw(env, false)
}

fn raw_response<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
    raw(env, true)
}

fn either<'a>(env: &Env<'a>, args: &Args) -> Option<&'a [u8]> {
    raw(env, args.int(4) == Some(1))
}

/// Waits for the bytes before `end`, which may still arrive. A buffer never holds more than its size.
fn await_bytes(env: &Env<'_>, end: usize) {
    let room = env.process.buffer.load(Relaxed) as usize;
    env.want_bytes(room == 0 || end <= room);
}

/// `length` bytes at `offset`; if `length` is 0, all bytes from there. Waits for bytes that may still arrive.
fn range<'a>(env: &Env<'a>, bytes: &'a [u8], args: &Args) -> Option<Value<'a>> {
    let (offset, length) = (args.int(0)? as usize, args.int(1)? as usize);
    let end = offset.saturating_add(length);
    if length == 0 {
        await_bytes(env, end);
        return bytes.get(offset..).filter(|rest| !rest.is_empty()).map(Value::bin);
    }
    let found = bytes.get(offset..end);
    if found.is_none() {
        await_bytes(env, end);
    }
    found.map(Value::bin)
}

fn length_value<'a>(env: &Env<'a>, bytes: &'a [u8], args: &Args) -> Option<Value<'a>> {
    let (offset, size) = (args.int(0)? as usize, args.int(1)? as usize);
    let start = offset.saturating_add(size);
    let Some(prefix) = bytes.get(offset..start) else {
        await_bytes(env, start);
        return None;
    };
    let length = prefix.iter().take(8).fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    let start = match (args.int(2), args.int(3)) {
        (Some(shift), Some(1)) => start.checked_add_signed(shift as isize)?,
        (Some(start), _) => start as usize,
        (None, _) => start,
    };
    let end = start.checked_add(length)?;
    let value = bytes.get(start..end);
    if value.is_none() {
        await_bytes(env, end);
    }
    value.map(Value::bin)
}

fn payload<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    range(env, either(env, args)?, args)
}

/// The datagram, or `None` if the client uses another transport.
fn datagram<'a>(env: &'a Env<'a>) -> Option<&'a [u8]> {
    let is_datagram = env.session?.frontend.mode == state::Mode::Udp;
    is_datagram.then_some(env.request_bytes)
}

fn udp_len<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    datagram(env).map(|bytes| Value::Int(bytes.len() as i64))
}

fn udp_payload<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    datagram(env).map(Value::bin)
}

fn payload_lv<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    length_value(env, either(env, args)?, args)
}

fn req_payload<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    range(env, raw_request(env)?, args)
}

fn res_payload<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    range(env, raw_response(env)?, args)
}

fn req_payload_lv<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    length_value(env, raw_request(env)?, args)
}

fn res_payload_lv<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    length_value(env, raw_response(env)?, args)
}

fn length<'a>(env: &Env<'a>, bytes: &[u8]) -> Option<Value<'a>> {
    env.want_bytes(true);
    Some(Value::Int(bytes.len() as i64))
}

fn req_len<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    // In HTTP mode, the head is also counted; it is complete.
    let head = env.transaction.filter(|x| x.is_http).map_or(0, |x| x.request.received_len());
    env.may_change.set(!env.complete);
    Some(Value::Int((head + env.request_bytes.len()) as i64))
}

fn res_len<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    length(env, env.response_bytes)
}

/// The value of the cookie in an X.224 connection request in a TPKT frame (MS-RDPBCGR 2.2.1.1).
fn find_rdp_cookie<'a>(env: &Env<'a>, name: Option<&[u8]>) -> Option<&'a [u8]> {
    let bytes = raw_request(env)?;
    let complete = bytes.len() >= 11 && bytes.len() >= usize::from(bytes[2]) << 8 | usize::from(bytes[3]);
    if !complete {
        // Does not wait if the bytes cannot become such a frame.
        env.want_bytes(matches!(bytes, [] | [3, ..]));
        return None;
    }
    if bytes[0] != 3 || bytes[5] != 0xe0 {
        return None;
    }
    let rest = &bytes[11..];
    let text = rest.get(..7).filter(|start| start.eq_ignore_ascii_case(b"Cookie:")).map(|_| &rest[7..])?;
    let line = &text[..text.windows(2).position(|pair| pair == b"\r\n")?];
    let line = line.trim_ascii_start();
    let equals = line.iter().position(|byte| *byte == b'=')?;
    let same = name.is_none_or(|name| name.is_empty() || line[..equals].eq_ignore_ascii_case(name));
    same.then(|| &line[equals + 1..])
}

fn rdp_cookie<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    find_rdp_cookie(env, args.bytes(0)).map(Value::str)
}

fn rdp_cookie_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(i64::from(find_rdp_cookie(env, args.bytes(0)).is_some())))
}

/// A ClientHello at the start of the stream.
struct PayloadHello<'a> {
    version: (u8, u8),
    ciphers: &'a [u8],
    /// The extensions, possibly truncated at the end of the message.
    extensions: &'a [u8],
}

/// The contents of the first record, if it is a handshake record (RFC 8446, 5.1).
fn handshake<'a>(env: &Env<'a>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    if bytes.len() < 5 {
        env.want_bytes(matches!(bytes, [] | [0x16, ..]));
        return None;
    }
    if bytes[0] != 0x16 || bytes[1] != 3 {
        return None;
    }
    let length = usize::from(bytes[3]) << 8 | usize::from(bytes[4]);
    let Some(record) = bytes.get(5..5 + length) else {
        env.want_bytes(true);
        return None;
    };
    Some(record)
}

/// Parses a ClientHello (RFC 8446, 4.1.2).
fn hello<'a>(env: &Env<'a>) -> Option<PayloadHello<'a>> {
    let record = handshake(env, raw_request(env)?)?;
    let body = record.strip_prefix(&[1]).and_then(|rest| rest.get(3..))?;
    let version = (*body.first()?, *body.get(1)?);
    let mut rest = body.get(34..)?;
    let mut skip = |bytes_of_length: usize| -> Option<&'a [u8]> {
        let length =
            rest.get(..bytes_of_length)?.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
        let part = rest.get(bytes_of_length..bytes_of_length + length)?;
        rest = &rest[bytes_of_length + length..];
        Some(part)
    };
    // Session ID, cipher suites and compression methods.
    let ciphers = skip(1).and_then(|_| skip(2));
    let has_extensions = ciphers.is_some() && skip(1).is_some();
    let extensions = if has_extensions { rest.get(2..).unwrap_or_default() } else { &[] };
    Some(PayloadHello { version, ciphers: ciphers.unwrap_or_default(), extensions })
}

fn extension<'a>(hello: &PayloadHello<'a>, wanted: u16) -> Option<&'a [u8]> {
    let mut rest = hello.extensions;
    while let [kind_high, kind_low, high, low, after @ ..] = rest {
        let length = usize::from(*high) << 8 | usize::from(*low);
        let value = after.get(..length)?;
        if u16::from_be_bytes([*kind_high, *kind_low]) == wanted {
            return Some(value);
        }
        rest = &after[length..];
    }
    None
}

fn ssl_hello_type<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    hello(env).map(|_| Value::Int(1))
}

/// A ServerHello has at least the version and 32 random bytes.
fn server_hello_type<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let record = handshake(env, raw_response(env)?)?;
    (record.first() == Some(&2) && record.len() >= 38).then_some(Value::Int(2))
}

fn ssl_ver<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let (major, minor) = hello(env)?.version;
    Some(Value::Int(i64::from(major) << 16 | i64::from(minor)))
}

fn ssl_sni<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    // A list with one name of type 0 (RFC 6066, 3).
    let list = extension(&hello(env)?, 0)?;
    let length = usize::from(*list.get(3)?) << 8 | usize::from(*list.get(4)?);
    list.get(5..5 + length).map(Value::str)
}

/// Returns the names, one after the other, in the client's order of preference.
fn ssl_alpn<'a>(env: &'a Env<'a>, _: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    let hello = hello(env)?;
    let mut list = extension(&hello, 16)?.get(2..)?;
    for _ in 0..cursor.given {
        let (length, rest) = list.split_first()?;
        list = rest.get(usize::from(*length)..)?;
    }
    let (length, rest) = list.split_first()?;
    let name = rest.get(..usize::from(*length))?;
    if cursor.all {
        cursor.given += 1;
        cursor.more = rest.len() > name.len();
    }
    Some(Value::str(name))
}

fn ssl_cipherlist<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    hello(env).map(|hello| Value::bin(hello.ciphers))
}

fn ssl_sigalgs<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    extension(&hello(env)?, 13)?.get(2..).map(Value::bin)
}

fn ssl_supported_groups<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    extension(&hello(env)?, 10)?.get(2..).map(Value::bin)
}

/// The shares are a list of group, length and key; only the groups are returned.
fn ssl_keyshare_groups<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let mut shares = extension(&hello(env)?, 51)?.get(2..)?;
    let mut out = crate::value::Scratch::new();
    while let [group @ .., high, low] = shares.get(..4)? {
        out.extend_from_slice(group);
        shares = shares.get(4 + (usize::from(*high) << 8 | usize::from(*low))..)?;
        if shares.is_empty() {
            break;
        }
    }
    Some(Value::Bin(out.into()))
}

fn ssl_ec_ext<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(extension(&hello(env)?, 10).is_some()))
}

fn ssl_st_ext<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(match extension(&hello(env)?, 35) {
        None => 0,
        Some([]) => 1,
        Some(_) => 2,
    }))
}
