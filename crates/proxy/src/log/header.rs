//! Formats the header of a log line (configuration manual, 4.2 `log`; RFC 3164 and RFC 5424).

use std::fmt::Write as _;

use base::clock::WallTime;
use otlp::{SpanId, TraceId};
use plan::log::{LogFormat, Logger};

use super::Outbox;

/// The timestamp of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stamp<'a> {
    /// No time was given, so the current time is used.
    #[default]
    Now,
    /// The time is explicitly unknown (`-`, RFC 5424). Formats other than RFC 5424 show the current time instead.
    Nil,
    /// `Nov 22 02:51:39`.
    Rfc3164(&'a [u8]),
    /// `2026-11-22T02:51:39.636911+00:00`.
    Iso(&'a [u8]),
}

/// The originator of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOrigin<'a> {
    /// This process.
    Own,
    /// The host and process named in a received message, if any.
    Received {
        /// The host.
        host: Option<&'a [u8]>,
        /// The process.
        pid: Option<&'a [u8]>,
    },
}

/// A line with its header fields.
#[derive(Debug, Clone, Copy)]
pub struct LogLine<'a> {
    /// 0 (emerg) to 7 (debug).
    pub level: u8,
    /// The facility, if the message specifies one.
    pub facility: Option<u8>,
    /// The timestamp.
    pub stamp: Stamp<'a>,
    /// The originator.
    pub origin: MessageOrigin<'a>,
    /// The name of the program. May be empty.
    pub tag: &'a [u8],
    /// The MSGID of RFC 5424. May be empty.
    pub message_id: &'a [u8],
    /// The structured data of RFC 5424. May be empty.
    pub structured: &'a [u8],
    /// The text.
    pub text: &'a [u8],
    /// The format in which the line was received.
    pub received: LogFormat,
    /// For a line about a request with a trace: the trace, the span, and whether the span is exported.
    pub context: Option<(TraceId, SpanId, bool)>,
}

impl<'a> LogLine<'a> {
    /// Creates a line of this process.
    pub fn own(level: u8, tag: &'a [u8], text: &'a [u8]) -> Self {
        Self {
            level,
            facility: None,
            stamp: Stamp::Now,
            origin: MessageOrigin::Own,
            tag,
            message_id: b"",
            structured: b"",
            text,
            received: LogFormat::Raw,
            context: None,
        }
    }
}

impl Outbox {
    /// Appends the header of `line`.
    pub(crate) fn header(&mut self, logger: &Logger, line: &LogLine<'_>, out: &mut Vec<u8>) {
        let level = line.level.max(logger.min_level);
        let priority = u32::from(line.facility.unwrap_or(logger.facility)) * 8 + u32::from(level);
        let format = if logger.format == LogFormat::AsReceived { line.received } else { logger.format };
        match format {
            LogFormat::Raw | LogFormat::AsReceived => {}
            LogFormat::Short => bracketed(u32::from(level), out),
            LogFormat::Priority => bracketed(priority, out),
            LogFormat::Timed => {
                bracketed(u32::from(level), out);
                self.iso(line.stamp, out);
                out.push(b' ');
            }
            LogFormat::Iso => {
                self.iso(line.stamp, out);
                out.push(b' ');
            }
            LogFormat::Local | LogFormat::Rfc3164 => {
                bracketed(priority, out);
                self.bsd(format, line, out);
            }
            LogFormat::Rfc5424 => {
                bracketed(priority, out);
                self.rfc5424(line, logger.max_length, out);
            }
        }
    }

    /// Appends `Nov 22 02:51:39 host tag[pid]: `, without the host in the local format.
    fn bsd(&mut self, format: LogFormat, line: &LogLine<'_>, out: &mut Vec<u8>) {
        match line.stamp {
            Stamp::Rfc3164(stamp) => out.extend_from_slice(stamp),
            Stamp::Iso(stamp) if bsd_date(stamp, out).is_some() => {}
            Stamp::Now | Stamp::Nil | Stamp::Iso(_) => {
                let _ = self.dates.local(WallTime::now().seconds).write_rfc3164(&mut TextSink(out));
            }
        }
        let (host, pid) = self.who(line);
        if format == LogFormat::Rfc3164 {
            out.push(b' ');
            out.extend_from_slice(host.unwrap_or(b"localhost"));
        }
        out.push(b' ');
        if !line.tag.is_empty() {
            out.extend_from_slice(line.tag);
            if let Some(pid) = pid {
                out.push(b'[');
                out.extend_from_slice(pid);
                out.push(b']');
            }
            out.extend_from_slice(b": ");
        }
    }

    /// Appends `1 2026-11-22T02:51:39.636911+00:00 host tag pid msgid [data] `, with a dash for each missing field.
    /// The whole line will be truncated to `most` bytes.
    fn rfc5424(&mut self, line: &LogLine<'_>, most: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"1 ");
        match line.stamp {
            Stamp::Nil => out.push(b'-'),
            stamp => self.iso(stamp, out),
        }
        let (host, pid) = self.who(line);
        for field in [host.unwrap_or_default(), line.tag, pid.unwrap_or_default(), line.message_id] {
            or_dash(field, out);
        }
        or_dash(if fits(line.structured, out.len(), most) { line.structured } else { b"" }, out);
        out.push(b' ');
    }

    fn who<'s>(&'s self, line: &LogLine<'s>) -> (Option<&'s [u8]>, Option<&'s [u8]>) {
        match line.origin {
            MessageOrigin::Own => (self.host.as_deref(), Some(&self.pid)),
            MessageOrigin::Received { host, pid } => (host, pid),
        }
    }

    fn iso(&mut self, stamp: Stamp<'_>, out: &mut Vec<u8>) {
        if let Stamp::Iso(stamp) = stamp {
            return out.extend_from_slice(stamp);
        }
        let now = WallTime::now();
        let _ = self.dates.local(now.seconds).write_iso(Some(now.micros()), &mut TextSink(out));
    }
}

/// Appends `2026-11-22T02:51:39…` as `Nov 22 02:51:39`, in the sender's time zone.
fn bsd_date(stamp: &[u8], out: &mut Vec<u8>) -> Option<()> {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = std::str::from_utf8(stamp.get(5..7)?).ok()?.parse::<usize>().ok()?.checked_sub(1)?;
    let (name, time) = (MONTHS.get(3 * month..3 * month + 3)?, stamp.get(11..19)?);
    let day = stamp.get(8..10)?;
    out.extend_from_slice(name);
    out.extend_from_slice(&[b' ', if day[0] == b'0' { b' ' } else { day[0] }, day[1], b' ']);
    out.extend_from_slice(time);
    Some(())
}

/// Appends a space and a field of RFC 5424, in which a dash represents a missing value.
fn or_dash(field: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(if field.is_empty() { b"-" } else { field });
}

/// Whether structured data fits between two spaces after `used` bytes of a line. Truncated data would make the line malformed.
fn fits(structured: &[u8], used: usize, most: usize) -> bool {
    used + structured.len() + 2 <= most
}

fn bracketed(number: u32, out: &mut Vec<u8>) {
    let _ = write!(TextSink(out), "<{number}>");
}

/// Writes text to a byte buffer. Never fails.
struct TextSink<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for TextSink<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_data_is_never_truncated() {
        let data = b"[a b=\"c\"]";
        assert!(fits(data, 10, 21));
        assert!(!fits(data, 10, 20));
    }
}
