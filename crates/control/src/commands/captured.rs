//! Malformed messages: `show errors` (management manual, 9.3), in HAProxy's format. Fields about HAProxy's own buffers and flags
//! are zero; a description of the error and the cause's name follow the lengths.

use std::fmt::Write;
use std::sync::Arc;

use base::clock::{Date, WallTime};
use state::errors::Captured;
use state::faults::FaultCause;

use crate::invocation::{Call, CommandReply, error};

pub(crate) fn show_errors(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let errors = &call.runtime.statistics.process.errors;
    let (mut proxy, mut sides) = (None, [true, true]);
    for word in call.args {
        match word.as_str() {
            "request" => sides = [true, false],
            "response" => sides = [false, true],
            "-1" => proxy = None,
            name => {
                let number = name.parse::<u32>().ok();
                match view.proxies.iter().find(|p| *p.state.name == *name || number == Some(p.state.id)) {
                    Some(found) => proxy = Some(found.state.id),
                    None => return error("No such proxy."),
                }
            }
        }
    }
    let now = WallTime::now();
    let mut out = "Total events captured on [".to_owned();
    let _ = Date::local(now.seconds).write_log(now.millis(), &mut out);
    let _ = writeln!(out, "] : {}", errors.total());
    for found in &view.proxies {
        let (request, response) = errors.of(found.state.id);
        for (captured, is_response) in [(request, false), (response, true)] {
            // The messages of a proxy are those that it handled on either side.
            let concerns = |captured: &Captured, id| {
                id == found.state.id
                    || id == captured.frontend.1
                    || captured.backend.as_ref().is_some_and(|backend| id == backend.1)
            };
            let wanted = |captured: &Captured| {
                sides[usize::from(is_response)] && proxy.is_none_or(|id| concerns(captured, id))
            };
            if let Some(captured) = captured.filter(wanted) {
                write_captured(&captured, is_response, &found.state, view.line_length, &mut out);
            }
        }
    }
    CommandReply::Text(out)
}

/// Writes one captured message; `size` is the buffer size.
fn write_captured(
    captured: &Captured,
    response: bool,
    proxy: &Arc<state::Proxy>,
    size: usize,
    out: &mut String,
) {
    let side = if response { "backend" } else { "frontend" };
    let what = if response { "response" } else { "request" };
    out.push_str(" \n[");
    let _ = Date::local(captured.when.seconds).write_log(captured.when.millis(), out);
    let _ = writeln!(out, "] {side} {} (#{}): invalid {what}", proxy.name, proxy.id);
    let (frontend, id) = &captured.frontend;
    let named = |pair: &Option<(Box<str>, u32)>, none: &str| match pair {
        Some((name, id)) => format!("{name} (#{id})"),
        None => format!("{none} (#-1)"),
    };
    if response {
        let _ = write!(out, "  frontend {frontend} (#{id})");
    } else {
        let _ = write!(out, "  backend {}", named(&captured.backend, "<NONE>"));
    }
    let source = captured.source.map_or_else(|| "unix:1".to_owned(), |source| source.to_string());
    let _ = writeln!(
        out,
        ", server {}, event #{}, src {source}",
        named(&captured.server, "<NONE>"),
        captured.event
    );
    let length = captured.bytes.len();
    let (state, number) = state_at(&captured.bytes, captured.position, response);
    let cause = if response { FaultCause::BadResponse } else { FaultCause::BadRequest };
    let outcome = if captured.accepted { "accepted".into() } else { format!("fault {}", cause.name()) };
    let _ = writeln!(
        out,
        "  buffer starts at {} (including 0 out), {} free,\n  \
         len {length}, wraps at {size}, error at position {}\n  \
         H1 connection flags 0x00000000, H1 stream flags 0x00000000\n  \
         H1 msg state {state}({number}), H1 msg flags 0x00000000\n  \
         H1 chunk len 0 bytes, H1 body len 0 bytes : {}, stream #{}, {}\n  ",
        captured.offset,
        size.saturating_sub(length),
        captured.position,
        captured.reason,
        captured.session,
        outcome
    );
    write_dump(&captured.bytes, out);
}

/// The parser state at `position`, by HAProxy's name and number.
fn state_at(bytes: &[u8], position: usize, response: bool) -> (&'static str, u8) {
    let before = &bytes[..position.min(bytes.len())];
    let mut lines = before.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut first = lines.next().unwrap_or_default();
    let mut rest: Vec<&[u8]> = lines.collect();
    if first.is_empty() && !rest.is_empty() {
        // An empty line before the message is skipped.
        first = rest.remove(0);
    }
    let Some(line) = rest.last() else {
        let spaces = first.iter().filter(|byte| **byte == b' ').count();
        let at_end = before.last() == Some(&b'\r');
        return match (response, spaces) {
            _ if before.is_empty() && response => ("MSG_RPBEFORE", 8),
            _ if before.is_empty() => ("MSG_RQBEFORE", 0),
            (false, _) if at_end => ("MSG_RQLINE_END", 7),
            (true, _) if at_end => ("MSG_RPLINE_END", 15),
            (false, 0) => ("MSG_RQMETH", 2),
            (false, 1) => ("MSG_RQURI", 4),
            (false, _) => ("MSG_RQVER", 6),
            (true, 0) => ("MSG_RPVER", 10),
            (true, 1) => ("MSG_RPCODE", 12),
            (true, _) => ("MSG_RPREASON", 14),
        };
    };
    if rest[..rest.len() - 1].iter().any(|line| line.is_empty()) {
        return ("MSG_CHUNK_SIZE", 26);
    }
    match line.iter().position(|byte| *byte == b':') {
        None if line.is_empty() => ("MSG_HDR_FIRST", 16),
        None => ("MSG_HDR_NAME", 17),
        Some(colon) if line[colon + 1..].iter().all(|byte| matches!(byte, b' ' | b'\t')) => {
            ("MSG_HDR_L1_SP", 19)
        }
        Some(_) => ("MSG_HDR_VAL", 22),
    }
}

/// Dumps bytes as text, one output line per input line, at most 79 columns wide.
fn write_dump(bytes: &[u8], out: &mut String) {
    const WIDTH: usize = 70;
    let mut start = 0;
    let mut continued = false;
    while start < bytes.len() {
        let mut line = String::new();
        let mut at = start;
        let mut ended = false;
        while at < bytes.len() && !ended {
            let shown = escape(bytes[at]);
            if line.len() + shown.len() > WIDTH {
                break;
            }
            line.push_str(&shown);
            ended = bytes[at] == b'\n';
            at += 1;
        }
        let plus = if continued { '+' } else { ' ' };
        let _ = writeln!(out, "  {start:05}{plus} {line}");
        continued = !ended;
        start = at;
    }
}

fn escape(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'\n' => "\\n".into(),
        b'\r' => "\\r".into(),
        27 => "\\e".into(),
        b'\\' => "\\\\".into(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_break_long_lines() {
        let mut bytes = b"GET / HTTP/1.1\r\nX\x00y: \\\t1\r\nLong: ".to_vec();
        bytes.extend([b'a'; 100]);
        let mut out = String::new();
        write_dump(&bytes, &mut out);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "  00000  GET / HTTP/1.1\\r\\n");
        assert_eq!(lines[1], "  00016  X\\x00y: \\\\\\t1\\r\\n");
        assert_eq!(lines[2].len(), 9 + 70);
        assert!(lines[3].starts_with("  00096+ aaa"), "{}", lines[3]);
        assert!(lines.iter().all(|line| line.len() <= 79));
    }

    #[test]
    fn positions_map_to_parser_states() {
        let request = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nzz";
        for (position, state) in [
            (0, "MSG_RQBEFORE"),
            (2, "MSG_RQMETH"),
            (5, "MSG_RQURI"),
            (9, "MSG_RQVER"),
            (16, "MSG_RQLINE_END"),
            (17, "MSG_HDR_FIRST"),
            (19, "MSG_HDR_NAME"),
            (22, "MSG_HDR_L1_SP"),
            (24, "MSG_HDR_VAL"),
            (30, "MSG_CHUNK_SIZE"),
        ] {
            assert_eq!(state_at(request, position, false).0, state, "{position}");
        }
        for (position, state) in [(3, "MSG_RPVER"), (10, "MSG_RPCODE"), (14, "MSG_RPREASON")] {
            assert_eq!(state_at(b"HTTP/1.1 200 OK\r\n", position, true).0, state, "{position}");
        }
    }
}
