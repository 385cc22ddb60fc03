//! Fetches of captured request and response data (manual, 7.3.6).

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, arg};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::transaction::CaptureSlot;
use crate::value::{Scratch, Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                  arguments          gives      where                   description
    row("capture.req.hdr",    &[arg(ArgKind::Int)], Type::Str, Columns::REQUEST_KEPT,  "captured request header, by slot",          capture_req_hdr).prepared(prepare_slot),
    row("capture.res.hdr",    &[arg(ArgKind::Int)], Type::Str, Columns::RESPONSE_KEPT, "captured response header, by slot",         capture_res_hdr).prepared(prepare_slot),
    row("capture.req.method", &[],               Type::Str, Columns::REQUEST_KEPT,  "request method as received",                capture_req_method).prepared(keep_line),
    row("capture.req.uri",    &[],               Type::Str, Columns::REQUEST_KEPT,  "path and query as received",                   capture_req_uri).prepared(keep_line),
    row("capture.req.ver",    &[],               Type::Str, Columns::REQUEST_KEPT,  "HTTP version as received, HTTP/1.0 or HTTP/1.1", capture_req_ver).prepared(keep_line),
    row("capture.res.ver",    &[],               Type::Str, Columns::REQUEST_KEPT,  "HTTP version of the response, HTTP/1.0 or HTTP/1.1",    capture_res_ver),
];

/// Makes transactions keep the request line.
fn keep_line(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_request_line();
    Ok(())
}

fn prepare_slot(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args.first() {
        Some(Arg::Int(slot)) if *slot < 0 => Err(format!("invalid slot `{slot}`: slots are numbered from 0")),
        _ => Ok(()),
    }
}

fn capture_req_hdr<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let slot = CaptureSlot::Request(usize::try_from(args.int(0)?).ok()?);
    env.transaction?.captured(slot).map(Value::Str)
}

fn capture_res_hdr<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let slot = CaptureSlot::Response(usize::try_from(args.int(0)?).ok()?);
    env.transaction?.captured(slot).map(Value::Str)
}

/// The request line as received: method, target and version.
pub(crate) fn request_line<'a>(env: &Env<'a>) -> Option<[&'a [u8]; 3]> {
    let transaction = env.transaction?;
    let line = transaction.kept(transaction.request_line)?;
    let first = line.iter().position(|byte| *byte == b' ')?;
    let rest = &line[first + 1..];
    let (target, version) = match rest.iter().rposition(|byte| *byte == b' ') {
        Some(last) => (&rest[..last], &rest[last + 1..]),
        None => (rest, &b""[..]),
    };
    Some([&line[..first], target, version])
}

fn capture_req_method<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    request_line(env).map(|line| Value::str(line[0]))
}

fn capture_req_uri<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    request_line(env).and_then(|line| http::uri::split(line[1]).pathq()).map(Value::str)
}

fn capture_req_ver<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let line = request_line(env)?;
    // The kept line is truncated at `tune.http.logurilen`, which may remove the version.
    match super::header::request(env) {
        Some(head) => Some(Value::made(version_text(head.version()))),
        None => Some(Value::str(line[2])),
    }
}

fn version_text(version: http::Version) -> Scratch {
    let (major, minor) = version.numbers();
    Scratch::copy(format!("HTTP/{major}.{minor}").as_bytes())
}

fn capture_res_ver<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction.filter(|transaction| transaction.has_response)?;
    Some(Value::made(version_text(transaction.response.version())))
}
