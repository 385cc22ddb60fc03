//! Dates, timing events and byte counts of a stream (manual, 8.4), for fetches and log format aliases.

use super::constant::time_unit;
use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, opt};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                    arguments          gives      where                   description
    row("accept_date",          &[opt(ArgKind::Str)], Type::Int, Columns::CLIENT,        "date when the connection was accepted",       accept_date).prepared(prepare_unit),
    row("request_date",         &[opt(ArgKind::Str)], Type::Int, Columns::REQUEST_KEPT,  "date when the request started",               request_date).prepared(prepare_unit),
    row("fc.timer.handshake",   &[],               Type::Int, Columns::CLIENT,        "Th: handshakes, in ms",                       fc_timer_handshake),
    row("fc.timer.total",       &[],               Type::Int, Columns::FRONTEND,      "Tt: from accept to close, in ms",             fc_timer_total).late(),
    row("req.timer.idle",       &[],               Type::Int, Columns::REQUEST,       "Ti: idle before the request, in ms",          req_timer_idle),
    row("req.timer.tq",         &[],               Type::Int, Columns::REQUEST,       "Tq: handshake, idle and request, in ms",      req_timer_tq),
    row("req.timer.hdr",        &[],               Type::Int, Columns::REQUEST,       "TR: from the first byte of the request to its last header, in ms", req_timer_hdr),
    row("req.timer.queue",      &[],               Type::Int, Columns::RESPONSE_KEPT, "Tw: time in queues, in ms",                   req_timer_queue),
    row("bc.timer.connect",     &[],               Type::Int, Columns::RESPONSE_KEPT, "Tc: connecting, in ms",                       bc_timer_connect),
    row("res.timer.hdr",        &[],               Type::Int, Columns::RESPONSE,      "Tr: time to the response headers, in ms",     res_timer_hdr),
    row("res.timer.data",       &[],               Type::Int, Columns::TRANSFER,      "Td: data transfer time, in ms",               res_timer_data).late(),
    row("txn.timer.total",      &[],               Type::Int, Columns::REQUEST_KEPT,  "Ta: active time of the request, in ms",       txn_timer_total).late(),
    row("txn.timer.user",       &[],               Type::Int, Columns::REQUEST_KEPT,  "Tu: as seen by the user, in ms",              txn_timer_user).late(),
    row("bytes_in",             &[],               Type::Int, Columns::REQUEST_KEPT,  "bytes received from the client",              req_bytes_in).late(),
    row("bytes_out",            &[],               Type::Int, Columns::TRANSFER,      "bytes sent to the client",                    res_bytes).late(),
    row("req.bytes_in",         &[],               Type::Int, Columns::REQUEST_KEPT,  "bytes received from the client",              req_bytes_in).late(),
    row("req.bytes_out",        &[],               Type::Int, Columns::REQUEST_KEPT,  "bytes sent to the server",                    req_bytes_in).late(),
    row("res.bytes_in",         &[],               Type::Int, Columns::TRANSFER,      "bytes received from the server",              res_bytes).late(),
    row("res.bytes_out",        &[],               Type::Int, Columns::TRANSFER,      "bytes sent to the client",                    res_bytes).late(),
];

/// Timing events in ms since the stream began to wait for its request; -1 for events that have not occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// Duration of handshakes; 0 for requests after the connection's first one.
    pub(crate) handshake: i64,
    /// Idle time before the first byte.
    pub(crate) idle: i64,
    request: i64,
    queue: i64,
    connect: i64,
    data: i64,
    close: i64,
}

impl Timers {
    /// The timers of a stream. Phases that have not ended extend to the present.
    pub(crate) fn of(env: &Env<'_>) -> Option<Self> {
        let transaction = env.transaction?;
        let times = &transaction.times;
        let since = |at: u64| if at == 0 { -1 } else { (at.saturating_sub(times.idle_from) / 1_000) as i64 };
        let first = env.session.is_some_and(|session| session.accepted_us == times.idle_from);
        let handshake = match env.session {
            Some(session) if first => {
                (session.ready_us.get().saturating_sub(session.accepted_us) / 1_000) as i64
            }
            _ => 0,
        };
        let idle = match (transaction.is_http, since(times.started)) {
            (true, started) if started >= 0 => (started - handshake).max(0),
            // TCP does not wait for a request.
            _ => -1,
        };
        // The current time has a resolution of one ms and may be before timestamps taken in µs.
        let noted = [times.started, times.request, times.queued, times.connected, times.response];
        let now = || noted.into_iter().fold(env.now_ms.saturating_mul(1_000), u64::max);
        let close = match times.closed {
            0 if env.log_origin.precedes_response() && !transaction.logged_early => times.idle_from,
            0 => now(),
            closed => closed,
        };
        // In TCP mode the queue follows the handshake, without a request to wait for.
        let is_received = transaction.is_http && !env.log_origin.precedes_routing();
        let request = if is_received { since(times.request) } else { -1 };
        Some(Self {
            handshake,
            idle,
            request,
            queue: since(times.queued),
            connect: since(times.connected),
            data: since(times.response),
            close: (close.saturating_sub(times.idle_from) / 1_000) as i64,
        })
    }

    /// `TR`.
    pub(crate) fn header(self) -> i64 {
        if self.request < 0 { -1 } else { (self.request - self.idle.max(0) - self.handshake).max(0) }
    }

    /// `Tq`.
    pub(crate) fn until_request(self) -> i64 {
        self.request
    }

    /// `Tw`.
    pub(crate) fn queue(self) -> i64 {
        if self.queue < 0 { -1 } else { self.queue - self.request.max(0) }
    }

    /// `Tc`.
    pub(crate) fn connect(self) -> i64 {
        if self.connect < 0 { -1 } else { self.connect - self.queue.max(0) }
    }

    /// `Tr`.
    pub(crate) fn response(self) -> i64 {
        if self.data < 0 { -1 } else { self.data - self.connect.max(0) }
    }

    /// `Td`.
    pub(crate) fn data(self, is_http: bool) -> i64 {
        let from = if is_http { self.data } else { self.connect };
        if from < 0 || self.close < from { -1 } else { self.close - from }
    }

    /// `Ta`.
    pub(crate) fn active(self) -> i64 {
        self.close - self.idle.max(0) - if self.idle >= 0 { self.handshake } else { 0 }
    }

    /// `Tt`.
    pub(crate) fn total(self) -> i64 {
        self.close
    }

    /// `Tu`.
    pub(crate) fn user(self) -> i64 {
        self.close - self.idle.max(0)
    }
}

/// Wall clock at accept, in µs since 1970.
pub(crate) fn accepted(env: &Env<'_>) -> Option<u64> {
    let session = env.session?;
    // For later requests on the connection, this is the time at which waiting for the request began.
    let shift = env
        .transaction
        .map_or(0, |transaction| transaction.times.idle_from.saturating_sub(session.accepted_us));
    Some(session.accepted_wall_us + shift)
}

/// Wall clock at the first byte of the request, in µs since 1970; at accept if no byte arrived.
pub(crate) fn requested(env: &Env<'_>) -> Option<u64> {
    match env.transaction?.times.started_wall {
        0 => accepted(env),
        wall => Some(wall),
    }
}

fn dated<'a>(us: u64, unit: Option<&[u8]>) -> Option<Value<'a>> {
    Some(Value::Int(match unit {
        Some(b"us") => us as i64,
        Some(b"ms") => (us / 1_000) as i64,
        _ => (us / 1_000_000) as i64,
    }))
}

fn prepare_unit(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    time_unit(&args[0])
}

fn accept_date<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    dated(accepted(env)?, args.bytes(0))
}

fn request_date<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    dated(requested(env)?, args.bytes(0))
}

/// A timer, if its event has occurred.
fn timer<'a>(env: &'a Env<'a>, take: impl Fn(Timers) -> i64) -> Option<Value<'a>> {
    Some(take(Timers::of(env)?)).filter(|ms| *ms >= 0).map(Value::Int)
}

fn fc_timer_handshake<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, |timers| timers.handshake)
}

fn fc_timer_total<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::total)
}

fn req_timer_idle<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, |timers| timers.idle)
}

fn req_timer_tq<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::until_request)
}

fn req_timer_hdr<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::header)
}

fn req_timer_queue<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::queue)
}

fn bc_timer_connect<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::connect)
}

fn res_timer_hdr<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::response)
}

fn res_timer_data<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, |timers| timers.data(env.transaction.is_some_and(|transaction| transaction.is_http)))
}

fn txn_timer_total<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::active)
}

fn txn_timer_user<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timer(env, Timers::user)
}

fn req_bytes_in<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(transaction.bytes_in as i64))
}

fn res_bytes<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    env.transaction.map(|transaction| Value::Int(transaction.bytes_out as i64))
}
