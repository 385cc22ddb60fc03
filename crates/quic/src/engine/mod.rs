//! The protocol engine: `quinn-proto`. No other module names it.

pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod congestion;
pub(crate) mod connection;
pub(crate) mod crypto;
pub(crate) mod endpoint;

use std::net::{IpAddr, SocketAddr};

/// Input for a connection, from its endpoint.
pub struct ConnectionInput(pub(crate) quinn_proto::ConnectionEvent);

/// Input for an endpoint, from a connection.
pub struct EndpointInput(pub(crate) quinn_proto::EndpointEvent);

impl EndpointInput {
    /// Whether the connection is over and its handle becomes free.
    pub fn is_end(&self) -> bool {
        self.0.is_drained()
    }
}

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

    fn of_engine(ecn: quinn_proto::EcnCodepoint) -> Option<Self> {
        Self::from_bits(ecn as u8)
    }

    fn to_engine(self) -> Option<quinn_proto::EcnCodepoint> {
        quinn_proto::EcnCodepoint::from_bits(self.bits())
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

impl Transmit {
    fn of_engine(transmit: &quinn_proto::Transmit) -> Self {
        Self {
            destination: transmit.destination,
            source: transmit.src_ip,
            ecn: transmit.ecn.and_then(Ecn::of_engine),
            length: transmit.size,
            segment: transmit.segment_size,
        }
    }
}
