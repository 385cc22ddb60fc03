//! The responses of a frontend in `mode haterm`: parses the query of a request, and writes the head of the response.

use std::io::{Cursor, Write};
use std::time::Duration;

use http::{BodyLength, Head};

use crate::flow::{Repeated, RepeatedBytes};

/// The page for a request with an empty query.
const USAGE: &str = "\
Weir's test server (mode haterm). The query of a request describes the response. Arguments:

  s=<size>   bytes of the body, 0 by default               /?s=20k
  r=<status> status from 200 to 999, 200 by default        /?r=404
  t=<time>   milliseconds to wait before the response      /?t=500
  c=<flag>   0: the response must not be cached            /?c=0
  C=<flag>   1: close the connection after the response    /?C=1
  K=<flag>   0: close it, 1: keep it open                  /?K=1
  A=<flag>   1: respond before the request's body is read  /?A=1
  k=<flag>   1: chunked coding, with one chunk             /?k=1
  R=<flag>   1: a body of random bytes                     /?R=1

A number may be followed by k, m or g (times 1024, 1024^2, 1024^3), and by r (times a random number from 0 to 1).
Arguments are separated by one of & ? , ; / as in /?s=20k&t=700r&K=1 and unknown ones are ignored.
";

/// The longest delay, in milliseconds: about 24 days.
const LONGEST: i64 = i32::MAX as i64;

/// The response that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Whether to send the usage page instead of a generated body.
    pub(crate) is_usage: bool,
    pub(crate) status: u16,
    pub(crate) size: u64,
    /// The delay before the response, in milliseconds.
    pub(crate) delay: u64,
    pub(crate) is_cacheable: bool,
    pub(crate) closes: bool,
    /// Whether the response is sent without waiting for the body of the request.
    pub(crate) is_early: bool,
    pub(crate) is_chunked: bool,
    pub(crate) is_random: bool,
}

impl Wanted {
    /// Parses the query of a request. Without a query, returns the defaults.
    pub(crate) fn of(query: Option<&[u8]>) -> Self {
        let mut wanted = Self {
            is_usage: query.is_some_and(<[u8]>::is_empty),
            status: 200,
            size: 0,
            delay: 0,
            is_cacheable: true,
            closes: false,
            is_early: false,
            is_chunked: false,
            is_random: false,
        };
        let arguments = query.unwrap_or_default().split(|byte| b"&?,;/".contains(byte));
        for argument in arguments {
            let [name, b'=', value @ ..] = argument else { continue };
            let Some(number) = number(value) else { continue };
            match name {
                b's' => wanted.size = number.max(0).unsigned_abs(),
                b't' => wanted.delay = number.clamp(0, LONGEST).unsigned_abs(),
                // Statuses that cannot end an exchange are ignored.
                b'r' => wanted.status = u16::try_from(number).ok().filter(is_final).unwrap_or(wanted.status),
                b'c' => wanted.is_cacheable = number > 0,
                b'C' => wanted.closes = number > 0,
                b'K' => wanted.closes = number <= 0,
                b'A' => wanted.is_early = number > 0,
                b'k' => wanted.is_chunked = number > 0,
                b'R' => wanted.is_random = number > 0,
                _ => {}
            }
        }
        wanted
    }

    /// Writes the head of the response to a request that took `received` to arrive and was then delayed for `held`.
    pub(crate) fn write_head(&self, received: Duration, held: Duration, head: &mut Head) {
        head.start_response(self.status, None);
        match self.framing() {
            BodyLength::Length(length) => head.set_content_length(length),
            BodyLength::Chunked => _ = head.append(b"transfer-encoding", b"chunked"),
            BodyLength::UntilClose | BodyLength::None => {}
        }
        if !self.is_cacheable || self.is_usage {
            head.append(b"cache-control", b"no-cache");
        }
        if self.is_usage {
            head.append(b"content-type", b"text/plain");
            return;
        }
        let mut text = [0; 128];
        let value = written(&mut text, format_args!("time={} ms", received.as_millis()));
        head.append(b"x-req", value);
        // The format is HAProxy's, because programs parse it.
        let Self { status, size, delay, .. } = self;
        let (cache, chunked) = (u8::from(self.is_cacheable), if self.is_chunked { ", chunked," } else { "" });
        let value = written(
            &mut text,
            format_args!(
                "id=dummy, code={status}, cache={cache}{chunked} size={size}, time={delay} ms ({} real)",
                held.as_millis()
            ),
        );
        head.append(b"x-rsp", value);
    }

    /// How the response is framed. A response that closes the connection has no length.
    fn framing(&self) -> BodyLength {
        match self {
            Self { is_usage: true, .. } => BodyLength::Length(USAGE.len() as u64),
            Self { is_chunked: true, .. } => BodyLength::Chunked,
            Self { closes: true, .. } => BodyLength::UntilClose,
            Self { size, .. } => BodyLength::Length(*size),
        }
    }

    /// Returns the generated body, or `None` if the body was written to `page`.
    pub(crate) fn body(&self, page: &mut Vec<u8>) -> Option<Repeated> {
        if self.is_usage {
            page.extend_from_slice(USAGE.as_bytes());
            return None;
        }
        let bytes = match self {
            Self { is_random: true, .. } => RepeatedBytes::Random,
            Self { is_chunked: true, .. } => RepeatedBytes::Ones,
            _ => RepeatedBytes::Text,
        };
        Some(Repeated::new(bytes, self.size, self.framing()))
    }
}

/// Whether a response with this status can be the final response to a request.
fn is_final(status: &u16) -> bool {
    matches!(status, 200..=999)
}

/// Reads a decimal number and its suffixes, and stops at any other byte. Returns `None` if the text does not start with a digit.
fn number(text: &[u8]) -> Option<i64> {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, suffixes) = text.split_at(digits);
    if digits.is_empty() {
        return None;
    }
    let add = |value: i64, digit: &u8| value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let mut value = digits.iter().fold(0, add);
    for suffix in suffixes {
        value = match suffix.to_ascii_lowercase() {
            b'k' => value.saturating_mul(1 << 10),
            b'm' => value.saturating_mul(1 << 20),
            b'g' => value.saturating_mul(1 << 30),
            b'r' => (value as f64 * fastrand::f64()) as i64,
            _ => break,
        };
    }
    Some(if is_negative { -value } else { value })
}

/// Formats `arguments` into `text`, and returns the part that fits.
fn written<'a>(text: &'a mut [u8], arguments: std::fmt::Arguments<'_>) -> &'a [u8] {
    let mut cursor = Cursor::new(&mut *text);
    // The numbers always fit into the buffers.
    let _ = cursor.write_fmt(arguments);
    let length = cursor.position() as usize;
    &text[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Wanted {
        Wanted::of(Some(query.as_bytes()))
    }

    #[test]
    fn arguments_set_what_they_name() {
        let plain = Wanted::of(None);
        assert_eq!(plain, of("x"));
        assert_eq!((plain.status, plain.size, plain.is_usage, plain.is_cacheable), (200, 0, false, true));
        assert!(of("").is_usage);
        let all = of("s=20k&r=404?c=0,C=1;A=1/k=1&R=1&t=700");
        assert_eq!((all.size, all.status, all.delay), (20 << 10, 404, 700));
        assert!(all.closes && all.is_early && all.is_chunked && all.is_random && !all.is_cacheable);
        assert!(!of("C=1&K=1").closes && of("K=1&C=1").closes && of("K=0").closes && !of("C=0").closes);
    }

    #[test]
    fn numbers_have_suffixes_and_limits() {
        for (text, value) in [
            ("s=5", 5),
            ("s=+5", 5),
            ("s=-5", 0),
            ("s=007", 7),
            ("s=1K", 1 << 10),
            ("s=1m", 1 << 20),
            ("s=1kk", 1 << 20),
            ("s=2g", 2 << 30),
            ("s=1x2", 1),
            ("s=99999999999999999999", i64::MAX as u64),
            ("s=9999999999g", i64::MAX as u64),
            ("s=", 0),
            ("s", 0),
            ("ss=5", 0),
            ("s=5&s=6", 6),
            ("&&zz=1&s=5&", 5),
            ("s=5abc&r=404", 5),
        ] {
            assert_eq!(of(text).size, value, "{text}");
        }
        assert_eq!(of("s=5abc&r=404").status, 404);
        assert_eq!(of("t=99999999999g").delay, LONGEST as u64);
        for status in ["r=0", "r=100", "r=199", "r=1000", "r=-1", "r=70000", "r=x"] {
            assert_eq!(of(status).status, 200, "{status}");
        }
        assert_eq!(of("r=999").status, 999);
        let random: Vec<u64> = (0..64).map(|_| of("s=1000r").size).collect();
        assert!(random.iter().all(|size| *size <= 1000) && random.iter().any(|size| *size != random[0]));
    }

    #[test]
    fn heads_describe_their_bodies() {
        for (query, field) in [
            ("s=7", "content-length: 7"),
            ("s=7&k=1", "transfer-encoding: chunked"),
            ("s=7&c=0", "cache-control: no-cache"),
            ("s=7&t=30&r=503", "x-rsp: id=dummy, code=503, cache=1 size=7, time=30 ms (31 real)"),
            ("s=7&k=1&C=1", "x-rsp: id=dummy, code=200, cache=1, chunked, size=7, time=0 ms (31 real)"),
            ("", "content-type: text/plain"),
        ] {
            let (mut head, mut text) = (Head::new(), Vec::new());
            of(query).write_head(Duration::from_millis(4), Duration::from_millis(31), &mut head);
            head.write_to(&mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.lines().any(|line| line == field), "{query}: {text}");
            assert_eq!(text.contains("x-req: time=4 ms"), !query.is_empty());
        }
    }
}
