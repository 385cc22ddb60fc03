//! Log format aliases for dates and durations.

use std::cell::RefCell;

use super::{growing, int, int_or_hex};
use crate::env::Env;
use crate::fetch::{self, Timers};
use crate::flags::{Flags, write_bytes};
use crate::session::Session;

thread_local! {
    /// The dates of the most recent second, which consecutive log lines usually share.
    static DATES: RefCell<base::clock::DateCache> = RefCell::default();
    /// The most recent second and its text in local time.
    static LOG_SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// `06/Feb/2009:12:14:14.655`.
fn write_log_date(us: Option<u64>, flags: Flags, out: &mut Vec<u8>) {
    let Some(us) = us else { return write_bytes(b"", flags, out) };
    let (seconds, ms) = ((us / 1_000_000) as i64, us / 1_000 % 1_000);
    LOG_SECOND.with_borrow_mut(|(known, text)| {
        if *known != seconds {
            let date = DATES.with_borrow_mut(|dates| dates.local(seconds));
            text.clear();
            // Writing to a string cannot fail. The milliseconds are cut off, because only the second is cached.
            let _ = date.write_log(0, text);
            text.truncate(text.len().saturating_sub(3));
            *known = seconds;
        }
        out.extend_from_slice(text.as_bytes());
    });
    out.extend_from_slice(&[b'0' + (ms / 100) as u8, b'0' + (ms / 10 % 10) as u8, b'0' + (ms % 10) as u8]);
}

/// `06/Feb/2009:12:14:14 +0100`.
fn write_clf_date(us: Option<u64>, utc: bool, flags: Flags, out: &mut Vec<u8>) {
    let Some(us) = us else { return write_bytes(b"", flags, out) };
    let seconds = (us / 1_000_000) as i64;
    let date = DATES.with_borrow_mut(|dates| if utc { dates.utc(seconds) } else { dates.local(seconds) });
    let mut text = String::with_capacity(32);
    let _ = date.write_clf(&mut text);
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn accept_date(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_log_date(fetch::accepted(env), flags, out);
}

pub(super) fn accept_utc(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::accepted(env), true, flags, out);
}

pub(super) fn accept_local(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::accepted(env), false, flags, out);
}

pub(super) fn accept_seconds(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    int_or_hex(fetch::accepted(env).unwrap_or(0) / 1_000_000, flags, out);
}

pub(super) fn accept_milliseconds(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let ms = fetch::accepted(env).unwrap_or(0) / 1_000 % 1_000;
    let text = if flags.hex { format!("{ms:02X}") } else { format!("{ms:03}") };
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn request_date(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_log_date(fetch::requested(env), flags, out);
}

pub(super) fn request_utc(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::requested(env), true, flags, out);
}

pub(super) fn request_local(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::requested(env), false, flags, out);
}

fn timer(env: &Env<'_>, out: &mut Vec<u8>, take: impl Fn(Timers) -> i64) {
    int(Timers::of(env).map_or(-1, take), out);
}

pub(super) fn timer_header(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::header);
}

pub(super) fn timer_active(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, Timers::of(env).map_or_else(|| without_stream(env), Timers::active));
}

/// The age of a connection that never became a stream.
fn without_stream(env: &Env<'_>) -> i64 {
    let waited = |session: &Session| env.now_ms.saturating_sub(session.accepted_us / 1000) as i64;
    env.session.map_or(-1, waited)
}

pub(super) fn timer_connect(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::connect);
}

pub(super) fn timer_data(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let is_http = env.transaction.is_some_and(|transaction| transaction.is_http);
    timer(env, out, |timers| timers.data(is_http));
}

pub(super) fn timer_handshake(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, |timers| timers.handshake);
}

pub(super) fn timer_idle(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, |timers| timers.idle);
}

pub(super) fn timer_until_request(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::until_request);
}

pub(super) fn timer_response(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::response);
}

pub(super) fn timer_queue(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::queue);
}

pub(super) fn timer_total(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, Timers::of(env).map_or_else(|| without_stream(env), Timers::total));
}

pub(super) fn timer_user(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, Timers::of(env).map_or(-1, Timers::user));
}
