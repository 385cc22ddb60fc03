//! Fetches for the header fields of requests and responses (manual, 7.3.6).

use http::{Head, KnownName, Name, uri};

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, opt};
use crate::env::Env;
use crate::length_prefixed::write_length;
use crate::place::{Columns, is_response};
use crate::scope::Scope;
use crate::transaction::FirstBytes;
use crate::value::{Scratch, Type, Value};

const ONE: &[crate::args::Spec] = &[opt(ArgKind::HeaderName), opt(ArgKind::Int)];
const NAME: &[crate::args::Spec] = &[opt(ArgKind::HeaderName)];
const DELIMITER: &[crate::args::Spec] = &[opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name              arguments  gives       where              description
    row("hdr",            ONE,       Type::Str,  Columns::EITHER,   "comma-separated value of a header of the request or response, depending on the rule", hdr).prepared(prepare_either).any(any_hdr),
    row("hdr_cnt",        NAME,      Type::Int,  Columns::REQUEST,  "number of values of a request header",                 req_hdr_cnt),
    row("hdr_ip",         ONE,       Type::Addr, Columns::REQUEST,  "value of a request header, as an address",             req_hdr_ip).prepared(prepare),
    row("hdr_val",        ONE,       Type::Int,  Columns::REQUEST,  "value of a request header, as a number",               req_hdr_val).prepared(prepare),
    row("req.hdr",        ONE,       Type::Str,  Columns::REQUEST,  "comma-separated value of a request header",            req_hdr).prepared(prepare).any(any_req_hdr),
    row("req.fhdr",       ONE,       Type::Str,  Columns::REQUEST,  "full value of a request header line",                  req_fhdr).prepared(prepare),
    row("req.fhdr_cnt",   NAME,      Type::Int,  Columns::REQUEST,  "number of lines of a request header",                  req_fhdr_cnt),
    row("req.hdr_cnt",    NAME,      Type::Int,  Columns::REQUEST,  "number of values of a request header",                 req_hdr_cnt),
    row("req.hdr_ip",     ONE,       Type::Addr, Columns::REQUEST,  "value of a request header, as an address",             req_hdr_ip).prepared(prepare),
    row("req.hdr_val",    ONE,       Type::Int,  Columns::REQUEST,  "value of a request header, as a number",               req_hdr_val).prepared(prepare),
    row("req.hdr_names",  DELIMITER, Type::Str,  Columns::REQUEST,  "names of the request headers",                         req_hdr_names),
    row("req.hdrs",       &[],       Type::Bin,  Columns::REQUEST,  "all request headers, as text",                         req_hdrs),
    row("req.hdrs_bin",   &[],       Type::Bin,  Columns::REQUEST,  "all request headers, in binary form",                  req_hdrs_bin),
    row("res.hdr",        ONE,       Type::Str,  Columns::RESPONSE, "comma-separated value of a response header",           res_hdr).prepared(prepare).any(any_res_hdr),
    row("res.fhdr",       ONE,       Type::Str,  Columns::RESPONSE, "full value of a response header line",                 res_fhdr).prepared(prepare),
    row("res.fhdr_cnt",   NAME,      Type::Int,  Columns::RESPONSE, "number of lines of a response header",                 res_fhdr_cnt),
    row("res.hdr_cnt",    NAME,      Type::Int,  Columns::RESPONSE, "number of values of a response header",                res_hdr_cnt),
    row("res.hdr_ip",     ONE,       Type::Addr, Columns::RESPONSE, "value of a response header, as an address",            res_hdr_ip).prepared(prepare),
    row("res.hdr_val",    ONE,       Type::Int,  Columns::RESPONSE, "value of a response header, as a number",              res_hdr_val).prepared(prepare),
    row("res.hdr_names",  DELIMITER, Type::Str,  Columns::RESPONSE, "names of the response headers",                        res_hdr_names),
    row("res.hdrs",       &[],       Type::Bin,  Columns::RESPONSE, "all response headers, as text",                        res_hdrs),
    row("res.hdrs_bin",   &[],       Type::Bin,  Columns::RESPONSE, "all response headers, in binary form",                 res_hdrs_bin),
    row("shdr",           ONE,       Type::Str,  Columns::RESPONSE, "comma-separated value of a response header",           res_hdr).prepared(prepare).any(any_res_hdr),
    row("shdr_cnt",       NAME,      Type::Int,  Columns::RESPONSE, "number of values of a response header",                res_hdr_cnt),
    row("shdr_ip",        ONE,       Type::Addr, Columns::RESPONSE, "value of a response header, as an address",            res_hdr_ip).prepared(prepare),
    row("shdr_val",       ONE,       Type::Int,  Columns::RESPONSE, "value of a response header, as a number",              res_hdr_val).prepared(prepare),
];

/// The request's head, if there is one.
pub(super) fn request<'a>(env: &Env<'a>) -> Option<&'a Head> {
    let transaction = env.transaction?;
    if !transaction.is_http && transaction.first_bytes != FirstBytes::Request {
        // The rest of the head may still arrive.
        env.want_bytes(transaction.first_bytes == FirstBytes::Begun);
        return None;
    }
    Some(&transaction.request).filter(|head| !head.target().is_empty())
}

/// The response's head, if there is one.
pub(super) fn response<'a>(env: &Env<'a>) -> Option<&'a Head> {
    env.transaction.filter(|transaction| transaction.has_response).map(|transaction| &transaction.response)
}

/// The request's Host header, the first part of `base`.
pub(super) fn host<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
    request(env)?.get_known(KnownName::Host)
}

/// Matches every header, for fetches without an argument.
static ANY: std::sync::LazyLock<Name> = std::sync::LazyLock::new(Name::any);

fn name(args: &Args) -> &Name {
    args.name(0).unwrap_or_else(|| &ANY)
}

/// Validates the occurrence argument.
fn prepare(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args[1] {
        Arg::Int(occurrence) if !(-10..=i64::from(i32::MAX)).contains(&occurrence) => {
            Err("occurrences are numbered from 1, or from -1 (the last) down to -10".into())
        }
        _ => Ok(()),
    }
}

/// Stores the direction that the fetch reads.
fn prepare_either(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    prepare(args, scope)?;
    args.push(Arg::Int(i64::from(is_response(scope.place))));
    Ok(())
}

#[inline]
fn value<'a>(head: &'a Head, args: &'a Args, cursor: &mut Cursor) -> Option<&'a [u8]> {
    match args.int(1) {
        Some(occurrence) if occurrence != 0 => head.nth_value(name(args), occurrence as i32),
        _ if cursor.all => cursor.pick(head.values(name(args))),
        _ => head.nth_value(name(args), -1),
    }
}

/// Whether `look` accepts the selected value, or any of the values if none is selected.
#[inline]
fn any_value<'a>(head: Option<&'a Head>, args: &Args, look: &mut dyn FnMut(&'a [u8]) -> bool) -> bool {
    let Some(head) = head else { return false };
    match args.int(1) {
        Some(occurrence) if occurrence != 0 => {
            head.nth_value(name(args), occurrence as i32).is_some_and(look)
        }
        _ => head.any_value(name(args), look),
    }
}

#[inline]
fn line<'a>(head: &'a Head, args: &'a Args, cursor: &mut Cursor) -> Option<&'a [u8]> {
    let line = match args.int(1) {
        Some(occurrence) if occurrence != 0 => head.nth_line(name(args), occurrence as i32),
        _ if cursor.all => cursor.pick(head.get_all(name(args))),
        _ => head.nth_line(name(args), -1),
    };
    // Values set by rules may have surrounding blanks that the parser would have trimmed.
    line.map(<[u8]>::trim_ascii)
}

fn hdr<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    value(either(env, args)?, args, cursor).map(Value::str)
}

/// The head in the direction stored by [`prepare_either`].
fn either<'a>(env: &Env<'a>, args: &Args) -> Option<&'a Head> {
    if args.int(2) == Some(1) { response(env) } else { request(env) }
}

fn any_hdr<'a>(env: &'a Env<'a>, args: &'a Args, look: &mut dyn FnMut(&'a [u8]) -> bool) -> bool {
    any_value(either(env, args), args, look)
}

fn any_req_hdr<'a>(env: &'a Env<'a>, args: &'a Args, look: &mut dyn FnMut(&'a [u8]) -> bool) -> bool {
    any_value(request(env), args, look)
}

fn any_res_hdr<'a>(env: &'a Env<'a>, args: &'a Args, look: &mut dyn FnMut(&'a [u8]) -> bool) -> bool {
    any_value(response(env), args, look)
}

fn req_hdr<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    value(request(env)?, args, cursor).map(Value::str)
}

fn res_hdr<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    value(response(env)?, args, cursor).map(Value::str)
}

fn req_fhdr<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    line(request(env)?, args, cursor).map(Value::str)
}

fn res_fhdr<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    line(response(env)?, args, cursor).map(Value::str)
}

fn count<'a>(count: usize) -> Option<Value<'a>> {
    Some(Value::Int(count as i64))
}

fn req_hdr_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    count(request(env)?.count_values(name(args)))
}

fn res_hdr_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    count(response(env)?.count_values(name(args)))
}

fn req_fhdr_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    count(request(env)?.count_lines(name(args)))
}

fn res_fhdr_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    count(response(env)?.count_lines(name(args)))
}

/// The number at the start of a header, cookie or parameter; 0 if there is none.
pub(super) fn as_number<'a>(bytes: Option<&[u8]>) -> Option<Value<'a>> {
    Some(Value::Int(crate::value::leading_int(bytes?).unwrap_or(0)))
}

fn req_hdr_val<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    as_number(value(request(env)?, args, cursor))
}

fn res_hdr_val<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    as_number(value(response(env)?, args, cursor))
}

/// Parses an address in a header, optionally in brackets or with a port.
fn as_address<'a>(bytes: &[u8]) -> Option<Value<'a>> {
    let bytes = bytes.trim_ascii();
    let without_port = || {
        let (host, port) = uri::split_port(bytes);
        port.and_then(|_| crate::value::parse_ip(host))
    };
    crate::value::parse_ip(bytes).or_else(without_port).map(Value::ip)
}

/// The next value that is an address, if all values are wanted.
fn address<'a>(head: &'a Head, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    loop {
        cursor.more = false;
        let found = as_address(value(head, args, cursor)?);
        if found.is_some() || !cursor.more {
            return found;
        }
    }
}

fn req_hdr_ip<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    address(request(env)?, args, cursor)
}

fn res_hdr_ip<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    address(response(env)?, args, cursor)
}

fn names<'a>(head: &Head, args: &Args) -> Option<Value<'a>> {
    let delimiter = args.bytes(0).and_then(<[u8]>::first).copied().unwrap_or(b',');
    let mut out = Scratch::new();
    for (name, _) in head.fields() {
        if !out.is_empty() {
            out.push(delimiter);
        }
        out.extend(name.iter().map(u8::to_ascii_lowercase));
    }
    Some(Value::made(out))
}

fn req_hdr_names<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    names(request(env)?, args)
}

fn res_hdr_names<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    names(response(env)?, args)
}

fn as_text<'a>(head: &Head) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    for (name, value) in head.fields() {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Some(Value::Bin(out.into()))
}

fn req_hdrs<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    as_text(request(env)?)
}

fn res_hdrs<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    as_text(response(env)?)
}

fn as_binary<'a>(head: &Head) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    for (name, value) in head.fields() {
        write_length(&mut out, name.len());
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        write_length(&mut out, value.len());
        out.extend_from_slice(value);
    }
    out.extend_from_slice(&[0, 0]);
    Some(Value::Bin(out.into()))
}

fn req_hdrs_bin<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    as_binary(request(env)?)
}

fn res_hdrs_bin<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    as_binary(response(env)?)
}
