//! The collector's response to an export, and when to try again (OTLP specification, "failures" and "retryable errors").

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use base::protobuf::{FieldValue, fields};

/// A collector's report that it rejected a part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The number of rejected records.
    pub rejected: u64,
    /// The collector's explanation.
    pub message: String,
}

/// The outcome of one attempt to export a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportOutcome {
    /// The batch was accepted, perhaps in part.
    Accepted(Option<Rejection>),
    /// The batch may be sent again, after this many ms if the collector demands a delay.
    Retry(Option<u64>),
    /// The batch is refused for good.
    Refused,
}

/// The status of a gRPC call.
#[derive(Debug, Clone, Copy)]
pub struct GrpcStatus<'a> {
    /// `grpc-status`.
    pub code: u16,
    /// `grpc-status-details-bin`, in base64.
    pub details: Option<&'a str>,
}

/// The longest delay that a collector can demand, in ms.
const LONGEST_DELAY_MS: u64 = 60_000;

/// The longest explanation that is kept, in characters.
const LONGEST_MESSAGE: usize = 200;

impl ExportOutcome {
    /// Evaluates a response of OTLP over HTTP. `now` is the time in seconds since the UNIX epoch.
    pub fn of_http(status: u16, retry_after: Option<&str>, body: &[u8], now: i64) -> Self {
        match status {
            200..=299 => Self::Accepted(rejection(body)),
            429 | 502 | 503 | 504 => Self::Retry(retry_after.and_then(|text| delay(text, now))),
            _ => Self::Refused,
        }
    }

    /// Evaluates a gRPC call; `message` is the response without its five bytes of framing.
    pub fn of_grpc(status: GrpcStatus<'_>, message: &[u8]) -> Self {
        let delay = status.details.and_then(retry_delay);
        match (status.code, delay) {
            (0, _) => Self::Accepted(rejection(message)),
            // An exhausted resource is expected to recover only if the collector sets a delay.
            (8, Some(delay)) => Self::Retry(Some(delay)),
            // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
            (1 | 4 | 10 | 11 | 14 | 15, delay) => Self::Retry(delay),
            _ => Self::Refused,
        }
    }
}

/// `Retry-After`: seconds or a date, as ms.
fn delay(text: &str, now: i64) -> Option<u64> {
    let text = text.trim();
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => u64::try_from(base::clock::parse_http_date(text)? - now).unwrap_or(0),
    };
    Some(seconds.saturating_mul(1000).min(LONGEST_DELAY_MS))
}

/// The partial success in a response, if it reports anything.
fn rejection(body: &[u8]) -> Option<Rejection> {
    let (_, FieldValue::Bytes(partial)) = fields(body).find(|(field, _)| *field == 1)? else { return None };
    let (mut rejected, mut message) = (0, String::new());
    for field in fields(partial) {
        match field {
            (1, FieldValue::Number(count)) => rejected = count,
            (2, FieldValue::Bytes(text)) => {
                let text = String::from_utf8_lossy(text);
                message = text.chars().filter(|one| !one.is_control()).take(LONGEST_MESSAGE).collect();
            }
            _ => {}
        }
    }
    (rejected > 0 || !message.is_empty()).then_some(Rejection { rejected, message })
}

/// The delay of `google.rpc.RetryInfo` in the details of a status, in ms.
fn retry_delay(details: &str) -> Option<u64> {
    let bytes = STANDARD.decode(details).or_else(|_| STANDARD_NO_PAD.decode(details)).ok()?;
    let inner = |bytes, wanted: u64| {
        fields(bytes).filter_map(move |(field, value)| match value {
            FieldValue::Bytes(bytes) if field == wanted => Some(bytes),
            _ => None,
        })
    };
    let info =
        inner(&bytes, 3).find(|any| inner(any, 1).any(|url| url.ends_with(b"google.rpc.RetryInfo")))?;
    let info = inner(info, 2).next()?;
    let duration = inner(info, 1).next()?;
    let mut ms = 0u64;
    for field in fields(duration) {
        match field {
            (1, FieldValue::Number(seconds)) => ms = ms.saturating_add(seconds.saturating_mul(1000)),
            (2, FieldValue::Number(nanos)) => ms = ms.saturating_add(nanos / 1_000_000),
            _ => {}
        }
    }
    Some(ms.min(LONGEST_DELAY_MS))
}

/// The delays between attempts to export one batch: exponential, with jitter.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    next_ms: u64,
    until_ms: u64,
}

/// The first delay and the longest one that doubling reaches, in ms.
const FIRST_MS: u64 = 500;
const LONGEST_MS: u64 = 10_000;

impl Backoff {
    /// Starts with the first failure. A batch is dropped when it could only be sent after `until_ms`.
    pub fn new(until_ms: u64) -> Self {
        Self { next_ms: FIRST_MS, until_ms }
    }

    /// Returns the delay in ms before the next attempt: the one that the collector demands, or half to all of the current delay.
    /// Returns `None` if the batch is to be dropped.
    pub fn delay(&mut self, demanded_ms: Option<u64>, now_ms: u64) -> Option<u64> {
        let own = fastrand::u64(self.next_ms / 2..=self.next_ms);
        self.next_ms = (self.next_ms * 2).min(LONGEST_MS);
        let delay = demanded_ms.unwrap_or(own);
        (now_ms.saturating_add(delay) <= self.until_ms).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::protobuf as wire;

    #[test]
    fn http_statuses_decide_about_retries() {
        let outcome = |status, after| ExportOutcome::of_http(status, after, b"", 1_233_922_444);
        assert_eq!(outcome(200, None), ExportOutcome::Accepted(None));
        for status in [429, 502, 503, 504] {
            assert_eq!(outcome(status, None), ExportOutcome::Retry(None), "{status}");
        }
        for status in [400, 401, 404, 413, 500, 501, 301] {
            assert_eq!(outcome(status, Some("1")), ExportOutcome::Refused, "{status}");
        }
        assert_eq!(outcome(503, Some(" 7 ")), ExportOutcome::Retry(Some(7000)));
        let date = "Fri, 06 Feb 2009 12:14:14 GMT";
        assert_eq!(outcome(429, Some(date)), ExportOutcome::Retry(Some(10_000)), "a date");
        assert_eq!(outcome(429, Some("soon")), ExportOutcome::Retry(None));
        assert_eq!(outcome(429, Some("99999999999999999999")), ExportOutcome::Retry(None));
        assert_eq!(outcome(429, Some("1000000")), ExportOutcome::Retry(Some(LONGEST_DELAY_MS)));
    }

    #[test]
    fn grpc_codes_decide_about_retries() {
        let outcome = |code, details| ExportOutcome::of_grpc(GrpcStatus { code, details }, b"");
        assert_eq!(outcome(0, None), ExportOutcome::Accepted(None));
        for code in [1, 4, 10, 11, 14, 15] {
            assert_eq!(outcome(code, None), ExportOutcome::Retry(None), "{code}");
        }
        for code in [2, 3, 5, 6, 7, 8, 9, 12, 13, 16] {
            assert_eq!(outcome(code, None), ExportOutcome::Refused, "{code}");
        }
        let mut status = Vec::new();
        wire::number(&mut status, 1, 8);
        wire::message(&mut status, 3, |out| {
            wire::text(out, 1, b"type.googleapis.com/google.rpc.RetryInfo");
            wire::message(out, 2, |out| {
                wire::message(out, 1, |out| {
                    wire::number(out, 1, 2);
                    wire::number(out, 2, 500_000_000);
                });
            });
        });
        let coded = STANDARD.encode(&status);
        assert_eq!(outcome(8, Some(&coded)), ExportOutcome::Retry(Some(2500)));
        assert_eq!(outcome(14, Some(coded.trim_end_matches('='))), ExportOutcome::Retry(Some(2500)));
        assert_eq!(outcome(14, Some("%")), ExportOutcome::Retry(None));
    }

    #[test]
    fn a_partial_success_is_reported() {
        let mut body = Vec::new();
        wire::message(&mut body, 1, |out| {
            wire::number(out, 1, 3);
            wire::text(out, 2, b"too\nold");
        });
        let expected = Rejection { rejected: 3, message: "tooold".to_owned() };
        assert_eq!(ExportOutcome::of_http(200, None, &body, 0), ExportOutcome::Accepted(Some(expected)));
        let mut empty = Vec::new();
        wire::message(&mut empty, 1, |_| {});
        assert_eq!(ExportOutcome::of_http(200, None, &empty, 0), ExportOutcome::Accepted(None));
    }

    #[test]
    fn delays_double_and_end() {
        let mut backoff = Backoff::new(60_000);
        let mut bounds = Vec::new();
        for most in [500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            let delay = backoff.delay(None, 0).expect("a delay within the limit");
            bounds.push(most / 2 <= delay && delay <= most);
        }
        assert!(bounds.iter().all(|within| *within), "{bounds:?}");
        assert_eq!(backoff.delay(Some(3000), 57_000), Some(3000));
        assert_eq!(backoff.delay(Some(3001), 57_000), None);
    }
}
