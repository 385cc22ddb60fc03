//! Start lines: a request's method, target and version; a response's version, status and reason.
//!
//! Called by `parse`, which has skipped empty lines before them.

use crate::Method;
use crate::head::{Head, Span, Version};
use crate::lines::{ParsedLine, Scanned, fail, have, is_blank, line_end, skip_blanks, tolerate, value_end};
use crate::options::ParseOptions;
use crate::outcome::ErrorKind;
use crate::scan::{target_stop, token_end};

/// Parses a request line. An HTTP/0.9 request consists of this line alone.
pub(crate) fn request_line(
    buf: &[u8],
    at: usize,
    head: &mut Head,
    options: &ParseOptions,
) -> Scanned<ParsedLine> {
    let method_end = token_end(buf, at);
    if !is_blank(*have!(buf.get(method_end))) || method_end == at {
        return fail(ErrorKind::Method, method_end);
    }
    let target = have!(skip_blanks(buf, method_end));
    let target_end = have!(target_end(buf, target, head, options)?);
    head.method = Span::new(at, method_end);
    head.method_id = Method::from_bytes(&buf[at..method_end]);
    head.target = Span::new(target, target_end);
    let version = have!(skip_blanks(buf, target_end));
    let plain = target == method_end + 1 && version == target_end + 1 && buf[method_end] == b' ';
    if buf.get(version..version + 10) == Some(b"HTTP/1.1\r\n") {
        head.version = Version::Http11;
        if plain && buf[target_end] == b' ' {
            head.start_line = Some(Span::new(at, version + 8));
        }
        return Ok(Some(ParsedLine::Next(version + 10)));
    }
    if matches!(buf[version], b'\r' | b'\n') {
        // HTTP/0.9, which has no version.
        if !options.relaxed || head.method_id != Method::Get {
            return fail(ErrorKind::Version, version);
        }
        tolerate(head, ErrorKind::Version, version);
        head.version = Version::Http10;
        return Ok(line_end(buf, version, options)?.map(ParsedLine::End));
    }
    let (number, end) = have!(version_number(buf, version, head, options)?);
    head.version = number;
    if number == Version::new(2, 0) && &buf[at..method_end] == b"PRI" && &buf[target..target_end] == b"*" {
        return fail(ErrorKind::Preface, at);
    }
    if !matches!(have!(buf.get(end)), b'\r' | b'\n') {
        return fail(ErrorKind::Version, end);
    }
    Ok(line_end(buf, end, options)?.map(ParsedLine::Next))
}

/// The end of the target that starts at `at`.
#[inline(always)]
fn target_end(buf: &[u8], at: usize, head: &mut Head, options: &ParseOptions) -> Scanned<usize> {
    let mut from = at;
    loop {
        let stop = target_stop(buf, from);
        let kind = match *have!(buf.get(stop)) {
            b' ' | b'\t' | b'\r' | b'\n' if stop > at => return Ok(Some(stop)),
            b'#' if stop > at => ErrorKind::Fragment,
            0x80..=0xff => ErrorKind::Target,
            _ => return fail(ErrorKind::Target, stop),
        };
        if !options.relaxed {
            return fail(kind, stop);
        }
        tolerate(head, kind, stop);
        from = stop + 1;
    }
}

/// Parses the version at `at`; returns the index after it. `HTTP/1.1` is recognized immediately, relaxed versions only once their
/// end is visible.
fn version_number(
    buf: &[u8],
    at: usize,
    head: &mut Head,
    options: &ParseOptions,
) -> Scanned<(Version, usize)> {
    let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.');
    let Some(len) = buf[at..].iter().position(|b| !part(b)) else {
        // Does not wait for more if the bytes cannot become a version.
        let fits = options.relaxed || may_become_version(&buf[at..]);
        return if fits { Ok(None) } else { fail(ErrorKind::Version, at) };
    };
    let text = &buf[at..at + len];
    if let [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] = text {
        return Ok(Some((Version::new(major - b'0', minor - b'0'), at + len)));
    }
    if !options.relaxed {
        return fail(ErrorKind::Version, at);
    }
    // As in HAProxy, a version without a minor number behaves like 1.0.
    if text == b"HTTP/1" {
        tolerate(head, ErrorKind::Version, at);
        return Ok(Some((Version::Http10, at + len)));
    }
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u8>().ok();
    let split = || {
        let slash = memchr::memchr(b'/', text)?;
        let dot = memchr::memchr(b'.', text)?;
        let numbers = (number(text.get(slash + 1..dot)?)?, number(&text[dot + 1..])?);
        text[..slash].iter().all(u8::is_ascii_uppercase).then_some(numbers)
    };
    let Some((major, minor)) = split() else { return fail(ErrorKind::Version, at) };
    tolerate(head, ErrorKind::Version, at);
    Ok(Some((Version::new(major, minor), at + len)))
}

/// Whether these bytes begin a version such as `HTTP/1.1`.
fn may_become_version(bytes: &[u8]) -> bool {
    let fits = |(place, byte): (usize, &u8)| match b"HTTP/0.0".get(place) {
        Some(b'0') => byte.is_ascii_digit(),
        Some(expected) => byte == expected,
        None => false,
    };
    bytes.iter().enumerate().all(fits)
}

/// The status of a line with the usual beginning.
#[inline]
fn plain_status(line: &[u8]) -> Option<u16> {
    let line: &[u8; 13] = line.first_chunk()?;
    let (version, [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ']) = line.split_at(9) else {
        return None;
    };
    let digit = |byte: &u8| u16::from(byte - b'0');
    (version == b"HTTP/1.1 ").then(|| digit(a) * 100 + digit(b) * 10 + digit(c))
}

/// Parses a status line; returns the index after it.
pub(crate) fn status_line(buf: &[u8], at: usize, head: &mut Head, options: &ParseOptions) -> Scanned<usize> {
    let Some(status) = plain_status(&buf[at..]) else { return unusual_status_line(buf, at, head, options) };
    head.status = status;
    head.version = Version::Http11;
    reason(buf, at, at + 12, true, head, options)
}

/// Parses the reason phrase after the status code that ends at `code_end`; returns the end of the line. With `plain`, the line can
/// be sent unchanged if the rest of it has the usual form too.
fn reason(
    buf: &[u8],
    at: usize,
    code_end: usize,
    plain: bool,
    head: &mut Head,
    options: &ParseOptions,
) -> Scanned<usize> {
    let reason = have!(skip_blanks(buf, code_end));
    let reason_end = have!(value_end(buf, reason, head, options)?);
    head.reason = Span::new(reason, reason_end);
    let next = have!(line_end(buf, reason_end, options)?);
    if plain && reason == code_end + 1 && reason_end > reason && next == reason_end + 2 {
        head.start_line = Some(Span::new(at, reason_end));
    }
    Ok(Some(next))
}

#[cold]
fn unusual_status_line(buf: &[u8], at: usize, head: &mut Head, options: &ParseOptions) -> Scanned<usize> {
    let (version, version_end) = if buf.get(at..at + 9) == Some(b"HTTP/1.1 ") {
        (Version::Http11, at + 8)
    } else {
        have!(version_number(buf, at, head, options)?)
    };
    if !is_blank(*have!(buf.get(version_end))) {
        return fail(ErrorKind::Version, version_end);
    }
    let code = have!(skip_blanks(buf, version_end));
    let digits = have!(buf[code..].iter().position(|b| !b.is_ascii_digit()));
    let code_end = code + digits;
    if !matches!(buf[code_end], b' ' | b'\t' | b'\r' | b'\n') {
        return fail(ErrorKind::StatusCode, code_end);
    }
    let value = std::str::from_utf8(&buf[code..code_end]).ok().and_then(|digits| digits.parse::<u16>().ok());
    match value {
        Some(value @ 100..) if digits == 3 => head.status = value,
        Some(value @ 100..) if digits > 3 && options.relaxed => {
            tolerate(head, ErrorKind::StatusCode, code);
            head.status = value;
        }
        _ => return fail(ErrorKind::StatusCode, code),
    }
    head.version = version;
    let plain = code == version_end + 1 && matches!(version, Version::Http11 | Version::Http10);
    reason(buf, at, code_end, plain, head, options)
}
