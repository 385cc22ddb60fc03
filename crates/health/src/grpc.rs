//! Parses the response to `grpc.health.v1.Health/Check` (the gRPC health checking protocol): the head and trailers of a call (gRPC
//! over HTTP/2) and one protocol buffers message.
//!
//! The bytes come from outside, so every length is checked before it is used.

use base::protobuf::{self, FieldValue};
use http::{Head, Name};

use crate::protocol::AnswerReading;

/// The names of gRPC status codes, from 0.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The names of service states, from 0.
const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

const NO_GRPC: AnswerReading<'static> = AnswerReading::Bad("L7RSP", 0, b"gRPC: no grpc-status");
const NO_ANSWER: AnswerReading<'static> =
    AnswerReading::Bad("L7RSP", 0, b"gRPC: no answer of a health check");

/// Evaluates a complete response. If the call failed immediately, the status is in the head.
pub(crate) fn serving<'a>(head: &'a Head, trailers: &'a Head, body: &[u8]) -> AnswerReading<'a> {
    if head.status() != 200 {
        return AnswerReading::Bad("L7STS", i32::from(head.status()), head.reason());
    }
    let field = |name: &'static [u8]| {
        let name = Name::new(name);
        trailers.get(&name).or_else(|| head.get(&name))
    };
    let code = field(b"grpc-status").and_then(|code| std::str::from_utf8(code).ok()?.parse::<u16>().ok());
    match code {
        None => NO_GRPC,
        Some(0) => message(body).map_or(NO_ANSWER, state),
        Some(code) => {
            let name =
                CODES.get(usize::from(code)).map_or(&b"gRPC: an unknown code"[..], |name| name.as_bytes());
            let detail = field(b"grpc-message").filter(|message| !message.is_empty());
            AnswerReading::Bad("L7STS", i32::from(code), detail.unwrap_or(name))
        }
    }
}

/// Only SERVING means that the server is up.
fn state(state: u64) -> AnswerReading<'static> {
    let name = usize::try_from(state).ok().and_then(|state| STATES.get(state));
    match name {
        Some(&"SERVING") => AnswerReading::Good(b"SERVING"),
        Some(name) => AnswerReading::Bad("L7STS", 0, name.as_bytes()),
        None => NO_ANSWER,
    }
}

/// Returns the status in the only message of a body: field 1, a number; 0 if it is absent.
fn message(body: &[u8]) -> Option<u64> {
    let (prefix, rest) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    // Compressed responses were not requested.
    if prefix[0] != 0 || rest.len() as u64 != u64::from(length) {
        return None;
    }
    let mut status = 0;
    for field in protobuf::checked_fields(rest) {
        if let (1, FieldValue::Number(number)) = field? {
            status = number;
        }
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(status: u16, fields: &[(&str, &str)]) -> (Head, Head) {
        let (mut head, mut trailers) = (Head::new(), Head::new());
        head.start_response(status, Some(b""));
        trailers.start_response(200, None);
        for (name, value) in fields {
            trailers.append(name.as_bytes(), value.as_bytes());
        }
        (head, trailers)
    }

    #[test]
    fn only_serving_counts_as_up() {
        let (head, trailers) = heads(200, &[("grpc-status", "0")]);
        let cases: [(&[u8], AnswerReading<'_>); 9] = [
            (b"\0\0\0\0\x02\x08\x01", AnswerReading::Good(b"SERVING")),
            (b"\0\0\0\0\x06\x12\x02ab\x08\x01", AnswerReading::Good(b"SERVING")),
            (b"\0\0\0\0\x02\x08\x02", AnswerReading::Bad("L7STS", 0, b"NOT_SERVING")),
            (b"\0\0\0\0\x02\x08\x03", AnswerReading::Bad("L7STS", 0, b"SERVICE_UNKNOWN")),
            (b"\0\0\0\0\0", AnswerReading::Bad("L7STS", 0, b"UNKNOWN")),
            (b"\x01\0\0\0\x02\x08\x01", NO_ANSWER),
            (b"\0\0\0\0\x03\x08\x01", NO_ANSWER),
            (b"\0\0\0\0\x04\x08\x01\x12\x05", NO_ANSWER),
            (b"", NO_ANSWER),
        ];
        for (body, wanted) in cases {
            assert_eq!(serving(&head, &trailers, body), wanted, "{body:?}");
        }
    }

    #[test]
    fn failed_calls_report_code_and_message() {
        let fails = |status: u16, fields: &[(&str, &str)], wanted: AnswerReading<'_>| {
            let (head, trailers) = heads(status, fields);
            assert_eq!(serving(&head, &trailers, b""), wanted, "{fields:?}");
        };
        fails(503, &[], AnswerReading::Bad("L7STS", 503, b""));
        fails(200, &[], NO_GRPC);
        fails(200, &[("grpc-status", "12")], AnswerReading::Bad("L7STS", 12, b"UNIMPLEMENTED"));
        fails(
            200,
            &[("grpc-status", "5"), ("grpc-message", "none")],
            AnswerReading::Bad("L7STS", 5, b"none"),
        );
        fails(200, &[("grpc-status", "99")], AnswerReading::Bad("L7STS", 99, b"gRPC: an unknown code"));
        // In the head, if nothing else follows.
        let (mut head, trailers) = heads(200, &[]);
        head.append(b"grpc-status", b"14");
        assert_eq!(serving(&head, &trailers, b""), AnswerReading::Bad("L7STS", 14, b"UNAVAILABLE"));
    }

    #[test]
    fn arbitrary_input_never_panics() {
        let body = b"\0\0\0\0\x10\x08\x01\x12\x04abcd\x1d0000\x18\xff\x01";
        let (head, trailers) = heads(200, &[("grpc-status", "0")]);
        for at in 0..body.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = body.to_vec();
                changed[at] = byte;
                let _ = serving(&head, &trailers, &changed);
                let _ = serving(&head, &trailers, &changed[..at]);
            }
        }
    }
}
