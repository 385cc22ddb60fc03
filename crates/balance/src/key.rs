//! Computes the 32-bit hash of a request's key: which part of the request is used (manual, 4.2 `balance`), and the hash function
//! (`hash-type`).
//!
//! All details are the same as in HAProxy, including the hash of an empty value, so that HAProxy and Weir send a key to the same
//! server. `proxy` passes in parts of a request; the server is chosen elsewhere.

use std::net::{IpAddr, SocketAddrV4};

use base::hash;

use crate::settings::{HashFunction, HashType, UriPart};

impl HashType {
    /// Hashes a key.
    pub fn of(&self, key: &[u8]) -> u32 {
        let hashed = match self.function {
            HashFunction::Sdbm => hash::sdbm(key),
            HashFunction::Djb2 => hash::djb2(key),
            HashFunction::Wt6 => hash::wt6(key),
            HashFunction::Crc32 => hash::crc32(key),
            HashFunction::None => number(key),
        };
        self.modified(hashed)
    }

    /// Hashes an address (`balance source`): the exclusive or of its 32-bit words, whatever the hash function is. For an IPv4
    /// address received on an IPv6 socket, this includes the mapping prefix.
    pub fn of_address(&self, ip: IpAddr) -> u32 {
        self.modified(match ip {
            IpAddr::V4(ip) => u32::from(ip),
            IpAddr::V6(ip) => {
                let bits = u128::from(ip);
                (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32
            }
        })
    }

    fn modified(&self, hashed: u32) -> u32 {
        if self.avalanche { hash::avalanche(hashed) } else { hashed }
    }
}

/// `hash-type … none`: the low 32 bits of the number at the start of the key, or 0 without a number.
fn number(key: &[u8]) -> u32 {
    let (negative, digits) = match key {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let value = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    (if negative { -value } else { value }) as u32
}

impl UriPart {
    /// The part of `target` to hash. With `path-only`, a target without a path (`*`) yields nothing.
    pub fn of<'a>(&self, target: &'a [u8]) -> &'a [u8] {
        let mut part = target;
        if self.path_only {
            part = http::uri::split(target).pathq().unwrap_or_default();
        }
        if !self.whole {
            let end = part.iter().position(|&byte| byte == b'?').unwrap_or(part.len());
            part = &part[..end];
        }
        if let Some(length) = self.length {
            part = &part[..part.len().min(length)];
        }
        if let Some(depth) = self.depth {
            let mut slashes = part.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            if let Some(end) = slashes.nth(depth) {
                part = &part[..end];
            }
        }
        part
    }
}

/// The value of a parameter in a query string (`balance url_param`). It may be empty.
pub fn parameter<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    query.split(|&byte| byte == b'&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
}

/// The value of a parameter in the body of a POST (`check_post`). It also ends at white space. There is none if the body has bytes
/// that are invalid in encoded forms.
pub fn posted_parameter<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = parameter(body, name)?;
    match value.iter().position(|&byte| !http::is_token(&[byte])) {
        None => Some(value),
        Some(end) if matches!(value[end], b' ' | b'\t' | b'\r' | b'\n') => Some(&value[..end]),
        Some(_) => None,
    }
}

/// The label before the last dot (`use_domain_only`): `1wt` for `haproxy.1wt.eu`. Without a dot, the whole name.
pub fn domain(host: &[u8]) -> &[u8] {
    // As in HAProxy, a leading dot does not count.
    let Some(end) = host.iter().rposition(|&byte| byte == b'.').filter(|&end| end > 0) else { return host };
    // The byte before the dot belongs to the label even if it is a dot.
    let start = host[..end - 1].iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
    &host[start..end]
}

/// The value of an RDP connection request's cookie (`balance rdp-cookie`).
pub fn rdp_cookie<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let cookie = bytes.get(11..)?.strip_prefix(b"Cookie: ")?;
    let (found, rest) = cookie.split_at_checked(name.len())?;
    if !found.eq_ignore_ascii_case(name) {
        return None;
    }
    let value = rest.strip_prefix(b"=")?;
    let end = value.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&value[..end]).filter(|value| !value.is_empty())
}

/// The server in a terminal server's token (`persist rdp-cookie`): address and port as the decimal values of their memory
/// representation, and a third number that is ignored. For example, `3640205228.15629.0000` is 172.31.249.216:3389.
pub fn rdp_server(token: &[u8]) -> Option<SocketAddrV4> {
    let mut numbers = token.split(|&byte| byte == b'.').map(|digits| std::str::from_utf8(digits).ok());
    let address: u32 = numbers.next()??.parse().ok()?;
    let port: u16 = numbers.next()??.parse().ok()?;
    numbers.next()?;
    Some(SocketAddrV4::new(address.to_le_bytes().into(), u16::from_be_bytes(port.to_le_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_options_select_the_hashed_part() {
        let part = |length, depth, whole, path_only| UriPart { length, depth, whole, path_only };
        let target: &[u8] = b"http://h/a/b/c?x=1";
        let cases: &[(UriPart, &[u8], &[u8])] = &[
            (part(None, None, false, false), target, b"http://h/a/b/c"),
            (part(None, None, true, false), target, target),
            (part(None, None, false, true), target, b"/a/b/c"),
            (part(None, None, true, true), target, b"/a/b/c?x=1"),
            (part(Some(3), None, false, true), target, b"/a/"),
            (part(None, Some(2), false, true), target, b"/a/b"),
            (part(None, Some(3), false, false), target, b"http://h/a"),
            (part(Some(4), Some(2), false, true), target, b"/a/b"),
            (part(None, None, false, true), b"*", b""),
            (part(None, None, false, false), b"*", b"*"),
        ];
        for &(options, target, wanted) in cases {
            assert_eq!(options.of(target), wanted, "{options:?}");
        }
    }

    #[test]
    fn rdp_cookies_are_found_after_the_header() {
        let bytes = b"\x03\0\0\x2b\x26\xe0\0\0\0\0\0Cookie: mstshash=user\r\n\x01";
        assert_eq!(rdp_cookie(bytes, b"mstshash"), Some(b"user".as_slice()));
        assert_eq!(rdp_cookie(bytes, b"other"), None);
        assert_eq!(rdp_cookie(b"short", b"mstshash"), None);
    }

    #[test]
    fn rdp_tokens_contain_address_and_port() {
        let server = "172.31.249.216:3389".parse().ok();
        assert_eq!(rdp_server(b"3640205228.15629.0000"), server);
        for wrong in [
            "",
            "3640205228",
            "3640205228.15629",
            "36402052280.15629.0000",
            "-1.15629.0000",
            "1.65536.0",
            "user",
            "..0",
        ] {
            assert_eq!(rdp_server(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_domain_of_a_host_is_the_label_before_its_last() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"www.example.com:80", b"example"),
            (b"example.com", b"example"),
            (b"localhost", b"localhost"),
            (b"x.y.z", b"y"),
            (b".com", b".com"),
            (b"a..b", b"a."),
        ];
        for (host, wanted) in cases {
            assert_eq!(domain(host), *wanted, "{}", String::from_utf8_lossy(host));
        }
    }

    #[test]
    fn a_parameter_may_be_empty_but_not_absent() {
        let cases: &[(&[u8], Option<&[u8]>)] = &[
            (b"u=1", Some(b"1")),
            (b"x=1&u=a;b&y", Some(b"a;b")),
            (b"u=", Some(b"")),
            (b"u", None),
            (b"xu=1", None),
        ];
        for (query, wanted) in cases {
            assert_eq!(parameter(query, b"u"), *wanted, "{}", String::from_utf8_lossy(query));
        }
        assert_eq!(posted_parameter(b"u=ab%20\r\n", b"u"), Some(b"ab%20".as_slice()));
        assert_eq!(posted_parameter(b"u=a\0b", b"u"), None);
    }

    #[test]
    fn numeric_keys_are_used_unchanged() {
        let none = HashType { function: HashFunction::None, ..HashType::default() };
        let cases: &[(&[u8], u32)] = &[
            (b"17", 17),
            (b"+17x", 17),
            (b"-1", u32::MAX),
            (b"4294967297", 1),
            (b"", 0),
            (b"x", 0),
            (b"99999999999999999999", u32::MAX),
        ];
        for (key, wanted) in cases {
            assert_eq!(none.of(key), *wanted, "{}", String::from_utf8_lossy(key));
        }
    }
}
