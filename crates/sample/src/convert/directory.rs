//! Converters for proxies and servers named at run time, e.g. by a map or a cookie.

use std::sync::Arc;

use state::{Proxy, Server};

use super::{Convert, row};
use crate::args::{Arg, Args, Prepared};
use crate::env::Env;
use crate::fetch;
use crate::scope::{Directory, Scope};
use crate::value::{Type, Value};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name          arguments  takes       gives       description
    row("fe_exists",  &[],       Type::Str,  Type::Bool, "checks whether a frontend exists",                      fe_exists).prepared(prepare),
    row("nbsrv",      &[],       Type::Str,  Type::Int,  "returns the number of usable servers of a backend",     nbsrv).prepared(prepare),
    row("srv_is_up",  &[],       Type::Str,  Type::Bool, "checks whether the server `backend/server` is up",      srv_is_up).prepared(prepare),
    row("srv_queue",  &[],       Type::Str,  Type::Int,  "returns the number of requests queued for the server `backend/server`",srv_queue).prepared(prepare),
];

impl Prepared for Directory {}

fn prepare(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let directory = scope.names.directory().ok_or("proxies cannot be looked up by name here")?;
    *args = vec![Arg::Prepared(directory)];
    Ok(())
}

fn text<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    std::str::from_utf8(value.bytes()?).ok()
}

fn fe_exists<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let directory: &Directory = args.prepared(0)?;
    value.bytes()?;
    // Names are always text.
    Some(Value::Bool(text(&value).is_some_and(|name| directory.frontends.contains_key(name))))
}

fn backend<'d>(directory: &'d Directory, name: &str) -> Option<&'d Arc<Proxy>> {
    directory.backends.get(name)
}

fn nbsrv<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let usable = backend(args.prepared(0)?, text(&value)?)?.usable();
    Some(Value::Int(i64::from(if usable.0 > 0 { usable.0 } else { usable.1 })))
}

/// The server `backend/server`; without a backend, a server of the stream's backend.
fn server(value: &Value<'_>, args: &Args, env: &Env<'_>) -> Option<Arc<Server>> {
    match text(value)?.split_once('/') {
        Some((proxy, name)) => backend(args.prepared(0)?, proxy)?.server(name),
        None => fetch::backend(env)?.server(text(value)?),
    }
}

fn srv_is_up<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    server(&value, args, env).map(|server| Value::Bool(server.is_up()))
}

fn srv_queue<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    server(&value, args, env).map(|server| Value::Int(i64::from(server.queue.len())))
}
