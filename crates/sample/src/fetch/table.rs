//! Fetches for stick table entries (manual, 7.3.2 and 7.3.3): entries tracked by a request or its connection
//! (`sc_…`), and the entry of the client's address (`src_…`).

use std::sync::Arc;

use state::table::{DataType, EntryValues, Table, TableEntry};

use super::{Cursor, Fetch, connection, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, opt};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::table_field::{self, Counted, Element, FACTS, Fact, number};
use crate::track;
use crate::value::{Scratch, Type, Value};

const OWN: &[Spec] = &[arg(ArgKind::Table)];
const OTHER: &[Spec] = &[opt(ArgKind::Table)];
const COUNTER: &[Spec] = &[arg(ArgKind::Int), opt(ArgKind::Table)];
const JUST_COUNTER: &[Spec] = &[arg(ArgKind::Int)];
const ELEMENT: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Int), opt(ArgKind::Table)];
const OWN_ELEMENT: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Table)];
const PART: Spec = opt(ArgKind::Str);
const OWN_PART: &[Spec] = &[arg(ArgKind::Table), PART];
const OTHER_PART: &[Spec] = &[opt(ArgKind::Table), PART];
const COUNTER_PART: &[Spec] = &[arg(ArgKind::Int), opt(ArgKind::Table), PART];
const ELEMENT_PART: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Int), opt(ArgKind::Table), PART];
const OWN_ELEMENT_PART: &[Spec] = &[arg(ArgKind::Int), arg(ArgKind::Table), PART];

/// Where fetches of tracked entries may be used. The runtime socket tracks nothing, but as in HAProxy, only the byte counters
/// cannot be used there.
const fn columns(fact: usize) -> Columns {
    if matches!(fact, number::KBYTES_IN | number::KBYTES_OUT) { Columns::CLIENT } else { Columns::INTERNAL }
}

/// The rows of fields with fixed names: for any counter, for the first three counters, and for the client's address. Counts may have
/// the argument `own`.
macro_rules! rows {
    ($([$sc:literal $sc0:literal $sc1:literal $sc2:literal $src:literal $fact:ident $named:literal $doc:literal])+
     of arrays $([$sc_of:literal $src_of:literal $fact_of:ident $doc_of:literal])+
     and counts $([$sc_sum:literal $sc0_sum:literal $sc1_sum:literal $sc2_sum:literal $src_sum:literal $fact_sum:ident $named_sum:literal $doc_sum:literal])+
     of arrays $([$sc_sums:literal $src_sums:literal $fact_sums:ident $doc_sums:literal])+
     and $($other:expr,)+) => {
        &[
            $(
                row($sc,  COUNTER, Type::Int, columns(number::$fact), $doc, any::<{ number::$fact }, $named>).prepared(a_counter),
                row($sc0, OTHER,   Type::Int, columns(number::$fact), $doc, fixed::<0, { number::$fact }, $named>),
                row($sc1, OTHER,   Type::Int, columns(number::$fact), $doc, fixed::<1, { number::$fact }, $named>),
                row($sc2, OTHER,   Type::Int, columns(number::$fact), $doc, fixed::<2, { number::$fact }, $named>),
                row($src, OWN,     Type::Int, Columns::CLIENT,   $doc, of_source::<{ number::$fact }, $named>),
            )+
            $(
                row($sc_of,  ELEMENT,     Type::Int, Columns::INTERNAL, $doc_of, any_element::<{ number::$fact_of }>).prepared(an_element_of_counter),
                row($src_of, OWN_ELEMENT, Type::Int, Columns::CLIENT,   $doc_of, source_element::<{ number::$fact_of }>).prepared(an_element),
            )+
            $(
                row($sc_sum,  COUNTER_PART, Type::Int, columns(number::$fact_sum), $doc_sum, any::<{ number::$fact_sum }, $named_sum>).prepared(a_counter_part::<{ number::$fact_sum }>),
                row($sc0_sum, OTHER_PART,   Type::Int, columns(number::$fact_sum), $doc_sum, fixed::<0, { number::$fact_sum }, $named_sum>).prepared(a_part::<{ number::$fact_sum }>),
                row($sc1_sum, OTHER_PART,   Type::Int, columns(number::$fact_sum), $doc_sum, fixed::<1, { number::$fact_sum }, $named_sum>).prepared(a_part::<{ number::$fact_sum }>),
                row($sc2_sum, OTHER_PART,   Type::Int, columns(number::$fact_sum), $doc_sum, fixed::<2, { number::$fact_sum }, $named_sum>).prepared(a_part::<{ number::$fact_sum }>),
                row($src_sum, OWN_PART,     Type::Int, Columns::CLIENT, $doc_sum, of_source::<{ number::$fact_sum }, $named_sum>).prepared(a_part::<{ number::$fact_sum }>),
            )+
            $(
                row($sc_sums,  ELEMENT_PART,     Type::Int, Columns::INTERNAL, $doc_sums, any_element::<{ number::$fact_sums }>).prepared(a_part_of_counter_element::<{ number::$fact_sums }>),
                row($src_sums, OWN_ELEMENT_PART, Type::Int, Columns::CLIENT,   $doc_sums, source_element::<{ number::$fact_sums }>).prepared(a_part_of_element::<{ number::$fact_sums }>),
            )+
            $($other,)+
        ]
    };
}

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = rows! {
    ["sc_clr_gpc0" "sc0_clr_gpc0" "sc1_clr_gpc0" "sc2_clr_gpc0" "src_clr_gpc0" CLEAR 0 "first counter, reset to 0"]
    ["sc_clr_gpc1" "sc0_clr_gpc1" "sc1_clr_gpc1" "sc2_clr_gpc1" "src_clr_gpc1" CLEAR 1 "second counter, reset to 0"]
    ["sc_get_gpt0" "sc0_get_gpt0" "sc1_get_gpt0" "sc2_get_gpt0" "src_get_gpt0" GPT 0 "first general purpose tag"]
    ["sc_inc_gpc0" "sc0_inc_gpc0" "sc1_inc_gpc0" "sc2_inc_gpc0" "src_inc_gpc0" INCREMENT 0 "first counter after an increment"]
    ["sc_inc_gpc1" "sc0_inc_gpc1" "sc1_inc_gpc1" "sc2_inc_gpc1" "src_inc_gpc1" INCREMENT 1 "second counter after an increment"]
    of arrays
    ["sc_clr_gpc" "src_clr_gpc" CLEAR "element of the counter array, reset to 0"]
    ["sc_get_gpt" "src_get_gpt" GPT "element of the tag array"]
    ["sc_inc_gpc" "src_inc_gpc" INCREMENT "element of the counter array after an increment"]
    and counts
    ["sc_bytes_in_rate" "sc0_bytes_in_rate" "sc1_bytes_in_rate" "sc2_bytes_in_rate" "src_bytes_in_rate" BYTES_IN_RATE 0 "bytes from the client in a period"]
    ["sc_bytes_out_rate" "sc0_bytes_out_rate" "sc1_bytes_out_rate" "sc2_bytes_out_rate" "src_bytes_out_rate" BYTES_OUT_RATE 0 "bytes to the client in a period"]
    ["sc_conn_cnt" "sc0_conn_cnt" "sc1_conn_cnt" "sc2_conn_cnt" "src_conn_cnt" CONN_CNT 0 "connections so far"]
    ["sc_conn_cur" "sc0_conn_cur" "sc1_conn_cur" "sc2_conn_cur" "src_conn_cur" CONN_CUR 0 "connections now"]
    ["sc_conn_rate" "sc0_conn_rate" "sc1_conn_rate" "sc2_conn_rate" "src_conn_rate" CONN_RATE 0 "connections in a period"]
    ["sc_glitch_cnt" "sc0_glitch_cnt" "sc1_glitch_cnt" "sc2_glitch_cnt" "src_glitch_cnt" GLITCH_CNT 0 "protocol errors so far"]
    ["sc_glitch_rate" "sc0_glitch_rate" "sc1_glitch_rate" "sc2_glitch_rate" "src_glitch_rate" GLITCH_RATE 0 "protocol errors in a period"]
    ["sc_http_err_cnt" "sc0_http_err_cnt" "sc1_http_err_cnt" "sc2_http_err_cnt" "src_http_err_cnt" HTTP_ERR_CNT 0 "request errors so far"]
    ["sc_http_err_rate" "sc0_http_err_rate" "sc1_http_err_rate" "sc2_http_err_rate" "src_http_err_rate" HTTP_ERR_RATE 0 "request errors in a period"]
    ["sc_http_fail_cnt" "sc0_http_fail_cnt" "sc1_http_fail_cnt" "sc2_http_fail_cnt" "src_http_fail_cnt" HTTP_FAIL_CNT 0 "failed responses so far"]
    ["sc_http_fail_rate" "sc0_http_fail_rate" "sc1_http_fail_rate" "sc2_http_fail_rate" "src_http_fail_rate" HTTP_FAIL_RATE 0 "failed responses in a period"]
    ["sc_http_req_cnt" "sc0_http_req_cnt" "sc1_http_req_cnt" "sc2_http_req_cnt" "src_http_req_cnt" HTTP_REQ_CNT 0 "requests so far"]
    ["sc_http_req_rate" "sc0_http_req_rate" "sc1_http_req_rate" "sc2_http_req_rate" "src_http_req_rate" HTTP_REQ_RATE 0 "requests in a period"]
    ["sc_kbytes_in" "sc0_kbytes_in" "sc1_kbytes_in" "sc2_kbytes_in" "src_kbytes_in" KBYTES_IN 0 "kilobytes from the client so far"]
    ["sc_kbytes_out" "sc0_kbytes_out" "sc1_kbytes_out" "sc2_kbytes_out" "src_kbytes_out" KBYTES_OUT 0 "kilobytes to the client so far"]
    ["sc_sess_cnt" "sc0_sess_cnt" "sc1_sess_cnt" "sc2_sess_cnt" "src_sess_cnt" SESS_CNT 0 "sessions so far"]
    ["sc_sess_rate" "sc0_sess_rate" "sc1_sess_rate" "sc2_sess_rate" "src_sess_rate" SESS_RATE 0 "sessions in a period"]
    ["sc_get_gpc0" "sc0_get_gpc0" "sc1_get_gpc0" "sc2_get_gpc0" "src_get_gpc0" GPC 0 "first general purpose counter"]
    ["sc_get_gpc1" "sc0_get_gpc1" "sc1_get_gpc1" "sc2_get_gpc1" "src_get_gpc1" GPC 1 "second general purpose counter"]
    ["sc_gpc0_rate" "sc0_gpc0_rate" "sc1_gpc0_rate" "sc2_gpc0_rate" "src_gpc0_rate" GPC_RATE 0 "increments of the first counter in a period"]
    ["sc_gpc1_rate" "sc0_gpc1_rate" "sc1_gpc1_rate" "sc2_gpc1_rate" "src_gpc1_rate" GPC_RATE 1 "increments of the second counter in a period"]
    of arrays
    ["sc_get_gpc" "src_get_gpc" GPC "element of the counter array"]
    ["sc_gpc_rate" "src_gpc_rate" GPC_RATE "increments of a counter array element in a period"]
    and
    row("sc_trackers",  COUNTER, Type::Int, Columns::INTERNAL, "number of connections or requests that track the entry", any::<{ number::TRACKERS }, 0>).prepared(a_counter),
    row("sc0_trackers", OTHER,   Type::Int, Columns::INTERNAL, "number of connections or requests that track the entry", fixed::<0, { number::TRACKERS }, 0>),
    row("sc1_trackers", OTHER,   Type::Int, Columns::INTERNAL, "number of connections or requests that track the entry", fixed::<1, { number::TRACKERS }, 0>),
    row("sc2_trackers", OTHER,   Type::Int, Columns::INTERNAL, "number of connections or requests that track the entry", fixed::<2, { number::TRACKERS }, 0>),
    row("sc_tracked",   COUNTER, Type::Bool, Columns::INTERNAL, "whether an entry is tracked", tracked).prepared(a_counter),
    row("sc0_tracked",  OTHER,   Type::Bool, Columns::INTERNAL, "whether an entry is tracked", tracked_by::<0>),
    row("sc1_tracked",  OTHER,   Type::Bool, Columns::INTERNAL, "whether an entry is tracked", tracked_by::<1>),
    row("sc2_tracked",  OTHER,   Type::Bool, Columns::INTERNAL, "whether an entry is tracked", tracked_by::<2>),
    row("sc_key",       JUST_COUNTER, Type::Any, Columns::INTERNAL, "key of the tracked entry", key).prepared(a_counter),
    row("sc0_key",      &[],     Type::Any, Columns::INTERNAL, "key of the tracked entry", key_of::<0>),
    row("sc1_key",      &[],     Type::Any, Columns::INTERNAL, "key of the tracked entry", key_of::<1>),
    row("sc2_key",      &[],     Type::Any, Columns::INTERNAL, "key of the tracked entry", key_of::<2>),
    row("sc1_clr_gpc",  COUNTER, Type::Int, Columns::INTERNAL, "element of the counter array, reset to 0", clear_second).prepared(an_element),
    row("src_updt_conn_cnt", OWN, Type::Int, Columns::CLIENT,  "connections so far, including this one", count_connection),
    row("table_avl",    OWN,     Type::Int, Columns::INTERNAL, "number of free entries of the table", available),
    row("table_cnt",    OWN,     Type::Int, Columns::INTERNAL, "number of entries in the table", used),
};

/// Warns about a counter number beyond `tune.stick-counters`. As in HAProxy, such a counter has no value.
fn check_counter(number: Option<i64>, scope: &Scope<'_>) {
    let most = i64::from(scope.names.stick_counters());
    if let Some(number) = number.filter(|number| !(0..most).contains(number)) {
        let text = format!("counter {number} does not exist: the number of tracked counters is {most}");
        let warning = diag::Diagnostic::warning(text);
        scope.names.warn(warning.help("set their number with `tune.stick-counters` in the global section"));
    }
}

fn number_at(args: &[Arg], index: usize) -> Option<i64> {
    match args.get(index) {
        Some(Arg::Int(number)) => Some(*number),
        _ => None,
    }
}

fn a_counter(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    check_counter(number_at(args, 0), scope);
    Ok(())
}

/// Warns about an array index that no array has.
pub(crate) fn an_element(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    if let Some(number) = number_at(args, 0).filter(|number| !(0..100).contains(number)) {
        let text = format!("array index {number} is out of range: elements are numbered from 0 to 99");
        scope.names.warn(diag::Diagnostic::warning(text));
    }
    Ok(())
}

fn an_element_of_counter(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    an_element(args, scope)?;
    check_counter(number_at(args, 1), scope);
    Ok(())
}

/// Checks the argument `own` after the one for the table.
fn a_part<const FACT: usize>(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    table_field::check_own(args, 1, FACT)
}

fn a_counter_part<const FACT: usize>(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    a_counter(args, scope)?;
    table_field::check_own(args, 2, FACT)
}

fn a_part_of_element<const FACT: usize>(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    an_element(args, scope)?;
    table_field::check_own(args, 2, FACT)
}

fn a_part_of_counter_element<const FACT: usize>(
    args: &mut Vec<Arg>,
    scope: &Scope<'_>,
) -> Result<(), String> {
    an_element_of_counter(args, scope)?;
    table_field::check_own(args, 3, FACT)
}

fn int<'a>(value: Option<i64>) -> Option<Value<'a>> {
    value.map(Value::Int)
}

/// A field of the entry that a counter tracks, or of the entry with the same key in another table.
fn of_tracked<'a>(
    env: &Env<'_>,
    counter: usize,
    other: Option<&Arc<Table>>,
    fact: usize,
    wanted: (Element, Counted),
) -> Option<Value<'a>> {
    let fact = FACTS[fact];
    let Some(other) = other else {
        return int(track::with(env, counter, |view| fact.of(&view, wanted, env.now_ms))?);
    };
    let entry = same_key(env, counter, other, fact.changes())?;
    int(match entry {
        // The reader also holds a reference, but does not track the entry.
        Some(entry) if fact == Fact::Trackers => Some(i64::from(entry.holders()) - 1),
        Some(entry) => fact.of(&entry, wanted, env.now_ms),
        None => Some(0),
    })
}

/// Returns the entry in another table for the key that a counter tracks, and creates it if `made` is set. Returns `None` if
/// nothing is tracked or if the key does not fit the table.
fn same_key<'t>(
    env: &Env<'_>,
    counter: usize,
    other: &'t Arc<Table>,
    made: bool,
) -> Option<Option<TableEntry<'t>>> {
    track::with(env, counter, |view| {
        let own = &view.table().settings;
        if own.kind != other.settings.kind {
            return None;
        }
        let mut key = Scratch::new();
        view.key(&mut key);
        Some(if made { other.get(&key, env.now_ms) } else { other.find(&key, env.now_ms) })
    })?
}

fn any<'a, const FACT: usize, const NAMED: u32>(
    env: &'a Env<'a>,
    args: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    of_tracked(env, args.int(0)? as usize, args.table(1), FACT, (Element::Named(NAMED), Counted::of(args, 2)))
}

fn fixed<'a, const COUNTER: usize, const FACT: usize, const NAMED: u32>(
    env: &'a Env<'a>,
    args: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    of_tracked(env, COUNTER, args.table(0), FACT, (Element::Named(NAMED), Counted::of(args, 1)))
}

fn any_element<'a, const FACT: usize>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let element = Element::Of(args.int(0)? as u32);
    of_tracked(env, args.int(1)? as usize, args.table(2), FACT, (element, Counted::of(args, 3)))
}

fn clear_second<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let element = Element::Of(args.int(0)? as u32);
    of_tracked(env, 1, args.table(1), number::CLEAR, (element, Counted::All))
}

/// A field of the client address's entry; 0 if there is no entry and none is created.
fn of_address<'a>(
    env: &Env<'_>,
    table: &Arc<Table>,
    fact: usize,
    wanted: (Element, Counted),
) -> Option<Value<'a>> {
    let address = connection::source(env)?.ip()?;
    let fact = FACTS[fact];
    track::with_key(Value::ip(address), table.settings.kind, |key| {
        let entry = if fact.changes() { table.get(key, env.now_ms) } else { table.find(key, env.now_ms) };
        int(match entry {
            Some(entry) => fact.of(&entry, wanted, env.now_ms),
            None => Some(0),
        })
    })?
}

fn of_source<'a, const FACT: usize, const NAMED: u32>(
    env: &'a Env<'a>,
    args: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    of_address(env, args.table(0)?, FACT, (Element::Named(NAMED), Counted::of(args, 1)))
}

fn source_element<'a, const FACT: usize>(
    env: &'a Env<'a>,
    args: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    let element = Element::Of(args.int(0)? as u32);
    of_address(env, args.table(1)?, FACT, (element, Counted::of(args, 2)))
}

fn count_connection<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let (address, table) = (connection::source(env)?.ip()?, args.table(0)?);
    table.column(DataType::ConnCnt)?;
    track::with_key(Value::ip(address), table.settings.kind, |key| {
        let entry = table.get(key, env.now_ms)?;
        let count = entry.add(DataType::ConnCnt, 0, 1, env.now_ms)?;
        entry.touch(env.now_ms);
        int(Some(count as i64))
    })?
}

fn is_tracked<'a>(env: &Env<'_>, counter: usize, other: Option<&Arc<Table>>) -> Option<Value<'a>> {
    Some(Value::Bool(match other {
        None => track::with(env, counter, |_| ()).is_some(),
        Some(other) => same_key(env, counter, other, false).flatten().is_some(),
    }))
}

fn tracked<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    is_tracked(env, args.int(0)? as usize, args.table(1))
}

fn tracked_by<'a, const COUNTER: usize>(
    env: &'a Env<'a>,
    args: &'a Args,
    _: &mut Cursor,
) -> Option<Value<'a>> {
    is_tracked(env, COUNTER, args.table(0))
}

fn key_at<'a>(env: &Env<'_>, counter: usize) -> Option<Value<'a>> {
    let value = |view: EntryValues<'_>| {
        let mut key = Scratch::new();
        view.key(&mut key);
        track::value_of_key(view.table().settings.kind, key)
    };
    track::with(env, counter, value)?
}

fn key<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    key_at(env, args.int(0)? as usize)
}

fn key_of<'a, const COUNTER: usize>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    key_at(env, COUNTER)
}

fn available<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let table = args.table(0)?;
    Some(Value::Int(i64::from(table.settings.size.saturating_sub(table.used()))))
}

fn used<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(args.table(0)?.used().into()))
}
