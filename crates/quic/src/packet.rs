//! Packet headers (RFC 9000, 17) and packet numbers.

use std::ops::Range;

use crate::connection_id::{CONNECTION_ID_LENGTH, ConnectionId};
use crate::varint::{self, Reader};

/// QUIC version 1.
pub(crate) const VERSION_1: u32 = 1;

/// The bit of packets that have a long header.
pub(crate) const LONG_HEADER: u8 = 0x80;
/// The bit that is set in all packets of version 1.
pub(crate) const FIXED_BIT: u8 = 0x40;
/// The bit of 1-RTT packets that changes with each key update.
pub(crate) const KEY_PHASE: u8 = 0x04;
/// The reserved bits, after header protection was removed.
pub(crate) const RESERVED_LONG: u8 = 0x0c;
pub(crate) const RESERVED_SHORT: u8 = 0x18;

/// The length of the integrity tag in a Retry packet.
pub(crate) const RETRY_TAG: usize = 16;

/// The type of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketKind {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    VersionNegotiation,
    OneRtt,
}

/// The unprotected part of a packet's header. Positions count from the start of the datagram.
#[derive(Debug, Clone)]
pub(crate) struct PacketHeader {
    pub(crate) kind: PacketKind,
    pub(crate) destination: ConnectionId,
    /// Empty in 1-RTT packets, which have none.
    pub(crate) source: ConnectionId,
    /// The token of Initial and Retry packets.
    pub(crate) token: Range<usize>,
    pub(crate) start: usize,
    /// The position of the packet number.
    pub(crate) number_at: usize,
    /// The end of the packet.
    pub(crate) end: usize,
}

impl PacketHeader {
    /// Reads the header of the packet at `start`. 1-RTT packets have connection IDs of `own_length` bytes, ours.
    ///
    /// Returns `None` if the header is malformed, or of an unknown version: the rest of the datagram has no meaning then.
    pub(crate) fn read(datagram: &[u8], start: usize, own_length: usize) -> Option<Self> {
        let mut reader = Reader(datagram.get(start..)?);
        let first = reader.byte()?;
        if first & LONG_HEADER == 0 {
            if first & FIXED_BIT == 0 {
                return None;
            }
            let destination = ConnectionId::new(reader.bytes(own_length)?)?;
            return Some(Self {
                kind: PacketKind::OneRtt,
                destination,
                source: ConnectionId::default(),
                token: 0..0,
                start,
                number_at: start + 1 + own_length,
                end: datagram.len(),
            });
        }
        let version = u32::from_be_bytes(reader.array()?);
        let destination = length_prefixed(&mut reader)?;
        let source = length_prefixed(&mut reader)?;
        let position = |reader: &Reader<'_>| datagram.len() - reader.0.len();
        let mut header = Self {
            kind: PacketKind::VersionNegotiation,
            destination,
            source,
            token: 0..0,
            start,
            number_at: position(&reader),
            end: datagram.len(),
        };
        if version == 0 {
            return Some(header);
        }
        if version != VERSION_1 || first & FIXED_BIT == 0 {
            return None;
        }
        header.kind = match first >> 4 & 0b11 {
            0 => PacketKind::Initial,
            1 => PacketKind::ZeroRtt,
            2 => PacketKind::Handshake,
            _ => {
                header.kind = PacketKind::Retry;
                header.token = header.number_at..datagram.len().checked_sub(RETRY_TAG)?;
                return (header.token.start <= header.token.end).then_some(header);
            }
        };
        if header.kind == PacketKind::Initial {
            let token = reader.prefixed()?;
            let end = position(&reader);
            header.token = end - token.len()..end;
        }
        let length = usize::try_from(reader.number()?).ok()?;
        header.number_at = position(&reader);
        header.end = header.number_at.checked_add(length).filter(|end| *end <= datagram.len())?;
        Some(header)
    }
}

fn length_prefixed(reader: &mut Reader<'_>) -> Option<ConnectionId> {
    let length = usize::from(reader.byte()?);
    ConnectionId::new(reader.bytes(length)?)
}

/// Restores a packet number from its `length` low bytes; `expected` is the largest one received so far plus one (RFC 9000, A.3).
pub(crate) fn expand(truncated: u64, length: usize, expected: u64) -> u64 {
    let window = 1_u64 << (8 * length);
    let candidate = (expected & !(window - 1)) | truncated;
    if candidate + window / 2 <= expected && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// Returns the number of bytes in which `number` is unambiguous for a peer that has acknowledged `acknowledged`.
pub(crate) fn number_length(number: u64, acknowledged: Option<u64>) -> usize {
    let distance = acknowledged.map_or(number + 1, |acknowledged| number - acknowledged);
    match distance.saturating_mul(2) {
        0..0x1_0000 => 2,
        0x1_0000..0x100_0000 => 3,
        _ => 4,
    }
}

/// Appends a long header without the packet number, with room for a length of two bytes if the packet has one. Returns the position of
/// the length.
pub(crate) fn write_long(
    out: &mut Vec<u8>,
    kind: PacketKind,
    destination: &[u8],
    source: &[u8],
    token: &[u8],
) -> usize {
    let bits = match kind {
        PacketKind::Initial => 0x00,
        PacketKind::ZeroRtt => 0x10,
        PacketKind::Handshake => 0x20,
        PacketKind::Retry | PacketKind::VersionNegotiation | PacketKind::OneRtt => 0x30,
    };
    out.push(LONG_HEADER | FIXED_BIT | bits);
    out.extend_from_slice(&VERSION_1.to_be_bytes());
    for id in [destination, source] {
        // Cannot truncate: IDs have at most 20 bytes.
        out.push(id.len() as u8);
        out.extend_from_slice(id);
    }
    match kind {
        PacketKind::Initial => {
            varint::write(out, token.len() as u64);
            out.extend_from_slice(token);
        }
        PacketKind::Retry => {
            out.extend_from_slice(token);
            return out.len();
        }
        PacketKind::ZeroRtt | PacketKind::Handshake | PacketKind::VersionNegotiation | PacketKind::OneRtt => {
        }
    }
    let at = out.len();
    out.extend_from_slice(&[0x40, 0]);
    at
}

/// Appends the low `length` bytes of a packet number, and sets the bits for their number in the packet's first byte.
pub(crate) fn write_number(out: &mut Vec<u8>, start: usize, number: u64, length: usize) {
    // Cannot truncate: the length is at most 4.
    out[start] |= length as u8 - 1;
    out.extend_from_slice(&number.to_be_bytes()[8 - length..]);
}

/// Returns the destination of a datagram's first packet, for demultiplexing. `None` if it cannot belong to a connection.
pub(crate) fn destination(datagram: &[u8]) -> Option<ConnectionId> {
    let mut reader = Reader(datagram);
    let first = reader.byte()?;
    if first & LONG_HEADER == 0 {
        return ConnectionId::new(reader.bytes(CONNECTION_ID_LENGTH)?);
    }
    reader.bytes(4)?;
    length_prefixed(&mut reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_numbers_are_restored() {
        assert_eq!(expand(0x9b32, 2, 0xa82f_30eb), 0xa82f_9b32, "RFC 9000, A.3");
        for expected in [0_u64, 1, 127, 128, 200, 255, 256, 65_535, 1 << 24, 1 << 40] {
            for number in [expected, expected + 100, expected.saturating_sub(100)] {
                assert_eq!(expand(number & 0xff, 1, expected), number, "{expected} {number}");
            }
        }
    }

    #[test]
    fn numbers_take_as_many_bytes_as_the_peer_needs() {
        for (number, acknowledged, length) in [
            (0, None, 2),
            (0xac_5c02, Some(0xab_e8b3), 2),
            (0xac_e8fe, Some(0xab_e8b3), 3),
            (1 << 30, Some(0), 4),
        ] {
            assert_eq!(number_length(number, acknowledged), length, "{number:x}");
        }
    }

    #[test]
    fn long_headers_are_read_as_written() {
        for kind in [PacketKind::Initial, PacketKind::ZeroRtt, PacketKind::Handshake] {
            let mut out = vec![0xff; 3];
            let at = write_long(&mut out, kind, &[1; 8], &[2; 5], b"token");
            out[at + 1] = 30;
            write_number(&mut out, 3, 0x1234, 2);
            out.resize(out.len() + 28 + 7, 0);
            let header = PacketHeader::read(&out, 3, 8).expect("a header");
            assert_eq!(header.kind, kind);
            assert_eq!((&*header.destination, &*header.source), (&[1; 8][..], &[2; 5][..]));
            assert_eq!((header.number_at, header.end), (at + 2, out.len() - 7));
            let token: &[u8] = if kind == PacketKind::Initial { b"token" } else { b"" };
            assert_eq!(&out[header.token], token);
            assert!(PacketHeader::read(&out[..out.len() - 8], 3, 8).is_none(), "cut");
        }
    }
}
