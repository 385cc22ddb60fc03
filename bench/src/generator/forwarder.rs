//! A minimal HTTP/1 forwarder, which shows the minimum CPU time of a proxy that only determines the ends of messages. Its own code
//! takes a few hundred nanoseconds per request, so that almost all of its time is the kernel's, for two connections. `weir-bench
//! forwarder LISTEN ORIGIN`; called by `main`.
//!
//! Each client connection has one connection to the origin, opened with its first request and closed with it. Bytes are forwarded
//! unchanged; only `Content-Length` and `Connection: close` are parsed.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use memchr::memmem;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use socket2::{Domain, Socket, Type};

use crate::generator::client::content_length;

const LISTENER: Token = Token(usize::MAX);
/// Bytes read by one call.
const BUFFER: usize = 1 << 16;

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    /// The beginning of an incomplete head.
    head: Vec<u8>,
    /// Heads seen so far.
    heads: u64,
    /// Bytes left in the message's body.
    missing: usize,
    /// Whether the connection ends with the message.
    close: bool,
    /// Bytes that were received, and not yet accepted by the other side.
    unsent: Vec<u8>,
    /// Whether TCP_NODELAY is set, which the second piece of a message requests.
    at_once: bool,
}

/// A client's connection and the one to the origin.
struct Pair {
    client: TcpStream,
    origin: Option<TcpStream>,
    request: Direction,
    response: Direction,
}

/// Serves until the process is killed.
///
/// # Errors
/// Errors of listening and polling; errors of connections only end these.
pub(crate) fn run(listen: SocketAddr, origin: SocketAddr) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&listen.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(socket.into());
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut pairs: Slab<Pair> = Slab::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((client, _)) = listener.accept() {
                    let key = accept(client, &poll, &mut pairs)?;
                    serve(&mut pairs, key, false, origin, &poll, &mut buffer);
                }
            } else {
                let (key, from_origin) = (event.token().0 / 2, event.token().0 % 2 == 1);
                serve(&mut pairs, key, from_origin, origin, &poll, &mut buffer);
            }
        }
    }
}

fn accept(mut client: TcpStream, poll: &Poll, pairs: &mut Slab<Pair>) -> io::Result<usize> {
    let entry = pairs.vacant_entry();
    let key = entry.key();
    poll.registry().register(&mut client, Token(key * 2), Interest::READABLE | Interest::WRITABLE)?;
    let (request, response) = Default::default();
    entry.insert(Pair { client, origin: None, request, response });
    Ok(key)
}

/// Forwards the data of one side, and ends the pair when it is finished.
fn serve(
    pairs: &mut Slab<Pair>,
    key: usize,
    from_origin: bool,
    to: SocketAddr,
    poll: &Poll,
    buffer: &mut [u8],
) {
    let Some(pair) = pairs.get_mut(key) else { return };
    let open = match from_origin {
        true => pair.answer(buffer),
        false => pair.ask(key, to, poll, buffer),
    };
    if !open.unwrap_or(false) {
        pairs.remove(key);
    }
}

impl Pair {
    /// Handles events of the client's side. Returns false when the connection has ended.
    fn ask(&mut self, key: usize, to: SocketAddr, poll: &Poll, buffer: &mut [u8]) -> io::Result<bool> {
        let origin = match &mut self.origin {
            Some(origin) => origin,
            none => {
                let mut origin = TcpStream::connect(to)?;
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut origin, Token(key * 2 + 1), interest)?;
                none.insert(origin)
            }
        };
        let open = self.request.pass(&mut self.client, origin, buffer)?;
        Ok(open && (self.response.unsent.is_empty() || self.answer(buffer)?))
    }

    /// Handles events of the origin's side. Returns false when the connection has ended.
    fn answer(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(origin) = &mut self.origin else { return Ok(true) };
        if !self.request.unsent.is_empty() && !self.request.pass(&mut self.client, origin, buffer)? {
            return Ok(false);
        }
        let open = self.response.pass(origin, &mut self.client, buffer)?;
        let answered = self.response.heads == self.request.heads
            && self.response.is_between_messages()
            && self.response.unsent.is_empty();
        Ok(open && !(answered && self.request.close))
    }
}

impl Direction {
    /// Reads from one side and writes to the other until either would block. Returns false when the side read from has ended.
    fn pass(&mut self, from: &mut TcpStream, to: &mut TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            if !self.unsent.is_empty() {
                let sent = write(to, &self.unsent)?;
                self.unsent.drain(..sent);
                if !self.unsent.is_empty() {
                    return Ok(true);
                }
            }
            let size = match from.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(size) => size,
                Err(error) if is_not_yet(&error) => return Ok(true),
                Err(error) => return Err(error),
            };
            let bytes = &buffer[..size];
            if !self.at_once && !self.is_between_messages() {
                to.set_nodelay(true)?;
                self.at_once = true;
            }
            self.note(bytes);
            let sent = write(to, bytes)?;
            self.unsent.extend_from_slice(&bytes[sent..]);
            if size < buffer.len() {
                return Ok(true); // drained: the next bytes bring a new event
            }
        }
    }

    fn is_between_messages(&self) -> bool {
        self.head.is_empty() && self.missing == 0
    }

    /// Tracks the message: parses heads, counts bodies.
    fn note(&mut self, bytes: &[u8]) {
        if self.missing > 0 {
            self.missing = self.missing.saturating_sub(bytes.len());
            return;
        }
        if self.head.is_empty() && self.note_head(bytes) {
            return;
        }
        self.head.extend_from_slice(bytes);
        let head = std::mem::take(&mut self.head);
        if !self.note_head(&head) {
            self.head = head;
        }
    }

    /// Parses a head, if it is complete, and counts the part of the body that came with it.
    fn note_head(&mut self, bytes: &[u8]) -> bool {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return false };
        let head = &bytes[..end + 2];
        let body = bytes.len() - end - 4;
        self.missing = content_length(head).unwrap_or(0).saturating_sub(body);
        self.heads += 1;
        self.close = memmem::find(head, b"onnection: close").is_some();
        true
    }
}

fn write(to: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match to.write(bytes) {
        Err(error) if is_not_yet(&error) => Ok(0),
        result => result,
    }
}

/// Returns whether a socket would block or is still connecting.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_split_anywhere_end_at_their_length() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 1..text.len() {
            let mut response = Direction::default();
            response.note(&text[..cut]);
            assert!(!response.is_between_messages(), "cut at {cut}");
            response.note(&text[cut..]);
            assert!(response.is_between_messages() && response.heads == 1, "cut at {cut}");
        }
    }
}
