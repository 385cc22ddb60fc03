//! URLs of requests: `http://host:port/path?query`, or with `https`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UrlHost {
    /// An address.
    Ip(IpAddr),
    /// A name, in lower case.
    Name(Box<str>),
}

impl fmt::Display for UrlHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// An `http` or `https` URL, without fragment and user information.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// Whether the scheme is `https`.
    pub is_tls: bool,
    /// The host.
    pub host: UrlHost,
    /// The port, which is explicit or the default one.
    pub port: u16,
    path: Box<str>,
}

/// The text is not a usable URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlError(&'static str);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for UrlError {}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// Another scheme, no host, an invalid port, user information, or a character that is not allowed in a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(UrlError("a URL must not contain spaces or non-ASCII characters"));
        }
        let (scheme, rest) =
            text.split_once("://").ok_or(UrlError("the URL does not start with http:// or https://"))?;
        let is_tls = match scheme {
            scheme if scheme.eq_ignore_ascii_case("http") => false,
            scheme if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(UrlError("the URL does not start with http:// or https://")),
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError("user information in a URL is not supported"));
        }
        let (host, port) = host_and_port(authority)?;
        let path = match path.as_bytes().first() {
            Some(b'/') => path.into(),
            _ => format!("/{path}").into(),
        };
        Ok(Self { is_tls, host, port: port.unwrap_or(default_port(is_tls)), path })
    }

    /// Returns the path and query, as in a request line.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value of the `Host` header: the default port is omitted.
    pub(crate) fn host_header(&self) -> String {
        if self.port == default_port(self.is_tls) {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host_header(), self.path)
    }
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

fn host_and_port(authority: &str) -> Result<(UrlHost, Option<u16>), UrlError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, behind) = rest.split_once(']').ok_or(UrlError("missing ']' after '['"))?;
            let address: Ipv6Addr =
                address.parse().map_err(|_| UrlError("invalid IPv6 address in brackets"))?;
            let port = behind.strip_prefix(':');
            if port.is_none() && !behind.is_empty() {
                return Err(UrlError("unexpected text after ']'"));
            }
            (UrlHost::Ip(address.into()), port)
        }
        None => {
            let (name, port) =
                authority.split_once(':').map_or((authority, None), |(name, port)| (name, Some(port)));
            (host(name)?, port)
        }
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(
            digits
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or(UrlError("the port must be from 1 to 65535"))?,
        ),
        Some(_) => return Err(UrlError("the port must be from 1 to 65535")),
    };
    Ok((host, port))
}

fn host(name: &str) -> Result<UrlHost, UrlError> {
    if let Ok(address) = name.parse() {
        return Ok(UrlHost::Ip(IpAddr::V4(address)));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(fits) {
        return Err(UrlError("a host name can contain letters, digits, '-', '_' and '.'"));
    }
    Ok(UrlHost::Name(name.to_ascii_lowercase().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_round_trip() {
        for (text, again) in [
            ("http://a.test", "http://a.test/"),
            ("HTTPS://A.Test:443/B?c=/d#e", "https://a.test/B?c=/d"),
            ("http://a.test:8080?x", "http://a.test:8080/?x"),
            ("https://[::1]:8443/", "https://[::1]:8443/"),
            ("http://[2001:DB8::1]", "http://[2001:db8::1]/"),
            ("http://127.0.0.1:/x", "http://127.0.0.1/x"),
        ] {
            assert_eq!(Url::parse(text).map(|url| url.to_string()), Ok(again.to_owned()), "{text}");
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        for text in [
            "",
            "a.test",
            "ldap://a.test/",
            "http://",
            "http:///x",
            "http://a b/",
            "http://a.test:0/",
            "http://a.test:65536/",
            "http://a.test:+1/",
            "http://user@a.test/",
            "http://[::1/",
            "http://[::1]x/",
            "http://[a]/",
            "http://a.test/\r\nx",
            "http://a%20b/",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
