//! Decides when connections and streams are logged: at their end, at the steps in `log-steps`, on a rule's `do-log`, and for
//! connections that fail before they become a stream (manual, 8.2.1, 8.2.5 and 8.3).
//!
//! Called by every step of an exchange or relay. The lines are sent through [`crate::log`].

use base::clock::WallTime;
use runtime::timer::now_ms;
use sample::{Cause, Endpoint, Env, LogOrigin, LogProfile};

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::view;
use crate::log::{LogLine, Maker, Report};

const INFO: u8 = 6;
const ERROR: u8 = 3;

/// Writes the line for a step, if the frontend logs this step.
#[inline]
pub(crate) fn step(client: &Client, x: &Exchange, origin: LogOrigin) {
    if client.frontend.log_steps.holds(origin) && client.prepared().logs {
        log(client, x, origin);
    }
}

/// Logs the beginning of a stream: the line for this step, or the line of frontends without a format.
#[inline]
pub(crate) fn accepted(client: &Client, x: &Exchange) {
    if client.prepared().logs {
        if client.frontend.log_format.is_none() && !client.frontend.log_steps.is_given() {
            connect_line(client, x);
        }
        step(client, x, LogOrigin::Accept);
    }
}

/// Logs the head of the response (for TCP, the connection to the server): writes the line for that step, or the only line if it
/// need not wait for the end.
pub(crate) fn early(client: &Client, x: &mut Exchange, origin: LogOrigin) {
    let asap = client.frontend.logs_early;
    if !(asap || client.frontend.log_steps.holds(origin)) || !client.prepared().logs {
        return;
    }
    let bytes_out = x.txn.bytes_out;
    x.txn.bytes_out += x.download.staged.len() as u64;
    x.txn.logged_early = asap;
    close_cookie_states(client, x);
    log(client, x, origin);
    x.txn.bytes_out = bytes_out;
}

/// Sets the log flags for a missing cookie, if the backend uses cookie persistence.
pub(crate) fn close_cookie_states(client: &Client, x: &mut Exchange) {
    let persists = x.backend.as_ref().unwrap_or(&client.frontend).cookie.is_some();
    if persists && x.txn.is_http {
        let end = &mut x.txn.termination;
        for state in [&mut end.cookie, &mut end.set_cookie].into_iter().filter(|state| **state == b'-') {
            *state = b'N';
        }
    }
}

/// Writes a line, unless options or a rule suppress it.
fn log(client: &Client, x: &Exchange, origin: LogOrigin) {
    let frontend = &client.frontend;
    let options = &frontend.options;
    let failed = x.txn.termination.cause != Cause::None && x.txn.termination.cause != Cause::Local;
    let erroneous = failed || x.txn.status >= 500 || x.txn.redispatched || x.txn.retries > 0;
    if origin == LogOrigin::Close && options.dontlognull && !x.txn.is_http && x.txn.bytes_in == 0 {
        return;
    }
    if options.dontlog_normal && !erroneous {
        return;
    }
    let Some(level) = level(client, Some(x), erroneous) else { return };
    let report = Report { format: frontend.log_format.as_ref(), level, profile: None };
    view::with(client, x, |env| write(client, env, origin, &report));
}

/// Logs a missing, late or malformed request as a failed connection, regardless of the log steps for requests.
pub(crate) fn no_request(client: &Client, x: &Exchange) {
    if !client.prepared().logs {
        return;
    }
    let frontend = &client.frontend;
    let Some(level) = level(client, Some(x), true) else { return };
    let format = frontend.error_log_format.as_ref().or(frontend.log_format.as_ref());
    let report = Report { format, level, profile: None };
    view::with(client, x, |env| write(client, env, LogOrigin::SessionError, &report));
}

/// Returns the level of a line: the one set by a rule, or the default. Returns `None` if a rule suppresses the line.
fn level(client: &Client, x: Option<&Exchange>, erroneous: bool) -> Option<u8> {
    let usual = if erroneous && client.frontend.options.log_separate_errors { ERROR } else { INFO };
    x.and_then(|x| x.txn.log_level).or(client.session.log_level.get()).unwrap_or(Some(usual))
}

/// `do-log`: writes a line immediately, for a stream or for a connection that has no stream yet.
pub(crate) fn on_demand(
    client: &Client,
    x: Option<&Exchange>,
    origin: LogOrigin,
    profile: Option<&LogProfile>,
) {
    if !client.prepared().logs {
        return;
    }
    let Some(level) = level(client, x, false) else { return };
    let report = Report { format: client.frontend.log_format.as_ref(), level, profile };
    match x {
        Some(x) => view::with(client, x, |env| write(client, env, origin, &report)),
        None => of_session(client, |env| write(client, env, origin, &report)),
    }
}

fn write(client: &Client, env: &Env<'_>, origin: LogOrigin, report: &Report<'_>) {
    let worker = &client.worker;
    let env = Env { log_origin: origin, may_change: env.may_change.clone(), ..*env };
    worker.outbox.borrow_mut().write(&worker.shared, &Maker::of(&client.frontend), &env, report);
    client.frontend.state.frontend.mine().log_lines.add(1);
}

/// Calls `look` with the view of a connection without a stream.
fn of_session<R>(client: &Client, look: impl FnOnce(&Env<'_>) -> R) -> R {
    let process = &client.worker.shared.process;
    look(&Env { session: Some(&client.session), ..Env::new(process, now_ms()) })
}

/// Writes the line of frontends without a format (8.2.1) when a stream begins.
#[cold]
fn connect_line(client: &Client, x: &Exchange) {
    let frontend = &client.frontend;
    let (name, mode) = (&frontend.state.name, frontend.mode.name().to_uppercase());
    let text = match (x.source(client), x.destination(client)) {
        (Endpoint::Ip(from), Endpoint::Ip(to)) => {
            let ip = |address: std::net::SocketAddr| address.ip().to_canonical();
            let (from_port, to_port) = (from.port(), to.port());
            format!("Connect from {}:{from_port} to {}:{to_port} ({name}/{mode})", ip(from), ip(to))
        }
        _ => format!("Connect from unix:{} ({name}/{mode})", client.session.listener.id),
    };
    send(client, INFO, &text);
}

/// Logs a connection that failed before it became a stream (8.2.5), with `error-log-format` or as the legacy line. `why` is
/// HAProxy's text for the failure.
pub(crate) fn session_error(client: &Client, why: &str) {
    if !client.prepared().logs {
        return;
    }
    let frontend = &client.frontend;
    let Some(level) = level(client, None, true) else { return };
    if frontend.error_log_format.is_some() {
        let report = Report { format: frontend.error_log_format.as_ref(), level, profile: None };
        return of_session(client, |env| write(client, env, LogOrigin::SessionError, &report));
    }
    let session = &client.session;
    let from = match session.source() {
        Endpoint::Ip(address) => format!("{}:{}", address.ip().to_canonical(), address.port()),
        Endpoint::Local | Endpoint::Absent => format!("unix:{}", session.listener.id),
    };
    let mut date = String::new();
    let us = session.accepted_wall_us;
    let wall = WallTime { seconds: (us / 1_000_000) as i64, nanos: (us % 1_000_000) as u32 * 1000 };
    // Writing to a string cannot fail.
    let _ =
        base::clock::DateCache::default().local(wall.seconds).write_log((us / 1000 % 1000) as u32, &mut date);
    let listener = &session.listener;
    let bind = listener.given_name().map_or_else(|| listener.id.to_string(), str::to_owned);
    send(client, level, &format!("{from} [{date}] {}/{bind}: {why}", frontend.state.name));
}

fn send(client: &Client, level: u8, text: &str) {
    let (worker, frontend) = (&client.worker, &client.frontend);
    let line = LogLine::own(level, &frontend.log_tag, text.as_bytes());
    worker.outbox.borrow_mut().send_all(&worker.shared, &frontend.loggers, &line);
}
