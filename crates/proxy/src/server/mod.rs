//! The server's side: connections to servers ([`Upstream`]), those that are idle ([`pool`]), and
//! servers as one worker holds them ([`local`]).
//!
//! The steps of a request call the methods of [`Upstream`] and do not know which protocol answers.

mod bell;
pub(crate) mod h1;
pub(crate) mod local;
mod open;
pub(crate) mod pool;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{BodyLength, ChunkDecoder, ErrorKind, Head, Method, ParseError, ParseOptions};
use sample::Endpoint;

use crate::flow::{Sink, Source};
use h1::Connection;
use local::LocalServer;

pub(crate) use h1::NoHead;
pub(crate) use open::{Handed, Open};

/// What a server is asked over.
pub(crate) enum Upstream {
    /// HTTP/1, and TCP: one request, or one stream, at a time.
    H1(Box<Connection>),
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
    /// Where it leads.
    #[inline]
    pub(crate) fn server(&self) -> &Rc<LocalServer> {
        let Self::H1(connection) = self;
        &connection.open.server
    }

    /// Requests sent over its connection so far, this one included.
    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        let Self::H1(connection) = self;
        connection.uses
    }

    /// Responses on its connection whose breaches of the rules were let pass.
    #[inline]
    pub(crate) fn glitches(&self) -> u32 {
        let Self::H1(connection) = self;
        connection.glitches
    }

    /// Counts one more of them.
    pub(crate) fn note_glitch(&mut self) {
        let Self::H1(connection) = self;
        connection.glitches += 1;
    }

    /// Our end of its connection and theirs.
    #[inline]
    pub(crate) fn ends(&self) -> Option<(Endpoint, Endpoint)> {
        let Self::H1(connection) = self;
        connection.ends
    }

    /// What is known of TLS on its connection, where that is spoken.
    #[inline]
    pub(crate) fn tls(&self) -> Option<&Arc<tls::Details>> {
        let Self::H1(connection) = self;
        connection.socket.stream.tls().map(tls::Session::details)
    }

    /// Whether the server refused what it was sent before the end of the handshake, and has not
    /// looked at it.
    pub(crate) fn refused_early(&self) -> bool {
        self.tls().and_then(|details| details.failure).is_some_and(|error| error.kind == tls::Kind::EarlyData)
    }

    /// From now on small writes leave at once: to be called before the second.
    #[inline]
    pub(crate) fn send_at_once(&mut self) {
        let Self::H1(connection) = self;
        connection.send_at_once();
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
        let Self::H1(connection) = self;
        connection.poll_head(context, head, options)
    }

    /// Looks at what came of the body together with its `head` of so many bytes, which answers a
    /// request of this method: a response that is broken there goes nowhere.
    ///
    /// # Errors
    /// It is badly coded.
    #[inline]
    pub(crate) fn check_body(&self, head: &Head, method: Method, length: usize) -> Result<(), ParseError> {
        if head.response_body(method) != BodyLength::Chunked {
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
        let Self::H1(connection) = self;
        connection.socket.input_for_body().consume(length);
    }

    /// What was received and nobody has taken yet.
    #[inline]
    pub(crate) fn received(&self) -> &[u8] {
        let Self::H1(connection) = self;
        connection.socket.received()
    }

    /// Decodes what is here of a body that nothing was taken of yet; says whether that is all of
    /// it.
    ///
    /// # Errors
    /// It is badly coded.
    pub(crate) fn decode(&self, length: BodyLength, out: &mut Vec<u8>) -> Result<bool, http::ChunkError> {
        crate::flow::decode(length, self.received(), out)
    }

    /// Whether there is room for more of what the server sends.
    pub(crate) fn has_room(&mut self) -> bool {
        let Self::H1(connection) = self;
        let input = connection.socket.input_for_body();
        input.compact();
        input.room_len() > 0
    }

    /// Reads more of what the server sends: 0 at its end. There must be [room](Self::has_room).
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self::H1(connection) = self;
        connection.socket.input_for_body();
        connection.socket.poll_fill(context)
    }

    /// Where the body of the response comes from.
    #[inline]
    pub(crate) fn source(&mut self) -> Source<'_> {
        let Self::H1(connection) = self;
        Source::H1(&mut connection.socket)
    }

    /// Where the request goes.
    #[inline]
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        let Self::H1(connection) = self;
        Sink::H1(&mut connection.socket.stream)
    }

    /// Whether the server's side ended in TLS without the word that it is the end (close_notify).
    pub(crate) fn is_cut_off(&self) -> bool {
        let Self::H1(connection) = self;
        connection.socket.stream.tls().is_some_and(|tls| tls.ended() == tls::Ended::Cut)
    }

    /// Has the server told at once that nobody waits for what is outstanding.
    pub(crate) fn reset(&self) {
        let Self::H1(connection) = self;
        connection.socket.stream.reset_on_close();
    }

    /// The kernel's number of the connection.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        let Self::H1(connection) = self;
        connection.socket.stream.as_fd().as_raw_fd()
    }
}
