//! Requests as a strict server reads them: nothing is guessed, and what is no request is seen as
//! that.

use std::io::Read;
use std::net::TcpStream;

use crate::client::field;

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The first word.
    pub method: String,
    /// The second word.
    pub path: String,
    /// Start line and header lines, without the empty line.
    pub head: String,
}

impl Request {
    /// The head of the next request; `None` at the end of the connection. `unread` holds what was
    /// read beyond.
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

    /// The body behind the head, decoded, no more than about `most` bytes of it; `None` where the
    /// connection ends before, an error where the framing is broken or said in two ways.
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

/// Reads a body in chunks and its trailers, which are dropped (RFC 9112, 7.1); at most about `most`
/// bytes of it. `None` where the connection ends before, an error with the line that is no size.
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

/// The next line, without its end.
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

/// Reads on; `None` at the end of the connection.
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
