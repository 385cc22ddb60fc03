//! The URLs of the command line.

use std::net::{SocketAddr, ToSocketAddrs};

/// How a URL's server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum UrlScheme {
    /// TCP.
    Http,
    /// TLS over TCP.
    Https,
    /// QUIC.
    Quic,
}

impl UrlScheme {
    /// The scheme as written.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Quic => "quic",
        }
    }
}

/// `scheme://host:port/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: UrlScheme,
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// Host and port as written: the value of `Host`.
    pub(crate) authority: Box<str>,
    /// Path and query.
    pub(crate) target: Box<str>,
}

impl Url {
    /// Parses a URL. The port defaults to that of the scheme, and the path to `/`.
    ///
    /// # Errors
    /// The URL, and the reason why it is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("'{text}': {what}");
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| wrong("a URL begins with http://, https:// or quic://"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => UrlScheme::Http,
            "https" => UrlScheme::Https,
            "quic" => UrlScheme::Quic,
            other => {
                return Err(wrong(&format!(
                    "the scheme '{other}' is unknown: use http://, https:// or quic://"
                )));
            }
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(wrong("user names are not supported: use -H 'authorization: …'"));
        }
        let target = target.split('#').next().unwrap_or_default();
        if let Some(bad) = text.chars().find(|c| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
            return Err(wrong(&format!("the character {bad:?} must be percent-encoded")));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("']' is missing"))?;
                (host, rest.strip_prefix(':').or(rest.is_empty().then_some("")))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let port = match port {
            Some("") if scheme == UrlScheme::Http => 80,
            Some("") => 443,
            port => port
                .and_then(|port| port.parse().ok())
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("the port is not a number from 1 to 65535"))?,
        };
        let target = match target {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        let authority = authority.strip_suffix(':').unwrap_or(authority).into();
        Ok(Self { scheme, host: host.into(), port, authority, target: target.into() })
    }

    /// Looks up the address of the host.
    ///
    /// # Errors
    /// The name has no address.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, String> {
        let found = (&*self.host, self.port).to_socket_addrs().map_err(|error| error.to_string());
        found
            .and_then(|mut all| all.next().ok_or_else(|| "it has no address".to_owned()))
            .map_err(|error| format!("cannot resolve '{}': {error}", self.host))
    }

    /// The name to send as SNI: the host, unless it is an address.
    pub(crate) fn server_name(&self) -> Option<&str> {
        let is_address = self.host.parse::<std::net::IpAddr>().is_ok();
        (!is_address).then_some(&*self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_url_are_found() {
        for (text, scheme, host, port, authority, target) in [
            ("http://h:1/x", UrlScheme::Http, "h", 1, "h:1", "/x"),
            ("HTTP://h", UrlScheme::Http, "h", 80, "h", "/"),
            ("https://h?s=1", UrlScheme::Https, "h", 443, "h", "/?s=1"),
            ("quic://[::1]:8443/a?b#c", UrlScheme::Quic, "::1", 8443, "[::1]:8443", "/a?b"),
            ("quic://[::1]", UrlScheme::Quic, "::1", 443, "[::1]", "/"),
            ("http://h:/", UrlScheme::Http, "h", 80, "h", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.scheme, &*url.host, url.port), (scheme, host, port), "{text}");
            assert_eq!((&*url.authority, &*url.target), (authority, target), "{text}");
        }
    }

    #[test]
    fn errors_name_the_url_and_the_remedy() {
        for (text, reason) in [
            ("foo", "a URL begins with"),
            ("ftp://h/", "the scheme 'ftp' is unknown: use http://"),
            ("http:///x", "the host is missing"),
            ("http://h:0/", "the port is not a number"),
            ("http://h:70000/", "the port is not a number"),
            ("http://[::1/", "']' is missing"),
            ("http://[::1]x/", "the port is not a number"),
            ("http://h/a b", "must be percent-encoded"),
            ("http://u:p@h/", "use -H"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("'{text}': ")) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn addresses_are_not_sent_as_names() {
        assert_eq!(Url::parse("https://a.test/").unwrap().server_name(), Some("a.test"));
        assert_eq!(Url::parse("https://127.0.0.1/").unwrap().server_name(), None);
        assert_eq!(Url::parse("https://[::1]/").unwrap().server_name(), None);
    }
}
