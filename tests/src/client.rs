//! A client that sends raw bytes and returns the response. It parses heads and bodies well enough for tests, but does not validate
//! them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::PATIENCE;

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code; 0 if the first line is not a status line.
    pub status: u16,
    /// Start line and header lines, without the empty line.
    pub head: String,
    /// The body as received, with chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of the first field of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Client {
    /// Connects to a port of 127.0.0.1. Reads time out after [`PATIENCE`].
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        Client { stream, pending: Vec::new() }
    }

    /// Sends bytes. Errors are ignored: the peer may have sent a response and closed already.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        let _ = self.stream.write_all(bytes.as_ref());
        self
    }

    /// Shuts down the sending direction.
    pub fn shut(&mut self) -> &mut Client {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        self
    }

    /// Returns everything until the peer closes.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.pending);
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    /// Returns the next `count` bytes; fewer if the connection ended first.
    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut buffer = [0; 16 * 1024];
        while self.pending.len() < count {
            match self.stream.read(&mut buffer) {
                Ok(n) if n > 0 => self.pending.extend_from_slice(&buffer[..n]),
                _ => break,
            }
        }
        self.pending.drain(..count.min(self.pending.len())).collect()
    }

    /// Returns the next response, with its body by `Content-Length`, by chunks, or until the end; `None` if the connection ended
    /// first.
    pub fn response(&mut self) -> Option<Response> {
        let end = self.read_until(|bytes| find(bytes, b"\r\n\r\n"))?;
        let head = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end + 4);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = self.body(&head, status);
        Some(Response { status, head, body })
    }

    /// Returns only the next head, which is the whole response to a HEAD. Empty if the connection ended first.
    pub fn read_head(&mut self) -> String {
        let Some(end) = self.read_until(|bytes| find(bytes, b"\r\n\r\n")) else { return String::new() };
        let head = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end + 4);
        head
    }

    fn body(&mut self, head: &str, status: u16) -> Vec<u8> {
        if matches!(status, 100..=199 | 204 | 304) {
            return Vec::new();
        }
        let length = match (field(head, "content-length"), field(head, "transfer-encoding")) {
            (_, Some(coding)) if coding.contains("chunked") => self
                .read_until(|bytes| {
                    if bytes.starts_with(b"0\r\n\r\n") { Some(0) } else { find(bytes, b"\r\n0\r\n\r\n") }
                })
                .map(|at| if at == 0 { 5 } else { at + 7 }),
            (Some(length), _) => {
                let length = length.parse().unwrap_or(0);
                self.read_until(|bytes| (bytes.len() >= length).then_some(length))
            }
            _ => None,
        };
        match length {
            Some(length) => self.pending.drain(..length).collect(),
            None => self.read_to_end(),
        }
    }

    fn read_until(&mut self, found: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        loop {
            if let Some(at) = found(&self.pending) {
                return Some(at);
            }
            let mut part = [0; 16384];
            match self.stream.read(&mut part) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.pending.extend_from_slice(&part[..count]),
            }
        }
    }
}

/// Sends one request on a new connection.
pub fn exchange(port: u16, request: &str) -> Option<Response> {
    Client::connect(port).send(request).response()
}

/// Returns the response to a GET, or `None` if nothing listens there yet.
pub fn get_if_open(port: u16, path: &str) -> Option<Response> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    get(port, path)
}

/// Returns the response to a GET on one connection; `None` too if the connection is refused.
pub fn get_now(port: u16, path: &str) -> Option<Response> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut client = Client { stream, pending: Vec::new() };
    client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")).response()
}

/// Sends a GET on a new connection.
pub fn get(port: u16, path: &str) -> Option<Response> {
    exchange(port, &format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"))
}

/// Sends a GET with additional fields, each with its line end.
pub fn exchange_with(port: u16, path: &str, fields: &str) -> Option<Response> {
    exchange(port, &format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"))
}

/// Reads up to the end of a head. `bytes` may then contain more than the head.
pub(crate) fn read_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        if let Some(at) = find(bytes, b"\r\n\r\n") {
            return Ok(Some(at));
        }
        let mut part = [0; 16384];
        match stream.read(&mut part)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Returns the value of the first field of that name in a head.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim()))
}
