//! Matches addresses against networks. For each address family, one trie finds the smallest network that contains an
//! address in a few steps, however many networks there are.

use std::net::IpAddr;

use base::network::Network;
use prefix_trie::PrefixMap;

use super::entries::{LineSlot, Texts};
use crate::value::embedded_ip4;

/// Networks by address family.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    v4: PrefixMap<(u32, u8), LineSlot>,
    v6: PrefixMap<(u128, u8), LineSlot>,
    /// IPv4 networks with non-contiguous masks: address, mask.
    odd: Vec<(u32, u32, LineSlot)>,
    /// Duplicates of networks, in list order.
    again: Vec<LineSlot>,
}

/// Parses a network; the error describes the invalid pattern.
fn parse(pattern: &[u8]) -> Result<Network, String> {
    let text = String::from_utf8_lossy(pattern);
    let parsed = Network::parse(&text).ok().or_else(|| Network::parse(&full_ip4(&text)?).ok());
    parsed.ok_or_else(|| format!("`{text}` is not a valid IPv4 or IPv6 address"))
}

/// Expands the short notation of IPv4 addresses (manual, 7.1.6): `10.12/8` becomes `10.0.0.12/8`. Octets may begin with zeros.
fn full_ip4(text: &str) -> Option<String> {
    let (address, mask) = text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
    let octets: Vec<u8> = address.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (last, first) = octets.split_last().filter(|(_, first)| first.len() < 4)?;
    let mut full = [0; 4];
    full[..first.len()].copy_from_slice(first);
    full[3] = *last;
    let address = std::net::Ipv4Addr::from(full);
    Some(mask.map_or(address.to_string(), |mask| format!("{address}/{mask}")))
}

/// The prefix length of a contiguous mask.
fn length_of(mask: u32) -> Option<u8> {
    (mask.leading_ones() == mask.count_ones()).then(|| mask.leading_ones() as u8)
}

impl Networks {
    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) -> Result<(), String> {
        let before = match parse(texts.text(slot))? {
            Network::V4 { address, mask } => match length_of(mask) {
                Some(length) => {
                    let key = (address, length);
                    let before = self.v4.get(&key).copied();
                    if before.is_none() {
                        self.v4.insert(key, slot);
                    }
                    before
                }
                None => {
                    self.odd.push((address & mask, mask, slot));
                    None
                }
            },
            Network::V6 { address, length } => {
                let before = self.v6.get(&(address, length)).copied();
                if before.is_none() {
                    self.v6.insert((address, length), slot);
                }
                before
            }
        };
        if before.is_some() {
            self.again.push(slot);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        if let Some(at) = self.again.iter().position(|other| *other == slot) {
            self.again.remove(at);
            return;
        }
        self.odd.retain(|(_, _, other)| *other != slot);
        let Ok(network) = parse(texts.text(slot)) else { return };
        match network {
            Network::V4 { address, mask } => {
                let Some(length) = length_of(mask) else { return };
                if self.v4.get(&(address, length)) == Some(&slot) {
                    self.v4.remove(&(address, length));
                }
            }
            Network::V6 { address, length } => {
                if self.v6.get(&(address, length)) == Some(&slot) {
                    self.v6.remove(&(address, length));
                }
            }
        }
        // A duplicate replaces the removed network.
        let same = |other: &LineSlot| parse(texts.text(*other)).is_ok_and(|other| other == network);
        if let Some(at) = self.again.iter().position(same) {
            let next = self.again.remove(at);
            let _ = self.insert(next, texts);
        }
    }

    #[inline]
    pub(crate) fn find(&self, address: IpAddr) -> Option<LineSlot> {
        match address {
            IpAddr::V4(v4) => {
                self.find_v4(u32::from(v4)).or_else(|| self.find_v6(u128::from(v4.to_ipv6_mapped())))
            }
            IpAddr::V6(v6) => {
                let mapped = || embedded_ip4(v6).and_then(|v4| self.find_v4(u32::from(v4)));
                self.find_v6(u128::from(v6)).or_else(mapped)
            }
        }
    }

    fn find_v4(&self, address: u32) -> Option<LineSlot> {
        let found = self.v4.get_lpm(&(address, 32)).map(|(_, slot)| *slot);
        found.or_else(|| {
            let odd = self.odd.iter().find(|(network, mask, _)| address & mask == *network);
            odd.map(|(_, _, slot)| *slot)
        })
    }

    fn find_v6(&self, address: u128) -> Option<LineSlot> {
        self.v6.get_lpm(&(address, 128)).map(|(_, slot)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ipv4_addresses_are_filled_in_the_middle() {
        let cases = [
            ("10.12/8", "10.0.0.12/8"),
            ("10/8", "0.0.0.10/8"),
            ("192.168.1", "192.168.0.1"),
            ("127.1", "127.0.0.1"),
            ("127.000.000.001", "127.0.0.1"),
            ("0/0", "0.0.0.0/0"),
        ];
        for (short, full) in cases {
            assert_eq!(full_ip4(short).as_deref(), Some(full));
            assert_eq!(parse(short.as_bytes()), parse(full.as_bytes()), "{short}");
        }
        for wrong in ["10.0.0.256", "10.0.0.0.1", "10.", "fe80::1", "x", ""] {
            assert_eq!(full_ip4(wrong), None, "{wrong}");
        }
    }
}
