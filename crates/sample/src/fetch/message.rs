//! Fetches for the bodies of HTTP messages (manual, 7.3.6).

use http::{Head, KnownName, uri};

use super::header::{request, response};
use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, opt};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    // name arguments gives where description
    row("req.body",       &[],                                Type::Bin, Columns::REQUEST,  "body received so far",                 req_body).prepared(keep_body),
    row("req.body_len",   &[],                                Type::Int, Columns::REQUEST,  "length of the body received so far",   req_body_len).prepared(keep_body),
    row("req.body_size",  &[],                                Type::Int, Columns::REQUEST,  "announced length of the body",         req_body_size).prepared(keep_body),
    row("req.body_param", &[opt(ArgKind::Str), opt(ArgKind::Str)],  Type::Bin, Columns::REQUEST,  "parameter of a form in the body",      req_body_param).prepared(keep_body),
    row("res.body",       &[],                                Type::Bin, Columns::RESPONSE, "body received so far",                 res_body).prepared(keep_body),
    row("res.body_len",   &[],                                Type::Int, Columns::RESPONSE, "length of the body received so far",   res_body_len).prepared(keep_body),
    row("res.body_size",  &[],                                Type::Int, Columns::RESPONSE, "announced length of the body",         res_body_size).prepared(keep_body),
];

/// Makes the proxy buffer bodies for these fetches.
fn keep_body(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_bodies();
    Ok(())
}

/// The received part of the body. It may grow until the message is complete.
fn body<'a>(env: &Env<'a>, bytes: &'a [u8]) -> &'a [u8] {
    if !env.complete {
        env.want_bytes(true);
    }
    bytes
}

/// The announced length, or the received length if none is announced.
fn size<'a>(head: &Head, there: &[u8]) -> Option<Value<'a>> {
    let announced = head.get_known(KnownName::ContentLength).and_then(crate::value::parse_int);
    Some(Value::Int(announced.unwrap_or(there.len() as i64)))
}

fn req_body<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    request(env)?;
    Some(Value::bin(body(env, env.request_bytes)))
}

fn res_body<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    response(env)?;
    Some(Value::bin(body(env, env.response_bytes)))
}

fn req_body_len<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    request(env)?;
    Some(Value::Int(body(env, env.request_bytes).len() as i64))
}

fn res_body_len<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    response(env)?;
    Some(Value::Int(body(env, env.response_bytes).len() as i64))
}

fn req_body_size<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    size(request(env)?, env.request_bytes)
}

fn res_body_size<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    size(response(env)?, env.response_bytes)
}

fn req_body_param<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    request(env)?;
    let name = args.bytes(0).filter(|name| !name.is_empty());
    let ignore_case = args.bytes(1) == Some(b"i");
    let mut found = uri::params(body(env, env.request_bytes), true, Some(b'&'))
        .filter(|(other, _)| match name {
            None => true,
            Some(name) if ignore_case => other.eq_ignore_ascii_case(name),
            Some(name) => *other == name,
        })
        .filter_map(|(_, value)| value);
    let value = if cursor.all { cursor.pick(found) } else { found.next() };
    value.map(Value::bin)
}
