//! A connection to a server that speaks HTTP/1, or TCP.

use std::io;
use std::task::{Context, Poll};

use http::{Head, ParseError, ParseOptions, ParseStatus, parse_response};
use runtime::Buffer;
use sample::Endpoint;

use super::Open;
use super::per_worker::LocalServer;
use crate::flow::Socket;

/// What makes connections to one server differ: they are shared only between requests of the same
/// key. Empty for plain connections.
pub(crate) type PoolKey = Box<[u8]>;

/// From how many requests on a connection is proven to survive.
pub(super) const PROVEN: u32 = 2;

/// A connection to a server. Boxed once when it is opened and handed from step to step.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) key: PoolKey,
    /// Requests sent over it so far.
    pub(crate) uses: u32,
    /// Responses whose breaches of the rules were let pass.
    pub(crate) glitches: u32,
    /// Whether only its client may use it.
    pub(crate) private: bool,
    /// Our end and theirs, told once.
    pub(crate) ends: Option<(Endpoint, Endpoint)>,
    /// Whether its writes still wait for what was sent before to be acknowledged: the first needs
    /// not be told otherwise.
    pub(crate) late_nodelay: bool,
    /// Counts it as open for as long as it lives, and tells where it leads.
    pub(crate) open: Open,
}

/// Why a request cannot be said in the protocol that its server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotExpressible {
    /// Its path is none, or has what no script's name has; or it has too much to say.
    Head,
    /// Nobody knows how long its body is.
    Body,
}

/// Why no head came.
#[derive(Debug)]
pub(crate) enum NoHead {
    /// The server closed, or its connection broke, before any byte of it.
    Nothing(Option<io::Error>),
    /// The server has not looked at the request, and will not.
    Refused,
    /// It did so within the head.
    Cut(Option<io::Error>),
    /// The request cannot be said in the protocol that the server speaks.
    Unspeakable(NotExpressible),
    /// What came is no response.
    Malformed(ParseError),
}

impl Connection {
    /// Where it leads.
    #[inline]
    pub(crate) fn server(&self) -> &LocalServer {
        &self.open.server
    }

    /// Closes a connection on which nothing is outstanding: with a reset, which spares both kernels
    /// the long goodbye and the port that it would occupy.
    pub(crate) fn discard(self) {
        self.socket.stream.reset_on_close();
    }

    /// From now on small writes leave at once: to be called before the second.
    #[inline]
    pub(crate) fn send_at_once(&mut self) {
        if std::mem::take(&mut self.late_nodelay) {
            self.socket.stream.set_nodelay();
        }
    }

    /// Proven to survive: it was used again after having been idle.
    pub(super) fn is_proven(&self) -> bool {
        self.uses >= PROVEN
    }

    /// Reads until the head of a response is complete. The head stays in what was received; its
    /// length is returned.
    ///
    /// # Errors
    /// None will come.
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
            // No buffer is held while the server thinks.
            if input.is_none() && stream.poll_read_ready(context).is_pending() {
                return Poll::Pending;
            }
            let buffer = input.get_or_insert_with(Buffer::for_body);
            if buffer.room_len() == 0 {
                // Interim responses lay before.
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
