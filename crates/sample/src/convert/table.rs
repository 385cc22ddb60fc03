//! Converters that look up keys in stick tables (manual, 7.3.1 `in_table`, `table_…`).

use std::sync::Arc;

use state::table::{EntryValues, Table};

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt};
use crate::env::Env;
use crate::fetch::an_element;
use crate::scope::Scope;
use crate::table_field::{self, Counted, Element, FACTS, number};
use crate::track;
use crate::value::{Type, Value};

const TABLE: &[Spec] = &[arg(ArgKind::Table)];
const COUNTS: &[Spec] = &[arg(ArgKind::Table), opt(ArgKind::Str)];
const ELEMENT: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Table)];
const ELEMENT_COUNTS: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Table), opt(ArgKind::Str)];
const OR_ELSE: &[Spec] = &[arg(ArgKind::Table), opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    row("table_bytes_in_rate", COUNTS, Type::Any, Type::Int, "bytes from the client in a period", named::<{ number::BYTES_IN_RATE }, 0>).prepared(own),
    row("table_bytes_out_rate", COUNTS, Type::Any, Type::Int, "bytes to the client in a period", named::<{ number::BYTES_OUT_RATE }, 0>).prepared(own),
    row("table_conn_cnt", COUNTS, Type::Any, Type::Int, "connections so far", named::<{ number::CONN_CNT }, 0>).prepared(own),
    row("table_conn_cur", COUNTS, Type::Any, Type::Int, "connections now", named::<{ number::CONN_CUR }, 0>).prepared(own),
    row("table_conn_rate", COUNTS, Type::Any, Type::Int, "connections in a period", named::<{ number::CONN_RATE }, 0>).prepared(own),
    row("table_glitch_cnt", COUNTS, Type::Any, Type::Int, "protocol errors so far", named::<{ number::GLITCH_CNT }, 0>).prepared(own),
    row("table_glitch_rate", COUNTS, Type::Any, Type::Int, "protocol errors in a period", named::<{ number::GLITCH_RATE }, 0>).prepared(own),
    row("table_http_err_cnt", COUNTS, Type::Any, Type::Int, "request errors so far", named::<{ number::HTTP_ERR_CNT }, 0>).prepared(own),
    row("table_http_err_rate", COUNTS, Type::Any, Type::Int, "request errors in a period", named::<{ number::HTTP_ERR_RATE }, 0>).prepared(own),
    row("table_http_fail_cnt", COUNTS, Type::Any, Type::Int, "failed responses so far", named::<{ number::HTTP_FAIL_CNT }, 0>).prepared(own),
    row("table_http_fail_rate", COUNTS, Type::Any, Type::Int, "failed responses in a period", named::<{ number::HTTP_FAIL_RATE }, 0>).prepared(own),
    row("table_http_req_cnt", COUNTS, Type::Any, Type::Int, "requests so far", named::<{ number::HTTP_REQ_CNT }, 0>).prepared(own),
    row("table_http_req_rate", COUNTS, Type::Any, Type::Int, "requests in a period", named::<{ number::HTTP_REQ_RATE }, 0>).prepared(own),
    row("table_kbytes_in", COUNTS, Type::Any, Type::Int, "kilobytes from the client so far", named::<{ number::KBYTES_IN }, 0>).prepared(own),
    row("table_kbytes_out", COUNTS, Type::Any, Type::Int, "kilobytes to the client so far", named::<{ number::KBYTES_OUT }, 0>).prepared(own),
    row("table_sess_cnt", COUNTS, Type::Any, Type::Int, "sessions so far", named::<{ number::SESS_CNT }, 0>).prepared(own),
    row("table_sess_rate", COUNTS, Type::Any, Type::Int, "sessions in a period", named::<{ number::SESS_RATE }, 0>).prepared(own),
    row("table_clr_gpc0", TABLE, Type::Any, Type::Int, "first counter, reset to 0", named::<{ number::CLEAR }, 0>),
    row("table_clr_gpc1", TABLE, Type::Any, Type::Int, "second counter, reset to 0", named::<{ number::CLEAR }, 1>),
    row("table_gpc0", COUNTS, Type::Any, Type::Int, "first general purpose counter", named::<{ number::GPC }, 0>).prepared(own),
    row("table_gpc1", COUNTS, Type::Any, Type::Int, "second general purpose counter", named::<{ number::GPC }, 1>).prepared(own),
    row("table_gpt0", TABLE, Type::Any, Type::Int, "first general purpose tag", named::<{ number::GPT }, 0>),
    row("table_gpc0_rate", COUNTS, Type::Any, Type::Int, "increments of the first counter in a period", named::<{ number::GPC_RATE }, 0>).prepared(own),
    row("table_gpc1_rate", COUNTS, Type::Any, Type::Int, "increments of the second counter in a period", named::<{ number::GPC_RATE }, 1>).prepared(own),
    row("table_inc_gpc0", TABLE, Type::Any, Type::Int, "first counter after an increment", named::<{ number::INCREMENT }, 0>),
    row("table_inc_gpc1", TABLE, Type::Any, Type::Int, "second counter after an increment", named::<{ number::INCREMENT }, 1>),
    row("table_clr_gpc", ELEMENT, Type::Any, Type::Int, "element of the counter array, reset to 0", element::<{ number::CLEAR }>).prepared(an_element),
    row("table_gpc", ELEMENT_COUNTS, Type::Any, Type::Int, "element of the counter array", element::<{ number::GPC }>).prepared(own_element),
    row("table_gpt", ELEMENT, Type::Any, Type::Int, "element of the tag array", element::<{ number::GPT }>).prepared(an_element),
    row("table_gpc_rate", ELEMENT_COUNTS, Type::Any, Type::Int, "increments of a counter array element in a period", element::<{ number::GPC_RATE }>).prepared(own_element),
    row("table_inc_gpc", ELEMENT, Type::Any, Type::Int, "element of the counter array after an increment", element::<{ number::INCREMENT }>).prepared(an_element),
    row("table_server_id", TABLE, Type::Any, Type::Int, "numeric identifier of the server", named::<{ number::SERVER_ID }, 0>),
    row("table_trackers", TABLE, Type::Any, Type::Int, "number of connections or requests that track the entry", named::<{ number::TRACKERS }, 0>),
    row("table_expire", OR_ELSE, Type::Any, Type::Int, "remaining lifetime, in ms", expire),
    row("table_idle", OR_ELSE, Type::Any, Type::Int, "time since the last update, in ms", idle),
    row("in_table", TABLE, Type::Any, Type::Bool, "whether the table contains the key", in_table),
];

/// Checks the argument `own`. (The fact is one that may be a sum.)
fn own(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    table_field::check_own(args, 1, number::CONN_CNT)
}

fn own_element(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    an_element(args, scope)?;
    table_field::check_own(args, 2, number::CONN_CNT)
}

/// A data field of the key's entry; 0 if there is no entry and none is created.
fn fact_of<'a>(
    value: Value<'_>,
    table: &Arc<Table>,
    fact: usize,
    wanted: (Element, Counted),
    env: &Env<'_>,
) -> Option<Value<'a>> {
    let fact = FACTS[fact];
    track::with_key(value, table.settings.kind, |key| {
        let entry = if fact.changes() { table.get(key, env.now_ms) } else { table.find(key, env.now_ms) };
        match entry {
            Some(entry) => fact.of(&entry, wanted, env.now_ms).map(Value::Int),
            None => Some(Value::Int(0)),
        }
    })?
}

fn named<'a, const FACT: usize, const NAMED: u32>(
    value: Value<'a>,
    args: &'a Args,
    env: &'a Env<'a>,
) -> Option<Value<'a>> {
    fact_of(value, args.table(0)?, FACT, (Element::Named(NAMED), Counted::of(args, 1)), env)
}

fn element<'a, const FACT: usize>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    fact_of(value, args.table(1)?, FACT, (Element::Of(args.int(0)? as u32), Counted::of(args, 2)), env)
}

/// Applies the function to the entry, or returns the second argument if the entry does not exist.
fn or_else<'a>(
    value: Value<'a>,
    args: &'a Args,
    env: &'a Env<'a>,
    read: fn(&EntryValues<'_>, u64) -> u32,
) -> Option<Value<'a>> {
    let table = args.table(0)?;
    track::with_key(value, table.settings.kind, |key| match table.find(key, env.now_ms) {
        Some(entry) => Some(Value::Int(read(&entry, env.now_ms).into())),
        None => args.int(1).map(Value::Int),
    })?
}

fn expire<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    or_else(value, args, env, |view, now_ms| view.expires_in(now_ms))
}

fn idle<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    or_else(value, args, env, |view, now_ms| view.idle(now_ms))
}

fn in_table<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let table = args.table(0)?;
    track::with_key(value, table.settings.kind, |key| Value::Bool(table.find(key, env.now_ms).is_some()))
}
