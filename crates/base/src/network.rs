//! IPv4 and IPv6 networks in ACLs, `src` patterns, `forwardfor except` and the like: an address with an optional prefix length or,
//! for IPv4, a dotted mask.
//!
//! Host names are not resolved here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: its address with the bits outside the mask cleared, and the mask.
///
/// An IPv4 mask need not be contiguous (`10.0.0.1/255.0.0.255` is allowed), so the mask itself is stored instead of a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4 address and mask, both in host order.
    V4 {
        /// Masked address.
        address: u32,
        /// The significant bits.
        mask: u32,
    },
    /// IPv6 address and prefix length.
    V6 {
        /// Masked address.
        address: u128,
        /// Prefix length, 0 to 128.
        length: u8,
    },
}

/// An error in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkError {
    /// The part before the slash is not an IP address.
    Address,
    /// The part after the slash is neither a length in range nor a mask.
    Mask,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "not an IPv4 or IPv6 address",
            Self::Mask => "not a prefix length or a network mask",
        })
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// Parses `192.0.2.0/24`, `192.0.2.0/255.255.255.0` or `192.0.2.1`; short IPv4 forms such as `10.1/16` are refused.
    pub fn parse(text: &str) -> Result<Self, NetworkError> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            let mask = mask.map_or(Ok(u32::MAX), parse_v4_mask)?;
            return Ok(Self::V4 { address: u32::from(address) & mask, mask });
        }
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let address = bare.parse::<Ipv6Addr>().map_err(|_| NetworkError::Address)?;
        let length = match mask {
            None => 128,
            Some(mask) => small_number(mask).filter(|length| *length <= 128).ok_or(NetworkError::Mask)?,
        };
        Ok(Self::V6 { address: u128::from(address) & v6_mask(length), length })
    }

    /// The network that contains only `address`.
    pub fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::V4 { address: v4.into(), mask: u32::MAX },
            IpAddr::V6(v6) => Self::V6 { address: v6.into(), length: 128 },
        }
    }

    /// Whether the network contains `address`. An IPv4 network also contains the mapped (`::ffff:0:0/96`) form of its addresses,
    /// and an IPv6 network below `::ffff:0:0/96` the IPv4 addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (*self, address) {
            (Self::V4 { address, mask }, IpAddr::V4(v4)) => u32::from(v4) & mask == address,
            (Self::V4 { .. }, IpAddr::V6(v6)) => {
                v6.to_ipv4_mapped().is_some_and(|v4| self.contains(IpAddr::V4(v4)))
            }
            (Self::V6 { address, length }, IpAddr::V6(v6)) => u128::from(v6) & v6_mask(length) == address,
            (Self::V6 { length, .. }, IpAddr::V4(v4)) if length >= 96 => {
                self.contains(IpAddr::V6(v4.to_ipv6_mapped()))
            }
            (Self::V6 { .. }, IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4 { address, mask } if mask.leading_ones() == mask.count_ones() => {
                write!(f, "{}/{}", Ipv4Addr::from(address), mask.count_ones())
            }
            Self::V4 { address, mask } => write!(f, "{}/{}", Ipv4Addr::from(address), Ipv4Addr::from(mask)),
            Self::V6 { address, length } => write!(f, "{}/{length}", Ipv6Addr::from(address)),
        }
    }
}

/// Parses an IPv4 mask: a length from 0 to 32 or a dotted mask.
pub fn parse_v4_mask(text: &str) -> Result<u32, NetworkError> {
    if let Some(length) = small_number(text).filter(|length| *length <= 32) {
        return Ok(u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0));
    }
    text.parse::<Ipv4Addr>().map(u32::from).map_err(|_| NetworkError::Mask)
}

fn small_number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn v6_mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let cases: &[(&str, &str, bool)] = &[
            ("192.0.2.0/24", "192.0.2.77", true),
            ("192.0.2.0/24", "192.0.3.77", false),
            ("192.0.2.99/24", "192.0.2.1", true),
            ("192.0.2.0/255.255.255.0", "192.0.2.1", true),
            ("10.0.0.1/255.0.0.255", "10.7.8.1", true),
            ("10.0.0.1/255.0.0.255", "10.7.8.2", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::/32", "2001:db8:1::7", true),
            ("2001:db8::/32", "2001:db9::7", false),
            ("::/0", "::1", true),
            ("::/0", "127.0.0.1", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
        ];
        for (network, address, holds) in cases {
            let parsed = Network::parse(network).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), *holds, "{network} {address}");
        }
    }

    #[test]
    fn invalid_networks_are_refused() {
        let cases = [
            ("", NetworkError::Address),
            ("10.1", NetworkError::Address),
            ("example.com", NetworkError::Address),
            ("10.0.0.0/33", NetworkError::Mask),
            ("10.0.0.0/+8", NetworkError::Mask),
            ("10.0.0.0/", NetworkError::Mask),
            ("::/129", NetworkError::Mask),
            ("::/255.0.0.0", NetworkError::Mask),
        ];
        for (text, error) in cases {
            assert_eq!(Network::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn networks_round_trip() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "10.0.0.1/255.0.0.255", "2001:db8::/32", "::/0"] {
            assert_eq!(Network::parse(text).unwrap().to_string(), text);
        }
    }
}
