//! Connecting through a SOCKS4 proxy (`socks4` of server lines): the request for an IPv4 address and the response.
//!
//! The caller connects to the proxy, sets the time limit, and uses the stream once the proxy has granted the request.

use std::io;
use std::net::SocketAddrV4;
use std::task::{Context, Poll, ready};

use crate::stream::Stream;

/// Version 4, and the CONNECT command.
const CONNECT: [u8; 2] = [4, 1];
/// The user name, NUL-terminated.
const USER: &[u8] = b"HAProxy\0";
/// The second byte of a positive response.
const GRANTED: u8 = 90;
/// The length of a response.
const ANSWER: usize = 8;

/// The failures of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socks4Failure {
    /// The request could not be sent.
    Send,
    /// The response could not be read.
    Receive,
    /// The proxy refused the request, or sent something else.
    Denied,
    /// The proxy closed before it responded.
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

/// The state of the exchange with the proxy.
#[derive(Debug)]
pub struct Handshake {
    request: Vec<u8>,
    sent: usize,
    answer: [u8; ANSWER],
    received: usize,
}

impl Handshake {
    /// Creates the request for a connection to `target`, with the same user name as HAProxy.
    pub fn new(target: SocketAddrV4) -> Self {
        let mut request = CONNECT.to_vec();
        request.extend_from_slice(&target.port().to_be_bytes());
        request.extend_from_slice(&target.ip().octets());
        request.extend_from_slice(USER);
        Self { request, sent: 0, answer: [0; ANSWER], received: 0 }
    }

    /// Continues the exchange. Returns `Ready` once the proxy has granted the request. Does not read beyond the response.
    ///
    /// # Errors
    /// The failure of the exchange.
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
        // Anything except a positive response is a refusal.
        Poll::Ready(if self.answer.starts_with(&[0, GRANTED]) { Ok(()) } else { Err(Socks4Failure::Denied) })
    }
}
