//! An HTTP/1 or TCP connection to a server.

use std::io;
use std::task::{Context, Poll};

use http::{Head, ParseError, ParseOptions, ParseStatus, parse_response};
use runtime::Buffer;
use sample::Endpoint;

use super::Open;
use super::per_worker::LocalServer;
use crate::flow::Socket;

/// Distinguishes the connections to one server: only requests with the same key share a connection. Empty for plain connections.
pub(crate) type PoolKey = Box<[u8]>;

/// After this many requests, a connection is considered to survive being idle.
pub(super) const PROVEN: u32 = 2;

/// A connection to a server. It is boxed once when it is opened; the box then moves from step to step.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) key: PoolKey,
    /// The number of requests sent over this connection so far.
    pub(crate) uses: u32,
    /// How many responses had tolerated protocol violations.
    pub(crate) glitches: u32,
    /// Whether only one client may use the connection.
    pub(crate) private: bool,
    /// The local endpoint and the server's, queried once.
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// Whether small writes still wait for the acknowledgement of earlier ones (Nagle). The first write never has to wait.
    pub(crate) late_nodelay: bool,
    /// Counts the connection as open, and identifies its server.
    pub(crate) open: Open,
}

/// Why a request cannot be expressed in its server's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotExpressible {
    /// The request's path is missing or invalid for a script, or its head is too large.
    Head,
    /// The length of the request's body is unknown.
    Body,
}

/// Why no head was received.
#[derive(Debug)]
pub(crate) enum NoHead {
    /// The server closed the connection, or it broke, before the first byte.
    Nothing(Option<io::Error>),
    /// The server refused to process the request.
    Refused,
    /// The server closed the connection, or it broke, in the middle of the head.
    Cut(Option<io::Error>),
    /// The request cannot be expressed in the server's protocol.
    Unspeakable(NotExpressible),
    /// The server's bytes are not a valid response.
    Malformed(ParseError),
}

impl Connection {
    /// Returns the connection's server.
    #[inline]
    pub(crate) fn server(&self) -> &LocalServer {
        &self.open.server
    }

    /// Closes an idle connection with a reset. This saves both kernels the closing handshake, and frees the port immediately.
    pub(crate) fn discard(self) {
        self.socket.stream.reset_on_close();
    }

    /// Sends small writes without delay from now on. Must be called before the second write.
    #[inline]
    pub(crate) fn send_at_once(&mut self) {
        if std::mem::take(&mut self.late_nodelay) {
            self.socket.stream.set_nodelay();
        }
    }

    /// Whether the connection was reused after being idle, which shows that it survives that.
    pub(super) fn is_proven(&self) -> bool {
        self.uses >= PROVEN
    }

    /// Reads until the head of a response is complete. Returns the length of the head, which stays in the buffer.
    ///
    /// # Errors
    /// No head will arrive.
    #[inline]
    pub(super) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        head: &mut Head,
        options: &ParseOptions,
    ) -> Poll<Result<usize, NoHead>> {
        let Socket { stream, input } = &mut self.socket;
        if let Some(buffer) = input.as_ref().filter(|buffer| !buffer.is_empty())
            && let Some(length) = parse(buffer, head, options)?
        {
            return Poll::Ready(Ok(length));
        }
        loop {
            // No buffer is held while the server processes the request.
            if input.is_none() && stream.poll_read_ready(context).is_pending() {
                return Poll::Pending;
            }
            let buffer = input.get_or_insert_with(Buffer::for_body);
            if buffer.room_len() == 0 {
                // Removes earlier interim responses.
                buffer.compact();
            }
            let (n, error) = match stream.poll_read(context, buffer.room()) {
                Poll::Pending => {
                    if buffer.is_empty() {
                        *input = None;
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(n)) => (n, None),
                Poll::Ready(Err(error)) => (0, Some(error)),
            };
            if n == 0 {
                let silent = buffer.is_empty();
                return Poll::Ready(Err(if silent { NoHead::Nothing(error) } else { NoHead::Cut(error) }));
            }
            buffer.fill(n);
            if let Some(length) = parse(buffer, head, options)? {
                return Poll::Ready(Ok(length));
            }
        }
    }
}

fn parse(buffer: &Buffer, head: &mut Head, options: &ParseOptions) -> Result<Option<usize>, NoHead> {
    match parse_response(buffer.filled(), head, options) {
        Ok(ParseStatus::Partial) => Ok(None),
        Ok(ParseStatus::Complete { len }) => Ok(Some(len)),
        Err(error) => Err(NoHead::Malformed(error)),
    }
}
