//! Version Negotiation (RFC 8999, 6; RFC 9000, 6).

use crate::packet::VERSION_1;

/// The smallest datagram that is answered, so that a forged one is not amplified.
const DATAGRAM_MIN: usize = 1200;

/// A reserved version, so that clients do not expect the list to be fixed. The other one is for clients that asked for the first.
const RESERVED: [u32; 2] = [0x0a1a_2a3a, 0x0a1a_2a4a];

/// Appends a Version Negotiation packet to `out` if `datagram` begins with a packet of a version that we do not know; returns its
/// length. Connection IDs of other versions may have up to 255 bytes.
pub(crate) fn negotiate(datagram: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    const LONG_HEADER: u8 = 0x80;
    let [first, a, b, c, d, ids @ ..] = datagram else { return None };
    let version = u32::from_be_bytes([*a, *b, *c, *d]);
    if first & LONG_HEADER == 0 || matches!(version, 0 | VERSION_1) || datagram.len() < DATAGRAM_MIN {
        return None;
    }
    let (receiver, rest) = id(ids)?;
    let (sender, _) = id(rest)?;
    let start = out.len();
    // The second bit is that of packets of version 1, for multiplexing with other protocols (RFC 9443).
    out.extend_from_slice(&[LONG_HEADER | 0x40, 0, 0, 0, 0]);
    for id in [sender, receiver] {
        // Cannot truncate: the length was read from one byte.
        out.push(id.len() as u8);
        out.extend_from_slice(id);
    }
    let reserved = RESERVED[usize::from(version == RESERVED[0])];
    for version in [reserved, VERSION_1] {
        out.extend_from_slice(&version.to_be_bytes());
    }
    Some(out.len() - start)
}

/// Returns a connection ID with its length in front, and the bytes behind it.
fn id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(version: u32, size: usize) -> Vec<u8> {
        let mut bytes = [&[0xc0][..], &version.to_be_bytes(), &[3, 1, 2, 3, 2, 8, 9]].concat();
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn unknown_versions_are_answered_with_swapped_ids() {
        let mut out = vec![7];
        assert_eq!(negotiate(&datagram(5, 1200), &mut out), Some(20));
        assert_eq!(out[1..13], [0xc0, 0, 0, 0, 0, 2, 8, 9, 3, 1, 2, 3]);
        assert_eq!(out[13..], [0x0a, 0x1a, 0x2a, 0x3a, 0, 0, 0, 1]);
        assert_eq!(negotiate(&datagram(RESERVED[0], 1200), &mut out), Some(20));
        assert!(out.ends_with(&[0x0a, 0x1a, 0x2a, 0x4a, 0, 0, 0, 1]), "not the version of the client");
    }

    #[test]
    fn other_datagrams_are_not_answered() {
        let mut out = Vec::new();
        for bytes in
            [datagram(1, 1200), datagram(0, 1200), datagram(5, 1199), vec![0x40; 1200], vec![0x80; 3]]
        {
            assert_eq!(negotiate(&bytes, &mut out), None, "{:?}", &bytes[..3]);
        }
    }
}
