//! What `filter trace` tells of one direction of one stream on standard error (configuration manual, 9.1), in HAProxy's lines. Streams have no
//! analysers here: their masks are zeros, and what tells of them is left out. A stream is named by its number.

use std::fmt::Write;
use std::sync::Arc;

use plan::filter::TraceFilter;

/// One filter that watches one direction.
pub(crate) struct Tracer {
    pub(crate) filter: Arc<TraceFilter>,
    /// The proxy that the filter is of.
    pub(crate) proxy: Box<str>,
    /// The stream's number.
    pub(crate) stream: u64,
    pub(crate) upload: bool,
    pub(crate) http: bool,
    /// Whether that proxy is the backend alone.
    pub(crate) of_backend: bool,
}

impl Tracer {
    /// One line: when, which filter, which stream, what.
    fn tell(&self, text: &str) {
        if self.filter.quiet {
            return;
        }
        let now = base::clock::WallTime::now();
        let who = format!("{}/{}", self.filter.name, self.proxy);
        let (seconds, micros, stream) = (now.seconds, now.micros(), self.stream);
        eprintln!(
            "{seconds}.{micros:06} [{who:<20}] [strm {stream:#x}({stream}) 0x00000000 0x00000000] {text}"
        );
    }

    fn event(&self, name: &str, what: &str) {
        self.tell(&format!("{name:<25}: {what}"));
    }

    /// What happened on the direction. The stream has a backend by the time it is watched.
    fn on_channel(&self, name: &str, more: &str) {
        let channel = if self.upload { "REQUEST" } else { "RESPONSE" };
        let mode = if self.http { "HTTP" } else { "TCP" };
        self.event(name, &format!("channel={channel:<10} - mode={mode:<5} (backend){more}"));
    }

    /// Whether this direction is the first that the filter sees, and the last.
    fn is_first(&self) -> bool {
        self.upload || !self.filter.on_request
    }

    fn is_last(&self) -> bool {
        !self.upload || !self.filter.on_response
    }

    fn kind(&self) -> &'static str {
        if self.of_backend { "filter-type=backend" } else { "filter-type=frontend" }
    }

    /// It begins, with a head if there is one.
    pub(crate) fn begin(&self, backend: Option<&str>, head: &[u8]) {
        if self.is_first() {
            self.event("trace_attach", self.kind());
            if !self.of_backend {
                self.tell("trace_stream_start       ");
            }
            if let Some(backend) = backend {
                self.event("trace_stream_set_backend", &format!("backend={backend}"));
            }
        }
        self.on_channel("trace_chn_start_analyze", "");
        let head = String::from_utf8_lossy(head);
        let mut lines = head.lines().filter(|line| !line.is_empty());
        if let Some(first) = lines.next().filter(|_| self.http) {
            self.on_channel("trace_http_headers", &format!("\t{first}"));
            for line in lines {
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                self.tell(&format!("\t{}: {}", name.to_ascii_lowercase(), value.trim_start()));
            }
        }
    }

    /// Bytes of payload were sent.
    pub(crate) fn payload(&self, bytes: &[u8], offset: u64) {
        let (event, length) =
            (if self.http { "trace_http_payload" } else { "trace_tcp_payload" }, bytes.len());
        self.on_channel(event, &format!(" - offset={offset} - len={length} - forward={length}"));
        if self.filter.hexdump && !self.filter.quiet {
            eprint!("{}", hexdump(bytes, offset));
        }
    }

    /// It is over.
    pub(crate) fn end(&self) {
        if self.http {
            self.on_channel("trace_http_end", "");
        }
        self.on_channel("trace_chn_end_analyze", "");
    }

    /// The stream is, after its last direction.
    pub(crate) fn detach(&self) {
        if self.is_last() {
            if !self.of_backend {
                self.tell("trace_stream_stop        ");
            }
            self.event("trace_detach", self.kind());
        }
    }
}

/// Sixteen bytes a line, as numbers and as what can be shown of them.
fn hexdump(bytes: &[u8], offset: u64) -> String {
    let mut out = String::new();
    for (line, part) in bytes.chunks(16).enumerate() {
        let mut shown = String::new();
        let _ = write!(out, "\t0x{:06x}: ", offset + line as u64 * 16);
        for at in 0..16 {
            let _ = match part.get(at) {
                Some(byte) => write!(out, "{byte:02x} "),
                None => write!(out, "   "),
            };
        }
        for byte in part {
            shown.push(if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' });
        }
        let _ = writeln!(out, " {shown}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_shows_numbers_and_letters() {
        let dump = hexdump(b"GET / HTTP/1.1\r\nHost", 32);
        let lines: Vec<&str> = dump.lines().collect();
        assert_eq!(
            lines,
            [
                "\t0x000020: 47 45 54 20 2f 20 48 54 54 50 2f 31 2e 31 0d 0a  GET / HTTP/1.1..",
                "\t0x000030: 48 6f 73 74                                      Host",
            ]
        );
    }
}
