//! Serialises a head. Lines that are adjacent in memory, such as unmodified ones, are copied together.

use crate::head::{CLEAN, DEAD, Head, Version};
use crate::status::ErrorMessage;

/// How `option http-restrict-req-hdr-names` treats names outside `[a-zA-Z0-9-]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestrictNames {
    /// Keeps the lines.
    #[default]
    Preserve,
    /// Removes those lines.
    Delete,
    /// Refuses the request (403).
    Reject,
}

impl Head {
    /// Appends the whole head to `out`: start line, header lines that were not removed, empty line.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes.len() + 4);
        // The current run is bytes[run.0..run.1]. A line that starts two bytes after its end extends it.
        let mut run = match self.start_line {
            Some(line) => (line.start, line.end, true),
            None => {
                self.write_line(self.spoken(), self.plain_target(), out);
                (0, 0, false)
            }
        };
        for f in self.fields.iter().filter(|f| !f.is_dead()) {
            if !(run.2 && f.name == run.1 + 2) {
                self.flush(run, out);
                run.0 = f.name;
            }
            run.1 = f.end;
            run.2 = f.flags & CLEAN != 0;
        }
        self.flush(run, out);
        out.extend_from_slice(b"\r\n");
    }

    fn flush(&self, run: (u32, u32, bool), out: &mut Vec<u8>) {
        if run.1 > run.0 {
            out.extend_from_slice(&self.bytes[run.0 as usize..run.1 as usize]);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Like [`Head::write_to`], but passes each name through `case` (`h1-case-adjust`), which may return a replacement that only
    /// differs in case.
    pub fn write_adjusted<'a>(&self, out: &mut Vec<u8>, case: impl Fn(&[u8]) -> Option<&'a [u8]>) {
        self.write_line(self.spoken(), self.plain_target(), out);
        for (name, value) in self.fields() {
            out.extend_from_slice(case(name).unwrap_or(name));
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the start line and its CRLF, with the received version.
    pub fn write_start_line(&self, out: &mut Vec<u8>) {
        self.write_line(self.version, self.target(), out);
    }

    /// The version for forwarding a message, which is independent of the sender's version (RFC 9110, 2.5).
    fn spoken(&self) -> Version {
        match self.version {
            Version::Other(..) if self.version.is_11_or_above() => Version::Http11,
            Version::Other(..) => Version::Http10,
            known => known,
        }
    }

    fn write_line(&self, version: Version, target: &[u8], out: &mut Vec<u8>) {
        if self.is_response {
            write_version(version, out);
            let code = self.status;
            out.push(b' ');
            if code > 999 {
                out.extend_from_slice(code.to_string().as_bytes());
            } else {
                let digit = |n: u16| b'0' + (n % 10) as u8;
                out.extend_from_slice(&[digit(code / 100), digit(code / 10), digit(code)]);
            }
            out.push(b' ');
            let usual = || crate::status::reason(code).as_bytes();
            out.extend_from_slice(if self.reason().is_empty() { usual() } else { self.reason() });
        } else {
            out.extend_from_slice(self.method());
            out.push(b' ');
            out.extend_from_slice(target);
            out.push(b' ');
            write_version(version, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Applies `option http-restrict-req-hdr-names`; returns `false` if the request must be refused.
    pub fn restrict_names(&mut self, policy: RestrictNames) -> bool {
        if policy == RestrictNames::Preserve {
            return true;
        }
        for f in &mut self.fields {
            let plain = |name: &[u8]| name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
            if !f.is_dead() && !plain(f.name(&self.bytes)) {
                if policy == RestrictNames::Reject {
                    return false;
                }
                f.flags |= DEAD;
                self.dead += 1;
            }
        }
        true
    }
}

impl ErrorMessage {
    /// Builds the whole response, except for `connection: close`: fills `head` and appends the body to `body`.
    pub fn response(&self, head: &mut Head, body: &mut Vec<u8>) {
        let before = body.len();
        self.write_body(body);
        head.start_response(self.code, Some(self.reason.as_bytes()));
        head.set_content_length((body.len() - before) as u64);
        head.append(b"cache-control", b"no-cache");
        head.append(b"content-type", b"text/html");
    }
}

fn write_version(version: Version, out: &mut Vec<u8>) {
    match version {
        Version::Http10 => return out.extend_from_slice(b"HTTP/1.0"),
        Version::Http11 => return out.extend_from_slice(b"HTTP/1.1"),
        Version::Other(..) => {}
    }
    let (major, minor) = version.numbers();
    out.extend_from_slice(b"HTTP/");
    out.extend_from_slice(major.to_string().as_bytes());
    out.push(b'.');
    out.extend_from_slice(minor.to_string().as_bytes());
}
