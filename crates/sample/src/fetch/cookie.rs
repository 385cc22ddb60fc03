//! Fetches for the cookies of requests and responses (manual, 7.3.6).

use std::sync::LazyLock;

use http::{Head, Name};

use super::header::{as_number, request, response};
use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, opt};
use crate::env::Env;
use crate::place::{Columns, is_response};
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

const NAME: &[crate::args::Spec] = &[opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name             arguments  gives      where              description
    row("cook",          NAME,      Type::Str, Columns::REQUEST,  "request cookie",                              req_cook),
    row("cook_cnt",      NAME,      Type::Int, Columns::REQUEST,  "number of occurrences",                       req_cook_cnt),
    row("cook_val",      NAME,      Type::Int, Columns::REQUEST,  "request cookie as a number",                  req_cook_val),
    row("cookie",        NAME,      Type::Str, Columns::EITHER,   "cookie of the request or response, depending on the rule", cookie).prepared(prepare_either),
    row("req.cook",      NAME,      Type::Str, Columns::REQUEST,  "request cookie",                              req_cook),
    row("req.cook_cnt",  NAME,      Type::Int, Columns::REQUEST,  "number of occurrences",                       req_cook_cnt),
    row("req.cook_val",  NAME,      Type::Int, Columns::REQUEST,  "request cookie as a number",                  req_cook_val),
    row("req.cook_names",NAME,      Type::Str, Columns::REQUEST,  "names of the request cookies",                req_cook_names),
    row("res.cook",      NAME,      Type::Str, Columns::RESPONSE, "cookie set by the response",                  res_cook),
    row("res.cook_cnt",  NAME,      Type::Int, Columns::RESPONSE, "number of times it is set",                   res_cook_cnt),
    row("res.cook_val",  NAME,      Type::Int, Columns::RESPONSE, "request cookie as a number",                  res_cook_val),
    row("res.cook_names",NAME,      Type::Str, Columns::RESPONSE, "names of the cookies set by the response",    res_cook_names),
    row("scook",         NAME,      Type::Str, Columns::RESPONSE, "cookie set by the response",                  res_cook),
    row("scook_cnt",     NAME,      Type::Int, Columns::RESPONSE, "number of times it is set",                   res_cook_cnt),
    row("scook_val",     NAME,      Type::Int, Columns::RESPONSE, "request cookie as a number",                  res_cook_val),
];

fn prepare_either(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    args.push(Arg::Int(i64::from(is_response(scope.place))));
    Ok(())
}

fn find<'a>(head: &'a Head, args: &'a Args, cursor: &mut Cursor) -> Option<&'a [u8]> {
    let name = args.bytes(0).filter(|name| !name.is_empty());
    let Some(name) = name.filter(|_| cursor.all) else { return head.cookie(name) };
    // A hand-written loop, because nested iterators cost more than the search itself.
    let mut passed = 0;
    let mut found = None;
    for line in head.get_all(if head.is_response() { &SET_COOKIE } else { &COOKIE }) {
        let pairs =
            if head.is_response() { http::cookie::set_cookies(line) } else { http::cookie::pairs(line) };
        for pair in pairs.filter(|pair| pair.has_value && line[pair.name.clone()] == *name) {
            if found.is_some() {
                cursor.more = true;
                return found;
            }
            if passed == cursor.given {
                cursor.given += 1;
                found = Some(&line[pair.value]);
            } else {
                passed += 1;
            }
        }
    }
    found
}

static COOKIE: LazyLock<Name> = LazyLock::new(|| Name::new(b"cookie"));
static SET_COOKIE: LazyLock<Name> = LazyLock::new(|| Name::new(b"set-cookie"));

fn count<'a>(head: &Head, args: &Args) -> Option<Value<'a>> {
    let name = args.bytes(0).filter(|name| !name.is_empty());
    let found = head.cookie_values().filter(|(found, _)| name.is_none_or(|name| name == *found));
    Some(Value::Int(found.count() as i64))
}

fn names<'a>(head: &Head, args: &Args) -> Option<Value<'a>> {
    let delimiter = args.bytes(0).and_then(<[u8]>::first).copied().unwrap_or(b',');
    let mut out = Scratch::new();
    for (name, _) in head.cookie_values() {
        if !out.is_empty() {
            out.push(delimiter);
        }
        out.extend_from_slice(name);
    }
    Some(Value::made(out))
}

fn cookie<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    let head = if args.int(1) == Some(1) { response(env) } else { request(env) };
    find(head?, args, cursor).map(Value::str)
}

fn req_cook<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    find(request(env)?, args, cursor).map(Value::str)
}

fn res_cook<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    find(response(env)?, args, cursor).map(Value::str)
}

fn req_cook_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    count(request(env)?, args)
}

fn res_cook_cnt<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    count(response(env)?, args)
}

fn req_cook_val<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    as_number(find(request(env)?, args, cursor))
}

fn res_cook_val<'a>(env: &'a Env<'a>, args: &'a Args, cursor: &mut Cursor) -> Option<Value<'a>> {
    as_number(find(response(env)?, args, cursor))
}

fn req_cook_names<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    names(request(env)?, args)
}

fn res_cook_names<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    names(response(env)?, args)
}
