//! Common parts of start lines and header lines: line endings, blanks, and tolerated violations. Used by `parse` and `start_line`.

use crate::head::Head;
use crate::options::ParseOptions;
use crate::outcome::{ErrorKind, ParseError};
use crate::scan::line_break;

/// The result of a scan. `Ok(None)` means that more bytes are needed.
pub(crate) type Scanned<T> = Result<Option<T>, ParseError>;

/// A line that ends at this index.
pub(crate) enum ParsedLine {
    Next(usize),
    /// The last line of the head.
    End(usize),
}

pub(crate) fn fail<T>(kind: ErrorKind, offset: usize) -> Result<T, ParseError> {
    Err(ParseError { kind, offset })
}

/// Unwraps a `Scanned`, returning from the function if bytes are missing.
macro_rules! have {
    ($scanned:expr) => {
        match $scanned {
            Some(found) => found,
            None => return Ok(None),
        }
    };
}
pub(crate) use have;

/// Skips the CRLF or LF at `at`.
#[inline(always)]
pub(crate) fn line_end(buf: &[u8], at: usize, options: &ParseOptions) -> Scanned<usize> {
    if buf[at] == b'\r' {
        return match have!(buf.get(at + 1)) {
            b'\n' => Ok(Some(at + 2)),
            _ => fail(ErrorKind::BareCr, at),
        };
    }
    if options.lone_lf { Ok(Some(at + 1)) } else { fail(ErrorKind::BareLf, at) }
}

#[inline(always)]
pub(crate) fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t')
}

/// The first byte at or after `at` that is neither space nor tab.
#[inline(always)]
pub(crate) fn skip_blanks(buf: &[u8], mut at: usize) -> Option<usize> {
    while is_blank(*buf.get(at)?) {
        at += 1;
    }
    Some(at)
}

/// Records the first tolerated violation.
#[cold]
pub(crate) fn tolerate(head: &mut Head, kind: ErrorKind, offset: usize) {
    head.violation.get_or_insert(ParseError { kind, offset });
}

/// The index of the CR or LF that ends a value or reason.
#[inline(always)]
pub(crate) fn value_end(buf: &[u8], from: usize, head: &mut Head, options: &ParseOptions) -> Scanned<usize> {
    let mut stop = line_break(buf, from);
    while *have!(buf.get(stop)) == 0 {
        if !options.relaxed {
            return fail(ErrorKind::Nul, stop);
        }
        tolerate(head, ErrorKind::Nul, stop);
        stop = line_break(buf, stop + 1);
    }
    Ok(Some(stop))
}
