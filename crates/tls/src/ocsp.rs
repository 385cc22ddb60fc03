//! Answers of OCSP responders (RFC 6960), as far as they are stapled: whether one is an answer, and says good.

/// `successful`, the only status with an answer behind it.
const SUCCESSFUL: u8 = 0;

/// The object identifier of a basic response (1.3.6.1.5.5.7.48.1.1).
const BASIC: [u8; 9] = [0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// Takes the envelope of `response` apart: whether it is a successful basic response, whole and nothing behind it.
///
/// # Errors
/// In a few words.
pub fn check(response: &[u8]) -> Result<(), &'static str> {
    let unreadable = "unable to parse the OCSP response";
    let (body, rest) = value(response, 0x30).ok_or(unreadable)?;
    let (status, body) = value(body, 0x0a).ok_or(unreadable)?;
    if !rest.is_empty() || status.len() != 1 {
        return Err(unreadable);
    }
    if status[0] != SUCCESSFUL {
        return Err("OCSP response status not successful");
    }
    let (bytes, _) = value(body, 0xa0).ok_or(unreadable)?;
    let (bytes, _) = value(bytes, 0x30).ok_or(unreadable)?;
    let (kind, bytes) = value(bytes, 0x06).ok_or(unreadable)?;
    value(bytes, 0x04).ok_or(unreadable)?;
    if kind == BASIC { Ok(()) } else { Err("OCSP response of an unknown type") }
}

/// What stands under `tag` at the front of some DER, and what stands behind it.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}
