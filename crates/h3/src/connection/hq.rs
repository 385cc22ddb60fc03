//! HTTP/0.9 over QUIC (`hq-interop`), which interoperability tests use: a stream carries a request line, then the bare body of the
//! response until its end. There are no frames, no fields and no streams for control.
//!
//! Requests are passed on as GET requests with version 1.0, whatever their method. Their streams are read up to the end of the line.

use bytes::Buf;
use http::Version;

use super::Connection;
use super::read::{ReadStep, StepOutcome};
use crate::event::H3Event;
use crate::fault::{FaultReason, Violation};
use crate::stream::{HEAD_RECEIVED, KNOWN, READ_DONE, REMOTE_ENDED};
use crate::transport::Streams;

impl Connection {
    /// Switches a connection without streams to HTTP/0.9. To be called before [`Connection::start`].
    pub fn use_hq(&mut self) {
        self.is_hq = true;
    }

    /// Reads a request line. Bytes behind it are dropped.
    pub(super) fn take_line(&mut self, slot: u32, streams: &mut impl Streams) -> StepOutcome {
        if self.requests.at(slot).has(REMOTE_ENDED) {
            return self.drop_rest(slot, streams);
        }
        if let Some(step) = self.fill_payload(slot, streams).or_else(|violation| match violation {
            // The stream ended within the line.
            Violation::FrameCut => Ok(Some(self.malformed(slot, streams))),
            other => Err(other),
        })? {
            return Ok(step);
        }
        let max = self.config.rules.max_bytes;
        let stream = self.requests.at(slot);
        let end = stream.input.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(stream.input.len(), |end| end + 1);
        let before = stream.section.len();
        stream.section.extend_from_slice(&stream.input[..taken]);
        stream.input.advance(taken);
        self.sections += stream.section.len() - before;
        if stream.section.len() > max {
            return Ok(self.malformed(slot, streams));
        }
        if end.is_none() {
            return Ok(ReadStep::Again);
        }
        let line = std::mem::take(&mut stream.section);
        self.sections -= line.len();
        let Some(target) = target(&line) else { return Ok(self.malformed(slot, streams)) };
        let head = self.head.get_or_insert_default();
        head.clear();
        head.start_request(b"GET", target);
        head.set_version(Version::Http10);
        let key = self.requests.key(slot);
        self.requests.at(slot).flags |= KNOWN | HEAD_RECEIVED | REMOTE_ENDED;
        self.count_request();
        if self.total == self.config.max_total_streams {
            self.shutdown(streams);
        }
        Ok(ReadStep::Event(H3Event::Head { key, end: true, protocol: false }))
    }

    fn drop_rest(&mut self, slot: u32, streams: &mut impl Streams) -> StepOutcome {
        match self.fill_payload(slot, streams) {
            Ok(Some(step)) => Ok(step),
            Ok(None) => {
                let stream = self.requests.at(slot);
                let count = stream.input.len();
                stream.input.clear();
                self.skip(count)?;
                Ok(ReadStep::Again)
            }
            Err(Violation::FrameCut) => {
                self.requests.at(slot).flags |= READ_DONE;
                Ok(ReadStep::More)
            }
            Err(other) => Err(other),
        }
    }

    fn malformed(&mut self, slot: u32, streams: &mut impl Streams) -> ReadStep {
        self.stream_fault(slot, FaultReason::Violation(Violation::Incomplete), streams)
    }
}

/// Returns the target of a request line: the second word, which must be a path.
fn target(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_visible = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
    (is_visible(method) && is_visible(target) && target.starts_with(b"/")).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_has_a_method_and_a_path() {
        let cases: [(&[u8], Option<&[u8]>); 9] = [
            (b"GET /a?b\r\n", Some(b"/a?b")),
            (b"GET /a\n", Some(b"/a")),
            (b"GET /a HTTP/1.0\r\n", Some(b"/a")),
            (b"GET a\r\n", None),
            (b"GET  /a\r\n", None),
            (b"GET\r\n", None),
            (b"GET /\x01\r\n", None),
            (b"GET /a\rb\n", None),
            (b"\n", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(target(line), wanted, "{}", String::from_utf8_lossy(line));
        }
    }
}
