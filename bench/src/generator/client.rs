//! The client side of one connection: sends a request, reads its response to the end, and measures the time. Called by `engine`.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use memchr::memmem;
use mio::net::TcpStream;

use crate::generator::wire::{Tls, Wire};

/// One connection to the proxy.
pub(crate) struct Client {
    wire: Wire,
    started: Instant,
    sent: usize,
    /// The part of the head received so far; empty once it is complete.
    head: Vec<u8>,
    /// The rest of the body, once the head is complete.
    missing: Option<Rest>,
    done: bool,
}

/// The rest of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// This many bytes.
    Bytes(usize),
    /// The body continues up to the last chunk; the value is the last bytes received. Pages that contain that text themselves
    /// cannot be measured.
    Chunks([u8; 5]),
}

/// The end of a chunked body without trailers.
const LAST_CHUNK: &[u8; 5] = b"0\r\n\r\n";

impl Rest {
    fn is_over(self) -> bool {
        matches!(self, Self::Bytes(0)) || self == Self::Chunks(*LAST_CHUNK)
    }

    /// Returns the rest that is missing after `bytes`.
    fn after(self, bytes: &[u8]) -> io::Result<Self> {
        match self {
            Self::Bytes(left) => {
                left.checked_sub(bytes.len()).map(Self::Bytes).ok_or(io::ErrorKind::InvalidData.into())
            }
            Self::Chunks(mut last) => {
                let new = bytes.len().min(last.len());
                last.rotate_left(new);
                let kept = last.len() - new;
                last[kept..].copy_from_slice(&bytes[bytes.len() - new..]);
                Ok(Self::Chunks(last))
            }
        }
    }
}

/// The result of a read.
pub(crate) enum Outcome {
    /// More data is needed.
    Waiting,
    /// The response is complete, after this time.
    Answered(Duration),
    /// The peer closed after a complete response.
    Closed,
}

impl Client {
    pub(crate) fn connect(target: SocketAddr, tls: Option<&Tls>) -> io::Result<Self> {
        let socket = TcpStream::connect(target)?;
        socket.set_nodelay(true)?;
        let wire = Wire::new(socket, tls)?;
        Ok(Self { wire, started: Instant::now(), sent: 0, head: Vec::new(), missing: None, done: false })
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.wire.socket
    }

    /// Starts the next request.
    pub(crate) fn again(&mut self) {
        self.started = Instant::now();
        self.sent = 0;
        self.missing = None;
        self.done = false;
    }

    /// Sends the rest of the request.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        while self.sent < request.len() {
            match self.wire.write(&request[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the available data.
    ///
    /// # Errors
    /// The socket's error, and `InvalidData` for a response that is an error, has no length, or ends early.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Outcome> {
        if self.sent == 0 {
            // There is no response yet, and writing drives the TLS handshake.
            return Ok(Outcome::Waiting);
        }
        loop {
            let size = match self.wire.read(buffer) {
                Ok(0) if self.done => return Ok(Outcome::Closed),
                Err(error) if self.done && error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Outcome::Closed);
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(size) => size,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    return Ok(Outcome::Waiting);
                }
                Err(error) => return Err(error),
            };
            self.take(&buffer[..size])?;
            if self.missing.is_some_and(Rest::is_over) && !self.done {
                self.done = true;
                return Ok(Outcome::Answered(self.started.elapsed()));
            }
            if size < buffer.len() && self.wire.tells_its_end() {
                return Ok(Outcome::Waiting);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(missing) = self.missing {
            self.missing = Some(missing.after(bytes)?);
            return Ok(());
        }
        if self.head.is_empty() && self.take_head(bytes)? {
            return Ok(());
        }
        self.head.extend_from_slice(bytes);
        let head = std::mem::take(&mut self.head);
        if !self.take_head(&head)? {
            self.head = head;
        }
        Ok(())
    }

    /// Parses a head, if it is complete, and counts the part of the body that came with it.
    fn take_head(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(false) };
        if !bytes.starts_with(b"HTTP/1.1 2") && !bytes.starts_with(b"HTTP/1.1 3") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (head, body) = (&bytes[..end + 2], &bytes[end + 4..]);
        let rest = match content_length(head) {
            Some(length) => Rest::Bytes(length),
            None if memmem::find(head, b"ncoding: chunked").is_some() => Rest::Chunks([0; 5]),
            None => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.missing = Some(rest.after(body)?);
        Ok(true)
    }
}

/// Returns the Content-Length of a head, in the spelling of the programs that are measured.
pub(crate) fn content_length(head: &[u8]) -> Option<usize> {
    let name = memmem::find(head, b"ontent-Length: ").or_else(|| memmem::find(head, b"ontent-length: "))?;
    let digits = &head[name + 15..];
    let end = memchr::memchr(b'\r', digits)?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
