//! The anonymized mode of a connection: `set anon`, `show anon` (management manual, 9.3). Names and addresses are shown as 24 bits of a hash that
//! is made with the connection's key, so that the same name is the same everywhere, as HAProxy makes it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use base::hash::xxh32;

use crate::command::{Call, Reply, error};

/// The key of a connection; 0 shows everything as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anonymous(u32);

impl Anonymous {
    /// That of this key.
    pub fn with_key(key: u32) -> Self {
        Self(key)
    }

    /// A name, or what stands for it.
    pub fn word<'a>(self, word: &'a str) -> Cow<'a, str> {
        match (self.0, word) {
            (0, _) | (_, "" | " ") => Cow::Borrowed(word),
            (key, _) => Cow::Owned(format!("{:06x}", xxh32(word.as_bytes(), key) & 0xff_ffff)),
        }
    }

    /// An address without or with a port, or what stands for it. Those of the own machine stay as they are.
    pub fn address<'a>(self, address: &'a str) -> Cow<'a, str> {
        // A port alone tells nothing.
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

/// A key from 1 on.
fn key(text: &str) -> Option<u32> {
    text.parse().ok().filter(|key| *key > 0)
}

pub(crate) fn on(call: &mut Call<'_>) -> Reply {
    let global = call.runtime.anonymous_key.load(Relaxed);
    let key = match call.arg(0) {
        "" if global > 0 => global,
        "" => fastrand::u32(1..),
        text => match key(text) {
            Some(key) => key,
            None => return error("Value out of range (1 to 4294967295 expected)."),
        },
    };
    call.settings.anonymous = Anonymous(key);
    Reply::Done
}

pub(crate) fn off(call: &mut Call<'_>) -> Reply {
    call.settings.anonymous = Anonymous::default();
    Reply::Done
}

pub(crate) fn global_key(call: &mut Call<'_>) -> Reply {
    match call.arg(0).parse::<u32>() {
        Ok(key) => {
            call.runtime.anonymous_key.store(key, Relaxed);
            Reply::Done
        }
        Err(_) => error("Value out of range (0 to 4294967295 expected)."),
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> Reply {
    Reply::Text(match call.settings.anonymous {
        Anonymous(0) => "Anonymized mode disabled".to_owned(),
        Anonymous(key) => format!("Anonymized mode enabled\nKey : {key}"),
    })
}

/// `debug dev hash`: what stands for a word now.
pub(crate) fn hash(call: &mut Call<'_>) -> Reply {
    Reply::Text(call.settings.anonymous.word(call.arg(0)).into_owned())
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
