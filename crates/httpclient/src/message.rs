//! A request and its response.

use crate::error::{Error, ErrorKind};
use crate::url::Url;

/// A request. `Host`, `User-Agent`, `Accept` and `Connection` are added unless the caller sets them; `Content-Length` is the length
/// of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method: `GET`, `POST` …
    pub method: String,
    /// The target URL.
    pub url: Url,
    /// Names and values, in the order in which they are sent.
    pub headers: Vec<(String, String)>,
    /// The body. If it is empty, `Content-Length` is sent only for methods that expect it.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns a request for `url` without headers or a body.
    pub fn new(method: &str, url: Url) -> Self {
        Self { method: method.to_owned(), url, headers: Vec::new(), body: Vec::new() }
    }

    /// Returns the request with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the request with a body of this type.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: Vec<u8>) -> Self {
        self.body = body;
        self.header("Content-Type", content_type)
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    }

    /// Encodes the request. Its target is the whole URL if `absolute` (RFC 9112, 3.2.2).
    ///
    /// # Errors
    /// The method or a header contains bytes that would change the meaning of the request.
    pub(crate) fn write(&self, absolute: bool) -> Result<Vec<u8>, Error> {
        let refused = |what: &str| Err(Error::new(ErrorKind::Request, what));
        if !http::is_token(self.method.as_bytes()) {
            return refused("the method is not a token");
        }
        let mut out = Vec::with_capacity(256 + self.body.len());
        let mut put = |name: &str, value: &str| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        };
        for (name, value) in [("Host", &*self.url.host_header()), ("User-Agent", AGENT), ("Accept", "*/*")] {
            if !self.has(name) {
                put(name, value);
            }
        }
        // The length is always the length of the body.
        let frames = |name: &str| FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known));
        for (name, value) in self.headers.iter().filter(|(name, _)| !frames(name)) {
            if !http::is_token(name.as_bytes()) {
                return refused("a header name is not a token");
            }
            if value.bytes().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
                return refused("a line break in a header");
            }
            put(name, value);
        }
        let expects_body = matches!(&*self.method, "POST" | "PUT" | "PATCH");
        if !self.body.is_empty() || expects_body {
            put("Content-Length", &self.body.len().to_string());
        }
        if !self.has("Connection") {
            put("Connection", "close");
        }
        let target = if absolute { self.url.to_string() } else { self.url.path().to_owned() };
        let mut whole = format!("{} {target} HTTP/1.1\r\n", self.method).into_bytes();
        whole.append(&mut out);
        whole.extend_from_slice(b"\r\n");
        whole.extend_from_slice(&self.body);
        Ok(whole)
    }
}

/// Framing headers. Those that the caller sets are not sent.
const FRAMING: [&str; 2] = ["Content-Length", "Transfer-Encoding"];

/// The `User-Agent` of requests.
pub(crate) const AGENT: &str = concat!("Weir/", env!("CARGO_PKG_VERSION"));

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code; interim responses are skipped.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Names and values in the order received; invalid UTF-8 is replaced.
    pub headers: Vec<(String, String)>,
    /// The body, with its chunks decoded.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the first value of a header; the name is compared without case.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.headers_of(name).next()
    }

    /// Returns all values of a header.
    pub fn headers_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Returns whether the status is a success (2xx).
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(url: &str) -> Request {
        Request::new("GET", Url::parse(url).expect("the URL is right"))
    }

    #[test]
    fn callers_headers_replace_the_defaults() {
        let written = get("http://a.test:81/x?y#z").write(false).expect("it can be written");
        let agent = format!("User-Agent: {AGENT}\r\n");
        let expected = format!(
            "GET /x?y HTTP/1.1\r\nHost: a.test:81\r\n{agent}Accept: */*\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&written), expected);
        let own = get("http://a.test").header("host", "b.test").header("USER-AGENT", "c");
        let written = own.body("text/plain", b"hi".to_vec()).write(true).expect("it can be written");
        assert_eq!(
            String::from_utf8_lossy(&written),
            "GET http://a.test/ HTTP/1.1\r\nAccept: */*\r\nhost: b.test\r\nUSER-AGENT: c\r\n\
             Content-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
        );
    }

    #[test]
    fn length_headers_of_the_caller_are_ignored() {
        let own = get("http://a.test").header("transfer-encoding", "chunked").header("content-LENGTH", "5");
        let written = own.body("text/plain", b"hi".to_vec()).write(false).expect("it can be written");
        let written = String::from_utf8_lossy(&written).to_ascii_lowercase();
        assert!(written.contains("content-length: 2\r\n") && !written.contains("content-length: 5"));
        assert!(!written.contains("transfer-encoding"));
    }

    #[test]
    fn line_breaks_in_requests_are_refused() {
        for bad in [
            get("http://a.test").header("x", "1\r\ny: 2"),
            get("http://a.test").header("x: 1\r\ny", "2"),
            Request { method: "GET / HTTP/1.1\r\n".to_owned(), ..get("http://a.test") },
        ] {
            assert_eq!(bad.write(false).map_err(|error| error.kind), Err(ErrorKind::Request));
        }
    }

    #[test]
    fn header_lookup_ignores_case() {
        let headers = vec![("X-A".to_owned(), "1".to_owned()), ("x-a".to_owned(), "2".to_owned())];
        let response = Response { status: 200, reason: String::new(), headers, body: Vec::new() };
        assert_eq!((response.header("x-A"), response.header("x-b")), (Some("1"), None));
        assert_eq!(response.headers_of("X-a").collect::<Vec<_>>(), ["1", "2"]);
    }
}
