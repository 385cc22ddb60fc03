//! The aliases of log formats (manual, 8.2.6), a row each.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use crate::encode::{Encoding, Item};
use crate::env::Env;
use crate::fetch::{self, Timers};
use crate::format::{Flags, escaped, quoted, write_bytes};
use crate::session::{Endpoint, Session};
use crate::socket::ConnectionError;
use crate::transaction::{CaptureSlot, Cause, Kept, Phase, Termination};
use crate::value::{write_int, write_ip4};

/// Writes what an alias stands for.
type Write = fn(&Env<'_>, Flags, &mut Vec<u8>);

/// An alias.
#[derive(Clone, Copy)]
pub(crate) struct Alias {
    name: &'static str,
    /// What it is where it is encoded.
    kind: Kind,
    /// Whether it is known only once the transfer is over.
    pub(crate) late: bool,
    pub(crate) write: Write,
}

/// What an alias is in JSON and CBOR.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// A number that `+X` shows in hexadecimal: it is text then.
    Digits,
    /// The captured headers of a request.
    RequestHeaders,
    /// Of a response.
    ResponseHeaders,
}

impl Alias {
    /// What it gives where items are encoded.
    pub(crate) fn item<'a>(&self, env: &'a Env<'a>, flags: Flags) -> Item<'a> {
        match self.kind {
            Kind::RequestHeaders => return captures_listed(env, CaptureSlot::Request, flags),
            Kind::ResponseHeaders => return captures_listed(env, CaptureSlot::Response, flags),
            Kind::Text | Kind::Number | Kind::Digits => {}
        }
        let mut text = Vec::new();
        (self.write)(env, Flags { encoding: Encoding::Json, hex: flags.hex, ..Flags::default() }, &mut text);
        match self.kind {
            Kind::Number => Item::number(text),
            Kind::Digits if !flags.hex => Item::number(text),
            _ => Item::text(text),
        }
    }
}

impl std::fmt::Debug for Alias {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.name)
    }
}

const fn text(name: &'static str, write: Write) -> Alias {
    Alias { name, kind: Kind::Text, late: false, write }
}

const fn number(name: &'static str, write: Write) -> Alias {
    Alias { name, kind: Kind::Number, late: false, write }
}

const fn digits(name: &'static str, write: Write) -> Alias {
    Alias { name, kind: Kind::Digits, late: false, write }
}

const fn list(name: &'static str, kind: Kind, write: Write) -> Alias {
    Alias { name, kind, late: false, write }
}

/// One that is known only at the end; where there is none in a log format, the line is written when the server has answered.
const fn late(alias: Alias) -> Alias {
    Alias { late: true, ..alias }
}

#[rustfmt::skip]
static ALIASES: &[Alias] = &[
    late(number("B", bytes_read)),              text("CC",   request_cookie),       text("CS",   response_cookie),
    text("H",    hostname),                text("HM",   http_method),          text("HP",   http_target_path),
    text("HPO",  http_path),               text("HQ",   http_query),           text("HU",   http_uri),
    text("HV",   http_version),            late(text("ID", unique_id)),            text("OG",   log_origin),
    number("ST", status),                  text("T",    accept_utc),           late(number("TR", timer_header)),
    late(number("Ta", timer_active)),            late(number("Tc", timer_connect)),        late(number("Td", timer_data)),
    late(number("Th", timer_handshake)),         late(number("Ti", timer_idle)),           text("Tl",   accept_local),
    late(number("Tq", timer_until_request)),     late(number("Tr", timer_response)),       digits("Ts", accept_seconds),
    late(number("Tt", timer_total)),             late(number("Tu", timer_user)),           late(number("Tw", timer_queue)),
    late(number("U", bytes_uploaded)),          late(number("ac", process_connections)),  text("b",    backend_name),
    late(number("bc", backend_connections)),     text("bi",   backend_source_ip),    digits("bp", backend_source_port),
    late(number("bq", backend_queue)),           text("ci",   client_ip),            digits("cp", client_port),
    text("f",    frontend_name),           late(number("fc", frontend_connections)), text("fi",   frontend_ip),
    digits("fp", frontend_port),           text("ft",   frontend_transport),   text("hr",   request_headers),
    list("hrl", Kind::RequestHeaders, request_headers_clf),    text("hs",   response_headers),     list("hsl", Kind::ResponseHeaders, response_headers_clf),
    digits("lc", log_counter),             digits("ms", accept_milliseconds),  digits("pid", pid),
    text("r",    http_request),            late(number("rc", retries)),              digits("rt", request_counter),
    text("s",    server_name),             late(number("sc", server_connections)),   text("si",   server_ip),
    digits("sp", server_port),             late(number("sq", server_queue)),         text("sslc", nothing),
    text("sslv", nothing),                 text("t",    accept_date),          text("tr",   request_date),
    text("trg",  request_utc),             text("trl",  request_local),        late(text("ts", termination)),
    text("tsc",  termination_with_cookie),
];

/// The alias of that name.
pub(crate) fn find(name: &str) -> Option<Alias> {
    ALIASES.iter().find(|alias| alias.name == name).copied()
}

/// All names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALIASES.iter().map(|alias| alias.name)
}

// Quotes are for texts: numbers, dates and states never have any.

fn int(value: i64, out: &mut Vec<u8>) {
    write_int(out, value);
}

/// A number; with `+X` as at least four hexadecimal digits.
fn int_or_hex(value: u64, flags: Flags, out: &mut Vec<u8>) {
    if flags.hex {
        out.extend_from_slice(format!("{value:04X}").as_bytes());
    } else {
        int(value as i64, out);
    }
}

fn ip(end: Option<Endpoint>, flags: Flags, out: &mut Vec<u8>) {
    let Some(end) = end else { return write_bytes(b"", flags, out) };
    let Some(address) = end.ip() else { return write_bytes(b"unix", flags, out) };
    match address {
        IpAddr::V4(v4) if flags.hex => v4.octets().iter().for_each(|byte| hex(*byte, out)),
        IpAddr::V6(v6) if flags.hex => v6.octets().iter().for_each(|byte| hex(*byte, out)),
        IpAddr::V4(v4) => quoted(flags, out, |out| write_ip4(out, v4)),
        IpAddr::V6(v6) => quoted(flags, out, |out| out.extend_from_slice(v6.to_string().as_bytes())),
    }
}

fn hex(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{byte:02X}").as_bytes());
}

fn port(end: Option<Endpoint>, env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    match (end, end.and_then(|end| end.port())) {
        (_, Some(port)) => int_or_hex(u64::from(port), flags, out),
        // A socket without ports is told by its listener.
        (Some(_), None) => int(env.session.map_or(0, |session| i64::from(session.listener.id)), out),
        (None, _) => write_bytes(b"", flags, out),
    }
}

fn client_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(fetch::source(env), flags, out);
}

fn client_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(fetch::source(env), env, flags, out);
}

fn frontend_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(fetch::destination(env), flags, out);
}

fn frontend_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(fetch::destination(env), env, flags, out);
}

fn server_end(env: &Env<'_>, theirs: bool) -> Option<Endpoint> {
    let (us, them) = env.transaction?.server_ends?;
    Some(if theirs { them } else { us })
}

fn backend_source_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(server_end(env, false), flags, out);
}

fn backend_source_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(server_end(env, false), env, flags, out);
}

fn server_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(server_end(env, true), flags, out);
}

fn server_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(server_end(env, true), env, flags, out);
}

thread_local! {
    /// Dates of the second last asked for: most lines of a log share it.
    static DATES: RefCell<base::clock::DateCache> = RefCell::default();
    /// The text of a second in the local time of logs, and that second.
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
            // Writing to a string cannot fail. The ms that follow are cut off: they are not of the second.
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

fn accept_date(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_log_date(fetch::accepted(env), flags, out);
}

fn accept_utc(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::accepted(env), true, flags, out);
}

fn accept_local(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::accepted(env), false, flags, out);
}

fn accept_seconds(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    int_or_hex(fetch::accepted(env).unwrap_or(0) / 1_000_000, flags, out);
}

fn accept_milliseconds(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let ms = fetch::accepted(env).unwrap_or(0) / 1_000 % 1_000;
    let text = if flags.hex { format!("{ms:02X}") } else { format!("{ms:03}") };
    out.extend_from_slice(text.as_bytes());
}

fn request_date(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_log_date(fetch::requested(env), flags, out);
}

fn request_utc(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::requested(env), true, flags, out);
}

fn request_local(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_clf_date(fetch::requested(env), false, flags, out);
}

fn timer(env: &Env<'_>, out: &mut Vec<u8>, take: impl Fn(Timers) -> i64) {
    int(Timers::of(env).map_or(-1, take), out);
}

/// A time or count that is still growing when the log is written early.
fn growing(env: &Env<'_>, out: &mut Vec<u8>, value: i64) {
    if env.log_origin.is_early() {
        out.push(b'+');
    }
    write_int(out, value);
}

fn timer_header(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::header);
}

fn timer_active(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, Timers::of(env).map_or(-1, Timers::active));
}

fn timer_connect(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::connect);
}

fn timer_data(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let is_http = env.transaction.is_some_and(|transaction| transaction.is_http);
    timer(env, out, |timers| timers.data(is_http));
}

fn timer_handshake(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, |timers| timers.handshake);
}

fn timer_idle(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, |timers| timers.idle);
}

fn timer_until_request(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::until_request);
}

fn timer_response(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::response);
}

fn timer_queue(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    timer(env, out, Timers::queue);
}

fn timer_total(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    let waited = |session: &Session| env.now_ms.saturating_sub(session.accepted_us / 1000) as i64;
    let without_stream = || env.session.map_or(-1, waited);
    growing(env, out, Timers::of(env).map_or_else(without_stream, Timers::total));
}

fn timer_user(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, Timers::of(env).map_or(-1, Timers::user));
}

fn bytes_read(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, env.transaction.map_or(0, |transaction| transaction.bytes_out as i64));
}

fn bytes_uploaded(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    growing(env, out, env.transaction.map_or(0, |transaction| transaction.bytes_in as i64));
}

fn kept<'a>(env: &Env<'a>, part: impl Fn(&crate::Transaction) -> Kept) -> Option<&'a [u8]> {
    let transaction = env.transaction?;
    transaction.kept(part(transaction))
}

fn request_cookie(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(kept(env, |transaction| transaction.cookie_captures[0]).unwrap_or_default(), flags, out);
}

fn response_cookie(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(kept(env, |transaction| transaction.cookie_captures[1]).unwrap_or_default(), flags, out);
}

fn unique_id(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(kept(env, |transaction| transaction.unique_id).unwrap_or_default(), flags, out);
}

fn hostname(_: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(fetch::hostname(), flags, out);
}

/// What a log may not show of a request line.
fn is_forbidden_in_line(byte: u8) -> bool {
    !(32..127).contains(&byte) || matches!(byte, b'"' | b'#')
}

/// What a log may not show of a captured header.
fn is_forbidden_in_capture(byte: u8) -> bool {
    is_forbidden_in_line(byte) || matches!(byte, b'{' | b'|' | b'}')
}

/// Writes what clients and servers said: what is forbidden as `#` and two digits, and what `+E` names behind a backslash.
fn shown(bytes: &[u8], forbidden: fn(u8) -> bool, flags: Flags, out: &mut Vec<u8>) {
    if !flags.escape {
        return escaped(bytes, b'#', forbidden, out);
    }
    for byte in bytes {
        // A quote is forbidden anyway.
        if matches!(byte, b'\\' | b']') {
            out.push(b'\\');
        }
        escaped(std::slice::from_ref(byte), b'#', forbidden, out);
    }
}

/// A part of the request line; `<BADREQ>` where there was none.
fn line_part(part: Option<&[u8]>, flags: Flags, out: &mut Vec<u8>) {
    quoted(flags, out, |out| shown(part.unwrap_or(b"<BADREQ>"), is_forbidden_in_line, flags, out));
}

fn http_request(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(kept(env, |transaction| transaction.request_line), flags, out);
}

fn http_method(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(fetch::request_line(env).map(|line| line[0]), flags, out);
}

fn http_uri(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(fetch::request_line(env).map(|line| line[1]), flags, out);
}

fn http_version(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(fetch::request_line(env).map(|line| line[2]), flags, out);
}

fn http_target_path(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let target = fetch::request_line(env).map(|line| line[1]);
    line_part(target.and_then(|target| target.split(|byte| *byte == b'?').next()), flags, out);
}

fn http_path(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let Some(target) = fetch::request_line(env).map(|line| line[1]) else {
        return line_part(None, flags, out);
    };
    line_part(Some(http::uri::split(target).path().unwrap_or_default()), flags, out);
}

fn http_query(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let Some(target) = fetch::request_line(env).map(|line| line[1]) else {
        return line_part(None, flags, out);
    };
    let start = memchr::memchr(b'?', target).unwrap_or(target.len());
    line_part(Some(&target[start..]), flags, out);
}

/// The slots that the frontend has of a kind, one for each column of the log; none for a request that was not understood.
fn slots(env: &Env<'_>, kind: fn(usize) -> CaptureSlot) -> impl Iterator<Item = CaptureSlot> {
    let lengths = env.session.and_then(|session| session.frontend.capture_lengths.get());
    let begun = env.transaction.is_some_and(|transaction| transaction.captures_any(kind(0)));
    let of_kind = lengths.filter(|_| begun).map_or(0, |[requests, responses]| match kind(0) {
        CaptureSlot::Request(_) => requests.len(),
        CaptureSlot::Response(_) => responses.len(),
    });
    (0..of_kind).map(kind)
}

fn captures(env: &Env<'_>, kind: fn(usize) -> CaptureSlot, flags: Flags, out: &mut Vec<u8>) {
    let Some(transaction) = env.transaction else { return };
    // A request that was not understood has none, not even empty ones.
    let not_understood = transaction.is_http && transaction.request_line.is_none();
    if not_understood || slots(env, kind).next().is_none() {
        return;
    }
    quoted(flags, out, |out| {
        out.push(b'{');
        for (at, slot) in slots(env, kind).enumerate() {
            if at > 0 {
                out.push(b'|');
            }
            if let Some(bytes) = transaction.captured(slot) {
                shown(&bytes, is_forbidden_in_capture, flags, out);
            }
        }
        out.push(b'}');
    });
}

fn captures_clf(env: &Env<'_>, kind: fn(usize) -> CaptureSlot, flags: Flags, out: &mut Vec<u8>) {
    let Some(transaction) = env.transaction else { return };
    for (at, slot) in slots(env, kind).enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        match transaction.captured(slot) {
            Some(bytes) => quoted(flags, out, |out| shown(&bytes, is_forbidden_in_capture, flags, out)),
            None => out.extend_from_slice(if flags.quote { b"\"\"" } else { b"-" }),
        }
    }
}

/// Likewise a text each, for formats that encode.
fn captures_listed<'a>(env: &Env<'a>, kind: fn(usize) -> CaptureSlot, flags: Flags) -> Item<'a> {
    let text = |slot| match env.transaction.and_then(|transaction| transaction.captured(slot)) {
        Some(bytes) => {
            let mut text = Vec::new();
            escaped(&bytes, b'#', is_forbidden_in_capture, &mut text);
            text
        }
        None if flags.quote => Vec::new(),
        None => b"-".to_vec(),
    };
    Item::List(slots(env, kind).map(text).collect())
}

fn request_headers(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures(env, CaptureSlot::Request, flags, out);
}

fn request_headers_clf(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures_clf(env, CaptureSlot::Request, flags, out);
}

fn response_headers(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures(env, CaptureSlot::Response, flags, out);
}

fn response_headers_clf(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures_clf(env, CaptureSlot::Response, flags, out);
}

fn status(env: &Env<'_>, _: Flags, out: &mut Vec<u8>) {
    // A stream that got no answer at all is told by -1, one of TCP by 0.
    let status = env.transaction.map_or(0, |transaction| match transaction.status {
        0 if transaction.is_http => -1,
        status => i64::from(status),
    });
    int(status, out);
}

fn frontend_name(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(env.session.map_or(b"".as_slice(), |session| session.frontend.name.as_bytes()), flags, out);
}

fn frontend_transport(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    // The tilde of TLS connections comes with TLS.
    frontend_name(env, flags, out);
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

/// How it ended; a connection that failed before it became a stream was refused while a request was awaited.
fn end_of(env: &Env<'_>) -> Termination {
    let failed = env.session.is_some_and(|session| session.error != ConnectionError::default());
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

fn nothing(_: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(b"", flags, out);
}
