//! Connecting by way of a SOCKS4 proxy (`socks4` of server lines): the request for an IPv4 address and its answer.
//!
//! The caller connects to the proxy, sets the time limit, and goes on with the stream once the proxy has agreed.

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

    /// Goes on with the exchange; `Ready` when the proxy has agreed. Nothing behind its answer is read.
    ///
    /// # Errors
    /// `ConnectionRefused` when the proxy says no, `InvalidData` when it speaks something else, and what sockets say.
    pub fn poll(&mut self, context: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<()>> {
        while self.sent < self.request.len() {
            self.sent += ready!(stream.poll_write(context, &self.request[self.sent..]))?;
        }
        while self.received < ANSWER {
            match ready!(stream.poll_read(context, &mut self.answer[self.received..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                n => self.received += n,
            }
        }
        Poll::Ready(match self.answer {
            [0, GRANTED, ..] => Ok(()),
            [0, ..] => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        })
    }
}
