//! The text form of stick table keys, for the runtime socket and scripts.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::layout::KeyType;

impl KeyType {
    /// Parses a key, which may contain placeholders of bytes ([`base::raw`]).
    ///
    /// # Errors
    /// The runtime socket's message for an invalid one.
    pub fn key_of(self, word: &str) -> Result<Vec<u8>, String> {
        // Like HAProxy, a negative number is the same key as its two's complement.
        let leading = |text: &str| {
            let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let number = text[..digits].parse::<u64>().unwrap_or(0) as u32;
            if is_negative { number.wrapping_neg() } else { number }
        };
        match self {
            Self::Ip4 => match (word.parse::<Ipv4Addr>(), word.parse::<Ipv6Addr>().ok()) {
                (Ok(address), _) => Ok(address.octets().to_vec()),
                (_, Some(address)) if address.to_ipv4().is_some() => {
                    Ok(address.to_ipv4().unwrap_or(Ipv4Addr::UNSPECIFIED).octets().to_vec())
                }
                _ => Err("Invalid key".into()),
            },
            Self::Ip6 => match (word.parse::<Ipv6Addr>(), word.parse::<Ipv4Addr>()) {
                (Ok(address), _) => Ok(address.octets().to_vec()),
                (_, Ok(address)) => Ok(address.to_ipv6_mapped().octets().to_vec()),
                _ => Err("Invalid key".into()),
            },
            Self::Int => Ok(leading(word).to_be_bytes().to_vec()),
            Self::Str => Ok(base::raw::bytes_of(word).into_owned()),
            Self::Bin => Err(
                "Inserting keys into tables of type other than ip, ipv6, string and integer is not supported"
                    .into(),
            ),
        }
    }

    /// Formats an address or a number, or `None` for keys of other types.
    pub fn written(self, key: &[u8]) -> Option<String> {
        Some(match self {
            Self::Ip4 => Ipv4Addr::from(<[u8; 4]>::try_from(key).ok()?).to_string(),
            Self::Ip6 => Ipv6Addr::from(<[u8; 16]>::try_from(key).ok()?).to_string(),
            Self::Int => u32::from_be_bytes(<[u8; 4]>::try_from(key).ok()?).to_string(),
            Self::Str | Self::Bin => return None,
        })
    }
}
