//! The server side: connections to servers ([`Upstream`]), idle ones ([`pool`]), and one worker's view of servers
//! ([`per_worker`]).
//!
//! The steps of a request call the methods of [`Upstream`], which are the same for all protocols.

pub(crate) mod agents;
pub(crate) mod fcgi;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod h2_pool;
pub(crate) mod h3;
pub(crate) mod http_request;
mod idle_waker;
mod open_count;
pub(crate) mod per_worker;
pub(crate) mod pool;
mod private;
mod request;
pub(crate) mod shared;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{BodyLength, ChunkDecoder, ErrorKind, Head, Method, ParseError, ParseOptions};
use runtime::Buffer;
use sample::{Endpoint, StreamFacts};

use crate::flow::{Beginning, Flow, FlowError, Sink, Source};
use crate::stream::WireProtocol;
use crate::stream::h3::H3Connection;
use h1::Connection;
use per_worker::LocalServer;

pub(crate) use h1::{NoHead, NotExpressible};
pub(crate) use open_count::{Open, OpenTransfer};
pub(crate) use private::{ClientId, PrivateConnections};
pub(crate) use request::SharedRequest;

/// The server's side of a request.
pub(crate) enum Upstream {
    /// A whole connection, which carries one HTTP/1 request at a time, or TCP.
    Socket(Box<Connection>),
    /// One stream of a multiplexed connection.
    Stream(SharedRequest),
}

impl Upstream {
    /// Whether bodies are transferred as bare payload, with their end marked by the stream.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Stream(_) => true,
        }
    }

    /// The protocol of the connection.
    pub(crate) fn protocol(&self) -> WireProtocol {
        match self {
            Self::Socket(_) => WireProtocol::Http1,
            Self::Stream(request) => request.protocol(),
        }
    }

    /// Whether the protocol allows switching to another one (upgrades, WebSocket).
    pub(crate) fn can_upgrade(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Stream(request) => request.can_upgrade(),
        }
    }

    /// Identifies the stream if the connection is multiplexed.
    #[inline]
    pub(crate) fn stream_facts(&self) -> Option<StreamFacts> {
        match self {
            Self::Socket(_) => None,
            Self::Stream(request) => Some(request.facts()),
        }
    }

    /// Returns how the end of a response's body is marked. `head` is the head of the response, and `method` is the method of its
    /// request.
    #[inline]
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        match self {
            Self::Socket(_) => head.response_body(method),
            Self::Stream(request) => request.body_length(head, method),
        }
    }

    /// Returns the connection's server.
    #[inline]
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        match self {
            Self::Socket(connection) => &connection.open.server,
            Self::Stream(request) => request.server(),
        }
    }

    /// Starts another request on a reused connection.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        match self {
            Self::Socket(connection) => {
                connection.send_at_once();
                connection.uses += 1;
            }
            // The stream counts its requests itself.
            Self::Stream(_) => {}
        }
    }

    /// Returns the number of requests sent over the connection so far, including this one.
    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        match self {
            Self::Socket(connection) => connection.uses,
            Self::Stream(request) => request.uses(),
        }
    }

    /// Returns the number of responses with tolerated protocol violations on the connection.
    #[inline]
    pub(crate) fn glitches(&self) -> u32 {
        match self {
            Self::Socket(connection) => connection.glitches,
            Self::Stream(request) => request.glitches(),
        }
    }

    /// Counts one more response with a tolerated protocol violation.
    pub(crate) fn note_glitch(&mut self) {
        match self {
            Self::Socket(connection) => connection.glitches += 1,
            Self::Stream(_) => {}
        }
    }

    /// Returns the local endpoint of the connection and the server's.
    #[inline]
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        match self {
            Self::Socket(connection) => connection.ends,
            Self::Stream(request) => request.ends(),
        }
    }

    /// Returns the TLS details of the connection, if it uses TLS.
    #[inline]
    pub(crate) fn tls(&self) -> Option<&Arc<tls::Details>> {
        match self {
            Self::Socket(connection) => connection.socket.stream.tls().map(tls::Session::details),
            Self::Stream(request) => request.tls(),
        }
    }

    /// Returns the QUIC connection, if it is one.
    pub(crate) fn quic(&self) -> Option<Rc<H3Connection>> {
        match self {
            Self::Stream(SharedRequest::H3(request)) => Some(request.carrier.connection.clone()),
            Self::Stream(_) | Self::Socket(_) => None,
        }
    }

    /// Whether the server rejected the early data without processing it.
    pub(crate) fn refused_early(&self) -> bool {
        if let Self::Stream(request) = self
            && request.refused_early()
        {
            return true;
        }
        self.tls()
            .and_then(|details| details.failure)
            .is_some_and(|error| error.kind == tls::FailureKind::EarlyData)
    }

    /// Sends small writes without delay from now on. Must be called before the second write.
    #[inline]
    pub(crate) fn send_at_once(&mut self) {
        match self {
            Self::Socket(connection) => connection.send_at_once(),
            Self::Stream(_) => {}
        }
    }

    /// Whether the request's head is still held.
    #[inline]
    pub(crate) fn holds_head(&self) -> bool {
        match self {
            Self::Stream(request) => request.holds_head(),
            Self::Socket(_) => false,
        }
    }

    /// Sends a held head, once that is possible.
    pub(crate) fn poll_open(&mut self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::Stream(request) => request.poll_open(context),
            Self::Socket(_) => Poll::Ready(()),
        }
    }

    /// Called when no response arrived in time.
    pub(crate) fn note_timeout(&mut self) {
        match self {
            Self::Stream(request) => request.note_timeout(),
            Self::Socket(_) => {}
        }
    }

    /// Reads until the head of a response is complete. Returns the length of the head in the received bytes.
    ///
    /// # Errors
    /// No head will arrive.
    #[inline]
    pub(crate) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        head: &mut Head,
        options: &ParseOptions,
    ) -> Poll<Result<usize, NoHead>> {
        match self {
            Self::Socket(connection) => connection.poll_head(context, head, options),
            Self::Stream(request) => request.poll_head(context, head).map_ok(|()| 0),
        }
    }

    /// Checks the part of the body that arrived with the response's `head` of `length` bytes. The request used this method. A
    /// malformed response is not forwarded.
    ///
    /// # Errors
    /// The body is malformed.
    #[inline]
    pub(crate) fn check_body(&self, head: &Head, method: Method, length: usize) -> Result<(), ParseError> {
        if head.response_body(method) != BodyLength::Chunked || self.is_bare() {
            return Ok(());
        }
        let body = self.received().get(length..).unwrap_or_default();
        let error =
            |error: http::ChunkError| ParseError { kind: ErrorKind::Chunk, offset: length + error.offset };
        ChunkDecoder::new().track(body).map(drop).map_err(error)
    }

    /// Consumes a head of `length` bytes, as returned by [`poll_head`](Self::poll_head).
    #[inline]
    pub(crate) fn consume_head(&mut self, length: usize) {
        match self {
            Self::Socket(connection) => connection.socket.input_for_body().consume(length),
            Self::Stream(_) => {}
        }
    }

    /// Returns the bytes received but not consumed yet.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        match self {
            Self::Socket(connection) => connection.socket.received(),
            Self::Stream(request) => request.received(),
        }
    }

    /// Replaces the received bytes of a TCP stream.
    pub(crate) fn replace_received(&mut self, bytes: &[u8]) {
        if let Self::Socket(connection) = self {
            connection.socket.replace(bytes);
        }
    }

    /// Passes the received part of the body to `flow`.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        match self {
            Self::Socket(connection) => {
                connection.socket.input.as_mut().map_or(Ok(()), |input| flow.admit(input))
            }
            Self::Stream(request) => request.admit(flow),
        }
    }

    /// Returns the received part of a body that has not been read yet.
    pub(crate) fn beginning(&self) -> Beginning<'_> {
        let is_all = match self {
            Self::Socket(_) => None,
            Self::Stream(request) => Some(request.is_ended()),
        };
        Beginning { bytes: self.received(), is_all }
    }

    /// Grows the buffer to at least `bytes`. Returns whether that succeeded.
    pub(crate) fn enlarge(&mut self, bytes: usize) -> bool {
        self.input().is_some_and(|input| input.enlarge(bytes))
    }

    /// Whether there is room for more data from the server.
    pub(crate) fn has_room(&mut self) -> bool {
        self.input().is_some_and(Buffer::has_room)
    }

    /// Returns the receive buffer, and allocates one sized for a body if necessary. Returns `None` if no stream was opened.
    fn input(&mut self) -> Option<&mut Buffer> {
        match self {
            Self::Socket(connection) => Some(connection.socket.input_for_body()),
            Self::Stream(request) => request.input(),
        }
    }

    /// Reads more data from the server. Returns 0 at the end of the data. Requires [room](Self::has_room).
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(connection) => {
                connection.socket.input_for_body();
                connection.socket.poll_fill(context)
            }
            Self::Stream(request) => request.poll_fill(context),
        }
    }

    /// Returns the source of the response's body.
    #[inline]
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Socket(connection) => Source::Socket(&mut connection.socket),
            Self::Stream(request) => request.source(),
        }
    }

    /// Returns the sink for the request.
    #[inline]
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        match self {
            Self::Socket(connection) => Sink::Socket(&mut connection.socket.stream),
            Self::Stream(request) => request.sink(),
        }
    }

    /// Whether the server closed its TLS connection without a close_notify.
    pub(crate) fn is_cut_off(&self) -> bool {
        match self {
            Self::Socket(connection) => {
                connection.socket.stream.tls().is_some_and(|tls| tls.ended() == tls::PeerEnd::Cut)
            }
            Self::Stream(_) => false,
        }
    }

    /// Aborts the request, because its response is not needed.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Socket(connection) => connection.socket.stream.reset_on_close(),
            Self::Stream(request) => request.cancel(),
        }
    }

    /// Returns the connection's file descriptor.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(connection) => connection.socket.stream.as_fd().as_raw_fd(),
            Self::Stream(request) => request.descriptor(),
        }
    }
}
