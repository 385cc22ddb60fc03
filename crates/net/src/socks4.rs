//! Connecting by way of a SOCKS4 proxy (`socks4` of server lines): the request for an IPv4 address
//! and its answer.
//!
//! The caller connects to the proxy, sets the time limit, and goes on with the stream once the
//! proxy has agreed.

use std::io;
use std::net::SocketAddrV4;
use std::task::{Context, Poll, ready};

use crate::stream::Stream;

/// Version 4, and the command to connect.
const CONNECT: [u8; 2] = [4, 1];
/// The user, up to a NUL.
const USER: &[u8] = b"HAProxy\0";
/// What the second byte of the answer says when the proxy has connected.
const GRANTED: u8 = 90;
/// An answer's length.
const ANSWER: usize = 8;

/// How the exchange fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socks4Failure {
    /// The request could not be sent.
    Send,
    /// The answer could not be read.
    Receive,
    /// The proxy said no, or something else than yes.
    Denied,
    /// The proxy closed before it had answered.
    Closed,
}

impl From<Socks4Failure> for io::Error {
    fn from(failure: Socks4Failure) -> Self {
        match failure {
            Socks4Failure::Send => io::ErrorKind::BrokenPipe,
            Socks4Failure::Receive => io::ErrorKind::ConnectionReset,
            Socks4Failure::Denied => io::ErrorKind::ConnectionRefused,
            Socks4Failure::Closed => io::ErrorKind::UnexpectedEof,
        }
        .into()
    }
}

/// The exchange with the proxy, as far as it has come.
#[derive(Debug)]
pub struct Handshake {
    request: Vec<u8>,
    sent: usize,
    answer: [u8; ANSWER],
    received: usize,
}

impl Handshake {
    /// A request to be connected to `target`, by the user that HAProxy is to such proxies.
    pub fn new(target: SocketAddrV4) -> Self {
        let mut request = CONNECT.to_vec();
        request.extend_from_slice(&target.port().to_be_bytes());
        request.extend_from_slice(&target.ip().octets());
        request.extend_from_slice(USER);
        Self { request, sent: 0, answer: [0; ANSWER], received: 0 }
    }

    /// Goes on with the exchange; `Ready` when the proxy has agreed. Nothing behind its answer is
    /// read.
    ///
    /// # Errors
    /// What became of it instead.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<Result<(), Socks4Failure>> {
        while self.sent < self.request.len() {
            let written = ready!(stream.poll_write(context, &self.request[self.sent..]));
            self.sent += written.map_err(|_| Socks4Failure::Send)?;
        }
        while self.received < ANSWER {
            let read = ready!(stream.poll_read(context, &mut self.answer[self.received..]));
            match read.map_err(|_| Socks4Failure::Receive)? {
                0 => return Poll::Ready(Err(Socks4Failure::Closed)),
                n => self.received += n,
            }
        }
        // Whatever does not say yes says no.
        Poll::Ready(if self.answer.starts_with(&[0, GRANTED]) { Ok(()) } else { Err(Socks4Failure::Denied) })
    }
}
