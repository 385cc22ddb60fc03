//! The anonymized mode of a connection (`set anon`; management manual, 9.3). Names and addresses are replaced by 24 bits of a hash
//! that depends on the connection's key, so that equal names remain equal. The hash function is HAProxy's.

use std::borrow::Cow;
use std::net::IpAddr;

use base::hash::xxh32;

/// The key of a connection; 0 means that output is not anonymized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anonymous(u32);

impl Anonymous {
    /// Anonymizes with this key.
    pub fn with_key(key: u32) -> Self {
        Self(key)
    }

    /// The key.
    pub(crate) fn key(self) -> u32 {
        self.0
    }

    /// A name, or its replacement.
    pub fn word<'a>(self, word: &'a str) -> Cow<'a, str> {
        match (self.0, word) {
            (0, _) | (_, "" | " ") => Cow::Borrowed(word),
            (key, _) => Cow::Owned(format!("{:06x}", xxh32(word.as_bytes(), key) & 0xff_ffff)),
        }
    }

    /// An address with an optional port, or its replacement. Local addresses are not replaced.
    pub fn address<'a>(self, address: &'a str) -> Cow<'a, str> {
        // A port alone reveals nothing.
        if self.0 == 0 || address.starts_with(':') || address.starts_with("*:") {
            return Cow::Borrowed(address);
        }
        let (ip, port) = match address.parse::<std::net::SocketAddr>() {
            Ok(socket) => (socket.ip(), format!(":{}", socket.port())),
            Err(_) => match address.parse::<IpAddr>() {
                Ok(ip) => (ip, String::new()),
                // A path, or a name.
                Err(_) if address == "-" => return Cow::Borrowed(address),
                Err(_) => return self.word(address),
            },
        };
        let own = match ip {
            IpAddr::V4(ip) => matches!(ip.octets()[0], 0 | 127 | 255),
            IpAddr::V6(ip) => ip.is_loopback(),
        };
        if own {
            return Cow::Borrowed(address);
        }
        let family = if ip.is_ipv4() { "IPV4" } else { "IPV6" };
        Cow::Owned(format!("{family}({}){port}", self.word(&ip.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_hashed_as_haproxy_does() {
        let anonymous = Anonymous(1234);
        for (word, shown) in
            [("foo", "e311e9"), ("bar", "45d45b"), ("be", "ef0d7f"), ("GLOBAL", "1c73fd"), ("", "")]
        {
            assert_eq!(anonymous.word(word), shown);
            assert_eq!(Anonymous::default().word(word), word);
        }
        for address in ["127.0.0.1", "127.0.0.1:80", "0.0.0.0:80", "::1", "[::1]:80", "-"] {
            assert_eq!(anonymous.address(address), address);
        }
        assert!(anonymous.address("192.0.2.1:80").starts_with("IPV4("));
        assert!(anonymous.address("192.0.2.1:80").ends_with("):80"));
        assert!(anonymous.address("2001:db8::1").starts_with("IPV6("));
        assert_eq!(anonymous.address("unix:1"), anonymous.word("unix:1"));
        assert_eq!(Anonymous::default().address("192.0.2.1"), "192.0.2.1");
    }
}
