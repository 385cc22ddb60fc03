//! Datagrams to send, and their ECN marks.

use std::net::{IpAddr, SocketAddr};

/// A mark for congestion without loss (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// ECT(0).
    Capable0,
    /// ECT(1).
    Capable1,
    /// CE.
    Congestion,
}

impl Ecn {
    /// Returns the mark of the two low bits of an IP header's traffic class.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0b11 {
            0b10 => Some(Self::Capable0),
            0b01 => Some(Self::Capable1),
            0b11 => Some(Self::Congestion),
            _ => None,
        }
    }

    /// Returns the two bits.
    pub fn bits(self) -> u8 {
        match self {
            Self::Capable0 => 0b10,
            Self::Capable1 => 0b01,
            Self::Congestion => 0b11,
        }
    }
}

/// Datagrams to send to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver.
    pub destination: SocketAddr,
    /// The local address to send from.
    pub source: Option<IpAddr>,
    /// The mark.
    pub ecn: Option<Ecn>,
    /// The number of bytes at the end of the caller's buffer.
    pub length: usize,
    /// The length of each datagram except the last one, if there are several.
    pub segment: Option<usize>,
}
