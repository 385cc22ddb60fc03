//! Log format aliases that print data sent by clients and servers: request lines, captured headers and cookies.
//!
//! Log parsers rely on the line format, so bytes that could forge one are always escaped.

use crate::encode::Item;
use crate::env::Env;
use crate::fetch;
use crate::flags::{Flags, escaped, quoted, write_bytes};
use crate::transaction::{CaptureSlot, LoggedPart};

fn kept<'a>(env: &Env<'a>, part: impl Fn(&crate::Transaction) -> LoggedPart) -> Option<&'a [u8]> {
    let transaction = env.transaction?;
    transaction.kept(part(transaction))
}

pub(super) fn request_cookie(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(kept(env, |transaction| transaction.cookie_captures[0]).unwrap_or_default(), flags, out);
}

pub(super) fn response_cookie(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(kept(env, |transaction| transaction.cookie_captures[1]).unwrap_or_default(), flags, out);
}

pub(super) fn unique_id(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    write_bytes(env.unique_id().unwrap_or_default(), flags, out);
}

/// Whether `byte` must be escaped in a logged request line.
fn is_forbidden_in_line(byte: u8) -> bool {
    !(32..127).contains(&byte) || matches!(byte, b'"' | b'#')
}

/// Whether `byte` must be escaped in a logged header capture.
fn is_forbidden_in_capture(byte: u8) -> bool {
    is_forbidden_in_line(byte) || matches!(byte, b'{' | b'|' | b'}')
}

/// Writes bytes from the network. Forbidden bytes are written as `#` and two hex digits; with `+E`, special bytes get a backslash.
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

/// A part of the request line; `<BADREQ>` if there was no request line.
fn line_part(part: Option<&[u8]>, flags: Flags, out: &mut Vec<u8>) {
    quoted(flags, out, |out| shown(part.unwrap_or(b"<BADREQ>"), is_forbidden_in_line, flags, out));
}

pub(super) fn http_request(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(kept(env, |transaction| transaction.request_line), flags, out);
}

pub(super) fn http_method(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(fetch::request_line(env).map(|line| line[0]), flags, out);
}

pub(super) fn http_uri(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(fetch::request_line(env).map(|line| line[1]), flags, out);
}

pub(super) fn http_version(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    line_part(fetch::request_line(env).map(|line| line[2]), flags, out);
}

pub(super) fn http_target_path(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let target = fetch::request_line(env).map(|line| line[1]);
    line_part(target.and_then(|target| target.split(|byte| *byte == b'?').next()), flags, out);
}

pub(super) fn http_path(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let Some(target) = fetch::request_line(env).map(|line| line[1]) else {
        return line_part(None, flags, out);
    };
    line_part(Some(http::uri::split(target).path().unwrap_or_default()), flags, out);
}

pub(super) fn http_query(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    let Some(target) = fetch::request_line(env).map(|line| line[1]) else {
        return line_part(None, flags, out);
    };
    let start = memchr::memchr(b'?', target).unwrap_or(target.len());
    line_part(Some(&target[start..]), flags, out);
}

/// The frontend's capture slots of one kind, one per log column. A request that could not be parsed has none. A TCP stream has
/// them from its beginning.
fn slots(env: &Env<'_>, kind: fn(usize) -> CaptureSlot) -> impl Iterator<Item = CaptureSlot> {
    let lengths = env.session.and_then(|session| session.frontend.capture_lengths.load_full());
    let begun = env.transaction.is_some_and(|it| !it.is_http || it.captures_any(kind(0)));
    let of_kind = lengths.filter(|_| begun).map_or(0, |lengths| match kind(0) {
        CaptureSlot::Request(_) => lengths[0].len(),
        CaptureSlot::Response(_) => lengths[1].len(),
    });
    (0..of_kind).map(kind)
}

fn captures(env: &Env<'_>, kind: fn(usize) -> CaptureSlot, flags: Flags, out: &mut Vec<u8>) {
    let Some(transaction) = env.transaction else { return };
    // A request that could not be parsed has no captures, not even empty ones.
    let not_understood = transaction.is_http && transaction.request.method().is_empty();
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

/// The captures as a list of strings, for encoded formats.
pub(super) fn captures_listed<'a>(env: &Env<'a>, kind: fn(usize) -> CaptureSlot, flags: Flags) -> Item<'a> {
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

pub(super) fn request_headers(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures(env, CaptureSlot::Request, flags, out);
}

pub(super) fn request_headers_clf(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures_clf(env, CaptureSlot::Request, flags, out);
}

pub(super) fn response_headers(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures(env, CaptureSlot::Response, flags, out);
}

pub(super) fn response_headers_clf(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    captures_clf(env, CaptureSlot::Response, flags, out);
}
