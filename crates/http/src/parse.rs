//! The HTTP/1 head parser: one pass over the bytes, resumable line by line, strict by default.
//!
//! The parser finds the spans. Once the head is complete, `framing` and `target` check the meaning of header values (framing,
//! `Host`, connection tokens). Callers keep the bytes of an incomplete head at the start of their buffer.

use crate::head::{CLEAN, DEAD, FOLDED, Field, Head, SPACED};
use crate::lines::{ParsedLine, Scanned, fail, have, is_blank, line_end, skip_blanks, tolerate, value_end};
use crate::name::KnownName;
use crate::options::ParseOptions;
use crate::outcome::{ErrorKind, ParseError, ParsePhase, ParseProgress, ParseStatus};
use crate::scan::{is_token_byte, line_break, name_stop, token_end};
use crate::start_line::{request_line, status_line};
use crate::{framing, target};

/// Parses a request head at the start of `buf` into `head`, replacing its contents.
///
/// After [`ParseStatus::Partial`], call this again with the same head and the same bytes followed by more.
///
/// # Errors
/// The first violation: syntax errors in byte order, then semantic errors.
pub fn parse_request(buf: &[u8], head: &mut Head, options: &ParseOptions) -> Result<ParseStatus, ParseError> {
    parse(buf, head, options, false)
}

/// Parses a response head, in the same way as [`parse_request`]. Interim (1xx) responses are separate heads.
///
/// # Errors
/// The first violation, as in [`parse_request`].
pub fn parse_response(
    buf: &[u8],
    head: &mut Head,
    options: &ParseOptions,
) -> Result<ParseStatus, ParseError> {
    parse(buf, head, options, true)
}

fn parse(
    buf: &[u8],
    head: &mut Head,
    options: &ParseOptions,
    response: bool,
) -> Result<ParseStatus, ParseError> {
    if head.progress.phase == ParsePhase::Before {
        head.clear();
        head.is_response = response;
    }
    let limit = options.max_bytes.min(u32::MAX as usize);
    let buf = &buf[..buf.len().min(limit)];
    if goes_on(buf, head.progress) && buf.len() < limit {
        head.progress.seen = buf.len();
        return Ok(ParseStatus::Partial);
    }
    let outcome = match scan(buf, head, options) {
        Ok(Some(end)) => {
            head.received = end as u32;
            finish(&buf[..end], head, options).map(|()| ParseStatus::Complete { len: end })
        }
        Ok(None) if buf.len() == limit => {
            let early = head.progress.phase != ParsePhase::Fields && !response;
            fail(if early { ErrorKind::TargetTooLong } else { ErrorKind::HeadTooLarge }, limit)
        }
        Ok(None) => {
            head.progress.seen = buf.len();
            return Ok(ParseStatus::Partial);
        }
        Err(error) => Err(error),
    };
    head.progress = ParseProgress::default();
    outcome
}

/// Whether the new bytes only extend a long line, so that the line need not be rescanned for every byte of a slow sender.
#[inline]
fn goes_on(buf: &[u8], progress: ParseProgress) -> bool {
    const LONG: usize = 512;
    progress.seen >= progress.line + LONG
        && buf.get(progress.seen..).is_some_and(|new| new.iter().all(|byte| matches!(byte, 0x20..=0x7e)))
}

/// Finds the end of the head, filling in spans relative to `buf`.
fn scan(buf: &[u8], head: &mut Head, options: &ParseOptions) -> Scanned<usize> {
    let mut at = head.progress.line;
    if head.progress.phase == ParsePhase::Before {
        at = have!(skip_empty_lines(buf, options)?);
        head.progress = ParseProgress { line: at, seen: at, phase: ParsePhase::StartLine };
    }
    if head.progress.phase == ParsePhase::StartLine {
        at = if head.is_response {
            have!(status_line(buf, at, head, options)?)
        } else {
            match have!(request_line(buf, at, head, options)?) {
                ParsedLine::Next(next) => next,
                ParsedLine::End(end) => return Ok(Some(end)),
            }
        };
        head.progress = ParseProgress { line: at, seen: at, phase: ParsePhase::Fields };
    }
    loop {
        while let Some(next) = usual_field(buf, at, head, options) {
            at = next;
        }
        match field_line(buf, at, head, options)? {
            Some(ParsedLine::Next(next)) => at = next,
            Some(ParsedLine::End(end)) => return Ok(Some(end)),
            None => {
                head.progress.line = at;
                return Ok(None);
            }
        }
    }
}

/// Skips empty lines before the start line (RFC 9112 section 2.2).
fn skip_empty_lines(buf: &[u8], options: &ParseOptions) -> Scanned<usize> {
    let mut at = 0;
    while matches!(have!(buf.get(at)), b'\r' | b'\n') {
        at = have!(line_end(buf, at, options)?);
    }
    Ok(Some(at))
}

/// Parses a header line in the usual form: a token, a colon, one space, a value without trailing blanks, CRLF. Returns the index
/// after the line. For any other line, returns `None` without side effects, and the full parser is needed.
#[inline(always)]
fn usual_field(buf: &[u8], at: usize, head: &mut Head, options: &ParseOptions) -> Option<usize> {
    let colon = name_stop(buf, at);
    let name = &buf[at..colon];
    let value = colon + 2;
    let [b':', b' ', first, ..] = buf[colon..] else { return None };
    if is_blank(first) || name.is_empty() || name.len() > u16::MAX as usize {
        return None;
    }
    let (known, key) = KnownName::with_key(name);
    if known == KnownName::Other && !name.iter().all(|b| is_token_byte(*b)) {
        return None;
    }
    let end = line_break(buf, value);
    if buf.get(end..end + 2)? != b"\r\n"
        || (end > value && is_blank(buf[end - 1]))
        || head.fields.len() >= options.max_fields
    {
        return None;
    }
    head.seen |= known.bit();
    head.fields.push(Field {
        name: at as u32,
        value: value as u32,
        end: end as u32,
        key,
        name_len: name.len() as u16,
        known,
        flags: CLEAN,
    });
    Some(end + 2)
}

/// Parses one header line, or the empty line.
#[inline(never)]
fn field_line(buf: &[u8], at: usize, head: &mut Head, options: &ParseOptions) -> Scanned<ParsedLine> {
    let name_end = token_end(buf, at);
    if name_end == at {
        match *have!(buf.get(at)) {
            b'\r' | b'\n' => return Ok(Some(ParsedLine::End(have!(line_end(buf, at, options)?)))),
            b' ' | b'\t' => return folded_line(buf, at, head, options),
            _ => {}
        }
    }
    let mut colon = name_end;
    let mut flags = 0;
    if *have!(buf.get(colon)) != b':' || colon == at || colon - at > u16::MAX as usize {
        colon = have!(bad_name(buf, at, colon, head, options)?);
        flags = DEAD;
    }
    let value = have!(skip_blanks(buf, colon + 1));
    let stop = have!(value_end(buf, value, head, options)?);
    let next = have!(line_end(buf, stop, options)?);
    let mut end = stop;
    while end > value && is_blank(buf[end - 1]) {
        end -= 1;
    }
    if end + 2 == next {
        flags |= CLEAN;
    }
    if buf[colon + 1..value] != *b" " {
        flags |= SPACED;
    }
    if head.fields.len() >= options.max_fields {
        return fail(ErrorKind::TooManyFields, at);
    }
    let (known, key) =
        if flags & DEAD == 0 { KnownName::with_key(&buf[at..name_end]) } else { (KnownName::Other, 0) };
    head.seen |= known.bit();
    head.dead += u32::from(flags & DEAD);
    head.fields.push(Field {
        name: at as u32,
        value: value as u32,
        end: end as u32,
        key,
        name_len: (name_end - at) as u16,
        known,
        flags,
    });
    Ok(Some(ParsedLine::Next(next)))
}

/// Handles a name that ends at an invalid byte at `stop`: an error, or in relaxed mode the index of the colon that ends the name
/// (the line is then dropped).
#[cold]
fn bad_name(buf: &[u8], at: usize, stop: usize, head: &mut Head, options: &ParseOptions) -> Scanned<usize> {
    if !options.relaxed || buf[at] == b':' {
        return fail(ErrorKind::Name, stop);
    }
    let mut colon = stop;
    loop {
        match *have!(buf.get(colon)) {
            b':' => break,
            b'\r' | b'\n' => return fail(ErrorKind::Name, colon),
            _ => colon += 1,
        }
    }
    debug_assert!(!is_token_byte(buf[stop]) || colon - at > u16::MAX as usize);
    tolerate(head, ErrorKind::Name, stop);
    Ok(Some(colon))
}

/// Handles a continuation line (obs-fold). The line is joined to the previous value; `finish` replaces the line break with spaces.
#[cold]
fn folded_line(buf: &[u8], at: usize, head: &mut Head, options: &ParseOptions) -> Scanned<ParsedLine> {
    if head.fields.is_empty() || !options.folding {
        return fail(ErrorKind::Folding, at);
    }
    let stop = have!(value_end(buf, at, head, options)?);
    let next = have!(line_end(buf, stop, options)?);
    let mut end = stop;
    while end > at && is_blank(buf[end - 1]) {
        end -= 1;
    }
    if let Some(last) = head.fields.last_mut() {
        last.flags = last.flags & (DEAD | SPACED) | FOLDED;
        if end > at {
            last.end = end as u32;
        }
        if last.end as usize + 2 == next {
            last.flags |= CLEAN;
        }
    }
    Ok(Some(ParsedLine::Next(next)))
}

/// Copies the bytes, unfolds values, then checks the semantics of the fields.
fn finish(bytes: &[u8], head: &mut Head, options: &ParseOptions) -> Result<(), ParseError> {
    head.bytes.extend_from_slice(bytes);
    for index in 0..head.fields.len() {
        if head.fields[index].flags & (FOLDED | SPACED) != 0 {
            rewrite(head, index);
        }
    }
    framing::check(head, options)?;
    if head.is_response {
        return Ok(());
    }
    target::check(head, options)?;
    framing::check_payload(head, options)
}

/// Rewrites a folded or unusually spaced line in the usual form.
#[cold]
fn rewrite(head: &mut Head, index: usize) {
    let f = &mut head.fields[index];
    if f.flags & FOLDED != 0 {
        let value = &mut head.bytes[f.value as usize..f.end as usize];
        for b in value.iter_mut().filter(|b| matches!(b, b'\r' | b'\n')) {
            *b = b' ';
        }
        f.value += value.iter().take_while(|b| is_blank(**b)).count() as u32;
    }
    if f.flags & SPACED != 0 {
        let value = f.value(&head.bytes).to_vec();
        head.replace_value_at(index, &value);
        // Tolerated characters in the name remain, as in lines of the usual form.
        let f = head.fields[index];
        head.bytes[f.value as usize..f.end as usize].copy_from_slice(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates lines from the significant bytes. Enumerating all lines up to a certain length would be too many.
    fn lines() -> impl Iterator<Item = Vec<u8>> {
        let alphabet = b"Host:x-a \t\r\n,\0\"\x7f\xff^";
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        (0..200_000).map(move |_| {
            let begin: &[u8] = [&b"Host: "[..], b"x-a: ", b"content-length: 1", b""][next(4)];
            let middle = (0..next(12)).map(|_| alphabet[next(alphabet.len())]).collect::<Vec<u8>>();
            let end: &[u8] = [&b"\r\n"[..], b"\r\n\r\n", b"\n", b""][next(4)];
            [begin, &middle, end].concat()
        })
    }

    #[test]
    fn the_fast_path_agrees_with_the_full_parser() {
        let options = ParseOptions::default();
        let mut short_ways = 0;
        for line in lines() {
            let (mut short, mut long) = (Head::new(), Head::new());
            let Some(next) = usual_field(&line, 0, &mut short, &options) else {
                assert!(short.fields.is_empty());
                continue;
            };
            short_ways += 1;
            match field_line(&line, 0, &mut long, &options) {
                Ok(Some(ParsedLine::Next(end))) => assert_eq!(next, end),
                _ => panic!("the long way does not take {line:?}"),
            }
            assert_eq!(format!("{:?}", short.fields), format!("{:?}", long.fields));
            assert_eq!((short.seen, short.dead), (long.seen, long.dead));
        }
        assert!(short_ways > 10_000, "only {short_ways} lines went the short way");
    }
}
