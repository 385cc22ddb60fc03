//! A strict parser of requests: nothing is guessed, and anything invalid is reported.

use std::io::Read;
use std::net::TcpStream;

use crate::client::field;

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target.
    pub path: String,
    /// Start line and header lines, without the empty line.
    pub head: String,
}

impl Request {
    /// Reads the head of the next request; returns `None` at the end of the connection. `unread` holds bytes read beyond it.
    pub fn read_head(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Request> {
        let end = loop {
            if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            more(stream, unread)?;
        };
        let head = String::from_utf8_lossy(&unread[..end]).into_owned();
        unread.drain(..end + 4);
        let mut words = head.lines().next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Some(Request { method, path, head })
    }

    /// Reads and decodes the body, up to about `most` bytes. Returns `None` if the connection ends before, and an error if the
    /// framing is invalid or ambiguous.
    pub fn read_body(
        &self,
        stream: &mut TcpStream,
        unread: &mut Vec<u8>,
        most: usize,
    ) -> Option<Result<Vec<u8>, String>> {
        let lines = |name: &str| {
            let named =
                |line: &&str| line.split_once(':').is_some_and(|(own, _)| own.eq_ignore_ascii_case(name));
            self.head.lines().filter(named).count()
        };
        let (length, coding) = (field(&self.head, "content-length"), field(&self.head, "transfer-encoding"));
        if lines("content-length") + lines("transfer-encoding") > 1 {
            return Some(Err(format!("framed twice: {}", self.head)));
        }
        if coding.is_none() {
            let Ok(length) = length.unwrap_or("0").parse::<usize>() else {
                return Some(Err(format!("no length: {}", self.head)));
            };
            while unread.len() < length.min(most) {
                more(stream, unread)?;
            }
            return Some(Ok(unread.drain(..length.min(most)).collect()));
        }
        if coding != Some("chunked") {
            return Some(Err(format!("another coding: {}", self.head)));
        }
        read_chunked(stream, unread, most)
    }
}

/// Reads a chunked body, up to about `most` bytes, and its trailers, which are discarded (RFC 9112, 7.1). Returns `None` if the
/// connection ends before, and the offending line if a chunk size is invalid.
pub fn read_chunked(
    stream: &mut TcpStream,
    unread: &mut Vec<u8>,
    most: usize,
) -> Option<Result<Vec<u8>, String>> {
    let mut body = Vec::new();
    while body.len() < most {
        let line = read_line(stream, unread)?;
        let Ok(size) = usize::from_str_radix(&line, 16) else { return Some(Err(line)) };
        if size == 0 {
            while !read_line(stream, unread)?.is_empty() {}
            break;
        }
        while unread.len() < size + 2 {
            more(stream, unread)?;
        }
        body.extend(unread.drain(..size));
        unread.drain(..2);
    }
    Some(Ok(body))
}

/// Returns the next line, without its end.
fn read_line(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = unread.windows(2).position(|window| window == b"\r\n") {
            let line = String::from_utf8_lossy(&unread[..end]).into_owned();
            unread.drain(..end + 2);
            return Some(line);
        }
        more(stream, unread)?;
    }
}

/// Reads more bytes; returns `None` at the end of the connection.
pub fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut part = [0; 4096];
    match stream.read(&mut part) {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            unread.extend_from_slice(&part[..count]);
            Some(())
        }
    }
}
