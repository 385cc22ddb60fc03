//! Extracts facts from a server's first unencrypted messages before TLS 1.3 that OpenSSL does not keep.

use crate::record::{self, HANDSHAKE};

const SERVER_KEY_EXCHANGE: u8 = 12;
const NAMED_CURVE: u8 = 3;

/// Returns the key exchange group (RFC 8422, 5.4) if a record begins with that message. OpenSSL servers begin a new record for
/// each of these messages. Other servers may not, in which case the group is unknown.
pub(super) fn group(mut records: &[u8]) -> Option<u16> {
    while let Ok(Some(framed)) = record::frame(records) {
        let (one, rest) = records.split_at_checked(framed.length)?;
        if framed.content != HANDSHAKE {
            return None;
        }
        let mut messages = one.get(record::HEADER..)?;
        while let [kind, a, b, c, body @ ..] = messages {
            if let (SERVER_KEY_EXCHANGE, [NAMED_CURVE, high, low, ..]) = (*kind, body) {
                return Some(u16::from_be_bytes([*high, *low]));
            }
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            messages = body.get(length..).unwrap_or_default();
        }
        records = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_after_other_messages() {
        let exchange = [12, 0, 0, 4, 3, 0, 29, 0];
        let record = |payload: &[u8]| [&[HANDSHAKE, 3, 1, 0, payload.len() as u8], payload].concat();
        let hello = [2, 0, 0, 2, 9, 9];
        let joint = record(&[&hello[..], &exchange].concat());
        let apart = [record(&hello), record(&exchange)].concat();
        for (records, expected) in [
            (&joint, Some(29)),
            (&apart, Some(29)),
            (&record(&hello), None),
            (&record(&[12, 0, 0, 4, 1, 0, 29, 0]), None),
            (&record(&[2, 0xff, 0xff, 0xff, 12, 0]), None),
            (&Vec::new(), None),
        ] {
            assert_eq!(group(records), expected, "{records:?}");
            for end in 0..records.len() {
                let _ = group(&records[..end]);
            }
        }
    }
}
