//! Fetches about the process, its threads and the stream itself (manual, 7.3.2).

use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cursor, Fetch, row};
use runtime::usage::{self, Of};

use crate::args::{Arg, Args};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                    arguments  gives       where                    description
    row("act_conn",             &[],       Type::Int,  Columns::ALWAYS,         "current number of connections of the process",      act_conn),
    row("hostname",             &[],       Type::Str,  Columns::ALWAYS,         "host name of the system",                           hostname_value),
    row("nbproc",               &[],       Type::Int,  Columns::ALWAYS,         "always 1: there is only one process",               one),
    row("proc",                 &[],       Type::Int,  Columns::ALWAYS,         "always 1: there is only one process",               one),
    row("pid",                  &[],       Type::Int,  Columns::ALWAYS,         "process ID",                                        pid),
    row("quic_enabled",         &[],       Type::Bool, Columns::ALWAYS,         "whether QUIC listeners are enabled",                quic_enabled),
    row("stopping",             &[],       Type::Bool, Columns::INTERNAL,       "whether the process is stopping",                   stopping),
    row("tgroup",               &[],       Type::Int,  Columns::ALWAYS,         "thread group, from 0",                              tgroup),
    row("thread",               &[],       Type::Int,  Columns::ALWAYS,         "thread, from 0",                                    thread),
    row("uptime",               &[],       Type::Int,  Columns::ALWAYS,         "seconds since the process started",                 uptime),
    row("wait_end",             &[],       Type::Bool, Columns::INTERNAL,       "true at the end of the inspection delay",           wait_end),
    row("last_rule_line",       &[],       Type::Int,  Columns::INTERNAL,       "line of the rule that ended the evaluation",        last_rule_line),
    row("last_rule_file",       &[],       Type::Str,  Columns::INTERNAL,       "file of that rule",                                 last_rule_file),
    row("prio_class",           &[],       Type::Int,  Columns::INTERNAL,       "priority class in queues",                          prio_class),
    row("prio_offset",          &[],       Type::Int,  Columns::INTERNAL,       "priority offset in queues, in ms",                  prio_offset),
    row("txn.id32",             &[],       Type::Int,  Columns::INTERNAL,       "32-bit stream ID",                                  txn_id32).prepared(number),
    row("txn.sess_term_state",  &[],       Type::Str,  Columns::INTERNAL,       "termination state, as in logs",                     txn_sess_term_state),
    row("txn.conn_retries",     &[],       Type::Int,  Columns::RESPONSE_KEPT,  "number of connection retries",                      txn_conn_retries),
    row("txn.hedged",           &[],       Type::Int,  Columns::RESPONSE_KEPT,  "1 if a second server was tried because the first was slow, 2 if its response came first; Weir extension", txn_hedged),
    row("txn.redispatched",     &[],       Type::Bool, Columns::RESPONSE_KEPT,  "whether the request was redispatched to another server", txn_redispatched),
    row("span_id",              &[],       Type::Str,  Columns::INTERNAL,       "span of the request (`trace-to`); Weir extension",              span_id),
    row("trace_id",             &[],       Type::Str,  Columns::INTERNAL,       "trace of the request (`trace-to`); Weir extension",            trace_id),
    row("trace_sampled",        &[],       Type::Bool, Columns::INTERNAL,       "whether the spans of the request are exported (`trace-to`); Weir extension",     trace_sampled),
    row("unique-id",            &[],       Type::Str,  Columns::ALWAYS,         "unique ID of the stream",                           unique_id),
    row("cpu_calls",            &[],       Type::Int,  Columns::INTERNAL,       "number of polls of the stream's task",              cpu_calls).prepared(measure),
    row("cpu_ns_avg",           &[],       Type::Int,  Columns::INTERNAL,       "average CPU time of a poll, in ns",                 cpu_ns_avg).prepared(measure),
    row("cpu_ns_tot",           &[],       Type::Int,  Columns::INTERNAL,       "total CPU time, in ns",                             cpu_ns_tot).prepared(measure),
    row("lat_ns_avg",           &[],       Type::Int,  Columns::INTERNAL,       "average scheduling latency of a poll, in ns",       lat_ns_avg).prepared(measure),
    row("lat_ns_tot",           &[],       Type::Int,  Columns::INTERNAL,       "total scheduling latency, in ns",                   lat_ns_tot).prepared(measure),
    row("cpu_usage_thr",        &[],       Type::Int,  Columns::INTERNAL,       "CPU usage of this thread, in percent",              cpu_usage_thr),
    row("cpu_usage_grp",        &[],       Type::Int,  Columns::INTERNAL,       "average CPU usage of its thread group, in percent",        cpu_usage_grp),
    row("cpu_usage_proc",       &[],       Type::Int,  Columns::INTERNAL,       "average CPU usage of all threads, in percent",                         cpu_usage_proc),
    row("internal.strm.is_htx", &[],       Type::Bool, Columns::INTERNAL,       "whether the stream is in HTTP mode",                strm_is_htx),
];

/// The system's host name (`hostname`, `%H`).
pub fn hostname() -> &'static [u8] {
    static NAME: LazyLock<Vec<u8>> = LazyLock::new(|| rustix::system::uname().nodename().to_bytes().to_vec());
    &NAME
}

fn act_conn<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(i64::from(env.process.connections.load(Relaxed))))
}

fn hostname_value<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(hostname()))
}

fn one<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(1))
}

fn pid<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(i64::from(std::process::id())))
}

fn quic_enabled<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(env.process.quic.load(Relaxed)))
}

fn stopping<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(env.process.stopping.load(Relaxed)))
}

fn tgroup<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(runtime::shard::current_group() as i64))
}

fn thread<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(runtime::current_worker() as i64))
}

fn uptime<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int((env.now_ms / 1_000) as i64))
}

fn wait_end<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    if !env.complete {
        env.may_change.set(true);
        return None;
    }
    Some(Value::Bool(true))
}

/// Tasks are only measured if an expression uses the result.
fn measure(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_turns();
    Ok(())
}

/// Streams are only numbered in a single sequence if an expression uses the number.
fn number(_: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    scope.variables.borrow_mut().want_stream_numbers();
    Ok(())
}

fn cpu_calls<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    usage::turns().map(|turns| Value::Int(turns.count as i64))
}

fn cpu_ns_avg<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    usage::turns().map(|turns| Value::Int((turns.ns / turns.count.max(1)) as i64))
}

fn cpu_ns_tot<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    usage::turns().map(|turns| Value::Int(turns.ns as i64))
}

fn lat_ns_avg<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    usage::turns().map(|turns| Value::Int((turns.waited_ns / turns.count.max(1)) as i64))
}

fn lat_ns_tot<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    usage::turns().map(|turns| Value::Int(turns.waited_ns as i64))
}

fn cpu_usage_thr<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(usage::percent(Of::Worker).into()))
}

fn cpu_usage_grp<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(usage::percent(Of::Group).into()))
}

fn cpu_usage_proc<'a>(_: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(usage::percent(Of::Process).into()))
}

fn last_rule_line<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction?.last_rule.as_ref().map(|(_, line)| Value::Int(i64::from(*line)))
}

fn last_rule_file<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction?.last_rule.as_ref().map(|(file, _)| Value::str(file.as_bytes()))
}

fn prio_class<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(i64::from(transaction.priority.0)))
}

fn prio_offset<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(i64::from(transaction.priority.1)))
}

fn txn_id32<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(i64::from(transaction.id as u32)))
}

fn txn_sess_term_state<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let state = env.transaction?.termination;
    Some(Value::made(Scratch::copy(&[state.cause as u8, state.phase as u8])))
}

fn txn_conn_retries<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(i64::from(transaction.retries)))
}

fn txn_hedged<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(transaction.hedged as i64))
}

fn txn_redispatched<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Bool(transaction.redispatched))
}

/// The trace of the request, as 32 hexadecimal digits.
fn trace_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::made(Scratch::copy(&env.transaction?.trace.as_ref()?.trace.hex())))
}

/// The span of the request, as 16 hexadecimal digits.
fn span_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::made(Scratch::copy(&env.transaction?.trace.as_ref()?.span.hex())))
}

/// In the log line at the end of a request, this includes the rules about errors and slow requests.
fn trace_sampled<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(env.transaction?.trace.as_ref()?.kept))
}

fn unique_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.unique_id().map(Value::str)
}

fn strm_is_htx<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Bool(transaction.is_http))
}
