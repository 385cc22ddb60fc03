//! Parses responses of protocols that a pattern cannot describe: MySQL packets, LDAP bind responses, SPOE hellos.
//!
//! Each parser gets all data received so far. The bytes come from outside, so every length is checked before it is used.

use spop::{AgentHello, Frame, Goodbye, Status, kind};

/// The result of parsing a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerReading<'a> {
    /// Incomplete.
    Short,
    /// Good, with a message.
    Good(&'a [u8]),
    /// A failure: the status, a code, a message.
    Bad(&'static str, i32, &'a [u8]),
}

/// Parses a MySQL greeting (protocol 10), or the answer to a login after it. The message is the version in the greeting.
pub(crate) fn mysql(bytes: &[u8], after_greeting: bool) -> AnswerReading<'_> {
    let Some((greeting, rest)) = mysql_packet(bytes) else { return AnswerReading::Short };
    let packet = if after_greeting {
        let Some((packet, _)) = mysql_packet(rest) else { return AnswerReading::Short };
        packet
    } else {
        greeting
    };
    if let [0xff, error @ ..] = packet {
        // An error packet has a number and a text, which newer servers precede with a `#` and a state.
        let code = error.get(..2).map_or(0, |code| i32::from(u16::from_le_bytes([code[0], code[1]])));
        return AnswerReading::Bad("L7STS", code, error.get(2..).unwrap_or_default());
    }
    let version = greeting.get(1..).unwrap_or_default();
    let end = version.iter().position(|byte| *byte == 0).unwrap_or(version.len());
    AnswerReading::Good(&version[..end])
}

/// Returns a packet's payload, and the rest.
fn mysql_packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let [a, b, c, _number, rest @ ..] = bytes else { return None };
    let length = usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16;
    rest.split_at_checked(length)
}

const NOT_LDAP: AnswerReading<'static> = AnswerReading::Bad("L7RSP", 0, b"Not LDAPv3 protocol");

/// Parses LDAP's response to a bind with message number 1 (RFC 4511, 4.2.2), which must be a success.
pub(crate) fn ldap_bind(bytes: &[u8]) -> AnswerReading<'static> {
    let [0x30, rest @ ..] = bytes else {
        return if bytes.is_empty() { AnswerReading::Short } else { NOT_LDAP };
    };
    let message = match ber_length(rest) {
        Ok((length, rest)) => match rest.get(..length) {
            Some(message) => message,
            None => return AnswerReading::Short,
        },
        Err(reading) => return reading,
    };
    // Message number 1, then a bind response.
    let Some(response) = message.strip_prefix(b"\x02\x01\x01\x61") else { return NOT_LDAP };
    let result = match ber_length(response) {
        Ok((_, result)) => result,
        Err(_) => return NOT_LDAP,
    };
    match result {
        [0x0a, 0x01, 0, ..] => AnswerReading::Good(b"Success"),
        [0x0a, 0x01, code, ..] => AnswerReading::Bad(
            "L7STS",
            i32::from(*code),
            b"See RFC: http://tools.ietf.org/html/rfc4511#section-4.1.9",
        ),
        _ => NOT_LDAP,
    }
}

/// Parses a BER length (X.690, 8.1.3) of one byte, or of two or four after a count. Returns it and the rest.
fn ber_length(bytes: &[u8]) -> Result<(usize, &[u8]), AnswerReading<'static>> {
    let [first, rest @ ..] = bytes else { return Err(AnswerReading::Short) };
    if first & 0x80 == 0 {
        return Ok((usize::from(*first), rest));
    }
    let count = usize::from(first & 0x7f);
    if !matches!(count, 2 | 4) {
        return Err(NOT_LDAP);
    }
    let Some((digits, rest)) = rest.split_at_checked(count) else { return Err(AnswerReading::Short) };
    Ok((digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest))
}

/// The maximum size of an agent's frame in a check: longer ones are rejected.
const LARGEST_FRAME: u32 = 1 << 24;

fn spop_error(status: Status) -> AnswerReading<'static> {
    let status = if status.is_known() { status } else { Status::UNKNOWN };
    AnswerReading::Bad("L7RSP", status.0.cast_signed(), status.reason().as_bytes())
}

/// Parses a SPOE agent's hello, or its disconnect frame (SPOE, 3.2.5 and 3.2.9).
pub(crate) fn spop_hello(bytes: &[u8]) -> AnswerReading<'_> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return AnswerReading::Short };
    let length = u32::from_be_bytes(*length);
    // The fields of every frame: type, flags, stream and frame.
    if !(7..=LARGEST_FRAME).contains(&length) {
        return spop_error(Status::INVALID);
    }
    // Other types of frames are rejected before they are complete.
    let Some(start) = rest.first_chunk::<7>() else { return AnswerReading::Short };
    let (kind, flags) = (start[0], u32::from_be_bytes([start[1], start[2], start[3], start[4]]));
    // The frame must be single and final, with stream and frame number 0.
    let is_last_word = kind == kind::AGENT_DISCONNECT;
    if !(is_last_word || kind == kind::AGENT_HELLO) || flags & 1 == 0 || start[5] != 0 || start[6] != 0 {
        return spop_error(Status::INVALID);
    }
    let Some(frame) = rest.get(..length as usize) else { return AnswerReading::Short };
    let Some(Frame { payload, .. }) = Frame::read(frame) else { return spop_error(Status::INVALID) };
    if is_last_word {
        return disconnect(payload);
    }
    let hello = AgentHello::read(payload, LARGEST_FRAME);
    hello.map_or_else(spop_error, |_| AnswerReading::Good(b"SPOA server is ok"))
}

fn disconnect(payload: &[u8]) -> AnswerReading<'_> {
    match Goodbye::read(payload) {
        Err(status) => spop_error(status),
        Ok(Goodbye { status, message }) => match (message, spop_error(status)) {
            (Some(message), AnswerReading::Bad(what, code, _)) => AnswerReading::Bad(what, code, message),
            (_, reading) => reading,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_incomplete_and_changes_end_in_a_verdict() {
        let hello = b"\x00\x00\x00\x36\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x00";
        let bind =
            b"\x30\x84\x00\x00\x00\x10\x02\x01\x01\x61\x84\x00\x00\x00\x07\x0a\x01\x00\x04\x00\x04\x00";
        let login = b"\x05\x00\x00\x00\x0a8.0\x00\x07\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00";
        type Case<'a> = (&'a [u8], fn(&[u8]) -> AnswerReading<'_>);
        let cases: [Case<'_>; 3] =
            [(hello, spop_hello), (bind, |bytes| ldap_bind(bytes)), (login, |bytes| mysql(bytes, true))];
        for (answer, read) in cases {
            assert!(matches!(read(answer), AnswerReading::Good(_)), "{:?}", read(answer));
            for end in 0..answer.len() {
                assert_eq!(read(&answer[..end]), AnswerReading::Short, "{end} of {answer:?}");
            }
            // No change of it causes a panic.
            for at in 0..answer.len() {
                for byte in [0, 1, 0x7f, 0x80, 0xf0, 0xff] {
                    let mut changed = answer.to_vec();
                    changed[at] = byte;
                    let _ = read(&changed);
                }
            }
        }
    }

    #[test]
    fn refusals_report_code_and_text() {
        assert_eq!(
            mysql(b"\x08\x00\x00\x00\xff\xe3\x04Denied", false),
            AnswerReading::Bad("L7STS", 1251, b"Denie")
        );
        let refused = ldap_bind(b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x01\x04\x00\x04\x00");
        assert!(matches!(refused, AnswerReading::Bad("L7STS", 1, _)), "{refused:?}");
        assert_eq!(ldap_bind(b"\x30\x0c\x02\x01\x01\x60\x07\x0a\x01\x00\x04\x00\x04\x00"), NOT_LDAP);
        let version = b"\x00\x00\x00\x14\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x031.0";
        assert_eq!(spop_hello(version), AnswerReading::Bad("L7RSP", 8, b"unsupported version"));
        assert_eq!(spop_hello(&[0; 4]), AnswerReading::Bad("L7RSP", 4, b"invalid frame received"));
    }
}
