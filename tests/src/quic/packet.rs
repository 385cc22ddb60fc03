//! Packets: protection and its removal (RFC 9000, 17; RFC 9001, 5).

use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKey, Suite, Version};

use super::frame;

/// The packet number spaces, which are also the kinds of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the RFC")]
pub enum Space {
    Initial,
    Handshake,
    OneRtt,
}

/// QUIC version 1.
pub const VERSION_1: u32 = 1;

/// The length of a packet number, and of the sample behind it.
const NUMBER: usize = 4;
const SAMPLE: usize = 16;
const TAG: usize = 16;

/// The cipher suite of Initial packets.
pub fn suite() -> Suite {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    suite.tls13().and_then(|suite| suite.quic_suite()).expect("the suite of Initial packets")
}

/// The keys of Initial packets, for the ID that the client chose for the server.
pub fn initial_keys(id: &[u8]) -> Keys {
    suite().keys(id, rustls::Side::Client, Version::V1)
}

/// The addressing of a packet.
#[derive(Debug, Clone)]
pub struct Header<'a> {
    /// The kind.
    pub space: Space,
    /// The version, except of short headers.
    pub version: u32,
    /// The receiver's ID.
    pub to: &'a [u8],
    /// The sender's ID, except of short headers.
    pub from: &'a [u8],
    /// The token of an Initial packet.
    pub token: &'a [u8],
    /// The packet number.
    pub number: u64,
    /// Bits to set in the first byte; bit 0x40 is inverted.
    pub bits: u8,
}

/// Assembles a protected packet.
pub fn protect(header: &Header<'_>, keys: &DirectionalKeys, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let mut packet = Vec::with_capacity(payload.len() + 100);
    match header.space {
        Space::OneRtt => {
            packet.push(0x43);
            packet.extend_from_slice(header.to);
        }
        Space::Initial | Space::Handshake => {
            packet.push(if header.space == Space::Initial { 0xc3 } else { 0xe3 });
            packet.extend_from_slice(&header.version.to_be_bytes());
            for id in [header.to, header.from] {
                packet.push(id.len() as u8);
                packet.extend_from_slice(id);
            }
            if header.space == Space::Initial {
                frame::put(&mut packet, header.token.len() as u64);
                packet.extend_from_slice(header.token);
            }
            let length = NUMBER + payload.len() + TAG;
            packet.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes());
        }
    }
    packet[0] ^= header.bits;
    let start = packet.len();
    packet.extend_from_slice(&(header.number as u32).to_be_bytes());
    let tag = keys.packet.encrypt_in_place(header.number, &packet, &mut payload).expect("encryption works");
    packet.extend_from_slice(&payload);
    packet.extend_from_slice(tag.as_ref());
    let sample = packet[start + NUMBER..start + NUMBER + SAMPLE].to_vec();
    let (head, rest) = packet.split_at_mut(start);
    keys.header
        .encrypt_in_place(&sample, &mut head[0], &mut rest[..NUMBER])
        .expect("header protection works");
    packet
}

/// A packet as received, protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protected {
    /// A packet of a space, with the sender's ID, the position of its packet number, and its bytes.
    Packet(Space, Vec<u8>, usize, Vec<u8>),
    /// Retry, with the sender's ID and the token.
    Retry(Vec<u8>, Vec<u8>),
    /// Version Negotiation, with the receiver's ID, the sender's ID and the versions.
    Versions(Vec<u8>, Vec<u8>, Vec<u32>),
}

/// Splits a datagram into packets. `length` is the length of the receiver's ID in short headers.
pub fn split(mut datagram: &[u8], length: usize) -> Vec<Protected> {
    let mut all = Vec::new();
    while let Some((packet, rest)) = next(datagram, length) {
        all.push(packet);
        datagram = rest;
    }
    all
}

fn next(datagram: &[u8], length: usize) -> Option<(Protected, &[u8])> {
    let first = *datagram.first()?;
    if first & 0x80 == 0 {
        let packet = Protected::Packet(Space::OneRtt, Vec::new(), 1 + length, datagram.to_vec());
        return Some((packet, &[]));
    }
    let mut rest = datagram.get(5..)?;
    let version = u32::from_be_bytes(datagram[1..5].try_into().ok()?);
    let mut id = || {
        let (length, behind) = rest.split_first()?;
        let (id, behind) = behind.split_at_checked(usize::from(*length))?;
        rest = behind;
        Some(id.to_vec())
    };
    let (to, from) = (id()?, id()?);
    if version == 0 {
        let versions =
            rest.chunks_exact(4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")));
        return Some((Protected::Versions(to, from, versions.collect()), &[]));
    }
    let space = match first >> 4 & 3 {
        0 => Space::Initial,
        2 => Space::Handshake,
        3 => {
            let token = rest.get(..rest.len().checked_sub(TAG)?)?;
            return Some((Protected::Retry(from, token.to_vec()), &[]));
        }
        _ => return None,
    };
    if space == Space::Initial {
        let length = frame::take(&mut rest)?;
        rest = rest.get(usize::try_from(length).ok()?..)?;
    }
    let length = usize::try_from(frame::take(&mut rest)?).ok()?;
    let at = datagram.len() - rest.len();
    let packet = datagram.get(..at + length)?;
    Some((Protected::Packet(space, from, at, packet.to_vec()), &datagram[at + length..]))
}

/// Removes the protection of a packet, with the keys for its header and payload; returns its number and payload. `largest` is the
/// largest number received so far.
pub fn open(
    (header, key): (&dyn HeaderProtectionKey, &dyn PacketKey),
    at: usize,
    packet: &[u8],
    largest: u64,
) -> Option<(u64, Vec<u8>)> {
    let mut packet = packet.to_vec();
    let sample = packet.get(at + NUMBER..at + NUMBER + SAMPLE)?.to_vec();
    let (head, rest) = packet.split_at_mut(at);
    header.decrypt_in_place(&sample, &mut head[0], rest.get_mut(..NUMBER)?).ok()?;
    let length = usize::from(packet[0] & 3) + 1;
    let short = packet[at..at + length].iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let (window, expected) = (1_u64 << (8 * length), largest + 1);
    let candidate = (expected & !(window - 1)) | short;
    let number = if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    };
    let (head, payload) = packet.split_at_mut(at + length);
    let opened = key.decrypt_in_place(number, head, payload).ok()?;
    Some((number, opened.to_vec()))
}
