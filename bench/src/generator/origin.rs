//! The origin side of one connection: parses request heads, and answers each with the number of bytes in its path. Called by
//! `engine`.

use std::io::{self, IoSlice, Read, Write};
use std::time::Instant;

use memchr::memmem;
use mio::net::TcpStream;

/// The response size for a path without a number.
const USUAL: usize = 100;
/// The largest piece of a body written by one call.
const PIECE: usize = 1 << 18;

/// One connection from the proxy.
pub(crate) struct Origin {
    stream: TcpStream,
    /// The beginning of an incomplete head.
    partial: Vec<u8>,
    /// Data to send: bytes of heads, then this many of the body.
    head: Vec<u8>,
    body: usize,
    close: bool,
    /// When the response may be sent, if the origin is slow.
    pub(crate) due: Option<Instant>,
}

impl Origin {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, partial: Vec::new(), head: Vec::new(), body: 0, close: false, due: None }
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads the available data. Returns false when the connection has ended; `self` shows whether a response must be sent.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            let size = match self.stream.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            if self.partial.is_empty() {
                let used = self.answer(&buffer[..size]);
                self.partial.extend_from_slice(&buffer[used..size]);
            } else {
                self.partial.extend_from_slice(&buffer[..size]);
                let text = std::mem::take(&mut self.partial);
                let used = self.answer(&text);
                self.partial.extend_from_slice(&text[used..]);
            }
            if size < buffer.len() {
                return Ok(true); // drained: the next bytes bring a new event
            }
        }
    }

    /// Prepares the responses to complete heads in `text`; returns how much of it was consumed.
    fn answer(&mut self, text: &[u8]) -> usize {
        let mut used = 0;
        while let Some(end) = memmem::find(&text[used..], b"\r\n\r\n") {
            let head = &text[used..used + end + 4];
            used += head.len();
            let size = size_of_path(head);
            self.close |= memmem::find(head, b"onnection: close").is_some();
            self.head.extend_from_slice(
                b"HTTP/1.1 200 OK\r\nServer: generator\r\nContent-Type: text/plain\r\nContent-Length: ",
            );
            self.head.extend_from_slice(size.to_string().as_bytes());
            self.head.extend_from_slice(b"\r\n\r\n");
            self.body += size;
        }
        used
    }

    pub(crate) fn has_answer(&self) -> bool {
        !self.head.is_empty() || self.body > 0
    }

    /// Sends prepared data. Returns false when the connection is over.
    pub(crate) fn send(&mut self, filling: &[u8; PIECE_SIZE]) -> io::Result<bool> {
        self.due = None;
        while self.has_answer() {
            let body = &filling[..self.body.min(PIECE)];
            match self.stream.write_vectored(&[IoSlice::new(&self.head), IoSlice::new(body)]) {
                Ok(sent) => {
                    let of_head = sent.min(self.head.len());
                    self.head.drain(..of_head);
                    self.body -= sent - of_head;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(!self.close)
    }
}

/// The length of the filling of bodies.
pub(crate) const PIECE_SIZE: usize = PIECE;

fn size_of_path(head: &[u8]) -> usize {
    let digits = head.strip_prefix(b"GET /").unwrap_or_default();
    let mut size = 0usize;
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => size = size.saturating_mul(10).saturating_add(usize::from(byte - b'0')),
            b' ' if at > 0 => return size,
            _ => break,
        }
    }
    USUAL
}
