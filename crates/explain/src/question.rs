//! The request to explain, as words of a command.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The usage of the command.
pub const USAGE: &str = "[frontend <name>] <method> <url> [src <address>[:<port>]] [<header>: <value>]…";

/// A request to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The frontend; `None` to find it by the URL.
    pub frontend: Option<String>,
    /// The method.
    pub method: String,
    /// Whether the client uses TLS (`https`); `None` if the URL is only a path.
    pub is_tls: Option<bool>,
    /// The host of the URL, without the port; empty if the URL is only a path.
    pub host: String,
    /// The port of the URL.
    pub port: Option<u16>,
    /// The path with the query.
    pub path: String,
    /// The client's address. The default is 127.0.0.1 without a port.
    pub source: SocketAddr,
    /// Header names and values, in order.
    pub headers: Vec<(String, String)>,
}

impl Question {
    /// Parses the words after `explain`.
    ///
    /// # Errors
    /// The word that is wrong or missing, and the usage.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let usage = |error: String| format!("{error}. Usage: explain {USAGE}");
        let words = unquoted(words);
        let mut words = words.iter().map(String::as_str).filter(|word| !word.is_empty()).peekable();
        let mut frontend = None;
        if words.next_if(|word| *word == "frontend").is_some() {
            let name = words.next().ok_or_else(|| usage("`frontend` requires a name".into()))?;
            frontend = Some(name.to_owned());
        }
        let method = words.next().ok_or_else(|| usage("the method is missing".into()))?;
        let url = words.next().ok_or_else(|| usage("the URL is missing".into()))?;
        let (is_tls, host, port, path) = split_url(url).map_err(usage)?;
        let mut question = Self {
            frontend,
            method: method.to_owned(),
            is_tls,
            host,
            port,
            path,
            source: (Ipv4Addr::LOCALHOST, 0).into(),
            headers: Vec::new(),
        };
        while let Some(word) = words.next() {
            if word == "src" {
                let address = words.next().ok_or_else(|| usage("`src` requires an address".into()))?;
                question.source =
                    address_of(address).ok_or_else(|| usage(format!("`{address}` is not an IP address")))?;
                continue;
            }
            let Some((name, value)) =
                word.split_once(':').filter(|(name, _)| http::is_token(name.as_bytes()))
            else {
                return Err(usage(format!("unexpected `{word}`: expected `src` or a header")));
            };
            let value = match value.trim() {
                // The next word is the value: `Host: example.org` without quotes.
                "" => words.next().unwrap_or_default(),
                value => value,
            };
            question.headers.push((name.to_owned(), value.to_owned()));
        }
        Ok(question)
    }
}

/// Joins the words between quotes, which the runtime socket does not interpret.
fn unquoted(words: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut open = None;
    for word in words {
        let begins = word.chars().next().filter(|first| matches!(first, '\'' | '"') && open.is_none());
        let text = begins.map_or(&**word, |_| &word[1..]);
        let quote = begins.or(open);
        let inner = quote.and_then(|quote| text.strip_suffix(quote));
        match (open, joined.last_mut()) {
            (Some(_), Some(last)) => {
                last.push(' ');
                last.push_str(inner.unwrap_or(text));
            }
            _ => joined.push(inner.unwrap_or(text).to_owned()),
        }
        open = quote.filter(|_| inner.is_none());
    }
    joined
}

/// Whether the URL uses TLS, its host, port and path.
fn split_url(url: &str) -> Result<(Option<bool>, String, Option<u16>, String), String> {
    if url.starts_with('/') || url == "*" {
        return Ok((None, String::new(), None, url.to_owned()));
    }
    let (is_tls, rest) = match url.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err(format!("`{url}` is neither a path nor an `http://` or `https://` URL")),
    };
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let (host, port) = http::uri::split_port(authority.as_bytes());
    let port = match port.map(|port| String::from_utf8_lossy(port).parse()) {
        Some(Ok(port)) => Some(port),
        Some(Err(_)) => return Err(format!("the port of `{url}` is invalid")),
        None => None,
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok((Some(is_tls), String::from_utf8_lossy(host).into_owned(), port, format!("{slash}{path}")))
}

fn address_of(text: &str) -> Option<SocketAddr> {
    let alone = |text: &str| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    text.parse().ok().or_else(|| alone(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Question, String> {
        Question::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_become_a_request() {
        let question =
            parse("frontend web GET https://a.example:8443?x=1 src 10.0.0.1 X-Id:7 Accept: text/html")
                .unwrap();
        assert_eq!(question.frontend.as_deref(), Some("web"));
        assert_eq!((question.is_tls, &*question.host, question.port), (Some(true), "a.example", Some(8443)));
        assert_eq!((&*question.method, &*question.path), ("GET", "/?x=1"));
        assert_eq!(question.source, "10.0.0.1:0".parse().unwrap());
        let headers = [("X-Id", "7"), ("Accept", "text/html")];
        assert_eq!(question.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let quoted = parse("GET / 'user-agent: a b' \"x: y\" 'z:1'").unwrap();
        let headers = [("user-agent", "a b"), ("x", "y"), ("z", "1")];
        assert_eq!(quoted.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse("GET / src [2001:db8::1]:99").unwrap().source, "[2001:db8::1]:99".parse().unwrap());
    }

    #[test]
    fn errors_name_the_wrong_word() {
        for (text, word) in [
            ("", "method"),
            ("GET", "URL"),
            ("GET a.example", "`a.example`"),
            ("GET http://a:99999/", "port"),
            ("GET / src", "`src`"),
            ("GET / src localhost", "`localhost`"),
            ("GET / nonsense", "`nonsense`"),
            ("frontend", "`frontend`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word) && error.contains("Usage"), "{text}: {error}");
        }
    }
}
