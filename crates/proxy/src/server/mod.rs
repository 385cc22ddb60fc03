//! The server's side: connections to servers ([`Upstream`]), those that are idle ([`pool`]), and
//! servers as one worker holds them ([`per_worker`]).
//!
//! The steps of a request call the methods of [`Upstream`] and do not know which protocol answers.

pub(crate) mod agents;
pub(crate) mod fcgi;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod h2_pool;
mod idle_waker;
mod open_count;
pub(crate) mod per_worker;
pub(crate) mod pool;
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
use h1::Connection;
use per_worker::LocalServer;

pub(crate) use h1::{NoHead, NotExpressible};
pub(crate) use open_count::{Open, OpenTransfer};
pub(crate) use request::SharedRequest;

/// What a server is asked over.
pub(crate) enum Upstream {
    /// A whole connection: one HTTP/1 request at a time, or TCP.
    Socket(Box<Connection>),
    /// A stream of a connection that carries many.
    Stream(SharedRequest),
}

/// The connections to servers that belong to one client, longest kept first.
#[derive(Default)]
#[allow(clippy::vec_box)] // Handed on as it is, without a move of its content.
pub(crate) struct Private(pub(crate) Vec<Box<Connection>>);

impl Drop for Private {
    /// Nothing is outstanding on them.
    fn drop(&mut self) {
        self.0.drain(..).for_each(|connection| connection.discard());
    }
}

impl Upstream {
    /// Whether bodies go to it and come from it as payload alone, whose end its stream tells.
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

    /// Whether the protocol can switch to another (upgrades, WebSocket).
    pub(crate) fn can_upgrade(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Stream(request) => request.can_upgrade(),
        }
    }

    /// What its stream is known as, where its connection has many.
    #[inline]
    pub(crate) fn stream_facts(&self) -> Option<StreamFacts> {
        match self {
            Self::Socket(_) => None,
            Self::Stream(request) => Some(request.facts()),
        }
    }

    /// How the body of a response with this head to a request of this method ends.
    #[inline]
    pub(crate) fn body_length(&self, head: &Head, method: Method) -> BodyLength {
        match self {
            Self::Socket(_) => head.response_body(method),
            Self::Stream(request) => request.body_length(head, method),
        }
    }

    /// Where it leads.
    #[inline]
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        match self {
            Self::Socket(connection) => &connection.open.server,
            Self::Stream(request) => request.server(),
        }
    }

    /// Another request begins on a connection that others had.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        match self {
            Self::Socket(connection) => {
                connection.send_at_once();
                connection.uses += 1;
            }
            // It counts its requests itself.
            Self::Stream(_) => {}
        }
    }

    /// Requests sent over its connection so far, this one included.
    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        match self {
            Self::Socket(connection) => connection.uses,
            Self::Stream(request) => request.uses(),
        }
    }

    /// Responses on its connection whose breaches of the rules were let pass.
    #[inline]
    pub(crate) fn glitches(&self) -> u32 {
        match self {
            Self::Socket(connection) => connection.glitches,
            Self::Stream(request) => request.glitches(),
        }
    }

    /// Counts one more of them.
    pub(crate) fn note_glitch(&mut self) {
        match self {
            Self::Socket(connection) => connection.glitches += 1,
            Self::Stream(_) => {}
        }
    }

    /// Our end of its connection and theirs.
    #[inline]
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        match self {
            Self::Socket(connection) => connection.ends,
            Self::Stream(request) => request.ends(),
        }
    }

    /// What is known of TLS on its connection, where that is spoken.
    #[inline]
    pub(crate) fn tls(&self) -> Option<&Arc<tls::Details>> {
        match self {
            Self::Socket(connection) => connection.socket.stream.tls().map(tls::Session::details),
            Self::Stream(request) => request.tls(),
        }
    }

    /// Whether the server refused what it was sent before the end of the handshake, and has not
    /// looked at it.
    pub(crate) fn refused_early(&self) -> bool {
        self.tls()
            .and_then(|details| details.failure)
            .is_some_and(|error| error.kind == tls::FailureKind::EarlyData)
    }

    /// From now on small writes leave at once: to be called before the second.
    #[inline]
    pub(crate) fn send_at_once(&mut self) {
        match self {
            Self::Socket(connection) => connection.send_at_once(),
            Self::Stream(_) => {}
        }
    }

    /// Whether the request's head could not be sent yet.
    #[inline]
    pub(crate) fn holds_head(&self) -> bool {
        match self {
            Self::Stream(request) => request.holds_head(),
            Self::Socket(_) => false,
        }
    }

    /// Sends a head that was held, once that is possible.
    pub(crate) fn poll_open(&mut self, context: &Context<'_>) -> Poll<()> {
        match self {
            Self::Stream(request) => request.poll_open(context),
            Self::Socket(_) => Poll::Ready(()),
        }
    }

    /// No response came in time.
    pub(crate) fn note_timeout(&mut self) {
        match self {
            Self::Stream(request) => request.note_timeout(),
            Self::Socket(_) => {}
        }
    }

    /// Reads until the head of a response is complete; its length within what was received.
    ///
    /// # Errors
    /// None will come.
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

    /// Looks at what came of the body together with its `head` of so many bytes, which answers a
    /// request of this method: a response that is broken there goes nowhere.
    ///
    /// # Errors
    /// It is badly coded.
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

    /// Takes the head of so many bytes, of which [`poll_head`](Self::poll_head) told.
    #[inline]
    pub(crate) fn consume_head(&mut self, length: usize) {
        match self {
            Self::Socket(connection) => connection.socket.input_for_body().consume(length),
            Self::Stream(_) => {}
        }
    }

    /// What was received and nobody has taken yet.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        match self {
            Self::Socket(connection) => connection.socket.received(),
            Self::Stream(request) => request.received(),
        }
    }

    /// Puts other bytes in the place of what was received of a stream of TCP.
    pub(crate) fn replace_received(&mut self, bytes: &[u8]) {
        if let Self::Socket(connection) = self {
            connection.socket.replace(bytes);
        }
    }

    /// Has `flow` take in what is here of the body.
    ///
    /// # Errors
    /// It is badly coded.
    pub(crate) fn admit(&mut self, flow: &mut Flow) -> Result<(), FlowError> {
        match self {
            Self::Socket(connection) => {
                connection.socket.input.as_mut().map_or(Ok(()), |input| flow.admit(input))
            }
            Self::Stream(request) => request.admit(flow),
        }
    }

    /// What is here of a body that nothing was taken of yet.
    pub(crate) fn beginning(&self) -> Beginning<'_> {
        let is_all = match self {
            Self::Socket(_) => None,
            Self::Stream(request) => Some(request.is_ended()),
        };
        Beginning { bytes: self.received(), is_all }
    }

    /// Has the buffer hold so many bytes, where it holds less; whether it did.
    pub(crate) fn enlarge(&mut self, bytes: usize) -> bool {
        self.input().is_some_and(|input| input.enlarge(bytes))
    }

    /// Whether there is room for more of what the server sends.
    pub(crate) fn has_room(&mut self) -> bool {
        self.input().is_some_and(Buffer::has_room)
    }

    /// The buffer of what was received, one that is fit for a body if there is none; `None` where no
    /// stream was begun.
    fn input(&mut self) -> Option<&mut Buffer> {
        match self {
            Self::Socket(connection) => Some(connection.socket.input_for_body()),
            Self::Stream(request) => request.input(),
        }
    }

    /// Reads more of what the server sends: 0 at its end. There must be [room](Self::has_room).
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(connection) => {
                connection.socket.input_for_body();
                connection.socket.poll_fill(context)
            }
            Self::Stream(request) => request.poll_fill(context),
        }
    }

    /// Where the body of the response comes from.
    #[inline]
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Socket(connection) => Source::Socket(&mut connection.socket),
            Self::Stream(request) => request.source(),
        }
    }

    /// Where the request goes.
    #[inline]
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        match self {
            Self::Socket(connection) => Sink::Socket(&mut connection.socket.stream),
            Self::Stream(request) => request.sink(),
        }
    }

    /// Whether the server's side ended in TLS without the word that it is the end (close_notify).
    pub(crate) fn is_cut_off(&self) -> bool {
        match self {
            Self::Socket(connection) => {
                connection.socket.stream.tls().is_some_and(|tls| tls.ended() == tls::PeerEnd::Cut)
            }
            Self::Stream(_) => false,
        }
    }

    /// Has the server told at once that nobody waits for what is outstanding.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Socket(connection) => connection.socket.stream.reset_on_close(),
            Self::Stream(request) => request.cancel(),
        }
    }

    /// The kernel's number of the connection.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Socket(connection) => connection.socket.stream.as_fd().as_raw_fd(),
            Self::Stream(request) => request.descriptor(),
        }
    }
}
