//! The table of log format aliases (manual, 8.2.6), and the aliases for names, counts and states.

mod addresses;
mod messages;
mod times;

use std::sync::atomic::Ordering::Relaxed;

use crate::encode::{Encoding, Item};
use crate::env::Env;
use crate::fetch;
use crate::flags::{Flags, write_bytes};
use crate::log_origin::LogOrigin;
use crate::socket::ConnectionError;
use crate::transaction::{CaptureSlot, Cause, Phase, Termination, Transaction};
use crate::value::{Scratch, write_int};

use Availability::{Early, Late};
use EncodedKind::{Digits, Number, RequestHeaders, ResponseHeaders, Text};

/// Writes an alias's value.
type Write = fn(&Env<'_>, Flags, &mut Vec<u8>);

/// An alias.
#[derive(Clone, Copy)]
pub(crate) struct Alias {
    name: &'static str,
    /// The type in encoded formats.
    kind: EncodedKind,
    /// Whether the value is only known after the transfer.
    pub(crate) late: bool,
    pub(crate) write: Write,
}

/// An alias's type in JSON and CBOR.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodedKind {
    Text,
    Number,
    /// A number that `+X` prints in hexadecimal, which makes it a string.
    Digits,
    /// The captured headers of a request.
    RequestHeaders,
    /// The captured headers of a response.
    ResponseHeaders,
}

impl Alias {
    /// The value as an item of an encoded format.
    pub(crate) fn item<'a>(&self, env: &'a Env<'a>, flags: Flags) -> Item<'a> {
        match self.kind {
            RequestHeaders => return messages::captures_listed(env, CaptureSlot::Request, flags),
            ResponseHeaders => return messages::captures_listed(env, CaptureSlot::Response, flags),
            Text | Number | Digits => {}
        }
        let mut text = Vec::new();
        (self.write)(env, Flags { encoding: Encoding::Json, hex: flags.hex, ..Flags::default() }, &mut text);
        match self.kind {
            Number => Item::number(text),
            Digits if !flags.hex => Item::number(text),
            _ => Item::text(text),
        }
    }
}

impl std::fmt::Debug for Alias {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.name)
    }
}

/// When the value becomes available. A log format without late values is written as soon as the server has answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// The value is available before the end of the transfer.
    Early,
    /// The value is only available after the end of the transfer.
    Late,
}

const fn row(name: &'static str, kind: EncodedKind, known: Availability, write: Write) -> Alias {
    Alias { name, kind, late: matches!(known, Late), write }
}

#[rustfmt::skip]
static ALIASES: &[Alias] = &[
    // name  type          known  value
    row("B",   Number,          Late,  bytes_read),
    row("CC",  Text,            Early, messages::request_cookie),
    row("CS",  Text,            Early, messages::response_cookie),
    row("H",   Text,            Early, hostname),
    row("HM",  Text,            Early, messages::http_method),
    row("HP",  Text,            Early, messages::http_target_path),
    row("HPO", Text,            Early, messages::http_path),
    row("HQ",  Text,            Early, messages::http_query),
    row("HU",  Text,            Early, messages::http_uri),
    row("HV",  Text,            Early, messages::http_version),
    row("ID",  Text,            Late,  messages::unique_id),
    row("OG",  Text,            Early, log_origin),
    row("ST",  Number,          Early, status),
    row("T",   Text,            Early, times::accept_utc),
    row("TR",  Number,          Late,  times::timer_header),
    row("Ta",  Number,          Late,  times::timer_active),
    row("Tc",  Number,          Late,  times::timer_connect),
    row("Td",  Number,          Late,  times::timer_data),
    row("Th",  Number,          Late,  times::timer_handshake),
    row("Ti",  Number,          Late,  times::timer_idle),
    row("Tl",  Text,            Early, times::accept_local),
    row("Tq",  Number,          Late,  times::timer_until_request),
    row("Tr",  Number,          Late,  times::timer_response),
    row("Ts",  Digits,          Early, times::accept_seconds),
    row("Tt",  Number,          Late,  times::timer_total),
    row("Tu",  Number,          Late,  times::timer_user),
    row("Tw",  Number,          Late,  times::timer_queue),
    row("U",   Number,          Late,  bytes_uploaded),
    row("ac",  Number,          Late,  process_connections),
    row("b",   Text,            Early, backend_name),
    row("bc",  Number,          Late,  backend_connections),
    row("bi",  Text,            Early, addresses::backend_source_ip),
    row("bp",  Digits,          Early, addresses::backend_source_port),
    row("bq",  Number,          Late,  backend_queue),
    row("ci",  Text,            Early, addresses::client_ip),
    row("cp",  Digits,          Early, addresses::client_port),
    row("f",   Text,            Early, frontend_name),
    row("fc",  Number,          Late,  frontend_connections),
    row("fi",  Text,            Early, addresses::frontend_ip),
    row("fp",  Digits,          Early, addresses::frontend_port),
    row("ft",  Text,            Early, frontend_transport),
    row("hr",  Text,            Early, messages::request_headers),
    row("hrl", RequestHeaders,  Early, messages::request_headers_clf),
    row("hs",  Text,            Early, messages::response_headers),
    row("hsl", ResponseHeaders, Early, messages::response_headers_clf),
    row("lc",  Digits,          Early, log_counter),
    row("ms",  Digits,          Early, times::accept_milliseconds),
    row("pid", Digits,          Early, pid),
    row("r",   Text,            Early, messages::http_request),
    row("rc",  Number,          Late,  retries),
    row("rt",  Digits,          Early, request_counter),
    row("s",   Text,            Early, server_name),
    row("sc",  Number,          Late,  server_connections),
    row("si",  Text,            Early, addresses::server_ip),
    row("sp",  Digits,          Early, addresses::server_port),
    row("sq",  Number,          Late,  server_queue),
    row("sslc",Text,            Early, tls_cipher),
    row("sslv",Text,            Early, tls_version),
    row("t",   Text,            Early, times::accept_date),
    row("tr",  Text,            Early, times::request_date),
    row("trg", Text,            Early, times::request_utc),
    row("trl", Text,            Early, times::request_local),
    row("ts",  Text,            Late,  termination),
    row("tsc", Text,            Early, termination_with_cookie),
];

/// Looks up an alias by name.
pub(crate) fn find(name: &str) -> Option<Alias> {
    ALIASES.iter().find(|alias| alias.name == name).copied()
}

/// The names of all aliases.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALIASES.iter().map(|alias| alias.name)
}

// Only strings are quoted; numbers, dates and states never are.

fn int(value: i64, out: &mut Vec<u8>) {
    write_int(out, value);
}

/// Writes a number; with `+X` as at least four hexadecimal digits.
fn int_or_hex(value: u64, flags: Flags, out: &mut Vec<u8>) {
    if flags.hex {
        out.extend_from_slice(format!("{value:04X}").as_bytes());
    } else {
        int(value as i64, out);
    }
}

/// Writes a time or count. If the request's only line is written early (`option logasap`), the value is still growing, which a `+`
/// indicates.
fn growing(env: &Env<'_>, out: &mut Vec<u8>, value: i64) {
    if env.transaction.is_some_and(|transaction| transaction.logged_early) {
        out.push(b'+');
    }
    write_int(out, value);
}

fn bytes_read(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, env.transaction.map_or(0, |transaction| transaction.bytes_out as i64));
}

fn bytes_uploaded(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, env.transaction.map_or(0, |transaction| transaction.bytes_in as i64));
}

fn hostname(_: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(fetch::hostname(), flags, out);
}

fn status(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    // -1 for a request without a response. 0 for TCP, before a request, and for an HTTP/2 request that was refused before it became
    // a stream.
    let status = env.transaction.map_or(0, |transaction| match transaction.status {
        0 if transaction.is_http && !is_refused(transaction) && env.log_origin != LogOrigin::Accept => -1,
        status => i64::from(status),
    });
    int(status, out);
}

fn is_refused(transaction: &Transaction) -> bool {
    transaction.termination.cause == Cause::Proxy && transaction.request.method().is_empty()
}

fn frontend_name(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(env.session.map_or(b"".as_slice(), |session| session.frontend.name.as_bytes()), flags, out);
}

fn frontend_transport(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let name = env.session.map_or(b"".as_slice(), |session| session.frontend.name.as_bytes());
    if env.session.is_some_and(|session| session.tls().is_some()) {
        let mut marked = Scratch::copy(name);
        marked.push(b'~');
        write_bytes(&marked, flags, out);
    } else {
        write_bytes(name, flags, out);
    }
}

fn frontend_connections(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    int(env.session.map_or(0, |session| i64::from(session.frontend.connections.load(Relaxed))), out);
}

fn process_connections(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    int(i64::from(env.process.connections.load(Relaxed)), out);
}

fn backend_name(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(fetch::backend(env).map_or(b"".as_slice(), |backend| backend.name.as_bytes()), flags, out);
}

fn backend_connections(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    int(fetch::backend(env).map_or(0, |backend| fetch::backend_connections(backend) as i64), out);
}

fn backend_queue(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    int(env.transaction.map_or(0, |transaction| i64::from(transaction.backend_queue)), out);
}

fn server_name(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let transaction = env.transaction;
    let server = transaction.and_then(|transaction| transaction.server.as_ref());
    let none = || transaction.and_then(|transaction| transaction.service).unwrap_or("<NOSRV>");
    write_bytes(server.map_or_else(none, |server| &*server.name).as_bytes(), flags, out);
}

fn server_connections(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let server = env.transaction.and_then(|transaction| transaction.server.as_ref());
    int(server.map_or(0, |server| i64::from(server.serving())), out);
}

fn server_queue(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    int(env.transaction.map_or(0, |transaction| i64::from(transaction.server_queue)), out);
}

fn retries(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let (redispatched, retries) =
        env.transaction.map_or((false, 0), |transaction| (transaction.redispatched, transaction.retries));
    if redispatched {
        out.push(b'+');
    }
    write_int(out, i64::from(retries));
}

fn request_counter(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    int_or_hex(env.transaction.map_or(0, |transaction| u64::from(transaction.id as u32)), flags, out);
}

fn log_counter(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let count = |frontend: &state::Proxy| frontend.frontend.all().map(|shard| shard.log_lines.get()).sum();
    int_or_hex(env.session.map_or(0, |session| count(&session.frontend)), flags, out);
}

fn pid(_: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    int_or_hex(u64::from(std::process::id()), flags, out);
}

fn log_origin(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(env.log_origin.name().as_bytes(), flags, out);
}

/// The termination state. A connection that failed before it became a stream counts as refused while it waited for a request.
fn end_of(env: &Env<'_>) -> Termination {
    let failed = env.session.is_some_and(|session| session.error.get() != ConnectionError::default());
    match env.transaction {
        Some(transaction) => transaction.termination,
        None if failed => {
            Termination { cause: Cause::Proxy, phase: Phase::Request, ..Termination::default() }
        }
        None => Termination::default(),
    }
}

fn termination(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let end = end_of(env);
    out.extend_from_slice(&[end.cause as u8, end.phase as u8]);
}

fn termination_with_cookie(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let end = end_of(env);
    out.extend_from_slice(&[end.cause as u8, end.phase as u8, end.cookie, end.set_cookie]);
}

fn tls_cipher(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let details = env.session.and_then(|session| session.tls());
    write_bytes(details.and_then(|details| details.cipher_name()).unwrap_or("").as_bytes(), flags, out);
}

fn tls_version(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let details = env.session.and_then(|session| session.tls());
    write_bytes(details.map_or("", |details| details.version_name()).as_bytes(), flags, out);
}
